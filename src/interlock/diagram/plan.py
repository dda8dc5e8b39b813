"""The plan of a picture: the column of each state and the side of each line, without coordinates.

The picture looks like the track plan of a railway. The main path runs straight down the main column, and all other states stand
in the right column. A normal line to the next state of the main column is a *rail*. Any other line, unless it is a loop, is a
*lane*: it leaves its state sideways and joins a *track* that leads to its destination. Lanes of one style to one state share a
track on each side. Tracks run between the columns or left of both.

A region is a frame around neighbours in the main column, in the right column, or in both. The lanes of a region leave its frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import combinations, pairwise
from typing import Final, TypeAlias, TypeVar

from attrs import evolve, frozen

from interlock.diagram.graph import DrawnEdge, Graph, GraphNode, LineStyle


class Side(Enum):
    """The side of a state where a lane leaves; the value is the sign of x in that direction."""

    LEFT = -1
    RIGHT = 1


@frozen(eq=False)
class Track:
    """One or more lanes of one style to one state."""

    dest: str
    style: LineStyle
    side: Side
    """The side of the main column where the track runs."""
    lanes: tuple[DrawnEdge, ...]


Slot: TypeAlias = DrawnEdge | Track
"""A line that touches a side of a state: a lane or loop that leaves it, or a track that arrives."""

SlotPlace: TypeAlias = tuple[str, Side]
"""A side of a state or region. Lines touch states in the right column, and frames that reach there, only on the left."""

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

    main: tuple[GraphNode, ...]
    """The states of the main column, from the top."""
    aside: tuple[GraphNode, ...]
    """The states of the right column, in no particular order."""
    frames: tuple[Frame, ...]
    """The frames, in no particular order."""
    rails: Mapping[str, DrawnEdge]
    """The rails, by the state that they leave."""
    slots: Mapping[SlotPlace, tuple[Slot, ...]]
    """The lines at each side of a state or region, from the top."""
    tracks: Mapping[Side, tuple[Track, ...]]
    """The tracks of each side, from the innermost."""


def plan_of(graph: Graph) -> Plan:
    """Return the first plan of a graph: its lines are in the order of the graph."""
    names = _main_column(graph)
    main = tuple(next(node for node in graph.nodes if node.name == name) for name in names)
    aside = tuple(node for node in graph.nodes if node not in main)
    below = dict(pairwise(names))
    rails = {edge.source: edge for edge in graph.edges if edge.style is LineStyle.NORMAL and edge.dest == below.get(edge.source)}
    frames = {
        region.name: Frame(
            region.name,
            tuple(name for name in names if name in region.states),
            tuple(name for name in region.states if name not in names),
        )
        for region in graph.regions
    }

    def side(edge: DrawnEdge) -> Side:
        """Return the side of a line: the right if it touches the right column, or leads up and that column is empty."""
        frame = frames.get(edge.source, Frame(edge.source, (edge.source,), ()))
        start = (frame.main or frame.aside)[-1]
        if start not in names or edge.dest not in names:
            return Side.RIGHT
        return Side.LEFT if aside or names.index(edge.dest) > names.index(start) else Side.RIGHT

    lanes: dict[tuple[str, LineStyle, Side], list[DrawnEdge]] = {}
    slots: dict[SlotPlace, list[Slot]] = {}

    def touch(name: str, side: Side, slot: Slot) -> None:
        reaching = frames[name].aside if name in frames else name not in names
        slots.setdefault((name, Side.LEFT if reaching else side), []).append(slot)

    for edge in graph.edges:
        if edge.source == edge.dest:
            touch(edge.source, Side.RIGHT, edge)
        elif rails.get(edge.source) is not edge:
            lanes.setdefault((edge.dest, edge.style, side(edge)), []).append(edge)
    tracks = [Track(*key, tuple(edges)) for key, edges in lanes.items()]
    for track in tracks:
        for edge in track.lanes:
            touch(edge.source, track.side, edge)
        touch(track.dest, track.side, track)
    rows = {place: tuple(row) for place, row in slots.items()}
    by_side = {each: tuple(track for track in tracks if track.side is each) for each in Side}
    return Plan(main, aside, tuple(frames.values()), rails, rows, by_side)


def _main_column(graph: Graph) -> list[str]:
    """Return the states of the main column, with the states of each region together.

    A frame around both columns has no room for a line of the region to another state in the right column, so all states of a
    region with such a line move into the main column.
    """
    names = list(graph.column or graph.main_path)
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


_CROWDED: Final = 100
"""The ends of lines in a plan from which on only near ones change places, because each placement takes tens of milliseconds."""
_NEAR: Final = 5


def reorder(plan: Plan, row: SlotPlace | Side) -> Iterator[Plan]:
    """Yield each plan that swaps two slots of a place or two tracks of a side, or moves one of them to the other's position."""
    is_crowded = sum(map(len, plan.slots.values())) > _CROWDED
    if isinstance(row, Side):
        return (evolve(plan, tracks={**plan.tracks, row: order}) for order in _orders(plan.tracks[row], is_crowded=is_crowded))
    return (evolve(plan, slots={**plan.slots, row: order}) for order in _orders(plan.slots[row], is_crowded=is_crowded))


def _orders(row: tuple[X, ...], *, is_crowded: bool) -> Iterator[tuple[X, ...]]:
    for first, last in combinations(range(len(row)), 2):
        swapped = [*row]
        swapped[first], swapped[last] = row[last], row[first]
        if last - first <= _NEAR or not is_crowded:
            yield tuple(swapped)
        if not is_crowded:
            yield (*row[:first], *row[first + 1 : last + 1], row[first], *row[last + 1 :])
            yield (*row[:first], row[last], *row[first:last], *row[last + 1 :])
