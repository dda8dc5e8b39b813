"""The runs in progress on one server, which a shutdown ends."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from attrs import define, field

from interlock.fsm.deltas import Cancel, Fault
from interlock.serving.requests.api_errors import ApiError

__all__ = ["GRACE", "ActiveRuns"]

SHUTDOWN: Final = Fault("server_error", "The server is shutting down.")
"""The end of a response at a shutdown: failed and not cancelled, because its client did not ask for it."""

GRACE: Final = 5
"""Seconds for responses to end at a shutdown, and for clients to read their ends."""


class Interruptible(Protocol):
    """A run that can be ended from outside."""

    def interrupt(self, ending: Fault | Cancel) -> None:
        """End the run as soon as possible."""
        ...


@define(eq=False)
class ActiveRuns:
    """The runs in progress on one server, at most `limit` of them; None for no limit."""

    limit: int | None = None
    _runs: set[Interruptible] = field(factory=set[Interruptible], init=False)
    _ending: Fault | None = field(default=None, init=False)
    _empty: asyncio.Event = field(factory=asyncio.Event, init=False)

    @contextmanager
    def track(self, run: Interruptible) -> Generator[None]:
        """Track a run for the duration of the context; after `end`, interrupt it at once."""
        try:
            self._runs.add(run)
            self._empty.clear()
            if self._ending is not None:
                run.interrupt(self._ending)
            yield
        finally:
            self._runs.discard(run)
            if not self._runs:
                self._empty.set()

    def require_room(self) -> None:
        """Refuse another run above the limit.

        Raises:
            ApiError: 429.
        """
        if self.limit is not None and len(self._runs) >= self.limit:
            message = f"The server is making {self.limit} responses already, which is as many as it may; try again in a second."
            raise ApiError(429, message, "rate_limit_exceeded", code="rate_limit_exceeded")

    def end(self, ending: Fault = SHUTDOWN) -> None:
        """End all runs, and all future ones."""
        self._ending = ending
        for run in self._runs:
            run.interrupt(ending)

    async def wait(self, seconds: float) -> None:
        """Wait until no run is left, or for a number of seconds."""
        if self._runs:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._empty.wait()

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._runs)
