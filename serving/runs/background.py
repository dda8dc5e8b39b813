"""Responses that are made in the background: their events are kept, so that any number of readers can read them, from anywhere.

Every reader ends, because a record ends with its run, however that ends. The number of records is bounded; the oldest that has
ended gives way. It knows neither HTTP nor what a run makes its events of.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from itertools import islice
from typing import Final, Generic, TypeVar, assert_never

from attrs import define, field

from interlock.fsm.background import BACKGROUND, BackgroundEffect, BackgroundTrigger
from interlock.fsm.deltas import Cancel
from interlock.fsm.table import Machine
from interlock.serving.errors import ApiError
from interlock.serving.runs.open_runs import OpenRuns
from interlock.serving.runs.run import Run

__all__ = ["NOT_STREAMED", "Record", "Records"]

R = TypeVar("R", bound=Run[bytes])
"""What makes the responses of a server."""

LIMIT: Final = 1024
"""Records that are kept."""

NOT_STREAMED: Final = ApiError(
    400, "Only a response that is made in the background can be streamed again.", param="stream", code="unsupported_parameter"
)
"""What is said of a response without a record."""


@define(eq=False)
class Record(Generic[R]):
    """The events of one response in the background.

    Args:
        run: What makes it.
    """

    run: R
    _life: Machine[BackgroundTrigger, BackgroundEffect] = field(factory=lambda: Machine.at_start(BACKGROUND), init=False)
    _frames: list[bytes] = field(factory=list[bytes], init=False)
    _grown: asyncio.Event = field(factory=asyncio.Event, init=False)
    _over: asyncio.Event = field(factory=asyncio.Event, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    """The task that makes the response, if it is the record's own; the event loop alone would not hold it."""

    @property
    def over(self) -> bool:
        """Whether no more events come."""
        return BackgroundTrigger.END not in self._life.state.rows

    @property
    def queued(self) -> dict[str, object]:
        """The response object as it is shown to who began it, before its first event."""
        return {**self.run.driver.response, "status": "queued"}

    def begin(self, open_runs: OpenRuns) -> None:
        """Make the response in a task of its own.

        Args:
            open_runs: Ends it at a shutdown.
        """
        self._task = asyncio.create_task(self.make(open_runs))

    async def make(self, open_runs: OpenRuns) -> None:
        """Make the response; its end is there for the readers even if this task is cancelled or the run cannot be held.

        Args:
            open_runs: Ends it at a shutdown.
        """
        try:
            self._fire(BackgroundTrigger.START)
            with open_runs.holding(self.run):
                async with aclosing(self.run.events()) as events:
                    async for frames in events:
                        self._fire(BackgroundTrigger.GROW, frames)
        finally:
            self._fire(BackgroundTrigger.END)

    async def cancel(self) -> None:
        """Cancel the response, and wait until it has ended; one that has ended stays what it is."""
        self._fire(BackgroundTrigger.CANCEL)
        await self.wait()

    def evict(self) -> None:
        """Keep the events no longer; to be called when no more come."""
        self._fire(BackgroundTrigger.EVICT)

    async def wait(self) -> None:
        """Wait until no more events come."""
        await self._over.wait()

    async def frames(self, start: int = 0) -> AsyncGenerator[list[bytes], None]:
        """Give the events as they come, those that are there already at once.

        Args:
            start: The sequence number of the first; there is none before 0.
        """
        start = max(start, 0)
        while True:
            grown = self._grown
            if new := self._frames[start:]:
                start += len(new)
                yield new
            elif self.over:
                return
            else:
                await grown.wait()

    def _fire(self, trigger: BackgroundTrigger, frames: Sequence[bytes] = ()) -> None:
        for effect in self._life.fire(trigger):
            match effect:
                case BackgroundEffect.KEEP:
                    self._frames.extend(frames)
                case BackgroundEffect.INTERRUPT:
                    self.run.interrupt(Cancel())
                case BackgroundEffect.CONCLUDE:
                    self._frames.extend(self.run.conclude())
                case BackgroundEffect.RELEASE:
                    self._over.set()
                case BackgroundEffect.WAKE:
                    self._grown.set()
                    self._grown = asyncio.Event()
                case _:
                    assert_never(effect)


@define(eq=False)
class Records(Generic[R]):
    """The records of one server.

    Args:
        limit: How many are kept.
    """

    _limit: int = LIMIT
    _kept: dict[str, Record[R]] = field(factory=dict[str, Record[R]], init=False)

    def add(self, response_id: str, record: Record[R]) -> None:
        """Keep a record; if there are too many, the oldest that are over go."""
        self._kept[response_id] = record
        excess = len(self._kept) - self._limit
        over = (name for name, kept in self._kept.items() if kept.over)
        for name in [*islice(over, max(0, excess))]:
            self.drop(name)

    def get(self, response_id: str) -> Record[R] | None:
        """Give a record, if it is kept."""
        return self._kept.get(response_id)

    def drop(self, response_id: str) -> None:
        """Keep a record no longer; its response has ended."""
        record = self._kept.pop(response_id, None)
        if record is not None:
            record.evict()

    async def wait(self, seconds: float) -> None:
        """Wait until all responses have ended, but not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for record in [*self._kept.values()]:
                    await record.wait()
