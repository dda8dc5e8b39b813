"""What an event did to a lifecycle: the edges that it belongs to, and where it left the item.

From outside one sees events and no triggers, so more than one edge may explain an event. A step names them all;
`hindsight` leaves those alone that agree with the steps after it. This is for those who draw the way of a stream through its
machines; the judge itself does not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from attrs import evolve, frozen


@frozen
class Fired:
    """An edge that may have emitted an event.

    Args:
        source: The state that the edge leaves.
        trigger: What makes it fire.
        dest: The state that it enters.
        begins: Whether the event is the first that the edge emits.
        due: The wire names of the events that the edge has still to emit.
        settled: Whether the machine may stand in `dest` now: nothing is due, or nothing but deltas, which may be missing.
        silent: The edges without events that lead to `source`, in order, each as source, trigger and dest.
    """

    source: str
    trigger: str
    dest: str
    begins: bool = True
    due: tuple[str, ...] = ()
    settled: bool = True
    silent: tuple[tuple[str, str, str], ...] = ()

    def may_follow(self, before: Fired) -> bool:
        """Return whether this edge can explain an event if another explains the event before it."""
        if self.begins:
            return before.settled and before.dest == (self.silent[0][0] if self.silent else self.source)
        same = (self.source, self.trigger, self.dest) == (before.source, before.trigger, before.dest)
        return same and len(self.due) < len(before.due)


@frozen
class Step:
    """What one event did.

    Args:
        machine: The name of the lifecycle: the kind of item, or `response`. Empty for an item without one.
        index: The `output_index` of the item; None for an event of the response.
        fired: The edges that may have emitted the event; none if it was not legal where it came.
        at: The states in which the machine stands, or which it is about to leave.
        perhaps: The states in which it may stand already, because the edges that lead there emit nothing.
    """

    machine: str
    index: int | None
    fired: tuple[Fired, ...] = ()
    at: tuple[str, ...] = ()
    perhaps: tuple[str, ...] = ()

    def narrowed(self, keep: Callable[[Fired], bool]) -> Step:
        """Return the step with some of its edges alone, and the states to which they lead; itself if none would be left.

        Args:
            keep: Which edges to keep.
        """
        fired = tuple(filter(keep, self.fired))
        if not fired or fired == self.fired:
            return self
        at = dict.fromkeys(edge.source if edge.due else edge.dest for edge in fired)
        return evolve(self, fired=fired, at=tuple(at), perhaps=tuple(name for name in self.perhaps if name not in at))


def hindsight(steps: Sequence[Step]) -> Sequence[Step]:
    """Return the steps of one lifecycle, each with the edges alone that agree with the steps after it and before it.

    Where a single edge goes on, it is taken rather than another that would begin.

    Args:
        steps: In order.
    """
    narrowed: list[Step] = []
    next_edges: tuple[Fired, ...] = ()
    for step in reversed(steps):
        agreeing = step.narrowed(_followed(next_edges)) if next_edges else step
        narrowed.append(_going_on(agreeing))
        next_edges = narrowed[-1].fired
    narrowed.reverse()
    for at in range(1, len(narrowed)):
        if before := narrowed[at - 1].fired:
            narrowed[at] = _going_on(narrowed[at].narrowed(_following(before)))
    return narrowed


def _going_on(step: Step) -> Step:
    edges = [edge for edge in step.fired if not edge.begins]
    return step.narrowed(edges.__contains__) if len(edges) == 1 else step


def _followed(next_edges: tuple[Fired, ...]) -> Callable[[Fired], bool]:
    return lambda edge: any(one.may_follow(edge) for one in next_edges)


def _following(before: tuple[Fired, ...]) -> Callable[[Fired], bool]:
    return lambda edge: any(edge.may_follow(one) for one in before)


def silent_ways(
    rows: Mapping[str, Iterable[tuple[str, str]]], starts: Iterator[str]
) -> dict[str, tuple[tuple[str, str, str], ...]]:
    """Return the shortest way without events from where a machine surely stands to each state in which it may stand.

    Args:
        rows: For each state, the trigger and the dest of its edges without events.
        starts: The states in which it surely stands.
    """
    ways: dict[str, tuple[tuple[str, str, str], ...]] = dict.fromkeys(starts, ())
    waiting = list(ways)
    for state in waiting:  # it grows while it is walked
        for trigger, dest in rows[state]:
            if dest not in ways:
                ways[dest] = (*ways[state], (state, trigger, dest))
                waiting.append(dest)
    return ways
