"""One response while it is being made: the loop over turns, run step by step.

What is done when, and how a response ends wherever it is broken off, is the table `TURNS`; `Run` is the
machine that runs it. It knows who waits for whom, and nothing of engines, parsers and tools: the work that an edge asks for is
done by those who derive from `Run`. Whatever is raised becomes the end of the response and never of the stream (rule R4).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, Generic, TypeVar, assert_never

from attrs import define, evolve, field, frozen

from interlock.fsm.deltas import Cancel, Delta, EndTurn, Fault, Finish, Start
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.processes.turns import TURNS, TurnEffect, TurnTrigger
from interlock.fsm.table import Machine
from interlock.serving.requests.api_errors import EngineError, PromptError
from interlock.serving.requests.containment import ends_process, is_fault
from interlock.serving.responses.compaction_run import Compaction, compacting

__all__ = ["OUR_FAULT", "Run", "Work"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

OUR_FAULT: Final = "The server had an error while it generated the response."
"""The message of a fault whose own message may hold what is not for clients."""

ABANDONED: Final = Fault("server_error", "The response was given up before its end.")
"""How a response ends whose task was cancelled by somebody else than the run."""


@frozen(eq=False)
class Work:
    """Something that is done step by step while a response is made.

    Args:
        steps: Yields the deltas of each step. They are fed, and their events delivered, before the next step begins.
        look: Returns the trigger to fire when the work is done. All of its deltas have been fed by then, so that it can look
            at the driver.
    """

    steps: AsyncGenerator[Sequence[Delta], None]
    look: Callable[[], TurnTrigger]


@define(eq=False)
class Run(ABC, Generic[T]):
    """One response while it is being made.

    Args:
        driver: Makes the events.
    """

    driver: ResponseDriver[T]
    compaction: Compaction | None = field(default=None, init=False)
    """How its conversation is compacted, if that may be."""
    _turns: Machine[TurnTrigger, TurnEffect] = field(factory=lambda: Machine.at_start(TURNS), init=False)
    _work: Work | None = field(default=None, init=False)
    _interruption: Fault | Cancel | None = field(default=None, init=False)
    _broken: Fault | Cancel = field(default=ABANDONED, init=False)
    """How the response ends when it is broken off."""
    _task: asyncio.Task[object] | None = field(default=None, init=False)
    """The task that iterates the events."""
    _waiting: asyncio.Task[object] | None = field(default=None, init=False)
    """The same while it waits for what happens next."""
    _made: list[T] = field(factory=list[T], init=False)
    """The events that were made and not taken yet."""
    _deadly: BaseException | None = field(default=None, init=False)
    """What asks the process to end: it is raised again when the response has ended."""

    async def events(self) -> AsyncGenerator[list[T], None]:
        """Make the response, to be called once, and iterated by one task.

        Closing the generator (`aclose`), or cancelling the task that iterates it, stops the engine and the tools; `conclude`
        then returns the end that is missing.

        Yields:
            The events of one step (of the engine, of a tool), which belong into one write; never an empty list. The last
            ones end the response: `driver.ended` is then true.

        Raises:
            KeyboardInterrupt: It was raised in the run; the response has ended by then. The same goes for `SystemExit`.
        """
        self._task = asyncio.current_task()
        trigger: TurnTrigger | None = TurnTrigger.BEGIN
        try:
            while True:
                if trigger is not None:
                    await self._fire(trigger)
                if self._made:
                    yield self._take()
                if not self._turns.state.rows:
                    return
                trigger = await self._step()
        finally:
            await self._close()
            if self._deadly is not None:
                raise self._deadly

    async def admitted(self) -> None:
        """Wait until it is certain that the response is made; before, nothing should be answered.

        Raises:
            Exception: Why it is not made.
        """

    def conclude(self) -> list[T]:
        """End the response if `events` was left before its end, and return the events that nobody has taken yet.

        So whoever shows the response has its end even if the task that made it was cancelled.
        """
        if TurnTrigger.LEAVE in self._turns.state.rows:
            self._broken = self._interruption or ABANDONED
            for effect in self._turns.fire(TurnTrigger.LEAVE):
                self._carry_out(effect)
        return self._take()

    def interrupt(self, ending: Fault | Cancel) -> None:
        """End the response as soon as possible, and legally; the first interruption counts.

        It is to be called in the event loop that iterates `events`. What the engine yields from now on is not waited for.

        Args:
            ending: `Cancel` if nobody wants the response any more, `Fault` if the server cannot go on.
        """
        if self._interruption is None:
            self._interruption = ending
            if self._waiting is not None:
                self._waiting.cancel()

    def _opening(self) -> Sequence[Delta]:
        """Return how the response begins."""
        return [Start()]

    async def _enter(self) -> None:
        """Take hold of what must be held until the response has ended."""

    def _open(self) -> Work:
        """Return the work of beginning the response, in which is seen whether its conversation is to be compacted."""
        following = TurnTrigger.PREPARE

        async def steps() -> AsyncGenerator[Sequence[Delta], None]:
            nonlocal following
            await self._enter()
            yield self._opening()
            if self.compaction is not None and await self.compaction.is_due():
                following = TurnTrigger.COMPACT

        return Work(steps(), lambda: following)

    def _compact(self) -> Work:
        """Return the work of compacting the conversation."""
        compaction = self.compaction
        assert compaction is not None  # noqa: S101 - nothing else fires the trigger
        following = TurnTrigger.ANSWER if compaction.alone else TurnTrigger.PREPARE
        return Work(compacting(self.driver, compaction), lambda: following)

    @abstractmethod
    def _prepare(self) -> Work:
        """Return the work before the first turn: reach the tool servers, put the calls that the client has approved."""

    @abstractmethod
    def _generate(self) -> Work:
        """Return the work of one turn of the model."""

    @abstractmethod
    def _run_tools(self) -> Work:
        """Return the work of running the tools of the calls that wait."""

    @abstractmethod
    def _break_off(self) -> Sequence[Delta]:
        """End the turn that is going on as if it were aborted: what was held back and, last, what it has cost."""

    @abstractmethod
    def _is_for_clients(self, error: BaseException) -> bool:
        """Return whether the message of an error is made for clients."""

    async def _settle(self) -> None:
        """Store and log the response when it has ended, before its client sees the end."""

    async def _end(self) -> None:
        """Settle the response; what goes wrong in that is no fault of the stream."""
        try:
            await self._settle()
        except BaseException as error:  # noqa: BLE001 - `_caught` raises what is no fault
            self._caught(error, "it could not be stored or logged")

    async def _fire(self, trigger: TurnTrigger) -> None:
        """Fire an edge and carry out its effects."""
        for effect in self._turns.fire(trigger):
            if effect is TurnEffect.STORE:
                await self._end()
                await self._fire(TurnTrigger.SETTLE)
            else:
                self._carry_out(effect)

    def _carry_out(self, effect: TurnEffect) -> None:
        match effect:
            case TurnEffect.OPEN:
                self._work = self._open()
            case TurnEffect.COMPACT:
                self._work = self._compact()
            case TurnEffect.PREPARE:
                self._work = self._prepare()
            case TurnEffect.GENERATE:
                self._work = self._generate()
            case TurnEffect.RUN:
                self._work = self._run_tools()
            case TurnEffect.FINISH:
                self._work = _ending(Finish())
            case TurnEffect.CUT:
                self._work = _ending(EndTurn("length"))
            case TurnEffect.BREAK_OFF:
                self._break(self._broken)
            case TurnEffect.STORE:
                pass  # see `_fire`
            case _:
                assert_never(effect)

    async def _step(self) -> TurnTrigger | None:
        """Take one step of the work at hand; return what is to be fired next, or None if the work goes on."""
        work = self._work
        assert work is not None  # noqa: S101 - every edge into a state that lasts begins one
        told: Sequence[Delta] | None = None
        try:
            if self._interruption is None:
                self._waiting = task = self._task
                try:
                    told = await anext(work.steps, None)  # this wait alone is what an interruption breaks off
                except asyncio.CancelledError:
                    if self._interruption is None:
                        raise
                finally:
                    self._waiting = None
                    if self._interruption is not None and task is not None and task.uncancel():
                        raise asyncio.CancelledError  # somebody else cancels as well
            if self._interruption is None:
                if told is None:
                    return work.look()
                self._made += self.driver.feed(told)
                return TurnTrigger.END if self.driver.ended else None
            self._broken = self._interruption
        except BaseException as error:  # noqa: BLE001 - `_caught` raises what is no fault
            fault = self._fault(error)
            self._broken = self._interruption or fault
        return TurnTrigger.FAIL

    def _break(self, ending: Fault | Cancel) -> None:
        """End the response in the middle of a turn, by its plain end if what the turn held back cannot be had."""
        attempts: Sequence[Callable[[], Sequence[Delta]]] = (lambda: self._broken_off(ending), lambda: [ending])
        for told in attempts:
            try:
                self._made += self.driver.feed(told())
            except BaseException as error:  # noqa: BLE001 - likewise
                self._caught(error, "what its turn held back is lost")
            if self.driver.ended:
                return
        self._made += self.driver.feed([ending])

    def _broken_off(self, ending: Fault | Cancel) -> Sequence[Delta]:
        """Return what ends the turn and the response: what was held back, and what the turn has cost."""
        *held, end = self._break_off()
        return [*held, evolve(ending, usage=end.usage) if isinstance(end, EndTurn) else ending]

    def _fault(self, error: BaseException) -> Fault:
        """Log what broke, and return what the client may know of it."""
        if not isinstance(error, PromptError):  # which is the client's fault, and no matter for our log
            self._caught(error, "it fails")
        code = error.code if isinstance(error, EngineError) else "server_error"
        return Fault(code, str(error) if self._is_for_clients(error) else OUR_FAULT)

    def _caught(self, error: BaseException, consequence: str) -> None:
        """Log what was raised, and remember it if it asks the process to end.

        Raises:
            BaseException: It is a message of Python's own to the task at hand.
        """
        if ends_process(error):
            self._deadly = error
        elif not is_fault(error):
            raise error
        logger.error("%s: %s", self.driver.response["id"], consequence, exc_info=error)

    def _take(self) -> list[T]:
        taken, self._made = self._made, []
        return taken

    async def _close(self) -> None:
        """Stop the work at hand, and with it the engine and the tools."""
        try:
            if self._work is not None:
                await self._work.steps.aclose()
        except BaseException as error:  # noqa: BLE001 - likewise
            self._caught(error, "the engine or a tool could not be closed")


def _ending(delta: Delta) -> Work:
    """Return the work of ending the response by one delta."""

    async def steps() -> AsyncGenerator[Sequence[Delta], None]:
        yield [delta]

    return Work(steps(), lambda: TurnTrigger.END)
