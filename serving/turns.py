"""The turns of one response: an engine is asked, a parser reads its answer, tools run, and a driver makes the events.

It knows neither HTTP nor how events are written: the driver that it is given decides that, and so a stream and an answer in
one piece come from the same run (rule R19). Whatever breaks becomes the end of the response and never of the stream (rule
R4): a fault of the engine, the parser or ourselves ends it as failed, and so does whoever interrupts it with a `Fault`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Generic, TypeVar, cast

from attrs import define, evolve, field, frozen

from interlock.events.json import clean
from interlock.events.resource import response_settings
from interlock.events.spec import EventSpec
from interlock.events.sse import Keep, Writer
from interlock.fsm.deltas import Cancel, Delta, EndTurn, Fault, Finish, Start, Usage
from interlock.fsm.driver import ReadyCall, ResponseDriver
from interlock.fsm.ids import Clock, Ids
from interlock.parsers import parser_for
from interlock.parsers.chunk import Parser
from interlock.serving.conversation import Item
from interlock.serving.engines.engine import Engine, EngineOutput, Turn
from interlock.serving.errors import EngineError
from interlock.serving.identity import now, random_id
from interlock.serving.request import CreateResponse
from interlock.serving.tooling import NoTools, ToolRunner, Tools

__all__ = ["ResponseRun", "Unwritten", "begin_response"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

OUR_FAULT: Final = "The server had an error while it generated the response."
"""What a client is told of a fault whose own message may hold what is not for clients."""

CLIENT_CALLS: Final = frozenset({"function_call", "custom_tool_call", "mcp_approval_request"})
"""What the client answers, by another request."""


@frozen
class Unwritten:
    """Writes nothing: for a response of which only the end is wanted."""

    def write(self, spec: EventSpec, values: Mapping[str, object], sequence_number: int) -> None:
        """Write nothing."""

    def stamp(self, spec: EventSpec, values: Mapping[str, object], keep: Keep) -> Callable[[str, int], None]:
        """Prepare to write nothing, and to keep what was said."""
        del spec, values

        def write_nothing(text: str, sequence_number: int) -> None:
            del sequence_number
            keep(clean(text).encode())

        return write_nothing


@define(eq=False)
class ResponseRun(Generic[T]):
    """One response while it is being made.

    Args:
        request: What is asked for.
        items: The conversation that the model goes on from, the request's input included.
        engine: Whom to ask.
        parser: Reads what the engine's model writes.
        driver: Makes the events.
        tools: Gives the response its hosted tools.
    """

    request: CreateResponse
    items: Sequence[Item]
    engine: Engine
    parser: Parser
    driver: ResponseDriver[T]
    tools: ToolRunner = field(factory=NoTools)
    _usage: Usage = field(factory=Usage, init=False)
    """What the engine has said that the turn costs which is going on."""
    _interruption: Fault | Cancel | None = field(default=None, init=False)
    _waiting: asyncio.Task[object] | None = field(default=None, init=False)
    """The task that waits for the engine or a tool, while it does."""

    async def events(self) -> AsyncGenerator[list[T], None]:
        """Make the response, to be called once.

        Closing the generator (`aclose`), or cancelling the task that iterates it, stops the engine and the tools.

        Yields:
            The events of one step (of the engine, of a tool), which belong into one write; never an empty list. The last
            ones end the response: `driver.ended` is then true.
        """
        happenings = self._happenings()
        try:
            told: Sequence[Delta] = [Start()]
            while True:
                if events := self._feed(told):
                    yield events
                if self.driver.ended:
                    return
                told = await self._next(happenings)
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

    async def _happenings(self) -> AsyncGenerator[Sequence[Delta], None]:
        """Tell what happens, step by step, until the response ends; whoever listens feeds the driver before the next step."""
        budget, index = self.request.max_output_tokens, 0
        async with self.tools.begin(self.request, self.items) as tools:
            async with aclosing(self._before_turns(tools)) as before:
                async for told in before:
                    yield told
            while True:
                items = (*self.items, *tools.recalled(self._output()))
                turn, reason = Turn(self.request, items, budget, index=index), None
                async with aclosing(self.engine.generate(turn)) as outputs:
                    async for output in outputs:
                        yield tools.heard(self.parser.feed(output.chunk))
                        self._usage, reason = _counted(self._usage, output), output.finish_reason
                if reason is None:
                    raise EngineError("The engine stopped without saying why.")
                end, self._usage = self.parser.end(reason, self._usage), Usage()
                yield tools.heard(end)
                calls = self.driver.ready
                async with aclosing(self._run(tools, calls)) as ran:
                    async for told in ran:
                        yield told
                if not calls or self.driver.ready == calls or self._asks_the_client():
                    yield [Finish()]
                index += 1
                budget = None if budget is None else budget - _spent(end)
                if budget is not None and budget <= 0:
                    yield [EndTurn("length")]

    async def _before_turns(self, tools: Tools) -> AsyncGenerator[Sequence[Delta], None]:
        async with aclosing(tools.prepare(self._output)) as prepared:
            async for told in prepared:
                yield told
        async with aclosing(self._run(tools, self.driver.ready)) as ran:
            async for told in ran:
                yield told

    async def _run(self, tools: Tools, calls: Sequence[ReadyCall]) -> AsyncGenerator[Sequence[Delta], None]:
        async with aclosing(tools.run(calls)) as ran:
            async for delta in ran:
                yield [delta]

    def _output(self) -> Sequence[Item]:
        """The items that the response has so far."""
        return cast("Sequence[Item]", self.driver.response["output"])

    def _asks_the_client(self) -> bool:
        """Whether the response ends for the client to answer a call."""
        return any(item["type"] in CLIENT_CALLS for item in self._output())

    def _broken_off(self, ending: Fault | Cancel) -> Sequence[Delta]:
        """End in the middle of a turn: what the parser held back is said, and what the turn has cost is counted."""
        try:
            *held, end = self.parser.end("abort", self._usage)
        except Exception:
            logger.exception("%s: the parser could not end its turn", self.driver.response["id"])
            return [ending]
        return [*held, evolve(ending, usage=end.usage) if isinstance(end, EndTurn) else ending]

    def _fault(self, error: Exception) -> Fault:
        """Log what broke, and say what the client may know of it."""
        logger.error("%s: %s", self.driver.response["id"], error, exc_info=error)
        return Fault("server_error", str(error) if isinstance(error, EngineError) else OUR_FAULT)

    async def _close(self, happenings: AsyncGenerator[Sequence[Delta], None]) -> None:
        try:
            await happenings.aclose()
        except Exception:
            logger.exception("%s: the engine or a tool could not be closed", self.driver.response["id"])


def begin_response(
    request: CreateResponse,
    items: Sequence[Item],
    engine: Engine,
    writer: Writer[T],
    *,
    tools: ToolRunner | None = None,
    ids: Ids = random_id,
    clock: Clock = now,
) -> ResponseRun[T]:
    """Put together what makes a response.

    Args:
        request: What is asked for.
        items: The conversation that the model goes on from, the request's input included.
        engine: Whom to ask.
        writer: The form in which events are given.
        tools: Gives the response its hosted tools, if there are any.
        ids: Makes ids.
        clock: Tells the time.

    Returns:
        The run, whose `events` are to be iterated.
    """
    driver = ResponseDriver(response_settings(request.raw), writer=writer, ids=ids, clock=clock)
    return ResponseRun(request, items, engine, parser_for(engine.format, request.raw), driver, tools or NoTools())


def _counted(usage: Usage, output: EngineOutput) -> Usage:
    """Take what a step says of its turn's prompt; 0 says nothing."""
    return Usage(output.input_tokens or usage.input_tokens, output.cached_tokens or usage.cached_tokens)


def _spent(end: Sequence[Delta]) -> int:
    """Give the tokens that a turn generated, by the deltas of its end."""
    return sum(delta.usage.output_tokens for delta in end if isinstance(delta, EndTurn))
