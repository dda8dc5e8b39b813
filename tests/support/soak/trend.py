"""Whether a figure that is read again and again grows: its slope, with the interval in which it lies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from statistics import fmean, linear_regression

from attrs import frozen

BLOCKS = 12
"""Means that a series is reduced to: readings that follow one another are alike, means of long stretches nearly independent."""

CERTAINTY = 2.228
"""Student's t for 10 degrees of freedom, two-sided 95 %."""


@frozen
class Trend:
    """A line through a series.

    Args:
        level: Its mean.
        slope: Of the line, in units an hour.
        margin: What the slope may be off by, to either side, with 95 % certainty.
    """

    level: float
    slope: float
    margin: float

    @property
    def bound(self) -> float:
        """The slope with which it would be half as large again after a day."""
        return self.level / 2 / 24

    @property
    def grows(self) -> bool:
        """Whether the slope is beyond the bound for certain."""
        return self.slope - self.margin > self.bound


def trend(times: Sequence[float], values: Sequence[float]) -> Trend:
    """Return the line through a series.

    Args:
        times: Seconds, growing; at least 12 of them.
        values: What was read then.
    """
    hours = _blocks([time / 3600 for time in times])
    means = _blocks(values)
    slope, intercept = linear_regression(hours, means)
    middle = fmean(hours)
    residue = sum((mean - intercept - slope * hour) ** 2 for hour, mean in zip(hours, means, strict=True))
    spread = sum((hour - middle) ** 2 for hour in hours)
    return Trend(fmean(values), slope, CERTAINTY * sqrt(residue / (BLOCKS - 2) / spread))


def _blocks(values: Sequence[float]) -> list[float]:
    """Return the means of twelve stretches of nearly one length."""
    bounds = [round(len(values) * block / BLOCKS) for block in range(BLOCKS + 1)]
    return [fmean(values[start:end]) for start, end in pairwise(bounds)]
