"""The results: a table for a terminal, and JSON for the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import asdict, evolve, frozen
from rich.table import Table

from speed.timing import FLOOR, INTERLOCK, PEER, PLUGIN, RESPONSES, VLLM, Figure, Row


@frozen
class Result:
    """A measured row.

    Args:
        row: The row, without its contenders.
        figures: By contender.
        faster: How many times better ours is than vLLM's: the middle of the rounds' ratios, with their quartiles.
        above_floor: How many times the floor ours is.
        above_responses: How many times the same in the Responses API ours is, in a row of another API.
        above_peer: How many times that of another gateway ours is.
    """

    row: Row
    figures: Mapping[str, Figure]
    faster: Figure | None
    above_floor: Figure | None
    above_responses: Figure | None
    above_peer: Figure | None

    @classmethod
    def of(cls, row: Row, samples: Mapping[str, Sequence[float]]) -> Result:
        """Sum up the rounds of a row."""
        figures = {name: Figure.of(values) for name, values in samples.items()}
        ours = samples[INTERLOCK]
        above = [_ratio(ours, samples.get(other)) for other in (FLOOR, RESPONSES, PEER)]
        return cls(evolve(row, rounds={}), figures, _ratio(samples.get(VLLM), ours), *above)

    def plain(self) -> dict[str, Any]:
        """Return the value as JSON."""
        row = {name: getattr(self.row, name) for name in ("group", "name", "unit", "at", "repeats")}
        ratios = {name: getattr(self, name) for name in ("faster", "above_floor", "above_responses", "above_peer")}
        return {
            **row,
            "figures": {name: asdict(figure) for name, figure in self.figures.items()},
            **{name: ratio and asdict(ratio) for name, ratio in ratios.items()},
        }


def _ratio(dividend: Sequence[float] | None, divisor: Sequence[float] | None) -> Figure | None:
    """Divide round by round, because both contenders meet the same conditions in a round."""
    if dividend is None or divisor is None:
        return None
    return Figure.of([a / b for a, b in zip(dividend, divisor, strict=True)])


COLUMNS: Final = "interlock", "in the plugin", "vLLM", "floor", "vLLM / interlock", "interlock / floor", "dialect / Responses"


def table(results: Iterable[Result]) -> Table:
    """Return the table of a run."""
    shown = Table("", "", "unit", *COLUMNS, box=None, header_style="bold")
    for column in shown.columns[3:]:
        column.justify = "right"
    group = ""
    for result in results:
        row, figures = result.row, map(result.figures.get, (INTERLOCK, PLUGIN, VLLM, FLOOR))
        cells = map(spread, (*figures, result.faster, result.above_floor, result.above_responses))
        shown.add_row("" if row.group == group else row.group, row.name, row.unit, *cells)
        group = row.group
    return shown


def spread(figure: Figure | None) -> str:
    """Write a figure with its quartiles."""
    return "" if figure is None else f"{short(figure.median)} ({short(figure.low)}-{short(figure.high)})"


def short(value: float) -> str:
    """Write a number with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits
