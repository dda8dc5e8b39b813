"""Feeds the real driver every delta in every abstract state, until no new state appears.

An abstract state has everything that the driver's decisions depend on, and no ids, counters, texts and ended items;
docs/evidence/proof.md argues that this is enough. The search is breadth first, so counterexamples are short.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import sha256
from operator import add
from typing import TypeAlias

import orjson
from attrs import define, field, frozen

from interlock.dialects.transducer import AnyTransducer
from interlock.events.items import ITEMS, ItemKind
from interlock.events.json import is_object, parse
from interlock.events.sse import EventWriter, SseWriter
from interlock.events.stream import StreamEvent
from interlock.fsm import deltas
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.errors import InterlockError
from interlock.fsm.ids import SequentialIds
from interlock.fsm.lifecycle import NO_FIELDS, AnySubject, Fields, stream_of
from interlock.fsm.lifecycles import Lifecycles
from interlock.fsm.subjects import AnyItem
from interlock.judges import DIALECT_JUDGES
from interlock.verify import oracle
from interlock.verify.expectation import Expectation, StateKey, decode
from interlock.verify.inputs import (
    ARGUMENTS,
    MARK,
    SETTINGS,
    TEXTS,
    TEXTS_WITH_LOGPROBS,
    UNKNOWN_CALL,
    common_inputs,
    tool_deltas,
)
from interlock.verify.oracle.stream_view import JsonObject

Fired: TypeAlias = tuple[str, str, str]
"""A fired edge: the name of the lifecycle, the state, and the trigger."""


@frozen(order=True)
class AbstractItem:
    """The abstract state of an open item."""

    kind: str
    state: str
    pending: str
    """What waits for other text before it is sent: white space, or `null` where the arguments of a call begin."""
    arguments: str
    """The form of a client call's arguments so far, if the exploration distinguishes it (`_arguments`)."""
    has_logprobs: bool
    """Whether the text of the open part has log probabilities."""
    pending_logprobs: bool
    """Whether log probabilities wait for their text."""
    marked: bool
    """Whether the open part has text that an annotation can refer to."""


@frozen
class ProofState:
    """An abstract state of the driver and the expectation."""

    response: str
    """The state of the response's lifecycle."""
    active: AbstractItem | None
    """The item that is being written."""
    waiting: tuple[AbstractItem, ...]
    """The other open items, sorted."""
    streaming: bool
    """Whether the driver writes the next text by filling it into the last delta event, without firing an edge."""
    has_ended_item: bool
    ended_calls: frozenset[str]
    """The forms of the arguments of the client's calls that have ended."""
    state_key: StateKey
    """The state of the expectation; the other fields determine it unless a lifecycle is wrong."""
    transducers: tuple[tuple[str, int, bool], ...]
    """The states of the transducers, each with the number of events that wait in it, and whether a call has begun."""

    @property
    def kinds(self) -> list[str]:
        """The kinds of the open items."""
        return [item.kind for item in (*self.waiting, self.active) if item is not None]


Written: TypeAlias = tuple[bytes, StreamEvent]
"""A frame and its event."""


class PairWriter:
    """Writes each event as a frame, and keeps it beside the frame."""

    def __init__(self) -> None:
        self._frames, self._events = SseWriter(), EventWriter()

    def write(self, event: StreamEvent) -> Written:
        """Return the frame and the event."""
        return self._frames.write(event), event

    def repeat(self, event: StreamEvent) -> Callable[[str, int], Written]:
        """Return a function of a text and a number that returns both."""
        fill, rewrite = self._frames.repeat(event), self._events.repeat(event)
        return lambda text, number: (fill(text, number), rewrite(text, number))


class WatchedDriver(ResponseDriver[Written]):
    """The real driver, which also records fired edges in `fired` and exposes its abstract state."""

    def __init__(self, lifecycles: Lifecycles, fired: set[Fired], *, tells_arguments: bool) -> None:
        super().__init__(SETTINGS, writer=PairWriter(), ids=SequentialIds(), clock=lambda: 0, lifecycles=lifecycles)
        self._fired, self._tells_arguments = fired, tells_arguments

    def _fire(self, subject: AnySubject, trigger: str, args: Fields = NO_FIELDS) -> StreamEvent | None:
        self._fired.add((subject.state.table, subject.state.name, trigger))
        return super()._fire(subject, trigger, args)

    def state(self, expectation: Expectation, transducers: Sequence[AnyTransducer]) -> ProofState:
        """Return the abstract state; the expectation and the transducers must have seen the same deltas."""
        waiting = [_abstract(item) for item in self._open.values() if item is not self._active]
        active, ended = self._active, [item for item in self._response.output if item.id not in self._open]
        tells = self._tells_arguments
        return ProofState(
            self._response.state.name,
            None if active is None else _abstract(active, _arguments(active) if tells else ""),
            tuple(sorted(waiting)),
            self._write_delta is not None,
            bool(ended),
            frozenset(filter(None, map(_arguments, ended))) if tells else frozenset(),
            expectation.state_key,
            tuple(transducer.state_key for transducer in transducers),
        )

    def inputs(self, common: Sequence[deltas.Delta]) -> Iterator[deltas.Delta]:
        """Yield every delta to feed in this state: the `common` ones, text, and tool deltas for each call."""
        yield from TEXTS
        yield from TEXTS_WITH_LOGPROBS
        yield from common
        if self._active is not None and self._active.body.text_path == ("arguments",):
            # One object opens a `tool_use` block in Messages, in which calls of hosted tools wait.
            yield from ARGUMENTS if self._tells_arguments else ARGUMENTS[:1]
        for item in self._open.values():
            yield from tool_deltas(item.id, item.kind)
        ended_items = [item for item in self._response.output if item.id not in self._open]
        yield from tool_deltas(ended_items[-1].id, ended_items[-1].kind) if ended_items else tool_deltas(*UNKNOWN_CALL)


def _abstract(item: AnyItem, arguments: str = "") -> AbstractItem:
    may_have_logprobs = item.kind == "message"  # for other kinds, log probabilities make no difference
    has_logprobs = may_have_logprobs and stream_of(item.state) is not None and bool(item.part.logprobs)
    pending_logprobs = may_have_logprobs and bool(item.unsent_logprobs)
    marked = "annotate" in item.state.rows and item.find(MARK) is not None
    pending = item.unsent.strip() or item.unsent[:1]
    return AbstractItem(item.kind, item.state.name, pending, arguments, has_logprobs, pending_logprobs, marked)


def _arguments(item: AnyItem) -> str:
    """Return the form of a client call's arguments so far: an object, the beginning of one, another value, or nothing."""
    text = item.text if item.kind == "function_call" else ""
    if not text or text == '{"a"':
        return text
    return "object" if is_object(parse(text)) else "block" if text.startswith("{") else "other"


def _bodies(frames: bytes) -> list[JsonObject]:
    return [
        orjson.loads(frame.partition(b"data: ")[2]) for frame in frames.split(b"\n\n") if frame and not frame.endswith(b"[DONE]")
    ]


@frozen
class ProofNode:
    """An abstract state and the first path to it."""

    state: ProofState
    path: tuple[deltas.Delta, ...]
    """The deltas from the start."""
    events: tuple[JsonObject, ...]
    """The events of the path."""
    wire: bytes
    """The same events as frames."""
    expectation: Expectation
    transducers: tuple[AnyTransducer, ...]
    """The transducers, which have read the events."""
    translations: tuple[bytes, ...]
    """What each has made of them."""

    def is_unchanged_since(self, before: ProofNode) -> bool:
        """Return whether the deltas since `before` emitted no event and left the state as it was."""
        return self.state == before.state and len(self.wire) == len(before.wire)


@frozen
class Counterexample:
    """A list of deltas that makes an illegal stream."""

    path: Sequence[deltas.Delta]
    """The deltas; the last one is `Finish`."""
    faults: Sequence[str]


@define
class Explorer:
    """One exploration and its results so far."""

    lifecycles: Lifecycles
    """The lifecycles of the driver."""
    kinds: Collection[ItemKind]
    """The kinds of items to open."""
    open_items: int
    """The maximum number of open items in an explored state."""
    tells_arguments: bool = False
    """Whether to feed arguments of every JSON kind to calls, and to tell states apart by the arguments of their calls."""
    states: set[ProofState] = field(factory=set[ProofState], init=False)
    inputs: int = field(default=0, init=False)
    transitions: int = field(default=0, init=False)
    fired: set[Fired] = field(factory=set[Fired], init=False)
    paths: list[tuple[deltas.Delta, ...]] = field(factory=list[tuple[deltas.Delta, ...]], init=False)
    """Paths whose last delta fires an edge for the first time."""
    streams: set[bytes] = field(factory=set[bytes], init=False)
    events: int = field(default=0, init=False)
    counterexample: Counterexample | None = field(default=None, init=False)

    def run(self, progress: Callable[[int, int], None]) -> None:
        """Explore until no new state appears or a counterexample is found; `progress` is that of `prove`.

        While an item is open, the search opens only one kind of each group with the same table; docs/evidence/proof.md says why.
        """
        distinct = self._distinct_kinds()
        first_inputs, inputs_beside_items = common_inputs(self.kinds), common_inputs(distinct)
        start = self._start()
        self.states.add(start.state)
        frontier = deque([start])
        while frontier and self.counterexample is None:
            progress(len(self.states) - len(frontier), len(self.states))
            node = frontier.popleft()
            for after in self._successors(node, inputs_beside_items if node.state.kinds else first_inputs):
                if after.state not in self.states and self._is_explored(after.state, distinct):
                    self.states.add(after.state)
                    frontier.append(after)

    def merge(self, other: Explorer) -> None:
        """Add the results of another exploration."""
        self.states |= other.states
        self.inputs = max(self.inputs, other.inputs)
        self.transitions += other.transitions
        self.fired |= other.fired
        self.paths += other.paths
        self.events += other.events
        self.streams |= other.streams
        self.counterexample = self.counterexample or other.counterexample

    def _is_explored(self, state: ProofState, distinct: Collection[str]) -> bool:
        open_items = len(state.kinds)
        return open_items <= 1 or (open_items <= self.open_items and all(kind in distinct for kind in state.kinds))

    def _distinct_kinds(self) -> list[ItemKind]:
        """Return one kind per group that the driver treats alike: with the same edges, streaming states and encrypted field."""
        first: dict[object, ItemKind] = {}
        for kind in self.kinds:
            lifecycle = self.lifecycles.items[kind]
            number = {name: place for place, name in enumerate(lifecycle.states)}
            edges = [(number[edge.source], edge.trigger, number[edge.dest]) for edge in lifecycle.edges]
            streams = [number[name] for name, state in lifecycle.states.items() if stream_of(state) is not None]
            first.setdefault((tuple(edges), tuple(streams), ITEMS[kind].encrypted_field), kind)
        return list(first.values())

    def _successors(self, node: ProofNode, common: Sequence[deltas.Delta]) -> Iterator[ProofNode]:
        """Feed every delta in a state, check the stream after each, and yield the resulting nodes.

        After a delta without effect, feed the next one to the same driver instead of replaying the path.
        """
        driver, here = self._replay(node), node
        inputs = [*driver.inputs(common)]
        self.inputs = max(self.inputs, len(inputs))
        for delta in inputs:
            self.transitions += 1
            after, faults = self._feed(driver, here, delta)
            if not faults and after.is_unchanged_since(here) and delta is not inputs[-1]:
                here = after
                continue
            faults = faults or self._finish(driver, after, len(here.events))
            if faults:
                self.counterexample = self._minimal((*here.path, delta), faults)
                return
            yield after
            driver, here = self._replay(node), node

    def _driver(self) -> WatchedDriver:
        return WatchedDriver(self.lifecycles, self.fired, tells_arguments=self.tells_arguments)

    def _start(self) -> ProofNode:
        expectation, transducers = Expectation(), tuple(judge.make_transducer() for judge in DIALECT_JUDGES.values())
        state = self._driver().state(expectation, transducers)
        return ProofNode(state, (), (), b"", expectation, transducers, (b"",) * len(transducers))

    def _replay(self, node: ProofNode) -> WatchedDriver:
        driver = self._driver()
        driver.feed(node.path)
        return driver

    def _minimal(self, path: tuple[deltas.Delta, ...], faults: Sequence[str]) -> Counterexample:
        """Drop deltas until the stream would have no fault without any one of the others."""
        for place in range(len(path)):
            shorter = path[:place] + path[place + 1 :]
            if remaining := self._judge(shorter):
                return self._minimal(shorter, remaining)
        return Counterexample((*path, deltas.Finish()), faults)

    def _judge(self, path: tuple[deltas.Delta, ...]) -> list[str]:
        """Feed a path, end the stream, and return its faults."""
        driver, node = self._driver(), self._start()
        for delta in path:
            node, faults = self._feed(driver, node, delta)
            if faults:
                return faults
        return self._finish(driver, node, 0)

    def _finish(self, driver: WatchedDriver, node: ProofNode, valid: int) -> list[str]:
        """End a stream and return its faults; the oracle checks each distinct stream once.

        The first `valid` events are those of a state whose own stream had no fault.
        """
        end, faults = self._feed(driver, node, deltas.Finish())
        if faults:
            return faults
        digest = sha256(end.wire).digest()
        if digest in self.streams:
            return []
        faults = [
            f"{finding.rule}: event {finding.event}: {finding.message}" for finding in oracle.check(end.events, valid=valid)
        ]
        for translation, judge in zip(end.translations, DIALECT_JUDGES.values(), strict=True):
            findings = judge.check_emitted(_bodies(translation))
            faults += [f"{finding.rule}: event {finding.event}: {finding.message}" for finding in findings]
        if driver.response != end.events[-1].get("response"):
            faults.append("R19: the response of the driver differs from the one in the terminal event")
        if not faults:
            self.streams.add(digest)
            self.events += len(end.events)
        return faults

    def _feed(self, driver: WatchedDriver, node: ProofNode, delta: deltas.Delta) -> tuple[ProofNode, list[str]]:
        """Feed a delta to a driver in the state of `node`, and return the next node and the faults."""
        fired = len(self.fired)
        try:
            output = driver.feed([delta])
        except Exception as error:  # noqa: BLE001 - the driver must accept every delta
            return node, [f"{type(error).__name__}: {error}"]
        frames = [frame for frame, _ in output]
        events = [decode(frame) for frame in frames]
        if len(self.fired) > fired:
            self.paths.append((*node.path, delta))
        expectation = node.expectation.fork()
        fault = expectation.compare(delta, events)
        wire = b"".join((node.wire, *frames))
        transducers = tuple(transducer.fork() for transducer in node.transducers)
        try:
            frames_of_apis = [transducer.encode(event for _, event in output) for transducer in transducers]
        except (InterlockError, LookupError, TypeError) as error:
            return node, [f"{type(error).__name__}: {error}"]
        translations = tuple(map(add, node.translations, frames_of_apis))
        state = driver.state(expectation, transducers)
        after = ProofNode(state, (*node.path, delta), (*node.events, *events), wire, expectation, transducers, translations)
        return after, [] if fault is None else [fault]
