"""Where the events of a stream have left the machines that made them: the way back from a log to a driver's state.

Each event of a log is an effect of an edge, and the tables say of which. The machines are walked over the events again, their
subjects record what the edges record, and nothing is emitted. A log may end between two events of one edge. The machine then
stands in a state that no table has: its rows are the ways to end alone, and they emit what the edge still owed first.

It knows no driver; `ResponseDriver.take_up` uses it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast

from attrs import frozen
from msgspec import convert

from interlock.events import items, response_object as response
from interlock.events.decode import SseDecoder
from interlock.events.dialects import from_open_responses
from interlock.events.items import ITEMS
from interlock.events.json import loads
from interlock.events.stream import TERMINAL, ItemAdded, ItemDone, wire_name
from interlock.fsm.item_subject import RESULTS, ItemState
from interlock.fsm.lifecycle import NO_FIELDS, Emission, Fields, LifecycleState, Subject
from interlock.fsm.lifecycles import Lifecycles
from interlock.fsm.response_subject import ResponseState
from interlock.fsm.table import State

__all__ = ["Body", "bodies_of", "open_items"]

S = TypeVar("S")

Body: TypeAlias = Mapping[str, object]
"""An event as its JSON object, in OpenAI's dialect."""

_IMAGE: Final = frozenset({"partial_image_b64", "background", "output_format", "quality", "size"})
"""What a running tool says of a partial image."""
_ENDS: Final = ("cut", "fail", "cancel")
"""The triggers that end a subject wherever it stands."""
_BROKEN: Final = frozenset({"cut", "fail"})
"""Those whose edges say what went wrong."""


def bodies_of(frames: Iterable[bytes]) -> list[Body]:
    """Parse the frames of a log.

    Args:
        frames: Server-sent events, from the first of the stream, in either dialect.

    Raises:
        ValueError: A frame is no event, or has not the number that follows.
    """
    decoder = SseDecoder()
    bodies: list[Body] = []
    for frame in frames:
        for message in decoder.feed(frame):
            body = loads(message.data)
            if not isinstance(body, dict) or cast("Body", body).get("sequence_number") != len(bodies):
                raise ValueError(f"the log has no event {len(bodies)} where it should be")
            bodies.append(from_open_responses(cast("Body", body)))
    return bodies


def open_items(subject: ResponseState, bodies: Sequence[Body], lifecycles: Lifecycles) -> list[ItemState[Any]]:
    """Bring a response to where its events left it, and return its open items in the order of their indices.

    Args:
        subject: The response, in its initial state and without items.
        bodies: All of its events so far.
        lifecycles: What made them.

    Raises:
        ValueError: No edges explain the events.
    """
    of_items: dict[int, list[Body]] = {}
    own: list[Body] = []
    for body in bodies:
        index = body.get("output_index")
        (of_items.setdefault(index, []) if isinstance(index, int) else own).append(body)
    if own and own[-1]["type"] in TERMINAL:
        _end(subject, own[-1]["response"], lifecycles)
    else:
        _walk(subject, own)
    rebuilt = [_item(subject, events, lifecycles) for _, events in sorted(of_items.items())]
    for item in rebuilt[:-1]:
        if "close" in item.state.rows:  # one item is written at a time, so this one was closed, without an event
            item.fire("close")
    return [item for item in rebuilt if item.state.rows]


def _end(subject: ResponseState, shown: object, lifecycles: Lifecycles) -> None:
    """Bring a response to its end; how it came there changes nothing any more."""
    subject.body = convert(shown, response.Response)
    subject.state = lifecycles.response.states[str(subject.body.status)]


def _item(subject: ResponseState, bodies: Sequence[Body], lifecycles: Lifecycles) -> ItemState[Any]:
    """Return an item as its events left it; it has joined the response."""
    first, last = bodies[0], bodies[-1]
    if first["type"] != wire_name(ItemAdded):
        raise ValueError(f"the log has {first['type']} of an item that was not added")
    body = _body(first["item"])
    lifecycle = lifecycles.items[wire_name(type(body))]
    item: ItemState[Any] = ItemState(lifecycle.states[lifecycle.initial], id=str(body.id), body=body, output_index=len(subject.output))
    if last["type"] == wire_name(ItemDone):  # how it came there changes nothing any more
        item.body = item.shown = _body(last["item"])
        item.state = lifecycle.states[min(lifecycle.final)]
    else:
        _walk(item, bodies)
    subject.output.append(item)
    return item


def _body(item: object) -> items.Item:
    return convert(item, ITEMS[str(cast("Body", item)["type"])])


@frozen
class _Explained:
    """The edge that emitted the next events.

    Args:
        way: The triggers without events that lead to it.
        source: The state that it leaves.
        trigger: What made it fire.
        count: How many of its events there are.
    """

    way: tuple[str, ...]
    source: State[str, Emission[object]]
    trigger: str
    count: int

    @property
    def dest(self) -> State[str, Emission[object]]:
        """The state that it enters."""
        return self.source.rows[self.trigger][0]

    @property
    def effects(self) -> tuple[Emission[object], ...]:
        """All that it emits."""
        return self.source.rows[self.trigger][1]

    @property
    def owed(self) -> tuple[Emission[object], ...]:
        """What it has still to emit."""
        return self.effects[self.count :]

    @property
    def worth(self) -> tuple[bool, int, int]:
        """Which of several explanations is to be taken: a whole edge, the longest, and else what is the nearest to an end."""
        ends = [len(self.dest.rows[trigger][1]) for trigger in _ENDS if trigger in self.dest.rows]
        return not self.owed, self.count, -len(self.owed) - min(ends, default=0)


def _walk(subject: Subject[S], bodies: Sequence[Body]) -> None:
    """Fire the edges that explain the events of a subject, and emit nothing."""
    rest = bodies
    while rest:
        names = [str(body["type"]) for body in rest]
        start = cast("State[str, Emission[object]]", subject.state)
        edge = max(_explanations(start, names), key=lambda each: each.worth, default=None)
        if edge is None:
            raise ValueError(f"nothing in state {start.name} of {start.table} explains {names[0]}")
        for trigger in edge.way:
            subject.fire(trigger)
        taken, rest = rest[: edge.count], rest[edge.count :]
        _hold(subject, taken, edge)
        subject.args = _args(edge.trigger, taken)
        for emission in subject.fire(edge.trigger)[: edge.count]:
            emission.make(cast("S", subject))
        subject.args = NO_FIELDS
        if edge.owed:
            subject.state = cast("LifecycleState[S]", _between(edge))


def _explanations(start: State[str, Emission[object]], names: Sequence[str]) -> Iterator[_Explained]:
    """Yield the edges whose events are the next ones, or begin with all that there are."""
    seen = {start}
    waiting: deque[tuple[State[str, Emission[object]], tuple[str, ...]]] = deque([(start, ())])
    while waiting:
        state, way = waiting.popleft()
        for trigger, (dest, effects) in state.rows.items():
            count = min(len(effects), len(names))
            if not effects:
                if dest not in seen:
                    seen.add(dest)
                    waiting.append((dest, (*way, trigger)))
            elif all(effect.name == name for effect, name in zip(effects[:count], names, strict=False)):
                yield _Explained(way, state, trigger, count)


def _between(edge: _Explained) -> State[str, Emission[object]]:
    """Return the state between two events of an edge: whatever ends it there emits what is owed first."""
    state = State[str, Emission[object]](edge.source.table, edge.dest.name)
    if not edge.dest.rows:
        ends = ("cut", "fail") if edge.trigger in _BROKEN else ("cut",)
        state.rows.update(dict.fromkeys(ends, (edge.dest, edge.owed)))
    for trigger in _ENDS:
        if trigger in edge.dest.rows:
            dest, effects = edge.dest.rows[trigger]
            state.rows[trigger] = (dest, edge.owed + effects)
    return state


def _hold(item: object, bodies: Iterable[Body], edge: _Explained) -> None:
    """Hold the texts of an edge's events, so that the edge sends them as it sent the parser's."""
    if not isinstance(item, ItemState):
        return
    for body in bodies:
        text = body.get("delta")
        if isinstance(text, str):
            item.hold(text, cast("Sequence[Mapping[str, object]]", body.get("logprobs") or ()))
    if edge.owed and edge.trigger == "succeed":  # the driver that was lost knew the result
        item.update(**RESULTS.get(item.kind, NO_FIELDS))


def _args(trigger: str, bodies: Sequence[Body]) -> Fields:
    """Return the arguments of a trigger, as its events show them."""
    last = bodies[-1]
    match trigger:
        case "annotate":
            return cast("Fields", last["annotation"])
        case "end_output":
            return {"outcome": cast("Sequence[Body]", last["output"])[0]["outcome"]}
        case "progress" if "delta" in last:
            return cast("Fields", last["delta"])
        case "progress":
            return {name: value for name, value in last.items() if name in _IMAGE}
        case _:
            return NO_FIELDS
