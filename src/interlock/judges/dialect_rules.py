"""Validates a stream of Messages by the rules M1 to M9, M11 and M14 of docs/dialects.md, one of Chat Completions by C1 to C8."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from attrs import field, frozen

from interlock.events.json import elements, members

_FIELDS: Final[Mapping[str, Mapping[str, tuple[type, ...]]]] = {
    "text": {"text": (str,)},
    "thinking": {"thinking": (str,), "signature": (str,)},
    "redacted_thinking": {"data": (str,)},
    "tool_use": {"id": (str,), "name": (str,), "input": (dict,)},
    "server_tool_use": {"id": (str,), "name": (str,), "input": (dict,)},
    "mcp_tool_use": {"id": (str,), "name": (str,), "server_name": (str,), "input": (dict,)},
    "web_search_tool_result": {"tool_use_id": (str,), "content": (list, dict)},
    "code_execution_tool_result": {"tool_use_id": (str,), "content": (dict,)},
    "mcp_tool_result": {"tool_use_id": (str,), "is_error": (bool,), "content": (list,)},
}
"""The fields of a block at its start, and their types."""

_INPUT: Final = {"input_json_delta": "partial_json"}
_DELTAS: Final[Mapping[str, Mapping[str, str]]] = {
    "text": {"text_delta": "text"},
    "thinking": {"thinking_delta": "thinking", "signature_delta": "signature"},
    "tool_use": _INPUT,
    "server_tool_use": _INPUT,
    "mcp_tool_use": _INPUT,
}
"""The deltas of each block and the fields of their texts; a block without an entry is complete at its start (M6)."""

_EMPTY: Final = ("text", "thinking", "signature", "input")
"""The fields that deltas fill."""
_STOPS: Final = frozenset(
    {"end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "model_context_window_exceeded"}
)
_COUNTS: Final = ("input_tokens", "output_tokens")

Indexed: TypeAlias = Sequence[tuple[int, Mapping[str, object]]]
"""Events, each with its place in the stream."""


@frozen
class Violation:
    """A broken rule.

    Args:
        rule: `M1` to `M14`, or `C1` to `C9`.
        index: The position of the event, from 0; the number of events if the stream as a whole breaks the rule.
        message: What is wrong.
        deviation: The name of the deviation; empty for an error.
    """

    rule: str
    index: int
    message: str
    deviation: str = ""


@frozen
class _BlockEvents:
    """A block: its place in the stream, its start and its deltas."""

    place: int
    start: Mapping[str, object]
    deltas: list[Mapping[str, object]] = field(factory=list[Mapping[str, object]])

    @property
    def kind(self) -> str:
        return str(self.start.get("type"))

    def texts(self, kind: str) -> list[str]:
        """Return the texts of the deltas of a type."""
        name = _DELTAS.get(self.kind, {}).get(kind, "")
        return [str(delta.get(name)) for delta in self.deltas if delta.get("type") == kind]


def check_messages(events: Sequence[Mapping[str, object]]) -> list[Violation]:
    """Validate the data of all events of one message."""
    indexed = [(index, event) for index, event in enumerate(events) if event.get("type") != "ping"]
    if not indexed:
        return [Violation("M1", 0, "the stream has no event")]
    violations = [*_ends(indexed)]
    blocks = [*_blocks(indexed, violations)]
    for block in blocks:
        violations += _fields(block)
        violations += _deltas(block)
    failed = indexed[-1][1].get("type") == "error"
    return violations if failed or violations else [*_stop(indexed, blocks)]


def _ends(events: Indexed) -> Iterator[Violation]:
    """M1, M9 and M11: what begins and what ends the stream."""
    names = [str(event.get("type")) for _, event in events]
    last, end = events[-1]
    if names[-1] not in ("message_stop", "error"):
        yield Violation("M9", last, f"the stream ends with {names[-1]}")
    if names[-1] == "error" and not all(isinstance(members(end.get("error")).get(name), str) for name in ("type", "message")):
        yield Violation("M11", last, "an error needs a type and a message")
    for place, (index, _) in enumerate(events):
        if names[place] in ("message_stop", "error") and index != last:
            yield Violation("M9" if names[place] == "message_stop" else "M11", index, f"events follow {names[place]}")
        if (names[place] == "message_start") != (place == 0) and names[place] != "error":
            yield Violation("M1", index, f"{names[place]} is event {place}")
    if names[0] == "message_start":
        yield from _start(events[0][0], members(events[0][1].get("message")))


def _start(index: int, message: Mapping[str, object]) -> Iterator[Violation]:
    fixed = {"type": "message", "role": "assistant", "stop_reason": None}
    is_empty = message.get("content") == [] and all(message.get(name, 0) == value for name, value in fixed.items())
    if not is_empty or not message.get("id") or not message.get("model"):
        yield Violation("M1", index, "the message does not begin empty, with an id and a model")
    if any(type(members(message.get("usage")).get(name)) is not int for name in _COUNTS):
        yield Violation("M1", index, "the message begins without usage")


def _blocks(events: Indexed, violations: list[Violation]) -> Iterator[_BlockEvents]:
    """M2: one block after another, each with its index. Yield the blocks."""
    block: _BlockEvents | None = None
    count = 0
    for index, event in events:
        match event.get("type"):
            case "content_block_start":
                if block is not None or event.get("index") != count:
                    violations.append(Violation("M2", index, f"block {event.get('index')} begins, after {count} blocks"))
                count += 1
                block = _BlockEvents(index, members(event.get("content_block")))
                yield block
            case "content_block_delta" | "content_block_stop" as name if block is None or event.get("index") != count - 1:
                violations.append(Violation("M2", index, f"{name} is for block {event.get('index')}, which is not open"))
            case "content_block_delta" if block is not None:
                block.deltas.append(members(event.get("delta")))
            case "content_block_stop":
                block = None
            case name if block is not None and name != "error":
                violations.append(Violation("M2", index, f"{name} inside a block"))
            case _:
                pass


def _fields(block: _BlockEvents) -> Iterator[Violation]:
    """M3, M5 and M6: the fields of a block at its start."""
    if block.kind not in _FIELDS:
        yield Violation("M3", block.place, f"no block has the type {block.kind}")
    for name, types in _FIELDS.get(block.kind, {}).items():
        rule = "M5" if name in ("id", "name", "input") else "M3"
        if not isinstance(block.start.get(name), types):
            yield Violation(rule, block.place, f"the block has no {name}")
        elif block.kind in _DELTAS and name in _EMPTY and block.start[name]:
            yield Violation(rule, block.place, f"{name} is not empty at the start")


def _deltas(block: _BlockEvents) -> Iterator[Violation]:
    """M3, M4 and M14: the deltas fit the block, a signature ends the reasoning, and no text is empty."""
    names = _DELTAS.get(block.kind, {})
    for delta in block.deltas:
        if not isinstance(delta.get(names.get(str(delta.get("type")), "")), str):
            yield Violation("M3", block.place, f"{delta.get('type')} in a block of the type {block.kind}")
    kinds = [delta.get("type") for delta in block.deltas]
    if block.kind == "thinking" and (kinds.count("signature_delta") != 1 or kinds[-1] != "signature_delta"):
        yield Violation("M4", block.place, "the block does not end with one signature")
    if block.kind == "text" and not any(block.texts("text_delta")):
        yield Violation("M14", block.place, "the text is empty")


def _stop(events: Indexed, blocks: Sequence[_BlockEvents]) -> Iterator[Violation]:
    """M5, M7 and M8: the end of a message that did not fail."""
    ends = [(index, event) for index, event in events if event.get("type") == "message_delta"]
    if not ends or events[-2][0] != ends[-1][0]:
        yield Violation("M7", len(events), "the last event before message_stop is not message_delta")
        return
    index, end = ends[-1]
    reason, stop = (members(end.get("delta")).get(name) for name in ("stop_reason", "stop_sequence"))
    if reason not in _STOPS:
        yield Violation("M8", index, f"the reason is {reason!r}")
    if (reason == "stop_sequence") != isinstance(stop, str):
        yield Violation("M8", index, f"the reason is {reason}, and the stop sequence {stop!r}")
    if type(members(end.get("usage")).get("output_tokens")) is not int:
        yield Violation("M7", index, "message_delta has no usage")
    calls = ["".join(block.texts("input_json_delta")) or "{}" for block in blocks if block.kind == "tool_use"]
    if reason == "tool_use" and not calls:
        yield Violation("M8", index, "the reason is tool_use, without a call")
    if reason == "end_turn" and calls and all(map(_is_object, calls)):
        yield Violation("M8", index, "the client has a call to run, and the reason is end_turn")


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


_FINISH_REASONS: Final = frozenset({"stop", "length", "tool_calls", "content_filter"})


def check_chat(chunks: Sequence[Mapping[str, object]], *, usage: bool = False) -> list[Violation]:
    """Validate all chunks of one completion, without `[DONE]`; `usage` is whether the client requested it."""
    violations = [*_chunk_shapes(chunks), *_chunk_ends(chunks, usage=usage)]
    return violations if any(not each.deviation for each in violations) else [*violations, *_chunk_calls(chunks)]


def _choices(chunks: Sequence[Mapping[str, object]]) -> Iterator[tuple[int, Mapping[str, object]]]:
    for index, chunk in enumerate(chunks):
        yield from ((index, members(choice)) for choice in elements(chunk.get("choices")))


def _chunk_deltas(chunks: Sequence[Mapping[str, object]]) -> Iterator[tuple[int, Mapping[str, object]]]:
    return ((index, members(choice.get("delta"))) for index, choice in _choices(chunks))


def _chunk_shapes(chunks: Sequence[Mapping[str, object]]) -> Iterator[Violation]:
    first: Mapping[str, object] = chunks[0] if chunks else {}
    for index, chunk in enumerate(chunks):
        if "error" in chunk:
            error = members(chunk["error"])
            if not isinstance(error.get("message"), str) or index < len(chunks) - 1:
                yield Violation("C8", index, "an error is the last chunk, with a message")
            continue
        if any(chunk.get(name) is None or chunk.get(name) != first.get(name) for name in ("id", "created", "model")):
            yield Violation("C6", index, "the id, the time or the model differs")
        choices = elements(chunk.get("choices"))
        if chunk.get("object") != "chat.completion.chunk" or len(choices) > 1:
            yield Violation("C6", index, "the chunk is not one of a single choice")
        if any("finish_reason" not in members(choice) for choice in choices):
            yield Violation("C2", index, "a choice has no finish_reason")
    for index, delta in _chunk_deltas(chunks):
        reasoning = delta.get("reasoning"), delta.get("reasoning_content")
        if reasoning[0] != reasoning[1]:
            deviation = "one-reasoning" if None in reasoning else ""
            yield Violation("C7", index, "the reasoning differs between its two fields", deviation)
        if ("role" in delta) != (index == 0):
            yield Violation("C1", index, "the role is in the first chunk and no other")


def _chunk_ends(chunks: Sequence[Mapping[str, object]], *, usage: bool) -> Iterator[Violation]:
    if chunks and "error" in chunks[-1]:
        return
    reasons = [(index, choice.get("finish_reason")) for index, choice in _choices(chunks)]
    ended = [(index, reason) for index, reason in reasons if reason is not None]
    if len(ended) != 1 or ended[0] != reasons[-1] or ended[0][1] not in _FINISH_REASONS:
        yield Violation("C2", len(chunks), f"the reasons are {[reason for _, reason in ended]}")
    elif [*_chunk_deltas(chunks)][-1][1]:
        yield Violation("C2", ended[0][0], "the last delta is not empty", "text-at-finish")
    with_usage = [index for index, chunk in enumerate(chunks) if chunk.get("usage") is not None]
    if with_usage != ([len(chunks) - 1] if usage else []) and not (usage and not with_usage and chunks[-1].get("choices") == []):
        yield Violation("C5", len(chunks), f"the usage is in the chunks {with_usage}")


def _chunk_calls(chunks: Sequence[Mapping[str, object]]) -> Iterator[Violation]:
    """C3 and C4: calls one after another, and the reason for them."""
    count = 0
    for index, delta in _chunk_deltas(chunks):
        for call in map(members, elements(delta.get("tool_calls"))):
            function = members(call.get("function"))
            is_new = "id" in call
            count += is_new
            if call.get("index") != count - 1:
                yield Violation("C4", index, f"the index is {call.get('index')}, not {count - 1}")
            if is_new != isinstance(function.get("name"), str) or is_new != (call.get("type") == "function"):
                yield Violation("C4", index, "the id, the type and the name come together, once")
            if not isinstance(function.get("arguments", ""), str):
                yield Violation("C4", index, "the arguments are not a string")
    reasons = [choice.get("finish_reason") for _, choice in _choices(chunks)]
    if "tool_calls" in reasons and not count:
        yield Violation("C3", len(chunks), "the reason is tool_calls, without a call")
