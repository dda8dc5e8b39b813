"""Responses that are made in the background: their events are kept, so that any number of readers can read them, from anywhere.

Every reader ends, because a record ends with its run, however that ends. The number of records and the memory that they take
are bounded; the oldest that has ended gives way. It knows neither HTTP nor what a run makes its events of.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from sys import getsizeof
from typing import Final, Generic, TypeVar, assert_never, cast

from attrs import define, field

from interlock.fsm.background import BACKGROUND, BackgroundEffect, BackgroundTrigger
from interlock.fsm.deltas import Cancel
from interlock.fsm.table import Machine
from interlock.serving.errors import ApiError
from interlock.serving.runs.open_runs import OpenRuns
from interlock.serving.runs.run import Run
from interlock.serving.store.packing import pack, unpack

__all__ = ["NOT_STREAMED", "Record", "Records"]

R = TypeVar("R", bound=Run[bytes])
"""What makes the responses of a server."""

LIMIT: Final = 1024
"""Records that are kept, if nothing else is said."""

MAX_BYTES: Final = 256 * 2**20
"""Bytes of memory that they may take, if nothing else is said."""

LINGER: Final = 1.0
"""Seconds that a run is held after its end, for whoever has just begun it."""

TOO_MANY: Final = "Too many responses are being made in the background; try again when some of them have ended."
"""What is said where there is no room for another."""

NOT_STREAMED: Final = ApiError(
    400, "Only a response that is made in the background can be streamed again.", param="stream", code="unsupported_parameter"
)
"""What is said of a response without a record."""


@define(eq=False)
class Record(Generic[R]):
    """The events of one response in the background.

    Args:
        run: What makes it; it is held until a while after its end.
        reserved: Bytes of memory that the run may take until then.
    """

    _run: R | None
    reserved: int = 0
    _size: int = field(default=0, init=False)
    """Bytes of the events."""
    _packed: bytes = field(default=b"", init=False)
    """The response when it has ended, as JSON."""
    _life: Machine[BackgroundTrigger, BackgroundEffect] = field(factory=lambda: Machine.at_start(BACKGROUND), init=False)
    _frames: list[bytes] = field(factory=list[bytes], init=False)
    _new: list[bytes] = field(factory=list[bytes], init=False)
    """Events that were made and are not kept yet; whatever is raised meanwhile, the end keeps them."""
    _grown: asyncio.Event = field(factory=asyncio.Event, init=False)
    _over: asyncio.Event = field(factory=asyncio.Event, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    """The task that makes the response, if it is the record's own; the event loop alone would not hold it."""

    @property
    def over(self) -> bool:
        """Whether no more events come."""
        return BackgroundTrigger.END not in self._life.state.rows

    @property
    def run(self) -> R:
        """What makes the response; to be asked for only while it is made, or just after.

        Raises:
            LookupError: The response has ended a while ago.
        """
        if self._run is None:
            raise LookupError("the run is held no longer")
        return self._run

    @property
    def response(self) -> Mapping[str, object]:
        """The response object as it is now."""
        return self._run.driver.response if self._run is not None else cast("dict[str, object]", unpack(self._packed))

    @property
    def size(self) -> int:
        """Bytes of memory that it takes: its events and the response; while it is made, what is reserved as well."""
        return self._size + len(self._packed) + (0 if self._run is None else self.reserved)

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
                        self._new.extend(frames)
                        self._fire(BackgroundTrigger.GROW)
        finally:
            try:
                self._fire(BackgroundTrigger.END)
            finally:
                if not self.over:  # what failed was the call itself
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
        """Yield the events as they come, those that are there already at once.

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

    def _fire(self, trigger: BackgroundTrigger) -> None:
        for effect in self._life.fire(trigger):
            match effect:
                case BackgroundEffect.KEEP:
                    self._keep()
                case BackgroundEffect.INTERRUPT:
                    self.run.interrupt(Cancel())
                case BackgroundEffect.CONCLUDE:
                    self._new.extend(self.run.conclude())
                    self._keep()
                case BackgroundEffect.RELEASE:
                    self._over.set()
                    asyncio.get_running_loop().call_later(LINGER, self.compact)
                case BackgroundEffect.WAKE:
                    self._grown.set()
                    self._grown = asyncio.Event()
                case _:
                    assert_never(effect)

    def _keep(self) -> None:
        self._size += sum(map(getsizeof, self._new))
        self._frames += self._new
        self._new = []

    def compact(self) -> None:
        """Let the run go, which holds the response as objects; what is shown of it is held as JSON."""
        if self._run is not None and self.over:
            self._packed = pack(self._run.driver.response)
            self._run = None


@define(eq=False)
class Records(Generic[R]):
    """The records of one server.

    Args:
        limit: How many are kept.
        max_bytes: How many bytes of memory they may take. Those that are over give way, the oldest first.
    """

    _limit: int = LIMIT
    max_bytes: int = MAX_BYTES
    _kept: dict[str, Record[R]] = field(factory=dict[str, Record[R]], init=False)

    @property
    def size(self) -> int:
        """Bytes of memory that the records take."""
        return sum(record.size for record in self._kept.values())

    def admit(self, reserved: int) -> None:
        """Refuse a response for which there is no room, even if all that are over gave way.

        Args:
            reserved: Bytes of memory that it may take while it is made.

        Raises:
            ApiError: 429; some of those that are being made have to end first.
        """
        running = sum(record.size for record in self._kept.values() if not record.over)
        if running and running + reserved > self.max_bytes:
            raise ApiError(429, TOO_MANY, "rate_limit_exceeded", code="rate_limit_exceeded")

    def add(self, response_id: str, record: Record[R]) -> None:
        """Keep a record; where there are too many, or they take too much, the oldest that are over go."""
        self._kept[response_id] = record
        excess, size = len(self._kept) - self._limit, self.size
        for name, kept in [*self._kept.items()]:
            if excess <= 0 and size <= self.max_bytes:
                return
            if kept.over:
                excess, size = excess - 1, size - kept.size
                self.drop(name)

    def get(self, response_id: str) -> Record[R] | None:
        """Return a record, if it is kept."""
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
