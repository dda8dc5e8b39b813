"""The delay of the streams of a server by an expensive one: the gaps between their chunks meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import quantiles
from time import perf_counter
from typing import Final

from server.cases import OTHERS, WRITER
from server.load import Reading, begin, end
from speed.report import Result
from speed.timing import Row

DELAYS: Final = "delays"
_MILLISECONDS: Final = 1_000
"""Milliseconds in a second."""
_PERCENTILES: Final = {"p50": 49, "p99": 98}


def delays(urls: Mapping[str, str], repeats: int) -> list[Result]:
    """Measure the gap between two chunks of a stream of text while another stream writes a file.

    Args:
        urls: The routes.
        repeats: How often each of them is measured, in turns.
    """
    samples: dict[str, dict[str, list[float]]] = {percentile: {name: [] for name in urls} for percentile in _PERCENTILES}
    for url in urls.values():
        asyncio.run(_gaps(url))  # the first request of a route is slower
    for _ in range(repeats):
        for name, url in urls.items():
            cuts = quantiles(asyncio.run(_gaps(url)), n=100)
            for percentile, place in _PERCENTILES.items():
                samples[percentile][name].append(cuts[place] * _MILLISECONDS)
    return [
        Result.of(Row(DELAYS, f"{percentile} of the gap between two tokens", "ms", {}, repeats), taken)
        for percentile, taken in samples.items()
    ]


async def _gaps(url: str) -> Sequence[float]:
    """Return the seconds between the chunks of all streams of text while one stream writes, from its leap to its end."""
    (streams,) = OTHERS.streams
    others = [await begin(url, OTHERS.body(streams)) for _ in range(streams)]
    began = 0.0

    def begins() -> None:
        nonlocal began
        began = perf_counter()

    writer = await begin(url, WRITER.body(1), begins)
    await end([writer])
    ended = perf_counter()
    await end(others)
    return [gap for other in others for gap in _between(other, began, ended)]


def _between(reading: Reading, began: float, ended: float) -> Sequence[float]:
    times = [time for time in reading.times if began <= time <= ended]
    return [after - before for before, after in pairwise(times)]
