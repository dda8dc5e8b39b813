"""One response while it is being made: what happens is told to a driver, step by step, until the response has ended.

It knows who waits for whom and how a response is broken off, and nothing of engines, parsers and tools: what happens is for
those who derive from `Run` to say. Whatever breaks becomes the end of the response and never of the stream (rule R4).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from typing import Final, Generic, TypeVar

from attrs import define, evolve, field

from interlock.fsm.deltas import Cancel, Delta, EndTurn, Fault
from interlock.fsm.driver import ResponseDriver
from interlock.serving.faults import ends_process, is_fault

__all__ = ["OUR_FAULT", "Run"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

OUR_FAULT: Final = "The server had an error while it generated the response."
"""What a client is told of a fault whose own message may hold what is not for clients."""

ABANDONED: Final = Fault("server_error", "The response was given up before its end.")
"""How a response ends whose task was cancelled by somebody else than the run."""


@define(eq=False)
class Run(ABC, Generic[T]):
    """One response while it is being made.

    Args:
        driver: Makes the events.
    """

    driver: ResponseDriver[T]
    _interruption: Fault | Cancel | None = field(default=None, init=False)
    _waiting: asyncio.Task[object] | None = field(default=None, init=False)
    """The task that waits for what happens next, while it does."""
    _made: list[T] = field(factory=list[T], init=False)
    """The events that were made and not taken yet."""
    _deadly: BaseException | None = field(default=None, init=False)
    """What asks the process to end: it is raised again when the response has ended."""

    async def events(self) -> AsyncGenerator[list[T], None]:
        """Make the response, to be called once.

        Closing the generator (`aclose`), or cancelling the task that iterates it, stops the engine and the tools; `conclude`
        then gives the end that is missing.

        Yields:
            The events of one step (of the engine, of a tool), which belong into one write; never an empty list. The last
            ones end the response: `driver.ended` is then true.

        Raises:
            KeyboardInterrupt: It was raised in the run; the response has ended by then. The same goes for `SystemExit`.
        """
        happenings = self._happenings()
        try:
            while not self.driver.ended:
                await self._step(happenings)
                if self.driver.ended:
                    await self._end()
                if self._made:
                    yield self._take()
        finally:
            await self._close(happenings)
            if self._deadly is not None:
                raise self._deadly

    def conclude(self) -> list[T]:
        """End the response if `events` was left before its end, and return the events that nobody has taken yet.

        So whoever shows the response has its end even if the task that made it was cancelled.
        """
        if not self.driver.ended:
            self._end_by(self._interruption or ABANDONED)
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

    @abstractmethod
    def _happenings(self) -> AsyncGenerator[Sequence[Delta], None]:
        """Tell what happens, step by step, until the response ends; whoever listens feeds the driver before the next step."""

    @abstractmethod
    def _break_off(self) -> Sequence[Delta]:
        """End the turn that is going on as if it were aborted: what was held back and, last, what it has cost."""

    @abstractmethod
    def _is_for_clients(self, error: BaseException) -> bool:
        """Whether the message of an error is made for clients."""

    async def _settle(self) -> None:
        """Do what is to be done when the response has ended, before its client knows that it has."""

    async def _end(self) -> None:
        """Settle the response; what goes wrong in that is no fault of the stream."""
        try:
            await self._settle()
        except BaseException as error:  # noqa: BLE001 - `_caught` raises what is no fault
            self._caught(error, "it could not be stored or logged")

    async def _step(self, happenings: AsyncGenerator[Sequence[Delta], None]) -> None:
        """Feed the driver with what happens next, or end the response by what is raised instead."""
        try:
            told = await self._next(happenings)
            if self._interruption is None:
                self._made += self.driver.feed(told)
                return
            ending = self._interruption
        except BaseException as error:  # noqa: BLE001 - likewise
            fault = self._fault(error)
            ending = self._interruption or fault
        self._end_by(ending)

    async def _next(self, happenings: AsyncGenerator[Sequence[Delta], None]) -> Sequence[Delta]:
        """Wait for what happens next, if nothing has interrupted the run; this wait alone is what an interruption breaks off."""
        if self._interruption is not None:
            return ()
        self._waiting = task = asyncio.current_task()
        try:
            return await anext(happenings)
        except asyncio.CancelledError:
            if self._interruption is None:
                raise
            return ()
        finally:
            self._waiting = None
            if self._interruption is not None and task is not None and task.uncancel():
                raise asyncio.CancelledError  # somebody else cancels as well

    def _end_by(self, ending: Fault | Cancel) -> None:
        """End the response in the middle of a turn, by its plain end if what the turn held back cannot be had."""
        for broken_off in (self._broken_off, lambda _: [ending]):
            try:
                self._made += self.driver.feed(broken_off(ending))
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
        self._caught(error, "it fails")
        return Fault("server_error", str(error) if self._is_for_clients(error) else OUR_FAULT)

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

    async def _close(self, happenings: AsyncGenerator[Sequence[Delta], None]) -> None:
        try:
            await happenings.aclose()
        except BaseException as error:  # noqa: BLE001 - likewise
            self._caught(error, "the engine or a tool could not be closed")
