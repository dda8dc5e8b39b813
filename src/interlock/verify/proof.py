"""The proof that `ResponseDriver` cannot emit events in an illegal order: it explores the states of the real driver.

The explorer feeds the driver every delta in every reachable state with at most two open items, breadth first, so
counterexamples are short. A state has everything that the driver's decisions depend on, and no ids, counters, texts and ended
items, so there are finitely many. The expectation compares the events of each delta with the effects that it must have. After
each delta that changes something, the explorer ends the stream, and `interlock.verify.oracle` checks the stream against
docs/evidence/rules.md.

Then faults are injected: each call of a writer, a clock, or a source of ids or final fields raises once. An edge during which
it raises must be undone, and the stream must still end legally.

docs/evidence/proof.md shows why these states suffice, and states the limits of the proof.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from io import BytesIO
from operator import add
from typing import Final, TypeAlias, TypeVar, get_args

from attrs import define, field, frozen

from interlock.dialects.transducer import AnyTransducer
from interlock.events.items import ITEMS, ItemKind, example, examples, result_fields
from interlock.events.json import is_array, is_object, parse
from interlock.events.sse import EventWriter, SseWriter
from interlock.events.stream import StreamEvent
from interlock.fsm import deltas
from interlock.fsm.driver import ResponseDriver, SequentialIds
from interlock.fsm.lifecycle import NO_FIELDS, AnyItem, AnySubject, Fields, Lifecycle, OpenPart, stream_of
from interlock.fsm.lifecycles import DECLARED, Lifecycles
from interlock.fsm.table import DeclarationError, InterlockError
from interlock.judges import DIALECT_JUDGES
from interlock.verify import oracle
from interlock.verify.expectation import MARK, WITH_ARGUMENTS, Expectation, StateKey, decode
from interlock.verify.oracle import ORDERS, RUNNING, JsonObject

S = TypeVar("S")

DeltaPath: TypeAlias = tuple[deltas.Delta, ...]
"""The deltas from the start of a stream."""

# The deltas to feed: each kind of delta, with each content that the driver may treat differently. One text stands for all texts
# that it treats alike: empty text, white space, text that an annotation refers to, and other text. All but the annotated text
# also come with log probabilities.

SETTINGS: Final[Mapping[str, object]] = {"model": "any", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
"""The settings of every response."""

UNKNOWN_CALL: Final = next((f"{item.prefix}_0", kind) for kind, item in ITEMS.items() if item.tool_result is not None)
"""A call that does not exist; the driver treats it like a call that has ended."""

_NAMED: Final = [
    kind
    for kind, item in ITEMS.items()
    if "call_id" in item.generated_ids and item.as_function_call and not item.as_function_call[0]
]
"""The calls of tools that have names of their own."""
_SPECIAL: Final[Mapping[ItemKind, Mapping[str, object]]] = {
    "message": {"phase": "commentary"},
    # Always the same call id, so that later calls repeat it.
    **{kind: {"call_id": "call_of_the_model"} for kind in _NAMED},
}
FIELDS: Final[Mapping[ItemKind, Mapping[str, object]]] = {kind: {**example(kind), **_SPECIAL.get(kind, {})} for kind in ITEMS}
"""The fields that open an item, by kind."""
_ANNOTATION: Final = {"type": "url_citation", "url": "https://example.org", "title": "E", "start_index": 0, "end_index": 1}
_CITATION: Final = {"type": "url_citation", "url": "https://example.org", "title": "E"}
_USAGE: Final = deltas.Usage(input_tokens=5, cached_tokens=1, output_tokens=3, reasoning_tokens=2, cache_write_tokens=4)

_COMMON: Final[Sequence[deltas.Delta]] = (
    deltas.Start(),
    deltas.Enqueue(),
    deltas.Silence(),
    *(wrap(text) for wrap in (deltas.Refusal, deltas.Summary) for text in ("no", " ", "")),
    deltas.Annotate(_ANNOTATION),
    deltas.Annotate(_CITATION, MARK),
    deltas.EndPart(),
    deltas.Close(),
    deltas.Close({"encrypted_content": "sealed"}),
    deltas.Reject("The arguments make no sense."),
    *(deltas.EndTurn(reason, _USAGE) for reason in get_args(deltas.FinishReason)),
    deltas.Fault("server_error", "It broke."),
    deltas.Cancel(),
    deltas.Finish(),
)

TEXTS: Final[Sequence[deltas.Delta]] = (MARK, " ", "", deltas.Text("a", ()))
"""Text without log probabilities."""


def _add_logprobs(text: str) -> deltas.Text:
    return deltas.Text(text, [{"token": text, "bytes": [*text.encode()], "logprob": -0.5, "top_logprobs": []}])


TEXTS_WITH_LOGPROBS: Final[Sequence[deltas.Delta]] = tuple(_add_logprobs(text) for text in ("a", " ", ""))
"""Text with log probabilities."""


ARGUMENTS: Final[Sequence[deltas.Delta]] = ("{}", '{"a"', ":1}", "null", "[1]", "5", '"a"', "true")
"""The arguments of calls: JSON of every kind, complete and in two parts. Several of them joined are not valid JSON."""


def common_inputs(kinds: Collection[ItemKind]) -> list[deltas.Delta]:
    """Return the deltas that name no item and carry no output text; `kinds` are the kinds of items to open."""
    sealed = [deltas.Open("reasoning", {"encrypted_content": "sealed"})] if "reasoning" in kinds else []
    return [*_COMMON, *sealed, *(deltas.Open(kind, FIELDS[kind]) for kind in kinds)]


def tool_deltas(item_id: str, kind: ItemKind) -> Iterator[deltas.Delta]:
    """Yield the deltas that a tool makes for a call."""
    yield deltas.Run(item_id)
    yield deltas.Progress(item_id, _PROGRESS.get(kind, {"partial_image_b64": "aW1hZ2U="}))
    yield deltas.EndOutput(item_id, {"type": "exit", "exit_code": 1})
    yield deltas.Succeed(item_id)
    yield deltas.Succeed(item_id, result_fields(kind, "found") or examples(kind, ITEMS[kind].tool_result or ())[-1])
    yield deltas.Fail(item_id, "It broke.")


_PROGRESS: Final[Mapping[ItemKind, Mapping[str, object]]] = {"shell_call_output": {"stdout": "signals\n", "stderr": ""}}


# The exploration.

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


@frozen
class ProofNode:
    """An abstract state and the first path to it."""

    state: ProofState
    path: DeltaPath
    events: tuple[JsonObject, ...]
    """The events of the path."""
    wire: bytes
    """The same events as frames."""
    expectation: Expectation
    transducers: tuple[AnyTransducer, ...]
    """The transducers, which have read the events."""
    translations: tuple[bytes, ...]
    """What each has made of them."""


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
    paths: list[DeltaPath] = field(factory=list["DeltaPath"], init=False)
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
            if not faults and (after.state, after.wire) == (here.state, here.wire) and delta is not inputs[-1]:
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

    def _minimal(self, path: DeltaPath, faults: Sequence[str]) -> Counterexample:
        """Drop deltas until the stream would have no fault without any one of the others."""
        for place in range(len(path)):
            shorter = path[:place] + path[place + 1 :]
            if remaining := self._judge(shorter):
                return self._minimal(shorter, remaining)
        return Counterexample((*path, deltas.Finish()), faults)

    def _judge(self, path: DeltaPath) -> list[str]:
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
            frames = (frame for frame in translation.split(b"\n\n") if b"data: {" in frame)
            findings = judge.check_emitted([*map(decode, frames)])
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


# The injection of faults.


class InjectedError(Exception):
    """The injected error."""


@define
class _FaultyCallables:
    """The writer, ids, clock and final fields of a driver; one of their calls may raise."""

    successes: int | None = None
    """How many calls succeed before one raises; None if no call raises."""
    calls: int = 0
    ids: SequentialIds = field(factory=SequentialIds)

    def _call(self) -> None:
        self.calls += 1
        if self.successes is not None:
            self.successes -= 1
            if self.successes < 0:
                self.successes = None
                raise InjectedError

    def write(self, event: StreamEvent) -> bytes:
        self._call()
        return SseWriter().write(event)

    def repeat(self, event: StreamEvent) -> Callable[[str, int], bytes]:
        repeated = SseWriter().repeat(event)

        def write(text: str, number: int) -> bytes:
            self._call()
            return repeated(text, number)

        return write

    def make_id(self, prefix: str) -> str:
        self._call()
        return self.ids(prefix)

    def tell_time(self) -> int:
        self._call()
        return 0

    def final_fields(self, item: Mapping[str, object]) -> Fields:
        self._call()
        return {"encrypted_content": "sealed"} if item["type"] == "reasoning" else NO_FIELDS


class _FaultyDriver(ResponseDriver[bytes]):
    """The real driver, which also records what a failed edge has changed."""

    def __init__(self, lifecycles: Lifecycles, faulty: _FaultyCallables) -> None:
        super().__init__(
            {}, writer=faulty, ids=faulty.make_id, clock=faulty.tell_time, final_fields=faulty.final_fields, lifecycles=lifecycles
        )
        self.changes: list[str] = []

    def _fire(self, subject: AnySubject, trigger: str, args: Fields = NO_FIELDS) -> StreamEvent | None:
        before = self._snapshot(subject)
        try:
            return super()._fire(subject, trigger, args)
        except InjectedError:
            after = self._snapshot(subject)
            self.changes += [name for name in before if before[name] != after[name]]
            raise

    def _snapshot(self, subject: AnySubject) -> Mapping[str, object]:
        """Return a copy of everything that a failed edge must leave as it was."""
        backup = subject.save()
        fields: dict[str, object] = {name: _copy(getattr(backup, name)) for name in backup.__struct_fields__}
        return {**fields, "output": [*self._response.output], "events": [*self._events], "number": self._number}


def _copy(value: object) -> object:
    """Copy a list or a buffer, also of a part. The driver never mutates other values, so they need no copy."""
    if isinstance(value, OpenPart):
        return [_copy(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, BytesIO):
        return value.getvalue(), value.tell()
    return [*map(_copy, value)] if is_array(value) else value


def faults_of(lifecycles: Lifecycles, paths: Iterable[DeltaPath]) -> Iterator[str]:
    """Yield every fault that occurs if a callable raises during the last delta of a path."""
    for path in paths:
        *before, last = path
        faulty = _FaultyCallables()
        driver = _FaultyDriver(lifecycles, faulty)
        driver.feed(before)
        calls = faulty.calls
        driver.feed([last])
        for successes in range(faulty.calls - calls):
            yield from (f"{path!r}, call {successes}: {fault}" for fault in _fault(lifecycles, before, last, successes))


def _fault(lifecycles: Lifecycles, before: Sequence[deltas.Delta], last: deltas.Delta, successes: int) -> Iterator[str]:
    faulty = _FaultyCallables()
    driver = _FaultyDriver(lifecycles, faulty)
    frames = driver.feed(before)
    faulty.successes = successes
    try:
        frames += driver.feed([last])
    except InjectedError:
        yield from (f"{name} was not undone" for name in driver.changes)
    frames += driver.feed([deltas.Fault("server_error", "It broke.")])
    findings = oracle.check([decode(frame) for frame in frames])
    yield from (f"{finding.rule}: {finding.message}" for finding in findings)


# The proof.

OPEN_ITEMS: Final = 2
"""The maximum number of open items in an explored state; docs/evidence/proof.md shows that two suffice."""


@frozen
class Coverage:
    """How many edges a lifecycle has, and which of them never fired."""

    edges: int
    unfired: tuple[str, ...]
    """Each edge as `state/trigger`."""


@frozen
class Proof:
    """The result of an exploration, which ends at the first counterexample."""

    states: int
    inputs: int
    """The maximum number of deltas fed in one state."""
    transitions: int
    streams: int
    """How many different streams the oracle checked."""
    events: int
    """How many events these streams have."""
    coverage: Mapping[str, Coverage]
    """The coverage of each lifecycle, by its name."""
    counterexample: Counterexample | None
    faults: tuple[str, ...]
    """The faults that fault injection found, each with its path."""

    @property
    def holds(self) -> bool:
        """Whether there is no counterexample and no fault, and every edge fired."""
        return self.counterexample is None and not self.faults and not any(each.unfired for each in self.coverage.values())


def prove(
    lifecycles: Lifecycles = DECLARED,
    *,
    kinds: Collection[ItemKind] = tuple(DECLARED.items),
    open_items: int = OPEN_ITEMS,
    arguments: bool = True,
    progress: Callable[[int, int], None] = lambda _explored, _discovered: None,
) -> Proof:
    """Explore the driver, and judge the stream of every explored state and delta.

    Args:
        lifecycles: The lifecycles of the driver.
        kinds: The kinds of items to open.
        open_items: The most items that are open in an explored state.
        arguments: Whether to explore calls with arguments of every JSON kind too, which takes most of the time.
        progress: Called for each state, with the number of states explored so far and the number discovered so far.

    Raises:
        DeclarationError: The oracle lacks a row for a kind; the message names every missing row.
    """
    if missing := [row for kind in kinds for row in _missing_rows(lifecycles.items[kind])]:
        raise DeclarationError("\n".join(missing))
    explorer = Explorer(lifecycles, kinds, open_items)
    explorer.run(progress)
    callers = [kind for kind in kinds if kind in WITH_ARGUMENTS]
    if arguments and callers and explorer.counterexample is None:
        one_item = Explorer(lifecycles, callers, 1, tells_arguments=True)
        one_item.run(lambda _explored, _discovered: None)
        explorer.merge(one_item)
    faults = () if explorer.counterexample else tuple(faults_of(lifecycles, explorer.paths))
    coverage = {"response": _coverage(lifecycles.response, explorer.fired)}
    coverage.update((kind, _coverage(lifecycles.items[kind], explorer.fired)) for kind in kinds)
    return Proof(
        len(explorer.states),
        explorer.inputs,
        explorer.transitions,
        len(explorer.streams),
        explorer.events,
        coverage,
        explorer.counterexample,
        faults,
    )


def _missing_rows(lifecycle: Lifecycle[S]) -> Iterator[str]:
    """Yield a sentence for the row, or the mark in it, that the oracle lacks for a kind of item."""
    kind = lifecycle.name
    if kind not in ORDERS:
        yield f"{'_ORDERS' if len(lifecycle.edges) > 1 else 'WHOLE'} in verify/oracle.py has no row for '{kind}'"
    elif kind not in RUNNING and any("run" in state.rows for state in lifecycle.states.values()):
        yield f"_ORDERS in verify/oracle.py has no `>` before the events of the tool of '{kind}'"


def _coverage(lifecycle: Lifecycle[S], fired: AbstractSet[Fired]) -> Coverage:
    unfired = [f"{e.source}/{e.trigger}" for e in lifecycle.edges if (lifecycle.name, e.source, e.trigger) not in fired]
    return Coverage(len(lifecycle.edges), tuple(unfired))
