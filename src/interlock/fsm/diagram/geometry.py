"""Boxes, lines and labels with coordinates, and the cost of a layout.

Lengths are in SVG pixels; x counts from the left and y from the top.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice, pairwise
from operator import itemgetter
from typing import Final, TypeAlias

from attrs import field, frozen

from interlock.fsm.diagram.graph import DrawnEdge, Node, Style

Point: TypeAlias = tuple[float, float]

TRIGGER_SIZE: Final = 12
EVENT_SIZE: Final = 10
STATE_SIZE: Final = 13
"""Font sizes."""

_CHARACTER: Final = 0.61
"""The width of a character relative to the font size. Text is monospaced, so its width is known without a font."""

LEADING: Final = 1.3
"""The height of a line of text relative to the font size."""


def width_of(text: str, size: int) -> float:
    """Return the width of a line of text in a font size."""
    return len(text) * size * _CHARACTER


@frozen
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """The x of the right side."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """The y of the lower side."""
        return self.y + self.height

    @property
    def middle(self) -> Point:
        """The centre."""
        return self.x + self.width / 2, self.y + self.height / 2

    def overlaps(self, other: Box) -> bool:
        """Return whether two boxes share more than a border."""
        return self.x < other.right and other.x < self.right and self.y < other.bottom and other.y < self.bottom


@frozen
class Text:
    """The text lines of an edge's labels, from the top, each with its font size."""

    lines: tuple[tuple[str, int], ...]

    @cached_property
    def width(self) -> float:
        """The width of its longest line."""
        return max(width_of(line, size) for line, size in self.lines)

    @cached_property
    def height(self) -> float:
        """The height of all lines."""
        return sum(size * LEADING for _, size in self.lines)


@frozen
class PlacedState:
    """A state and its box."""

    node: Node
    box: Box


@frozen
class PlacedLabel:
    """The labels of an edge, one below the other."""

    edge: DrawnEdge
    text: Text
    box: Box
    leftward: bool = False
    """Whether the lines are aligned with the right side of the box."""


@frozen
class PlacedLine:
    """A line, or a branch that joins another line."""

    style: Style
    points: tuple[Point, ...]
    """The ends and corners."""
    owner: object = field(eq=False, repr=False)
    """The edge or track of the line; lines of one owner may overlap."""
    arrow: bool = True
    """Whether the line ends with an arrowhead."""
    rail: bool = False
    """Whether the line is a normal line to the next state of the main column."""

    @property
    def segments(self) -> Iterator[Box]:
        """The straight segments, as boxes without height or without width."""
        for (x, y), (end_x, end_y) in pairwise(self.points):
            yield Box(min(x, end_x), min(y, end_y), abs(x - end_x), abs(y - end_y))


@frozen
class Layout:
    """The coordinates of a picture."""

    states: tuple[PlacedState, ...]
    lines: tuple[PlacedLine, ...]
    labels: tuple[PlacedLabel, ...]
    frames: Mapping[str, Box] = field(factory=dict[str, Box])
    """The frames of the regions, by name."""
    routes: Mapping[DrawnEdge, tuple[Point, ...]] = field(factory=dict[DrawnEdge, "tuple[Point, ...]"])
    """The full path of each edge from state to state, including parts that it shares with other edges."""

    @property
    def corner(self) -> Point:
        """The right and the lower end of the picture's content."""
        boxes = [*(state.box for state in self.states), *(label.box for label in self.labels), *self.frames.values()]
        boxes += [segment for line in self.lines for segment in line.segments]
        return max(box.right for box in boxes), max(box.bottom for box in boxes)


def untidiness(layout: Layout) -> float:
    """Return the cost of a layout: overlaps count most, then crossings, frame heights, and the length of vertical lines."""
    # Segments are tuples, which are fast to make and to sort: a picture compares hundreds of layouts.
    levels: list[_Segment] = []
    uprights: list[_Segment] = []
    length = 0.0
    for line in layout.lines:
        owner = line.owner
        for (x, y), (end_x, end_y) in pairwise(line.points):
            if y == end_y:
                levels.append((y, min(x, end_x), max(x, end_x), owner))
            else:
                uprights.append((x, min(y, end_y), max(y, end_y), owner))
            length += abs(y - end_y)
    height = sum(box.height for box in layout.frames.values())
    return 100 * _overlaps(levels) + _crossings(levels, uprights) + height / 200 + length / 10_000


_Segment: TypeAlias = tuple[float, float, float, object]
"""A straight segment: its y if it is horizontal or x if vertical, its start and end on the other axis, and its owner."""


def _overlaps(levels: list[_Segment]) -> int:
    """Count the pairs of horizontal segments of different owners that run less than a line of text apart."""
    levels.sort(key=itemgetter(0))
    count = 0
    for at, (height, start, end, owner) in enumerate(levels):
        for other_height, other_start, other_end, other in islice(levels, at + 1, None):
            if other_height - height >= EVENT_SIZE:
                break
            count += start < other_end and other_start < end and owner is not other
    return count


def _crossings(levels: Iterable[_Segment], uprights: list[_Segment]) -> int:
    """Count the crossings of horizontal and vertical segments of different owners."""
    uprights.sort(key=itemgetter(0))
    places = [upright[0] for upright in uprights]
    count = 0
    for height, start, end, owner in levels:
        for _, upper, lower, other in islice(uprights, bisect_right(places, start), bisect_left(places, end)):
            count += upper < height < lower and owner is not other
    return count
