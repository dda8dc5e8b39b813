"""The exploration: the real driver under every delta in every abstract state, until nothing new appears.

An abstract state keeps what the driver's decisions depend on and forgets the rest (ids, counters, texts, ended items);
docs/proof.md argues that nothing is lost by it. States are found breadth first, each with the shortest deltas that lead
to it, so a counterexample is as short as it can be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final, Literal, TypeAlias, cast

import orjson
from attrs import define, field, frozen

from interlock.events.items import ItemKind
from interlock.events.sse import SseWriter
from interlock.fsm import deltas, oracle
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.ids import SequentialIds
from interlock.fsm.item import Item
from interlock.fsm.lifecycles import Lifecycles
from interlock.fsm.proof.account import Account
from interlock.fsm.proof.effects import Body
from interlock.fsm.proof.inputs import MEASURED, NOBODY, PLAIN, about, everywhere
from interlock.fsm.response import Response

_SETTINGS: Final[Mapping[str, object]] = {
    "model": "any",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}

Texture: TypeAlias = Literal["blank", "plain", "measured"]
"""Of the text at hand: there is none yet, it has no log probabilities, it has them."""

Fired: TypeAlias = tuple[str, str, str]
"""An edge that fired: the lifecycle's name, the state, the trigger."""


@frozen(order=True)
class OpenItem:
    """An item that has not ended, as far as it matters.

    Args:
        kind: Its kind.
        state: Where its lifecycle stands.
        holds: Whether white space is held back in it.
        texture: Of the text that is open in it.
    """

    kind: str
    state: str
    holds: bool
    texture: Texture


@frozen
class State:
    """An abstract state of the driver.

    Args:
        response: Where the lifecycle of the response stands.
        pen: The item that is being written.
        waiting: The other open items, in no order.
        streaming: Whether the next text takes the hot path.
        behind: Whether an item has ended.
    """

    response: str
    pen: OpenItem | None
    waiting: tuple[OpenItem, ...]
    streaming: bool
    behind: bool

    @property
    def open_items(self) -> int:
        """How many items are open."""
        return len(self.waiting) + (self.pen is not None)


class WatchedDriver(ResponseDriver[bytes]):
    """The real driver, of which can be seen where it stands and which edges fire.

    Args:
        lifecycles: What it composes.
        fired: Takes note of every edge that fires.
    """

    def __init__(self, lifecycles: Lifecycles, fired: set[Fired]) -> None:
        super().__init__(_SETTINGS, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 0, lifecycles=lifecycles)
        self._fired = fired

    def _fire(self, subject: Item | Response, trigger: str) -> None:
        self._fired.add((subject.state.lifecycle, subject.state.name, trigger))
        super()._fire(subject, trigger)

    def state(self) -> State:
        """Give the abstract state."""
        waiting = [_abstract(item) for item in self._open.values() if item is not self._pen]
        return State(
            self._response.state.name,
            None if self._pen is None else _abstract(self._pen),
            tuple(sorted(waiting)),
            self._stamp is not None,
            any(item.id not in self._open for item in self._response.output),
        )

    def inputs(self, anywhere: Sequence[deltas.Delta]) -> Iterator[deltas.Delta]:
        """Give every delta that can be told here.

        Args:
            anywhere: Those that are the same everywhere.
        """
        texture = "blank" if self._pen is None else _texture(self._pen)
        if texture != "measured":
            yield from PLAIN
        if texture != "plain":
            yield from MEASURED
        yield from anywhere
        for item in self._open.values():
            yield from about(item.id, item.spec.kind)
        gone = [item for item in self._response.output if item.id not in self._open]
        yield from about(gone[-1].id, gone[-1].spec.kind) if gone else about(*NOBODY)


def _abstract(item: Item) -> OpenItem:
    return OpenItem(item.spec.kind, item.state.name, bool(item.unsent), _texture(item))


def _texture(item: Item) -> Texture:
    """Say of which sort the text of a message is; for other kinds, log probabilities make no difference."""
    if item.spec.kind != "message":
        return "blank"
    written = item.state.name == "output_text"
    if item.unsent_logprobs or (written and item.logprobs):
        return "measured"
    return "plain" if item.unsent or written else "blank"


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
    account: Account


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
    streams: set[bytes] = field(factory=set[bytes], init=False)
    events: int = field(default=0, init=False)
    counterexample: Counterexample | None = field(default=None, init=False)

    def run(self) -> None:
        """Explore until nothing new appears, or something is wrong."""
        anywhere = everywhere(self.kinds)
        start = Node(self._driver().state(), (), (), b"", Account())
        self.states.add(start.state)
        found = deque([start])
        while found:
            node = found.popleft()
            inputs = [*self._replay(node).inputs(anywhere)]
            self.inputs = max(self.inputs, len(inputs))
            for delta in inputs:
                after = self._take(node, delta)
                if after is None or self.counterexample is not None:
                    return
                if after.state not in self.states and after.state.open_items <= self.open_items:
                    self.states.add(after.state)
                    found.append(after)

    def _driver(self) -> WatchedDriver:
        return WatchedDriver(self.lifecycles, self.fired)

    def _replay(self, node: Node) -> WatchedDriver:
        driver = self._driver()
        driver.feed(node.path)
        return driver

    def _take(self, node: Node, delta: deltas.Delta) -> Node | None:
        """Tell one more delta, then end the stream; give what the delta led to if all is well."""
        self.transitions += 1
        try:
            driver = self._replay(node)
            after, faults = _tell(driver, node, delta)
            end, more = _tell(driver, after, deltas.Finish())
            faults += more + self._judge(end, driver.response)
        except Exception as error:  # noqa: BLE001 - whatever is raised is a counterexample
            after, faults = None, [f"{type(error).__name__}: {error}"]
        if faults:
            self.counterexample = Counterexample((*node.path, delta, deltas.Finish()), faults)
        return after

    def _judge(self, end: Node, response: Mapping[str, object]) -> list[str]:
        """Say what is wrong with a whole stream, if it was not judged before."""
        digest = sha256(end.wire).digest()
        if digest in self.streams:
            return []
        self.streams.add(digest)
        self.events += len(end.events)
        faults = [f"{found.rule}: event {found.index}: {found.message}" for found in oracle.check(end.events)]
        if response != end.events[-1].get("response"):
            faults.append("R19: the response is not that of the terminal event")
        return faults


def _tell(driver: WatchedDriver, node: Node, delta: deltas.Delta) -> tuple[Node, list[str]]:
    """Tell a driver that stands at a node one more delta; give where it stands then, and what is wrong."""
    frames = driver.feed([delta])
    events = [cast("Body", orjson.loads(frame.partition(b"\ndata: ")[2])) for frame in frames]  # as a client reads them
    account = node.account.fork()
    fault = account.compare(delta, events)
    after = Node(driver.state(), (*node.path, delta), (*node.events, *events), b"".join((node.wire, *frames)), account)
    return after, [] if fault is None else [fault]
