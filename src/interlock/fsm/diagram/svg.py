"""Renders a graph as a self-contained SVG picture.

The card has its own background, so it looks the same on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil, dist
from textwrap import wrap
from typing import Final
from xml.sax.saxutils import escape

from interlock.fsm.diagram.geometry import (
    CHARACTER,
    EVENT_SIZE,
    LEADING,
    STATE_SIZE,
    TRIGGER_SIZE,
    Box,
    Layout,
    PlacedLabel,
    PlacedLine,
    PlacedState,
    Point,
)
from interlock.fsm.diagram.graph import Graph, Role, Style
from interlock.fsm.diagram.layout import MARGIN, lay_out

_ROUND: Final = 8  # the radius of a corner
_LEGEND: Final = 44  # from the middle of the legend's first line to its end
_SAMPLE_WIDTH: Final = 110  # of a sample in the legend and its name
_SAMPLE_HEIGHT: Final = 22
_BESIDE: Final = 60  # the middle of the first line of a legend beside the machine
_KEY_LINE: Final = 16  # the height of a line of the key
_LEAST_WIDTH: Final = 500  # so that the legend fits
_KEY_WIDTH: Final = 38  # of a line of the key, in characters
_SINK: Final = 0.35  # from the middle of a line of text to its baseline, as a share of the font size

_COLOURS: Final = {Style.NORMAL: "#57606a", Style.CUT: "#9a6700", Style.FAIL: "#cf222e"}
_NAMES: Final = {Style.NORMAL: "normal", Style.CUT: "cut short", Style.FAIL: "failure"}

_TRIGGERS: Final = (
    ("pad", "White space, which waits for other text"),
    ("split", "Text with log probabilities where the open part has none, or the reverse"),
    ("refuse", "Text of a refusal"),
    ("summarize", "Text of a summary"),
    ("reveal", "The item has no text, because it is encrypted or withheld"),
)
"""The meaning of the less obvious triggers of lifecycles."""

_SHEET: Final = f"""
    text {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328 }}
    .card {{ fill: #ffffff; stroke: #d0d7de }}
    .title {{ font-size: 16px; font-weight: 700 }}
    .note {{ font-size: 10px; fill: #656d76 }}
    .state {{ fill: #f6f8fa; stroke: #57606a; stroke-width: 1.5 }}
    .name {{ font-size: {STATE_SIZE}px; font-weight: 600; text-anchor: middle }}
    .inner {{ fill: none; stroke-width: 1 }}
    .initial {{ fill: #ffffff; stroke: #57606a; stroke-width: 1.5; stroke-dasharray: 3 3 }}
    .good {{ fill: #dafbe1; stroke: #1a7f37 }}
    .cut-end {{ fill: #fff8c5; stroke: #9a6700 }}
    .fail-end {{ fill: #ffebe9; stroke: #cf222e }}
    .dropped {{ fill: #f6f8fa; stroke: #8c959f; stroke-dasharray: 3 3 }}
    .trigger {{ font-size: {TRIGGER_SIZE}px; font-weight: 700 }}
    .event {{ font-size: {EVENT_SIZE}px; fill: #424a53 }}
    .leftward {{ text-anchor: end }}
    .halo {{ fill: none; stroke: #ffffff; stroke-width: 6 }}
    .line {{ fill: none; stroke-width: 1.6 }}
    .rail {{ stroke-width: 2.6; stroke: #1f2328 }}
    .normal {{ stroke: {_COLOURS[Style.NORMAL]} }}
    .cut {{ stroke: {_COLOURS[Style.CUT]}; stroke-dasharray: 7 4 }}
    .fail {{ stroke: {_COLOURS[Style.FAIL]}; stroke-width: 2; stroke-dasharray: 0.1 5; stroke-linecap: round }}
    text.normal, text.cut, text.fail {{ stroke: none }}
    text.cut {{ fill: {_COLOURS[Style.CUT]} }}
    text.fail {{ fill: {_COLOURS[Style.FAIL]} }}
"""


def to_svg(graph: Graph) -> str:
    """Return the SVG picture of a graph."""
    layout = lay_out(graph)
    width, height, legend = _size(layout, graph)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
        f"<title>The lifecycle of {escape(graph.name)}</title>",
        f"<style>{_SHEET}</style>",
        f"<defs>{''.join(_arrowhead(name, colour) for name, colour in _heads())}</defs>",
        f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>',
        f'<text class="title" x="{MARGIN}" y="34">{escape(graph.name)}</text>',
        *(_path("halo", line.points) for line in layout.lines),
        *map(_line, layout.lines),
        *(shape for state in layout.states for shape in _state(state, ending(graph, state))),
        *(text for label in layout.labels for text in _label(label)),
        *_legend(graph, legend, beside=bool(_key_lines(graph))),
        *_key(graph, (legend[0], legend[1] + len(_samples(graph)) * _SAMPLE_HEIGHT + _KEY_LINE)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _size(layout: Layout, graph: Graph) -> tuple[int, int, Point]:
    """Return the width, the height, and the start of the legend: beside the machine if it has a key, else below."""
    boxes = [state.box for state in layout.states] + [label.box for label in layout.labels]
    boxes += [segment for line in layout.lines for segment in line.segments]
    right, bottom = max(box.right for box in boxes), max(box.bottom for box in boxes)
    key = _key_lines(graph)
    if not key:
        right = max(_LEAST_WIDTH, MARGIN + _length(_note(graph)), right)
        return ceil(right + MARGIN), ceil(bottom + _LEGEND + 2 * MARGIN), (MARGIN, bottom + 2 * MARGIN)
    x = right + 2 * MARGIN
    right = x + max(_length(name + meaning) for name, meaning in key)
    bottom = max(bottom, _BESIDE + len(_samples(graph)) * _SAMPLE_HEIGHT + len(key) * _KEY_LINE)
    return ceil(right + MARGIN), ceil(bottom + MARGIN), (x, _BESIDE)


def _length(text: str) -> float:
    return len(text) * EVENT_SIZE * CHARACTER


def _heads() -> Iterator[tuple[str, str]]:
    yield "rail", "#1f2328"
    yield from ((style.value, colour) for style, colour in _COLOURS.items())


def _arrowhead(name: str, colour: str) -> str:
    shape = f'<path d="M0 0L9 4L0 8z" fill="{colour}"/>'
    frame = 'refX="8.5" refY="4" markerWidth="9" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"'
    return f'<marker id="{name}" {frame}>{shape}</marker>'


def _line(line: PlacedLine) -> str:
    kind = "rail" if line.rail else line.style.value
    head = f' marker-end="url(#{kind})"' if line.arrow else ""
    return _path(f"line {kind}", line.points, head)


def _path(kind: str, points: Sequence[Point], more: str = "") -> str:
    return f'<path class="{kind}" d="{rounded(points)}"{more}/>'


def rounded(points: Sequence[Point]) -> str:
    """Return a path through points with round corners, as the `d` attribute of SVG."""
    start, *_, end = points
    path = f"M{_at(start)}"
    for (before, corner), (_, after) in pairwise(pairwise(points)):
        radius = min(_ROUND, dist(before, corner) / 2, dist(corner, after) / 2)
        path += f"L{_at(_toward(corner, before, radius))}Q{_at(corner)} {_at(_toward(corner, after, radius))}"
    return f"{path}L{_at(end)}"


def _toward(start: Point, end: Point, length: float) -> Point:
    share = length / dist(start, end)
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


def _at(point: Point) -> str:
    return " ".join(map(_short, point))


def _short(length: float) -> str:
    return f"{length:.1f}".removesuffix(".0")


def ending(graph: Graph, state: PlacedState) -> str:
    """Return the class of a final state: `good` at the end of the main path, else by the worst line into it."""
    if state.node.role is Role.DROPPED:
        return "dropped"
    if state.node.name == graph.way[-1]:
        return "good"
    styles = {edge.style for edge in graph.edges if edge.dest == state.node.name}
    return "fail-end" if Style.FAIL in styles else "good" if Style.NORMAL in styles else "cut-end"


def _state(state: PlacedState, end: str) -> Iterator[str]:
    x, y = state.box.middle
    match state.node.role:
        case Role.INITIAL:
            yield _rect("initial", state.box, 0, _ROUND)
        case Role.NORMAL:
            yield _rect("state", state.box, 0, _ROUND)
        case _:
            yield _rect(end, state.box, 0, _ROUND + 2)
            yield _rect(f"{end} inner", state.box, 3.5, _ROUND - 1)
    yield f'<text class="name" x="{_short(x)}" y="{_short(y + STATE_SIZE * _SINK)}">{escape(state.node.name)}</text>'


def _rect(kind: str, box: Box, inset: float, radius: float) -> str:
    x, y, width, height = (
        _short(value) for value in (box.x + inset, box.y + inset, box.width - 2 * inset, box.height - 2 * inset)
    )
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{_short(radius)}"/>'


def _label(label: PlacedLabel) -> Iterator[str]:
    """Yield the lines of a label, with the wire names as a tooltip."""
    x = _short(label.box.right if label.leftward else label.box.x)
    y = label.box.y
    leftward = " leftward" if label.leftward else ""
    tooltip = "\n".join(f"{', '.join(one.triggers)}: {', '.join(one.events) or 'no event'}" for one in label.edge.labels)
    yield f"<g><title>{escape(tooltip)}</title>"
    for line, size in label.text.lines:
        middle = y + size * LEADING / 2
        y += size * LEADING
        kind = f"trigger {label.edge.style.value}" if size == TRIGGER_SIZE else "event"
        yield f'<text class="{kind}{leftward}" x="{x}" y="{_short(middle + size * _SINK)}">{escape(line)}</text>'
    yield "</g>"


def _samples(graph: Graph) -> list[Style | None]:
    """Return the entries of the legend: the styles of lines, and None for the border of a final state."""
    finals: list[Style | None] = [None] if any(node.role is Role.FINAL for node in graph.nodes) else []
    return [*dict.fromkeys(edge.style for edge in graph.edges), *finals]


def _legend(graph: Graph, start: Point, *, beside: bool) -> Iterator[str]:
    x, y = start
    for style in _samples(graph):
        if style is None:
            box = Box(x, y - 8, 34, 16)
            yield from (_rect("state", box, 0, 5), _rect("state inner", box, 2.5, 3))
        else:
            yield _path(f"line {style.value}", ((x, y), (x + 34, y)), f' marker-end="url(#{style.value})"')
        name = "final" if style is None else _NAMES[style]
        yield f'<text class="note" x="{_short(x + 42)}" y="{_short(y + 3.5)}">{name}</text>'
        x, y = (x, y + _SAMPLE_HEIGHT) if beside else (x + _SAMPLE_WIDTH, y)
    if not beside and (note := _note(graph)):
        yield f'<text class="note" x="{MARGIN}" y="{_short(y + 28)}">{escape(note)}</text>'


def _key_lines(graph: Graph) -> list[tuple[str, str]]:
    """Return the lines of the key, each a padded name and a meaning: of the effects, or of the less obvious triggers."""
    labels = [label for edge in graph.edges for label in edge.labels]
    used = {name for label in labels for name in (label.events if graph.key else label.triggers)}
    meanings = [(name, meaning.replace("`", "")) for name, meaning in graph.key or _TRIGGERS if name in used]
    if not meanings:
        return []
    width = max(len(name) for name, _ in meanings) + 2
    lines = [(name if part == 0 else "", line) for name, text in meanings for part, line in enumerate(wrap(text, _KEY_WIDTH))]
    notes = [("", line) for part in filter(None, _note(graph).split(" · ")) for line in wrap(part, width + _KEY_WIDTH)]
    return [*notes, *((name.ljust(width), line) for name, line in lines)]


def _key(graph: Graph, start: Point) -> Iterator[str]:
    left, top = start
    for number, (name, meaning) in enumerate(_key_lines(graph)):
        y = top + number * _KEY_LINE
        x = left + len(name) * EVENT_SIZE * CHARACTER
        if name.strip():
            yield f'<text class="event" font-weight="700" x="{_short(left)}" y="{_short(y)}">{escape(name.rstrip())}</text>'
        yield f'<text class="note" x="{_short(x)}" y="{_short(y)}">{escape(meaning)}</text>'


def _note(graph: Graph) -> str:
    """Return the explanation of shortened names, or an empty string."""
    events = [event for edge in graph.edges for label in edge.labels for event in label.events]
    notes = ['names without "response."'] if any(event.startswith("response.") for event in events) else []
    if any(event.startswith("response.output_item.") for event in events):
        notes.append("added, done: output_item.added, .done")
    if any(graph.short(event).startswith(".") for event in events):
        notes.append(f".x: {graph.name}.x")
    return " · ".join(notes)
