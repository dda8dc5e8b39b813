"""The walk through the table of those who make responses: the loop over turns.

The loop over turns is walked together with the real driver: every edge in every state of both that can be reached, with every
sort of work that its effects can be. The walk requires that the driver has ended when, and only when, the loop settles the
response, that nothing is fed after that, and that every stream is legal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar, cast

import orjson
from attrs import frozen

from interlock.events.sse import SseWriter
from interlock.fsm import deltas, oracle
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.ids import SequentialIds
from interlock.fsm.proof.effects import Body
from interlock.fsm.table import Machine, State, Table
from interlock.fsm.turns import TURNS, TurnEffect, TurnTrigger

__all__ = ["Walk", "found", "walk_turns"]

T = TypeVar("T")
E = TypeVar("E")

Fed: TypeAlias = tuple[deltas.Delta, ...]

_SETTINGS: Final[Mapping[str, object]] = {"model": "any", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
_CALL: Final[Fed] = (deltas.Open("mcp_call", {"server_label": "wiki", "name": "search"}), "{}", deltas.Close())
_COMPACTION: Final[Fed] = (deltas.Start(), deltas.Open("compaction"), deltas.Run("cmp_1"))
_ASK: Final[Fed] = (deltas.Open("function_call", {"name": "look_up"}), "{}", deltas.Close())

_WORK: Final[Mapping[TurnEffect, Sequence[Fed]]] = {
    TurnEffect.OPEN: [(), (deltas.Start(),), (deltas.Enqueue(),), (deltas.Enqueue(), deltas.Start())],
    TurnEffect.COMPACT: [
        (*_COMPACTION, deltas.Succeed("cmp_1", {"encrypted_content": "sealed"}), deltas.EndTurn("stop")),
        _COMPACTION,
        (*_COMPACTION, deltas.EndTurn("stop")),
        (),
    ],
    TurnEffect.PREPARE: [
        (),
        (deltas.Start(),),
        (deltas.Start(), *_CALL),
        (deltas.Start(), deltas.Finish()),
    ],
    TurnEffect.GENERATE: [
        ("a", deltas.EndTurn("stop")),
        (*_CALL, deltas.EndTurn("stop")),
        (*_ASK, deltas.EndTurn("stop")),
        ("a", deltas.EndTurn("length")),
        ("a",),
    ],
    TurnEffect.FINISH: [(deltas.Finish(),), ()],
    TurnEffect.CUT: [(deltas.EndTurn("length"),), ()],
    TurnEffect.BREAK_OFF: [(deltas.Fault("server_error", "It broke."),), (deltas.Cancel(),)],
    TurnEffect.STORE: [()],
}
"""What each effect feeds: one of each sort, work that is broken off included. `run` depends on the calls that wait."""


@frozen
class Walk:
    """What a walk through a table found.

    Args:
        states: Where it came: states of the table, together with those of the driver for the loop over turns.
        edges: How many edges the table has.
        unfired: Those that never fired, as `state/trigger`.
        faults: What is wrong, each with the triggers that led to it.
    """

    states: int
    edges: int
    unfired: tuple[str, ...]
    faults: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong and every edge fired."""
        return not self.unfired and not self.faults


@frozen
class _Place:
    """Where the walk through the loop stands.

    Args:
        state: Of the loop.
        fed: What the driver was fed on the way.
        fired: The triggers on the way.
    """

    state: State[TurnTrigger, TurnEffect]
    fed: Fed = ()
    fired: tuple[TurnTrigger, ...] = ()


def walk_turns(table: Table[TurnTrigger, TurnEffect] = TURNS) -> Walk:
    """Walk through the loop over turns with the real driver.

    Args:
        table: What is walked; another than the declared one only to show that the walk finds what is wrong.
    """
    start = _Place(table.states[table.initial])
    seen = {_abstract(start)}
    fired: set[tuple[str, TurnTrigger]] = set()
    faults: list[str] = []
    waiting = deque([start])
    while waiting:
        place = waiting.popleft()
        for trigger in _possible(place):
            fired.add((place.state.name, trigger))
            for after in _after(place, trigger, faults):
                if _abstract(after) not in seen:
                    seen.add(_abstract(after))
                    waiting.append(after)
    return found(table, len(seen), fired, faults)


def found(table: Table[T, E], states: int, fired: set[tuple[str, T]], faults: Sequence[str]) -> Walk:
    """Return what a walk found.

    Args:
        table: What was walked.
        states: Where the walk came.
        fired: The edges that fired, each as the name of its state and its trigger.
        faults: What is wrong; each is told once.
    """
    unfired = [f"{edge.source}/{edge.trigger}" for edge in table.edges if (edge.source, edge.trigger) not in fired]
    return Walk(states, len(table.edges), tuple(unfired), tuple(dict.fromkeys(faults)))


def _driver(place: _Place) -> tuple[ResponseDriver[bytes], list[bytes]]:
    driver = ResponseDriver(_SETTINGS, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 0)
    return driver, driver.feed(place.fed)


def _abstract(place: _Place) -> tuple[str, object, bool, int]:
    """Return what a place is for those who look at the driver: the calls that wait, and whether it has begun or ended."""
    driver, frames = _driver(place)
    return place.state.name, driver.ended, bool(frames), min(len(driver.ready), 2)


def _possible(place: _Place) -> Iterator[TurnTrigger]:
    """Yield the triggers that a run can fire: `end` at once when the driver has ended, others as long as it has not."""
    driver, _ = _driver(place)
    settling = TurnTrigger.SETTLE in place.state.rows
    for trigger in place.state.rows:
        if settling or (trigger is TurnTrigger.END) is driver.ended:
            yield trigger


def _after(place: _Place, trigger: TurnTrigger, faults: list[str]) -> Iterator[_Place]:
    """Fire an edge, and yield the places where its effects can lead."""
    run = Machine(place.state)
    reached = [_Place(run.state, place.fed, (*place.fired, trigger))]
    for effect in run.fire(trigger):
        reached = [
            _Place(before.state, (*before.fed, *fed), before.fired)
            for before in reached
            for fed in _works(before, effect, faults)
        ]
    for before in reached:
        after = _Place(run.state, before.fed, before.fired)
        faults.extend(f"{', '.join(after.fired)}: {fault}" for fault in _wrong(after))
        yield after


def _works(place: _Place, effect: TurnEffect, faults: list[str]) -> Sequence[Fed]:
    driver, _ = _driver(place)
    told = ", ".join(place.fired)
    if effect is TurnEffect.STORE and not driver.ended:
        faults.append(f"{told}: a response is stored that has not ended")
    if effect is not TurnEffect.STORE and driver.ended:
        faults.append(f"{told}: {effect} after the response has ended")
    if effect is not TurnEffect.RUN:
        return _WORK[effect]
    started = [deltas.Run(call.id) for call in driver.ready]
    ended = [deltas.Succeed(call.id) for call in driver.ready]
    return [
        (),
        (*started,),
        (*started, *ended),
        (*(deltas.Fail(call.id, "It broke.") for call in driver.ready),),
        (deltas.Finish(),),
    ]


def _wrong(place: _Place) -> Iterator[str]:
    """Yield what is wrong with a stream whose loop has come to its end, or would have to."""
    driver, frames = _driver(place)
    if place.state.rows:
        return
    if not driver.ended:
        yield "the loop is over and the response has not ended"
        return
    events = [cast("Body", orjson.loads(frame.partition(b"\ndata: ")[2])) for frame in frames]
    yield from (f"{found.rule}: event {found.index}: {found.message}" for found in oracle.check(events))
