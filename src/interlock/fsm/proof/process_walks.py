"""Explores the tables of `interlock.fsm.processes`: fires every edge in every reachable place.

A place is a state of the table with the facts around it that matter, such as a pending write. The walk through `turns`, the loop
over the turns of a response, feeds the real driver. It checks that the loop stores the response only after the driver has ended
it, feeds nothing afterwards, and makes a legal stream.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, Final, Generic, Self, TypeAlias, TypeVar

from attrs import evolve, field, frozen

from interlock.events.sse import SseWriter
from interlock.fsm import deltas, oracle
from interlock.fsm.driver import ReadyCall, ResponseDriver
from interlock.fsm.ids import SequentialIds
from interlock.fsm.processes.background import BACKGROUND, BackgroundEffect, BackgroundTrigger
from interlock.fsm.processes.connection import CONNECTION, ConnectionEffect, ConnectionTrigger
from interlock.fsm.processes.conversation import CONVERSATION, ConversationEffect, ConversationTrigger
from interlock.fsm.processes.lane import LANE, LaneEffect, LaneTrigger
from interlock.fsm.processes.stored import STORED, StoredEffect, StoredTrigger
from interlock.fsm.processes.turns import TURNS, TurnEffect, TurnTrigger
from interlock.fsm.proof.expectation import decoded
from interlock.fsm.proof.inputs import SETTINGS
from interlock.fsm.table import State, Table

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
class _Place(ABC, Generic[T, E]):
    """A state of a table, with the facts around it that matter."""

    state: State[T, E]

    def is_possible(self, _trigger: T) -> bool:
        """Return whether a trigger of the state's rows can fire."""
        return True

    @abstractmethod
    def after(self, trigger: T) -> Iterator[Self]:
        """Yield the places to which a trigger can lead."""

    @abstractmethod
    def faults(self, trigger: T, after: Any, /) -> Iterator[str]:  # noqa: ANN401 - a place of the same class
        """Yield the faults of a trigger that leads to the place `after`."""

    def path(self, trigger: T) -> str:
        """Return the name of an edge in the messages about it."""
        return f"{self.state.name}/{trigger}"


@frozen
class _Loop(_Place[TurnTrigger, TurnEffect]):
    """The loop over the turns of a response, with the real driver."""

    fed: Deltas = field(default=(), eq=False)
    """The deltas on the path to this place."""
    triggers: tuple[TurnTrigger, ...] = field(default=(), eq=False)
    """The triggers on that path."""
    wrong_effects: tuple[str, ...] = field(default=(), eq=False)
    """The faults in the order of the last trigger's effects."""
    facts: tuple[bool, bool, int] = field(init=False)
    """Whether the response has begun, whether it has ended, and how many calls wait, up to 2."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "facts", (bool(self.frames), self.driver.ended, min(len(self.driver.ready), 2)))

    @cached_property
    def driver(self) -> ResponseDriver[bytes]:
        return ResponseDriver(SETTINGS, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 0)

    @cached_property
    def frames(self) -> Sequence[bytes]:
        """The events of the deltas, which `__attrs_post_init__` feeds to the driver."""
        return self.driver.feed(self.fed)

    def is_possible(self, trigger: TurnTrigger) -> bool:
        # In `settling`, all triggers can fire; else only `end` after the response has ended, and the others before.
        settling = TurnTrigger.SETTLE in self.state.rows
        return settling or (trigger is TurnTrigger.END) is self.driver.ended

    def after(self, trigger: TurnTrigger) -> Iterator[Self]:
        dest, effects = self.state.rows[trigger]
        places = [evolve(self, triggers=(*self.triggers, trigger), wrong_effects=())]
        for effect in effects:
            places = [after for before in places for after in before.carry_out(effect)]
        yield from (evolve(place, state=dest) for place in places)

    def carry_out(self, effect: TurnEffect) -> Iterator[Self]:
        """Yield the places after each work that an effect may do."""
        wrong_effects = self.wrong_effects
        if effect is TurnEffect.STORE and not self.driver.ended:
            wrong_effects += ("the response is stored before it has ended",)
        if effect is not TurnEffect.STORE and self.driver.ended:
            wrong_effects += (f"{effect} after the response has ended",)
        for work in _calls(self.driver.ready) if effect is TurnEffect.RUN else _WORK[effect]:
            yield evolve(self, fed=(*self.fed, *work), wrong_effects=wrong_effects)

    def faults(self, _trigger: TurnTrigger, after: Self) -> Iterator[str]:
        yield from after.wrong_effects
        if not after.state.rows and not after.driver.ended:
            yield "the loop has ended and the response has not"
        elif not after.state.rows:
            violations = oracle.check([decoded(frame) for frame in after.frames])
            yield from (f"{violation.rule}: event {violation.index}: {violation.message}" for violation in violations)

    def path(self, trigger: TurnTrigger) -> str:
        return ", ".join((*self.triggers, trigger))


def _calls(ready: Sequence[ReadyCall]) -> Iterator[Deltas]:
    """Yield the work of `RUN`: what may happen to the waiting calls."""
    started = [deltas.Run(call.id) for call in ready]
    ended = [deltas.Succeed(call.id) for call in ready]
    yield ()
    yield (*started,)
    yield (*started, *ended)
    yield (*(deltas.Fail(call.id, "It broke.") for call in ready),)
    yield (deltas.Finish(),)


@frozen
class _Owner(_Place[BackgroundTrigger, BackgroundEffect]):
    """The owner of a background response: only one write is pending at a time, and its waiters are released last."""

    writing: bool = False
    run_over: bool = False
    released: bool = False

    _ANSWERS: ClassVar = frozenset({BackgroundTrigger.WRITTEN, BackgroundTrigger.RETRY, BackgroundTrigger.LOSE})
    _EVENTS: ClassVar = frozenset({BackgroundTrigger.GROW, BackgroundTrigger.END})
    _WRITES: ClassVar = frozenset({BackgroundEffect.WRITE, BackgroundEffect.FINISH})

    def is_possible(self, trigger: BackgroundTrigger) -> bool:
        # A store answers only a pending write, and a run that has ended makes no events.
        return self.writing if trigger in self._ANSWERS else not (self.run_over and trigger in self._EVENTS)

    def after(self, trigger: BackgroundTrigger) -> Iterator[Self]:
        dest, effects = self.state.rows[trigger]
        yield evolve(
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
            yield "the response ends before its run is over"
        if after.writing is not (BackgroundTrigger.WRITTEN in after.state.rows):
            yield "a write is pending and the table does not wait for it, or the reverse"
        if after.run_over and not after.writing and after.state.rows:
            yield "the run is over and nothing finishes the response"
        if after.released is bool(after.state.rows):
            yield "waiters are released before the end, or not released at the end"


@frozen
class _StoredResponse(_Place[StoredTrigger, StoredEffect]):
    """A stored response: it has one owner and one end, and wakes its watchers."""

    leased: bool = False
    released: bool = False

    _WATCHED: ClassVar = frozenset({StoredEffect.LOG, StoredEffect.FLAG, StoredEffect.REMOVE, StoredEffect.RELEASE})

    def after(self, trigger: StoredTrigger) -> Iterator[Self]:
        dest, effects = self.state.rows[trigger]
        leased = (self.leased or StoredEffect.TAKE in effects) and StoredEffect.RELEASE not in effects
        yield evolve(self, state=dest, leased=leased, released=self.released or StoredEffect.RELEASE in effects)

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
class _Conversation(_Place[ConversationTrigger, ConversationEffect]):
    """A conversation: only the response with the lease changes its items, and every lease can end."""

    leased: bool = False

    def after(self, trigger: ConversationTrigger) -> Iterator[Self]:
        dest, effects = self.state.rows[trigger]
        freed = {ConversationEffect.FREE, ConversationEffect.REMOVE}.intersection(effects)
        yield evolve(self, state=dest, leased=(self.leased or ConversationEffect.TAKE in effects) and not freed)

    def faults(self, trigger: ConversationTrigger, after: Self) -> Iterator[str]:
        effects = self.state.rows[trigger][1]
        if self.leased and ConversationEffect.WRITE in effects and trigger is not ConversationTrigger.JOIN:
            yield "the items change during a lease"
        if self.leased and ConversationEffect.WRITE in effects and ConversationEffect.FREE not in effects:
            yield "a response is added and its lease is not freed"
        if self.leased and ConversationEffect.TAKE in effects and trigger is not ConversationTrigger.RENEW:
            yield "a second response takes the lease"
        if not self.leased and ConversationEffect.FREE in effects:
            yield "a lease is freed and nobody holds it"
        if after.leased and not {ConversationTrigger.LAPSE, ConversationTrigger.RELEASE} <= after.state.rows.keys():
            yield "the lease cannot lapse, or cannot be released"


@frozen
class _Lane(_Place[LaneTrigger, LaneEffect]):
    """A lane of a WebSocket: it runs one request at a time, and loses no request while its client is connected."""

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

    def after(self, trigger: LaneTrigger) -> Iterator[Self]:
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
            yield from evolve(lane, queued=lane.queued - 1).after(LaneTrigger.ASK)
        else:
            yield lane

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
class _Connection(_Place[ConnectionTrigger, ConnectionEffect]):
    """A WebSocket connection: it refuses requests after its lifetime, and closes only when no request is in flight."""

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

    def after(self, trigger: ConnectionTrigger) -> Iterator[Self]:
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
            yield from connection.after(ConnectionTrigger.DRAIN)
        else:
            yield connection

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


_PLACES: Final[Mapping[str, Callable[[State[Any, Any]], _Place[Any, Any]]]] = {
    TURNS.name: _Loop,
    BACKGROUND.name: _Owner,
    STORED.name: _StoredResponse,
    CONVERSATION.name: _Conversation,
    LANE.name: _Lane,
    CONNECTION.name: _Connection,
}


def walk(table: Table[Any, Any]) -> Walk:
    """Fire every edge of a table in every reachable place."""
    start = _PLACES[table.name](table.states[table.initial])
    waiting: deque[_Place[Any, Any]] = deque([start])
    seen = {*waiting}
    fired: set[tuple[str, object]] = set()
    faults: list[str] = []
    while waiting:
        place = waiting.popleft()
        for trigger in filter(place.is_possible, place.state.rows):
            fired.add((place.state.name, trigger))
            for after in place.after(trigger):
                faults += [f"{place.path(trigger)}: {fault}" for fault in place.faults(trigger, after)]
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
    unfired = [f"{edge.source}/{edge.trigger}" for edge in table.edges if (edge.source, edge.trigger) not in fired]
    return Walk(len(seen), len(table.edges), tuple(unfired), tuple(dict.fromkeys(faults)))


WALKS: Final[dict[str, Callable[[], Walk]]] = {
    table.name: partial(walk, table) for table in (TURNS, BACKGROUND, STORED, CONVERSATION, LANE, CONNECTION)
}
"""The walk through each table, by the table's name."""
