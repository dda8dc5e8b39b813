"""What a run has for its client, and how it waits: for the next step of its work, or for a keep-alive to be written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from math import inf
from time import monotonic
from typing import Generic, TypeAlias, TypeVar

from attrs import define, field

from interlock.fsm.deltas import Cancel, Delta, Fault
from interlock.fsm.table import Machine
from interlock.serving import metrics
from interlock.serving.requests.runtime import ends_process, is_fault
from interlock.serving.responses.active_runs import ABANDONED
from interlock.serving.responses.turns_table import TURNS, TurnEffect, TurnTrigger

T = TypeVar("T")

logger = logging.getLogger(__name__)

RunSteps: TypeAlias = AsyncGenerator[Sequence[Delta] | TurnTrigger, None]
"""The work of a run in one state of the loop.

It yields the deltas of each step, whose events are delivered before the next step, and finally the trigger to fire, unless its
deltas have ended the response.
"""


@define(eq=False)
class Delivery(Generic[T]):
    """The events of a run that are not sent yet."""

    events: list[T] = field(factory=list[T])
    first_at: float | None = None
    """When the first events were taken, by the monotonic clock."""
    taken_at: float = inf
    """When the last events were written, by the same clock."""
    _writing: asyncio.Lock = field(factory=asyncio.Lock)
    """Is locked while a keep-alive is written, so that later events wait for it."""

    def take(self) -> list[T]:
        """Return the events, and forget them."""
        if self.first_at is None:
            self.first_at = monotonic()
        events, self.events = self.events, []
        return events

    def note_written(self) -> None:
        """Note that the events that were taken are written."""
        if self.first_at is not None:
            self.taken_at = monotonic()

    async def until_written(self) -> None:
        """Wait while a keep-alive is being written."""
        if self._writing.locked():
            async with self._writing:
                pass

    async def keep_alive(self, seconds: float, write: Callable[[], Awaitable[None]], is_waiting: Callable[[], bool]) -> None:
        """Call `write` whenever no events were taken for some seconds and the run is waiting for a step, until cancelled."""
        while True:
            remaining = min(seconds, self.taken_at + seconds - monotonic()) if is_waiting() else seconds
            if remaining > 0:
                await asyncio.sleep(remaining)
                continue
            async with self._writing:
                await write()
            metrics.count("interlock_keep_alives_total")
            self.taken_at = monotonic()


@define(eq=False)
class RunControl:
    """Where a run stands in `TURNS`, from before its admission to its end, and what it is doing there.

    `interrupt` may be called at any time in the event loop of the run; `wait` then stops waiting.
    """

    turns: Machine[TurnTrigger, TurnEffect] = field(factory=partial(Machine.at_start, TURNS), init=False)
    steps: RunSteps | None = field(default=None, init=False)
    """The work of the state."""
    ending: Fault | Cancel = field(default=ABANDONED, init=False)
    """The delta with which the effect `BREAK_OFF` ends the response: of an interruption or a fault."""
    exit: BaseException | None = field(default=None, init=False)
    """The error that asks the process to end. It is raised when the response has ended."""
    free: Callable[[], object] = field(default=lambda: None, init=False)
    """Gives back the slot of the run, if it has one."""
    is_waiting: bool = field(default=False, init=False)
    _task: asyncio.Task[object] | None = field(default=None, init=False)
    """The task that waits."""

    @property
    def goes_on(self) -> bool:
        """Whether the run was not interrupted, and has not ended."""
        return TurnTrigger.INTERRUPT in self.turns.state.rows

    def interrupt(self, ending: Fault | Cancel) -> None:
        """End the run without waiting for the engine: with a terminal event, or an error if its response has not started.

        Only the first call counts. Pass a `Cancel` if no client wants the response, or a `Fault` if the server ends it.
        """
        if self.goes_on:
            self.ending = ending
            if TurnEffect.STOP in self.turns.fire(TurnTrigger.INTERRUPT) and self.is_waiting and self._task is not None:
                self._task.cancel()

    async def wait(self, work: Awaitable[T]) -> T | None:
        """Return the result of some work, or None if the run is interrupted meanwhile. The task itself is not cancelled then."""
        result: T | None = None
        self._task, self.is_waiting = asyncio.current_task(), True
        try:
            result = await work
        except asyncio.CancelledError:
            if self.goes_on:
                raise
        finally:
            self.is_waiting, may_go_on = False, self.goes_on
            if not may_go_on and self._task is not None and self._task.uncancel():
                raise asyncio.CancelledError  # the task was also cancelled from outside
        return result if may_go_on else None

    def record(self, error: BaseException, name: str, consequence: str) -> None:
        """Log an error. Keep one that asks the process to end, and reraise one that stops the current task."""
        if ends_process(error):
            self.exit = error
        elif not is_fault(error):
            raise error
        logger.error("%s: %s", name, consequence, exc_info=error)

    def take_exit(self) -> BaseException | None:
        """Return the error that asks the process to end, if any, and drop it, because its traceback refers to the run."""
        error, self.exit = self.exit, None
        return error

    async def close(self, close: Callable[[], Awaitable[object]], name: str) -> None:
        """Close something, and record an error."""
        try:
            await close()
        except BaseException as error:  # noqa: BLE001 - `record` reraises what stops the task
            self.record(error, name, "the engine or a tool could not be closed")
