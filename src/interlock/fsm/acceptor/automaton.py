"""Infers the possible states of a lifecycle from the events of a stream.

A stream shows events but no triggers, and the same events can lead to several states: a message that is done may be complete
or truncated. So an automaton tracks a *set* of positions in the table. A position is a state, or an edge with events still due.
The set includes the states behind edges without events.

For the automaton every delta event is optional, as in the rules; the tables require them.

The sets are built on demand and cached: an automaton has at most a few dozen, and a cached step is one dict lookup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

from attrs import define, field, frozen

from interlock.events.stream import EVENTS, ItemAdded, ItemDone, McpInProgress, OutputDone, Place, StreamEvent, wire_name
from interlock.fsm.acceptor.steps import FiredEdge, Step, silent_paths
from interlock.fsm.lifecycle import Emission, Lifecycle

S = TypeVar("S")

_INSIDE_A_PART = frozenset({Place.PART, Place.PART_DONE})


@frozen
class Observed:
    """A legal edge that real services take where the driver does not.

    Args:
        source: The state that it leaves. It may be missing from the table.
        dest: The state that it enters, likewise.
        events: Its events, in order.
        why: Why the edge is legal; generated pages show it.
    """

    source: str
    dest: str
    events: Sequence[type[StreamEvent]]
    why: str


OBSERVED: Final[Mapping[str, Sequence[Observed]]] = {
    "message": [
        Observed("pending", "added", [ItemAdded], "a message may have no parts; R18 reports it as blank"),
        Observed("added", "completed", [ItemDone], "a message may have no parts"),
        Observed("added", "incomplete", [ItemDone], "a truncated message may have no parts"),
    ],
    "mcp_call": [
        Observed(
            "in_progress",
            "in_progress",
            [McpInProgress],
            "an approved call may send this event a second time, before its arguments are done",
        ),
    ],
    "shell_call_output": [
        Observed("in_progress", "incomplete", [ItemDone], "a truncated output may be `incomplete`"),
        Observed("printing", "incomplete", [OutputDone, ItemDone], "a truncated output may be `incomplete`"),
    ],
    "compaction": [
        Observed("in_progress", "completed", [ItemDone], "a compaction may omit `response.compaction.compacting`"),
    ],
}
"""The observed edges of each kind of item."""


@frozen
class _Position:
    """A state (nothing is due, `source` equals `dest`), or an edge with events still due."""

    source: str
    dest: str
    due: tuple[str, ...]


@define(eq=False)
class Node:
    """A set of positions in a lifecycle.

    Args:
        state: The possible states, for messages; `leaving` and the source state if every position has events due.
        legal: The wire names of the events that may follow, in the order of the table.
        states: The possible states; empty if every position has events due.
        ends: The final states among them.
        inside_part: Whether every legal event belongs inside a part.
        following: The cached nodes after legal events.
        positions: The set of positions.
        moves: The positions after each legal event.
    """

    state: str
    legal: tuple[str, ...]
    states: frozenset[str]
    ends: frozenset[str]
    inside_part: bool
    following: dict[str, Node] = field(factory=dict[str, "Node"], init=False)
    positions: frozenset[_Position] = field(repr=False)
    moves: Mapping[str, frozenset[_Position]] = field(repr=False)


class Automaton(Generic[S]):
    """Recognizes the events of one lifecycle."""

    def __init__(self, lifecycle: Lifecycle[S]) -> None:
        self._name = lifecycle.name
        self._rows = {
            name: [(dest.name, _names(emissions)) for dest, emissions in state.rows.values()]
            for name, state in lifecycle.states.items()
        }
        self._triggers = {name: tuple(state.rows) for name, state in lifecycle.states.items()}
        self._observed: dict[str, list[Observed]] = {}
        for edge in OBSERVED.get(lifecycle.name, ()):
            self._observed.setdefault(edge.source, []).append(edge)
            self._rows.setdefault(edge.dest, [])
            self._triggers.setdefault(edge.dest, ())
        self._final = frozenset(name for name, row in self._rows.items() if not row and name not in self._observed)
        self._steps: dict[tuple[Node, str, Node], Step] = {}
        self._nodes: dict[frozenset[_Position], Node] = {}
        self._anywhere = self._moves(self._positions())
        self.start = self._node([_settled(lifecycle.initial)])
        self.unknown = self._node(self._positions())
        """The node for an unknown state: the union of all positions."""
        self.events = frozenset(self._anywhere)
        """The wire names of all events of the lifecycle."""
        self.completions = frozenset(_emitted(lifecycle, "succeed") if "run" in lifecycle.triggers else ())
        """The events that report the result of a tool."""
        self.whole = any({ItemAdded, ItemDone} <= {emission.event for emission in edge.effects} for edge in lifecycle.edges)
        """Whether one edge emits both `added` and `done`; such an item may be added with any status."""
        self.apart = frozenset(
            emission.name
            for name, state in lifecycle.states.items()
            if name != lifecycle.initial and "close" not in state.rows
            for _, emissions in state.rows.values()
            for emission in emissions
        )
        """The events that may come while the model writes a later item, because it has finished writing this one."""

    def step(self, node: Node, event: str) -> Node | None:
        """Return the node after an event, by its wire name; None if the event is not legal."""
        next_node = node.following.get(event)
        if next_node is None and event in node.moves:
            next_node = node.following[event] = self._node(node.moves[event])
        return next_node

    def leads_to(self, node: Node, event: str) -> bool:
        """Return whether an event is legal at a node or anywhere after it."""
        return event in self.beyond(node).moves

    def beyond(self, node: Node) -> Node:
        """Return the union of a node and all nodes after it."""
        nodes = {node: None}
        waiting = [node]
        while waiting:
            following = [self._node(positions) for positions in waiting.pop().moves.values()]
            waiting += [one for one in following if one not in nodes]
            nodes.update(dict.fromkeys(following))
        return self._node(frozenset[_Position]().union(*(one.positions for one in nodes)))

    def after(self, event: str) -> Node:
        """Return the node after an event if the node before is unknown."""
        return self._node(self._anywhere[event])

    def either(self, one: Node, other: Node) -> Node:
        """Return the union of two nodes."""
        return self._node(one.positions | other.positions)

    def anywhere_in(self, state: str) -> Node:
        """Return the node of one state, including states that it reaches without an event."""
        return self._node([_settled(state)])

    def explain(self, before: Node, event: str, after: Node) -> Step:
        """Return the step from one node to another, without the item's index; steps are cached."""
        key = (before, event, after)
        step = self._steps.get(key)
        if step is None:
            certain = [position for position in self._in_order(after.positions) if self._is_certain(position, after.positions)]
            at = tuple(dict.fromkeys(position.source for position in certain))
            possible = tuple(name for name in self._rows if name in after.states and name not in at)
            step = self._steps[key] = Step(self._name, None, tuple(self._fired(before, event)), at, possible)
        return step

    def _is_certain(self, position: _Position, positions: frozenset[_Position]) -> bool:
        """Return whether no other position reaches this one without an event."""
        return not any(position in self._closure([other]) for other in positions if other != position)

    def _fired(self, node: Node, event: str) -> Iterator[FiredEdge]:
        """Yield the edges of the table, without observed ones, that may emit an event at a node."""
        silent = {
            name: [
                (trigger, dest)
                for trigger, (dest, due) in zip(self._triggers[name], row, strict=True)
                if all(map(_is_delta, due))
            ]
            for name, row in self._rows.items()
        }
        certain = (one.dest for one in self._in_order(node.positions) if not one.due and self._is_certain(one, node.positions))
        paths = silent_paths(silent, certain)
        for position in self._in_order(node.positions):
            for trigger, (dest, emitted) in zip(self._triggers[position.source], self._rows[position.source], strict=True):
                due = position.due or emitted
                if position.due and (dest != position.dest or emitted[len(emitted) - len(due) :] != due):
                    continue
                at = next((number for number, name in enumerate(due) if name == event), len(due))
                if at < len(due) and all(map(_is_delta, due[:at])):
                    rest = due[at + 1 :]
                    settled, begins = all(map(_is_delta, rest)), not position.due
                    path = paths.get(position.source, ()) if begins else ()
                    yield FiredEdge(position.source, trigger, dest, begins, rest, settled, path)

    def _node(self, positions: Iterable[_Position]) -> Node:
        closed = self._closure(positions)
        node = self._nodes.get(closed)
        if node is None:
            node = self._nodes[closed] = self._make(closed)
        return node

    def _make(self, closed: frozenset[_Position]) -> Node:
        moves = self._moves(self._in_order(closed))
        at = [position.dest for position in self._in_order(closed) if not position.due]
        leaving = [f"leaving {position.source}" for position in self._in_order(closed) if position.due]
        return Node(
            state=" or ".join(dict.fromkeys(at or leaving)),
            legal=tuple(moves),
            states=frozenset(at),
            ends=frozenset(at) & self._final,
            inside_part=bool(moves) and all(EVENTS[event].before in _INSIDE_A_PART for event in moves),
            positions=closed,
            moves=moves,
        )

    def _in_order(self, closed: frozenset[_Position]) -> list[_Position]:
        """Sort positions in the order of the table, so that reports do not depend on hashing."""
        order = {name: number for number, name in enumerate(self._rows)}
        return sorted(closed, key=lambda position: (order[position.source], order[position.dest], position.due))

    def _closure(self, positions: Iterable[_Position]) -> frozenset[_Position]:
        """Add every position that can be reached without an event."""
        closed: set[_Position] = set()
        waiting = list(positions)
        while waiting:
            position = waiting.pop()
            if position in closed:
                continue
            closed.add(position)
            if position.due:
                waiting += [_settled(position.dest)] * all(map(_is_delta, position.due))
            else:
                waiting += [_settled(dest) for dest, due in self._rows[position.dest] if all(map(_is_delta, due))]
        return frozenset(closed)

    def _moves(self, positions: Iterable[_Position]) -> dict[str, frozenset[_Position]]:
        """Return the positions after each legal event."""
        moves: dict[str, frozenset[_Position]] = {}
        for position in positions:
            for event, following in self._moves_from(position):
                moves[event] = moves.get(event, frozenset()) | {following}
        return moves

    def _moves_from(self, position: _Position) -> Iterator[tuple[str, _Position]]:
        observed = [(edge.dest, tuple(map(wire_name, edge.events))) for edge in self._observed.get(position.dest, ())]
        edges = [(position.dest, position.due)] if position.due else [*self._rows[position.dest], *observed]
        for dest, due in edges:
            for number, event in enumerate(due):
                rest = due[number + 1 :]
                yield event, _Position(position.source, dest, rest) if rest else _settled(dest)
                if not _is_delta(event):
                    break

    def _positions(self) -> Iterator[_Position]:
        """Yield every position in the table."""
        for name, row in self._rows.items():
            yield _settled(name)
            for dest, due in row:
                yield from (_Position(name, dest, due[number:]) for number in range(1, len(due)))


def _settled(state: str) -> _Position:
    return _Position(state, state, ())


def _names(emissions: Iterable[Emission[S]]) -> tuple[str, ...]:
    return tuple(emission.name for emission in emissions)


def _emitted(lifecycle: Lifecycle[S], trigger: str) -> Iterator[str]:
    """Yield the names of the events that a trigger emits, except `output_item.done`."""
    for edge in lifecycle.edges:
        if edge.trigger == trigger:
            yield from (emission.name for emission in edge.effects if emission.event.after is not Place.AFTER)


def _is_delta(event: str) -> bool:
    return "delta" in EVENTS[event].__struct_fields__
