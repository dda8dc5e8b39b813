"""One response of vLLM while it is being made: vLLM's loop yields outputs, a reader reads them, a driver makes the events.

It knows the order of things and neither HTTP nor how events are written, so that a stream and an answer in one piece come from
the same run (rule R19). Whatever breaks becomes the end of the response and never of the stream (rule R4).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

from attrs import define, field

from interlock.fsm.deltas import Cancel, Delta, EndTurn, Fault, Finish, Start
from interlock.fsm.driver import ResponseDriver
from interlock.serving.vllm.reading import Reader, finish_reason
from interlock.serving.vllm.rounds import Rounds
from interlock.serving.vllm.sessions import ToolSessions
from interlock.serving.vllm.shapes import Steps

__all__ = ["VllmRun"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

OUR_FAULT: Final = "The server had an error while it generated the response."
"""What a client is told of a fault whose own message may hold what is not for clients."""

SPOKEN: Final = frozenset({"GenerationError", "VLLMValidationError", "EngineDeadError", "EngineGenerateError"})
"""vLLM's errors whose messages are made for clients."""

END: Final = object()
"""What follows the last step of vLLM's loop."""


@define(eq=False)
class VllmRun(Generic[T]):
    """One response while it is being made; `Interruptible` in the sense of `interlock.serving.answers`.

    Args:
        driver: Makes the events.
        steps: vLLM's loop over rounds.
        rounds: The hooks in it.
        reader: Reads its outputs.
        tools: The sessions with tool servers.
        keep: Stores the response when it has ended, before its client knows that it has.
        opening: How it begins.
    """

    driver: ResponseDriver[T]
    _steps: Steps
    _rounds: Rounds
    _reader: Reader
    _tools: ToolSessions
    _keep: Callable[[ResponseDriver[T]], Awaitable[None]]
    _opening: Sequence[Delta]
    _interruption: Fault | Cancel | None = field(default=None, init=False)
    _waiting: asyncio.Task[object] | None = field(default=None, init=False)
    """The task that waits for the engine or a tool, while it does."""

    async def events(self) -> AsyncGenerator[list[T], None]:
        """Make the response, to be called once.

        Closing the generator (`aclose`), or cancelling the task that iterates it, aborts the request in the engine.

        Yields:
            The events of one step (of the engine, of a tool), which belong into one write; never an empty list.
        """
        happenings = self._happenings()
        told = self._opening
        try:
            while not self.driver.ended:
                events = self._feed(told)
                if self.driver.ended:
                    await self._keep(self.driver)
                if events:
                    yield events
                if not self.driver.ended:
                    told = await self._next(happenings)
        finally:
            await self._close(happenings)

    def interrupt(self, ending: Fault | Cancel) -> None:
        """End the response as soon as possible, and legally; the first interruption counts.

        It is to be called in the event loop that iterates `events`.

        Args:
            ending: `Cancel` if nobody wants the response any more, `Fault` if the server cannot go on.
        """
        if self._interruption is None:
            self._interruption = ending
            if self._waiting is not None:
                self._waiting.cancel()

    def _feed(self, told: Iterable[Delta]) -> list[T]:
        try:
            return self.driver.feed(told)
        except Exception as error:  # noqa: BLE001 - a stream is never cut, whatever our own bug is
            return self.driver.feed([self._fault(error)])

    async def _next(self, happenings: AsyncGenerator[Sequence[Delta], None]) -> Sequence[Delta]:
        """Wait for what happens next; this wait alone is what an interruption may break off."""
        if self._interruption is not None:
            return [self._interruption]
        told: Sequence[Delta] = ()
        self._waiting = task = asyncio.current_task()
        try:
            told = await anext(happenings)
        except asyncio.CancelledError:
            if self._interruption is None:
                raise
        except Exception as error:  # noqa: BLE001 - a stream is never cut, whatever vLLM or a parser raises
            told = [self._fault(error)]
        finally:
            self._waiting = None
        if self._interruption is None:
            return told
        if task is not None and task.uncancel():
            raise asyncio.CancelledError  # somebody else cancels as well
        return [self._interruption]

    async def _happenings(self) -> AsyncGenerator[Sequence[Delta], None]:
        """Tell what happens, step by step; whoever listens feeds the driver before the next step."""
        await self._tools.open()
        yield [Start()]
        step = await self._step()
        while step is not END:
            output = self._rounds.output
            if output is not None:
                yield self._reader.read(output)
            if output is None or not (output.finished or self._rounds.exhausted):
                step = await self._step()
                continue
            # Up to 0.30, vLLM limits only the first round of gpt-oss; a later one that goes on is cut here.
            yield self._reader.end(finish_reason(output) if output.finished else "length")
            following = asyncio.create_task(self._step())
            try:
                async for told in self._between_rounds(following):
                    yield told
                step = await following
            finally:
                following.cancel()
                await asyncio.wait([following])
        yield [EndTurn("length")] if self._rounds.exhausted and self.driver.ready else [Finish()]

    async def _step(self) -> object:
        """Wait for vLLM's next step. Between two rounds, vLLM runs a tool in it."""
        return await anext(self._steps, END)

    async def _between_rounds(self, step: asyncio.Task[object]) -> AsyncGenerator[Sequence[Delta], None]:
        """Tell what happens to tools until a step is made."""
        told = self._rounds.told
        step.add_done_callback(lambda _: told.put_nowait(()))
        while deltas := await told.get():
            yield deltas

    def _fault(self, error: Exception) -> Fault:
        """Log what broke, and say what the client may know of it."""
        logger.error("%s: %s", self.driver.response["id"], error, exc_info=error)
        return Fault("server_error", str(error) if type(error).__name__ in SPOKEN else OUR_FAULT)

    async def _close(self, happenings: AsyncGenerator[Sequence[Delta], None]) -> None:
        """Close vLLM's loop, which aborts a request that is still in the engine, and then the tools' sessions."""
        try:
            await happenings.aclose()
            await self._steps.aclose()
        except Exception:
            logger.exception("%s: vLLM's loop could not be closed", self.driver.response["id"])
        finally:
            await self._tools.close()
