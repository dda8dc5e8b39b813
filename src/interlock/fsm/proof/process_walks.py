"""The walks through the tables of `interlock.fsm.processes`: every edge in every place that can be reached.

A place is a state of the table with what matters of the world around it. The loop over turns is walked together with the real
driver, with every sort of work that its effects can be: the driver has ended when, and only when, the loop settles the response,
nothing is fed after that, and every stream is legal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Final, Protocol, Self, TypeAlias, TypeVar, cast

import orjson
from attrs import evolve, frozen

from interlock.events.sse import SseWriter
from interlock.fsm import deltas, oracle
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.ids import SequentialIds
from interlock.fsm.processes.background import BACKGROUND, BackgroundEffect, BackgroundTrigger
from interlock.fsm.processes.connection import CONNECTION, ConnectionEffect, ConnectionTrigger
from interlock.fsm.processes.conversation import CONVERSATION, ConversationEffect, ConversationTrigger
from interlock.fsm.processes.lane import LANE, LaneEffect, LaneTrigger
from interlock.fsm.processes.stored import STORED, StoredEffect, StoredTrigger
from interlock.fsm.processes.turns import TURNS, TurnEffect, TurnTrigger
from interlock.fsm.proof.visible_effects import Body
from interlock.fsm.table import Machine, State, Table

__all__ = ["WALKS", "Walk", "walk_background", "walk_connection", "walk_conversation", "walk_lane", "walk_stored", "walk_turns"]

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
class _TurnPlace:
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
    start = _TurnPlace(table.states[table.initial])
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
    return _result(table, len(seen), fired, faults)


def _driver(place: _TurnPlace) -> tuple[ResponseDriver[bytes], list[bytes]]:
    driver = ResponseDriver(_SETTINGS, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 0)
    return driver, driver.feed(place.fed)


def _abstract(place: _TurnPlace) -> tuple[str, object, bool, int]:
    """Return what a place is for those who look at the driver: the calls that wait, and whether it has begun or ended."""
    driver, frames = _driver(place)
    return place.state.name, driver.ended, bool(frames), min(len(driver.ready), 2)


def _possible(place: _TurnPlace) -> Iterator[TurnTrigger]:
    """Yield the triggers that a run can fire: `end` at once when the driver has ended, others as long as it has not."""
    driver, _ = _driver(place)
    settling = TurnTrigger.SETTLE in place.state.rows
    for trigger in place.state.rows:
        if settling or (trigger is TurnTrigger.END) is driver.ended:
            yield trigger


def _after(place: _TurnPlace, trigger: TurnTrigger, faults: list[str]) -> Iterator[_TurnPlace]:
    """Fire an edge, and yield the places where its effects can lead."""
    run = Machine(place.state)
    reached = [_TurnPlace(run.state, place.fed, (*place.fired, trigger))]
    for effect in run.fire(trigger):
        reached = [
            _TurnPlace(before.state, (*before.fed, *fed), before.fired)
            for before in reached
            for fed in _works(before, effect, faults)
        ]
    for before in reached:
        after = _TurnPlace(run.state, before.fed, before.fired)
        faults.extend(f"{', '.join(after.fired)}: {fault}" for fault in _wrong(after))
        yield after


def _works(place: _TurnPlace, effect: TurnEffect, faults: list[str]) -> Sequence[Fed]:
    driver, _ = _driver(place)
    path = ", ".join(place.fired)
    if effect is TurnEffect.STORE and not driver.ended:
        faults.append(f"{path}: a response is stored that has not ended")
    if effect is not TurnEffect.STORE and driver.ended:
        faults.append(f"{path}: {effect} after the response has ended")
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


def _wrong(place: _TurnPlace) -> Iterator[str]:
    """Yield what is wrong with a stream whose loop has come to its end, or would have to."""
    driver, frames = _driver(place)
    if place.state.rows:
        return
    if not driver.ended:
        yield "the loop is over and the response has not ended"
        return
    events = [cast("Body", orjson.loads(frame.partition(b"\ndata: ")[2])) for frame in frames]
    yield from (f"{found.rule}: event {found.index}: {found.message}" for found in oracle.check(events))


@frozen
class Owner:
    """The owner of a response in the background, with all that its run and its store may do.

    At most one write is on its way, the response is ended when its run is over and not before, and every path comes to an end,
    where those who wait for the owner go on.

    Args:
        state: Where its table stands.
        under_way: Whether a write is on its way.
        over: Whether the run has made its last event.
        released: Whether those who wait go on.
    """

    state: State[BackgroundTrigger, BackgroundEffect]
    under_way: bool = False
    over: bool = False
    released: bool = False

    _ANSWERS: ClassVar = frozenset({BackgroundTrigger.WRITTEN, BackgroundTrigger.RETRY, BackgroundTrigger.LOSE})
    _MADE: ClassVar = frozenset({BackgroundTrigger.GROW, BackgroundTrigger.END})
    _WRITES: ClassVar = frozenset({BackgroundEffect.WRITE, BackgroundEffect.FINISH})

    def is_possible(self, trigger: BackgroundTrigger) -> bool:
        """Return whether a trigger can fire: a store answers what is on its way, and a run that is over makes nothing."""
        return self.under_way if trigger in self._ANSWERS else not (self.over and trigger in self._MADE)

    def after(self, trigger: BackgroundTrigger) -> Self:
        """Return the owner after a trigger."""
        dest, effects = self.state.rows[trigger]
        return evolve(
            self,
            state=dest,
            under_way=(self.under_way and trigger not in self._ANSWERS) or not self._WRITES.isdisjoint(effects),
            over=self.over or trigger is BackgroundTrigger.END,
            released=self.released or BackgroundEffect.RELEASE in effects,
        )

    def wrong(self, trigger: BackgroundTrigger, after: Self) -> Iterator[str]:
        """Yield what is wrong with a trigger that led to another owner."""
        effects = self.state.rows[trigger][1]
        if self.under_way and trigger not in self._ANSWERS and not self._WRITES.isdisjoint(effects):
            yield "a second write begins before the first is answered"
        if BackgroundEffect.FINISH in effects and not after.over:
            yield "the response is ended before its run is over"
        if after.under_way is not (BackgroundTrigger.WRITTEN in after.state.rows):
            yield "what a store answers is not what is waited for"
        if after.over and not after.under_way and after.state.rows:
            yield "the run is over, and nothing more happens"
        if after.released is bool(after.state.rows):
            yield "those who wait for the end do not go on with it"


@frozen
class Stored:
    """A stored response: one owner, one end, and nobody who waits without being woken.

    Args:
        state: Where its table stands.
        owned: Whether somebody has the lease.
        over: Whether it has had an owner and has ended.
    """

    state: State[StoredTrigger, StoredEffect]
    owned: bool = False
    over: bool = False

    _WATCHED: ClassVar = frozenset({StoredEffect.LOG, StoredEffect.FLAG, StoredEffect.REMOVE, StoredEffect.RELEASE})

    def is_possible(self, _trigger: StoredTrigger) -> bool:
        """Return that anything can happen that the table has."""
        return True

    def after(self, trigger: StoredTrigger) -> Self:
        """Return the response after a trigger."""
        dest, effects = self.state.rows[trigger]
        owned = (self.owned or StoredEffect.TAKE in effects) and StoredEffect.RELEASE not in effects
        return evolve(self, state=dest, owned=owned, over=self.over or StoredEffect.RELEASE in effects)

    def wrong(self, trigger: StoredTrigger, _after: Self) -> Iterator[str]:
        """Yield what is wrong with a trigger."""
        effects = self.state.rows[trigger][1]
        if not self.owned and {StoredEffect.LOG, StoredEffect.EXTEND}.intersection(effects):
            yield "somebody writes without a lease"
        if self.over and StoredEffect.LOG in effects:
            yield "events are appended after the end"
        if self.owned and StoredEffect.KEEP in effects and StoredEffect.RELEASE not in effects:
            yield "the response is kept as it ended, and its lease goes on"
        if self.owned and StoredEffect.WAKE not in effects and self._WATCHED.intersection(effects):
            yield "nobody is woken"


@frozen
class Shared:
    """A conversation: whoever has its lease finds it as it was, and every lease ends.

    Args:
        state: Where its table stands.
        leased: Whether somebody has the lease.
    """

    state: State[ConversationTrigger, ConversationEffect]
    leased: bool = False

    def is_possible(self, _trigger: ConversationTrigger) -> bool:
        """Return that anything can happen that the table has."""
        return True

    def after(self, trigger: ConversationTrigger) -> Self:
        """Return the conversation after a trigger."""
        dest, effects = self.state.rows[trigger]
        freed = {ConversationEffect.FREE, ConversationEffect.REMOVE}.intersection(effects)
        return evolve(self, state=dest, leased=(self.leased or ConversationEffect.TAKE in effects) and not freed)

    def wrong(self, trigger: ConversationTrigger, after: Self) -> Iterator[str]:
        """Yield what is wrong with a trigger that led to another conversation."""
        effects = self.state.rows[trigger][1]
        if self.leased and ConversationEffect.WRITE in effects and trigger is not ConversationTrigger.JOIN:
            yield "the items change under who holds them"
        if self.leased and ConversationEffect.WRITE in effects and ConversationEffect.FREE not in effects:
            yield "it is added to and held on to"
        if self.leased and ConversationEffect.TAKE in effects and trigger is not ConversationTrigger.RENEW:
            yield "a second one takes it"
        if not self.leased and ConversationEffect.FREE in effects:
            yield "it is freed although nobody holds it"
        if after.leased and not {ConversationTrigger.LAPSE, ConversationTrigger.RELEASE} <= after.state.rows.keys():
            yield "a hold that does not end"


@frozen
class Queue:
    """A lane: one request at a time, in order, and none that is forgotten.

    Args:
        state: Where its table stands.
        queued: How many requests wait, two standing for more.
        started: Whether a request was started and has not ended.
        runs: Whether its run is there.
        cancelled: Whether it was cancelled before.
        left: Whether the client has gone.
    """

    state: State[LaneTrigger, LaneEffect]
    queued: int = 0
    started: bool = False
    runs: bool = False
    cancelled: bool = False
    left: bool = False

    def is_possible(self, trigger: LaneTrigger) -> bool:
        """Return whether a trigger can fire: a request begins to run once, and a client that has gone does nothing more."""
        match trigger:
            case LaneTrigger.BEGUN:
                return self.started and not self.runs
            case LaneTrigger.END:
                return self.started
            case _:
                return not self.left

    def after(self, trigger: LaneTrigger) -> Self:
        """Return the lane after a trigger; the next request of the queue is asked for at once."""
        dest, effects = self.state.rows[trigger]
        started = (self.started or LaneEffect.BEGIN in effects) and trigger is not LaneTrigger.END
        lane = evolve(
            self,
            state=dest,
            queued=0 if LaneEffect.CLEAR in effects else min(self.queued + (LaneEffect.QUEUE in effects), 2),
            started=started,
            runs=started and (self.runs or trigger is LaneTrigger.BEGUN),
            cancelled=started and not self.runs and (self.cancelled or trigger in {LaneTrigger.CANCEL, LaneTrigger.LEAVE}),
            left=self.left or trigger is LaneTrigger.LEAVE,
        )
        if LaneEffect.ADVANCE in effects and lane.queued:
            return evolve(lane, queued=lane.queued - 1).after(LaneTrigger.ASK)
        return lane

    def wrong(self, trigger: LaneTrigger, after: Self) -> Iterator[str]:
        """Yield what is wrong with a trigger that led to another lane."""
        effects = self.state.rows[trigger][1]
        if self.started and LaneEffect.BEGIN in effects:
            yield "two requests run at once"
        if trigger is LaneTrigger.ASK and not {LaneEffect.BEGIN, LaneEffect.QUEUE}.intersection(effects):
            yield "a request is forgotten"
        if after.queued and not after.started:
            yield "a request waits for nothing"
        goes = trigger in {LaneTrigger.CANCEL, LaneTrigger.LEAVE}
        if (goes and self.runs) is not (LaneEffect.INTERRUPT in effects) and trigger is not LaneTrigger.BEGUN:
            yield "what is interrupted is not what was cancelled"
        if trigger is LaneTrigger.BEGUN and self.cancelled is not (LaneEffect.INTERRUPT in effects):
            yield "what was cancelled before it ran is not what is interrupted"
        if not after.state.rows and (after.started or after.queued or not after.left):
            yield "the lane is closed before its end"


@frozen
class Socket:
    """A connection: requests are taken as long as they may be, and it is closed when nothing is in flight.

    Args:
        state: Where its table stands.
        in_flight: Whether a request is.
        expired: Whether its longest lifetime is over.
        refused: Whether a request was refused since.
        shuts_down: Whether the server shuts down.
        left: Whether the client has gone.
    """

    state: State[ConnectionTrigger, ConnectionEffect]
    in_flight: bool = False
    expired: bool = False
    refused: bool = False
    shuts_down: bool = False
    left: bool = False

    def is_possible(self, trigger: ConnectionTrigger) -> bool:
        """Return whether a trigger can fire: what is in flight drains, and a client that has gone does nothing more."""
        match trigger:
            case ConnectionTrigger.DRAIN:
                return self.in_flight
            case ConnectionTrigger.EXPIRE | ConnectionTrigger.SHUT_DOWN:
                return True
            case _:
                return not self.left

    def after(self, trigger: ConnectionTrigger) -> Self:
        """Return the connection after a trigger; where it settles with nothing in flight, it drains at once."""
        dest, effects = self.state.rows[trigger]
        socket = evolve(
            self,
            state=dest,
            in_flight=(self.in_flight or ConnectionEffect.DISPATCH in effects) and trigger is not ConnectionTrigger.DRAIN,
            expired=self.expired or trigger is ConnectionTrigger.EXPIRE,
            refused=self.refused or ConnectionEffect.REFUSE in effects,
            shuts_down=self.shuts_down or trigger is ConnectionTrigger.SHUT_DOWN,
            left=self.left or trigger is ConnectionTrigger.LEAVE,
        )
        if ConnectionEffect.SETTLE in effects and not socket.in_flight and ConnectionTrigger.DRAIN in socket.state.rows:
            return socket.after(ConnectionTrigger.DRAIN)
        return socket

    def wrong(self, trigger: ConnectionTrigger, after: Self) -> Iterator[str]:
        """Yield what is wrong with a trigger that led to another connection."""
        effects = self.state.rows[trigger][1]
        if trigger is ConnectionTrigger.REQUEST:
            refuses = self.expired and not self.shuts_down
            if effects[0] is not (ConnectionEffect.REFUSE if refuses else ConnectionEffect.DISPATCH):
                yield "a request is not refused because the connection is too old, and only then"
        if (trigger is ConnectionTrigger.LEAVE) is not (ConnectionEffect.LEAVE_LANES in effects):
            yield "the lanes are left by another than a client that goes"
        if not after.state.rows and after.in_flight:
            yield "the connection is closed while a request is in flight"
        if after.state.rows and not after.in_flight and (after.left or after.shuts_down or after.refused):
            yield "nothing is in flight, and the connection is not closed"


def walk_background(table: Table[BackgroundTrigger, BackgroundEffect] = BACKGROUND) -> Walk:
    """Walk through the life of the owner of a response in the background.

    Args:
        table: What is walked; another than the declared one only to show that the walk finds what is wrong.
    """
    return _walk(table, Owner(table.states[table.initial]))


def walk_stored(table: Table[StoredTrigger, StoredEffect] = STORED) -> Walk:
    """Walk through the life of a stored response; `table` as above."""
    return _walk(table, Stored(table.states[table.initial]))


def walk_conversation(table: Table[ConversationTrigger, ConversationEffect] = CONVERSATION) -> Walk:
    """Walk through the life of a conversation; `table` as above."""
    return _walk(table, Shared(table.states[table.initial]))


def walk_lane(table: Table[LaneTrigger, LaneEffect] = LANE) -> Walk:
    """Walk through the life of a lane; `table` as above."""
    return _walk(table, Queue(table.states[table.initial]))


def walk_connection(table: Table[ConnectionTrigger, ConnectionEffect] = CONNECTION) -> Walk:
    """Walk through the life of a connection; `table` as above."""
    return _walk(table, Socket(table.states[table.initial]))


class _Place(Protocol[T, E]):
    """A state of a table, with what is around it."""

    @property
    def state(self) -> State[T, E]: ...

    def is_possible(self, trigger: T, /) -> bool: ...

    def after(self, trigger: T, /) -> Self: ...

    def wrong(self, trigger: T, after: Self, /) -> Iterator[str]: ...


def _walk(table: Table[T, E], start: _Place[T, E]) -> Walk:
    """Fire every edge in every place that can be reached."""
    waiting = deque([start])
    seen = {start}
    fired: set[tuple[str, T]] = set()
    faults: list[str] = []
    while waiting:
        place = waiting.popleft()
        for trigger in filter(place.is_possible, place.state.rows):
            fired.add((place.state.name, trigger))
            after = place.after(trigger)
            faults += [f"{place.state.name}/{trigger}: {fault}" for fault in place.wrong(trigger, after)]
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return _result(table, len(seen), fired, faults)


def _result(table: Table[T, E], states: int, fired: set[tuple[str, T]], faults: Sequence[str]) -> Walk:
    unfired = [f"{edge.source}/{edge.trigger}" for edge in table.edges if (edge.source, edge.trigger) not in fired]
    return Walk(states, len(table.edges), tuple(unfired), tuple(dict.fromkeys(faults)))


WALKS: Final[dict[str, Callable[[], Walk]]] = {
    "turns": walk_turns,
    "background": walk_background,
    "stored": walk_stored,
    "conversation": walk_conversation,
    "lane": walk_lane,
    "connection": walk_connection,
}
"""The walk through each table, by its name."""
