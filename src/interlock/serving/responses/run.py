"""Runs the turn loop of a response step by step, and tracks the active runs of a server.

The table `TURNS` in `interlock.fsm.processes` defines the loop, and how an interrupted response ends. `Run` executes the table,
and a subclass does the work. If a step raises, the response fails, and its stream still ends with a terminal event.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Generic, Protocol, TypeVar, assert_never

from attrs import define, evolve, field, frozen

from interlock.fsm.deltas import Cancel, Delta, EndTurn, Fault, Finish, Start
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.processes.turns import TURNS, TurnEffect, TurnTrigger
from interlock.fsm.table import Machine
from interlock.serving.requests.api_errors import ApiError, EngineError, PromptError
from interlock.serving.requests.containment import ends_process, is_fault
from interlock.serving.store import StoredResponse

__all__ = ["GRACE", "INTERNAL_ERROR", "SHUTDOWN", "ActiveRuns", "Activity", "Interruptible", "Run"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

INTERNAL_ERROR: Final = "The server had an error while it generated the response."
"""Replaces the message of an error that may contain private details."""

ABANDONED: Final = Fault("server_error", "The response was abandoned before it ended.")
"""Ends a response whose task was cancelled, or whose `events` were closed, from outside the run."""

SHUTDOWN: Final = Fault("server_error", "The server is shutting down.")
"""Ends a response at shutdown: it becomes `failed`, not `cancelled`, because its client did not cancel it."""

GRACE: Final = 5
"""Seconds at shutdown for responses to end, and for clients to read the last events."""


@frozen(eq=False)
class Activity:
    """The work of a run in one state of the turn loop."""

    steps: AsyncGenerator[Sequence[Delta], None]
    """Yields the deltas of each step; their events are delivered before the next step."""
    next_trigger: Callable[[], TurnTrigger]
    """Returns the trigger to fire after the last step."""


@define(eq=False)
class Run(ABC, Generic[T]):
    """Generates one response; `driver` turns its deltas into events."""

    driver: ResponseDriver[T]
    _turns: Machine[TurnTrigger, TurnEffect] = field(factory=lambda: Machine.at_start(TURNS), init=False)
    _activity: Activity | None = field(default=None, init=False)
    _interruption: Fault | Cancel | None = field(default=None, init=False)
    _break_off_with: Fault | Cancel = field(default=ABANDONED, init=False)
    _task: asyncio.Task[object] | None = field(default=None, init=False)
    """The task that iterates the events."""
    _waiting: asyncio.Task[object] | None = field(default=None, init=False)
    """The same task, while it waits for a step."""
    _events: list[T] = field(factory=list[T], init=False)
    _exit: BaseException | None = field(default=None, init=False)
    """An error that asks the process to end; raised again after the response ends."""

    @property
    @abstractmethod
    def stored(self) -> StoredResponse:
        """The current response, for a store."""

    async def events(self) -> AsyncGenerator[list[T], None]:
        """Run the response and yield the events of each step, to send in one write. Iterate once, in one task.

        Closing the generator (`aclose`), or cancelling its task, stops the engine and the tools; `conclude` then returns the last
        events. A `KeyboardInterrupt` or `SystemExit` is raised again after the response ends.
        """
        self._task = asyncio.current_task()
        trigger: TurnTrigger | None = TurnTrigger.BEGIN
        try:
            while True:
                if trigger is not None:
                    await self._fire(trigger)
                if self._events:
                    yield self._take_events()
                if not self._turns.state.rows:
                    return
                trigger = await self._step()
        finally:
            await self._close()
            if self._exit is not None:
                raise self._exit

    async def admit(self) -> None:
        """Wait until the engine accepts the response; raise the error if it refuses. Call this before sending anything."""

    def conclude(self) -> list[T]:
        """End a response whose `events` were not exhausted, and return the remaining events."""
        if TurnTrigger.LEAVE in self._turns.state.rows:
            self._break_off_with = self._interruption or ABANDONED
            for effect in self._turns.fire(TurnTrigger.LEAVE):
                self._apply(effect)
        return self._take_events()

    def interrupt(self, ending: Fault | Cancel) -> None:
        """End the response with a terminal event, without waiting for the engine. Only the first call counts.

        Call this in the run's event loop. Pass a `Cancel` if no client wants the response, or a `Fault` if the server ends it.
        """
        if self._interruption is None:
            self._interruption = ending
            if self._waiting is not None:
                self._waiting.cancel()

    def _opening(self) -> Sequence[Delta]:
        return [Start()]

    async def _acquire(self) -> None:
        """Acquire the resources of the run."""

    async def _needs_compaction(self) -> bool:
        return False

    def _open(self) -> Activity:
        trigger = TurnTrigger.PREPARE

        async def steps() -> AsyncGenerator[Sequence[Delta], None]:
            nonlocal trigger
            await self._acquire()
            yield self._opening()
            if await self._needs_compaction():
                trigger = TurnTrigger.COMPACT

        return Activity(steps(), lambda: trigger)

    def _compact(self) -> Activity:
        """Replace the conversation with a summary."""
        raise NotImplementedError

    @abstractmethod
    def _prepare(self) -> Activity:
        """List the tools of MCP servers, and call the tools that the client has approved."""

    @abstractmethod
    def _generate(self) -> Activity:
        """Generate one turn."""

    @abstractmethod
    def _run_tools(self) -> Activity:
        """Run the pending tool calls."""

    @abstractmethod
    def _abort_turn(self) -> Sequence[Delta]:
        """Return the deltas that abort the current turn; the last is an `EndTurn` with its usage."""

    async def _settle(self) -> None:
        """Store and log the finished response. Its client receives the terminal event afterwards."""

    async def _fire(self, trigger: TurnTrigger) -> None:
        for effect in self._turns.fire(trigger):
            if effect is TurnEffect.STORE:
                try:
                    await self._settle()
                except BaseException as error:  # noqa: BLE001 - `_record` reraises what stops the task
                    self._record(error, "the response could not be stored or logged")
                await self._fire(TurnTrigger.SETTLE)
            else:
                self._apply(effect)

    def _apply(self, effect: TurnEffect) -> None:
        match effect:
            case TurnEffect.OPEN:
                self._activity = self._open()
            case TurnEffect.COMPACT:
                self._activity = self._compact()
            case TurnEffect.PREPARE:
                self._activity = self._prepare()
            case TurnEffect.GENERATE:
                self._activity = self._generate()
            case TurnEffect.RUN:
                self._activity = self._run_tools()
            case TurnEffect.FINISH:
                self._activity = _end_with(Finish())
            case TurnEffect.CUT:
                self._activity = _end_with(EndTurn("length"))
            case TurnEffect.BREAK_OFF:
                self._break_off(self._break_off_with)
            case TurnEffect.STORE:
                pass  # see `_fire`
            case _:
                assert_never(effect)

    async def _step(self) -> TurnTrigger | None:
        """Take one step of the activity; return the trigger to fire next, or None if the activity continues."""
        activity = self._activity
        assert activity is not None  # noqa: S101 - the edge into this state started one
        deltas: Sequence[Delta] | None = None
        try:
            if self._interruption is None:
                self._waiting = task = self._task
                try:
                    deltas = await anext(activity.steps, None)  # an interruption cancels only this wait
                except asyncio.CancelledError:
                    if self._interruption is None:
                        raise
                finally:
                    self._waiting = None
                    if self._interruption is not None and task is not None and task.uncancel():
                        raise asyncio.CancelledError  # the task was also cancelled from outside
            if self._interruption is None:
                if deltas is None:
                    return activity.next_trigger()
                self._events += self.driver.feed(deltas)
                return TurnTrigger.END if self.driver.ended else None
            self._break_off_with = self._interruption
        except BaseException as error:  # noqa: BLE001 - `_record` reraises what stops the task
            fault = self._fault(error)
            self._break_off_with = self._interruption or fault
        return TurnTrigger.FAIL

    def _break_off(self, ending: Fault | Cancel) -> None:
        """Abort the turn and end the response; if the abort fails, feed only the ending."""
        attempts: Sequence[Callable[[], Sequence[Delta]]] = (lambda: self._abort(ending), lambda: [ending])
        for attempt in attempts:
            try:
                self._events += self.driver.feed(attempt())
            except BaseException as error:  # noqa: BLE001 - `_record` reraises what stops the task
                self._record(error, "text of the aborted turn is lost")
            if self.driver.ended:
                return
        self._events += self.driver.feed([ending])

    def _abort(self, ending: Fault | Cancel) -> Sequence[Delta]:
        *pending, end = self._abort_turn()
        return [*pending, evolve(ending, usage=end.usage) if isinstance(end, EndTurn) else ending]

    def _fault(self, error: BaseException) -> Fault:
        if not isinstance(error, PromptError):  # the client caused it, so do not log it
            self._record(error, "the response failed")
        return Fault(error.code, str(error)) if isinstance(error, EngineError) else Fault("server_error", INTERNAL_ERROR)

    def _record(self, error: BaseException, consequence: str) -> None:
        """Log an error. Save one that asks the process to end, and reraise one that stops the current task."""
        if ends_process(error):
            self._exit = error
        elif not is_fault(error):
            raise error
        logger.error("%s: %s", self.driver.response["id"], consequence, exc_info=error)

    def _take_events(self) -> list[T]:
        events, self._events = self._events, []
        return events

    async def _close(self) -> None:
        """Close the activity, which stops the engine and the tools."""
        try:
            if self._activity is not None:
                await self._activity.steps.aclose()
        except BaseException as error:  # noqa: BLE001 - `_record` reraises what stops the task
            self._record(error, "the engine or a tool could not be closed")


def _end_with(delta: Delta) -> Activity:
    async def steps() -> AsyncGenerator[Sequence[Delta], None]:
        yield [delta]

    return Activity(steps(), lambda: TurnTrigger.END)


class Interruptible(Protocol):
    """A run that other code can end."""

    def interrupt(self, ending: Fault | Cancel) -> None:
        """End the run as soon as possible."""


@define(eq=False)
class ActiveRuns:
    """The active runs of one server; `limit` is their maximum, or None."""

    limit: int | None = None
    _runs: set[Interruptible] = field(factory=set[Interruptible], init=False)
    _ending: Fault | None = field(default=None, init=False)
    _empty: asyncio.Event = field(factory=asyncio.Event, init=False)

    @contextmanager
    def track(self, run: Interruptible) -> Generator[None]:
        """Track a run for the duration of the context; interrupt it at once if `end` was called."""
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
        """Raise a 429 if the limit is reached."""
        if self.limit is not None and len(self._runs) >= self.limit:
            message = f"The server is already generating {self.limit} responses, its limit; try again in a second."
            raise ApiError(429, message, "rate_limit_exceeded", code="rate_limit_exceeded")

    def end(self, ending: Fault = SHUTDOWN) -> None:
        """Interrupt all runs, and every run tracked later."""
        self._ending = ending
        for run in self._runs:
            run.interrupt(ending)

    async def wait(self, seconds: float) -> None:
        """Wait until no run is left, for at most `seconds`."""
        if self._runs:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._empty.wait()

    def __len__(self) -> int:
        return len(self._runs)
