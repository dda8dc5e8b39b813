"""The runs that are going on in one server, for whoever has to end them."""

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
"""How the responses end that a shutdown meets: failed and not cancelled, because it is not what their clients asked for."""

GRACE: Final = 5
"""Seconds that a shutdown leaves to the responses: to end, and to their clients to read the ends."""


class Interruptible(Protocol):
    """A run, as far as it can be ended from outside."""

    def interrupt(self, ending: Fault | Cancel) -> None:
        """End it as soon as possible, and legally."""
        ...


@define(eq=False)
class ActiveRuns:
    """The runs that are going on in one server.

    Args:
        limit: How many there may be at once; None for no limit.
    """

    limit: int | None = None
    _runs: set[Interruptible] = field(factory=set[Interruptible], init=False)
    _ending: Fault | None = field(default=None, init=False)
    _empty: asyncio.Event = field(factory=asyncio.Event, init=False)

    @contextmanager
    def holding(self, run: Interruptible) -> Generator[None]:
        """Hold a run while it goes on; after `end` it ends at once."""
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
        """Refuse another run where there are as many as there may be.

        Raises:
            ApiError: 429; one of them has to end first.
        """
        if self.limit is not None and len(self._runs) >= self.limit:
            message = f"The server is making {self.limit} responses already, which is as many as it may; try again in a second."
            raise ApiError(429, message, "rate_limit_exceeded", code="rate_limit_exceeded")

    def end(self, ending: Fault = SHUTDOWN) -> None:
        """End all runs, and those that are still to come."""
        self._ending = ending
        for run in self._runs:
            run.interrupt(ending)

    async def wait(self, seconds: float) -> None:
        """Wait until none is left, but not for ever.

        Args:
            seconds: The longest time to wait.
        """
        if self._runs:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._empty.wait()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._runs)
