"""Renders a graph as a self-contained SVG picture, in the light or the dark colours that its reader prefers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil, dist, inf
from string import Template
from textwrap import wrap
from typing import Final
from xml.sax.saxutils import escape

from interlock.diagram.graph import STYLES, Graph, LineStyle, NodeRole
from interlock.diagram.layout import (
    BASELINE,
    EVENT_SIZE,
    MARGIN,
    STATE_SIZE,
    TRIGGER_SIZE,
    Box,
    Coordinate,
    PlacedLabel,
    PlacedLine,
    PlacedState,
    lay_out,
    width_of,
)

_WIDEST: Final = 1400  # of a picture, in pixels; wider ones are scaled down
_ROUND: Final = 8  # the radius of a corner
_LEGEND: Final = 60  # the y of the legend's first line
_SAMPLE_HEIGHT: Final = 22
_KEY_LINE: Final = 13  # the height of a line of the key
_SAMPLE_WIDTH: Final = 220  # of a sample with its name
_KEY_WIDTHS: Final = range(35, 60)  # characters per line of the key; the least that keeps the key above `_LONGEST`
_LONGEST: Final = 875  # the y that the key should not exceed

_NAMES: Final = {LineStyle.NORMAL: "normal", LineStyle.CUT: "cut", LineStyle.FAIL: "failure, or failure and cut"}

_COLOURS: Final = {
    "card": ("#ffffff", "#0d1117"),
    "border": ("#d0d7de", "#30363d"),
    "ink": ("#1f2328", "#e6edf3"),
    "event": ("#424a53", "#b7c0ca"),
    "note": ("#656d76", "#8d96a0"),
    "fill": ("#f6f8fa", "#161b22"),
    "normal": ("#57606a", "#8d96a0"),
    "faint": ("#8c959f", "#6e7681"),
    "good": ("#1a7f37", "#3fb950"),
    "good_fill": ("#dafbe1", "#12261e"),
    "cut": ("#9a6700", "#d29922"),
    "cut_fill": ("#fff8c5", "#2b2111"),
    "fail": ("#cf222e", "#f85149"),
    "fail_fill": ("#ffebe9", "#2d1518"),
    "blue": ("#0969da", "#58a6ff"),
    "blue_fill": ("#ddf4ff", "#0c2d4d"),
}
"""Each colour on light and on dark pages."""


def in_both_schemes(rules: str) -> str:
    """Return CSS rules twice, in the colours of light and of dark pages; `$name` stands for a colour."""
    light, dark = (Template(rules).substitute({name: pair[scheme] for name, pair in _COLOURS.items()}) for scheme in (0, 1))
    return f"{light}@media (prefers-color-scheme: dark) {{{dark}}}\n"


_TRIGGERS: Final = (
    ("cut", "Something outside truncates it, such as the token limit"),
    ("pad", "White space, which waits for other text"),
    ("split", "Text with log probabilities where the open part has none, or the reverse"),
    ("refuse", "Text of a refusal"),
    ("summarize", "Text of a summary"),
    ("reveal", "The item has no text, because it is encrypted or withheld"),
    ("annotate", "A citation in the text"),
    ("silence", "No event for a time"),
)
"""The meanings of triggers that explain themselves least, for graphs that have no meanings of their own."""
_STATES: Final = (("dropped", "There was only white space, so no event shows the item"),)
"""The meanings of final states of which a stream shows nothing."""

_SHEET: Final = f"""
text {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }}
.title {{ font-size: 16px; font-weight: 700 }}
.note {{ font-size: 10px }}
.name {{ font-size: {STATE_SIZE}px; font-weight: 600; text-anchor: middle }}
.region {{ font-size: {TRIGGER_SIZE}px; font-weight: 600 }}
.trigger {{ font-size: {TRIGGER_SIZE}px; font-weight: 700 }}
.event {{ font-size: {EVENT_SIZE}px }}
.leftward {{ text-anchor: end }}
.state, .initial {{ stroke-width: 1.5 }}
.frame {{ fill: none; stroke-width: 1.2 }}
.initial, .dropped {{ stroke-dasharray: 3 3 }}
.halo {{ fill: none; stroke-width: 8 }}
.line {{ fill: none; stroke-width: 1.6 }}
.bold {{ stroke-width: 2.6 }}
path.cut {{ stroke-dasharray: 7 4 }}
path.fail {{ stroke-width: 2; stroke-dasharray: 0.1 5; stroke-linecap: round }}
""" + in_both_schemes("""
text { fill: $ink }
.note, .region { fill: $note }
.event { fill: $event }
.card { fill: $card; stroke: $border }
.initial { fill: $card; stroke: $normal }
.state { fill: $fill; stroke: $normal }
.frame { stroke: $faint }
.good { fill: $good_fill; stroke: $good }
.cut-end { fill: $cut_fill; stroke: $cut }
.fail-end { fill: $fail_fill; stroke: $fail }
.dropped { fill: $fill; stroke: $faint }
rect.inner { fill: none; stroke-width: 1 }
.halo { stroke: $card }
path.main { stroke: $ink }
path.normal { stroke: $normal }
path.cut { stroke: $cut }
path.fail { stroke: $fail }
#main { fill: $ink }
#normal { fill: $normal }
#cut, tspan.cut { fill: $cut }
#fail, tspan.fail { fill: $fail }
""")


def to_svg(graph: Graph, *, legend_within: float = inf) -> str:
    """Return the SVG picture of a graph.

    Args:
        graph: The graph.
        legend_within: The width in pixels that a picture with a legend at its right may have; that of a wider one is below it.
    """
    layout = lay_out(graph)
    right, bottom = layout.corner
    legend, *corner = _legend_at_right(graph, right + 1.5 * MARGIN)
    if corner[0] + MARGIN > legend_within:
        legend, *corner = _legend_below(graph, bottom + 1.5 * MARGIN)
    right, bottom = map(max, (right, bottom), corner)
    width, height = ceil(right + MARGIN), ceil(bottom + MARGIN)
    scale = min(1, _WIDEST / width)
    size = f'width="{int(width * scale)}" height="{int(height * scale)}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>The lifecycle of {escape(graph.name)}</title>",
        f"<style>{_SHEET}</style>",
        f"<defs>{''.join(map(_arrowhead, ('main', *(style.value for style in LineStyle))))}</defs>",
        f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>',
        f'<text class="title" x="{MARGIN}" y="34">{escape(graph.name)}</text>',
        *(shape for name, box in layout.frames.items() for shape in _frame(name, box)),
        *(path for lines in layout.merged for path in (*(_path("halo", line.points) for line in lines), *map(_line, lines))),
        *(shape for state in layout.states for shape in _state(state, ending(graph, state))),
        *(text for label in layout.labels for text in _label(label)),
        *legend,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _frame(name: str, box: Box) -> Iterator[str]:
    yield _rect("frame", box, 0, _ROUND + 2)
    yield f'<text class="region" x="{_number(box.x + 10)}" y="{_number(box.y + 16)}">{escape(name)}</text>'


def _arrowhead(name: str) -> str:
    frame = 'refX="8.5" refY="4" markerWidth="9" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"'
    return f'<marker id="{name}" {frame}><path d="M0 0L9 4L0 8z"/></marker>'


def _line(line: PlacedLine) -> str:
    kind = "main" if line.main and line.style is LineStyle.NORMAL else line.style.value
    head = f' marker-end="url(#{kind})"' if line.arrow else ""
    return _path(f"line {kind}{' bold' if line.main else ''}", line.points, head)


def _path(kind: str, points: Sequence[Coordinate], more: str = "") -> str:
    return f'<path class="{kind}" d="{round_off(points)}"{more}/>'


def round_off(points: Sequence[Coordinate]) -> str:
    """Return the `d` attribute of an SVG path along points, with round corners."""
    start, *_, end = points
    path = f"M{_point(start)}"
    for (before, corner), (_, after) in pairwise(pairwise(points)):
        radius = min(_ROUND, dist(before, corner) / 2, dist(corner, after) / 2)
        path += f"L{_point(_toward(corner, before, radius))}Q{_point(corner)} {_point(_toward(corner, after, radius))}"
    return f"{path}L{_point(end)}"


def _toward(start: Coordinate, end: Coordinate, length: float) -> Coordinate:
    share = length / dist(start, end)
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


def _point(point: Coordinate) -> str:
    return " ".join(map(_number, point))


def _number(length: float) -> str:
    return f"{length:.1f}".removesuffix(".0")


def ending(graph: Graph, state: PlacedState) -> str:
    """Return the CSS class of a final state.

    It is `dropped` for a dropped state and `good` for the end of the main path. Otherwise the lines into the state decide: a
    failure gives `fail-end`, else a normal line gives `good`, else it is `cut-end`.
    """
    if state.node.role is NodeRole.DROPPED:
        return "dropped"
    if state.node.name == graph.main_path[-1]:
        return "good"
    styles = {edge.style for edge in graph.edges if edge.dest == state.node.name}
    return "fail-end" if LineStyle.FAIL in styles else "good" if LineStyle.NORMAL in styles else "cut-end"


def _state(state: PlacedState, end: str) -> Iterator[str]:
    x, y = state.box.middle
    match state.node.role:
        case NodeRole.INITIAL:
            yield _rect("initial", state.box, 0, _ROUND)
        case NodeRole.NORMAL:
            yield _rect("state", state.box, 0, _ROUND)
        case _:
            yield _rect(end, state.box, 0, _ROUND + 2)
            yield _rect(f"{end} inner", state.box, 3.5, _ROUND - 1)
    yield f'<text class="name" x="{_number(x)}" y="{_number(y + STATE_SIZE * BASELINE)}">{escape(state.node.name)}</text>'


def _rect(kind: str, box: Box, inset: float, radius: float) -> str:
    x, y, width, height = (
        _number(value) for value in (box.x + inset, box.y + inset, box.width - 2 * inset, box.height - 2 * inset)
    )
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{_number(radius)}"/>'


def _label(label: PlacedLabel) -> Iterator[str]:
    """Yield the elements of a label, with full wire names in a tooltip."""
    leftward = " leftward" if label.leftward else ""
    tooltip = "\n".join(f"{', '.join(one.triggers)}: {', '.join(one.events) or 'no event'}" for one in label.edge.labels)
    yield f"<g><title>{escape(tooltip)}</title>"
    for (x, y), line, size in label.rows:
        kind, text = ("trigger", _colour(line)) if size == TRIGGER_SIZE else ("event", escape(line))
        yield f'<text class="{kind}{leftward}" x="{_number(x)}" y="{_number(y)}">{text}</text>'
    yield "</g>"


def _colour(triggers: str) -> str:
    words = triggers.split(" ")
    return " ".join(
        f'<tspan class="{style.value}">{escape(word)}</tspan>' if (style := STYLES.get(word.rstrip(","))) else escape(word)
        for word in words
    )


def _legend_at_right(graph: Graph, left: float) -> tuple[list[str], float, float]:
    """Return the elements of the legend, and its right and lower end: the samples above the key."""
    samples, bottom = _samples(graph, left, _LEGEND)
    top = bottom + _SAMPLE_HEIGHT / 2
    keys = [_key(graph, width) for width in _KEY_WIDTHS]
    key = next((key for key in keys if top + len(key) * _KEY_LINE < _LONGEST), keys[-1])
    lines, right, bottom = _placed(key, left, top)
    return [*samples, *lines], max(left + _SAMPLE_WIDTH, right), bottom


def _legend_below(graph: Graph, top: float) -> tuple[list[str], float, float]:
    """Return the same for a place below the picture: the key beside the samples, if the graph has no meanings of its own.

    Those may be many, and the pages have them as tables.
    """
    samples, bottom = _samples(graph, MARGIN, top)
    key = [] if graph.triggers else _key(graph, _KEY_WIDTHS[-1])
    lines, right, key_bottom = _placed(key, 2 * MARGIN + _SAMPLE_WIDTH, top)
    return [*samples, *lines], right, max(bottom - _SAMPLE_HEIGHT, key_bottom)


def _placed(key: Sequence[tuple[str, str]], left: float, top: float) -> tuple[list[str], float, float]:
    """Return the elements of a key, and its right and lower end."""
    parts = list[str]()
    for number, (name, meaning) in enumerate(key):
        x, y = _number(left + width_of(name, EVENT_SIZE)), _number(top + number * _KEY_LINE)
        if name.strip():
            parts.append(f'<text class="event" font-weight="700" x="{_number(left)}" y="{y}">{escape(name.rstrip())}</text>')
        parts.append(f'<text class="note" x="{x}" y="{y}">{escape(meaning)}</text>')
    right = max((left + width_of(name + meaning, EVENT_SIZE) for name, meaning in key), default=left)
    return parts, right, top + (len(key) - 1) * _KEY_LINE


def _samples(graph: Graph, x: float, y: float) -> tuple[list[str], float]:
    """Return samples of the line styles in use, of a final state and of a frame, each with its name, and where they end."""
    parts = list[str]()

    def add(name: str, *shapes: str) -> None:
        nonlocal y
        parts.extend((*shapes, f'<text class="note" x="{_number(x + 42)}" y="{_number(y + 3.5)}">{name}</text>'))
        y += _SAMPLE_HEIGHT

    used = {STYLES.get(name, LineStyle.NORMAL) for edge in graph.edges for label in edge.labels for name in label.triggers}
    for style in (style for style in LineStyle if style in used):
        add(_NAMES[style], _path(f"line {style.value}", ((x, y), (x + 34, y)), f' marker-end="url(#{style.value})"'))
    if any(node.role is NodeRole.FINAL for node in graph.nodes):
        box = Box(x, y - 8, 34, 16)
        add("final state", _rect("state", box, 0, 5), _rect("state inner", box, 2.5, 3))
    if graph.regions:
        line = _path("line normal", ((x + 18, y), (x + 34, y)), ' marker-end="url(#normal)"')
        add("from every state in the frame", _rect("frame", Box(x, y - 8, 18, 16), 0, 5), line)
    return parts, y


def _key(graph: Graph, width: int) -> list[tuple[str, str]]:
    """Return the lines of the key, each a padded name and text: notes, then the meanings of triggers, effects and states."""
    labels = [label for edge in graph.edges for label in edge.labels]
    triggers = {name for label in labels for name in label.triggers}
    effects = {name for label in labels for name in label.events}
    lines = [("", line) for note in _notes(graph) for line in wrap(note, width)]
    sections = (
        ("triggers", graph.triggers or _TRIGGERS, triggers),
        ("effects", graph.key, effects),
        ("states", _STATES, {node.name for node in graph.nodes}),
    )
    for title, meanings, used in sections:
        rows = [(name, wrap(meaning.replace("`", ""), width)) for name, meaning in meanings if name in used]
        indent = max((len(name) + 2 for name, _ in rows), default=0)
        lines += [("", ""), ("", title)] if rows else []
        lines += [((name if number == 0 else "").ljust(indent), line) for name, text in rows for number, line in enumerate(text)]
    return lines


def _notes(graph: Graph) -> Iterator[str]:
    """Yield the notes that explain shortened names."""
    events = [event for edge in graph.edges for label in edge.labels for event in label.events]
    if any(event.startswith("response.") for event in events):
        yield 'names without "response."'
    if any(event.startswith("response.output_item.") for event in events):
        yield "added, done: output_item events"
    if any(graph.short(event).startswith(".") for event in events):
        yield f".x: {graph.name}.x"
