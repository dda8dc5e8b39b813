"""The rules M1 to M12 of docs/dialects.md for a whole stream of Messages, written from the rules alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from attrs import field, frozen

from interlock.fsm.oracle.stream_view import Violation, as_object

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
_PIECES: Final[Mapping[str, Mapping[str, str]]] = {
    "text": {"text_delta": "text"},
    "thinking": {"thinking_delta": "thinking", "signature_delta": "signature"},
    "tool_use": _INPUT,
    "server_tool_use": _INPUT,
    "mcp_tool_use": _INPUT,
}
"""The deltas of each block and the fields of their texts; a block without an entry is whole at its start (M6)."""

_EMPTY: Final = ("text", "thinking", "signature", "input")
"""The fields that deltas fill."""
_STOPS: Final = frozenset(
    {"end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "model_context_window_exceeded"}
)
_COUNTS: Final = ("input_tokens", "output_tokens")

Indexed: TypeAlias = Sequence[tuple[int, Mapping[str, object]]]
"""Events, each with its place in the stream."""


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
        name = _PIECES.get(self.kind, {}).get(kind, "")
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
    if names[-1] == "error" and not all(isinstance(as_object(end.get("error")).get(name), str) for name in ("type", "message")):
        yield Violation("M11", last, "an error needs a type and a message")
    for place, (index, _) in enumerate(events):
        if names[place] in ("message_stop", "error") and index != last:
            yield Violation("M9" if names[place] == "message_stop" else "M11", index, f"events follow {names[place]}")
        if (names[place] == "message_start") != (place == 0) and names[place] != "error":
            yield Violation("M1", index, f"{names[place]} is event {place}")
    if names[0] == "message_start":
        yield from _start(events[0][0], as_object(events[0][1].get("message")))


def _start(index: int, message: Mapping[str, object]) -> Iterator[Violation]:
    fixed = {"type": "message", "role": "assistant", "stop_reason": None}
    is_empty = message.get("content") == [] and all(message.get(name, 0) == value for name, value in fixed.items())
    if not is_empty or not message.get("id") or not message.get("model"):
        yield Violation("M1", index, "the message does not begin empty, with an id and a model")
    if any(type(as_object(message.get("usage")).get(name)) is not int for name in _COUNTS):
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
                block = _BlockEvents(index, as_object(event.get("content_block")))
                yield block
            case "content_block_delta" | "content_block_stop" as name if block is None or event.get("index") != count - 1:
                violations.append(Violation("M2", index, f"{name} is for block {event.get('index')}, which is not open"))
            case "content_block_delta" if block is not None:
                block.deltas.append(as_object(event.get("delta")))
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
        elif block.kind in _PIECES and name in _EMPTY and block.start[name]:
            yield Violation(rule, block.place, f"{name} is not empty at the start")


def _deltas(block: _BlockEvents) -> Iterator[Violation]:
    """M3, M4 and M14: the deltas fit the block, a signature ends the reasoning, and no text is empty."""
    names = _PIECES.get(block.kind, {})
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
    reason, stop = (as_object(end.get("delta")).get(name) for name in ("stop_reason", "stop_sequence"))
    if reason not in _STOPS:
        yield Violation("M8", index, f"the reason is {reason!r}")
    if (reason == "stop_sequence") != isinstance(stop, str):
        yield Violation("M8", index, f"the reason is {reason}, and the stop sequence {stop!r}")
    if type(as_object(end.get("usage")).get("output_tokens")) is not int:
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
