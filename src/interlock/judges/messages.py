"""The judge of Anthropic's Messages: the rules M1 to M14 of docs/guides/dialects.md.

The fields of an event may be of any type. An error does not end the judging: each rule reads the events as if the others were
kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import define, field

from interlock.dialects.messages import MESSAGES, MessagesEffect, MessagesTransducer
from interlock.events.json import EMPTY, as_text, elements, is_array, is_object, members, parse
from interlock.events.rulebook import Finding, Rule, read_rows
from interlock.events.shapes import counted
from interlock.judges.digests import quote
from interlock.judges.judging import Body, DialectJudge, Indexed, transducer_automaton

_RULES: Final = """
M1|opening|order|`message_start` comes first and once, empty, with id, model and usage.|SDKs build the message from it.
M2|blocks|order|Blocks come one after another, each with the next index.|SDKs find a block by its index or take the last one.
M3|deltas|content|Each delta fits the type of its block.|SDKs drop it or raise an error.
M4|signature|order|One signature ends a block of thinking.|The reasoning cannot be sent back.
M5|calls|content|A call has an id, a name and an input.
  The input is an object if the call is to run.
|The tool runs with wrong arguments.
M6|results|content|Results and redacted thinking are whole at their start.|
M7|end|order|After the last block, `message_delta` has the reason and the usage.|SDKs have no reason and no usage.
M8|reason|content
|The reason is `tool_use` if and only if a call is complete.
  With the reason `stop_sequence`, the field `stop_sequence` has the string of the request.
|An agent stops early, or waits.
M9|stop|order|`message_stop` comes last.|A client waits, or reads what is not there.
M10|ping|order|`ping` may come anywhere.|
M11|error|order|`error` has a type and a message, and ends the stream anywhere.|A client cannot tell why the message failed.
M12|frames|content|The name of a frame is the type in its data.|SDKs skip the event.
M13|whole|content|A whole message equals what its stream adds up to. If the JSON of an input is no object, the input is `{}`.|
M14|text|content|The next request may have the blocks as they were. No text is empty.|The API refuses the message later.
"""

_RESULT: Final = {"tool_use_id": (str,), "content": (list, dict, str)}
_CALL: Final = {"id": (str,), "name": (str,), "input": (dict,)}

BLOCKS: Final[Mapping[str, Mapping[str, tuple[type, ...]]]] = {
    "text": {"text": (str,)},
    "thinking": {"thinking": (str,)},
    "redacted_thinking": {"data": (str,)},
    "tool_use": _CALL,
    "server_tool_use": _CALL,
    "mcp_tool_use": {**_CALL, "server_name": (str,)},
    "web_search_tool_result": _RESULT,
    "web_fetch_tool_result": _RESULT,
    "code_execution_tool_result": _RESULT,
    "bash_code_execution_tool_result": _RESULT,
    "text_editor_code_execution_tool_result": _RESULT,
    "tool_search_tool_result": _RESULT,
    "advisor_tool_result": _RESULT,
    "mcp_tool_result": {**_RESULT, "is_error": (bool,)},
    "mcp_tool_listing": {"mcp_server_name": (str,), "tools": (list,)},
    "container_upload": {"file_id": (str,)},
    "compaction": {},
    "fallback": {"from": (dict,), "to": (dict,), "trigger": (dict,)},
}
"""The required fields of a block at its start, and their types: those of the `anthropic` package, 2.14.

Anthropic's own service leaves out the signature of a thinking block at times.
"""

_INPUT: Final[Mapping[str, Mapping[str, type]]] = {"input_json_delta": {"partial_json": str}}
BLOCK_DELTAS: Final[Mapping[str, Mapping[str, Mapping[str, type]]]] = {
    "text": {"text_delta": {"text": str}, "citations_delta": {"citation": dict}},
    "thinking": {"thinking_delta": {"thinking": str}, "signature_delta": {"signature": str}},
    "tool_use": _INPUT,
    "server_tool_use": _INPUT,
    "mcp_tool_use": _INPUT,
    "compaction": {"compaction_delta": {}},
}
"""The deltas of each block with their required fields; a block without an entry is complete at its start (M6)."""

MESSAGES_EVENTS: Final = frozenset(
    {
        *("message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"),
        *("ping", "error"),
    }
)
"""The events of Messages."""
_STOPS: Final = frozenset(
    {
        *("end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "compaction", "refusal"),
        "model_context_window_exceeded",
    }
)
_COUNTS: Final = ("input_tokens", "output_tokens")


@define
class _BlockEvents:
    """A block: its place in the stream, its start and its deltas, and whether it ended."""

    place: int
    start: Mapping[str, object]
    deltas: list[Mapping[str, object]] = field(factory=list[Mapping[str, object]])
    stopped: bool = False

    @property
    def kind(self) -> str:
        return as_text(self.start.get("type"))

    @property
    def input(self) -> str:
        """The JSON of the deltas of a call, which may be blank if the input is at the start."""
        return "".join(as_text(delta.get("partial_json")) for delta in self.deltas)

    @property
    def is_whole_call(self) -> bool:
        """Whether the block is a call of the client's tool that it can run."""
        return self.kind == "tool_use" and self.stopped and (not self.input.strip() or is_object(parse(self.input)))


def check_messages(events: Sequence[Mapping[str, object]], *, request: Body = EMPTY) -> list[Finding]:
    """Validate the data of all events of one message; the request is empty if it is unknown."""
    indexed = [(index, event) for index, event in enumerate(events) if event.get("type") != "ping"]
    if not indexed:
        return [Finding("M1", "the stream has no event", event=0)]
    findings = [*_check_ends(indexed), *_check_late_pings(events)]
    blocks = [*_split_blocks(indexed, findings)]
    for block in blocks:
        findings += _check_fields(block)
        findings += _check_deltas(block)
    return [*findings, *_check_inputs(blocks, events), *_check_stop(indexed, blocks, request)]


def _check_ends(events: Indexed) -> Iterator[Finding]:
    """M1, M9 and M11: the beginning and the end of the stream."""
    names = [as_text(event.get("type")) for _, event in events]
    last, _ = events[-1]
    if names[-1] not in ("message_stop", "error"):
        yield Finding("M9", f"the stream ends with {names[-1]}", event=last)
    for place, (index, event) in enumerate(events):
        name = names[place]
        if name == "error" and not all(isinstance(members(event.get("error")).get(each), str) for each in ("type", "message")):
            yield Finding("M11", "an error needs a type and a message", event=index)
        if name in ("message_stop", "error") and index != last:
            yield Finding("M9" if name == "message_stop" else "M11", f"events follow {name}", event=index)
        if name and name not in MESSAGES_EVENTS:
            yield Finding("M12", f"the API has no event {name}", "unknown-message-event", index)
        elif (name == "message_start") != (place == 0) and name != "error":
            yield Finding("M1", f"{name} is event {place}", event=index)
    if names[0] == "message_start":
        yield from _check_start(events[0][0], members(events[0][1].get("message")))


def _check_late_pings(events: Sequence[Mapping[str, object]]) -> Iterator[Finding]:
    names = [event.get("type") for event in events]
    if "message_stop" in names:
        stop = names.index("message_stop")
        late = (index for index, name in enumerate(names) if name == "ping" and index > stop)
        yield from (Finding("M9", "comes after message_stop", "late-ping", index) for index in late)


def _check_start(index: int, message: Mapping[str, object]) -> Iterator[Finding]:
    is_message = message.get("type") == "message" and message.get("role") == "assistant" and is_array(message.get("content"))
    if not is_message or message.get("stop_reason") is not None or not message.get("id") or not message.get("model"):
        yield Finding("M1", "the message does not begin empty, with an id and a model", event=index)
    elif message.get("content"):
        yield Finding("M1", "the message begins with content", "content-at-start", index)
    elif "stop_reason" not in message:
        yield Finding("M1", "the message begins without stop_reason", "no-reason-at-start", index)
    if any(type(members(message.get("usage")).get(name)) is not int for name in _COUNTS):
        yield Finding("M1", "the message begins without usage", event=index)


def _split_blocks(events: Indexed, findings: list[Finding]) -> Iterator[_BlockEvents]:
    """M2: one block after another, each with its index. Yield the blocks."""
    block: _BlockEvents | None = None
    count = 0
    for index, event in events:
        match event.get("type"):
            case "content_block_start":
                if block is not None or event.get("index") != count:
                    message = f"block {quote(event.get('index'))} begins, after {counted(count, 'block')}"
                    findings.append(Finding("M2", message, event=index))
                count += 1
                block = _BlockEvents(index, members(event.get("content_block")))
                yield block
            case "content_block_delta" | "content_block_stop" as name if block is None or event.get("index") != count - 1:
                findings.append(Finding("M2", f"{name} is for block {quote(event.get('index'))}, which is not open", event=index))
            case "content_block_delta" if block is not None:
                block.deltas.append(members(event.get("delta")))
            case "content_block_stop" if block is not None:
                block.stopped, block = True, None
            case str() as name if block is not None and name in MESSAGES_EVENTS and name != "error":
                findings.append(Finding("M2", f"{name} inside a block", event=index))
            case _:
                pass


def _check_fields(block: _BlockEvents) -> Iterator[Finding]:
    """M3, M5 and M6: the fields of a block at its start."""
    if not block.kind:
        yield Finding("M3", "the block has no type", event=block.place)
    elif block.kind not in BLOCKS:
        yield Finding("M3", f"the API has no block {block.kind}", "unknown-block", block.place)
    for name, types in BLOCKS.get(block.kind, {}).items():
        if not isinstance(block.start.get(name), types):
            yield Finding("M5" if name in _CALL else "M3", f"the block has no {name}", event=block.place)
        elif name in ("text", "thinking") and block.start[name]:
            yield Finding("M3", f"{name} is not empty at the start", event=block.place)


def _check_deltas(block: _BlockEvents) -> Iterator[Finding]:
    """M3, M4 and M14: the deltas fit the block, a signature ends the reasoning, and no text is empty."""
    known = BLOCK_DELTAS.get(block.kind, {})
    for delta in block.deltas if block.kind in BLOCKS else ():
        kind = as_text(delta.get("type"))
        if kind not in known or not all(isinstance(delta.get(name), each) for name, each in known[kind].items()):
            yield Finding("M3", f"{kind or quote(delta.get('type'))} in a block of the type {block.kind}", event=block.place)
    kinds = [delta.get("type") for delta in block.deltas]
    if block.kind == "thinking" and block.stopped:
        signatures = kinds.count("signature_delta")
        if not signatures and not block.start.get("signature"):
            yield Finding("M4", "the block has no signature", "unsigned", block.place)
        elif signatures > 1 or (signatures and kinds[-1] != "signature_delta"):
            yield Finding("M4", "the block does not end with one signature", event=block.place)
    if block.kind == "text" and block.stopped and not any(as_text(delta.get("text")) for delta in block.deltas):
        yield Finding("M14", "the text is empty", event=block.place)


def _check_stop(events: Indexed, blocks: Sequence[_BlockEvents], request: Body) -> Iterator[Finding]:
    """M7 and M8: the end of a message that did not fail."""
    ends = [(index, event) for index, event in events if event.get("type") == "message_delta"]
    index, end = ends[-1] if ends else (len(events), EMPTY)
    reason, stop = (members(end.get("delta")).get(name) for name in ("stop_reason", "stop_sequence"))
    if events[-1][1].get("type") == "error":
        return
    if not ends or any(block.place > index for block in blocks):
        yield Finding("M7", "no message_delta follows the last block", event=len(events))
        return
    if not isinstance(reason, str) or reason not in _STOPS:
        yield Finding("M8", f"the reason is {quote(reason)}", event=index)
    if (reason == "stop_sequence") != isinstance(stop, str):
        yield Finding("M8", f"the reason is {quote(reason)}, and the stop sequence {quote(stop)}", event=index)
    elif request and stop is not None and stop not in elements(request.get("stop_sequences")):
        yield Finding("M8", f"the stop sequence {quote(stop)} is not one of the request", event=index)
    if type(members(end.get("usage")).get("output_tokens")) is not int:
        yield Finding("M7", "message_delta has no usage", event=index)
    calls = [block.is_whole_call for block in blocks if block.kind == "tool_use"]
    if reason == "tool_use" and not calls:
        yield Finding("M8", "the reason is tool_use, without a call", event=index)
    if reason == "end_turn" and calls and all(calls):
        yield Finding("M8", "the client has a call to run, and the reason is end_turn", event=index)


def _check_inputs(blocks: Sequence[_BlockEvents], events: Sequence[Mapping[str, object]]) -> Iterator[Finding]:
    """M5: the inputs of calls. They may be truncated if no call has to run; at the end of a turn, only the last one may be."""
    reasons = [members(event.get("delta")).get("stop_reason") for event in events if event.get("type") == "message_delta"]
    for block in blocks:
        is_last = block is blocks[-1]
        yield from _check_input(block, may_be_cut="tool_use" not in reasons[-1:] and (is_last or "end_turn" not in reasons[-1:]))


def _check_input(block: _BlockEvents, *, may_be_cut: bool) -> Iterator[Finding]:
    """M5: the JSON of a call that ended is an object, unless the end of the message cut it off."""
    text = block.input.strip()
    if not text or not block.stopped or BLOCK_DELTAS.get(block.kind) is not _INPUT:
        return
    value = parse(text)
    begun = members(block.start.get("input"))
    if not is_object(value) and not (may_be_cut and value is None and text != "null"):
        yield Finding("M5", f"the input is {text[:40]!r} instead of an object", event=block.place)
    elif begun and begun != value:
        yield Finding("M5", "the input at the start is not that of the deltas", event=block.place)


_E = MessagesEffect

_EMITTED: Final[Mapping[str, Sequence[str]]] = {
    _E.MESSAGE_START: ["message_start"],
    _E.TEXT_START: ["start text"],
    _E.TEXT: ["text_delta"],
    _E.NAME: ["text_delta"],
    _E.THINKING_START: ["start thinking"],
    _E.THINKING: ["thinking_delta"],
    _E.SIGNATURE: ["signature_delta"],
    _E.CALL_START: ["start tool_use"],
    _E.INPUT: ["input_json_delta"],
    _E.STOP: ["content_block_stop"],
    _E.USE: ["start use", "input_json_delta", "content_block_stop"],
    _E.RESULT: ["start result", "content_block_stop"],
    _E.MESSAGE_STOP: ["message_delta", "message_stop"],
    _E.ERROR: ["error"],
}


class MessagesJudge(DialectJudge):
    """Validates a stream of Messages."""

    api = "messages"
    framing_rule = "M12"
    rules = read_rows(_RULES, Rule)
    emitted = _EMITTED
    automaton = transducer_automaton(MESSAGES, _EMITTED, {"text_delta", "thinking_delta", "input_json_delta"})
    stateless = frozenset({"", "ping"})

    def __init__(self) -> None:
        super().__init__()
        self._block: object = None
        """The index of the block that began last; events of any other block are not legal."""

    @staticmethod
    def recognizes(body: Body) -> bool:
        """Return whether a body has the shape of this API."""
        kind = as_text(body.get("type"))
        is_error = kind == "error" and is_object(body.get("error")) and "sequence_number" not in body
        return is_error or kind == "message" or kind in MESSAGES_EVENTS - {"error"}

    @staticmethod
    def name_event(body: Body) -> str:
        """Name an event by its type, and by that of its block or delta."""
        match as_text(body.get("type")):
            case "content_block_start":
                kind = as_text(members(body.get("content_block")).get("type"))
                if kind in ("text", "thinking", "tool_use"):
                    return f"start {kind}"
                return "start use" if kind in ("server_tool_use", "mcp_tool_use") else "start result"
            case "content_block_delta":
                return as_text(members(body.get("delta")).get("type"))
            case name:
                return name

    @staticmethod
    def make_transducer() -> MessagesTransducer:
        """Return a transducer that also sends the reasoning."""
        return MessagesTransducer()

    @staticmethod
    def check_emitted(events: Sequence[Body]) -> list[Finding]:
        """Validate the events of a transducer."""
        return check_messages(events)

    def _is_stray(self, body: Body) -> bool:
        kind = body.get("type")
        if kind == "content_block_start":
            self._block = body.get("index")
        return kind in ("content_block_delta", "content_block_stop") and body.get("index") != self._block

    def _check(self) -> Iterator[Finding]:
        yield from check_messages(self._bodies, request=self.request)
        for index, marker in self._markers:
            problem = "the stream has the end marker [DONE]"
            yield Finding("M9", problem, "marker", index, received=marker.event, line=marker.line)
        for index, (message, body) in enumerate(zip(self._messages, self._bodies, strict=True)):
            name = body.get("type")
            if not isinstance(name, str) or (message.event != name and self._decoder.is_framed):
                yield Finding("M12", f"the event is {quote(message.event)}, and its type is {quote(name)}", event=index)

    def _items(self) -> list[str]:
        return [as_text(members(body["content_block"]).get("type")) for body in self._bodies if "content_block" in body]

    def _reasons(self) -> Iterator[object]:
        for body in self._bodies:
            match body.get("type"):
                case "message_delta":
                    yield members(body.get("delta")).get("stop_reason")
                case "error":
                    yield "failed"
                case _:
                    pass


JUDGE: Final = MessagesJudge
