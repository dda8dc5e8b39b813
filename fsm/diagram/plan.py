"""The plan of a picture: which state stands where, and which way each line goes; no coordinates yet.

The picture is a track plan. The main path runs straight down a column: every state that is not final, in the order of the
declaration, and under them the final state of the good end. The other final states stand in a column of their own at the
right. A line from a state to the next one down is a *rail*. Any other line leaves its state sideways as a *lane* and
runs into a *track*, which all lanes of one style to one state share: they merge as on a railway, and arrive together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise, permutations
from typing import TypeAlias

from attrs import evolve, frozen

from interlock.fsm.diagram.graph import DrawnEdge, Graph, Node, Role, Style


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
        side: The side of the main column on which they run.
        lanes: At least one.
    """

    dest: str
    style: Style
    side: Side
    lanes: tuple[DrawnEdge, ...]


Slot: TypeAlias = DrawnEdge | Track
"""What touches a state's side at a height of its own: a lane or loop that leaves it, or a track that arrives."""

Place: TypeAlias = tuple[str, Side]
"""A state's side."""


@frozen(eq=False)
class Plan:
    """A plan.

    Args:
        main: The states of the main column, from the top.
        aside: The final states at the right.
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
    """Give the plan of a graph, everything in the order of its declaration.

    Args:
        graph: Any.
    """
    good = _good_end(graph)
    main = tuple(node for node in graph.nodes if node.role in {Role.INITIAL, Role.NORMAL})
    main += tuple(node for node in graph.nodes if node is good)
    aside = tuple(node for node in graph.nodes if node not in main)
    below = {upper.name: lower.name for upper, lower in pairwise(main)}
    rails = {edge.source: edge for edge in graph.edges if edge.style is Style.NORMAL and edge.dest == below.get(edge.source)}
    tracks = tuple(_tracks(graph, rails, [node.name for node in main], {node.name for node in aside}))
    return Plan(main, aside, rails, _slots(graph, tracks), _by_side(tracks))


def reordered(plan: Plan, row: Place | Side) -> Iterator[Plan]:
    """Give the plans that differ from one in the order of one row, itself included.

    Args:
        plan: The one.
        row: The slots of a place, or the tracks of a side.
    """
    if isinstance(row, Side):
        return (evolve(plan, tracks={**plan.tracks, row: order}) for order in permutations(plan.tracks[row]))
    return (evolve(plan, slots={**plan.slots, row: order}) for order in permutations(plan.slots[row]))


def _good_end(graph: Graph) -> Node | None:
    entered = {edge.dest for edge in graph.edges if edge.style is Style.NORMAL}
    return next((node for node in graph.nodes if node.role is Role.FINAL and node.name in entered), None)


def _tracks(graph: Graph, rails: Mapping[str, DrawnEdge], main: Sequence[str], aside: Collection[str]) -> Iterator[Track]:
    lanes: dict[tuple[str, Style, Side], list[DrawnEdge]] = {}
    for edge in graph.edges:
        if edge.source != edge.dest and rails.get(edge.source) is not edge:
            lanes.setdefault((edge.dest, edge.style, _side(edge, main, aside)), []).append(edge)
    for (dest, style, side), edges in lanes.items():
        yield Track(dest, style, side, tuple(edges))


def _side(edge: DrawnEdge, main: Sequence[str], aside: Collection[str]) -> Side:
    """Give the right to what ends aside; where nothing does, it is free for the way back up."""
    if edge.dest in aside:
        return Side.RIGHT
    upwards = main.index(edge.dest) < main.index(edge.source)
    return Side.RIGHT if upwards and not aside else Side.LEFT


def _slots(graph: Graph, tracks: Iterable[Track]) -> dict[Place, tuple[Slot, ...]]:
    slots: dict[Place, list[Slot]] = {}
    for edge in graph.edges:
        if edge.source == edge.dest:
            slots.setdefault((edge.source, Side.RIGHT), []).append(edge)
    for track in tracks:
        for edge in track.lanes:
            slots.setdefault((edge.source, track.side), []).append(edge)
        slots.setdefault((track.dest, track.side), []).append(track)
    return {place: tuple(row) for place, row in slots.items()}


def _by_side(tracks: Sequence[Track]) -> dict[Side, tuple[Track, ...]]:
    return {side: tuple(track for track in tracks if track.side is side) for side in Side}
