"""A lifecycle run backwards: from the events that its edges emit to the states that it may be in.

From outside one sees events and no triggers, and the same events can mean more than one state: a message that is done may
be complete or cut, a call whose arguments are whole may be starting or about to be abandoned. So the reader of a stream
stands at a *set* of positions in the table. A position is a state, or an edge of which some events are still due. An
edge that emits nothing is passed without an event.

One thing is wider here than in the tables, and is so in the rules: text comes in any number of deltas, none among them.
So a delta that an edge emits (the first of a part) may be missing.

The sets are made as streams need them and kept: an automaton has a few dozen, and a step is one look into a dict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

from attrs import define, field, frozen

from interlock.events.stream import EVENTS, ItemAdded, ItemDone, McpInProgress, OutputDone, Place, StreamEvent, wire_name
from interlock.fsm.acceptor.hindsight import Fired, Step, silent_ways
from interlock.fsm.lifecycle import Emission, Lifecycle

S = TypeVar("S")

_INSIDE_A_PART = frozenset({Place.PART, Place.PART_DONE})


@frozen
class Observed:
    """One such edge.

    Args:
        source: The state that it leaves.
        dest: The state that it enters.
        events: What is seen of it, in order.
        why: What the service does, and why that is legal.
    """

    source: str
    dest: str
    events: Sequence[type[StreamEvent]]
    why: str


OBSERVED: Final[Mapping[str, Sequence[Observed]]] = {
    "message": [
        Observed("pending", "added", [ItemAdded], "a message may have no parts; R18 judges that it is blank"),
        Observed("added", "completed", [ItemDone], "a message may have no parts"),
        Observed("added", "incomplete", [ItemDone], "a message that is cut may have no parts"),
    ],
    "mcp_call": [
        Observed(
            "in_progress",
            "in_progress",
            [McpInProgress],
            "an approved call may repeat this event once its arguments are complete",
        ),
    ],
    "shell_call_output": [
        Observed("in_progress", "incomplete", [ItemDone], "an output that is cut may be `incomplete`"),
        Observed("printing", "incomplete", [OutputDone, ItemDone], "an output that is cut may be `incomplete`"),
    ],
    "compaction": [
        Observed("in_progress", "completed", [ItemDone], "a compaction may come without the event that it runs"),
    ],
}
"""The edges of each kind of item that has any."""


@frozen
class _Position:
    """A place in a table.

    Args:
        source: The state that was left last; the state itself if no event is due.
        dest: The state that is entered when nothing is due any more.
        due: The wire names of the events that the edge has still to emit.
    """

    source: str
    dest: str
    due: tuple[str, ...]


@define(eq=False)
class Node:
    """What can be known of where a lifecycle stands.

    Args:
        state: The states that it may be in, to be read; `leaving` a state when events of an edge are due.
        legal: The wire names of the events that may come, in the order of the table.
        states: The same, as names; none while events of an edge are due.
        ends: Those of them that are final.
        inside_part: Whether a part is open.
        positions: All of it, as the automaton keeps it.
        moves: The positions after each legal event.
        following: The node after each legal event, as far as it was asked for.
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
    """The events of one lifecycle, as a machine that recognises them.

    Args:
        lifecycle: Whose; its compiled rows are read and nothing else.
    """

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
        self._steps_taken: dict[tuple[Node, str, Node], Step] = {}
        self._nodes: dict[frozenset[_Position], Node] = {}
        self._anywhere = self._moves(self._positions())
        self.start = self._node([_settled(lifecycle.initial)])
        self.unknown = self._node(self._positions())
        """The node of which nothing is known."""
        self.events = frozenset(self._anywhere)
        """The wire names of all its events."""
        self.completions = frozenset(_emitted(lifecycle, "succeed") if "run" in lifecycle.triggers else ())
        """Those that say that a tool came to its end with a result."""
        self.whole = any({ItemAdded, ItemDone} <= {emission.event for emission in edge.effects} for edge in lifecycle.edges)
        """Whether the item comes whole, with nothing between its `added` and its `done`, and so with any status."""
        self.apart = frozenset(
            emission.name
            for name, state in lifecycle.states.items()
            if name != lifecycle.initial and "close" not in state.rows
            for _, emissions in state.rows.values()
            for emission in emissions
        )
        """Those that may come while a later item is written, because nobody writes this one any more."""

    def step(self, node: Node, event: str) -> Node | None:
        """Return the node after an event.

        Args:
            node: Where the lifecycle stands.
            event: The wire name of what came.

        Returns:
            None if the event is not legal there.
        """
        next_node = node.following.get(event)
        if next_node is None and event in node.moves:
            next_node = node.following[event] = self._node(node.moves[event])
        return next_node

    def leads_to(self, node: Node, event: str) -> bool:
        """Return whether an event can come at a node or anywhere after it."""
        return event in self.beyond(node).moves

    def beyond(self, node: Node) -> Node:
        """Return the node that is known to be a node or any after it."""
        nodes = {node: None}
        waiting = [node]
        while waiting:
            following = [self._node(positions) for positions in waiting.pop().moves.values()]
            waiting += [one for one in following if one not in nodes]
            nodes.update(dict.fromkeys(following))
        return self._node(frozenset[_Position]().union(*(one.positions for one in nodes)))

    def after(self, event: str) -> Node:
        """Return the node after an event of this lifecycle when nothing is known of what was before."""
        return self._node(self._anywhere[event])

    def either(self, one: Node, other: Node) -> Node:
        """Return the node that is known to be one of two."""
        return self._node(one.positions | other.positions)

    def anywhere_in(self, state: str) -> Node:
        """Return the node in which only a state is known."""
        return self._node([_settled(state)])

    def explain(self, before: Node, event: str, after: Node) -> Step:
        """Return what an event did, without the item's index; the same for the same question, so it is made once.

        Args:
            before: Where the lifecycle stood.
            event: The wire name of what came.
            after: Where it stands now.
        """
        key = (before, event, after)
        known = self._steps_taken.get(key)
        if known is None:
            surely = [position for position in self._in_order(after.positions) if self._is_sure(position, after.positions)]
            at = tuple(dict.fromkeys(position.source for position in surely))
            perhaps = tuple(name for name in self._rows if name in after.states and name not in at)
            known = self._steps_taken[key] = Step(self._name, None, tuple(self._fired(before, event)), at, perhaps)
        return known

    def _is_sure(self, position: _Position, positions: frozenset[_Position]) -> bool:
        """Return whether a position is not reached from the others without an event."""
        return not any(position in self._closure([other]) for other in positions if other != position)

    def _fired(self, node: Node, event: str) -> Iterator[Fired]:
        """Yield the edges that may emit an event at a node."""
        silent = {
            name: [
                (trigger, dest)
                for trigger, (dest, due) in zip(self._triggers[name], row, strict=True)
                if all(map(_is_delta, due))
            ]
            for name, row in self._rows.items()
        }
        surely = (one.dest for one in self._in_order(node.positions) if not one.due and self._is_sure(one, node.positions))
        ways = silent_ways(silent, surely)
        for position in self._in_order(node.positions):
            for trigger, (dest, emitted) in zip(self._triggers[position.source], self._rows[position.source], strict=True):
                due = position.due or emitted
                if position.due and (dest != position.dest or emitted[len(emitted) - len(due) :] != due):
                    continue
                at = next((number for number, name in enumerate(due) if name == event), len(due))
                if at < len(due) and all(map(_is_delta, due[:at])):
                    rest = due[at + 1 :]
                    settled, begins = all(map(_is_delta, rest)), not position.due
                    way = ways.get(position.source, ()) if begins else ()
                    yield Fired(position.source, trigger, dest, begins, rest, settled, way)

    def _node(self, positions: Iterable[_Position]) -> Node:
        closed = self._closure(positions)
        node = self._nodes.get(closed)
        if node is None:
            node = self._nodes[closed] = self._make(closed)
        return node

    def _make(self, closed: frozenset[_Position]) -> Node:
        moves = self._moves(self._in_order(closed))
        at = [position.dest for position in self._in_order(closed) if not position.due]
        left = [f"leaving {position.source}" for position in self._in_order(closed) if position.due]
        return Node(
            state=" or ".join(dict.fromkeys(at or left)),
            legal=tuple(moves),
            states=frozenset(at),
            ends=frozenset(at) & self._final,
            inside_part=bool(moves) and all(EVENTS[event].before in _INSIDE_A_PART for event in moves),
            positions=closed,
            moves=moves,
        )

    def _in_order(self, closed: frozenset[_Position]) -> list[_Position]:
        """Sort positions in the order of the table, so that every report lists them alike."""
        order = {name: number for number, name in enumerate(self._rows)}
        return sorted(closed, key=lambda position: (order[position.source], order[position.dest], position.due))

    def _closure(self, positions: Iterable[_Position]) -> frozenset[_Position]:
        """Add every position that is reached without an event."""
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
        """Return what each event leads to."""
        moves: dict[str, frozenset[_Position]] = {}
        for position in positions:
            for event, following in self._steps(position):
                moves[event] = moves.get(event, frozenset()) | {following}
        return moves

    def _steps(self, position: _Position) -> Iterator[tuple[str, _Position]]:
        observed = [(edge.dest, _specified(edge)) for edge in self._observed.get(position.dest, ())]
        edges = [(position.dest, position.due)] if position.due else [*self._rows[position.dest], *observed]
        for dest, due in edges:
            for number, event in enumerate(due):
                rest = due[number + 1 :]
                yield event, _Position(position.source, dest, rest) if rest else _settled(dest)
                if not _is_delta(event):
                    break

    def _positions(self) -> Iterator[_Position]:
        """Yield every position that there is."""
        for name, row in self._rows.items():
            yield _settled(name)
            for dest, due in row:
                yield from (_Position(name, dest, due[number:]) for number in range(1, len(due)))


def _settled(state: str) -> _Position:
    return _Position(state, state, ())


def _names(emissions: Iterable[Emission[S]]) -> tuple[str, ...]:
    return tuple(emission.name for emission in emissions)


def _specified(edge: Observed) -> tuple[str, ...]:
    return tuple(map(wire_name, edge.events))


def _emitted(lifecycle: Lifecycle[S], trigger: str) -> Iterator[str]:
    """Yield what the edges of a trigger emit, but for the end of the bracket."""
    for edge in lifecycle.edges:
        if edge.trigger == trigger:
            yield from (emission.name for emission in edge.effects if emission.event.after is not Place.AFTER)


def _is_delta(event: str) -> bool:
    return "delta" in EVENTS[event].__struct_fields__
