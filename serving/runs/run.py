"""One response while it is being made: what happens is told to a driver, step by step, until the response has ended.

It knows who waits for whom and how a response is broken off, and nothing of engines, parsers and tools: what happens is for
those who derive from `Run` to say. Whatever breaks becomes the end of the response and never of the stream (rule R4).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Final, Generic, TypeVar

from attrs import define, evolve, field

from interlock.fsm.deltas import Cancel, Delta, EndTurn, Fault
from interlock.fsm.driver import ResponseDriver

__all__ = ["OUR_FAULT", "Run"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

OUR_FAULT: Final = "The server had an error while it generated the response."
"""What a client is told of a fault whose own message may hold what is not for clients."""


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

    async def events(self) -> AsyncGenerator[list[T], None]:
        """Make the response, to be called once.

        Closing the generator (`aclose`), or cancelling the task that iterates it, stops the engine and the tools.

        Yields:
            The events of one step (of the engine, of a tool), which belong into one write; never an empty list. The last
            ones end the response: `driver.ended` is then true.
        """
        happenings = self._happenings()
        try:
            ended = False
            while not ended:
                events = self._feed(await self._next(happenings))
                ended = self.driver.ended
                if ended:
                    await self._end()
                if events:
                    yield events
        finally:
            await self._close(happenings)

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
    def _is_for_clients(self, error: Exception) -> bool:
        """Whether the message of an error is made for clients."""

    async def _settle(self) -> None:
        """Do what is to be done when the response has ended, before its client knows that it has."""

    async def _end(self) -> None:
        """Settle the response; what goes wrong in that is no fault of the stream."""
        try:
            await self._settle()
        except Exception:
            logger.exception("%s: it could not be stored or logged", self.driver.response["id"])

    def _feed(self, told: Iterable[Delta]) -> list[T]:
        try:
            return self.driver.feed(told)
        except Exception as error:  # noqa: BLE001 - a stream is never cut, whatever our own bug is
            return self.driver.feed(self._broken_off(self._fault(error)))

    async def _next(self, happenings: AsyncGenerator[Sequence[Delta], None]) -> Sequence[Delta]:
        """Wait for what happens next; this wait alone is what an interruption may break off."""
        if self._interruption is not None:
            return self._broken_off(self._interruption)
        told: Sequence[Delta] = ()
        self._waiting = task = asyncio.current_task()
        try:
            told = await anext(happenings)
        except asyncio.CancelledError:
            if self._interruption is None:
                raise
        except Exception as error:  # noqa: BLE001 - a stream is never cut, whatever an engine or a parser raises
            told = self._broken_off(self._fault(error))
        finally:
            self._waiting = None
        if self._interruption is None:
            return told
        if task is not None and task.uncancel():
            raise asyncio.CancelledError  # somebody else cancels as well
        return self._broken_off(self._interruption)

    def _broken_off(self, ending: Fault | Cancel) -> Sequence[Delta]:
        """End in the middle of a turn: what was held back is said, and what the turn has cost is counted."""
        try:
            *held, end = self._break_off()
        except Exception:
            logger.exception("%s: the parser could not end its turn", self.driver.response["id"])
            return [ending]
        return [*held, evolve(ending, usage=end.usage) if isinstance(end, EndTurn) else ending]

    def _fault(self, error: Exception) -> Fault:
        """Log what broke, and say what the client may know of it."""
        logger.error("%s: %s", self.driver.response["id"], error, exc_info=error)
        return Fault("server_error", str(error) if self._is_for_clients(error) else OUR_FAULT)

    async def _close(self, happenings: AsyncGenerator[Sequence[Delta], None]) -> None:
        try:
            await happenings.aclose()
        except Exception:
            logger.exception("%s: the engine or a tool could not be closed", self.driver.response["id"])
