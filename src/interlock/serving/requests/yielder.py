"""Yields to the event loop during long work."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

from attrs import define, field

__all__ = ["Yielder"]

STRETCH: Final = 0.005
"""Seconds of work between two yields."""


@define
class Yielder:
    """Yields to the event loop every few milliseconds of long work. With thousands of streams, a yield can take 0.1 s."""

    _started_at: float = field(factory=perf_counter, init=False)

    async def checkpoint(self) -> None:
        """Yield to the event loop if the last yield was more than `STRETCH` seconds ago."""
        if perf_counter() - self._started_at > STRETCH:
            await asyncio.sleep(0)
            self._started_at = perf_counter()
