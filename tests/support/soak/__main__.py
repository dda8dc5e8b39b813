"""Soak a server.

Clients of every kind come and go, and every stream is judged. Once a second, the script reads the server's memory, its
allocations, its tasks, its file descriptors and the size of its store. It reports the slope of each in the second half, in which
all caches and stores are full, with a confidence interval of 95 %. The exit status is 1 if one of them certainly grows faster
than its bound.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import httpx
from attrs import define, field
from campaigns import any_seed, options
from live.watched import descriptors_of, memory_of
from soak.clients import PATIENCE, VISITS, Place
from soak.trend import trend

AT_ONCE = 6
"""Clients at a time."""


@define
class Readings:
    """The figures of a server over time.

    Args:
        pid: The number of its process.
        times: Seconds since it began, of each reading.
        series: The values of each figure, by name.
    """

    pid: int
    times: list[float] = field(factory=list[float])
    series: dict[str, list[float]] = field(factory=dict[str, list[float]])

    async def record(self, at: Place) -> None:
        """Read once a second."""
        began = time.monotonic()
        while True:
            figures = (await at.client.get(f"{at.url}/figures")).json()
            self.times.append(time.monotonic() - began)
            read = {"memory, KiB": memory_of(self.pid) / 1024, "file descriptors": descriptors_of(self.pid), **figures}
            for name, value in read.items():
                self.series.setdefault(name, []).append(value)
            await asyncio.sleep(1)

    def report(self) -> tuple[list[str], bool]:
        """Return a line for each figure, and whether one of them grows."""
        half = len(self.times) // 2
        trends = {name: trend(self.times[half:], values[half:]) for name, values in self.series.items()}
        lines = [
            f"{name}: {each.level:,.0f}, {each.slope:+,.1f} ± {each.margin:,.1f} an hour, of {each.bound:+,.1f}"
            for name, each in trends.items()
        ]
        return lines, any(each.grows for each in trends.values())


async def soak(url: str, pid: int, seconds: float, seed: int) -> tuple[Counter[str], Readings]:
    """Send clients to a server for some time.

    Args:
        url: The server's.
        pid: The number of its process.
        seconds: How long.
        seed: Of the chance that decides what they do.

    Returns:
        The number of visits of each client, and the figures of the server meanwhile.

    Raises:
        ExceptionGroup: A client received a wrong answer.
    """
    end = time.monotonic() + seconds
    done, readings = Counter[str](), Readings(pid)
    visits, weights = zip(*VISITS, strict=True)
    chance = [Random(f"{seed}-{number}") for number in range(AT_ONCE)]  # noqa: S311 - what is asked can be asked again

    async def visit(at: Place) -> None:
        while time.monotonic() < end:
            (chosen,) = at.chance.choices(visits, weights)
            await chosen(at)
            done[chosen.__name__] += 1

    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        reading = asyncio.create_task(readings.record(Place(url, client, chance[0])))
        try:
            async with asyncio.TaskGroup() as group:
                for each in chance:
                    group.create_task(visit(Place(url, client, each)))
        finally:
            reading.cancel()
            await asyncio.wait([reading])
    return done, readings


@contextmanager
def soaked_server() -> Generator[tuple[str, int]]:
    """Start the server to be soaked; yield its URL and the number of its process."""
    command, place = [sys.executable, "-m", "soak.server"], Path(__file__).parents[1]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()


def main(minutes: float, seed: int) -> int:
    """Soak for some minutes; return the exit status."""
    with soaked_server() as (url, pid):
        done, readings = asyncio.run(soak(url, pid, minutes * 60, seed))
    lines, grows = readings.report()
    sys.stdout.write("\n".join([f"{done.total():,} visits, seed {seed}: {dict(done)}", *lines, ""]))
    return int(grows)


if __name__ == "__main__":
    sys.exit(main(**options(__doc__, minutes=5.0, seed=any_seed())))
