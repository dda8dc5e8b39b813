"""Validates a stream of Messages by the rules M1 to M9, M11 and M14 of docs/dialects.md, one of Chat Completions by C1 to C8.

Values may be of any type. An error does not end the judging: each rule reads the events as if the others were kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from attrs import define, field

from interlock.events.chat import OLD_CALL
from interlock.events.json import EMPTY, as_text, elements, is_array, is_object, members, parse
from interlock.events.rulebook import Finding

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

Indexed: TypeAlias = Sequence[tuple[int, Mapping[str, object]]]
"""Events, each with its place in the stream; or the choices of chunks, each with the place of its chunk."""


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


def check_messages(events: Sequence[Mapping[str, object]]) -> list[Finding]:
    """Validate the data of all events of one message."""
    indexed = [(index, event) for index, event in enumerate(events) if event.get("type") != "ping"]
    if not indexed:
        return [Finding("M1", "the stream has no event", event=0)]
    findings = [*_ends(indexed), *_late_pings(events)]
    blocks = [*_blocks(indexed, findings)]
    for block in blocks:
        findings += _fields(block)
        findings += _deltas(block)
    return [*findings, *_stop(indexed, blocks)]


def check_inputs(events: Sequence[Mapping[str, object]]) -> Iterator[Finding]:
    """Validate what the model wrote as the inputs of calls (M5), which no table of a server can promise."""
    blocks = [*_blocks([*enumerate(events)], [])]
    reasons = [members(event.get("delta")).get("stop_reason") for event in events if event.get("type") == "message_delta"]
    for block in blocks:
        yield from _input(block, may_be_cut=block is blocks[-1] and reasons[-1:] != ["tool_use"])


def _ends(events: Indexed) -> Iterator[Finding]:
    """M1, M9 and M11: what begins and what ends the stream."""
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
        yield from _start(events[0][0], members(events[0][1].get("message")))


def _late_pings(events: Sequence[Mapping[str, object]]) -> Iterator[Finding]:
    names = [event.get("type") for event in events]
    if "message_stop" in names:
        stop = names.index("message_stop")
        late = (index for index, name in enumerate(names) if name == "ping" and index > stop)
        yield from (Finding("M9", "comes after message_stop", "late-ping", index) for index in late)


def _start(index: int, message: Mapping[str, object]) -> Iterator[Finding]:
    is_message = message.get("type") == "message" and message.get("role") == "assistant" and is_array(message.get("content"))
    if not is_message or message.get("stop_reason") is not None or not message.get("id") or not message.get("model"):
        yield Finding("M1", "the message does not begin empty, with an id and a model", event=index)
    elif message.get("content"):
        yield Finding("M1", "the message begins with content", "content-at-start", index)
    elif "stop_reason" not in message:
        yield Finding("M1", "the message begins without stop_reason", "no-reason-at-start", index)
    if any(type(members(message.get("usage")).get(name)) is not int for name in _COUNTS):
        yield Finding("M1", "the message begins without usage", event=index)


def _blocks(events: Indexed, findings: list[Finding]) -> Iterator[_BlockEvents]:
    """M2: one block after another, each with its index. Yield the blocks."""
    block: _BlockEvents | None = None
    count = 0
    for index, event in events:
        match event.get("type"):
            case "content_block_start":
                if block is not None or event.get("index") != count:
                    findings.append(Finding("M2", f"block {event.get('index')} begins, after {count} blocks", event=index))
                count += 1
                block = _BlockEvents(index, members(event.get("content_block")))
                yield block
            case "content_block_delta" | "content_block_stop" as name if block is None or event.get("index") != count - 1:
                findings.append(Finding("M2", f"{name} is for block {event.get('index')}, which is not open", event=index))
            case "content_block_delta" if block is not None:
                block.deltas.append(members(event.get("delta")))
            case "content_block_stop" if block is not None:
                block.stopped, block = True, None
            case str() as name if block is not None and name in MESSAGES_EVENTS and name != "error":
                findings.append(Finding("M2", f"{name} inside a block", event=index))
            case _:
                pass


def _fields(block: _BlockEvents) -> Iterator[Finding]:
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


def _deltas(block: _BlockEvents) -> Iterator[Finding]:
    """M3, M4 and M14: the deltas fit the block, a signature ends the reasoning, and no text is empty."""
    known = BLOCK_DELTAS.get(block.kind, {})
    for delta in block.deltas if block.kind in BLOCKS else ():
        kind = as_text(delta.get("type"))
        if kind not in known or not all(isinstance(delta.get(name), each) for name, each in known[kind].items()):
            yield Finding("M3", f"{delta.get('type')} in a block of the type {block.kind}", event=block.place)
    kinds = [delta.get("type") for delta in block.deltas]
    if block.kind == "thinking" and block.stopped:
        signatures = kinds.count("signature_delta")
        if not signatures and not block.start.get("signature"):
            yield Finding("M4", "the block has no signature", "unsigned", block.place)
        elif signatures > 1 or (signatures and kinds[-1] != "signature_delta"):
            yield Finding("M4", "the block does not end with one signature", event=block.place)
    if block.kind == "text" and block.stopped and not any(as_text(delta.get("text")) for delta in block.deltas):
        yield Finding("M14", "the text is empty", event=block.place)


def _stop(events: Indexed, blocks: Sequence[_BlockEvents]) -> Iterator[Finding]:
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
        yield Finding("M8", f"the reason is {reason!r}", event=index)
    if (reason == "stop_sequence") != isinstance(stop, str):
        yield Finding("M8", f"the reason is {reason}, and the stop sequence {stop!r}", event=index)
    if type(members(end.get("usage")).get("output_tokens")) is not int:
        yield Finding("M7", "message_delta has no usage", event=index)
    calls = [block.is_whole_call for block in blocks if block.kind == "tool_use"]
    if reason == "tool_use" and not calls:
        yield Finding("M8", "the reason is tool_use, without a call", event=index)
    if reason == "end_turn" and calls and all(calls):
        yield Finding("M8", "the client has a call to run, and the reason is end_turn", event=index)


def _input(block: _BlockEvents, *, may_be_cut: bool) -> Iterator[Finding]:
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


_FINISH_REASONS: Final = frozenset({"stop", "length", "tool_calls", "content_filter", OLD_CALL})
_CALL_TYPES: Final = ("function", "custom")
CHUNK: Final = "chat.completion.chunk"
"""The `object` of a chunk."""


def check_chat(chunks: Sequence[Mapping[str, object]], *, usage: bool = False) -> list[Finding]:
    """Validate all chunks of one completion, without `[DONE]`; `usage` is whether the client requested it."""
    failed = any(chunk.get("error") is not None for chunk in chunks)
    findings = [*_chunks(chunks), *_usage(chunks, requested=usage, failed=failed)]
    choices: dict[int, list[tuple[int, Mapping[str, object]]]] = {}
    for index, chunk in enumerate(chunks):
        for choice in map(members, elements(chunk.get("choices"))):
            number = choice.get("index")
            choices.setdefault(number if isinstance(number, int) else 0, []).append((index, choice))
    if not choices and not failed:
        findings.append(Finding("C2", "the stream has no choice", event=len(chunks)))
    for parts in choices.values():
        findings += [*_roles(parts), *_finish(parts, len(chunks), failed=failed), *_calls(parts)]
    return findings


def _chunks(chunks: Sequence[Mapping[str, object]]) -> Iterator[Finding]:
    """C6, C7 and C8: the fields of each chunk."""
    first = next((chunk for chunk in chunks if elements(chunk.get("choices"))), EMPTY)
    for index, chunk in enumerate(chunks):
        choices = [*map(members, elements(chunk.get("choices")))]
        error = chunk.get("error")
        if error is not None:
            if not isinstance(members(error).get("message"), str) or index < len(chunks) - 1:
                yield Finding("C8", "an error is the last chunk, with a message", event=index)
            if not choices:
                continue
        yield from _identity(index, chunk, first)
        if not is_array(chunk.get("choices")):
            yield Finding("C6", "the chunk has no list of choices", event=index)
        for choice in choices:
            delta = choice.get("delta")
            if type(choice.get("index")) is not int:
                yield Finding("C6", "a choice has no index", event=index)
            if not is_object(delta):
                has_text = delta is not None or "text" in choice
                yield Finding("C6", "a choice has no delta", "" if has_text else "no-delta", index)
            reasoning = members(delta).get("reasoning"), members(delta).get("reasoning_content")
            if reasoning[0] != reasoning[1]:
                deviation = "one-reasoning" if None in reasoning else ""
                yield Finding("C7", "the reasoning differs between its two fields", deviation, index)


def _identity(index: int, chunk: Mapping[str, object], first: Mapping[str, object]) -> Iterator[Finding]:
    """C6: one id, time and model in all chunks, of which `first` is the first that has a choice."""
    names = ("id", "created", "model")
    kind = chunk.get("object")
    if not kind or any(chunk.get(name) in (None, "") for name in names):
        yield Finding("C6", "the chunk has no id, created, model or object", "chunk-fields", index)
    differ = [name for name in names if chunk.get(name) and first.get(name) and chunk[name] != first[name]]
    if differ == ["created"]:
        yield Finding("C6", "the time differs", "time-passes", index)
    elif differ:
        deviation = "" if elements(chunk.get("choices")) else "differs-without-choices"
        yield Finding("C6", f"the {' and the '.join(differ)} differs", deviation, index)
    if kind and kind != CHUNK:
        yield Finding("C6", f"the object is {kind!r:.40}", "other-object" if isinstance(kind, str) else "", index)


def _usage(chunks: Sequence[Mapping[str, object]], *, requested: bool, failed: bool) -> Iterator[Finding]:
    """C5: one chunk at the end has the usage, without choices."""
    counted = [index for index, chunk in enumerate(chunks) if chunk.get("usage") is not None]
    if counted and not requested:
        yield Finding("C5", "nobody requested the usage", event=counted[0])
    if requested and not counted and not failed and not (chunks and chunks[-1].get("choices") == []):
        yield Finding("C5", "the usage is missing", event=len(chunks))
    for index, chunk in enumerate(chunks):
        choices = elements(chunk.get("choices"))
        if any(members(choice).get("usage") is not None for choice in choices) or (index in counted and choices):
            yield Finding("C5", "the usage is beside a choice", "usage-beside-choice", index)
    if len(counted) > 1:
        yield Finding("C5", "another chunk has the usage, too", "usage-again", counted[1])
    elif counted and any(_says(choice) for chunk in chunks[counted[0] + 1 :] for choice in elements(chunk.get("choices"))):
        yield Finding("C5", "the usage comes before the end", event=counted[0])


def _says(choice: object) -> bool:
    """Return whether a choice adds anything to its message, or ends it."""
    return bool(_content(choice)) or bool(members(choice).get("finish_reason"))


def _content(choice: object) -> Mapping[str, object]:
    """Return what a choice adds to its message."""
    return {name: value for name, value in members(members(choice).get("delta")).items() if value and name != "role"}


def _roles(parts: Indexed) -> Iterator[Finding]:
    """C1: the first chunk of a choice has the role."""
    roles = [(index, members(choice.get("delta")).get("role")) for index, choice in parts]
    for place, (index, role) in enumerate(roles):
        if role is not None and role != "assistant":
            yield Finding("C1", f"the role is {role!r:.40}", event=index)
        elif role is None and place == 0:
            yield Finding("C1", "the first chunk of the choice has no role", "no-role", index)
        elif role is not None and place > 0:
            is_late = roles[0][1] is None and all(before is None for _, before in roles[:place])
            yield Finding("C1", "comes late" if is_late else "the role is repeated", "" if is_late else "role-again", index)


def _finish(parts: Indexed, end: int, *, failed: bool) -> Iterator[Finding]:
    """C2: the last chunk of a choice has the reason, and an empty delta; all others have null."""
    ended: str | None = None
    for index, choice in parts:
        reason = choice.get("finish_reason")
        if "finish_reason" not in choice or reason == "":
            yield Finding("C2", "a choice has no finish_reason", "no-reason-key", index)
        elif reason is not None and not isinstance(reason, str):
            yield Finding("C2", f"the reason is {reason!r:.40}", event=index)
        elif isinstance(reason, str) and reason not in _FINISH_REASONS:
            yield Finding("C2", f"the reason is {reason!r:.40}", "other-reason", index)
        if ended is not None:
            if _content(choice) or (reason and reason != ended):
                yield Finding("C2", f"comes after the reason {ended!r:.40}", event=index)
            else:
                yield Finding("C2", f"repeats or follows the reason {ended!r:.40}", "after-reason", index)
        elif reason:
            ended = as_text(reason)
            if choice.get("delta"):
                yield Finding("C2", "the last delta is not empty", "text-at-finish", index)
    if ended is None and not failed:
        yield Finding("C2", "the choice has no finish reason", event=end)


def _calls(parts: Indexed) -> Iterator[Finding]:
    """C3 and C4: calls one after another, and the reason for them."""
    ids: list[object] = []
    for index, choice in parts:
        for call in map(members, elements(members(choice.get("delta")).get("tool_calls"))):
            if not ids or (call.get("id") and call.get("id") != ids[-1]):
                ids.append(call.get("id"))
                yield from _call_start(index, call)
            elif any(call.get(name) is not None for name in ("id", "type")) or _function(call).get("name") is not None:
                yield Finding("C4", "the id, the type or the name comes again", "call-fields-again", index)
            if call.get("index") != len(ids) - 1:
                yield Finding("C4", f"the index is {call.get('index')!r:.40}, not {len(ids) - 1}", event=index)
            arguments = _function(call).get("arguments", "")
            if arguments is None:
                yield Finding("C4", "the arguments are null", "null-arguments", index)
            elif not isinstance(arguments, str):
                yield Finding("C4", "the arguments are not a string", event=index)
    reasons = [choice.get("finish_reason") for _, choice in parts]
    if "tool_calls" in reasons and not ids:
        yield Finding("C3", "the reason is tool_calls, without a call", event=parts[-1][0])
    if OLD_CALL in reasons and not any(members(choice.get("delta")).get(OLD_CALL) for _, choice in parts):
        yield Finding("C3", "the reason is function_call, without a call", event=parts[-1][0])


def _function(call: Mapping[str, object]) -> Mapping[str, object]:
    return members(call.get("function") or call.get("custom"))


def _call_start(index: int, call: Mapping[str, object]) -> Iterator[Finding]:
    has_names = all(isinstance(name, str) and name for name in (call.get("id"), _function(call).get("name")))
    if not has_names or call.get("type") not in _CALL_TYPES:
        yield Finding("C4", "the id, the type and the name come together, once", event=index)
