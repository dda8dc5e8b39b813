"""Lays out a picture: plans the column of each state and the side of each line, and turns the plan into coordinates.

The picture looks like the track plan of a railway. The states of the main path are in the main column, most of the others in the
right column. A normal line to the next state of the main column is a *rail*. Any other line, unless it is a loop, is a
*lane*: it leaves its state sideways and joins a *track* that leads to its destination. Lanes of one style to one state share a
track on each side. Tracks run between the columns or left of both.

A region is a frame around neighbours in the main column, in the right column, or in both. The lanes of a region leave its frame.

Labels never overlap each other or a line. The label of a lane has its own strip beside the state, the label of a rail has the gap
between two states, and tracks run outside both. A frame is as wide as its columns with their labels, and its own lanes leave it
where no other line crosses its side. `lay_out` reorders lanes and tracks so that few lines cross.

Lengths are in SVG pixels; x counts from the left and y from the top.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache, cached_property
from itertools import combinations, groupby, islice, pairwise
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar

from attrs import define, evolve, field, frozen

from interlock.diagram.graph import DrawnEdge, Graph, GraphNode, LineStyle, NodeRole

# The plan.


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
    main_edges: frozenset[DrawnEdge]
    """The edges of the main path."""
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
    return Plan(main, aside, tuple(frames.values()), rails, frozenset(graph.main_edges), rows, by_side)


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


# The coordinates.

Coordinate: TypeAlias = tuple[float, float]

TRIGGER_SIZE: Final = 12
EVENT_SIZE: Final = 10
STATE_SIZE: Final = 13
"""Font sizes."""

_CHARACTER: Final = 0.61
"""The width of a character relative to the font size. Text is monospaced, so its width is known without a font."""

_LEADING: Final = 1.3
"""The height of a line of text relative to the font size."""

BASELINE: Final = 0.35
"""The distance from the middle of a line of text to its baseline, relative to the font size."""

TOP: Final = 58  # room for the title
MARGIN: Final = 24
_STATE_HEIGHT: Final = 36
_STATE_PADDING: Final = 14  # at both sides of a state's name
_RAIL: Final = 14  # the length of a rail above and below its label
_PITCH: Final = 14  # between tracks, and between arrows that arrive
_APART: Final = 18  # between two states in the right column
_INDENT: Final = 14  # between a state and its labels
_RUN: Final = 26  # the least length of a line into a state, including its arrow
_LOOP: Final = 22  # the width of a loop
_ABOVE: Final = 4  # between a label and the line below it
_TITLE: Final = 22  # the height of a frame's name
_PAD: Final = 14  # between a frame and its content
_CLEAR: Final = EVENT_SIZE - _ABOVE  # between the strip of a frame's lane and the next line below it
_JOIN: Final = 16  # how far a line overlaps the one that it joins
_WRAP: Final = {True: 31, False: 42}  # characters per line, by whether both sides have labels
_NARROW: Final = 19  # characters per line if there are frames


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
    def middle(self) -> Coordinate:
        """The centre."""
        return self.x + self.width / 2, self.y + self.height / 2


@frozen
class PlacedText:
    """The text lines of an edge's labels, from the top, each with its font size."""

    lines: tuple[tuple[str, int], ...]

    @cached_property
    def width(self) -> float:
        """The width of its longest line."""
        return max(width_of(line, size) for line, size in self.lines)

    @cached_property
    def height(self) -> float:
        """The height of all lines."""
        return sum(size * _LEADING for _, size in self.lines)


@frozen
class PlacedState:
    """A state and its box."""

    node: GraphNode
    box: Box


@frozen
class PlacedLabel:
    """The labels of an edge, one below the other."""

    edge: DrawnEdge
    text: PlacedText
    box: Box
    leftward: bool = False
    """Whether the lines are aligned with the right side of the box."""

    @property
    def rows(self) -> Iterator[tuple[Coordinate, str, int]]:
        """The start of each line of text on its baseline (the end if `leftward`), the line, and its font size."""
        y = self.box.y
        for line, size in self.text.lines:
            height = size * _LEADING
            yield (self.box.right if self.leftward else self.box.x, y + height / 2 + size * BASELINE), line, size
            y += height


@frozen
class PlacedLine:
    """A line, or a branch that joins another line."""

    style: LineStyle
    points: tuple[Coordinate, ...]
    """The ends and corners."""
    owner: object = field(eq=False, repr=False)
    """The edge or track of the line; lines of one owner may overlap."""
    arrow: bool = True
    """Whether the line ends with an arrowhead."""
    main: bool = False
    """Whether the line is on the main path."""

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
    routes: Mapping[DrawnEdge, tuple[Coordinate, ...]] = field(factory=dict[DrawnEdge, "tuple[Coordinate, ...]"])
    """The full path of each edge from state to state, including parts that it shares with other edges."""

    @property
    def merged(self) -> Iterator[tuple[PlacedLine, ...]]:
        """The lines, each with those that merge with it; these are drawn together, over a gap in the lines that they cross."""
        return (tuple(lines) for _, lines in groupby(self.lines, key=lambda line: id(line.owner)))

    @property
    def corner(self) -> Coordinate:
        """The right and the lower end of the picture's content."""
        boxes = [*(state.box for state in self.states), *(label.box for label in self.labels), *self.frames.values()]
        boxes += [segment for line in self.lines for segment in line.segments]
        return max(box.right for box in boxes), max(box.bottom for box in boxes)


@cache
def lay_out(graph: Graph) -> Layout:
    """Return the layout of a graph: reorder the lines of its plan until no change makes the layout tidier."""
    plan = plan_of(graph)
    both = all(plan.tracks.values()) or any(node.role is NodeRole.NORMAL for node in plan.aside)
    texts = _texts(graph, both_sides=both)
    layout = _place(plan, texts)
    least, previous = untidiness(layout), None
    while least != previous:
        previous = least
        rows: list[SlotPlace | Side] = [*plan.slots, *plan.tracks]
        for row in rows:
            for other in reorder(plan, row):
                candidate = _place(other, texts)
                if (cost := untidiness(candidate)) < least:
                    least, layout, plan = cost, candidate, other
    return layout


def _texts(graph: Graph, *, both_sides: bool) -> dict[DrawnEdge, PlacedText]:
    width = _NARROW if graph.regions else _WRAP[both_sides]

    def sized(edge: DrawnEdge) -> Iterator[tuple[str, int]]:
        for label in edge.labels:
            triggers, events = graph.lines(label, width)
            yield from ((line, TRIGGER_SIZE) for line in triggers)
            yield from ((line, EVENT_SIZE) for line in events)

    return {edge: PlacedText(tuple(sized(edge))) for edge in graph.edges}


def _place(plan: Plan, texts: Mapping[DrawnEdge, PlacedText]) -> Layout:
    placing = _Placing(plan, texts)
    placing.place_main_column()
    placing.place_right_column()
    placing.draw_loops()
    for track in (*plan.tracks[Side.LEFT], *plan.tracks[Side.RIGHT]):
        placing.draw_track(track)
    return Layout(
        tuple(PlacedState(node, placing.boxes[node.name]) for node in (*plan.main, *plan.aside)),
        tuple(placing.lines),
        tuple(placing.labels),
        placing.frames,
        placing.routes,
    )


@define(eq=False)
class _Placing:
    plan: Plan
    texts: Mapping[DrawnEdge, PlacedText]
    left: float = field(init=False)
    """The left side of the main column."""
    right: float = field(init=False)
    """The right side of the main column."""
    aside: float = field(init=False)
    """The left side of the right column."""
    reaches: dict[Side, float] = field(init=False)
    """The width of the labels of states and frames beyond each side of the main column."""
    spans: dict[bool, tuple[float, float]] = field(init=False)
    """The left and the right side of the frames in the main column (False) and in the right column (True)."""
    boxes: dict[str, Box] = field(factory=dict[str, Box])
    heights: dict[Slot, float] = field(factory=dict["Slot", float])
    """The y where each slot touches its state."""
    lines: list[PlacedLine] = field(factory=list[PlacedLine])
    labels: list[PlacedLabel] = field(factory=list[PlacedLabel])
    routes: dict[DrawnEdge, tuple[Coordinate, ...]] = field(factory=dict[DrawnEdge, "tuple[Coordinate, ...]"])
    frames: dict[str, Box] = field(factory=dict[str, Box])

    def __attrs_post_init__(self) -> None:
        """Place the columns with room for labels, frames and tracks."""
        main, aside = ([node.name for node in nodes] for nodes in (self.plan.main, self.plan.aside))
        width, tracks, frames = _width(main), self.plan.tracks, self.plan.frames
        names = [width_of(frame.name, TRIGGER_SIZE) + 2 * _INDENT - width / 2 for frame in frames if frame.main]
        rails = [self.texts[edge].width + 2 * _INDENT - width / 2 for edge in self.plan.rails.values()]
        left, right = max([self._label_width(main, Side.LEFT), *names]), max([self._label_width(main, Side.RIGHT), *rails])
        self.reaches = {
            Side.LEFT: left + self._label_width([frame.name for frame in frames if frame.main], Side.LEFT),
            Side.RIGHT: right + self._label_width([frame.name for frame in frames if not frame.aside], Side.RIGHT),
        }
        inner = self._label_width(aside, Side.LEFT)
        outer = self._label_width([frame.name for frame in frames if not frame.main], Side.LEFT)
        self.left = MARGIN
        if tracks[Side.LEFT] or names:
            self.left += self.reaches[Side.LEFT] + len(tracks[Side.LEFT]) * _PITCH
        self.right = self.left + width
        self.aside = self._track_x(Side.RIGHT, len(tracks[Side.RIGHT])) - _PITCH + max(_RUN, inner + outer)
        self.spans = {
            False: (self.left - left, self.right + right),
            True: (self.aside - inner, self.aside + _width(aside) + _PAD),
        }

    def _label_width(self, names: Sequence[str], side: Side) -> float:
        """Return the width of the labels beside states or frames on one side."""
        edges = [slot for name in names for slot in self.plan.slots.get((name, side), ()) if isinstance(slot, DrawnEdge)]
        widths = [_INDENT + self.texts[edge].width + (_LOOP if edge.source == edge.dest else 0) for edge in edges]
        return max(widths, default=0) + _INDENT if names else 0

    def _track_x(self, side: Side, number: int) -> float:
        """Return the x of a track by its number, counted from the inside."""
        return (self.right if side is Side.RIGHT else self.left) + side.value * (self.reaches[side] + number * _PITCH)

    def _side_x(self, name: str, side: Side) -> float:
        """Return the x where lanes leave a state or frame and tracks arrive."""
        box = self.frames.get(name) or self.boxes[name]
        return box.right if side is Side.RIGHT and box.x < self.right else box.x

    def place_main_column(self) -> None:
        """Place the states of the main column, each tall enough for its lines, and the frames around them."""
        first = {frame.main[0]: frame for frame in self.plan.frames if frame.main}
        last = {frame.main[-1]: frame for frame in self.plan.frames if frame.main}
        y: float = TOP
        top: float = TOP
        below = [node.name for node in self.plan.main[1:]]
        for node, following in zip(self.plan.main, [*below, ""], strict=True):
            if node.name in first:
                y += _TITLE
                top = y
            rows = [self.plan.slots.get((node.name, side), ()) for side in Side]
            height = max(_STATE_HEIGHT, *(sum(map(self._slot_height, row)) + _ABOVE for row in rows))
            box = self.boxes[node.name] = Box(self.left, y, self.right - self.left, height)
            for row in rows:
                self._place_slots(row, box)
            y = box.bottom
            if node.name in last:
                y = self._place_frame(last[node.name], top, y)
            y = self._draw_rail(node, box, y, _TITLE if following in first else 0)

    def _place_slots(self, row: Sequence[Slot], box: Box) -> None:
        y = box.middle[1] - sum(map(self._slot_height, row)) / 2
        for slot in row:
            y = self._place_slot(slot, y)

    def _place_slot(self, slot: Slot, y: float) -> float:
        """Place a slot below y, and return the y of its end."""
        end = y + self._slot_height(slot)
        self.heights[slot] = (y + end) / 2 if isinstance(slot, Track) or slot.source == slot.dest else end - _ABOVE
        return end

    def _slot_height(self, slot: Slot) -> float:
        if isinstance(slot, Track):
            return _PITCH
        height = self.texts[slot].height
        return max(height, _LOOP) + 2 * _ABOVE if slot.source == slot.dest else height + 2.5 * _ABOVE

    def draw_loops(self) -> None:
        """Draw the lines that return to their states and frames."""
        loops = [
            (slot, self._side_x(name, side), side)
            for (name, side), row in self.plan.slots.items()
            for slot in row
            if isinstance(slot, DrawnEdge) and slot.source == slot.dest
        ]
        for edge, near, side in loops:
            far, y = near + side.value * _LOOP, self.heights[edge]
            points = ((near, y - _LOOP / 3), (far, y - _LOOP / 3), (far, y + _LOOP / 3), (near, y + _LOOP / 3))
            self.lines.append(PlacedLine(edge.style, points, edge))
            self.routes[edge] = points
            self._place_labels(edge, far + side.value * _INDENT / 2, y - self.texts[edge].height / 2, side)

    def _place_labels(self, edge: DrawnEdge, x: float, y: float, side: Side) -> None:
        """Place the labels of an edge outwards from x."""
        text, leftward = self.texts[edge], side is Side.LEFT
        box = Box(x - text.width if leftward else x, y, text.width, text.height)
        self.labels.append(PlacedLabel(edge, text, box, leftward=leftward))

    def _draw_rail(self, node: GraphNode, box: Box, y: float, title: float) -> float:
        """Draw the rail that leaves a state, if any, with its label below y. Return the end of the gap to the next state."""
        edge = self.plan.rails.get(node.name)
        if edge is None:
            return y + 2 * _APART
        text = self.texts[edge]
        end = y + text.height + 2 * _RAIL
        x = box.middle[0]
        self.routes[edge] = ((x, box.bottom), (x, end + title))
        self.lines.append(PlacedLine(edge.style, self.routes[edge], edge, main=edge in self.plan.main_edges))
        label = Box(x + _INDENT, y + _RAIL - _ABOVE / 2, text.width, text.height)
        self.labels.append(PlacedLabel(edge, text, label))
        return end

    def _place_frame(self, frame: Frame, top: float, bottom: float) -> float:
        """Place the frame around the states between two heights, and its slots. Return the y of its lower side."""
        if frame.main and frame.aside:
            bottom = max(bottom, top + self._place_stack(frame, 0))
        sides = [(side, self.plan.slots.get((frame.name, side), ())) for side in Side]
        bottom = max(bottom, *(self._place_frame_slots(row, frame, side, top, bottom) for side, row in sides)) + _PAD
        left, right = self.spans[not frame.main][0], self.spans[bool(frame.aside)][1]
        self.frames[frame.name] = Box(left, top - _TITLE, right - left, bottom - top + _TITLE)
        return bottom

    def _place_frame_slots(self, row: Sequence[Slot], frame: Frame, side: Side, top: float, bottom: float) -> float:
        """Place the slots of a frame as low as possible between the lines that cross its side. Return the y of their end."""
        states = frame.main or frame.aside
        lines = [self.heights[slot] for name in states for slot in self.plan.slots.get((name, side), ()) if slot in self.heights]
        start = bottom
        y = bottom + 1
        while y > bottom and start > top:
            start -= _ABOVE
            y = start
            for slot in row:
                strip = self._slot_height(slot)
                while crossing := [line for line in lines if y - _ABOVE < line < y + strip + _CLEAR]:
                    y = max(crossing) + _ABOVE
                y = self._place_slot(slot, y)
        return y

    def place_right_column(self) -> None:
        """Place the states of the right column, each as near as possible to the states connected to it."""
        around = [frame for frame in self.plan.frames if frame.aside]
        framed = {name for frame in around for name in frame.aside}
        alone = [Frame("", (), (node.name,)) for node in self.plan.aside if node.name not in framed]
        floor: float = TOP
        for frame in (frame for frame in around if frame.main):
            box = self.frames[frame.name]
            self._place_stack(frame, (box.y + _TITLE + box.bottom - _PAD - self._place_stack(frame, 0)) / 2)
            floor = box.bottom + _APART
        targets = sorted((self._connected_y(frame), frame.aside, frame) for frame in (*alone, *around) if not frame.main)
        boxes = [(target, self._place_stack(frame, 0)) for target, _, frame in targets]
        for (_, _, frame), (_, height), middle in zip(targets, boxes, _spread(boxes, floor), strict=True):
            self._place_stack(frame, middle - height / 2)

    def _place_stack(self, frame: Frame, top: float) -> float:
        """Place a frame's states of the right column, and the frame itself if it has no other states. Return the height."""
        framed = bool(frame.name) and not frame.main
        y = top + _TITLE if framed else top
        start = y
        heights = [self._state_height(name) for name in frame.aside]
        lanes = self.plan.slots.get((frame.name, Side.LEFT), ())
        more = max(0, sum(map(self._slot_height, lanes)) - sum(heights)) / len(heights) if framed else 0
        for name, height in zip(frame.aside, heights, strict=True):
            box = self.boxes[name] = Box(self.aside, y, self.spans[True][1] - _PAD - self.aside, height + more)
            self._place_slots(self.plan.slots[name, Side.LEFT], box)
            straight = self._aligned_slots(name)
            if all(box.y + _ABOVE < at < box.bottom - _ABOVE for at in straight.values()):
                self.heights.update(straight)
            y = box.bottom + _APART
        return (self._place_frame(frame, start, y - _APART) if framed else y - _APART) - top

    def _connected_y(self, frame: Frame) -> float:
        """Return the average y of the lines that connect a frame or state with the main column."""
        near: list[float] = []
        for slot in [slot for name in (*frame.aside, frame.name) for slot in self.plan.slots.get((name, Side.LEFT), ())]:
            ends = slot.lanes if isinstance(slot, Track) else [t for t in self.plan.tracks[Side.RIGHT] if slot in t.lanes]
            near += [self.heights[end] for end in ends if end in self.heights]
        top, bottom = self.boxes[self.plan.main[0].name].y, self.boxes[self.plan.main[-1].name].bottom
        return sum(near) / len(near) if near else (top + bottom) / 2

    def _state_height(self, name: str) -> float:
        straight = self._aligned_slots(name).values()
        if straight:
            return max(_STATE_HEIGHT, max(straight) - min(straight) + _APART)
        return max(_STATE_HEIGHT, sum(map(self._slot_height, self.plan.slots[name, Side.LEFT])) + _ABOVE)

    def _aligned_slots(self, name: str) -> dict[Slot, float]:
        """Return the y of each slot of a state outside of frames if all are single lanes from the main column, else nothing."""
        straight = dict[Slot, float]()
        main = {node.name for node in self.plan.main}
        for slot in self.plan.slots[name, Side.LEFT]:
            lanes = slot.lanes if isinstance(slot, Track) else ()
            if len(lanes) != 1 or lanes[0].source not in main or any(name in frame.aside for frame in self.plan.frames):
                return {}
            straight[slot] = self.heights[lanes[0]]
        return straight

    def draw_track(self, track: Track) -> None:
        """Draw a track: its lanes, their labels, and the line into which they merge."""
        x = self._track_x(track.side, self.plan.tracks[track.side].index(track))
        end, arrival = self._side_x(track.dest, track.side), self.heights[track]
        toward = 1 if end > x else -1
        lanes = sorted(track.lanes, key=lambda lane: -abs(self.heights[lane] - arrival))
        drawn: set[bool] = set()
        for lane in lanes:
            start, y = self._side_x(lane.source, track.side), self.heights[lane]
            above, arrow = y < arrival, not drawn
            points: tuple[Coordinate, ...] = ((start, y), (x, y))
            if abs(y - arrival) < 1:
                points = ((start, y), (end, y))
            elif above in drawn:
                points += ((x, y + max(-_JOIN, min(_JOIN, arrival - y))),)
            else:
                points += ((x, arrival), (end if arrow else x + toward * _JOIN, arrival))
            drawn.add(above)
            self.lines.append(PlacedLine(track.style, points, track, arrow=arrow))
            bend = () if abs(y - arrival) < 1 else ((x, y), (x, arrival))
            self.routes[lane] = ((start, y), *bend, (end, arrival if bend else y))
            outward = Side.RIGHT if x > start else Side.LEFT
            self._place_labels(lane, start + outward.value * _INDENT, y - _ABOVE - self.texts[lane].height, outward)
        main = (self.routes[lane] for lane in lanes if lane in self.plan.main_edges)
        self.lines += [PlacedLine(track.style, route, track, main=True) for route in main]


def _width(names: Iterable[str]) -> float:
    return max((width_of(name, STATE_SIZE) for name in names), default=0) + 2 * _STATE_PADDING


def _spread(targets: Sequence[tuple[float, float]], floor: float = TOP) -> Iterator[float]:
    """Yield the centres of boxes, near their targets but apart. Each target is a centre and a height, in ascending order."""
    blocks: list[list[tuple[float, float]]] = []
    for box in targets:
        blocks.append([box])
        while len(blocks) > 1 and _top(blocks[-2], floor) + _length(blocks[-2]) > _top(blocks[-1], floor):
            last = blocks.pop()
            blocks[-1] += last
    for block in blocks:
        y = _top(block, floor)
        for _, height in block:
            yield y + height / 2
            y += height + _APART


def _length(block: Sequence[tuple[float, float]]) -> float:
    return sum(height + _APART for _, height in block)


def _top(block: Sequence[tuple[float, float]], floor: float) -> float:
    """Return the top of a block whose boxes are at their targets on average, but not above the floor."""
    tops: list[float] = []
    above: float = 0
    for centre, height in block:
        tops.append(centre - height / 2 - above)
        above += height + _APART
    return max(floor, sum(tops) / len(tops))


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
