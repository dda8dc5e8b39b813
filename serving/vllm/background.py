"""Responses that are made in the background: their events are kept, so that any number of readers can read them, from anywhere.

Every reader ends, because a record ends with its run, however that ends. The number of records is bounded; the oldest that has
ended gives way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from attrs import define, field

from interlock.fsm.deltas import Cancel
from interlock.serving.answers import OpenRuns
from interlock.serving.vllm.run import VllmRun

__all__ = ["Record", "Records"]

LIMIT: Final = 1024
"""Records that are kept."""


@define(eq=False)
class Record:
    """The events of one response in the background.

    Args:
        run: What makes it.
    """

    run: VllmRun[bytes]
    _frames: list[bytes] = field(factory=list[bytes], init=False)
    _grown: asyncio.Event = field(factory=asyncio.Event, init=False)
    _over: asyncio.Event = field(factory=asyncio.Event, init=False)

    @property
    def over(self) -> bool:
        """Whether no more events come."""
        return self._over.is_set()

    async def make(self, open_runs: OpenRuns) -> None:
        """Make the response.

        Args:
            open_runs: Ends it at a shutdown.
        """
        try:
            with open_runs.holding(self.run):
                async for frames in self.run.events():
                    self._frames.extend(frames)
                    self._wake()
        finally:
            self._over.set()
            self._wake()

    async def cancel(self) -> None:
        """Cancel the response, and wait until it has ended."""
        self.run.interrupt(Cancel())
        await self._over.wait()

    async def frames(self, start: int = 0) -> AsyncGenerator[list[bytes], None]:
        """Give the events as they come, those that are there already at once.

        Args:
            start: The sequence number of the first.
        """
        while True:
            grown = self._grown
            if self._frames[start:]:
                new = self._frames[start:]
                start += len(new)
                yield new
            elif self.over:
                return
            else:
                await grown.wait()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()


@define(eq=False)
class Records:
    """The records of one server.

    Args:
        limit: How many are kept.
    """

    _limit: int = LIMIT
    _kept: dict[str, Record] = field(factory=dict[str, Record], init=False)

    def add(self, response_id: str, record: Record) -> None:
        """Keep a record; if there are too many, the oldest that is over goes."""
        self._kept[response_id] = record
        if len(self._kept) > self._limit:
            oldest = next((name for name, kept in self._kept.items() if kept.over), None)
            if oldest is not None:
                del self._kept[oldest]

    def get(self, response_id: str) -> Record | None:
        """Give a record, if it is kept."""
        return self._kept.get(response_id)
