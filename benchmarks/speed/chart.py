"""Two kinds of charts as SVG, on logarithmic axes, because the figures differ by orders of magnitude."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Final

from attrs import frozen

__all__ = ["bars", "lines"]

INKS: Final = {"interlock": "#0a7d55", "plugin": "#62b391", "vllm": "#b5482f", "floor": "#8a8f98"}
"""The colour of each contender."""

OTHER_INKS: Final = "#0a7d55", "#b5482f", "#3d6fb4", "#8a5fb0", "#a8842c", "#5b7f8c", "#c46a97"
"""The colours of series that are not contenders."""

NAMES: Final = {"interlock": "Interlock", "plugin": "Interlock in vLLM", "vllm": "vLLM", "floor": "floor"}

_WIDTH: Final = 800
_LEADING: Final = 18
"""The distance from one label to the next below it."""
_FEW: Final = 2
"""Powers of ten up to which the numbers between them are marked too."""
_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}.t{font-weight:600}.g{stroke:#d8dee4}.m{fill:#57606a}.p{fill:#fff}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.g{stroke:#30363d}.m{fill:#8d96a0}.p{fill:#0d1117}"
    "[fill^='#'],[stroke^='#'],[style]{filter:brightness(1.5)}}"
)
"""The style, on dark pages with brighter inks."""
_LOGARITHMIC: Final = "logarithmic scale"
"""What stands at a logarithmic axis, because its distances are ratios."""


@frozen
class Scale:
    """A logarithmic scale, from a power of ten to another."""

    low: int
    high: int
    start: float
    stop: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, stop: float) -> Scale:
        """Return the scale that contains all values."""
        low = floor(log10(min(values)))
        return cls(low, max(ceil(log10(max(values))), low + 1), start, stop)

    def at(self, value: float) -> float:
        """Return the position of a value."""
        return self.start + (log10(value) - self.low) / (self.high - self.low) * (self.stop - self.start)

    @property
    def ticks(self) -> list[float]:
        """The powers of ten, and 2 and 5 times each where they are few."""
        steps = (1, 2, 5) if self.high - self.low <= _FEW else (1,)
        return [step * 10.0**power for power in range(self.low, self.high) for step in steps] + [10.0**self.high]


def lines(title: str, across: str, series: Mapping[str, Mapping[int, float]], *, wide: bool = False) -> str:
    """Draw a line for each series.

    Args:
        title: What is drawn, with the unit of the values.
        across: What the horizontal axis is.
        series: By contender, or by any other name: the value at each place of the axis.
        wide: Whether the places differ by orders of magnitude, so that their axis is logarithmic too.
    """
    height, left, right, top, bottom = 400, 70.0, 570.0, 60.0, 340.0
    scale = Scale.over([value for line in series.values() for value in line.values()], bottom, top)
    places = sorted({place for line in series.values() for place in line})
    inks = _inks(series)

    def x(place: int) -> float:
        if wide:
            first, last = log10(places[0]), log10(max(places[-1], places[0] + 1))
            return left + 14 + (log10(place) - first) / (last - first) * (right - left - 14)
        return left + place / max(places[-1], 1) * (right - left)

    def drawn() -> Iterator[str]:
        yield _text(20, top - 12, _LOGARITHMIC, "start", "m")
        for tick in scale.ticks:
            yield _line(left, scale.at(tick), right, scale.at(tick))
            yield _text(left - 8, scale.at(tick) + 4, f"{tick:,g}", "end", "m")
        for place in places:
            yield _text(x(place), bottom + 20, f"{place:,}", "middle", "m")
        yield _text((left + right) / 2, bottom + 44, f"{across} ({_LOGARITHMIC})" if wide else across, "middle")
        labelled = 0.0
        for name, line in sorted(series.items(), key=lambda drawn: -drawn[1][max(drawn[1])]):
            points = " ".join(f"{x(place):.1f},{scale.at(value):.1f}" for place, value in sorted(line.items()))
            yield f'<polyline points="{points}" fill="none" stroke="{inks[name]}" stroke-width="2.5"/>'
            last = max(line)
            for place, value in line.items():
                yield f'<circle cx="{x(place):.1f}" cy="{scale.at(value):.1f}" r="4" fill="{inks[name]}"/>'
            labelled = max(scale.at(line[last]) + 4, labelled + _LEADING)
            yield _text(x(last) + 12, labelled, f"{NAMES.get(name, name)}: {_short(line[last])}", "start", ink=inks[name])

    return _svg(title, height, drawn())


def bars(title: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    """Draw a group of bars for each row.

    Args:
        title: What is drawn, with the unit of the values.
        rows: By name: the value of each contender.
    """
    left, right, top, bar, gap = 330.0, 710.0, 66.0, 16.0, 14.0
    scale = Scale.over([value for row in rows.values() for value in row.values()], left, right)
    bottom = top + sum(len(row) * bar + gap for row in rows.values())

    def drawn() -> Iterator[str]:
        yield _text(left - 20, bottom + 18, _LOGARITHMIC, "end", "m")
        for tick in scale.ticks:
            yield _line(scale.at(tick), top - 8, scale.at(tick), bottom)
            yield _text(scale.at(tick), bottom + 18, f"{tick:,g}", "middle", "m")
        y = top
        for label, row in rows.items():
            yield _text(left - 10, y + len(row) * bar / 2 + 4, label, "end")
            for name, value in row.items():
                width = scale.at(value) - left
                yield f'<rect x="{left}" y="{y + 1:.1f}" width="{width:.1f}" height="{bar - 2}" fill="{INKS[name]}"/>'
                yield _text(left + width + 6, y + bar - 3.5, _short(value), "start")
                y += bar
            y += gap
        shown = {name for row in rows.values() for name in row}
        for index, name in enumerate(name for name in INKS if name in shown):
            x = 190.0 + index * 145
            yield f'<rect x="{x}" y="{bottom + 34}" width="12" height="12" fill="{INKS[name]}"/>'
            yield _text(x + 18, bottom + 45, NAMES[name], "start")

    return _svg(title, int(bottom) + 64, drawn())


def _inks(names: Mapping[str, object]) -> dict[str, str]:
    others = [name for name in names if name not in INKS]
    return {**INKS, **{name: OTHER_INKS[index % len(OTHER_INKS)] for index, name in enumerate(others)}}


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits


def _svg(title: str, height: int, drawn: Iterator[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">'
    paper = f'<style>{_STYLE}</style><rect width="{_WIDTH}" height="{height}" class="p"/>'
    return "\n".join([head, paper, _text(20, 30, title, "start", "t"), *drawn, "</svg>", ""])


def _text(x: float, y: float, said: str, anchor: str, style: str = "", ink: str = "") -> str:
    colour = f' style="fill:{ink}"' if ink else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{style}"{colour}>{escape(said)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" class="g"/>'
