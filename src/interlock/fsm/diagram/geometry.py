"""Where the things of a picture are, and how well they lie: boxes, lines and labels with coordinates.

All lengths are in pixels of the SVG's own system, x from the left and y from the top.
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
"""The sizes of text."""

CHARACTER: Final = 0.61
"""The width of a character, as a share of its size. Text is monospaced, so that its width is known without a font."""

LEADING: Final = 1.3
"""The height of a line, likewise."""


@frozen
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right side."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Its lower side."""
        return self.y + self.height

    @property
    def middle(self) -> Point:
        """Its centre."""
        return self.x + self.width / 2, self.y + self.height / 2

    def overlaps(self, other: Box) -> bool:
        """Return whether two boxes have more than a border in common."""
        return self.x < other.right and other.x < self.right and self.y < other.bottom and other.y < self.bottom


@frozen
class Text:
    """The lines of an edge's labels.

    Args:
        lines: From the top; each with its size.
    """

    lines: tuple[tuple[str, int], ...]

    @cached_property
    def width(self) -> float:
        """The width of its longest line."""
        return max(len(line) * size * CHARACTER for line, size in self.lines)

    @cached_property
    def height(self) -> float:
        """The height of all lines."""
        return sum(size * LEADING for _, size in self.lines)


@frozen
class PlacedState:
    """A state and where it stands."""

    node: Node
    box: Box


@frozen
class PlacedLabel:
    """The labels of an edge, one under another.

    Args:
        edge: Whose they are.
        text: What they say.
        box: What they cover.
        leftward: Whether the lines end at the box's right side instead of starting at its left.
    """

    edge: DrawnEdge
    text: Text
    box: Box
    leftward: bool = False


@frozen
class PlacedLine:
    """A line, or the part of one that joins another.

    Args:
        style: Its pattern.
        points: Where it runs, straight between each two.
        owner: What it is a part of; parts of the same may touch.
        arrow: Whether it ends at a state.
        rail: Whether it is a part of the main path.
    """

    style: Style
    points: tuple[Point, ...]
    owner: object = field(eq=False, repr=False)
    arrow: bool = True
    rail: bool = False

    @property
    def segments(self) -> Iterator[Box]:
        """Its straight parts, as boxes without height or without width."""
        for (x, y), (end_x, end_y) in pairwise(self.points):
            yield Box(min(x, end_x), min(y, end_y), abs(x - end_x), abs(y - end_y))


@frozen
class Layout:
    """A picture's coordinates.

    Args:
        states: Where the states stand.
        lines: What is drawn.
        labels: What is written.
        routes: The way of each edge from its state to the next, also where it runs along with others.
    """

    states: tuple[PlacedState, ...]
    lines: tuple[PlacedLine, ...]
    labels: tuple[PlacedLabel, ...]
    routes: Mapping[DrawnEdge, tuple[Point, ...]] = field(factory=dict[DrawnEdge, "tuple[Point, ...]"])


def untidiness(layout: Layout) -> float:
    """Return how bad a layout is: most of all by lines that lie on one another, then by crossings, then by length."""
    # Plain tuples, sorted: hundreds of layouts are compared for a picture, by each pair of their segments that may meet.
    levels: list[_Level] = []
    uprights: list[_Upright] = []
    length = 0.0
    for line in layout.lines:
        owner = line.owner
        for (x, y), (end_x, end_y) in pairwise(line.points):
            if y == end_y:
                levels.append((y, min(x, end_x), max(x, end_x), owner))
            else:
                uprights.append((x, min(y, end_y), max(y, end_y), owner))
            length += abs(y - end_y)
    return 100 * _lying(levels) + _crossing(levels, uprights) + length / 10_000


_Level: TypeAlias = tuple[float, float, float, object]
"""A level part of a line: its height, where it begins and ends, and its owner."""

_Upright: TypeAlias = tuple[float, float, float, object]
"""An upright part: its place from the left, its upper and lower end, and its owner."""


def _lying(levels: list[_Level]) -> int:
    """Count the level parts of different owners that lie on one another."""
    levels.sort(key=itemgetter(0))
    found = 0
    for at, (height, start, end, owner) in enumerate(levels):
        for other_height, other_start, other_end, other in islice(levels, at + 1, None):
            if other_height - height >= EVENT_SIZE:
                break
            found += start < other_end and other_start < end and owner is not other
    return found


def _crossing(levels: Iterable[_Level], uprights: list[_Upright]) -> int:
    """Count the level parts that cross an upright one of a different owner."""
    uprights.sort(key=itemgetter(0))
    places = [upright[0] for upright in uprights]
    found = 0
    for height, start, end, owner in levels:
        for _, upper, lower, other in islice(uprights, bisect_right(places, start), bisect_left(places, end)):
            found += upper < height < lower and owner is not other
    return found
