"""Explores the tables of `interlock.fsm.processes`: fires every edge in every reachable place.

A place is a state of the table with the facts around it that matter, such as a pending write. The walk through `turns`, the loop
over the turns of a response, feeds the real driver. It checks that the loop stores the response only after the driver has ended
it, feeds nothing afterwards, and makes a legal stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Final, Protocol, Self, TypeAlias, TypeVar

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
from interlock.fsm.proof.expectation import decoded
from interlock.fsm.proof.inputs import SETTINGS
from interlock.fsm.table import Machine, State, Table

__all__ = ["WALKS", "Walk", "walk_background", "walk_connection", "walk_conversation", "walk_lane", "walk_stored", "walk_turns"]

T = TypeVar("T")
E = TypeVar("E")

Deltas: TypeAlias = tuple[deltas.Delta, ...]

_MCP_CALL: Final[Deltas] = (deltas.Open("mcp_call", {"server_label": "wiki", "name": "search"}), "{}", deltas.Close())
_COMPACTION: Final[Deltas] = (deltas.Start(), deltas.Open("compaction"), deltas.Run("cmp_1"))
_FUNCTION_CALL: Final[Deltas] = (deltas.Open("function_call", {"name": "look_up"}), "{}", deltas.Close())

_WORK: Final[Mapping[TurnEffect, Sequence[Deltas]]] = {
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
        (deltas.Start(), *_MCP_CALL),
        (deltas.Start(), deltas.Finish()),
    ],
    TurnEffect.GENERATE: [
        ("a", deltas.EndTurn("stop")),
        (*_MCP_CALL, deltas.EndTurn("stop")),
        (*_FUNCTION_CALL, deltas.EndTurn("stop")),
        ("a", deltas.EndTurn("length")),
        ("a",),
    ],
    TurnEffect.FINISH: [(deltas.Finish(),), ()],
    TurnEffect.CUT: [(deltas.EndTurn("length"),), ()],
    TurnEffect.BREAK_OFF: [(deltas.Fault("server_error", "It broke."),), (deltas.Cancel(),)],
    TurnEffect.STORE: [()],
}
"""The deltas that each effect may feed, including those of interrupted work; those of `RUN` depend on the waiting calls."""


@frozen
class Walk:
    """The result of a walk through a table."""

    states: int
    """How many places were reached."""
    edges: int
    """How many edges the table has."""
    unfired: tuple[str, ...]
    """The edges that never fired, as `state/trigger`."""
    faults: tuple[str, ...]
    """The faults, each after the edge or the triggers that led to it."""

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong and every edge fired."""
        return not self.unfired and not self.faults


@frozen
class _TurnPlace:
    """A state of the loop with the path to it: the deltas fed to the driver, and the triggers."""

    state: State[TurnTrigger, TurnEffect]
    path: Deltas = ()
    triggers: tuple[TurnTrigger, ...] = ()


def walk_turns(table: Table[TurnTrigger, TurnEffect] = TURNS) -> Walk:
    """Walk through the table of the loop over turns, with the real driver."""
    start = _TurnPlace(table.states[table.initial])
    seen = {_abstract(start)}
    fired: set[tuple[str, TurnTrigger]] = set()
    faults: list[str] = []
    waiting = deque([start])
    while waiting:
        place = waiting.popleft()
        for trigger in _possible_triggers(place):
            fired.add((place.state.name, trigger))
            for after in _successors(place, trigger, faults):
                if _abstract(after) not in seen:
                    seen.add(_abstract(after))
                    waiting.append(after)
    return _result(table, len(seen), fired, faults)


def _driver(place: _TurnPlace) -> tuple[ResponseDriver[bytes], list[bytes]]:
    driver = ResponseDriver(SETTINGS, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 0)
    return driver, driver.feed(place.path)


def _abstract(place: _TurnPlace) -> tuple[str, object, bool, int]:
    """Return what matters of a place: its state, whether the response has begun or ended, and how many calls wait, up to 2."""
    driver, frames = _driver(place)
    return place.state.name, driver.ended, bool(frames), min(len(driver.ready), 2)


def _possible_triggers(place: _TurnPlace) -> Iterator[TurnTrigger]:
    """Yield the possible triggers: in `settling` all, else only `end` after the response has ended, and the others before."""
    driver, _ = _driver(place)
    settling = TurnTrigger.SETTLE in place.state.rows
    for trigger in place.state.rows:
        if settling or (trigger is TurnTrigger.END) is driver.ended:
            yield trigger


def _successors(place: _TurnPlace, trigger: TurnTrigger, faults: list[str]) -> Iterator[_TurnPlace]:
    """Fire an edge, and yield the places to which its effects can lead."""
    run = Machine(place.state)
    places = [evolve(place, triggers=(*place.triggers, trigger))]
    for effect in run.fire(trigger):
        places = [
            evolve(before, path=(*before.path, *work)) for before in places for work in _possible_work(before, effect, faults)
        ]
    for before in places:
        after = evolve(before, state=run.state)
        faults.extend(f"{', '.join(after.triggers)}: {fault}" for fault in _stream_faults(after))
        yield after


def _possible_work(place: _TurnPlace, effect: TurnEffect, faults: list[str]) -> Sequence[Deltas]:
    driver, _ = _driver(place)
    path = ", ".join(place.triggers)
    if effect is TurnEffect.STORE and not driver.ended:
        faults.append(f"{path}: the response is stored before it has ended")
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


def _stream_faults(place: _TurnPlace) -> Iterator[str]:
    """Yield the faults of the stream if the loop has ended."""
    driver, frames = _driver(place)
    if place.state.rows:
        return
    if not driver.ended:
        yield "the loop has ended and the response has not"
        return
    violations = oracle.check([decoded(frame) for frame in frames])
    yield from (f"{violation.rule}: event {violation.index}: {violation.message}" for violation in violations)


class _Place(Protocol[T, E]):
    """A state of a table, with the facts around it that matter."""

    @property
    def state(self) -> State[T, E]: ...

    def is_possible(self, trigger: T, /) -> bool:
        """Return whether a trigger of the state's rows can fire."""
        ...

    def after(self, trigger: T, /) -> Self:
        """Return the place after a trigger."""
        ...

    def faults(self, trigger: T, after: Self, /) -> Iterator[str]:
        """Yield the faults of a trigger that leads to the place `after`."""
        ...


@frozen
class _Owner:
    """The owner of a background response: it has one pending write at a time, and ends and releases its waiters after its run."""

    state: State[BackgroundTrigger, BackgroundEffect]
    writing: bool = False
    run_over: bool = False
    released: bool = False

    _ANSWERS: ClassVar = frozenset({BackgroundTrigger.WRITTEN, BackgroundTrigger.RETRY, BackgroundTrigger.LOSE})
    _EVENTS: ClassVar = frozenset({BackgroundTrigger.GROW, BackgroundTrigger.END})
    _WRITES: ClassVar = frozenset({BackgroundEffect.WRITE, BackgroundEffect.FINISH})

    def is_possible(self, trigger: BackgroundTrigger) -> bool:
        # A store answers only a pending write, and a run that has ended makes no events.
        return self.writing if trigger in self._ANSWERS else not (self.run_over and trigger in self._EVENTS)

    def after(self, trigger: BackgroundTrigger) -> Self:
        dest, effects = self.state.rows[trigger]
        return evolve(
            self,
            state=dest,
            writing=(self.writing and trigger not in self._ANSWERS) or not self._WRITES.isdisjoint(effects),
            run_over=self.run_over or trigger is BackgroundTrigger.END,
            released=self.released or BackgroundEffect.RELEASE in effects,
        )

    def faults(self, trigger: BackgroundTrigger, after: Self) -> Iterator[str]:
        effects = self.state.rows[trigger][1]
        if self.writing and trigger not in self._ANSWERS and not self._WRITES.isdisjoint(effects):
            yield "a second write begins before the first is answered"
        if BackgroundEffect.FINISH in effects and not after.run_over:
            yield "the response is ended before its run is over"
        if after.writing is not (BackgroundTrigger.WRITTEN in after.state.rows):
            yield "a write is pending that the table does not wait for, or the reverse"
        if after.run_over and not after.writing and after.state.rows:
            yield "the run is over and nothing finishes the response"
        if after.released is bool(after.state.rows):
            yield "waiters are released before the end, or not released at the end"


@frozen
class _StoredResponse:
    """A stored response: it has one owner and one end, and wakes its watchers."""

    state: State[StoredTrigger, StoredEffect]
    leased: bool = False
    released: bool = False

    _WATCHED: ClassVar = frozenset({StoredEffect.LOG, StoredEffect.FLAG, StoredEffect.REMOVE, StoredEffect.RELEASE})

    def is_possible(self, _trigger: StoredTrigger) -> bool:
        return True

    def after(self, trigger: StoredTrigger) -> Self:
        dest, effects = self.state.rows[trigger]
        leased = (self.leased or StoredEffect.TAKE in effects) and StoredEffect.RELEASE not in effects
        return evolve(self, state=dest, leased=leased, released=self.released or StoredEffect.RELEASE in effects)

    def faults(self, trigger: StoredTrigger, _after: Self) -> Iterator[str]:
        effects = self.state.rows[trigger][1]
        if not self.leased and {StoredEffect.LOG, StoredEffect.EXTEND}.intersection(effects):
            yield "an owner writes without a lease"
        if self.released and StoredEffect.LOG in effects:
            yield "events are appended after the end"
        if self.leased and StoredEffect.KEEP in effects and StoredEffect.RELEASE not in effects:
            yield "the response has ended and its lease has not"
        if self.leased and StoredEffect.WAKE not in effects and self._WATCHED.intersection(effects):
            yield "no watcher is woken"


@frozen
class _Conversation:
    """A conversation: only the response with the lease changes its items, and every lease can end."""

    state: State[ConversationTrigger, ConversationEffect]
    leased: bool = False

    def is_possible(self, _trigger: ConversationTrigger) -> bool:
        return True

    def after(self, trigger: ConversationTrigger) -> Self:
        dest, effects = self.state.rows[trigger]
        freed = {ConversationEffect.FREE, ConversationEffect.REMOVE}.intersection(effects)
        return evolve(self, state=dest, leased=(self.leased or ConversationEffect.TAKE in effects) and not freed)

    def faults(self, trigger: ConversationTrigger, after: Self) -> Iterator[str]:
        effects = self.state.rows[trigger][1]
        if self.leased and ConversationEffect.WRITE in effects and trigger is not ConversationTrigger.JOIN:
            yield "the items change during a lease"
        if self.leased and ConversationEffect.WRITE in effects and ConversationEffect.FREE not in effects:
            yield "a response is added and its lease is not freed"
        if self.leased and ConversationEffect.TAKE in effects and trigger is not ConversationTrigger.RENEW:
            yield "a second response takes the lease"
        if not self.leased and ConversationEffect.FREE in effects:
            yield "a lease is freed that nobody has"
        if after.leased and not {ConversationTrigger.LAPSE, ConversationTrigger.RELEASE} <= after.state.rows.keys():
            yield "the lease cannot lapse, or cannot be released"


@frozen
class _Lane:
    """A lane of a WebSocket: it runs one request at a time, and loses no request while its client is connected."""

    state: State[LaneTrigger, LaneEffect]
    queued: int = 0
    """How many requests wait; 2 stands for more."""
    started: bool = False
    """Whether a request was started and has not ended."""
    running: bool = False
    """Whether the run of that request has started."""
    cancelled: bool = False
    """Whether the request was cancelled before its run started."""
    client_gone: bool = False

    def is_possible(self, trigger: LaneTrigger) -> bool:
        # A request starts to run once, and a client that has disconnected sends nothing.
        match trigger:
            case LaneTrigger.START:
                return self.started and not self.running
            case LaneTrigger.END:
                return self.started
            case _:
                return not self.client_gone

    def after(self, trigger: LaneTrigger) -> Self:
        dest, effects = self.state.rows[trigger]
        started = (self.started or LaneEffect.BEGIN in effects) and trigger is not LaneTrigger.END
        lane = evolve(
            self,
            state=dest,
            queued=0 if LaneEffect.CLEAR in effects else min(self.queued + (LaneEffect.QUEUE in effects), 2),
            started=started,
            running=started and (self.running or trigger is LaneTrigger.START),
            cancelled=started and not self.running and (self.cancelled or trigger in {LaneTrigger.CANCEL, LaneTrigger.LEAVE}),
            client_gone=self.client_gone or trigger is LaneTrigger.LEAVE,
        )
        if LaneEffect.ADVANCE in effects and lane.queued:
            return evolve(lane, queued=lane.queued - 1).after(LaneTrigger.ASK)
        return lane

    def faults(self, trigger: LaneTrigger, after: Self) -> Iterator[str]:
        effects = self.state.rows[trigger][1]
        if self.started and LaneEffect.BEGIN in effects:
            yield "two requests run at once"
        if trigger is LaneTrigger.ASK and not {LaneEffect.BEGIN, LaneEffect.QUEUE}.intersection(effects):
            yield "a request is lost"
        if after.queued and not after.started:
            yield "a queued request never starts"
        cancels = trigger in {LaneTrigger.CANCEL, LaneTrigger.LEAVE}
        if (cancels and self.running) is not (LaneEffect.INTERRUPT in effects) and trigger is not LaneTrigger.START:
            yield "a cancelled request is not interrupted, or the reverse"
        if trigger is LaneTrigger.START and self.cancelled is not (LaneEffect.INTERRUPT in effects):
            yield "a request that was cancelled before it ran is not interrupted, or the reverse"
        if not after.state.rows and (after.started or after.queued or not after.client_gone):
            yield "the lane closes before its last request ends"


@frozen
class _Connection:
    """A WebSocket connection: it refuses requests after its lifetime, and closes only when no request is in flight."""

    state: State[ConnectionTrigger, ConnectionEffect]
    in_flight: bool = False
    expired: bool = False
    refused: bool = False
    shutting_down: bool = False
    client_gone: bool = False

    def is_possible(self, trigger: ConnectionTrigger) -> bool:
        # A connection drains only if a request is in flight, and a client that has disconnected sends nothing.
        match trigger:
            case ConnectionTrigger.DRAIN:
                return self.in_flight
            case ConnectionTrigger.EXPIRE | ConnectionTrigger.SHUT_DOWN:
                return True
            case _:
                return not self.client_gone

    def after(self, trigger: ConnectionTrigger) -> Self:
        dest, effects = self.state.rows[trigger]
        connection = evolve(
            self,
            state=dest,
            in_flight=(self.in_flight or ConnectionEffect.DISPATCH in effects) and trigger is not ConnectionTrigger.DRAIN,
            expired=self.expired or trigger is ConnectionTrigger.EXPIRE,
            refused=self.refused or ConnectionEffect.REFUSE in effects,
            shutting_down=self.shutting_down or trigger is ConnectionTrigger.SHUT_DOWN,
            client_gone=self.client_gone or trigger is ConnectionTrigger.LEAVE,
        )
        if ConnectionEffect.SETTLE in effects and not connection.in_flight and ConnectionTrigger.DRAIN in connection.state.rows:
            return connection.after(ConnectionTrigger.DRAIN)
        return connection

    def faults(self, trigger: ConnectionTrigger, after: Self) -> Iterator[str]:
        effects = self.state.rows[trigger][1]
        if trigger is ConnectionTrigger.REQUEST:
            refuses = self.expired and not self.shutting_down
            if effects[0] is not (ConnectionEffect.REFUSE if refuses else ConnectionEffect.DISPATCH):
                yield "a request on an expired connection is not refused, or the reverse"
        if (trigger is ConnectionTrigger.LEAVE) is not (ConnectionEffect.LEAVE_LANES in effects):
            yield "the lanes are left although the client has not gone, or the reverse"
        if not after.state.rows and after.in_flight:
            yield "the connection closes while a request is in flight"
        if after.state.rows and not after.in_flight and (after.client_gone or after.shutting_down or after.refused):
            yield "nothing is in flight and the connection stays open"


def walk_background(table: Table[BackgroundTrigger, BackgroundEffect] = BACKGROUND) -> Walk:
    """Walk through the table of the owner of a background response."""
    return _walk(table, _Owner(table.states[table.initial]))


def walk_stored(table: Table[StoredTrigger, StoredEffect] = STORED) -> Walk:
    """Walk through the table of a stored response."""
    return _walk(table, _StoredResponse(table.states[table.initial]))


def walk_conversation(table: Table[ConversationTrigger, ConversationEffect] = CONVERSATION) -> Walk:
    """Walk through the table of a conversation."""
    return _walk(table, _Conversation(table.states[table.initial]))


def walk_lane(table: Table[LaneTrigger, LaneEffect] = LANE) -> Walk:
    """Walk through the table of a lane."""
    return _walk(table, _Lane(table.states[table.initial]))


def walk_connection(table: Table[ConnectionTrigger, ConnectionEffect] = CONNECTION) -> Walk:
    """Walk through the table of a connection."""
    return _walk(table, _Connection(table.states[table.initial]))


def _walk(table: Table[T, E], start: _Place[T, E]) -> Walk:
    """Fire every edge in every reachable place."""
    waiting = deque([start])
    seen = {start}
    fired: set[tuple[str, T]] = set()
    faults: list[str] = []
    while waiting:
        place = waiting.popleft()
        for trigger in filter(place.is_possible, place.state.rows):
            fired.add((place.state.name, trigger))
            after = place.after(trigger)
            faults += [f"{place.state.name}/{trigger}: {fault}" for fault in place.faults(trigger, after)]
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
"""The walk through each table, by the table's name."""
