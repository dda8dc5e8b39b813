"""The models of the server's processes: the behaviour of each table, described by what has happened so far and not by states.

A model says in which past each trigger is possible, which effects it has then, and whether the process is over after it.
`explore` fires every edge of a table in every state and past that it can reach, and compares.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

from attrs import evolve, field, fields, frozen

from interlock.events.items import ITEMS, example
from interlock.events.sse import SseWriter
from interlock.fsm import deltas
from interlock.fsm.driver import ReadyCall, ResponseDriver, SequentialIds
from interlock.fsm.table import Table
from interlock.serving.engines.upstream.connection_table import (
    UPSTREAM_CONNECTION,
    UpstreamConnectionEffect,
    UpstreamConnectionTrigger,
)
from interlock.serving.http.tables import (
    CONNECTION,
    LANE,
    SERVER,
    STEERING,
    ConnectionEffect,
    ConnectionTrigger,
    LaneEffect,
    LaneTrigger,
    ServerEffect,
    ServerTrigger,
    SteeringEffect,
    SteeringTrigger,
)
from interlock.serving.requests.input_items import ASYNC_CALL, AsyncCallEffect, AsyncCallTrigger
from interlock.serving.responses.background_response import BACKGROUND, BackgroundEffect, BackgroundTrigger
from interlock.serving.responses.turns_table import TURNS, TurnEffect, TurnTrigger
from interlock.serving.store.tables import (
    CONVERSATION,
    STORED,
    ConversationEffect,
    ConversationTrigger,
    StoredEffect,
    StoredTrigger,
)
from interlock.serving.tools.code_interpreter import CONTAINER, ContainerEffect, ContainerTrigger
from interlock.verify import oracle
from interlock.verify.expectation import decode
from interlock.verify.proof import SETTINGS, DeltaPath

T = TypeVar("T", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)
P = TypeVar("P", bound="Past")


def fact(*, on: AbstractSet[StrEnum], off: AbstractSet[StrEnum] = frozenset()) -> bool:
    """Declare a fact that some triggers and effects make true, and others false; both at once make it true."""
    value: bool = field(default=False, metadata={"on": on, "off": off})
    return value


@frozen
class Past:
    """What has happened to a process and still matters; a subclass has a field for each fact."""

    def after(self, trigger: Any, effects: Sequence[Any]) -> Iterator[Self]:  # noqa: ANN401 - of any table
        """Yield what the past can be after a trigger and its effects."""
        happened = [trigger, *effects]
        facts = [each for each in fields(type(self)) if each.metadata]
        yield evolve(
            self,
            **{
                each.name: _is_among(happened, each.metadata["on"])
                or (getattr(self, each.name) and not _is_among(happened, each.metadata["off"]))
                for each in facts
            },
        )

    def faults(self) -> Iterable[str]:
        """Return what is wrong with a process that is over."""
        return ()

    def excludes(self, _trigger: Any, /) -> bool:  # noqa: ANN401 - of any table
        """Return whether a state that has this past must have no edge for a trigger that is not possible."""
        return False


def _is_among(happened: Iterable[StrEnum], members: Iterable[StrEnum]) -> bool:
    """Return whether one of the members happened; a trigger and an effect of the same name are equal, but not identical."""
    return any(one is member for one in happened for member in members)


Conditions: TypeAlias = Mapping[T, Callable[[P], bool]]
"""For each trigger, a condition on the past."""


def at(*triggers: T) -> Mapping[T, Callable[[object], bool]]:
    """Return conditions that every past meets."""
    return dict.fromkeys(triggers, lambda _past: True)


@frozen
class Model(Generic[T, E, P]):
    """The behaviour of a process.

    Args:
        table: The table that the model is about.
        start: The past of a new process.
        possible: When each trigger can fire. The table must have an edge for it then, and no others.
        effects: When each trigger has an effect, by effect. A trigger with several has them in the order of this mapping.
        over: When the process is over after a trigger.
        owned: The triggers that only the owner of a lease fires, in a process that several others share.
    """

    table: Table[T, E]
    start: P
    possible: Conditions[T, P]
    effects: Mapping[E, Conditions[T, P]]
    over: Conditions[T, P]
    owned: AbstractSet[T] = frozenset()


AnyModel: TypeAlias = Model[Any, Any, Any]


def _holds(conditions: Conditions[T, P], trigger: T, past: P) -> bool:
    return trigger in conditions and conditions[trigger](past)


@frozen
class Exploration:
    """The result of comparing a table with its model."""

    states: int
    """How many pairs of a state and a past were reached."""
    edges: int
    """How many edges the table has."""
    unfired: tuple[str, ...]
    """The edges that never fired, as `state/trigger`."""
    faults: tuple[str, ...]
    """The differences, each after its edge."""

    @property
    def holds(self) -> bool:
        """Whether the table does what the model says, and every edge fired."""
        return not self.unfired and not self.faults


def explore(model: Model[T, E, P], table: Table[T, E] | None = None) -> Exploration:
    """Fire every edge in every reachable state and past, and compare a table, by default that of the model, with the model."""
    table = model.table if table is None else table
    start = (table.states[table.initial], model.start)
    waiting = deque([start])
    seen = {start}
    fired: set[tuple[str, T]] = set()
    faults: dict[str, None] = {}
    while waiting:
        state, past = waiting.popleft()
        possible = [trigger for trigger, condition in model.possible.items() if condition(past)]
        surplus = [trigger for trigger in state.rows if trigger not in possible and past.excludes(trigger)]
        faults.update((f"{state.name}/{trigger}: an edge that is not possible", None) for trigger in surplus)
        for trigger in possible:
            row = state.row_for(trigger, is_owner=trigger in model.owned)
            if row is None:
                faults[f"{state.name}: no edge for {trigger}"] = None
                continue
            dest, effects = row
            edge = f"{state.name}/{trigger}"
            fired.add((state.name, trigger))
            if trigger in model.owned and state.row_for(trigger, is_owner=False) is not None:
                faults[f"{edge}: fires for a process that is not the owner"] = None
            expected = [effect for effect, conditions in model.effects.items() if _holds(conditions, trigger, past)]
            if [*effects] != expected:
                faults[f"{edge}: {_list(effects)} instead of {_list(expected)}"] = None
            ends = _holds(model.over, trigger, past)
            if ends is bool(dest.rows):
                faults[f"{edge}: the process goes on instead of ending" if ends else f"{edge}: the process ends too soon"] = None
            for place in ((dest, after) for after in past.after(trigger, expected)):
                if place not in seen:
                    seen.add(place)
                    faults.update((f"{edge}: {fault}", None) for fault in (place[1].faults() if ends else ()))
                    waiting.extend([place] if dest.rows and not ends else [])
    unfired = [f"{edge.source}/{edge.trigger}" for edge in table.edges if (edge.source, edge.trigger) not in fired]
    return Exploration(len(seen), len(table.edges), tuple(unfired), tuple(faults))


def _list(effects: Collection[StrEnum]) -> str:
    return f"[{', '.join(effects)}]"


# The models.

_CALLS: Final[Sequence[DeltaPath]] = [
    (deltas.Open(kind, example(kind)), "{}", deltas.Close()) for kind, item in ITEMS.items() if "arguments" in item.text_path
]
_COMPACTION: Final[DeltaPath] = (deltas.Start(), deltas.Open("compaction"), deltas.Run("cmp_1"))

_WORK: Final[Mapping[TurnEffect, Sequence[DeltaPath]]] = {
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
}
"""The deltas that each effect may feed, including those of interrupted work; those of `RUN` depend on the waiting calls."""


@frozen
class _Run(Past):
    """A run, with the real driver of its response."""

    has_begun: bool = fact(on={TurnTrigger.BEGIN})
    interrupted: bool = fact(on={TurnTrigger.INTERRUPT})
    started: bool = fact(on={TurnEffect.OPEN, TurnEffect.COMPACT, TurnEffect.PREPARE})
    """Whether the response has started."""
    stored: bool = fact(on={TurnEffect.STORE})
    settled: bool = fact(on={TurnTrigger.SETTLE})
    last: TurnEffect | None = None
    """The last effect."""
    fed: DeltaPath = field(default=(), eq=False)
    """The deltas that were fed to the driver."""
    driver_facts: tuple[bool, bool, int] = field(init=False)
    """Whether the driver has emitted events, whether it has ended, and how many calls wait, up to 2."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "driver_facts", (bool(self.frames), self.driver.ended, min(len(self.driver.ready), 2)))

    @cached_property
    def driver(self) -> ResponseDriver[bytes]:
        return ResponseDriver(SETTINGS, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 0)

    @cached_property
    def frames(self) -> Sequence[bytes]:
        """The events of the deltas, which `__attrs_post_init__` feeds to the driver."""
        return self.driver.feed(self.fed)

    @property
    def works(self) -> bool:
        """Whether something is going on that can fail."""
        return self.has_begun and self.last is not TurnEffect.REFUSE and not self.stored and not self.driver.ended

    def after(self, trigger: TurnTrigger, effects: Sequence[TurnEffect]) -> Iterator[Self]:
        pasts = [*super().after(trigger, effects)]
        for effect in effects:
            pasts = [evolve(past, last=effect, fed=(*past.fed, *work)) for past in pasts for work in past.work(effect)]
        yield from pasts

    def excludes(self, trigger: TurnTrigger, /) -> bool:
        return trigger is not TurnTrigger.END and not self.driver.ended

    def work(self, effect: TurnEffect) -> Iterator[DeltaPath]:
        """Yield each work that an effect may do."""
        yield from _work_of_tools(self.driver.ready) if effect is TurnEffect.RUN else _WORK.get(effect, ((),))

    def faults(self) -> Iterator[str]:
        if self.started:
            findings = oracle.check([decode(frame) for frame in self.frames])
            yield from (f"{finding.rule}: event {finding.event}: {finding.message}" for finding in findings)
        elif self.frames:
            yield "a refused request has a response"


def _work_of_tools(ready: Sequence[ReadyCall]) -> Iterator[DeltaPath]:
    """Yield what may happen to the waiting calls."""
    started = [deltas.Run(call.id) for call in ready]
    ended = [deltas.Succeed(call.id) for call in ready]
    yield ()
    yield (*started,)
    yield (*started, *ended)
    yield (*(deltas.Fail(call.id, "It broke.") for call in ready),)
    yield (deltas.Finish(),)


def _after(*effects: TurnEffect) -> Callable[[_Run], bool]:
    """Return the condition that one of the effects came last, and the response has not ended."""
    return lambda run: run.last in effects and not run.driver.ended


_TURNS: Final = Model(
    TURNS,
    _Run(),
    possible={
        TurnTrigger.BEGIN: lambda run: not run.has_begun,
        TurnTrigger.OPEN: _after(TurnEffect.ADMIT),
        TurnTrigger.COMPACT: _after(TurnEffect.ADMIT, TurnEffect.OPEN),
        TurnTrigger.PREPARE: _after(TurnEffect.ADMIT, TurnEffect.OPEN, TurnEffect.COMPACT),
        TurnTrigger.CALL: _after(TurnEffect.PREPARE, TurnEffect.GENERATE),
        TurnTrigger.GO_ON: _after(TurnEffect.PREPARE, TurnEffect.RUN),
        TurnTrigger.ANSWER: _after(TurnEffect.COMPACT, TurnEffect.GENERATE, TurnEffect.RUN),
        TurnTrigger.EXHAUST: _after(TurnEffect.RUN),
        TurnTrigger.STEER: _after(TurnEffect.GENERATE, TurnEffect.RUN),
        TurnTrigger.END: lambda run: run.driver.ended and not run.stored,
        TurnTrigger.INTERRUPT: lambda run: not run.interrupted and (run.works or not run.has_begun),
        TurnTrigger.FAIL: lambda run: run.works,
        TurnTrigger.SETTLE: lambda run: run.stored and not run.settled,
        TurnTrigger.LEAVE: lambda run: run.works or run.stored or run.last is TurnEffect.REFUSE,
    },
    effects={
        TurnEffect.TAKE: at(TurnTrigger.BEGIN),
        TurnEffect.ADMIT: {TurnTrigger.BEGIN: lambda run: not run.interrupted},
        TurnEffect.REFUSE: {TurnTrigger.FAIL: lambda run: not run.started},
        TurnEffect.OPEN: at(TurnTrigger.OPEN),
        TurnEffect.COMPACT: at(TurnTrigger.COMPACT),
        TurnEffect.PREPARE: at(TurnTrigger.PREPARE),
        TurnEffect.GENERATE: at(TurnTrigger.GO_ON),
        TurnEffect.RUN: at(TurnTrigger.CALL),
        TurnEffect.FINISH: at(TurnTrigger.ANSWER),
        TurnEffect.CUT: at(TurnTrigger.EXHAUST),
        TurnEffect.YIELD: at(TurnTrigger.STEER),
        TurnEffect.BREAK_OFF: dict.fromkeys((TurnTrigger.FAIL, TurnTrigger.LEAVE), lambda run: run.works and run.started),
        TurnEffect.STORE: {**at(TurnTrigger.END), TurnTrigger.FAIL: lambda run: run.started},
        TurnEffect.STOP: {TurnTrigger.INTERRUPT: lambda run: run.has_begun},
        TurnEffect.FREE: {**at(TurnTrigger.SETTLE), TurnTrigger.LEAVE: lambda run: not run.settled},
    },
    over=at(TurnTrigger.LEAVE),
)
"""A run takes one slot and gives it back, is admitted once, and makes a legal stream, which is stored once, or none."""


@frozen
class _Owner(Past):
    writing: bool = fact(
        on={BackgroundEffect.WRITE, BackgroundEffect.FINISH},
        off={BackgroundTrigger.WRITTEN, BackgroundTrigger.RETRY, BackgroundTrigger.LOSE},
    )
    """Whether a write is pending."""
    has_events: bool = fact(on={BackgroundTrigger.GROW, BackgroundTrigger.RETRY}, off={BackgroundEffect.WRITE})
    """Whether events wait for a write that is not pending."""
    run_over: bool = fact(on={BackgroundTrigger.END})
    finishing: bool = fact(on={BackgroundEffect.FINISH})
    """Whether the last write has begun."""
    lost: bool = fact(on={BackgroundTrigger.LOSE})


_BACKGROUND: Final = Model(
    BACKGROUND,
    _Owner(),
    possible={
        BackgroundTrigger.GROW: lambda owner: not owner.run_over,
        BackgroundTrigger.DUE: lambda owner: not (owner.writing or owner.run_over or owner.lost),
        BackgroundTrigger.WRITTEN: lambda owner: owner.writing,
        BackgroundTrigger.RETRY: lambda owner: owner.writing,
        BackgroundTrigger.CANCEL: lambda owner: not (owner.run_over or owner.lost),
        BackgroundTrigger.LOSE: lambda owner: owner.writing,
        BackgroundTrigger.END: lambda owner: not owner.run_over,
    },
    effects={
        BackgroundEffect.ARM: {
            BackgroundTrigger.GROW: lambda owner: not (owner.writing or owner.has_events or owner.lost),
            BackgroundTrigger.WRITTEN: lambda owner: owner.has_events and not owner.run_over,
            BackgroundTrigger.RETRY: lambda owner: not owner.run_over,
        },
        BackgroundEffect.WRITE: at(BackgroundTrigger.DUE),
        BackgroundEffect.FINISH: {
            BackgroundTrigger.END: lambda owner: not (owner.writing or owner.lost),
            BackgroundTrigger.WRITTEN: lambda owner: owner.run_over and not owner.finishing,
            BackgroundTrigger.RETRY: lambda owner: owner.run_over,
        },
        BackgroundEffect.INTERRUPT: at(BackgroundTrigger.CANCEL),
        BackgroundEffect.STOP: {BackgroundTrigger.LOSE: lambda owner: not owner.run_over},
    },
    over={
        BackgroundTrigger.WRITTEN: lambda owner: owner.finishing,
        BackgroundTrigger.LOSE: lambda owner: owner.run_over,
        BackgroundTrigger.END: lambda owner: owner.lost,
    },
)
"""The owner of a background response: one write is pending at a time, and the last one comes after the run is over."""


@frozen
class _StoredResponse(Past):
    is_stored: bool = fact(on={StoredEffect.KEEP}, off={StoredEffect.ERASE})
    is_hidden: bool = fact(on={StoredEffect.ERASE})
    has_owner: bool = fact(on={StoredEffect.TAKE}, off={StoredEffect.RELEASE})
    """Whether a process has taken the lease since, even if it has lapsed."""
    is_leased: bool = fact(on={StoredEffect.TAKE, StoredEffect.EXTEND}, off={StoredTrigger.LAPSE, StoredEffect.RELEASE})
    """Whether that lease has not lapsed."""


def _has_owner(response: _StoredResponse) -> bool:
    return response.has_owner


_REMOVED: Final[Conditions[StoredTrigger, _StoredResponse]] = {
    StoredTrigger.LAPSE: lambda response: response.is_hidden,
    StoredTrigger.HIDE: _has_owner,
    **at(StoredTrigger.DELETE, StoredTrigger.EXPIRE),
}

_STORED: Final = Model(
    STORED,
    _StoredResponse(),
    owned={StoredTrigger.APPEND, StoredTrigger.RENEW, StoredTrigger.FINISH},
    possible={
        StoredTrigger.PUT: lambda response: not response.has_owner and not response.is_hidden,
        StoredTrigger.ENQUEUE: lambda response: not response.is_stored and not response.is_hidden,
        **dict.fromkeys((StoredTrigger.APPEND, StoredTrigger.RENEW, StoredTrigger.FINISH), _has_owner),
        StoredTrigger.CANCEL: lambda response: response.is_stored,
        StoredTrigger.LAPSE: lambda response: response.is_leased or response.is_hidden,
        StoredTrigger.ADOPT: lambda response: response.has_owner and not response.is_leased,
        StoredTrigger.TRIM: lambda response: response.is_stored and not response.has_owner,
        StoredTrigger.HIDE: lambda response: response.is_stored,
        StoredTrigger.DELETE: lambda response: response.is_stored or response.is_hidden,
        StoredTrigger.EXPIRE: lambda response: response.is_stored and not response.is_leased,
    },
    effects={
        StoredEffect.LOG: at(StoredTrigger.APPEND, StoredTrigger.FINISH),
        StoredEffect.EXTEND: at(StoredTrigger.APPEND, StoredTrigger.RENEW),
        StoredEffect.KEEP: at(StoredTrigger.PUT, StoredTrigger.ENQUEUE, StoredTrigger.FINISH),
        StoredEffect.TAKE: at(StoredTrigger.ENQUEUE, StoredTrigger.ADOPT),
        StoredEffect.FLAG: {StoredTrigger.CANCEL: _has_owner},
        StoredEffect.JOIN: at(StoredTrigger.PUT, StoredTrigger.FINISH),
        StoredEffect.RELEASE: at(StoredTrigger.FINISH),
        StoredEffect.TRIM: at(StoredTrigger.TRIM),
        StoredEffect.ERASE: {StoredTrigger.HIDE: lambda response: not response.has_owner},
        StoredEffect.REMOVE: _REMOVED,
        StoredEffect.WAKE: {
            **at(StoredTrigger.APPEND, StoredTrigger.FINISH, StoredTrigger.ADOPT),
            StoredTrigger.CANCEL: _has_owner,
            **_REMOVED,
            **at(StoredTrigger.HIDE),
        },
    },
    over=_REMOVED,
)
"""A stored response: only the last process that took the lease writes, watchers are woken, and a deleted id is not used again."""


@frozen
class _Conversation(Past):
    exists: bool = fact(on={ConversationTrigger.CREATE})
    has_owner: bool = fact(on={ConversationEffect.TAKE}, off={ConversationEffect.FREE})
    """Whether a response has taken the lease since, even if it has lapsed."""
    is_leased: bool = fact(on={ConversationEffect.TAKE}, off={ConversationTrigger.LAPSE, ConversationEffect.FREE})
    """Whether that lease has not lapsed."""


_OF_OWNER: Final = (ConversationTrigger.RENEW, ConversationTrigger.JOIN, ConversationTrigger.RELEASE)
_CONVERSATION: Final = Model(
    CONVERSATION,
    _Conversation(),
    owned={*_OF_OWNER},
    possible={
        ConversationTrigger.CREATE: lambda conversation: not conversation.exists,
        ConversationTrigger.DESCRIBE: lambda conversation: conversation.exists,
        ConversationTrigger.CHANGE: lambda conversation: conversation.exists and not conversation.is_leased,
        ConversationTrigger.HOLD: lambda conversation: conversation.exists and not conversation.is_leased,
        **dict.fromkeys(_OF_OWNER, lambda conversation: conversation.has_owner),
        ConversationTrigger.LAPSE: lambda conversation: conversation.is_leased,
        ConversationTrigger.DELETE: lambda conversation: conversation.exists,
        ConversationTrigger.EXPIRE: lambda conversation: conversation.exists and not conversation.is_leased,
    },
    effects={
        ConversationEffect.KEEP: at(ConversationTrigger.CREATE),
        ConversationEffect.TAKE: at(ConversationTrigger.HOLD, ConversationTrigger.RENEW),
        ConversationEffect.WRITE: at(ConversationTrigger.CHANGE, ConversationTrigger.JOIN),
        ConversationEffect.DESCRIBE: at(ConversationTrigger.DESCRIBE),
        ConversationEffect.FREE: {
            **at(ConversationTrigger.JOIN, ConversationTrigger.RELEASE),
            ConversationTrigger.CHANGE: lambda conversation: conversation.has_owner,
        },
        ConversationEffect.REMOVE: at(ConversationTrigger.DELETE, ConversationTrigger.EXPIRE),
    },
    over=at(ConversationTrigger.DELETE, ConversationTrigger.EXPIRE),
)
"""A conversation: only the owner of the lease changes its items, and a change ends the lease of an owner that has not read it."""


@frozen
class _Lane(Past):
    running: bool = fact(on={LaneEffect.BEGIN}, off={LaneTrigger.END})
    client_gone: bool = fact(on={LaneTrigger.LEAVE})


_LANE: Final = Model(
    LANE,
    _Lane(),
    possible={
        LaneTrigger.ASK: lambda lane: not lane.client_gone,
        LaneTrigger.CANCEL: lambda lane: not lane.client_gone,
        LaneTrigger.SUCCEED: lambda lane: lane.running and not lane.client_gone,
        LaneTrigger.END: lambda lane: lane.running,
        LaneTrigger.LEAVE: lambda lane: not lane.client_gone,
    },
    effects={
        LaneEffect.BEGIN: {LaneTrigger.ASK: lambda lane: not lane.running, **at(LaneTrigger.SUCCEED)},
        LaneEffect.QUEUE: {LaneTrigger.ASK: lambda lane: lane.running},
        LaneEffect.CLEAR: {LaneTrigger.LEAVE: lambda lane: lane.running},
        LaneEffect.INTERRUPT: dict.fromkeys((LaneTrigger.CANCEL, LaneTrigger.LEAVE), lambda lane: lane.running),
        LaneEffect.ADVANCE: {LaneTrigger.END: lambda lane: not lane.client_gone},
    },
    over={
        LaneTrigger.END: lambda lane: lane.client_gone,
        LaneTrigger.LEAVE: lambda lane: not lane.running,
    },
)
"""A lane: one request is in progress at a time, and none is lost while the client is connected."""


_ENDS: Final = (SteeringTrigger.COMPLETE, SteeringTrigger.REQUIRE, SteeringTrigger.FAIL)


@frozen
class _Steering(Past):
    has_input: bool = fact(on={SteeringEffect.ACCEPT})
    ended: bool = fact(on={*_ENDS})
    """Whether the response has ended."""
    needs_client: bool = fact(on={SteeringTrigger.REQUIRE}, off={SteeringTrigger.CONTINUE})
    """Whether the response waits for its client."""
    has_successor: bool = fact(on={SteeringEffect.SUCCEED, SteeringEffect.PREPEND})


def _has_input(steering: _Steering) -> bool:
    return steering.has_input


_STEERING: Final = Model(
    STEERING,
    _Steering(),
    possible={
        **dict.fromkeys((SteeringTrigger.STEER, *_ENDS), lambda steering: not steering.ended),
        **dict.fromkeys((SteeringTrigger.CONTINUE, SteeringTrigger.DIVERGE), lambda steering: steering.needs_client),
        **dict.fromkeys((SteeringTrigger.CREATE, SteeringTrigger.REFUSE), lambda steering: steering.has_successor),
        **at(SteeringTrigger.LEAVE),
    },
    effects={
        SteeringEffect.ACCEPT: at(SteeringTrigger.STEER),
        SteeringEffect.SUCCEED: {SteeringTrigger.COMPLETE: _has_input},
        SteeringEffect.ANNOUNCE: {SteeringTrigger.REQUIRE: _has_input},
        SteeringEffect.PREPEND: at(SteeringTrigger.CONTINUE),
        SteeringEffect.RETURN: {SteeringTrigger.FAIL: _has_input, **at(SteeringTrigger.DIVERGE, SteeringTrigger.REFUSE)},
    },
    over={
        SteeringTrigger.COMPLETE: lambda steering: not steering.has_input,
        SteeringTrigger.REQUIRE: lambda steering: not steering.has_input,
        **at(
            SteeringTrigger.FAIL, SteeringTrigger.DIVERGE, SteeringTrigger.CREATE, SteeringTrigger.REFUSE, SteeringTrigger.LEAVE
        ),
    },
)
"""The steering of a response: accepted input becomes part of one successor, or goes back to a client that is connected."""


@frozen
class _Connection(Past):
    in_flight: bool = fact(on={ConnectionEffect.DISPATCH}, off={ConnectionTrigger.DRAIN})
    """Whether requests are in flight."""
    expired: bool = fact(on={ConnectionTrigger.EXPIRE})
    refused: bool = fact(on={ConnectionEffect.REFUSE})
    shutting_down: bool = fact(on={ConnectionTrigger.SHUT_DOWN})
    client_gone: bool = fact(on={ConnectionTrigger.LEAVE})
    settling: bool = fact(on={ConnectionEffect.SETTLE}, off={*ConnectionTrigger})
    """Whether the last trigger has the effect `settle`."""

    @property
    def drains_at_once(self) -> bool:
        return self.settling and not self.in_flight

    @property
    def refuses(self) -> bool:
        return self.expired and not self.shutting_down


def _hears(connection: _Connection) -> bool:
    return not connection.client_gone and not connection.drains_at_once


_CONNECTION: Final = Model(
    CONNECTION,
    _Connection(),
    possible={
        ConnectionTrigger.REQUEST: _hears,
        ConnectionTrigger.STEER: _hears,
        ConnectionTrigger.EXPIRE: lambda it: _hears(it) and not it.expired and not it.shutting_down,
        ConnectionTrigger.SHUT_DOWN: lambda it: not it.drains_at_once,
        ConnectionTrigger.LEAVE: _hears,
        ConnectionTrigger.DRAIN: lambda it: it.in_flight or it.drains_at_once,
    },
    effects={
        ConnectionEffect.DISPATCH: {ConnectionTrigger.REQUEST: lambda it: not it.refuses},
        ConnectionEffect.REFUSE: {ConnectionTrigger.REQUEST: lambda it: it.refuses},
        ConnectionEffect.STEER: {ConnectionTrigger.STEER: lambda it: not it.refuses},
        ConnectionEffect.REFUSE_STEER: {ConnectionTrigger.STEER: lambda it: it.refuses},
        ConnectionEffect.LEAVE_LANES: at(ConnectionTrigger.LEAVE),
        ConnectionEffect.SETTLE: {
            ConnectionTrigger.REQUEST: lambda it: it.refuses and not it.refused,
            ConnectionTrigger.SHUT_DOWN: lambda it: not it.shutting_down and not it.client_gone,
            **at(ConnectionTrigger.LEAVE),
        },
        ConnectionEffect.CLOSE: {ConnectionTrigger.DRAIN: lambda it: it.refused and not (it.shutting_down or it.client_gone)},
        ConnectionEffect.CLOSE_RESTARTING: {ConnectionTrigger.DRAIN: lambda it: it.shutting_down and not it.client_gone},
    },
    over={ConnectionTrigger.DRAIN: lambda it: it.refused or it.shutting_down or it.client_gone},
)
"""A WebSocket connection: it refuses requests after its lifetime, and closes only when no request is in flight."""


@frozen
class _Server(Past):
    ready: bool = fact(on={ServerTrigger.READY})
    stopped: bool = fact(on={ServerTrigger.STOP})
    ending: bool = fact(on={ServerEffect.END})


_SERVER: Final = Model(
    SERVER,
    _Server(),
    possible={
        ServerTrigger.READY: lambda server: not server.ready and not server.ending,
        ServerTrigger.FAIL: lambda server: not server.ready and not server.ending,
        **at(ServerTrigger.STOP),
        ServerTrigger.IDLE: lambda server: server.stopped and not server.ending,
        ServerTrigger.EXPIRE: lambda server: server.stopped and not server.ending,
        ServerTrigger.CLOSE: lambda server: server.ending,
    },
    effects={
        ServerEffect.ANNOUNCE: {ServerTrigger.READY: lambda server: not server.stopped},
        ServerEffect.DRAIN: {ServerTrigger.STOP: lambda server: not server.stopped},
        ServerEffect.END: at(ServerTrigger.IDLE, ServerTrigger.EXPIRE),
        ServerEffect.GIVE_UP: at(ServerTrigger.FAIL),
        ServerEffect.KILL: {ServerTrigger.STOP: lambda server: server.stopped},
    },
    over={**at(ServerTrigger.FAIL, ServerTrigger.CLOSE), ServerTrigger.STOP: lambda server: server.stopped},
)
"""A server: it drains before it ends, and a second signal ends it at once."""


@frozen
class _Container(Past):
    started: bool = fact(on={ContainerEffect.START})
    busy: bool = fact(on={ContainerTrigger.RUN}, off={ContainerTrigger.END})
    """Whether code runs."""


_CONTAINER: Final = Model(
    CONTAINER,
    _Container(),
    possible={
        ContainerTrigger.RUN: lambda container: not container.busy,
        ContainerTrigger.END: lambda container: container.busy,
        ContainerTrigger.BREAK: lambda container: container.busy,
        ContainerTrigger.DROP: lambda container: container.started and not container.busy,
    },
    effects={
        ContainerEffect.START: {ContainerTrigger.RUN: lambda container: not container.started},
        ContainerEffect.FEED: at(ContainerTrigger.RUN),
        ContainerEffect.STOP: at(ContainerTrigger.BREAK, ContainerTrigger.DROP),
    },
    over=at(ContainerTrigger.BREAK, ContainerTrigger.DROP),
)
"""A container: code runs in a process that has started, one call at a time, and the process ends with the container."""


@frozen
class _AsyncCall(Past):
    settled: bool = fact(on={AsyncCallTrigger.ANSWER, AsyncCallTrigger.CONTINUE})
    """Whether the model reads something next to the call."""


_ASYNC_CALL: Final = Model(
    ASYNC_CALL,
    _AsyncCall(),
    possible=at(*AsyncCallTrigger),
    effects={
        AsyncCallEffect.KEEP: {AsyncCallTrigger.ANSWER: lambda call: not call.settled},
        AsyncCallEffect.WAIT: dict.fromkeys((AsyncCallTrigger.CONTINUE, AsyncCallTrigger.END), lambda call: not call.settled),
        AsyncCallEffect.REPEAT: {AsyncCallTrigger.ANSWER: lambda call: call.settled},
    },
    over=at(AsyncCallTrigger.END),
)
"""A call of an async tool: the model reads one output next to it, and every later output after the repeated call."""


@frozen
class _UpstreamConnection(Past):
    answering: bool = fact(on={UpstreamConnectionTrigger.SEND}, off={UpstreamConnectionTrigger.END})
    """Whether a task waits for an answer, or reads it."""
    has_head: bool = fact(on={UpstreamConnectionTrigger.HEAD}, off={UpstreamConnectionTrigger.END})
    """Whether the head of that answer has arrived."""
    offered: bool = fact(on={UpstreamConnectionEffect.KEEP}, off={UpstreamConnectionEffect.TAKE})
    """Whether the next request may take the connection."""


_UPSTREAM_CONNECTION: Final = Model(
    UPSTREAM_CONNECTION,
    _UpstreamConnection(),
    possible={
        UpstreamConnectionTrigger.SEND: lambda connection: not connection.answering,
        UpstreamConnectionTrigger.HEAD: lambda connection: connection.answering and not connection.has_head,
        UpstreamConnectionTrigger.END: lambda connection: connection.has_head,
        **at(UpstreamConnectionTrigger.CLOSE),
    },
    effects={
        UpstreamConnectionEffect.TELL: {
            **at(UpstreamConnectionTrigger.HEAD, UpstreamConnectionTrigger.END),
            UpstreamConnectionTrigger.CLOSE: lambda connection: connection.answering,
        },
        UpstreamConnectionEffect.KEEP: at(UpstreamConnectionTrigger.END),
        UpstreamConnectionEffect.TAKE: dict.fromkeys(
            (UpstreamConnectionTrigger.SEND, UpstreamConnectionTrigger.CLOSE), lambda connection: connection.offered
        ),
        UpstreamConnectionEffect.ABORT: at(UpstreamConnectionTrigger.CLOSE),
    },
    over=at(UpstreamConnectionTrigger.CLOSE),
)
"""A connection to an upstream: it answers one request at a time, and is offered to others only between two of them."""

_ALL: Final[Sequence[AnyModel]] = (
    *(_TURNS, _BACKGROUND, _STORED, _CONVERSATION, _LANE, _STEERING),
    *(_CONNECTION, _SERVER, _CONTAINER, _ASYNC_CALL, _UPSTREAM_CONNECTION),
)
MODELS: Final[Mapping[str, AnyModel]] = {model.table.name: model for model in _ALL}
"""The model of each process, by the name of its table."""
