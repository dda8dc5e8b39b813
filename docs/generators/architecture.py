"""Draw the layers of pyproject.toml, top to bottom, and the stations of a request."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from interlock.diagram.svg import in_both_schemes

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = "interlock"
WIDTH, HEIGHT, GAP, RISE, MARGIN = 170, 40, 40, 16, 28

Layers = Sequence[Sequence[str]]
"""The packages of each layer, the highest first."""

STYLE: Final = """
text { font: 600 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; text-anchor: middle }
.box { stroke-width: 1.5 }
.arrow { fill: none; stroke-width: 1.4; marker-end: url(#head) }
""" + in_both_schemes("""
text { fill: $ink }
.card { fill: $card; stroke: $border }
.box { fill: $fill; stroke: $normal }
.serving { fill: $blue_fill; stroke: $blue }
.arrow { stroke: $normal }
marker path { fill: $normal }
""")


def layers() -> Layers:
    """Return the layers that the linter of imports holds the package to."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rows,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[name.strip() for name in row.split("|")] for row in rows]


def drawing() -> str:
    """Return the layers as SVG."""
    rows = layers()
    width = max(len(row) for row in rows) * (WIDTH + GAP) - GAP + 2 * MARGIN
    height = len(rows) * (HEIGHT + RISE) - RISE + 2 * MARGIN
    places = {
        name: ((width - len(row) * (WIDTH + GAP) + GAP) / 2 + number * (WIDTH + GAP), MARGIN + level * (HEIGHT + RISE))
        for level, row in enumerate(rows)
        for number, name in enumerate(row)
    }
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
            f"<style>{STYLE}</style>",
            f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
            *(_box(name, *place) for name, place in places.items()),
            "</svg>\n",
        ]
    )


def _box(name: str, x: float, y: float) -> str:
    look = "box serving" if ".serving." in name else "box"
    title = name.removeprefix(f"{PACKAGE}.").replace("serving.", "serving/")
    return (
        f'<rect class="{look}" x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
        f'<text x="{x + WIDTH / 2:g}" y="{y + HEIGHT / 2 + 5:g}">{title}</text>'
    )


STATIONS: Final = (
    ("decode", "bytes to one request, or an error that names the parameter"),
    ("resolve", "what the request goes on from: items, references, sealed content"),
    ("offer", "tools as the model is shown them, and how its calls are read back"),
    ("turn loop", "generate, run tools, generate again, finish"),
    ("generate", "one turn of an engine: tokens or text, step by step"),
    ("drive", "output to deltas, deltas to events in a legal order"),
    ("answer", "a stream, a whole answer, or a log that outlives the process"),
)
"""What a request goes through, in order."""


def journey() -> str:
    """Return the stations of a request as SVG."""
    width, step, left = 880, 62, 150
    height = len(STATIONS) * step + 110
    doors = [("POST /v1/responses", 60), ("WebSocket frame", 290), ("vLLM's application", 520)]
    middle = left + 115
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{STYLE} .note {{ font-weight: 400; font-size: 12px; text-anchor: start }}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">',
        '<path d="M0 0 8 4 0 8z"/></marker></defs>',
        f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
    ]
    for title, x in doors:
        parts += [
            f'<rect class="box" x="{x}" y="24" width="180" height="34" rx="17"/>',
            f'<text x="{x + 90}" y="46">{title}</text>',
            f'<path class="arrow" d="M{x + 90} 58C{x + 90} 80 {middle} 74 {middle} 102"/>',
        ]
    for number, (title, note) in enumerate(STATIONS):
        y = 104 + number * step
        parts += [
            f'<rect class="box serving" x="{left}" y="{y}" width="230" height="{HEIGHT}" rx="6"/>',
            f'<text x="{middle}" y="{y + HEIGHT / 2 + 5:g}">{number + 1}. {title}</text>',
            f'<text class="note" x="{left + 250}" y="{y + HEIGHT / 2 + 4:g}">{note}</text>',
        ]
        if number:
            parts.append(f'<path class="arrow" d="M{middle} {y - step + HEIGHT}V{y - 2}"/>')
    # Tools run between turns: from the events back to the loop.
    loop, drive = 104 + 3 * step + HEIGHT / 2, 104 + 5 * step + HEIGHT / 2
    parts.append(f'<path class="arrow" d="M{left} {drive:g}C{left - 90} {drive:g} {left - 90} {loop:g} {left - 2} {loop:g}"/>')
    parts.append(f'<text class="note" x="{left - 128}" y="{(loop + drive) / 2 + 4:g}">tools</text>')
    return "\n".join([*parts, "</svg>\n"])
