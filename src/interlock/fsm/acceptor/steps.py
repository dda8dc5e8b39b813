"""The lifecycle edges that explain each event; the viewer draws them.

A stream shows events but no triggers, so several edges may explain one event. A step has all of them; `narrow_steps` removes
the edges that contradict neighbouring steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve, frozen


@frozen
class FiredEdge:
    """An edge that may have emitted an event.

    Args:
        source: The state that the edge leaves.
        trigger: The trigger of the edge.
        dest: The state that the edge enters.
        begins: Whether the event is the first that the edge emits.
        due: The wire names of the edge's later events.
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
    """The effect of one event on a lifecycle.

    Args:
        machine: The name of the lifecycle, a kind of item or `response`; empty for an item of unknown kind.
        index: The `output_index` of the item; None for an event of the response.
        fired: The edges that may have emitted the event; none if the event was not legal.
        states: The states that the machine may be in or may be leaving.
        possible: Further states that it may be in, because edges that need no event lead there.
    """

    machine: str
    index: int | None
    fired: tuple[FiredEdge, ...] = ()
    states: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()

    def narrowed(self, keep: Callable[[FiredEdge], bool]) -> Step:
        """Return the step with only the edges that `keep` accepts; unchanged if it accepts none."""
        fired = tuple(filter(keep, self.fired))
        if not fired or fired == self.fired:
            return self
        at = dict.fromkeys(edge.source if edge.due else edge.dest for edge in fired)
        return evolve(self, fired=fired, states=tuple(at), possible=tuple(name for name in self.possible if name not in at))


def narrow_steps(steps: Sequence[Step]) -> Sequence[Step]:
    """Remove from each step of a lifecycle the edges that contradict the steps after and before it.

    If exactly one edge of a step began with an earlier event, remove the others.
    """
    narrowed: list[Step] = []
    next_edges: tuple[FiredEdge, ...] = ()
    for step in reversed(steps):
        agreeing = step.narrowed(_followed(next_edges)) if next_edges else step
        narrowed.append(_prefer_continuing(agreeing))
        next_edges = narrowed[-1].fired
    narrowed.reverse()
    for at in range(1, len(narrowed)):
        if before := narrowed[at - 1].fired:
            narrowed[at] = _prefer_continuing(narrowed[at].narrowed(_following(before)))
    return narrowed


def _prefer_continuing(step: Step) -> Step:
    edges = [edge for edge in step.fired if not edge.begins]
    return step.narrowed(edges.__contains__) if len(edges) == 1 else step


def _followed(next_edges: tuple[FiredEdge, ...]) -> Callable[[FiredEdge], bool]:
    return lambda edge: any(one.may_follow(edge) for one in next_edges)


def _following(before: tuple[FiredEdge, ...]) -> Callable[[FiredEdge], bool]:
    return lambda edge: any(edge.may_follow(one) for one in before)
