"""Random ids, the clock and helpers for the event loop, which the layers below serving do without."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Final

from attrs import define, field

STRETCH: Final = 0.005
"""Seconds of work between two yields to the event loop."""


def random_id(prefix: str) -> str:
    """Create an id: a prefix such as `msg`, `call` or `resp`, an underscore, and 128 random bits in hex."""
    return f"{prefix}_{os.urandom(16).hex()}"


def now() -> int:
    """Return the time in whole seconds since the epoch."""
    return int(time.time())


@define
class Yielder:
    """Yields to the event loop every few milliseconds of long work. With thousands of streams, a yield can take 0.1 s."""

    _started_at: float = field(factory=perf_counter, init=False)

    async def checkpoint(self) -> None:
        """Yield to the event loop if the last yield was more than `STRETCH` seconds ago."""
        if perf_counter() - self._started_at > STRETCH:
            await asyncio.sleep(0)
            self._started_at = perf_counter()


@asynccontextmanager
async def alongside(work: Coroutine[object, object, None]) -> AsyncGenerator[None]:
    """Do some work in a task for the duration of the context; at its end, cancel the task and wait for it."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
