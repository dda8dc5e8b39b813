"""Infers the possible states of a machine from the events of a stream.

A machine is a lifecycle of the Responses API, or a transducer, whose events are those of another API.

A stream shows events but no triggers, and the same events can lead to several states: a message that is done may be complete
or truncated. So an automaton tracks a *set* of positions in the table. A position is a state, or an edge with events still due.
The set includes the states behind edges without events.

For the automaton every delta event is optional, as in the rules; the tables require them.

The sets are built on demand and cached: an automaton has at most a few dozen, and a cached step is one dict lookup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from attrs import define, field, frozen

from interlock.events.stream import EVENTS, PROGRESS, ItemAdded, ItemDone, OutputDone, StreamEvent, wire_name
from interlock.fsm.lifecycle import AnyItem, Lifecycle, ResponseState
from interlock.fsm.table import Edge, reachable

_DELTAS: Final = frozenset(name for name, event in EVENTS.items() if "delta" in event.__struct_fields__)
_NAMED: Final = 2
"""The most possible states that messages name."""


@frozen
class Observed:
    """A legal edge that real services take where the driver does not; its final state may be missing from the table."""

    source: str
    dest: str
    events: Sequence[type[StreamEvent]]
    why: str
    """Why the edge is legal; generated pages show it."""


OBSERVED: Final[Mapping[str, Sequence[Observed]]] = {
    "message": [
        Observed("pending", "completed", [ItemAdded, ItemDone], "a message may have no parts; R18 reports it as blank"),
        Observed("pending", "incomplete", [ItemAdded, ItemDone], "a truncated message may have no parts"),
    ],
    "mcp_call": [
        Observed(
            "in_progress",
            "in_progress",
            [PROGRESS["mcp_call.in_progress"]],
            "an approved call may send this event a second time, before its arguments are done",
        ),
    ],
    "shell_call_output": [
        Observed("in_progress", "incomplete", [ItemDone], "a truncated output may be `incomplete`"),
        Observed("printing", "incomplete", [OutputDone, ItemDone], "a truncated output may be `incomplete`"),
    ],
}
"""The observed edges of each kind of item."""


NamedEdge: TypeAlias = Edge[str, str]
"""An edge of the table with the names of its events, or an observed edge, whose trigger is empty."""


def name_position(state: str, *, is_left: bool) -> str:
    """Name a state for messages, or the position on an edge that leaves it."""
    return f"leaving {state}" if is_left else state


@frozen(cache_hash=True)
class TablePosition:
    """A state (`edge` is None and nothing is due), or an edge with events still due."""

    state: str
    edge: NamedEdge | None = None
    due: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The name of the position in messages."""
        return name_position(self.state, is_left=self.edge is not None)


@define(eq=False)
class AutomatonNode:
    """A set of positions in a machine.

    Args:
        state: The possible states, for messages, if few; `leaving` and the source state if every position has events due.
        legal: The names of the events that may follow, in the order of the table.
        states: The possible states; empty if every position has events due.
        ends: The final states among them.
        moves: The positions after each legal event.
    """

    state: str
    legal: tuple[str, ...]
    states: frozenset[str]
    ends: frozenset[str]
    following: dict[str, AutomatonNode] = field(factory=dict[str, "AutomatonNode"], init=False)
    """The cached nodes after legal events."""
    positions: frozenset[TablePosition] = field(repr=False)
    moves: Mapping[str, frozenset[TablePosition]] = field(repr=False)


@frozen
class Transition:
    """What one event does to a machine."""

    automaton: Automaton | None
    """The automaton of the machine; None for an item of unknown kind."""
    before: AutomatonNode
    event: str
    """The name of the event; empty if it is not one of the machine."""
    after: AutomatonNode
    index: int | None = None
    """The `output_index` of the item; None for an event of the response, and in other APIs."""
    status: str | None = None
    """The status of the item, if the event ends it."""


class Automaton:
    """Recognizes the events of one machine.

    Args:
        name: The name of the machine.
        initial: Its first state.
        edges: The edges that leave each state, with the names of their events.
        optional: The events that may be left out: deltas.
    """

    def __init__(self, name: str, initial: str, edges: Mapping[str, Sequence[NamedEdge]], optional: frozenset[str]) -> None:
        self.name, self.edges, self._optional = name, edges, optional
        self._all = tuple(self._positions())
        """Every position, in the order of the table."""
        self._nodes: dict[frozenset[TablePosition], AutomatonNode] = {}
        self._anywhere = self._moves(self._all)
        self.start = self._node([TablePosition(initial)])
        self.unknown = self._node(self._all)
        """The node for an unknown state: the union of all positions."""
        self.events = frozenset(self._anywhere)
        """The names of all events of the machine."""

    def step(self, node: AutomatonNode, event: str) -> AutomatonNode | None:
        """Return the node after an event, by its name; None if the event is not legal."""
        next_node = node.following.get(event)
        if next_node is None and event in node.moves:
            next_node = node.following[event] = self._node(node.moves[event])
        return next_node

    def reachable_from(self, node: AutomatonNode) -> AutomatonNode:
        """Return the union of a node and all nodes after it."""
        nodes = reachable([node], lambda one: map(self._node, one.moves.values()))
        return self._node(frozenset[TablePosition]().union(*(one.positions for one in nodes)))

    def after(self, event: str) -> AutomatonNode:
        """Return the node after an event if the node before is unknown."""
        return self._node(self._anywhere[event])

    def union(self, one: AutomatonNode, other: AutomatonNode) -> AutomatonNode:
        """Return the union of two nodes."""
        return self._node(one.positions | other.positions)

    def at_state(self, state: str) -> AutomatonNode:
        """Return the node of one state, including states that it reaches without an event."""
        return self._node([TablePosition(state)])

    def _node(self, positions: Iterable[TablePosition]) -> AutomatonNode:
        closure = self.closure(positions)
        node = self._nodes.get(closure)
        if node is None:
            node = self._nodes[closure] = self._make(closure)
        return node

    def _make(self, positions: frozenset[TablePosition]) -> AutomatonNode:
        moves = self._moves(self.in_order(positions))
        at = [position.state for position in self.in_order(positions) if not position.due]
        names = dict.fromkeys(at or (position.name for position in self.in_order(positions)))
        return AutomatonNode(
            state=" or ".join(names) if len(names) <= _NAMED else "unknown",
            legal=tuple(moves),
            states=frozenset(at),
            ends=frozenset(name for name in at if not self.edges[name]),
            positions=positions,
            moves=moves,
        )

    def in_order(self, positions: frozenset[TablePosition]) -> list[TablePosition]:
        """Sort positions in the order of the table, so that reports do not depend on hashing."""
        return [position for position in self._all if position in positions]

    def edges_at(self, position: TablePosition) -> Iterable[tuple[NamedEdge, Sequence[str]]]:
        """Return the edges that may emit the next event at a position, each with its events still due."""
        if position.edge:
            return [(position.edge, position.due)]
        return [(edge, edge.effects) for edge in self.edges[position.state]]

    def closure(self, positions: Iterable[TablePosition]) -> frozenset[TablePosition]:
        """Add every position that can be reached without an event."""
        return frozenset(reachable(positions, self._settle))

    def _settle(self, position: TablePosition) -> Iterator[TablePosition]:
        """Yield the positions that one edge reaches from a position without an event."""
        yield from (TablePosition(edge.dest) for edge, due in self.edges_at(position) if self.is_optional(due))

    def _moves(self, positions: Iterable[TablePosition]) -> dict[str, frozenset[TablePosition]]:
        """Return the positions after each legal event."""
        moves: dict[str, frozenset[TablePosition]] = {}
        for position in positions:
            for edge, due in self.edges_at(position):
                for event, rest in self.next_events(due):
                    after = TablePosition(edge.source, edge, rest) if rest else TablePosition(edge.dest)
                    moves[event] = moves.get(event, frozenset()) | {after}
        return moves

    def next_events(self, due: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the events that may come next, the first one and others after optional ones, each with the events after it."""
        for number, event in enumerate(due):
            yield event, due[number + 1 :]
            if event not in self._optional:
                return

    def is_optional(self, events: Iterable[str]) -> bool:
        """Return whether all events may be left out."""
        return self._optional.issuperset(events)

    def _positions(self) -> Iterator[TablePosition]:
        for name, edges in self.edges.items():
            yield TablePosition(name)
            for edge in edges:
                yield from (TablePosition(name, edge, edge.effects[number:]) for number in range(1, len(edge.effects)))


class LifecycleAutomaton(Automaton):
    """Recognizes the events of one lifecycle, by their wire names."""

    def __init__(self, lifecycle: Lifecycle[AnyItem] | Lifecycle[ResponseState]) -> None:
        edges: dict[str, list[NamedEdge]] = {name: [] for name in lifecycle.states}
        for edge in lifecycle.edges:
            edges[edge.source].append(NamedEdge(edge.source, edge.trigger, edge.dest, tuple(map(str, edge.effects))))
        for seen in OBSERVED.get(lifecycle.name, ()):
            edges[seen.source].append(NamedEdge(seen.source, "", seen.dest, tuple(map(wire_name, seen.events))))
            edges.setdefault(seen.dest, [])
        super().__init__(lifecycle.name, lifecycle.initial, edges, _DELTAS)
        self.completions = frozenset(
            str(emission)
            for edge in lifecycle.edges
            for emission in edge.effects
            if edge.trigger == "succeed" and "run" in lifecycle.triggers and emission.event is not ItemDone
        )
        """The events that report the result of a tool."""
        self.whole = any({ItemAdded, ItemDone} <= {emission.event for emission in edge.effects} for edge in lifecycle.edges)
        """Whether one edge emits both `added` and `done`; such an item may be added with any status."""
        self.tool_events = frozenset(
            str(emission)
            for name, state in lifecycle.states.items()
            if name != lifecycle.initial and "close" not in state.rows
            for _, emissions in state.rows.values()
            for emission in emissions
        )
        """The events that may come while the model writes a later item, because it has finished writing this one."""
