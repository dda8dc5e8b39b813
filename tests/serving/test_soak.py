"""The soak: its arithmetic, and a short run of it against its real server."""

import asyncio

import pytest
from soak.__main__ import VISITS, Trend, soak, soaked_server, trend

SECONDS = range(600)


def test_the_trend_of_an_exact_line_has_no_margin() -> None:
    result = trend(SECONDS, [100 + second / 36 for second in SECONDS])
    assert (result.level, result.slope) == (pytest.approx(100 + 299.5 / 36), pytest.approx(100))
    assert result.margin == pytest.approx(0, abs=1e-6)
    assert result.grows


def test_an_oscillating_series_does_not_grow() -> None:
    result = trend(SECONDS, [100 + second % 7 for second in SECONDS])
    assert abs(result.slope) < result.margin
    assert not result.grows


def test_growth_below_the_threshold_is_ignored() -> None:
    assert not Trend(level=100, slope=2, margin=0.1).grows
    assert Trend(level=100, slope=3, margin=0.1).grows


def test_a_short_soak_makes_several_kinds_of_visits_and_records_every_series() -> None:
    with soaked_server() as (url, pid):
        done, readings = asyncio.run(soak(url, pid, seconds=4, seed=7))
    assert done.keys() <= {visit.__name__ for visit, _ in VISITS}
    assert len(done) > 3
    assert [*readings.series] == [
        *("memory, KiB", "file descriptors", "tasks", "stored, KiB", "Python's blocks", "allocated by others, KiB"),
    ]
    assert all(len(values) == len(readings.times) and min(values) >= 0 for values in readings.series.values())
