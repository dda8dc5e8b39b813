"""The responses in progress: those of one process, which end with it, and the slots that all processes of a server share.

Each process counts its slots in a row of shared memory. There is no lock that a stopped or killed process could hold: it has only
its own slots, and the supervisor clears the row of a process that has exited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from mmap import mmap
from typing import Final, TypeAlias

from attrs import define, field, frozen

from interlock.fsm.deltas import Cancel, Fault
from interlock.serving.requests.api_errors import ApiError

ABANDONED: Final = Fault("server_error", "The response was abandoned before it ended.")
"""Ends a response whose task was cancelled, or whose `events` were closed, from outside the run."""

SHUTDOWN: Final = Fault("server_error", "The server is shutting down.")
"""Ends a response at shutdown: it becomes `failed`, not `cancelled`, because its client did not cancel it."""

GRACE: Final = 5
"""Seconds at shutdown for responses to end, and for clients to read the last events."""

_ROW: Final = "q"
_ROW_BYTES: Final = 8


@frozen
class NotBegunError(ApiError):
    """A run was interrupted before its response began; `ending` is the argument of `RunControl.interrupt`."""

    ending: Fault | Cancel = field(default=ABANDONED, kw_only=True)

    @classmethod
    def of(cls, ending: Fault | Cancel) -> NotBegunError:
        """Return the error for an interruption: 503 for a fault, and 400 for a request that nobody wants any more."""
        if isinstance(ending, Fault):
            return cls(503, ending.message, "server_error", ending=ending)
        return cls(400, "The request was cancelled.", ending=ending)


@frozen(eq=False)
class Slots:
    """The slots of one process. `limit` is the most that all processes may take together, or None."""

    limit: int | None = None
    _counts: memoryview[int] = field(factory=lambda: memoryview(bytearray(_ROW_BYTES)).cast(_ROW))
    """The number of slots that each process has taken."""
    _row: int = 0

    @classmethod
    def shared(cls, limit: int | None, processes: int) -> list[Slots]:
        """Return the slots for each of several processes, which are forked later."""
        counts = memoryview(mmap(-1, processes * _ROW_BYTES)).cast(_ROW)
        return [cls(limit, counts, row) for row in range(processes)]

    def take(self) -> bool:
        """Take a slot; return whether one was free."""
        # Count first: of two processes that take the last slot at the same time, none overlooks the other. Both may be refused.
        self._counts[self._row] += 1
        if self.limit is None or sum(self._counts) <= self.limit:
            return True
        self.free()
        return False

    def free(self) -> None:
        """Give a slot back."""
        self._counts[self._row] -= 1

    def clear(self) -> None:
        """Give back all slots of the process, which has exited."""
        self._counts[self._row] = 0


Interrupt: TypeAlias = Callable[[Fault | Cancel], None]
"""Ends a run as soon as possible, such as `RunControl.interrupt`."""


@define(eq=False)
class ActiveRuns:
    """The active runs of one process, or its open WebSockets."""

    slots: Slots = field(factory=Slots)
    _runs: set[Interrupt] = field(factory=set[Interrupt], init=False)
    """The function that ends each active run."""
    _refusal: Fault | None = field(default=None, init=False)
    """The reason for which no run begins."""
    _ending: Fault | None = field(default=None, init=False)
    _empty: asyncio.Event = field(factory=asyncio.Event, init=False)

    @contextmanager
    def track(self, interrupt: Interrupt) -> Generator[None]:
        """Track a run for the duration of the context; `interrupt` it at once if `end` was called.

        Raises:
            ApiError: 503 if `refuse` was called, or 429 at the limit.
        """
        self.require_open()
        if not self.slots.take():
            message = f"The server is already generating {self.slots.limit} responses, its limit; try again in a second."
            raise ApiError(429, message, "rate_limit_exceeded", code="rate_limit_exceeded")
        try:
            self._runs.add(interrupt)
            self._empty.clear()
            if self._ending is not None:
                interrupt(self._ending)
            yield
        finally:
            self._runs.discard(interrupt)
            self.slots.free()
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
