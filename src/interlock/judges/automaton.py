"""Infers the possible states of a machine from the events of a stream, and the edges that explain each event.

A machine is a lifecycle of the Responses API, or a transducer, whose events are those of another API.

A stream shows events but no triggers, and the same events can lead to several states: a message that is done may be complete
or truncated. So an automaton tracks a *set* of positions in the table. A position is a state, or an edge with events still due.
The set includes the states behind edges without events.

For the automaton every delta event is optional, as in the rules; the tables require them.

The sets are built on demand and cached: an automaton has at most a few dozen, and a cached step is one dict lookup.

Several edges may explain one event, so a `Step` has all of them; `narrow_steps` removes the edges that contradict neighbouring
steps. The viewer draws the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from attrs import define, evolve, field, frozen

from interlock.events.stream import EVENTS, PROGRESS, ItemAdded, ItemDone, OutputDone, StreamEvent, wire_name
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.subjects import AnyItem, ResponseState
from interlock.fsm.table import Edge, reachable

_DELTAS: Final = frozenset(name for name, event in EVENTS.items() if "delta" in event.__struct_fields__)


@frozen
class Observed:
    """A legal edge that real services take where the driver does not.

    Args:
        source: The state that it leaves: a state of the table, or the `dest` of an earlier observed edge.
        dest: The state that it enters, which may be missing from the table.
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


@frozen(cache_hash=True)
class _TablePosition:
    """A state (`edge` is None and nothing is due), or an edge with events still due."""

    state: str
    edge: NamedEdge | None = None
    due: Sequence[str] = ()


@define(eq=False)
class AutomatonNode:
    """A set of positions in a machine.

    Args:
        state: The possible states, for messages; `leaving` and the source state if every position has events due.
        legal: The names of the events that may follow, in the order of the table.
        states: The possible states; empty if every position has events due.
        ends: The final states among them.
        following: The cached nodes after legal events.
        positions: The set of positions.
        moves: The positions after each legal event.
    """

    state: str
    legal: tuple[str, ...]
    states: frozenset[str]
    ends: frozenset[str]
    following: dict[str, AutomatonNode] = field(factory=dict[str, "AutomatonNode"], init=False)
    positions: frozenset[_TablePosition] = field(repr=False)
    moves: Mapping[str, frozenset[_TablePosition]] = field(repr=False)


@frozen
class FiredEdge:
    """An edge that may have emitted an event.

    Args:
        source: The state that the edge leaves.
        trigger: The trigger of the edge.
        dest: The state that the edge enters.
        begins: Whether the event is the first that the edge emits.
        due: The names of the edge's later events.
        settled: Whether `dest` may be reached now: `due` has only deltas, which are optional.
        silent: The edges before this one that need no event, in order, each as source, trigger and dest.
    """

    source: str
    trigger: str
    dest: str
    begins: bool = True
    due: tuple[str, ...] = ()
    settled: bool = True
    silent: tuple[tuple[str, str, str], ...] = ()

    def may_follow(self, before: FiredEdge) -> bool:
        """Return whether this edge can explain an event after `before` explains the previous one."""
        if self.begins:
            return before.settled and before.dest == (self.silent[0][0] if self.silent else self.source)
        same = (self.source, self.trigger, self.dest) == (before.source, before.trigger, before.dest)
        return same and len(self.due) < len(before.due)


@frozen
class Step:
    """The effect of one event on a machine.

    Args:
        machine: The name of the lifecycle, a kind of item or `response`, or of the transducer; empty for an item of unknown kind.
        index: The `output_index` of the item; None for an event of the response, and in other APIs.
        fired: The edges that may have emitted the event; none if the event was not legal.
        states: The states that the machine may be in or may be leaving.
        possible: Further states that it may be in, because edges that need no event lead there.
    """

    machine: str
    index: int | None
    fired: tuple[FiredEdge, ...] = ()
    states: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()

    def narrow(self, keep: Callable[[FiredEdge], bool]) -> Step:
        """Return the step with only the edges that `keep` accepts; unchanged if it accepts none."""
        fired = tuple(filter(keep, self.fired))
        if not fired or fired == self.fired:
            return self
        at = dict.fromkeys(edge.source if edge.due else edge.dest for edge in fired)
        return evolve(self, fired=fired, states=tuple(at), possible=tuple(name for name in self.possible if name not in at))


class Automaton:
    """Recognizes the events of one machine.

    Args:
        name: The name of the machine.
        initial: Its first state.
        edges: The edges that leave each state, with the names of their events.
        optional: The names of the events that may be left out: deltas.
    """

    def __init__(self, name: str, initial: str, edges: Mapping[str, Sequence[NamedEdge]], optional: frozenset[str]) -> None:
        self._name, self._edges, self._optional = name, edges, optional
        self._all = tuple(self._positions())
        """Every position, in the order of the table."""
        self._steps: dict[tuple[AutomatonNode, str, AutomatonNode], Step] = {}
        self._nodes: dict[frozenset[_TablePosition], AutomatonNode] = {}
        self._anywhere = self._moves(self._all)
        self.start = self._node([_TablePosition(initial)])
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

    def leads_to(self, node: AutomatonNode, event: str) -> bool:
        """Return whether an event is legal at a node or anywhere after it."""
        return event in self.reachable_from(node).moves

    def reachable_from(self, node: AutomatonNode) -> AutomatonNode:
        """Return the union of a node and all nodes after it."""
        nodes = reachable([node], lambda one: map(self._node, one.moves.values()))
        return self._node(frozenset[_TablePosition]().union(*(one.positions for one in nodes)))

    def after(self, event: str) -> AutomatonNode:
        """Return the node after an event if the node before is unknown."""
        return self._node(self._anywhere[event])

    def union(self, one: AutomatonNode, other: AutomatonNode) -> AutomatonNode:
        """Return the union of two nodes."""
        return self._node(one.positions | other.positions)

    def at_state(self, state: str) -> AutomatonNode:
        """Return the node of one state, including states that it reaches without an event."""
        return self._node([_TablePosition(state)])

    def explain(self, before: AutomatonNode, event: str, after: AutomatonNode) -> Step:
        """Return the step from one node to another, without the item's index; steps are cached."""
        key = (before, event, after)
        step = self._steps.get(key)
        if step is None:
            certain = [position for position in self._in_order(after.positions) if self._is_certain(position, after.positions)]
            at = tuple(dict.fromkeys(position.state for position in certain))
            possible = tuple(name for name in self._edges if name in after.states and name not in at)
            step = self._steps[key] = Step(self._name, None, tuple(self._fire(before, event)), at, possible)
        return step

    def _is_certain(self, position: _TablePosition, positions: frozenset[_TablePosition]) -> bool:
        """Return whether no other position reaches this one without an event."""
        return not any(position in self._closure([other]) for other in positions if other != position)

    def _fire(self, node: AutomatonNode, event: str) -> Iterator[FiredEdge]:
        """Yield the edges of the table, without observed ones, that may emit an event at a node."""
        positions = self._in_order(node.positions)
        paths = self._silent_paths(one.state for one in positions if not one.due and self._is_certain(one, node.positions))
        for position in positions:
            for edge, due in self._begin(position):
                rest = next((rest for name, rest in self._following(due) if name == event), None)
                if edge.trigger and rest is not None:
                    begins = not position.due
                    path = paths.get(edge.source, ()) if begins else ()
                    yield FiredEdge(edge.source, edge.trigger, edge.dest, begins, tuple(rest), self._is_optional(rest), path)

    def _silent_paths(self, starts: Iterable[str]) -> Mapping[str, tuple[tuple[str, str, str], ...]]:
        """Return the shortest path to each state that edges reach without an event."""
        paths: dict[str, tuple[tuple[str, str, str], ...]] = dict.fromkeys(starts, ())
        waiting = list(paths)
        for state in waiting:  # the list grows during the loop
            for edge in self._edges[state]:
                if edge.dest not in paths and self._is_optional(edge.effects):
                    paths[edge.dest] = (*paths[state], (state, edge.trigger, edge.dest))
                    waiting.append(edge.dest)
        return paths

    def _node(self, positions: Iterable[_TablePosition]) -> AutomatonNode:
        closed = self._closure(positions)
        node = self._nodes.get(closed)
        if node is None:
            node = self._nodes[closed] = self._make(closed)
        return node

    def _make(self, closed: frozenset[_TablePosition]) -> AutomatonNode:
        moves = self._moves(self._in_order(closed))
        at = [position.state for position in self._in_order(closed) if not position.due]
        leaving = [f"leaving {position.state}" for position in self._in_order(closed) if position.due]
        return AutomatonNode(
            state=" or ".join(dict.fromkeys(at or leaving)),
            legal=tuple(moves),
            states=frozenset(at),
            ends=frozenset(name for name in at if not self._edges[name]),
            positions=closed,
            moves=moves,
        )

    def _in_order(self, closed: frozenset[_TablePosition]) -> list[_TablePosition]:
        """Sort positions in the order of the table, so that reports do not depend on hashing."""
        return [position for position in self._all if position in closed]

    def _begin(self, position: _TablePosition) -> Iterable[tuple[NamedEdge, Sequence[str]]]:
        """Return the edges that may emit the next event at a position, each with its events still due."""
        if position.edge:
            return [(position.edge, position.due)]
        return [(edge, edge.effects) for edge in self._edges[position.state]]

    def _closure(self, positions: Iterable[_TablePosition]) -> frozenset[_TablePosition]:
        """Add every position that can be reached without an event."""
        return frozenset(reachable(positions, self._settle))

    def _settle(self, position: _TablePosition) -> Iterator[_TablePosition]:
        """Yield the positions that one edge reaches from a position without an event."""
        yield from (_TablePosition(edge.dest) for edge, due in self._begin(position) if self._is_optional(due))

    def _moves(self, positions: Iterable[_TablePosition]) -> dict[str, frozenset[_TablePosition]]:
        """Return the positions after each legal event."""
        moves: dict[str, frozenset[_TablePosition]] = {}
        for position in positions:
            for edge, due in self._begin(position):
                for event, rest in self._following(due):
                    after = _TablePosition(edge.source, edge, rest) if rest else _TablePosition(edge.dest)
                    moves[event] = moves.get(event, frozenset()) | {after}
        return moves

    def _following(self, due: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the events that may come next, the first one and others after optional ones, each with the events after it."""
        for number, event in enumerate(due):
            yield event, due[number + 1 :]
            if event not in self._optional:
                return

    def _is_optional(self, events: Iterable[str]) -> bool:
        """Return whether all events may be left out."""
        return self._optional.issuperset(events)

    def _positions(self) -> Iterator[_TablePosition]:
        """Yield every position in the table."""
        for name, edges in self._edges.items():
            yield _TablePosition(name)
            for edge in edges:
                yield from (_TablePosition(name, edge, edge.effects[number:]) for number in range(1, len(edge.effects)))


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
            emission.name
            for edge in lifecycle.edges
            for emission in edge.effects
            if edge.trigger == "succeed" and "run" in lifecycle.triggers and emission.event is not ItemDone
        )
        """The events that report the result of a tool."""
        self.whole = any({ItemAdded, ItemDone} <= {emission.event for emission in edge.effects} for edge in lifecycle.edges)
        """Whether one edge emits both `added` and `done`; such an item may be added with any status."""
        self.tool_events = frozenset(
            emission.name
            for name, state in lifecycle.states.items()
            if name != lifecycle.initial and "close" not in state.rows
            for _, emissions in state.rows.values()
            for emission in emissions
        )
        """The events that may come while the model writes a later item, because it has finished writing this one."""


def narrow_steps(steps: Sequence[Step]) -> Sequence[Step]:
    """Remove from each step of a lifecycle the edges that contradict the steps after and before it.

    If exactly one edge of a step began with an earlier event, remove the others.
    """
    narrowed: list[Step] = []
    next_edges: tuple[FiredEdge, ...] = ()
    for step in reversed(steps):
        agreeing = step.narrow(_followed(next_edges)) if next_edges else step
        narrowed.append(_prefer_continuing(agreeing))
        next_edges = narrowed[-1].fired
    narrowed.reverse()
    for at in range(1, len(narrowed)):
        if before := narrowed[at - 1].fired:
            narrowed[at] = _prefer_continuing(narrowed[at].narrow(_follows(before)))
    return narrowed


def _prefer_continuing(step: Step) -> Step:
    edges = [edge for edge in step.fired if not edge.begins]
    return step.narrow(edges.__contains__) if len(edges) == 1 else step


def _followed(next_edges: tuple[FiredEdge, ...]) -> Callable[[FiredEdge], bool]:
    return lambda edge: any(one.may_follow(edge) for one in next_edges)


def _follows(before: tuple[FiredEdge, ...]) -> Callable[[FiredEdge], bool]:
    return lambda edge: any(edge.may_follow(one) for one in before)
