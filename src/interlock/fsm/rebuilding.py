"""Restore a response and its open items from the events of a stream, for `ResponseDriver.resume`.

In a lifecycle, all edges that end with the same event lead to the same state, unless the event is the last of the item. So the
last event of an open item gives its state, and the emissions of its events record its fields. If no edge ends with the event,
`_state_between` makes a temporary state, whose edges emit the pending events and then end the response or the item.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Final, TypeAlias

from msgspec import convert

from interlock.events.dialects import from_open_responses
from interlock.events.items import ITEMS
from interlock.events.json import as_text, elements, is_object, loads, members
from interlock.events.response_object import Response
from interlock.events.sse import SseDecoder
from interlock.events.stream import EVENTS, TERMINAL, InProgress, ItemAdded, ItemDone, PartAdded, ResponseEvent, wire_name
from interlock.fsm.emissions import done_as_shown
from interlock.fsm.lifecycle import NO_FIELDS, AnyItem, Emission, Fields, ItemState, Lifecycle, LifecycleState, ResponseState, S
from interlock.fsm.lifecycles import Lifecycles
from interlock.fsm.table import State

Body: TypeAlias = Mapping[str, object]

_ADDED: Final = wire_name(ItemAdded)
_DONE: Final = wire_name(ItemDone)
_ENDINGS: Final = frozenset({"cut", "fail", "cancel"})
"""The triggers that end a response or an item early."""
_ENDED: Final = State[str, Emission[AnyItem]]("", "ended")
"""The state of an item that has ended."""


def restore(subject: ResponseState, frames: Sequence[bytes], first: int, lifecycles: Lifecycles) -> list[AnyItem]:
    """Restore a response in its initial state, which is then in progress at least, and return its open items by their indices.

    `frames` are the last events of its stream, in either dialect; `first` is the number of the first of them.
    """
    last_event = wire_name(InProgress), members(None)
    item_events: dict[int, list[Body]] = {}
    names = {
        str(effect) for edge in lifecycles.response.edges for effect in edge.effects if issubclass(effect.event, ResponseEvent)
    }
    for body in _read_bodies(frames, first):
        index, name = body.get("output_index"), as_text(body.get("type"))
        if isinstance(index, int):
            item_events.setdefault(index, []).append(body)
        elif name in names:
            last_event = name, members(body.get("response"))
    _restore_response(subject, *last_event, lifecycles.response)
    restored = [item for _, bodies in sorted(item_events.items()) for item in _restore_item(subject, bodies, lifecycles)]
    for item in restored[:-1]:
        dest, emissions = item.state.rows.get("close", (item.state, ()))
        if not emissions:  # the model writes one item at a time, so this one was closed without an event
            item.state = dest
    return [item for item in restored if item.state.rows]


def _read_bodies(frames: Iterable[bytes], first: int) -> Iterator[Body]:
    """Yield the events that this release knows, in OpenAI's dialect."""
    for number, frame in enumerate(frames, first):
        with suppress(ValueError):
            for message in SseDecoder().feed(frame):
                body = from_open_responses(members(loads(message.data)))
                if body.get("sequence_number") == number and body.get("type") in EVENTS:
                    yield body


def _restore_response(subject: ResponseState, event: str, fields: Body, lifecycle: Lifecycle[ResponseState]) -> None:
    subject.state, _ = _state_after(lifecycle, _emissions(lifecycle, event)[0])
    if event in TERMINAL:
        with suppress(ValueError):  # another release may have written any body
            body = convert(fields, Response)
            subject.state, subject.body = lifecycle.states[str(body.status)], body


def _restore_item(subject: ResponseState, bodies: Sequence[Body], lifecycles: Lifecycles) -> Iterator[AnyItem]:
    """Add an item to the output of the response, and yield it, if an event shows it."""
    brackets = [body for body in bodies if is_object(body.get("item"))]
    if brackets:
        fields, ended = members(brackets[-1].get("item")), brackets[-1]["type"] == _DONE
        try:
            item = _replay(fields, () if ended else bodies[1:], lifecycles)
        except Exception:  # noqa: BLE001 - another release may have written anything
            item = _show_again(fields)
        if ended:
            item.state = _ENDED
        item.shown_body, item.output_index = item.body, len(subject.output)
        subject.output.append(item)
        yield item


def _show_again(fields: Body) -> AnyItem:
    """Return an item whose kind or whose events are not known."""
    state = State[str, Emission[AnyItem]]("", "unknown")
    state.rows["cut"] = (_ENDED, (done_as_shown,))
    body = {**fields, "status": "incomplete"} if "status" in fields else fields
    return ItemState(state, id=str(fields.get("id")), body=body, output_index=0)


def _replay(fields: Body, bodies: Iterable[Body], lifecycles: Lifecycles) -> AnyItem:
    """Return an item in the state after its events, and with their contents; the first one added it with these fields."""
    kind = as_text(fields.get("type"))
    body, lifecycle = convert(fields, ITEMS[kind]), lifecycles.items[kind]
    (emission,) = _emissions(lifecycle, _ADDED)
    item: AnyItem = ItemState(_ENDED, id=str(body.id), body=body, output_index=0)
    for event in bodies:
        emission = _record(item, event, lifecycle)
    item.args = NO_FIELDS
    item.state, trigger = _state_after(lifecycle, emission)
    if trigger == "succeed":  # the log ends before the result
        item.update(**body.no_result)
    return item


def _record(item: AnyItem, body: Body, lifecycle: Lifecycle[AnyItem]) -> Emission[AnyItem]:
    """Record the content of an event, and return the emission that made it."""
    item.args, delta = _args_of(body), body.get("delta")
    if isinstance(delta, str):
        item.hold(delta, [*map(members, elements(body.get("logprobs")))])
    part = members(body.get("part")).get("type")
    events = ((emission.make(item), emission) for emission in _emissions(lifecycle, as_text(body["type"])))
    return next(emission for event, emission in events if not isinstance(event, PartAdded) or wire_name(type(event.part)) == part)


def _args_of(body: Body) -> Fields:
    match body:
        case {"annotation": annotation}:
            return members(annotation)
        case {"output": output}:
            return {"outcome": members(elements(output)[0]).get("outcome")}
        case {"delta": delta}:
            return members(delta)
        case _:
            return NO_FIELDS


@cache
def _emissions(lifecycle: Lifecycle[S], event: str) -> list[Emission[S]]:
    """Return the emissions of an event, in the order of the table."""
    emissions = (emission for edge in lifecycle.edges for emission in edge.effects if str(emission) == event)
    return [*dict.fromkeys(emissions)]


@cache
def _state_after(lifecycle: Lifecycle[S], emission: Emission[S]) -> tuple[LifecycleState[S], str]:
    """Return the state after an event, and the trigger of the edge that emits it.

    If no edge ends with the event, choose the edge with the fewest events until the end. The state is then a temporary one, whose
    edges emit the rest of that edge and then end the response or the item.
    """
    candidates: list[tuple[bool, int, LifecycleState[S], str]] = []
    for edge in lifecycle.edges:
        if emission in edge.effects:
            state = lifecycle.states[edge.dest]
            due = tuple(edge.effects[edge.effects.index(emission) + 1 :])
            if due:
                state = _state_between(state, due, edge.trigger)
            candidates.append((bool(due), min((len(row[1]) for row in state.rows.values()), default=0), state, edge.trigger))
    *_, state, trigger = min(candidates, key=lambda one: one[:2])
    return state, trigger


def _state_between(dest: LifecycleState[S], due: tuple[Emission[S], ...], trigger: str) -> LifecycleState[S]:
    state = State[str, Emission[S]](dest.table, dest.name)
    if not dest.rows:
        triggers = ("cut", "fail") if trigger in {"cut", "fail"} else ("cut",)  # within the end of a tool, it may also fail
        state.rows.update(dict.fromkeys(triggers, (dest, due)))
    for ending in _ENDINGS & dest.rows.keys():
        following, emissions = dest.rows[ending]
        state.rows[ending] = following, (*due, *emissions)
    return state
