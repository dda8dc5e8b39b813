"""The steps of the machines that the viewer draws: the edges that may have emitted an event, and the states after it.

Several edges may explain one event, so a `Step` has all of them; `narrow_steps` removes the edges that contradict neighbouring
steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

from attrs import evolve, frozen

from interlock.judges.automaton import Automaton, AutomatonNode, TablePosition, Transition


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


def explain(transition: Transition) -> Step:
    """Return the step of a transition."""
    if transition.automaton is None:
        return Step("", transition.index)
    step = evolve(_explain(transition.automaton, transition.before, transition.event, transition.after), index=transition.index)
    if transition.status is None:
        return step
    # The status in `done` decides between the edges that end an item.
    return step.narrow(lambda edge: edge.dest == transition.status)


@cache  # for each automaton, there are a few dozen transitions
def _explain(automaton: Automaton, before: AutomatonNode, event: str, after: AutomatonNode) -> Step:
    certain = [one for one in automaton.in_order(after.positions) if _is_certain(automaton, one, after.positions)]
    at = tuple(dict.fromkeys(position.state for position in certain))
    possible = tuple(name for name in automaton.edges if name in after.states and name not in at)
    return Step(automaton.name, None, tuple(_fire(automaton, before, event)), at, possible)


def _is_certain(automaton: Automaton, position: TablePosition, positions: Iterable[TablePosition]) -> bool:
    """Return whether no other position reaches this one without an event."""
    return not any(position in automaton.closure([other]) for other in positions if other != position)


def _fire(automaton: Automaton, node: AutomatonNode, event: str) -> Iterator[FiredEdge]:
    """Yield the edges of the table, without observed ones, that may emit an event at a node."""
    positions = automaton.in_order(node.positions)
    starts = (one.state for one in positions if not one.due and _is_certain(automaton, one, node.positions))
    paths = _silent_paths(automaton, starts)
    for position in positions:
        for edge, due in automaton.edges_at(position):
            rest = next((rest for name, rest in automaton.next_events(due) if name == event), None)
            if edge.trigger and rest is not None:
                begins = not position.due
                path = paths.get(edge.source, ()) if begins else ()
                is_settled = automaton.is_optional(rest)
                yield FiredEdge(edge.source, edge.trigger, edge.dest, begins, tuple(rest), is_settled, path)


def _silent_paths(automaton: Automaton, starts: Iterable[str]) -> Mapping[str, tuple[tuple[str, str, str], ...]]:
    """Return the shortest path to each state that edges reach without an event."""
    paths: dict[str, tuple[tuple[str, str, str], ...]] = dict.fromkeys(starts, ())
    waiting = list(paths)
    for state in waiting:  # the list grows during the loop
        for edge in automaton.edges[state]:
            if edge.dest not in paths and automaton.is_optional(edge.effects):
                paths[edge.dest] = (*paths[state], (state, edge.trigger, edge.dest))
                waiting.append(edge.dest)
    return paths


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
