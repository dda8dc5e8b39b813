"""Rebuild a driver's state from the events of a stream, for `ResponseDriver.resume` and `ResponseDriver.salvage`.

A log has the events of a stream so far, and each of them was emitted by an edge of a lifecycle. The module finds these edges and
fires them again, so that the response and its items record the same fields, but sends nothing. If the log ends between two events
of an edge, `_between` makes a temporary state, whose edges emit the pending events and then end the response or the item.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar, cast

from attrs import frozen
from msgspec import convert

from interlock.events import items
from interlock.events import response_object as response
from interlock.events.decode import SseDecoder
from interlock.events.dialects import from_open_responses
from interlock.events.items import ITEMS
from interlock.events.json import loads
from interlock.events.stream import EVENTS, TERMINAL, ItemAdded, ItemDone, wire_name
from interlock.fsm.emissions import done_as_shown
from interlock.fsm.lifecycle import NO_FIELDS, Emission, Fields, LifecycleState, Subject
from interlock.fsm.lifecycles import Lifecycles
from interlock.fsm.subjects import ItemState, ResponseState
from interlock.fsm.table import State

__all__ = ["Body", "bodies_of", "known_bodies_of", "known_open_items", "open_items"]

S = TypeVar("S")

Body: TypeAlias = Mapping[str, object]
"""An event as its JSON object, in OpenAI's dialect."""

_IMAGE: Final = frozenset({"partial_image_b64", "background", "output_format", "quality", "size"})
"""The fields of a partial image, for `Progress`."""
_ENDINGS: Final = ("cut", "fail", "cancel")
"""The triggers that end a response or an item early."""
_FAILURES: Final = frozenset({"cut", "fail"})
"""If the log ends within an edge of one of these triggers, `fail` may end the item as well as `cut`."""


def bodies_of(frames: Iterable[bytes], first: int = 0) -> list[Body]:
    """Parse the frames of a log.

    Args:
        frames: The stream's server-sent events, in either dialect.
        first: The number of the first event.

    Raises:
        ValueError: A frame is not an event, or skips or repeats a sequence number.
    """
    decoder = SseDecoder()
    bodies: list[Body] = []
    for frame in frames:
        for message in decoder.feed(frame):
            body = loads(message.data)
            number = first + len(bodies)
            if not isinstance(body, dict) or cast("Body", body).get("sequence_number") != number:
                raise ValueError(f"the log does not continue with event {number}")
            bodies.append(from_open_responses(cast("Body", body)))
    return bodies


def known_bodies_of(frames: Iterable[bytes], first: int) -> list[Body]:
    """Parse the frames of a log that another release may have written, and leave out those that this release cannot read."""
    bodies: list[Body] = []
    for number, frame in enumerate(frames, first):
        with suppress(ValueError):
            bodies += [body for body in bodies_of([frame], number) if str(body.get("type")) in EVENTS]
    return bodies


def open_items(subject: ResponseState, bodies: Sequence[Body], lifecycles: Lifecycles) -> list[ItemState[Any]]:
    """Replay events on a response, and return its open items in the order of their indices.

    Args:
        subject: The response, in its initial state and without items.
        bodies: All events of its stream so far.
        lifecycles: The lifecycles that emitted them.

    Raises:
        ValueError: No edge from the current state emits the next event.
    """
    own, of_items = _split(bodies)
    _replay_response(subject, own, lifecycles)
    return _still_open([_item(subject, events, lifecycles) for events in of_items])


def known_open_items(subject: ResponseState, bodies: Sequence[Body], lifecycles: Lifecycles) -> list[ItemState[Any]]:
    """Replay events of a log that another release may have written, and that may lack events; see `open_items`.

    The response is in progress at least. An item whose events cannot be replayed ends as its last event has shown it.
    """
    own, of_items = _split(bodies)
    start = subject.state
    with suppress(Exception):  # another release may have written anything
        _replay_response(subject, own, lifecycles)
    if subject.state is start:
        subject.state, _ = start.row("start")
    rebuilt: list[ItemState[Any]] = []
    for events in of_items:
        try:
            rebuilt.append(_item(subject, events, lifecycles))
        except Exception:  # noqa: BLE001 - likewise
            rebuilt += _shown_items(subject, events)
    return _still_open(rebuilt)


def _split(bodies: Iterable[Body]) -> tuple[list[Body], list[list[Body]]]:
    """Return the response's own events, and those of each item."""
    of_items: dict[int, list[Body]] = {}
    own: list[Body] = []
    for body in bodies:
        index = body.get("output_index")
        (of_items.setdefault(index, []) if isinstance(index, int) else own).append(body)
    return own, [events for _, events in sorted(of_items.items())]


def _replay_response(subject: ResponseState, own: Sequence[Body], lifecycles: Lifecycles) -> None:
    if own and own[-1]["type"] in TERMINAL:
        _finish(subject, own[-1]["response"], lifecycles)
    else:
        _replay(subject, own)


def _still_open(rebuilt: Sequence[ItemState[Any]]) -> list[ItemState[Any]]:
    for item in rebuilt[:-1]:
        match item.state.rows.get("close"):
            case (dest, ()):  # the model writes one item at a time, so this one was closed without an event
                item.state = dest
            case _:
                pass
    return [item for item in rebuilt if item.state.rows]


def _finish(subject: ResponseState, body: object, lifecycles: Lifecycles) -> None:
    """Put a response into its final state; the path to that state does not matter."""
    subject.body = convert(body, response.Response)
    subject.state = lifecycles.response.states[str(subject.body.status)]


def _item(subject: ResponseState, bodies: Sequence[Body], lifecycles: Lifecycles) -> ItemState[Any]:
    """Replay the events of an item, and add it to the output of the response."""
    first, last = bodies[0], bodies[-1]
    if first["type"] != wire_name(ItemAdded):
        raise ValueError(f"the log has {first['type']} of an item that was not added")
    body = _body(first["item"])
    lifecycle = lifecycles.items[wire_name(type(body))]
    item: ItemState[Any] = ItemState(
        lifecycle.states[lifecycle.initial], id=str(body.id), body=body, output_index=len(subject.output)
    )
    if last["type"] == wire_name(ItemDone):  # the path to the final state does not matter
        item.body = item.shown_body = _body(last["item"])
        item.state = lifecycle.states[min(lifecycle.final)]
    else:
        _replay(item, bodies)
    subject.output.append(item)
    return item


def _shown_items(subject: ResponseState, bodies: Sequence[Body]) -> Iterator[ItemState[Any]]:
    """Yield an item whose lifecycle is not known, as its last event has shown it, if an event has."""
    name = wire_name(ItemDone)
    shown = [(body["type"] == name, body["item"]) for body in bodies if isinstance(body.get("item"), dict)]
    if shown:
        done, body = shown[-1][0], cast("dict[str, object]", shown[-1][1])
        state = State[str, Emission[ItemState[Any]]]("", "unknown")
        if not done:
            if "status" in body:
                body["status"] = "incomplete"
            state.rows["cut"] = (State("", "done"), (done_as_shown,))
        item: ItemState[Any] = ItemState(state, id=str(body.get("id")), body=body, output_index=len(subject.output))
        item.shown_body = body
        subject.output.append(item)
        yield item


def _body(item: object) -> items.Item:
    return convert(item, ITEMS[str(cast("Body", item)["type"])])


@frozen
class _Match:
    """An edge whose events match the next ones of the log.

    Args:
        path: The triggers that lead to the edge and emit nothing.
        trigger: The trigger of the edge.
        dest: The state that the edge enters.
        matched: The number of its events that are in the log.
        pending: Its events that are not.
    """

    path: tuple[str, ...]
    trigger: str
    dest: State[str, Emission[object]]
    matched: int
    pending: tuple[Emission[object], ...]

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Complete edges rank highest; then those with more matched events, then those closest to an end."""
        endings = [len(self.dest.rows[trigger][1]) for trigger in _ENDINGS if trigger in self.dest.rows]
        return not self.pending, self.matched, -len(self.pending) - min(endings, default=0)


def _replay(subject: Subject[S], bodies: Sequence[Body]) -> None:
    """Fire the edges that emitted the events of a subject, without emitting them again."""
    rest = bodies
    while rest:
        names = [str(body["type"]) for body in rest]
        start = cast("State[str, Emission[object]]", subject.state)
        edge = max(_matches(start, names), key=lambda match: match.rank, default=None)
        if edge is None:
            raise ValueError(f"{start.table}: no edge in state {start.name} emits {names[0]}")
        for trigger in edge.path:
            subject.fire(trigger)
        events, rest = rest[: edge.matched], rest[edge.matched :]
        _hold(subject, events, edge)
        subject.args = _args(edge.trigger, events)
        for emission in subject.fire(edge.trigger)[: edge.matched]:
            emission.make(cast("S", subject))
        subject.args = NO_FIELDS
        if edge.pending:
            subject.state = cast("LifecycleState[S]", _between(edge))


def _matches(start: State[str, Emission[object]], names: Sequence[str]) -> Iterator[_Match]:
    """Yield the edges whose events match the next ones; at the end of the log, a match of their first events suffices."""
    seen = {start}
    waiting: deque[tuple[State[str, Emission[object]], tuple[str, ...]]] = deque([(start, ())])
    while waiting:
        state, path = waiting.popleft()
        for trigger, (dest, effects) in state.rows.items():
            matched = min(len(effects), len(names))
            if not effects:
                if dest not in seen:
                    seen.add(dest)
                    waiting.append((dest, (*path, trigger)))
            elif all(effect.name == name for effect, name in zip(effects[:matched], names, strict=False)):
                yield _Match(path, trigger, dest, matched, effects[matched:])


def _between(edge: _Match) -> State[str, Emission[object]]:
    """Return a state between two events of an edge. Every trigger emits the pending events and ends the subject."""
    state = State[str, Emission[object]](edge.dest.table, edge.dest.name)
    if not edge.dest.rows:
        endings = ("cut", "fail") if edge.trigger in _FAILURES else ("cut",)
        state.rows.update(dict.fromkeys(endings, (edge.dest, edge.pending)))
    for trigger in _ENDINGS:
        if trigger in edge.dest.rows:
            dest, effects = edge.dest.rows[trigger]
            state.rows[trigger] = (dest, edge.pending + effects)
    return state


def _hold(item: object, bodies: Iterable[Body], edge: _Match) -> None:
    """Buffer the text of the delta events, which the edge then takes."""
    if not isinstance(item, ItemState):
        return
    for body in bodies:
        text = body.get("delta")
        if isinstance(text, str):
            item.hold(text, cast("Sequence[Mapping[str, object]]", body.get("logprobs") or ()))
    if edge.pending and edge.trigger == "succeed":  # the log ends before the result
        item.update(**ITEMS[item.kind].no_result)


def _args(trigger: str, bodies: Sequence[Body]) -> Fields:
    """Read the arguments of a trigger from its events."""
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
