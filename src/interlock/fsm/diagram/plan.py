"""The plan of a picture: which state stands where, and which way each line goes; no coordinates yet.

The picture is a track plan. The way to the good end runs straight down the main column. All other states stand beside it, in a
column of their own at the right: detours, and the ends that are not the good one. A line from a state of the way to the next is
a *rail*. Any other line leaves its state sideways as a *lane* and runs into a *track*, which all lanes of one style to one
state share: they merge as on a railway, and arrive together. Tracks run between the two columns, or left of both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import combinations, pairwise
from typing import TypeAlias, TypeVar

from attrs import evolve, frozen

from interlock.fsm.diagram.graph import DrawnEdge, Graph, Node, Style


class Side(Enum):
    """Where a lane leaves its state, and the direction in which x grows from there."""

    LEFT = -1
    RIGHT = 1


@frozen(eq=False)
class Track:
    """Lanes of one style to one state.

    Args:
        dest: The state they arrive at.
        style: Their pattern.
        side: The side of the main column on which it runs.
        lanes: At least one.
    """

    dest: str
    style: Style
    side: Side
    lanes: tuple[DrawnEdge, ...]


Slot: TypeAlias = DrawnEdge | Track
"""What touches a state's side at a height of its own: a lane or loop that leaves it, or a track that arrives."""

Place: TypeAlias = tuple[str, Side]
"""A state's side. A state at the right is touched at its left alone."""

X = TypeVar("X")


@frozen(eq=False)
class Plan:
    """A plan.

    Args:
        main: The states of the main column, from the top.
        aside: The states at the right.
        rails: The straight lines of the main column, by the state that they leave.
        slots: What touches each side of a state, from the top.
        tracks: The tracks of each side, from the inside.
    """

    main: tuple[Node, ...]
    aside: tuple[Node, ...]
    rails: Mapping[str, DrawnEdge]
    slots: Mapping[Place, tuple[Slot, ...]]
    tracks: Mapping[Side, tuple[Track, ...]]


def plan_of(graph: Graph) -> Plan:
    """Return the plan of a graph, everything in the order of its declaration.

    Args:
        graph: Any.
    """
    nodes = {node.name: node for node in graph.nodes}
    main = tuple(nodes[name] for name in graph.way)
    aside = tuple(node for node in graph.nodes if node not in main)
    below = {upper.name: lower.name for upper, lower in pairwise(main)}
    rails = {edge.source: edge for edge in graph.edges if edge.style is Style.NORMAL and edge.dest == below.get(edge.source)}
    tracks = tuple(_tracks(graph, rails, graph.way, {node.name for node in aside}))
    return Plan(main, aside, rails, _slots(graph, tracks, graph.way), _by_side(tracks))


def reordered(plan: Plan, row: Place | Side) -> Iterator[Plan]:
    """Yield the plans that differ from one in that two of a row have changed places, or one was moved.

    Args:
        plan: The one.
        row: The slots of a place, or the tracks of a side.
    """
    if isinstance(row, Side):
        return (evolve(plan, tracks={**plan.tracks, row: order}) for order in _orders(plan.tracks[row]))
    return (evolve(plan, slots={**plan.slots, row: order}) for order in _orders(plan.slots[row]))


def _orders(row: tuple[X, ...]) -> Iterator[tuple[X, ...]]:
    for first, last in combinations(range(len(row)), 2):
        swapped = [*row]
        swapped[first], swapped[last] = row[last], row[first]
        yield tuple(swapped)
        yield (*row[:first], *row[first + 1 : last + 1], row[first], *row[last + 1 :])
        yield (*row[:first], row[last], *row[first:last], *row[last + 1 :])


def _tracks(graph: Graph, rails: Mapping[str, DrawnEdge], main: Sequence[str], aside: Collection[str]) -> Iterator[Track]:
    lanes: dict[tuple[str, Style, Side], list[DrawnEdge]] = {}
    for edge in graph.edges:
        if edge.source != edge.dest and rails.get(edge.source) is not edge:
            lanes.setdefault((edge.dest, edge.style, _side(edge, main, aside)), []).append(edge)
    for (dest, style, side), edges in lanes.items():
        yield Track(dest, style, side, tuple(edges))


def _side(edge: DrawnEdge, main: Sequence[str], aside: Collection[str]) -> Side:
    """Return the right for what leaves or enters a state aside; where there is none, it is free for the way back up."""
    if edge.source in aside or edge.dest in aside:
        return Side.RIGHT
    upwards = main.index(edge.dest) < main.index(edge.source)
    return Side.RIGHT if upwards and not aside else Side.LEFT


def _slots(graph: Graph, tracks: Iterable[Track], main: Collection[str]) -> dict[Place, tuple[Slot, ...]]:
    slots: dict[Place, list[Slot]] = {}

    def touch(state: str, side: Side, slot: Slot) -> None:
        slots.setdefault((state, side if state in main else Side.LEFT), []).append(slot)

    for edge in graph.edges:
        if edge.source == edge.dest:
            touch(edge.source, Side.RIGHT, edge)
    for track in tracks:
        for edge in track.lanes:
            touch(edge.source, track.side, edge)
        touch(track.dest, track.side, track)
    return {place: tuple(row) for place, row in slots.items()}


def _by_side(tracks: Sequence[Track]) -> dict[Side, tuple[Track, ...]]:
    return {side: tuple(track for track in tracks if track.side is side) for side in Side}
