"""The layout of a picture: from a plan to coordinates.

Labels cannot lie on one another or on lines, by construction: a lane's label has a strip of its state's side for itself, a
rail's has the gap between two states, and the tracks run outside of both. What is left to choose, the order of lanes
and tracks, is chosen so that few lines cross.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import define, field

from interlock.fsm.diagram.geometry import (
    CHARACTER,
    EVENT_SIZE,
    STATE_SIZE,
    TRIGGER_SIZE,
    Box,
    Layout,
    PlacedLabel,
    PlacedLine,
    PlacedState,
    Point,
    Text,
    untidiness,
)
from interlock.fsm.diagram.graph import DrawnEdge, Graph, Node
from interlock.fsm.diagram.plan import Place, Plan, Side, Slot, Track, plan_of, reordered

TOP: Final = 64  # room for the title
MARGIN: Final = 24
_STATE_HEIGHT: Final = 36
_STATE_PADDING: Final = 18  # at both sides of a state's name
_RAIL: Final = 14  # of a rail, above and below its label
_PITCH: Final = 14  # between tracks, and between arrows that arrive
_APART: Final = 18  # between the states at the right
_INDENT: Final = 14  # between a state and what is written beside it
_RUN: Final = 26  # of a line that enters a state, at least, with its arrow
_LOOP: Final = 22  # how far a loop reaches out
_ABOVE: Final = 4  # between a label and the line below it
_JOIN: Final = 8  # how far a line runs along with the one that it joins
_WRAP: Final = {True: 31, False: 42}  # the characters of a line of text, with labels at both sides or at one


def lay_out(graph: Graph) -> Layout:
    """Give the layout of a graph; the same graph has the same.

    Args:
        graph: Any; it is drawn best if it has a main path and few other lines.
    """
    plan = plan_of(graph)
    texts = _texts(graph, both_sides=all(plan.tracks.values()))
    layout = _place(plan, texts)
    least, before = untidiness(layout), None
    while least != before:
        before = least
        rows: list[Place | Side] = [*plan.slots, *plan.tracks]
        for row in rows:
            for other in reordered(plan, row):
                tried = _place(other, texts)
                if (found := untidiness(tried)) < least:
                    least, layout, plan = found, tried, other
    return layout


def _texts(graph: Graph, *, both_sides: bool) -> dict[DrawnEdge, Text]:
    def sized(edge: DrawnEdge) -> Iterator[tuple[str, int]]:
        for label in edge.labels:
            triggers, events = graph.lines(label, _WRAP[both_sides])
            yield from ((line, TRIGGER_SIZE) for line in triggers)
            yield from ((line, EVENT_SIZE) for line in events)

    return {edge: Text(tuple(sized(edge))) for edge in graph.edges}


def _place(plan: Plan, texts: Mapping[DrawnEdge, Text]) -> Layout:
    placing = _Placing(plan, texts)
    placing.stand()
    placing.stand_aside()
    for track in (*plan.tracks[Side.LEFT], *plan.tracks[Side.RIGHT]):
        placing.run(track)
    return Layout(
        tuple(PlacedState(node, placing.boxes[node.name]) for node in (*plan.main, *plan.aside)),
        tuple(placing.lines),
        tuple(placing.labels),
        placing.routes,
    )


@define(eq=False)
class _Placing:
    """A layout in the making.

    Args:
        plan: What to lay out.
        texts: What is written on each edge.
        left: The main column's left side.
        right: Its right side.
        boxes: Where the states stand.
        heights: The height at which each slot touches its state.
    """

    plan: Plan
    texts: Mapping[DrawnEdge, Text]
    left: float = field(init=False)
    right: float = field(init=False)
    boxes: dict[str, Box] = field(factory=dict[str, Box])
    heights: dict[Slot, float] = field(factory=dict["Slot", float])
    lines: list[PlacedLine] = field(factory=list[PlacedLine])
    labels: list[PlacedLabel] = field(factory=list[PlacedLabel])
    routes: dict[DrawnEdge, tuple[Point, ...]] = field(factory=dict[DrawnEdge, "tuple[Point, ...]"])

    def __attrs_post_init__(self) -> None:
        """Set the main column, right of all that runs at its left."""
        tracks = self.plan.tracks[Side.LEFT]
        self.left = MARGIN + (len(tracks) * _PITCH + self._reach(Side.LEFT) if tracks else 0)
        self.right = self.left + _width(self.plan.main)

    def stand(self) -> None:
        """Stand the main column's states under one another, each as high as what touches it needs."""
        y: float = TOP
        for node in self.plan.main:
            rows = [self.plan.slots.get((node.name, side), ()) for side in Side]
            height = max(_STATE_HEIGHT, *(sum(map(self._strip, row)) + _ABOVE for row in rows))
            box = self.boxes[node.name] = Box(self.left, y, self.right - self.left, height)
            for row in rows:
                self._touch(row, box)
            y = box.bottom + self._descend(node, box)

    def _touch(self, row: Sequence[Slot], box: Box) -> None:
        """Give each slot of a state's side its height, and its loops and labels their place."""
        y = box.middle[1] - sum(map(self._strip, row)) / 2
        for slot in row:
            strip = self._strip(slot)
            if isinstance(slot, Track):
                self.heights[slot] = y + strip / 2
            elif slot.source == slot.dest:
                self._loop(slot, y + strip / 2)
            else:
                self.heights[slot] = y + strip - _ABOVE
            y += strip

    def _strip(self, slot: Slot) -> float:
        """Give the height that a slot needs of its state's side."""
        if isinstance(slot, Track):
            return _PITCH
        height = self.texts[slot].height
        return max(height, _LOOP) + 2 * _ABOVE if slot.source == slot.dest else height + 3 * _ABOVE

    def _loop(self, edge: DrawnEdge, y: float) -> None:
        half = _LOOP / 3
        points = ((self.right, y - half), (self.right + _LOOP, y - half), (self.right + _LOOP, y + half), (self.right, y + half))
        self.lines.append(PlacedLine(edge.style, points, edge))
        self.routes[edge] = points
        text = self.texts[edge]
        box = Box(self.right + _LOOP + _INDENT / 2, y - text.height / 2, text.width, text.height)
        self.labels.append(PlacedLabel(edge, text, box))

    def _descend(self, node: Node, box: Box) -> float:
        """Draw the rail that leaves a state, if one does, and give the gap to the next."""
        edge = self.plan.rails.get(node.name)
        if edge is None:
            return 2 * _APART
        text = self.texts[edge]
        gap = text.height + 2 * _RAIL
        x = box.middle[0]
        self.routes[edge] = ((x, box.bottom), (x, box.bottom + gap))
        self.lines.append(PlacedLine(edge.style, self.routes[edge], edge, rail=True))
        label = Box(x + _INDENT, box.bottom + _RAIL - _ABOVE / 2, text.width, text.height)
        self.labels.append(PlacedLabel(edge, text, label))
        return gap

    def stand_aside(self) -> None:
        """Stand the other final states at the right, each as near as can be to the lanes that lead to it."""
        rows = {node.name: self._arrivals(node) for node in self.plan.aside}
        wanted = sorted((sum(row.values()) / len(row), name) for name, row in rows.items())
        heights = [max(_STATE_HEIGHT, max(rows[name].values()) - min(rows[name].values()) + _APART) for _, name in wanted]
        middles = _spread([(at, height) for (at, _), height in zip(wanted, heights, strict=True)])
        x = self._bus(Side.RIGHT, len(self.plan.tracks[Side.RIGHT])) - _PITCH + _RUN
        for (at, name), height, middle in zip(wanted, heights, middles, strict=True):
            self.boxes[name] = Box(x, middle - height / 2, _width(self.plan.aside), height)
            self.heights.update((slot, y + middle - at) for slot, y in rows[name].items())

    def _arrivals(self, node: Node) -> dict[Track, float]:
        """Give the heights at which tracks would best arrive at a state: straight, where each is a single lane."""
        tracks = [track for track in self.plan.slots[node.name, Side.RIGHT] if isinstance(track, Track)]
        lanes = [[self.heights[lane] for lane in track.lanes] for track in tracks]
        if all(len(heights) == 1 for heights in lanes):
            return {track: height for track, (height,) in zip(tracks, lanes, strict=True)}
        middle = sum(map(sum, lanes)) / sum(map(len, lanes))
        first = middle - (len(tracks) - 1) * _PITCH / 2
        return {track: first + number * _PITCH for number, track in enumerate(tracks)}

    def run(self, track: Track) -> None:
        """Draw a track: its lanes with their labels, and the line that they merge into."""
        side, start = track.side.value, self._edge(track.side)
        end = self.boxes[track.dest].x if track.dest in {node.name for node in self.plan.aside} else start
        x = self._bus(track.side, self.plan.tracks[track.side].index(track))
        arrival = self.heights[track]
        toward = 1 if end > x else -1
        heights = sorted((self.heights[lane] for lane in track.lanes), key=lambda y: -abs(y - arrival))
        drawn: dict[bool, float] = {}
        for y in heights:
            above = y < arrival
            points: tuple[Point, ...] = ((start, y), (x, y))
            arrow = not drawn
            if abs(y - arrival) < 1:
                points = ((start, y), (end, y))
            elif above in drawn:
                points += ((x, y + max(-_JOIN, min(_JOIN, arrival - y))),)
            else:
                points += ((x, arrival), (end if arrow else x + toward * _JOIN, arrival))
            drawn[above] = y
            self.lines.append(PlacedLine(track.style, points, track, arrow=arrow))
        for lane in track.lanes:
            text, y = self.texts[lane], self.heights[lane]
            bend = () if abs(y - arrival) < 1 else ((x, y), (x, arrival))
            self.routes[lane] = ((start, y), *bend, (end, arrival if bend else y))
            left = start + _INDENT if side > 0 else start - _INDENT - text.width
            box = Box(left, y - _ABOVE - text.height, text.width, text.height)
            self.labels.append(PlacedLabel(lane, text, box, leftward=side < 0))

    def _edge(self, side: Side) -> float:
        return self.right if side is Side.RIGHT else self.left

    def _bus(self, side: Side, number: int) -> float:
        """Give the place of a side's track, counted from the inside."""
        return self._edge(side) + side.value * (self._reach(side) + number * _PITCH)

    def _reach(self, side: Side) -> float:
        """Give how far the labels of a side reach out."""
        lanes = [self.texts[lane].width for track in self.plan.tracks[side] for lane in track.lanes]
        widths = [_INDENT + width for width in lanes]
        if side is Side.RIGHT:
            loops = [slot for row in self.plan.slots.values() for slot in row if isinstance(slot, DrawnEdge)]
            widths += [_LOOP + _INDENT + self.texts[edge].width for edge in loops if edge.source == edge.dest]
            half = (self.right - self.left) / 2
            widths += [_INDENT + self.texts[edge].width - half for edge in self.plan.rails.values()]
        return max(widths, default=0) + _INDENT


def _width(nodes: Sequence[Node]) -> float:
    return max((len(node.name) for node in nodes), default=0) * STATE_SIZE * CHARACTER + 2 * _STATE_PADDING


def _spread(wanted: Sequence[tuple[float, float]]) -> Iterator[float]:
    """Give the centres of boxes in a column that are apart from one another and near to where they want to be.

    Args:
        wanted: The centre that each wants, ascending, and its height.
    """
    blocks: list[list[tuple[float, float]]] = []
    for box in wanted:
        blocks.append([box])
        while len(blocks) > 1 and _top(blocks[-2]) + _length(blocks[-2]) > _top(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    for block in blocks:
        y = _top(block)
        for _, height in block:
            yield y + height / 2
            y += height + _APART


def _length(block: Sequence[tuple[float, float]]) -> float:
    return sum(height + _APART for _, height in block)


def _top(block: Sequence[tuple[float, float]]) -> float:
    """Give the top at which the boxes of a block are, on average, where they want to be."""
    tops: list[float] = []
    above: float = 0
    for centre, height in block:
        tops.append(centre - height / 2 - above)
        above += height + _APART
    return max(TOP, sum(tops) / len(tops))
