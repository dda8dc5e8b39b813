"""Explores the tables of the server's processes: fires every edge in every reachable place.

A place is a state of the table with the facts around it that matter, such as a pending write. The triggers and effects that make
a fact true or false stand beside it; the faults of a place say what must be so. The walk through `turns` feeds the
real driver. It checks that a run takes one slot before it works and gives it back at its end, is admitted once, makes a legal
stream or none, stores a response only after the driver has ended it, and feeds nothing afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from functools import cached_property, partial
from typing import Any, ClassVar, Final, Generic, Literal, Self, TypeAlias, TypeVar

from attrs import evolve, field, fields, frozen

from interlock.events.items import ITEMS, example
from interlock.events.sse import SseWriter
from interlock.fsm import deltas
from interlock.fsm.driver import ReadyCall, ResponseDriver
from interlock.fsm.ids import SequentialIds
from interlock.fsm.table import AnyTable, State
from interlock.serving.engines.upstream.connection_table import (
    UPSTREAM_CONNECTION,
    UpstreamConnectionEffect,
    UpstreamConnectionTrigger,
)
from interlock.serving.http.connection_table import CONNECTION, ConnectionEffect, ConnectionTrigger
from interlock.serving.http.lane_table import LANE, LaneEffect, LaneTrigger
from interlock.serving.http.server_table import SERVER, ServerEffect, ServerTrigger
from interlock.serving.http.steering_table import STEERING, SteeringEffect, SteeringTrigger
from interlock.serving.http.worker_table import WORKER, WorkerEffect, WorkerTrigger
from interlock.serving.requests.async_call_table import ASYNC_CALL, AsyncCallEffect, AsyncCallTrigger
from interlock.serving.responses.background_table import BACKGROUND, BackgroundEffect, BackgroundTrigger
from interlock.serving.responses.turns_table import TURNS, TurnEffect, TurnTrigger
from interlock.serving.store.conversation_table import CONVERSATION, ConversationEffect, ConversationTrigger
from interlock.serving.store.stored_table import STORED, StoredEffect, StoredTrigger
from interlock.serving.tools.container_table import CONTAINER, ContainerEffect, ContainerTrigger
from interlock.verify import oracle
from interlock.verify.expectation import decode
from interlock.verify.inputs import SETTINGS

T = TypeVar("T")
E = TypeVar("E")

Deltas: TypeAlias = tuple[deltas.Delta, ...]

_CALLS: Final[Sequence[Deltas]] = [
    (deltas.Open(kind, example(kind)), "{}", deltas.Close()) for kind, item in ITEMS.items() if "arguments" in item.text_path
]
_COMPACTION: Final[Deltas] = (deltas.Start(), deltas.Open("compaction"), deltas.Run("cmp_1"))

_WORK: Final[Mapping[TurnEffect, Sequence[Deltas]]] = {
    **dict.fromkeys((TurnEffect.TAKE, TurnEffect.ADMIT, TurnEffect.REFUSE, TurnEffect.STOP, TurnEffect.FREE), ((),)),
    TurnEffect.OPEN: [(), (deltas.Start(),), (deltas.Enqueue(),), (deltas.Enqueue(), deltas.Start())],
    TurnEffect.COMPACT: [
        (*_COMPACTION, deltas.Succeed("cmp_1", {"encrypted_content": "sealed"}), deltas.EndTurn("stop")),
        _COMPACTION,
        (*_COMPACTION, deltas.EndTurn("stop")),
        (),
    ],
    TurnEffect.PREPARE: [(), (deltas.Start(),), *((deltas.Start(), *call) for call in _CALLS), (deltas.Start(), deltas.Finish())],
    TurnEffect.GENERATE: [
        ("a", deltas.EndTurn("stop")),
        *((*call, deltas.EndTurn("stop")) for call in _CALLS),
        ("a", deltas.EndTurn("length")),
        ("a",),
    ],
    TurnEffect.FINISH: [(deltas.Finish(),), ()],
    TurnEffect.CUT: [(deltas.EndTurn("length"),), ()],
    TurnEffect.YIELD: [(deltas.EndTurn("steered"),), ()],
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


def _fact(*, on: AbstractSet[StrEnum], off: AbstractSet[StrEnum] = frozenset(), initially: bool = False) -> bool:
    """Declare a fact that some triggers and effects make true, and others false; both at once make it true."""
    value: bool = field(default=initially, metadata={"on": on, "off": off})
    return value


@frozen
class _WalkState(ABC, Generic[T, E]):
    """A state of a table, with the facts around it that matter."""

    state: State[T, E]

    def is_possible(self, _trigger: T, /) -> bool:
        """Return whether a trigger can fire here."""
        return True

    def is_needed(self, _trigger: T, /) -> bool:
        """Return whether the state must have an edge for a trigger."""
        return False

    def after(self, trigger: T) -> Iterator[Self]:
        """Yield the places to which a trigger can lead."""
        dest, effects = self.state.rows[trigger]
        happened = {trigger, *effects}
        facts = {
            each.name: not happened.isdisjoint(each.metadata["on"])
            or (getattr(self, each.name) and happened.isdisjoint(each.metadata["off"]))
            for each in fields(type(self))
            if each.metadata
        }
        yield evolve(self, state=dest, **facts)

    @abstractmethod
    def faults(self, trigger: T, after: Any, /) -> Iterator[str]:  # noqa: ANN401 - a place of the same class
        """Yield the faults of a trigger that leads to the place `after`."""

    def path(self, trigger: T) -> str:
        """Return the name of an edge in the messages about it."""
        return f"{self.state.name}/{trigger}"


@frozen
class _RunWalk(_WalkState[TurnTrigger, TurnEffect]):
    """A run of a response, with the real driver."""

    slots: int = 0
    """How many slots the run holds."""
    stage: Literal["new", "admitted", "started"] = "new"
    """Whether the request was handed to the engine, and whether its response has started."""

    fed: Deltas = field(default=(), eq=False)
    """The deltas on the path to this place."""
    triggers: tuple[TurnTrigger, ...] = field(default=(), eq=False)
    """The triggers on that path."""
    wrong_effects: tuple[str, ...] = field(default=(), eq=False)
    """The faults in the order of the last trigger's effects."""
    facts: tuple[bool, bool, int] = field(init=False)
    """Whether the response has started, whether it has ended, and how many calls wait, up to 2."""

    _BESIDE: ClassVar = frozenset({TurnEffect.TAKE, TurnEffect.FREE, TurnEffect.STOP, TurnEffect.REFUSE})
    """The effects that may come before the admission."""

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
        # Where no work can fail any more, all triggers can fire; else only `end` after the response has ended, the others before.
        return TurnTrigger.FAIL not in self.state.rows or (trigger is TurnTrigger.END) is self.driver.ended

    def after(self, trigger: TurnTrigger) -> Iterator[Self]:
        dest, effects = self.state.rows[trigger]
        places = [evolve(self, triggers=(*self.triggers, trigger), wrong_effects=())]
        for effect in effects:
            places = [after for before in places for after in before.carry_out(effect)]
        yield from (evolve(place, state=dest) for place in places)

    def carry_out(self, effect: TurnEffect) -> Iterator[Self]:
        """Yield the places after each work that an effect may do."""
        wrong_effects = (*self.wrong_effects, *self._wrong(effect))
        slots = self.slots + (effect is TurnEffect.TAKE) - (effect is TurnEffect.FREE)
        stage = self.stage if effect in self._BESIDE else "admitted" if effect is TurnEffect.ADMIT else "started"
        for work in _calls(self.driver.ready) if effect is TurnEffect.RUN else _WORK[effect]:
            yield evolve(self, fed=(*self.fed, *work), wrong_effects=wrong_effects, slots=slots, stage=stage)

    def _wrong(self, effect: TurnEffect) -> Iterator[str]:
        """Yield what is wrong with an effect here."""
        if self.slots != (effect is not TurnEffect.TAKE):
            yield f"{effect} with {self.slots} slots"
        if effect is TurnEffect.STORE and not self.driver.ended:
            yield "the response is stored before it has ended"
        if effect not in {TurnEffect.STORE, TurnEffect.FREE} and self.driver.ended:
            yield f"{effect} after the response has ended"
        if effect is TurnEffect.REFUSE and self.stage == "started":
            yield "a response is refused after it has started"
        if effect not in self._BESIDE and (self.stage == "new") is not (effect is TurnEffect.ADMIT):
            yield f"{effect} before the admission, or a second admission"

    def faults(self, _trigger: TurnTrigger, after: Self) -> Iterator[str]:
        yield from after.wrong_effects
        if not after.state.rows and after.slots:
            yield "the run has ended and holds a slot"
        if not after.state.rows and after.stage == "started" and not after.driver.ended:
            yield "the run has ended and the response has not"
        elif not after.state.rows and after.stage == "started":
            violations = oracle.check([decode(frame) for frame in after.frames])
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
class _OwnerWalk(_WalkState[BackgroundTrigger, BackgroundEffect]):
    """The owner of a background response: only one write is pending at a time."""

    _ANSWERS: ClassVar = frozenset({BackgroundTrigger.WRITTEN, BackgroundTrigger.RETRY, BackgroundTrigger.LOSE})
    _EVENTS: ClassVar = frozenset({BackgroundTrigger.GROW, BackgroundTrigger.END})
    _WRITES: ClassVar = frozenset({BackgroundEffect.WRITE, BackgroundEffect.FINISH})

    writing: bool = _fact(on=_WRITES, off=_ANSWERS)
    run_over: bool = _fact(on={BackgroundTrigger.END})

    def is_possible(self, trigger: BackgroundTrigger) -> bool:
        # A store answers only a pending write, and a run that has ended makes no events.
        return self.writing if trigger in self._ANSWERS else not (self.run_over and trigger in self._EVENTS)

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


_PROCESSES: Final = ("first", "second")
"""The processes, or the responses in a conversation, that want to own the same thing; each can stall and return late."""


@frozen
class _StoredResponseWalk(_WalkState[StoredTrigger, StoredEffect]):
    """A stored response and two processes: only the last that took the lease writes, watchers are woken, and deletions end."""

    owner: str = ""
    """The process that took the lease last, until the response has ended or is removed."""
    valid: bool = False
    """Whether its lease has not lapsed."""
    released: bool = False
    stored: Literal["nothing", "response", "log"] = "nothing"
    caller: str = field(default="", eq=False)
    """The process that fired the last trigger."""

    _OF_PROCESSES: ClassVar = frozenset(
        {StoredTrigger.ENQUEUE, StoredTrigger.APPEND, StoredTrigger.RENEW, StoredTrigger.FINISH, StoredTrigger.ADOPT}
    )
    _OF_CLIENTS: ClassVar = frozenset({StoredTrigger.CANCEL, StoredTrigger.HIDE, StoredTrigger.DELETE})
    _AT_END: ClassVar = frozenset({StoredTrigger.PUT, StoredTrigger.TRIM, StoredTrigger.EXPIRE})
    _WATCHED: ClassVar = frozenset(
        {StoredEffect.LOG, StoredEffect.FLAG, StoredEffect.ERASE, StoredEffect.REMOVE, StoredEffect.RELEASE}
    )
    _PURPOSES: ClassVar = {
        StoredTrigger.PUT: {StoredEffect.KEEP, StoredEffect.JOIN},
        StoredTrigger.ENQUEUE: {StoredEffect.KEEP, StoredEffect.TAKE},
        StoredTrigger.APPEND: {StoredEffect.LOG, StoredEffect.EXTEND},
        StoredTrigger.RENEW: {StoredEffect.EXTEND},
        StoredTrigger.FINISH: {StoredEffect.LOG, StoredEffect.KEEP, StoredEffect.JOIN, StoredEffect.RELEASE},
        StoredTrigger.ADOPT: {StoredEffect.TAKE},
        StoredTrigger.TRIM: {StoredEffect.TRIM},
        StoredTrigger.DELETE: {StoredEffect.REMOVE},
        StoredTrigger.EXPIRE: {StoredEffect.REMOVE},
    }
    """The effects of the triggers that have the same in every state, without `wake`."""

    def after(self, trigger: StoredTrigger) -> Iterator[Self]:
        for caller in _PROCESSES if trigger in self._OF_PROCESSES else ("",):
            edge = self.state.row_for(trigger, is_owner=bool(caller) and caller == self.owner)
            if edge is not None:
                dest, effects = edge
                ends = not {StoredEffect.RELEASE, StoredEffect.ERASE, StoredEffect.REMOVE}.isdisjoint(effects)
                owner = "" if ends else caller if StoredEffect.TAKE in effects else self.owner
                renewed = not {StoredEffect.TAKE, StoredEffect.EXTEND}.isdisjoint(effects)
                yield evolve(
                    self,
                    state=dest,
                    owner=owner,
                    valid=bool(owner) and (renewed or (self.valid and trigger is not StoredTrigger.LAPSE)),
                    released=self.released or StoredEffect.RELEASE in effects,
                    stored="nothing"
                    if StoredEffect.REMOVE in effects
                    else "log"
                    if StoredEffect.ERASE in effects
                    else "response"
                    if StoredEffect.KEEP in effects
                    else self.stored,
                    caller=caller,
                )

    def faults(self, trigger: StoredTrigger, after: Self) -> Iterator[str]:
        effects = self.state.rows[trigger][1]
        if self.owner != after.caller and not {StoredEffect.LOG, StoredEffect.EXTEND, StoredEffect.RELEASE}.isdisjoint(effects):
            yield "an owner writes without a lease"
        if self.valid and StoredEffect.TAKE in effects:
            yield "a second owner takes the lease"
        if self.released and StoredEffect.LOG in effects:
            yield "events are appended after the end"
        if self.owner and StoredEffect.KEEP in effects and after.owner:
            yield "the response has ended and its lease has not"
        adopted = bool(self.owner) and StoredEffect.TAKE in effects
        if StoredEffect.WAKE not in effects and (adopted or self._WATCHED.intersection(effects)):
            yield "no watcher is woken"
        if {*effects} - {StoredEffect.WAKE} != self._purpose(trigger):
            yield "the effects are not those of the trigger"
        if self.stored == "log" and after.stored == "response":
            yield "another response gets the id of one that is hidden"
        if (after.stored == "nothing") is bool(after.state.rows):
            yield "the life is over before the response is removed, or the reverse"

    def _purpose(self, trigger: StoredTrigger) -> set[StoredEffect]:
        """Return the effects that a trigger must have here, without `wake`."""
        match trigger:
            case StoredTrigger.CANCEL:
                return {StoredEffect.FLAG} if self.owner else set()
            case StoredTrigger.HIDE:
                return {StoredEffect.REMOVE if self.owner else StoredEffect.ERASE}
            case StoredTrigger.LAPSE:
                return {StoredEffect.REMOVE} if self.stored == "log" else set()
            case _:
                return self._PURPOSES[trigger]

    def is_needed(self, trigger: StoredTrigger) -> bool:
        return trigger in self._needed

    @property
    def _needed(self) -> AbstractSet[StoredTrigger]:
        if self.stored == "nothing":
            return frozenset({StoredTrigger.PUT, StoredTrigger.ENQUEUE})
        if self.stored == "log":
            return frozenset({StoredTrigger.DELETE, StoredTrigger.LAPSE})
        if not self.owner:
            return self._OF_CLIENTS | self._AT_END
        waiting = {StoredTrigger.LAPSE} if self.valid else {StoredTrigger.ADOPT, StoredTrigger.EXPIRE}
        return self._OF_CLIENTS | STORED.owned | waiting


@frozen
class _ConversationWalk(_WalkState[ConversationTrigger, ConversationEffect]):
    """A conversation and two responses in it: only the owner changes its items, after the items that it has read."""

    exists: bool = False
    owner: str = ""
    """The response that took the lease last, until that is freed."""
    valid: bool = False
    """Whether its lease has not lapsed."""
    read: str = ""
    """The response that began last, if nothing has changed the items since."""
    caller: str = field(default="", eq=False)
    """The response that fired the last trigger; empty for a client."""

    _OF_OWNER: ClassVar = frozenset({ConversationTrigger.RENEW, ConversationTrigger.JOIN, ConversationTrigger.RELEASE})
    _OF_CLIENTS: ClassVar = frozenset({ConversationTrigger.DESCRIBE, ConversationTrigger.DELETE})
    _PURPOSES: ClassVar = {
        ConversationTrigger.CREATE: {ConversationEffect.KEEP},
        ConversationTrigger.DESCRIBE: {ConversationEffect.DESCRIBE},
        ConversationTrigger.CHANGE: {ConversationEffect.WRITE},
        ConversationTrigger.HOLD: {ConversationEffect.TAKE},
        ConversationTrigger.RENEW: {ConversationEffect.TAKE},
        ConversationTrigger.JOIN: {ConversationEffect.WRITE},
        ConversationTrigger.DELETE: {ConversationEffect.REMOVE},
    }
    """The effects of each trigger, besides the end of a lease."""

    def after(self, trigger: ConversationTrigger) -> Iterator[Self]:
        for caller in _PROCESSES if trigger in self._OF_OWNER | {ConversationTrigger.HOLD} else ("",):
            edge = self.state.row_for(trigger, is_owner=bool(caller) and caller == self.owner)
            if edge is not None:
                dest, effects = edge
                freed = not {ConversationEffect.FREE, ConversationEffect.REMOVE}.isdisjoint(effects)
                taken = ConversationEffect.TAKE in effects
                owner = "" if freed else caller if taken else self.owner
                yield evolve(
                    self,
                    state=dest,
                    exists=True,
                    owner=owner,
                    valid=bool(owner) and (taken or (self.valid and trigger is not ConversationTrigger.LAPSE)),
                    read=caller
                    if trigger is ConversationTrigger.HOLD
                    else ""
                    if ConversationEffect.WRITE in effects
                    else self.read,
                    caller=caller,
                )

    def faults(self, trigger: ConversationTrigger, after: Self) -> Iterator[str]:
        effects = self.state.rows[trigger][1]
        if self.valid and ConversationEffect.WRITE in effects and after.caller != self.owner:
            yield "the items change during a lease"
        if trigger is ConversationTrigger.JOIN and after.caller != self.read:
            yield "a response is added after items that it has not read"
        if self.owner and ConversationEffect.WRITE in effects and ConversationEffect.FREE not in effects:
            yield "the items change and the lease is not freed"
        if self.valid and ConversationEffect.TAKE in effects and after.caller != self.owner:
            yield "a second response takes the lease"
        if ConversationEffect.FREE in effects and not self.owner:
            yield "a lease is freed and nobody holds it"
        if self.valid and ConversationEffect.FREE in effects and after.caller != self.owner:
            yield "a response frees the lease of another"
        if {*effects} - {ConversationEffect.FREE} != self._PURPOSES.get(trigger, set()):
            yield "the effects are not those of the trigger"
        if (trigger is ConversationTrigger.DELETE) is bool(after.state.rows):
            yield "the conversation is over before it is deleted, or the reverse"

    def is_needed(self, trigger: ConversationTrigger) -> bool:
        return trigger in self._needed

    @property
    def _needed(self) -> AbstractSet[ConversationTrigger]:
        if not self.exists:
            return frozenset({ConversationTrigger.CREATE})
        needed = self._OF_CLIENTS | (self._OF_OWNER if self.owner else frozenset[ConversationTrigger]())
        return needed | ({ConversationTrigger.LAPSE} if self.valid else {ConversationTrigger.HOLD, ConversationTrigger.CHANGE})


@frozen
class _LaneWalk(_WalkState[LaneTrigger, LaneEffect]):
    """A lane of a WebSocket: it runs one request at a time, and loses no request while its client is connected."""

    queued: int = 0
    """How many requests wait; 2 stands for more."""
    running: bool = _fact(on={LaneEffect.BEGIN}, off={LaneTrigger.END})
    """Whether a request is in progress."""
    client_gone: bool = _fact(on={LaneTrigger.LEAVE})

    def is_possible(self, trigger: LaneTrigger) -> bool:
        # A client that has disconnected sends nothing.
        match trigger:
            case LaneTrigger.END:
                return self.running
            case LaneTrigger.SUCCEED:
                return self.running and not self.client_gone
            case _:
                return not self.client_gone

    def after(self, trigger: LaneTrigger) -> Iterator[Self]:
        (lane,) = super().after(trigger)
        effects = self.state.rows[trigger][1]
        lane = evolve(lane, queued=0 if LaneEffect.CLEAR in effects else min(self.queued + (LaneEffect.QUEUE in effects), 2))
        if LaneEffect.ADVANCE in effects and lane.queued:
            yield from evolve(lane, queued=lane.queued - 1).after(LaneTrigger.ASK)
        else:
            yield lane

    def faults(self, trigger: LaneTrigger, after: Self) -> Iterator[str]:
        effects = self.state.rows[trigger][1]
        if self.running and LaneEffect.BEGIN in effects and trigger is not LaneTrigger.SUCCEED:
            yield "two requests run at once"
        if trigger is LaneTrigger.SUCCEED and (LaneEffect.BEGIN not in effects or after.queued != self.queued):
            yield "a successor does not start before the queue"
        if trigger is LaneTrigger.ASK and not {LaneEffect.BEGIN, LaneEffect.QUEUE}.intersection(effects):
            yield "a request is lost"
        if after.queued and not after.running:
            yield "a queued request never starts"
        cancels = trigger in {LaneTrigger.CANCEL, LaneTrigger.LEAVE}
        if (cancels and self.running) is not (LaneEffect.INTERRUPT in effects):
            yield "a cancelled request is not interrupted, or the reverse"
        if not after.state.rows and (after.running or after.queued or not after.client_gone):
            yield "the lane closes before its last request ends"


@frozen
class _SteeringWalk(_WalkState[SteeringTrigger, SteeringEffect]):
    """The steering of a response: accepted input becomes part of one successor or goes back to a client that is connected."""

    waiting: int = 0
    """How many accepted inputs wait; 2 stands for more."""
    response: str = "running"
    """`running`, or how it has ended: `completed`, `waiting` for the client, or `failed`."""
    successor: Literal["none", "starting", "started"] = "none"
    client_gone: bool = False

    _ENDS: ClassVar = {SteeringTrigger.COMPLETE: "completed", SteeringTrigger.REQUIRE: "waiting", SteeringTrigger.FAIL: "failed"}
    _STARTS: ClassVar = frozenset({SteeringEffect.SUCCEED, SteeringEffect.PREPEND})

    def is_possible(self, trigger: SteeringTrigger) -> bool:
        if self.client_gone:
            return False
        match trigger:
            case SteeringTrigger.COMPLETE | SteeringTrigger.REQUIRE | SteeringTrigger.FAIL:
                return self.response == "running"
            case SteeringTrigger.CONTINUE | SteeringTrigger.DIVERGE:
                return self.response == "waiting" and self.successor == "none"
            case SteeringTrigger.CREATE | SteeringTrigger.REFUSE:
                return self.successor == "starting"
            case _:
                return True

    def after(self, trigger: SteeringTrigger) -> Iterator[Self]:
        dest, effects = self.state.rows[trigger]
        settled = SteeringEffect.RETURN in effects or trigger is SteeringTrigger.CREATE
        starts = not self._STARTS.isdisjoint(effects)
        yield evolve(
            self,
            state=dest,
            waiting=0 if settled else min(self.waiting + (SteeringEffect.ACCEPT in effects), 2),
            response=self._ENDS.get(trigger, self.response),
            successor="starting" if starts else "started" if trigger is SteeringTrigger.CREATE else self.successor,
            client_gone=trigger is SteeringTrigger.LEAVE,
        )

    def faults(self, trigger: SteeringTrigger, after: Self) -> Iterator[str]:
        effects = {*self.state.rows[trigger][1]}
        if (trigger is SteeringTrigger.STEER) is not (SteeringEffect.ACCEPT in effects):
            yield "input is not accepted, or something else is"
        if SteeringEffect.ACCEPT in effects and self.response != "running":
            yield "a response that has ended accepts input"
        if (SteeringEffect.SUCCEED in effects) is not bool(self.waiting and trigger is SteeringTrigger.COMPLETE):
            yield "a completed response with input has no successor, or another one has"
        if (SteeringEffect.PREPEND in effects) is not (trigger is SteeringTrigger.CONTINUE):
            yield "a request that continues the response is without the input, or another one has it"
        if (SteeringEffect.ANNOUNCE in effects) is not bool(self.waiting and trigger is SteeringTrigger.REQUIRE):
            yield "input that waits for the client is not announced, or other input is"
        returns = trigger in {SteeringTrigger.FAIL, SteeringTrigger.DIVERGE, SteeringTrigger.REFUSE} and bool(self.waiting)
        if returns is not (SteeringEffect.RETURN in effects):
            yield "input does not go back to the client when nothing takes it, or does before"
        if bool(after.state.rows) is (after.client_gone or (after.response != "running" and not after.waiting)):
            yield "the steering is over and input waits, or the reverse"

    def is_needed(self, trigger: SteeringTrigger) -> bool:
        return self.is_possible(trigger) and (self.response == "running" or trigger is not SteeringTrigger.STEER)


@frozen
class _ConnectionWalk(_WalkState[ConnectionTrigger, ConnectionEffect]):
    """A WebSocket connection: it refuses requests after its lifetime, and closes only when no request is in flight."""

    in_flight: bool = _fact(on={ConnectionEffect.DISPATCH}, off={ConnectionTrigger.DRAIN})
    expired: bool = _fact(on={ConnectionTrigger.EXPIRE})
    refused: bool = _fact(on={ConnectionEffect.REFUSE})
    shutting_down: bool = _fact(on={ConnectionTrigger.SHUT_DOWN})
    client_gone: bool = _fact(on={ConnectionTrigger.LEAVE})

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
        (connection,) = super().after(trigger)
        effects = self.state.rows[trigger][1]
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
        if trigger is ConnectionTrigger.STEER:
            refuses = self.expired and not self.shutting_down
            if effects[0] is not (ConnectionEffect.REFUSE_STEER if refuses else ConnectionEffect.STEER):
                yield "an expired connection steers a response, or another one does not"
        if (trigger is ConnectionTrigger.LEAVE) is not (ConnectionEffect.LEAVE_LANES in effects):
            yield "the lanes are left although the client has not gone, or the reverse"
        if not after.state.rows and after.in_flight:
            yield "the connection closes while a request is in flight"
        if after.state.rows and not after.in_flight and (after.client_gone or after.shutting_down or after.refused):
            yield "nothing is in flight and the connection stays open"


@frozen
class _ServerWalk(_WalkState[ServerTrigger, ServerEffect]):
    """A server: it drains before it ends, and a second signal ends it at once."""

    ready: bool = _fact(on={ServerTrigger.READY})
    stopped: bool = _fact(on={ServerTrigger.STOP})
    drains: bool = _fact(on={ServerEffect.DRAIN})
    ends: bool = _fact(on={ServerEffect.END})
    killed: bool = _fact(on={ServerEffect.KILL})

    def is_possible(self, trigger: ServerTrigger) -> bool:
        match trigger:
            case ServerTrigger.READY | ServerTrigger.FAIL:
                return not self.ready and not self.ends
            case ServerTrigger.IDLE | ServerTrigger.EXPIRE:
                return self.drains and not self.ends
            case ServerTrigger.CLOSE:
                return self.ends
            case _:
                return True

    is_needed = is_possible

    def faults(self, trigger: ServerTrigger, after: Self) -> Iterator[str]:
        effects = self.state.rows[trigger][1]
        if (trigger is ServerTrigger.READY and not self.stopped) is not (ServerEffect.ANNOUNCE in effects):
            yield "the server is ready and does not say so, or the reverse"
        if (trigger is ServerTrigger.FAIL) is not (ServerEffect.GIVE_UP in effects):
            yield "the start has failed and the server does not give up, or the reverse"
        if (after.stopped and not self.stopped) is not (ServerEffect.DRAIN in effects):
            yield "the first signal does not drain the server, or something else does"
        if (trigger is ServerTrigger.STOP and self.stopped) is not (ServerEffect.KILL in effects):
            yield "the second signal does not kill the server, or something else does"
        if (trigger in {ServerTrigger.IDLE, ServerTrigger.EXPIRE}) is not (ServerEffect.END in effects):
            yield "the responses do not end when the server has drained, or end before"
        gone = trigger is ServerTrigger.CLOSE or not {ServerEffect.GIVE_UP, ServerEffect.KILL}.isdisjoint(effects)
        if gone is bool(after.state.rows):
            yield "the server is over while a connection is open, or the reverse"


@frozen
class _WorkerWalk(_WalkState[WorkerTrigger, WorkerEffect]):
    """A worker: at most one process at a time, which takes no slots of an earlier one, and none after the server has stopped."""

    running: bool = _fact(on={WorkerEffect.START}, off={WorkerTrigger.EXIT})
    """Whether a process runs."""
    ready: bool = _fact(on={WorkerTrigger.READY}, off={WorkerTrigger.EXIT})
    reclaimed: bool = _fact(on={WorkerEffect.RECLAIM}, off={WorkerTrigger.EXIT}, initially=True)
    """Whether no process that has exited still has slots."""
    delayed: bool = _fact(on={WorkerEffect.BACK_OFF}, off={WorkerEffect.START}, initially=True)
    """Whether the timer of the next start is set."""
    stopped: bool = _fact(on={WorkerTrigger.STOP})

    def is_possible(self, trigger: WorkerTrigger) -> bool:
        match trigger:
            case WorkerTrigger.READY:
                return self.running and not self.ready
            case WorkerTrigger.EXIT:
                return self.running
            case WorkerTrigger.DUE:
                return self.delayed
            case _:
                return not self.stopped

    is_needed = is_possible

    def faults(self, trigger: WorkerTrigger, after: Self) -> Iterator[str]:
        effects = self.state.rows[trigger][1]
        if WorkerEffect.START in effects and (self.running or not self.reclaimed or self.stopped):
            yield "a process starts beside another, with the slots of an earlier one, or after the server has stopped"
        if (trigger is WorkerTrigger.EXIT) is not (WorkerEffect.RECLAIM in effects):
            yield "the slots of a process are not given back when it exits, or are while it runs"
        if (trigger is WorkerTrigger.EXIT and not self.stopped) is not (WorkerEffect.BACK_OFF in effects):
            yield "a process that has exited has no successor, or one that runs has"
        if (trigger is WorkerTrigger.STOP and self.running) is not (WorkerEffect.TERMINATE in effects):
            yield "a process gets no request to exit when the server stops, or is before"
        if (after.stopped and not after.running) is bool(after.state.rows):
            yield "the worker is over before its process, or the reverse"


@frozen
class _ContainerWalk(_WalkState[ContainerTrigger, ContainerEffect]):
    """A container: code runs only in a process that has started, one call at a time, and no process outlives its container."""

    started: bool = _fact(on={ContainerEffect.START}, off={ContainerEffect.STOP})
    """Whether the container has a process."""
    busy: bool = _fact(on={ContainerEffect.FEED}, off={ContainerTrigger.END, ContainerTrigger.BREAK})
    """Whether code runs in it."""

    def is_possible(self, trigger: ContainerTrigger) -> bool:
        match trigger:
            case ContainerTrigger.END | ContainerTrigger.BREAK:
                return self.busy
            case ContainerTrigger.DROP:
                return self.started and not self.busy
            case _:
                return not self.busy

    is_needed = is_possible

    def faults(self, trigger: ContainerTrigger, after: Self) -> Iterator[str]:
        effects = self.state.rows[trigger][1]
        if ContainerEffect.START in effects and self.started:
            yield "a second process starts"
        if (trigger is ContainerTrigger.RUN) is not (ContainerEffect.FEED in effects):
            yield "a call does not run its code, or code runs without a call"
        if ContainerEffect.FEED in effects and not after.started:
            yield "code runs without a process"
        if (trigger in {ContainerTrigger.BREAK, ContainerTrigger.DROP}) is not (ContainerEffect.STOP in effects):
            yield "a process goes on after its container, or ends before"
        if after.started is not bool(after.state.rows):
            yield "the container is over before its process, or the reverse"


@frozen
class _AsyncCallWalk(_WalkState[AsyncCallTrigger, AsyncCallEffect]):
    """A call of an async tool: the model reads one output next to it, and every later output after the repeated call."""

    passed: bool = _fact(on={AsyncCallTrigger.CONTINUE})
    """Whether an item separates the call from what comes next."""
    outputs: int = 0
    """How many outputs the model reads next to the call."""
    over: bool = _fact(on={AsyncCallTrigger.END})

    def is_needed(self, _trigger: AsyncCallTrigger) -> bool:
        return True

    def after(self, trigger: AsyncCallTrigger) -> Iterator[Self]:
        (call,) = super().after(trigger)
        answers = {AsyncCallEffect.KEEP, AsyncCallEffect.WAIT}.intersection(self.state.rows[trigger][1])
        yield evolve(call, outputs=min(self.outputs + len(answers), 2))

    def faults(self, trigger: AsyncCallTrigger, after: Self) -> Iterator[str]:
        effects = self.state.rows[trigger][1]
        answers = trigger is AsyncCallTrigger.ANSWER
        if answers is {AsyncCallEffect.KEEP, AsyncCallEffect.REPEAT}.isdisjoint(effects):
            yield "the model does not read an output, or a call is repeated without one"
        if AsyncCallEffect.KEEP in effects and self.passed:
            yield "an output is kept although an item separates it from its call"
        if after.outputs > 1 or ((after.passed or after.over) and not after.outputs):
            yield "the model does not read exactly one output next to the call"
        if after.over is bool(after.state.rows):
            yield "the call is over before the conversation, or the reverse"


@frozen
class _UpstreamConnectionWalk(_WalkState[UpstreamConnectionTrigger, UpstreamConnectionEffect]):
    """A connection to an upstream: it answers one request at a time, and is offered to others only between two of them."""

    _ENDS: ClassVar = frozenset({UpstreamConnectionTrigger.END, UpstreamConnectionTrigger.CLOSE})

    answering: bool = _fact(on={UpstreamConnectionTrigger.SEND}, off=_ENDS)
    """Whether somebody waits for an answer, or reads it."""
    has_head: bool = _fact(on={UpstreamConnectionTrigger.HEAD}, off=_ENDS)
    """Whether the head of that answer has arrived."""
    offered: bool = _fact(on={UpstreamConnectionEffect.KEEP}, off={UpstreamConnectionEffect.TAKE})
    """Whether the next request may take the connection."""

    def is_possible(self, trigger: UpstreamConnectionTrigger) -> bool:
        match trigger:
            case UpstreamConnectionTrigger.SEND:
                return not self.answering
            case UpstreamConnectionTrigger.HEAD:
                return self.answering and not self.has_head
            case UpstreamConnectionTrigger.END:
                return self.has_head
            case _:
                return True

    is_needed = is_possible

    def faults(self, trigger: UpstreamConnectionTrigger, after: Self) -> Iterator[str]:
        effects = self.state.rows[trigger][1]
        if (self.answering and trigger is not UpstreamConnectionTrigger.SEND) is not (UpstreamConnectionEffect.TELL in effects):
            yield "a task waits for an answer that has changed, or nothing has"
        if after.offered is not (trigger is UpstreamConnectionTrigger.END):
            yield "a connection is not offered after an answer, or is during one or after its end"
        if self.offered is not (UpstreamConnectionEffect.TAKE in effects):
            yield "a connection is taken that was not offered, or the reverse"
        closes = trigger is UpstreamConnectionTrigger.CLOSE
        if closes is not (UpstreamConnectionEffect.ABORT in effects) or closes is bool(after.state.rows):
            yield "a closed connection has an open socket, or the reverse"


_AnyPlace: TypeAlias = _WalkState[Any, Any]
_WALKED: Final[Sequence[tuple[AnyTable, Callable[..., _AnyPlace]]]] = (
    (TURNS, _RunWalk),
    (BACKGROUND, _OwnerWalk),
    (STORED, _StoredResponseWalk),
    (CONVERSATION, _ConversationWalk),
    (LANE, _LaneWalk),
    (STEERING, _SteeringWalk),
    (CONNECTION, _ConnectionWalk),
    (SERVER, _ServerWalk),
    (WORKER, _WorkerWalk),
    (CONTAINER, _ContainerWalk),
    (ASYNC_CALL, _AsyncCallWalk),
    (UPSTREAM_CONNECTION, _UpstreamConnectionWalk),
)
_PLACES: Final = {table.name: place for table, place in _WALKED}


def walk(table: AnyTable) -> Walk:
    """Fire every edge of a table in every reachable place."""
    first: StrEnum = table.triggers[0]
    triggers = {*type(first)}
    start = _PLACES[table.name](table.states[table.initial])
    waiting: deque[_AnyPlace] = deque([start])
    seen = {*waiting}
    fired: set[tuple[str, object]] = set()
    faults: list[str] = []
    while waiting:
        place = waiting.popleft()
        if place.state.rows:
            needed = filter(place.is_needed, sorted(triggers - place.state.rows.keys()))
            faults += [f"{place.state.name}: no edge for {each}" for each in needed]
        for trigger in filter(place.is_possible, place.state.rows):
            for after in place.after(trigger):
                fired.add((place.state.name, trigger))
                faults += [f"{place.path(trigger)}: {fault}" for fault in place.faults(trigger, after)]
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
    unfired = [f"{edge.source}/{edge.trigger}" for edge in table.edges if (edge.source, edge.trigger) not in fired]
    return Walk(len(seen), len(table.edges), tuple(unfired), tuple(dict.fromkeys(faults)))


WALKS: Final[dict[str, Callable[[], Walk]]] = {table.name: partial(walk, table) for table, _ in _WALKED}
"""The walk through each table, by the table's name."""
