"""The exploration: the real driver under every delta in every abstract state, until nothing new appears.

An abstract state keeps what the driver's decisions depend on and forgets the rest (ids, counters, texts, ended items);
docs/proof.md argues that nothing is lost by it. States are found breadth first, each with the shortest deltas that lead
to it, so a counterexample is as short as it can be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, TypeAlias, cast

import orjson
from attrs import define, field, frozen

from interlock.events.items import ITEMS, ItemKind
from interlock.events.sse import SseWriter
from interlock.events.stream import StreamEvent
from interlock.fsm import deltas, oracle
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.ids import SequentialIds
from interlock.fsm.item_subject import Item
from interlock.fsm.lifecycle import NO_FIELDS, Fields, stream_of
from interlock.fsm.lifecycles import Lifecycles
from interlock.fsm.proof.expectation import Expectation, Stance
from interlock.fsm.proof.visible_effects import Body
from interlock.fsm.proof.inputs import MARK, MEASURED, NOBODY, PLAIN, about, everywhere
from interlock.fsm.response_subject import Response

_SETTINGS: Final[Mapping[str, object]] = {
    "model": "any",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}

Fired: TypeAlias = tuple[str, str, str]
"""An edge that fired: the lifecycle's name, the state, the trigger."""


@frozen(order=True)
class OpenItem:
    """An item that has not ended, as far as it matters.

    Args:
        kind: Its kind.
        state: Where its lifecycle stands.
        holds: Whether white space is held back in it.
        measured: Whether the text of its open part has log probabilities.
        awaits: Whether log probabilities wait for their text.
        marked: Whether text stands in the open part that an annotation can be about.
    """

    kind: str
    state: str
    holds: bool
    measured: bool
    awaits: bool
    marked: bool


@frozen
class State:
    """An abstract state: of the driver, and of the account that hears the same.

    Args:
        response: Where the lifecycle of the response stands.
        active: The item that is being written.
        waiting: The other open items, in no order.
        streaming: Whether the next text takes the hot path.
        behind: Whether an item has ended.
        due: What the account expects from here on. It follows from the rest as long as a lifecycle is as it should be.
    """

    response: str
    active: OpenItem | None
    waiting: tuple[OpenItem, ...]
    streaming: bool
    behind: bool
    due: Stance

    @property
    def kinds(self) -> list[str]:
        """The kinds of the open items."""
        return [item.kind for item in (*self.waiting, self.active) if item is not None]

    @property
    def open_items(self) -> int:
        """How many items are open."""
        return len(self.waiting) + (self.active is not None)


class WatchedDriver(ResponseDriver[bytes]):
    """The real driver, of which can be seen where it stands and which edges fire.

    Args:
        lifecycles: What it composes.
        fired: Takes note of every edge that fires.
    """

    def __init__(self, lifecycles: Lifecycles, fired: set[Fired]) -> None:
        super().__init__(_SETTINGS, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 0, lifecycles=lifecycles)
        self._fired = fired

    def _fire(self, subject: Item[Any] | Response, trigger: str, args: Fields = NO_FIELDS) -> StreamEvent | None:
        self._fired.add((subject.state.table, subject.state.name, trigger))
        return super()._fire(subject, trigger, args)

    def state(self, account: Expectation) -> State:
        """Return the abstract state.

        Args:
            account: What has heard the same as the driver.
        """
        waiting = [_abstract(item) for item in self._open.values() if item is not self._active]
        return State(
            self._response.state.name,
            None if self._active is None else _abstract(self._active),
            tuple(sorted(waiting)),
            self._again is not None,
            any(item.id not in self._open for item in self._response.output),
            account.stance,
        )

    def inputs(self, anywhere: Sequence[deltas.Delta]) -> Iterator[deltas.Delta]:
        """Yield every delta that can be told here.

        Args:
            anywhere: Those that are the same everywhere.
        """
        yield from PLAIN
        yield from MEASURED
        yield from anywhere
        for item in self._open.values():
            yield from about(item.id, item.kind)
        closed = [item for item in self._response.output if item.id not in self._open]
        yield from about(closed[-1].id, closed[-1].kind) if closed else about(*NOBODY)


def _abstract(item: Item[Any]) -> OpenItem:
    shown = item.kind == "message"  # for other kinds, log probabilities make no difference
    measured = shown and stream_of(item.state) is not None and bool(item.logprobs)
    awaits = shown and bool(item.unsent_logprobs)
    marked = "annotate" in item.state.rows and item.find(MARK) is not None
    return OpenItem(item.kind, item.state.name, bool(item.unsent), measured, awaits, marked)


@frozen
class Node:
    """An abstract state with the path that led to it first.

    Args:
        state: Which.
        path: The deltas, from the start.
        events: What they made.
        wire: The same as it was written.
        account: What has heard them.
    """

    state: State
    path: tuple[deltas.Delta, ...]
    events: tuple[Body, ...]
    wire: bytes
    account: Expectation

    def did_nothing_since(self, before: Node) -> bool:
        """Return whether what was told since then made no event and led nowhere else."""
        return self.state == before.state and len(self.wire) == len(before.wire)


@frozen
class Counterexample:
    """A path on which something goes wrong.

    Args:
        path: The deltas, the last of which is the end of the stream.
        faults: What is wrong.
    """

    path: Sequence[deltas.Delta]
    faults: Sequence[str]


@define
class Explorer:
    """A run of the exploration.

    Args:
        lifecycles: What the driver composes.
        kinds: The kinds of items that are opened.
        open_items: The number of items that may be open in a state that is explored further.
    """

    lifecycles: Lifecycles
    kinds: Collection[ItemKind]
    open_items: int
    states: set[State] = field(factory=set[State], init=False)
    inputs: int = field(default=0, init=False)
    transitions: int = field(default=0, init=False)
    fired: set[Fired] = field(factory=set[Fired], init=False)
    paths: list[tuple[deltas.Delta, ...]] = field(factory=list[tuple[deltas.Delta, ...]], init=False)
    """For each edge that fired a path on which it did, the last delta of which fired it."""
    streams: set[bytes] = field(factory=set[bytes], init=False)
    events: int = field(default=0, init=False)
    counterexample: Counterexample | None = field(default=None, init=False)

    def run(self, progress: Callable[[int, int], None] = lambda _explored, _known: None) -> None:
        """Explore until nothing new appears, or something is wrong; report how many states were explored, and how many are known.

        Where nothing is open, an item of every kind is opened. Beside an open item, one kind stands for all of like tables
        (docs/proof.md says why).
        """
        unlike = self._unlike()
        alone, beside = everywhere(self.kinds), everywhere(unlike)
        start = self._start()
        self.states.add(start.state)
        frontier = deque([start])
        while frontier and self.counterexample is None:
            progress(len(self.states) - len(frontier), len(self.states))
            node = frontier.popleft()
            for after in self._leave(node, beside if node.state.open_items else alone):
                if after.state not in self.states and self._is_explored(after.state, unlike):
                    self.states.add(after.state)
                    frontier.append(after)

    def _is_explored(self, state: State, unlike: Collection[str]) -> bool:
        alone = state.open_items < 2  # noqa: PLR2004 - one item, with nothing beside it
        return alone or (state.open_items <= self.open_items and all(kind in unlike for kind in state.kinds))

    def _unlike(self) -> list[ItemKind]:
        """Return the kinds but for those with the table of one before them, to a driver that looks at triggers alone."""
        first: dict[object, ItemKind] = {}
        for kind in self.kinds:
            lifecycle = self.lifecycles.items[kind]
            number = {name: place for place, name in enumerate(lifecycle.states)}
            edges = [(number[edge.source], edge.trigger, number[edge.dest]) for edge in lifecycle.edges]
            streams = [number[name] for name, state in lifecycle.states.items() if stream_of(state) is not None]
            first.setdefault((tuple(edges), tuple(streams), ITEMS[kind].opaque), kind)
        return list(first.values())

    def _leave(self, node: Node, anywhere: Sequence[deltas.Delta]) -> Iterator[Node]:
        """Yield every delta in a state, end and judge the stream, and give what the delta led to.

        After a delta that did nothing at all the driver is still in that state, so it is fed the next one at once.
        """
        driver, here = self._replay(node), node
        inputs = [*driver.inputs(anywhere)]
        self.inputs = max(self.inputs, len(inputs))
        for delta in inputs:
            self.transitions += 1
            after, faults = self._tell(driver, here, delta)
            if not faults and after.did_nothing_since(here) and delta is not inputs[-1]:
                here = after
                continue
            faults = faults or self._finish(driver, after)
            if faults:
                self.counterexample = self._shortest((*here.path, delta), faults)
                return
            yield after
            driver, here = self._replay(node), node

    def _driver(self) -> WatchedDriver:
        return WatchedDriver(self.lifecycles, self.fired)

    def _start(self) -> Node:
        account = Expectation()
        return Node(self._driver().state(account), (), (), b"", account)

    def _replay(self, node: Node) -> WatchedDriver:
        driver = self._driver()
        driver.feed(node.path)
        return driver

    def _shortest(self, path: tuple[deltas.Delta, ...], faults: Sequence[str]) -> Counterexample:
        """Leave out of a path what is not to blame."""
        for place in range(len(path)):
            shorter = path[:place] + path[place + 1 :]
            if remaining := self._walk(shorter):
                return self._shortest(shorter, remaining)
        return Counterexample((*path, deltas.Finish()), faults)

    def _walk(self, path: tuple[deltas.Delta, ...]) -> list[str]:
        """Go along a path to the end of the stream; say what is wrong."""
        driver, node = self._driver(), self._start()
        for delta in path:
            node, faults = self._tell(driver, node, delta)
            if faults:
                return faults
        return self._finish(driver, node)

    def _finish(self, driver: WatchedDriver, node: Node) -> list[str]:
        """End a stream and say what is wrong with it; one that was judged before is only compared with what was told."""
        end, faults = self._tell(driver, node, deltas.Finish())
        if faults:
            return faults
        digest = sha256(end.wire).digest()
        if digest in self.streams:
            return []
        faults = [f"{violation.rule}: event {violation.index}: {violation.message}" for violation in oracle.check(end.events)]
        if driver.response != end.events[-1].get("response"):
            faults.append("R19: the response is not that of the terminal event")
        if not faults:
            self.streams.add(digest)
            self.events += len(end.events)
        return faults

    def _tell(self, driver: WatchedDriver, node: Node, delta: deltas.Delta) -> tuple[Node, list[str]]:
        """Return a driver that stands at a node one more delta; give where it stands then, and what is wrong."""
        fired = len(self.fired)
        try:
            frames = driver.feed([delta])
        except Exception as error:  # noqa: BLE001 - a driver is total, so whatever it raises is a fault
            return node, [f"{type(error).__name__}: {error}"]
        events = [cast("Body", orjson.loads(frame.partition(b"\ndata: ")[2])) for frame in frames]  # as a client reads them
        if len(self.fired) > fired:
            self.paths.append((*node.path, delta))
        account = node.account.fork()
        fault = account.compare(delta, events)
        after = Node(driver.state(account), (*node.path, delta), (*node.events, *events), b"".join((node.wire, *frames)), account)
        return after, [] if fault is None else [fault]
