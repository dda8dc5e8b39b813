"""The turn loop of one response, run step by step, and the runs in progress on one server.

The table `TURNS` defines the loop, and how an interrupted response ends. `Run` executes the table, and subclasses do
the work. Any exception becomes the end of the response and never of the stream (rule R4).
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
"""The end of a response whose task was cancelled from outside the run."""

SHUTDOWN: Final = Fault("server_error", "The server is shutting down.")
"""The end of a response at a shutdown: failed and not cancelled, because its client did not ask for it."""

GRACE: Final = 5
"""Seconds for responses to end at a shutdown, and for clients to read their ends."""


@frozen(eq=False)
class Activity:
    """The work of a run in one state of the turn loop."""

    steps: AsyncGenerator[Sequence[Delta], None]
    """Yields the deltas of each step; their events are delivered before the next step."""
    next_trigger: Callable[[], TurnTrigger]
    """Returns the trigger to fire after the last step, when the driver has all deltas."""


@define(eq=False)
class Run(ABC, Generic[T]):
    """One response while it is generated; the driver makes its events."""

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
        """The response as it is now, for a store."""

    async def events(self) -> AsyncGenerator[list[T], None]:
        """Run the response, once and in one task, and yield the events of each step, which belong into one write.

        Closing the generator (`aclose`), or cancelling its task, stops the engine and the tools; `conclude` then returns the end
        of the stream. A `KeyboardInterrupt` or `SystemExit` in the run is raised after the end of the response.
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
        """Wait until the engine accepts the response, before anything is sent; raise the engine's refusal."""

    def conclude(self) -> list[T]:
        """End a response whose `events` were not iterated to the end, and return the events that are left."""
        if TurnTrigger.LEAVE in self._turns.state.rows:
            self._break_off_with = self._interruption or ABANDONED
            for effect in self._turns.fire(TurnTrigger.LEAVE):
                self._apply(effect)
        return self._take_events()

    def interrupt(self, ending: Fault | Cancel) -> None:
        """End the response legally, without waiting for the engine; only the first interruption counts.

        Call this in the event loop of the run, with a `Cancel` if nobody wants the response, or a `Fault` of the server.
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
        """Return the deltas that end the current turn as aborted, the last with its usage."""

    async def _settle(self) -> None:
        """Store and log the finished response, before its client sees the end."""

    async def _fire(self, trigger: TurnTrigger) -> None:
        for effect in self._turns.fire(trigger):
            if effect is TurnEffect.STORE:
                try:
                    await self._settle()
                except BaseException as error:  # noqa: BLE001 - `_record` raises what is not a fault
                    self._record(error, "it could not be stored or logged")
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
        assert activity is not None  # noqa: S101 - every edge into a state that lasts begins one
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
                        raise asyncio.CancelledError  # somebody else cancels the task too
            if self._interruption is None:
                if deltas is None:
                    return activity.next_trigger()
                self._events += self.driver.feed(deltas)
                return TurnTrigger.END if self.driver.ended else None
            self._break_off_with = self._interruption
        except BaseException as error:  # noqa: BLE001 - `_record` raises what is not a fault
            fault = self._fault(error)
            self._break_off_with = self._interruption or fault
        return TurnTrigger.FAIL

    def _break_off(self, ending: Fault | Cancel) -> None:
        """End the response within a turn; if the turn cannot be aborted, feed only the ending."""
        attempts: Sequence[Callable[[], Sequence[Delta]]] = (lambda: self._abort(ending), lambda: [ending])
        for attempt in attempts:
            try:
                self._events += self.driver.feed(attempt())
            except BaseException as error:  # noqa: BLE001 - likewise
                self._record(error, "text of its turn is lost")
            if self.driver.ended:
                return
        self._events += self.driver.feed([ending])

    def _abort(self, ending: Fault | Cancel) -> Sequence[Delta]:
        *pending, end = self._abort_turn()
        return [*pending, evolve(ending, usage=end.usage) if isinstance(end, EndTurn) else ending]

    def _fault(self, error: BaseException) -> Fault:
        if not isinstance(error, PromptError):  # which is the client's fault, and does not belong into the log
            self._record(error, "it fails")
        return Fault(error.code, str(error)) if isinstance(error, EngineError) else Fault("server_error", INTERNAL_ERROR)

    def _record(self, error: BaseException, consequence: str) -> None:
        """Log a fault, remember an error that asks the process to end, and raise one that stops the current task."""
        if ends_process(error):
            self._exit = error
        elif not is_fault(error):
            raise error
        logger.error("%s: %s", self.driver.response["id"], consequence, exc_info=error)

    def _take_events(self) -> list[T]:
        events, self._events = self._events, []
        return events

    async def _close(self) -> None:
        """Stop the activity, and with it the engine and the tools."""
        try:
            if self._activity is not None:
                await self._activity.steps.aclose()
        except BaseException as error:  # noqa: BLE001 - likewise
            self._record(error, "the engine or a tool could not be closed")


def _end_with(delta: Delta) -> Activity:
    async def steps() -> AsyncGenerator[Sequence[Delta], None]:
        yield [delta]

    return Activity(steps(), lambda: TurnTrigger.END)


class Interruptible(Protocol):
    """A run that can be ended from outside."""

    def interrupt(self, ending: Fault | Cancel) -> None:
        """End the run as soon as possible."""


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
        """Refuse another run above the limit with a 429."""
        if self.limit is not None and len(self._runs) >= self.limit:
            message = f"The server is already making {self.limit} responses, which is its limit; try again in a second."
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
        return len(self._runs)
