"""Yields to the event loop during long work."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

from attrs import define, field

__all__ = ["Yielder"]

STRETCH: Final = 0.005
"""Seconds of work before other tasks run."""


@define
class Yielder:
    """Yields to the event loop every few milliseconds of long work; with thousands of streams, a turn comes after 0.1 s."""

    _started_at: float = field(factory=perf_counter, init=False)

    async def checkpoint(self) -> None:
        """Yield to the event loop if it is time to."""
        if perf_counter() - self._started_at > STRETCH:
            await asyncio.sleep(0)
            self._started_at = perf_counter()
