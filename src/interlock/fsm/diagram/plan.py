"""The plan of a picture: the columns of states and the sides of lines, without coordinates.

The picture looks like a track plan. The main path runs straight down the main column, and all other states stand in a column at
the right. A line from a state of the main path to the next one is a *rail*. Any other line leaves its state sideways as a *lane*
and runs into a *track*. All lanes of one style to one state share a track. Tracks run between the columns or left of both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import combinations, pairwise
from typing import TypeAlias, TypeVar

from attrs import evolve, frozen

from interlock.fsm.diagram.graph import DrawnEdge, Graph, Node, Style


class Side(Enum):
    """The side of a state that a lane leaves; the value is the sign of x in that direction."""

    LEFT = -1
    RIGHT = 1


@frozen(eq=False)
class Track:
    """One or more lanes of one style to one state."""

    dest: str
    style: Style
    side: Side
    """The side of the main column on which it runs."""
    lanes: tuple[DrawnEdge, ...]


Slot: TypeAlias = DrawnEdge | Track
"""A line at one side of a state: a lane or loop that leaves it, or a track that arrives."""

Place: TypeAlias = tuple[str, Side]
"""A side of a state. Lines touch a state of the right column only on its left."""

X = TypeVar("X")


@frozen(eq=False)
class Plan:
    """The order of states and lines in a picture."""

    main: tuple[Node, ...]
    """The states of the main column, from the top."""
    aside: tuple[Node, ...]
    """The states of the right column, in no order."""
    rails: Mapping[str, DrawnEdge]
    """The rails by the state that they leave."""
    slots: Mapping[Place, tuple[Slot, ...]]
    """The lines at each side of a state, from the top."""
    tracks: Mapping[Side, tuple[Track, ...]]
    """The tracks of each side, from the inside."""


def plan_of(graph: Graph) -> Plan:
    """Return the plan of a graph in the order of its declaration."""
    nodes = {node.name: node for node in graph.nodes}
    main = tuple(nodes[name] for name in graph.way)
    aside = tuple(node for node in graph.nodes if node not in main)
    below = {upper.name: lower.name for upper, lower in pairwise(main)}
    rails = {edge.source: edge for edge in graph.edges if edge.style is Style.NORMAL and edge.dest == below.get(edge.source)}
    tracks = tuple(_tracks(graph, rails, graph.way, {node.name for node in aside}))
    return Plan(main, aside, rails, _slots(graph, tracks, graph.way), _by_side(tracks))


def reordered(plan: Plan, row: Place | Side) -> Iterator[Plan]:
    """Yield the plans in which two slots of a place, or two tracks of a side, are swapped or one of them is moved."""
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
    """Return the right for a line to or from the right column, and for a line upwards if that column is empty."""
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
