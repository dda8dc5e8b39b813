"""How long a piece of work may go on before others have their turn."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

from attrs import define, field

__all__ = ["Yielder"]

STRETCH: Final = 0.005
"""Seconds after which others have their turn."""


@define
class Yielder:
    """Gives others their turn every few milliseconds of a long piece of work, and does not make a short one wait for its own.

    Among thousands of streams a turn takes a tenth of a second to come round.
    """

    _began: float = field(factory=perf_counter, init=False)

    async def rest(self) -> None:
        """Let other tasks run, if it is time to."""
        if perf_counter() - self._began > STRETCH:
            await asyncio.sleep(0)
            self._began = perf_counter()
