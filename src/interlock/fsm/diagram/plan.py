"""The plan of a picture: the columns of states and the sides of lines, without coordinates.

The picture looks like a track plan. The main path runs straight down the main column, and all other states stand in a column at
the right. A line to the next state of the main column is a *rail*. Any other line leaves its state sideways as a *lane* and runs
into a *track*. All lanes of one style to one state share a track. Tracks run between the columns or left of both.

A region is a frame around neighbours in the main column, in the right column, or around both columns. Its lanes leave the frame.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import combinations, pairwise
from typing import TypeAlias, TypeVar

from attrs import evolve, frozen

from interlock.fsm.diagram.graph import DrawnEdge, Graph, Node, Region, Style


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
"""A side of a state or region. Lines touch the states of the right column, and a frame that reaches there, only on the left."""

X = TypeVar("X")


@frozen
class Frame:
    """A region and its states in each column, from the top."""

    name: str
    main: tuple[str, ...]
    aside: tuple[str, ...]


@frozen(eq=False)
class Plan:
    """The order of states and lines in a picture."""

    main: tuple[Node, ...]
    """The states of the main column, from the top."""
    aside: tuple[Node, ...]
    """The states of the right column, in no order."""
    frames: tuple[Frame, ...]
    """The frames, in no order."""
    rails: Mapping[str, DrawnEdge]
    """The rails by the state that they leave."""
    slots: Mapping[Place, tuple[Slot, ...]]
    """The lines at each side of a state, from the top."""
    tracks: Mapping[Side, tuple[Track, ...]]
    """The tracks of each side, from the inside."""


def plan_of(graph: Graph) -> Plan:
    """Return the plan of a graph in the order of its declaration."""
    nodes = {node.name: node for node in graph.nodes}
    names = _main_column(graph)
    main = tuple(nodes[name] for name in names)
    aside = tuple(node for node in graph.nodes if node not in main)
    below = {upper.name: lower.name for upper, lower in pairwise(main)}
    rails = {edge.source: edge for edge in graph.edges if edge.style is Style.NORMAL and edge.dest == below.get(edge.source)}
    frames = tuple(_frame(region, names) for region in graph.regions)
    sides = _Sides(names, {frame.name: frame for frame in frames}, alone=not aside)
    tracks = tuple(_tracks(graph, rails, sides))
    return Plan(main, aside, frames, rails, _slots(graph, tracks, sides), _by_side(tracks))


def _main_column(graph: Graph) -> list[str]:
    """Return the states of the main column, those of each region together.

    A frame around both columns has no way to the right column, so that a region with such a line is in the main column.
    """
    names = list(graph.column or graph.way)
    for region in graph.regions:
        members = [name for name in names if name in region.states]
        if not members:
            continue
        start = names.index(members[0])
        ends = {edge.dest for edge in graph.edges if edge.source == region.name} - {*names, region.name}
        if ends:
            members = list(region.states)
        others = [name for name in names if name not in members]
        names = [*others[:start], *members, *others[start:]]
    return names


def _frame(region: Region, main: Collection[str]) -> Frame:
    return Frame(
        region.name,
        tuple(name for name in main if name in region.states),
        tuple(name for name in region.states if name not in main),
    )


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


@frozen
class _Sides:
    """The sides on which lanes leave and tracks run."""

    main: Sequence[str]
    frames: Mapping[str, Frame]
    alone: bool
    """Whether the right column is empty."""

    def of(self, edge: DrawnEdge) -> Side:
        """Return the right for a line to or from the right column, and for a line upwards if that column is empty."""
        frame = self.frames.get(edge.source)
        start = (frame.main or frame.aside)[-1] if frame else edge.source
        if not {start, edge.dest} <= {*self.main}:
            return Side.RIGHT
        if frame and frame.aside:
            return Side.LEFT
        return Side.RIGHT if self.main.index(edge.dest) <= self.main.index(start) and self.alone else Side.LEFT

    def at(self, name: str, side: Side) -> Side:
        """Return the side on which a line touches a state or frame."""
        frame = self.frames.get(name)
        return Side.LEFT if (frame.aside if frame else name not in self.main) else side


def _tracks(graph: Graph, rails: Mapping[str, DrawnEdge], sides: _Sides) -> Iterator[Track]:
    lanes: dict[tuple[str, Style, Side], list[DrawnEdge]] = {}
    for edge in graph.edges:
        if edge.source != edge.dest and rails.get(edge.source) is not edge:
            lanes.setdefault((edge.dest, edge.style, sides.of(edge)), []).append(edge)
    for (dest, style, side), edges in lanes.items():
        yield Track(dest, style, side, tuple(edges))


def _slots(graph: Graph, tracks: Iterable[Track], sides: _Sides) -> dict[Place, tuple[Slot, ...]]:
    slots: dict[Place, list[Slot]] = {}

    def touch(name: str, side: Side, slot: Slot) -> None:
        slots.setdefault((name, sides.at(name, side)), []).append(slot)

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
