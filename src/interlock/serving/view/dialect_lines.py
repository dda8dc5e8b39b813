"""The lines of a page for streams of Messages and Chat Completions; `event_lines` has the lines, and those of the Responses API.

One machine, the table of the transducer, shows the whole stream: `SHOWN` has the events that each of its effects makes. A lane is
a block of a message, or in Chat Completions a text or a call of one choice. `DialectJudge` judges the stream at its end.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final, Literal

from attrs import define, evolve, field, frozen

from interlock.dialects import CHAT, MESSAGES
from interlock.dialects.chat import ChatEffect
from interlock.dialects.messages import MessagesEffect
from interlock.events.decode import SseDecoder, SseMessage
from interlock.events.dialects import DialectName
from interlock.events.json import as_text, elements, is_object, members, parse
from interlock.judges import DialectJudge, FiredEdge, Step
from interlock.judges.dialects import ApiName, find_api
from interlock.judges.judging import DONE, LISTED
from interlock.serving.view.event_lines import Line, ReplaySteps, Trace, finding_fields

_M, _C = MessagesEffect, ChatEffect

SHOWN: Final[Mapping[str, Sequence[str]]] = {
    _M.MESSAGE_START: ["message_start"],
    _M.TEXT_START: ["start text"],
    _M.TEXT: ["text_delta"],
    _M.THINKING_START: ["start thinking"],
    _M.THINKING: ["thinking_delta"],
    _M.SIGNATURE: ["signature_delta"],
    _M.CALL_START: ["start tool_use"],
    _M.INPUT: ["input_json_delta"],
    _M.STOP: ["content_block_stop"],
    _M.USE: ["start use", "input_json_delta*", "content_block_stop"],
    _M.RESULT: ["start result", "content_block_stop"],
    _M.MESSAGE_STOP: ["message_delta", "message_stop"],
    _M.ERROR: ["error"],
    _C.ROLE: ["delta.role"],
    _C.CONTENT: ["delta.content"],
    _C.REFUSAL: ["delta.refusal"],
    _C.REASONING: ["delta.reasoning"],
    _C.CALL: ["start call"],
    _C.ARGUMENTS: ["delta.tool_calls"],
    _C.FINISH: ["finish_reason", "usage*"],
}
"""The labels of the events that an effect makes, in order; one with `*` comes any number of times. Other effects make none."""

_WRITES: Final[Mapping[str, Sequence[tuple[str, str, str]]]] = {
    "message_start": [("all", "message", "")],
    "content_block_start": [("all", "content_block", "")],
    "content_block_delta": [
        ("append", "delta.text", "text"),
        ("append", "delta.thinking", "thinking"),
        ("append", "delta.signature", "signature"),
        ("append", "delta.partial_json", "input"),
        ("push", "delta.citation", "citations"),
    ],
    "message_delta": [
        ("put", "delta.stop_reason", "stop_reason"),
        ("put", "delta.stop_sequence", "stop_sequence"),
        ("put", "usage", "usage"),
    ],
    "delta.role": [("all", "", ""), ("append", "choices.0.delta.content", "content")],
    "delta.content": [("append", "choices.0.delta.content", "content")],
    "delta.refusal": [("append", "choices.0.delta.refusal", "refusal")],
    "delta.reasoning": [("append", "choices.0.delta.reasoning_content", "reasoning_content")],
    "delta.tool_calls": [
        ("put", "choices.0.delta.tool_calls.0.id", "id"),
        ("put", "choices.0.delta.tool_calls.0.function.name", "name"),
        ("append", "choices.0.delta.tool_calls.0.function.arguments", "arguments"),
    ],
    "finish_reason": [("put", "choices.0.finish_reason", "finish_reason")],
    "usage": [("put", "usage", "usage")],
}
"""What each event writes into its block, as operation, field of the event and field of the block; see `page.writes`."""


def dialect_writes() -> dict[str, Sequence[Mapping[str, object]]]:
    """Return what each event writes, by the names that the page shows."""
    return {
        name: [{"op": op, "from": source, **({"to": to} if to else {})} for op, source, to in writes]
        for name, writes in _WRITES.items()
    }


@frozen
class Place:
    """An event's place: its lane, its name on the page and its label in `SHOWN`."""

    lane: Hashable
    name: str
    label: str
    about: Mapping[str, object] | None = None
    """The kind, the name and the id of the block that the event begins."""


def _message_place(body: Mapping[str, object]) -> Place:
    """Return the place of an event of Messages."""
    name, index = as_text(body.get("type")), body.get("index")
    lane = index if name.startswith("content_block_") and type(index) is int else None
    match name:
        case "content_block_start":
            block = members(body.get("content_block"))
            kind = as_text(block.get("type"))
            known = "use" if kind in ("server_tool_use", "mcp_tool_use") else "result"
            label = kind if kind in ("text", "thinking", "tool_use") else known
            called = as_text(block.get("name")) or None
            about = {"kind": kind, "name": called, "id": as_text(block.get("id")) or as_text(block.get("tool_use_id")) or None}
            return Place(lane, name, f"start {label}", about)
        case "content_block_delta":
            return Place(lane, name, as_text(members(body.get("delta")).get("type")))
        case "message_start":
            message = members(body.get("message"))
            about = {"kind": "message", "name": as_text(message.get("model")) or None, "id": as_text(message.get("id")) or None}
            return Place(None, name, name, about)
        case _:
            return Place(lane, name, name)


def _chunk_place(body: Mapping[str, object]) -> Place:
    """Return the place of a chunk of Chat Completions, by the first thing that it has."""
    choice = members(next(iter(elements(body.get("choices"))), None))
    delta, at = members(choice.get("delta")), choice.get("index") or 0
    several = None if at == 0 else f"choice {at}"
    if "error" in body:
        return Place(None, "error", "error")
    if "role" in delta:
        model, completion = as_text(body.get("model")) or None, as_text(body.get("id")) or None
        return Place(None, "delta.role", "delta.role", {"kind": "completion", "name": model, "id": completion})
    if calls := elements(delta.get("tool_calls")):
        call = members(calls[0])
        about = {"kind": "tool_call", "name": as_text(members(call.get("function")).get("name")), "id": as_text(call.get("id"))}
        label = "start call" if "id" in call else "delta.tool_calls"
        return Place((at, "call", str(call.get("index"))), "delta.tool_calls", label, about if "id" in call else None)
    for name in ("content", "refusal", "reasoning_content", "reasoning"):
        if isinstance(delta.get(name), str):
            kind = "reasoning" if name.startswith("reasoning") else name
            return Place((at, kind), f"delta.{kind}", f"delta.{kind}", {"kind": kind, "name": several, "id": None})
    if choice.get("finish_reason") is not None:
        return Place(None, "finish_reason", "finish_reason")
    name = "usage" if body.get("usage") is not None else as_text(body.get("object")) or "chunk"
    return Place(None, name, name)


@frozen(cache_hash=True)
class _Position:
    """A state, the edge that led there, and the labels of its events that are still due."""

    state: str
    due: tuple[str, ...] = ()
    edge: tuple[str, str, str] = ("", "", "")

    def after(self, label: str) -> _Position | None:
        """Return the position after an event that is due, or None if it is not."""
        for place, due in enumerate(self.due):
            if due.rstrip("*") == label:
                return self._with(self.due[place if due.endswith("*") else place + 1 :])
            if not due.endswith("*"):
                break
        return None

    def _with(self, due: tuple[str, ...]) -> _Position:
        return evolve(self, due=due, state=self.edge[2] if _settled(due) else self.edge[0])


def _settled(due: Sequence[str]) -> bool:
    return all(each.endswith("*") for each in due)


@define(eq=False)
class TableWalk:
    """Finds the edges of a transducer's table that explain the events of a stream, and goes on after one that none explains."""

    api: Literal["messages", "chat"]
    _positions: list[_Position] = field(init=False)
    _edges: Mapping[str, Sequence[_Position]] = field(init=False)
    """The edges that leave each state, as the positions at their beginnings: the first with the same ends and events."""

    def __attrs_post_init__(self) -> None:
        table = MESSAGES if self.api == "messages" else CHAT
        edges: dict[str, dict[tuple[object, ...], _Position]] = {name: {} for name in table.states}
        for name, state in table.states.items():
            for trigger, (dest, effects) in state.rows.items():
                due = tuple(label for effect in effects for label in SHOWN.get(effect, ()))
                edges[name].setdefault((dest.name, due), _Position(name, due, (name, str(trigger), dest.name)))
        self._edges = {name: [*found.values()] for name, found in edges.items()}
        self._positions = [_Position(table.initial)]

    def step(self, label: str) -> Step:
        """Return the effect of an event on the machine."""
        found = dict.fromkeys(self._following(label))
        if not found:
            before = tuple(dict.fromkeys(position.state for position in self._positions))
            again = [after for edges in self._edges.values() for each in edges if (after := each.after(label)) is not None]
            self._positions = again[:1] or self._positions
            return Step(self.api, None, states=before)
        self._positions = [position for position, _ in found]
        fired = tuple(
            FiredEdge(*position.edge, due=() if _settled(position.due) else position.due, silent=silent)
            for position, silent in found
        )
        return Step(self.api, None, fired, tuple(dict.fromkeys(position.state for position in self._positions)))

    def _following(self, label: str) -> Iterator[tuple[_Position, tuple[tuple[str, str, str], ...]]]:
        for position in self._positions:
            if (after := position.after(label)) is not None:
                yield after, ()
            elif _settled(position.due):
                yield from self._leaving(position.state, label, ())

    def _leaving(
        self, state: str, label: str, silent: tuple[tuple[str, str, str], ...]
    ) -> Iterator[tuple[_Position, tuple[tuple[str, str, str], ...]]]:
        """Yield the positions after the edges of a state that emit an event first, behind edges that emit nothing."""
        for edge in self._edges[state]:
            if (after := edge.after(label)) is not None:
                yield after, silent
            elif not edge.due and edge.edge[2] != state and not silent:
                yield from self._leaving(edge.edge[2], label, (edge.edge,))


@define(eq=False)
class DialectTrace:
    """Makes the lines of one stream of Messages or Chat Completions."""

    api: Literal["messages", "chat"]
    events: int = field(default=0, init=False)
    _decoder: SseDecoder = field(factory=SseDecoder, init=False)
    _judge: DialectJudge = field(init=False)
    _walk: TableWalk = field(init=False)
    _steps: ReplaySteps = field(factory=ReplaySteps, init=False)
    _lanes: dict[Hashable, int] = field(factory=lambda: {None: 0}, init=False)
    _open: int = field(default=0, init=False)
    """The lane of the last block that began; events of any other block are not legal."""
    _described: set[int] = field(factory=set[int], init=False)

    def __attrs_post_init__(self) -> None:
        self._judge, self._walk = DialectJudge(self.api), TableWalk(self.api)

    def feed(self, chunk: bytes, time: float | None = None) -> Iterator[Line]:
        """Yield the lines of the events that a chunk completes."""
        self._judge.feed(chunk)
        for message in self._decoder.feed(chunk):
            yield from self._event(message, time)

    def end(self) -> Iterator[Line]:
        """End the stream, and yield the remaining lines: the findings and the verdict."""
        for message in self._decoder.end():
            yield from self._event(message, None)
        verdict = self._judge.end()
        for finding in sorted(self._judge.findings, key=lambda finding: finding.event)[:LISTED]:
            yield "f", min(finding.event, self.events), finding_fields(finding)
        status = {"status": verdict.status, "legal": verdict.legal, "readable": verdict.readable, "rules": verdict.rules}
        yield "end", status

    def _event(self, message: SseMessage, time: float | None) -> Iterator[Line]:
        data, body = message.data, _body(message)
        place = Place(None, DONE, "") if data == DONE else Place(None, message.event, "") if body is None else self._place(body)
        lane = self._lanes.setdefault(place.lane, len(self._lanes))
        if place.name == "content_block_start":
            self._open = lane
        is_stray = place.name in ("content_block_delta", "content_block_stop") and lane != self._open
        step = -1
        if place.label not in ("", "ping"):
            step, line = self._steps.number(self._walk.step("" if is_stray else place.label))
            if line is not None:
                yield line
        if place.about is not None and lane not in self._described:
            self._described.add(lane)
            yield "lane", lane, {**place.about, "index": place.lane if isinstance(place.lane, int) else None}
        yield "e", lane, place.name, None, step, time, len(data.encode()), data
        self.events += 1

    def _place(self, body: Mapping[str, object]) -> Place:
        return _message_place(body) if self.api == "messages" else _chunk_place(body)


def _body(message: SseMessage) -> Mapping[str, object] | None:
    body = parse(message.data)
    return body if is_object(body) else None


@define(eq=False)
class AnyTrace:
    """Makes the lines of one stream of any API, which its beginning shows."""

    dialect: DialectName = "openai"
    _unread: bytes = field(default=b"", init=False)
    _trace: Trace | DialectTrace | None = field(default=None, init=False)

    def feed(self, chunk: bytes, time: float | None = None) -> Iterator[Line]:
        """Yield the lines of the events that a chunk completes."""
        if self._trace is None:
            self._unread += chunk
            api = find_api(self._unread)
            if api is None:
                return
            self._trace, chunk = self._make(api), self._unread
        yield from self._trace.feed(chunk, time)

    def end(self) -> Iterator[Line]:
        """End the stream, and yield the remaining lines."""
        if self._trace is None:
            self._trace = self._make("responses")
            yield from self._trace.feed(self._unread)
        yield from self._trace.end()

    def _make(self, api: ApiName) -> Trace | DialectTrace:
        if api == "responses":
            return Trace(self.dialect)
        return DialectTrace(api)
