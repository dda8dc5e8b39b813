"""The responses in progress, and their limit. Both are those of a process: each of several that serve has its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, TypeAlias

from attrs import define, field, frozen

from interlock.fsm.deltas import Cancel, Fault
from interlock.serving.requests.api_errors import ApiError

ABANDONED: Final = Fault("server_error", "The response was abandoned before it ended.")
"""Ends a response whose task was cancelled, or whose `events` were closed, from outside the run."""

SHUTDOWN: Final = Fault("server_error", "The server is shutting down.")
"""Ends a response at shutdown: it becomes `failed`, not `cancelled`, because its client did not cancel it."""


@frozen
class NotBegunError(ApiError):
    """A run was interrupted before its response began; `ending` is the argument of `RunControl.interrupt`."""

    ending: Fault | Cancel = field(default=ABANDONED, kw_only=True)

    @classmethod
    def of(cls, ending: Fault | Cancel) -> NotBegunError:
        """Return the error for an interruption: 503 for a fault, and nginx's 499 for a request that nobody wants any more."""
        if isinstance(ending, Fault):
            code = "shutting_down" if ending is SHUTDOWN else None
            return cls(503, ending.message, "server_error", code=code, ending=ending)
        return cls(499, "The request was cancelled.", code="cancelled", ending=ending)


Interrupt: TypeAlias = Callable[[Fault | Cancel], None]
"""Ends a run as soon as possible, such as `RunControl.interrupt`."""


@define(eq=False)
class ActiveRuns:
    """The active runs of one process, at most `limit` if there is one.

    Open WebSockets are tracked by another object, because shutdown interrupts them and waits for them in the same way.
    """

    limit: int | None = None
    _runs: set[Interrupt] = field(factory=set[Interrupt], init=False)
    """The function that ends each active run."""
    _slots: set[object] = field(factory=set[object], init=False)
    """An object for each run that counts against the limit, which one that only has its last events to send does not."""
    _refusal: Fault | None = field(default=None, init=False)
    """The reason for which no run begins."""
    _ending: Fault | None = field(default=None, init=False)
    _empty: asyncio.Event = field(factory=asyncio.Event, init=False)

    @contextmanager
    def track(self, interrupt: Interrupt) -> Generator[Callable[[], None]]:
        """Track a run for the duration of the context; `interrupt` it at once if `end` was called.

        The value frees its slot, at the latest at the end of the context.

        Raises:
            ApiError: 503 if `refuse` was called, or 429 at the limit.
        """
        self.require_open()
        if self.limit is not None and len(self._slots) >= self.limit:
            responses = "1 response" if self.limit == 1 else f"{self.limit} responses"
            message = f"The server is already generating {responses}, its limit; try again in a second."
            raise ApiError(429, message, "rate_limit_exceeded", code="rate_limit_exceeded")
        slot = object()  # a new one: `interrupt` holds the run, which holds `free`; the cycle would keep the run in memory
        free = partial(self._slots.discard, slot)
        try:
            self._runs.add(interrupt)
            self._slots.add(slot)
            self._empty.clear()
            if self._ending is not None:
                interrupt(self._ending)
            yield free
        finally:
            free()
            self._runs.discard(interrupt)
            if not self._runs:
                self._empty.set()

    def refuse(self) -> None:
        """Refuse every run that is tracked later, because the server shuts down; the active ones go on."""
        self._refusal = SHUTDOWN

    def require_open(self) -> None:
        """Raise a 503 if `refuse` was called."""
        if self._refusal is not None:
            raise NotBegunError.of(self._refusal)

    def end(self) -> None:
        """Interrupt all runs, and every run tracked later, because the server shuts down."""
        self._ending = SHUTDOWN
        for interrupt in self._runs:
            interrupt(SHUTDOWN)

    async def wait(self, seconds: float) -> None:
        """Wait until no run is left, for at most `seconds`."""
        if self._runs:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._empty.wait()

    def __len__(self) -> int:
        return len(self._runs)
