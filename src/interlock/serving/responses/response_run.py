"""The turns of one response: an engine is asked, a parser reads its answer, tools run, and a driver makes the events.

It knows neither HTTP nor how events are written: the driver that it is given decides that, and so a stream and an answer in
one piece come from the same run (rule R19). How a run is waited for, interrupted and ended is `interlock.serving.responses.run`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Final, TypeVar, cast

from attrs import define, field, frozen

from interlock.events.resource import response_settings
from interlock.events.sse import Writer
from interlock.events.stream import StreamEvent
from interlock.fsm.deltas import Delta, EndTurn, Enqueue, Start, Usage
from interlock.fsm.driver import ReadyCall, ResponseDriver
from interlock.fsm.ids import Clock, Ids
from interlock.fsm.processes.turns import TurnTrigger
from interlock.parsers.chunk import Parser
from interlock.parsers.client_tools import CLIENT_TOOLS
from interlock.serving.engines.engine import Engine, EngineOutput, Turn
from interlock.serving.engines.generation import Generation, HostEngine, PlainGeneration, begin_generation, fitting
from interlock.serving.requests.api_errors import ApiError, EngineError
from interlock.serving.requests.create import CreateResponse, read_request
from interlock.serving.requests.identity import now, random_id
from interlock.serving.requests.input_items import Item, identified
from interlock.serving.requests.summaries import compacted, summary_message, summary_request
from interlock.serving.responses.archive import Archive
from interlock.serving.responses.compaction_run import FAILED, Compaction, CompactionError
from interlock.serving.responses.conversation_lease import ConversationLease, commit_end
from interlock.serving.responses.run import Run, Work
from interlock.serving.responses.sealing import REASONING_WANTED, Seals
from interlock.serving.store import SHARED, StoredResponse
from interlock.serving.tools.tool_runner import NullTools, ToolRunner, Tools

__all__ = ["NullWriter", "ResponseRun", "begin_response", "begin_summary"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

CLIENT_CALLS: Final = frozenset(
    {"function_call", "custom_tool_call", "mcp_approval_request", *(tool.kind for tool in CLIENT_TOOLS.values())}
)
"""What the client answers, by another request."""


@frozen
class NullWriter:
    """Writes nothing: for a response of which only the end is wanted."""

    def write(self, event: StreamEvent) -> None:
        """Write nothing."""

    def repeat(self, event: StreamEvent) -> Callable[[str, int], None]:
        """Return a function that writes nothing."""
        del event
        return lambda _text, _number: None


@define(eq=False)
class ResponseRun(Run[T]):
    """One response of an engine.

    Args:
        driver: Makes the events.
        request: What is asked for.
        items: The conversation that the model goes on from, the request's input included.
        engine: Writes the summary of a conversation that is compacted.
        generation: Generates the turns.
        parser: Reads what the engine's model writes.
        tools: Returns the response its hosted tools.
        archive: Stores the response when it has ended; None if that is not wanted.
        shown: The conversation as the model is shown it: what clients carry sealed is opened.
        lease: Its part in a conversation that the client has created; None if it belongs to none.
        tenant: Whose it is.
    """

    request: CreateResponse
    items: Sequence[Item]
    engine: Engine | HostEngine
    generation: Generation
    parser: Parser
    tools: ToolRunner
    archive: Archive | None
    shown: Sequence[Item]
    lease: ConversationLease | None
    tenant: str
    _usage: Usage = field(factory=Usage, init=False)
    """What the engine has said that the turn costs which is going on."""
    _stored_items: tuple[Item, ...] = field(init=False)
    """The conversation for a store, where every item has an id."""
    _budget: int | None = field(init=False)
    """The tokens that the model may still generate."""
    _index: int = field(default=0, init=False)
    """Turns that the model has ended."""
    _tools: Tools = field(init=False)
    _held: AsyncExitStack = field(factory=AsyncExitStack, init=False)
    """What is closed with the run: the tools, and its part in a conversation."""
    _calls: Sequence[ReadyCall] = field(default=(), init=False)
    """The calls of the turn that wait for their tools."""
    _rejected: Sequence[Item] = field(default=(), init=False)
    """Its calls whose arguments make no sense."""

    def __attrs_post_init__(self) -> None:
        """Set the ids that items lack."""
        self._stored_items = identified(self.items)
        self._budget = self.request.max_output_tokens

    async def admitted(self) -> None:
        """Wait until the engine has taken the first turn, unless a list of tools or a summary comes before it.

        Raises:
            Exception: The engine refuses it; nobody may iterate the run any more.
        """
        if isinstance(self.generation, PlainGeneration) or any(tool.get("type") == "mcp" for tool in self.request.tools):
            return
        if self.compaction is None or not await self.compaction.is_due():
            await self.generation.admit(self._turn())

    def _opening(self) -> Sequence[Delta]:
        return [Enqueue(), Start()] if self.request.background else [Start()]

    def _turn(self) -> Turn:
        """Return what the engine is asked for next."""
        before = self._output()
        items = self._tools.with_outputs(item for item in before if item["type"] != "compaction") if before else ()
        return Turn(self.request, (*self.shown, *items), self._budget, index=self._index)

    async def _enter(self) -> None:
        if self.lease is not None and not self.request.background:  # whose owner holds the conversation
            await self._held.enter_async_context(self.lease.kept(self.interrupt))

    def _prepare(self) -> Work:
        async def steps() -> AsyncGenerator[Sequence[Delta], None]:
            self._tools = await self._held.enter_async_context(self.tools.begin(self.request, self.items))
            async with aclosing(self._tools.prepare(self._output)) as prepared:
                async for told in prepared:
                    yield told

        def look() -> TurnTrigger:
            self._calls = self.driver.ready
            return TurnTrigger.CALL if self._calls else TurnTrigger.GO_ON

        return Work(steps(), look)

    def _generate(self) -> Work:
        made = 0

        async def steps() -> AsyncGenerator[Sequence[Delta], None]:
            nonlocal made
            made, reason = len(self._output()), None
            turn = await fitting(self.generation, self._turn())
            async with aclosing(self.generation.generate(turn)) as outputs:
                async for output in outputs:
                    yield self._tools.rewrite(self.parser.feed(output.chunk))
                    reason = output.finish_reason
                    if output.input_tokens or output.cached_tokens:
                        self._usage = _counted(self._usage, output)
            if reason is None:
                raise EngineError("The engine stopped without saying why.")
            end, self._usage = self.parser.end(reason, self._usage), Usage()
            self._index += 1
            self._budget = None if self._budget is None else self._budget - _spent(end)
            yield self._tools.rewrite(end)

        def look() -> TurnTrigger:
            self._calls, self._rejected = self.driver.ready, [*filter(_has_failed, self._output()[made:])]
            return TurnTrigger.CALL if self._calls or self._rejected else TurnTrigger.ANSWER

        return Work(steps(), look)

    def _run_tools(self) -> Work:
        calls, rejected = self._calls, self._rejected

        async def steps() -> AsyncGenerator[Sequence[Delta], None]:
            async with aclosing(self._tools.run(calls, rejected)) as ran:
                async for delta in ran:
                    yield [delta]

        def look() -> TurnTrigger:
            none_ran = self.driver.ready == calls and not rejected
            if none_ran or self._asks_the_client():
                return TurnTrigger.ANSWER
            return TurnTrigger.GO_ON if self._budget is None or self._budget > 0 else TurnTrigger.EXHAUST

        return Work(steps(), look)

    async def _close(self) -> None:
        try:
            await super()._close()
        finally:
            for close in (self.generation.close, self._held.aclose):
                try:
                    await close()
                except BaseException as error:  # noqa: BLE001 - `_caught` raises what is no fault
                    self._caught(error, "its engine or its tools could not be closed")

    def _output(self) -> Sequence[Item]:
        """Return the items that the response has so far."""
        return cast("Sequence[Item]", self.driver.response["output"])

    def compact_with(self, seals: Seals) -> None:
        """Compact the conversation if the request says so and when.

        Args:
            seals: Seal the summary.
        """
        alone = self.request.compacts_only
        if alone or self.request.compact_threshold is not None:
            self.compaction = Compaction(self._is_long, self._begin_summary, seals.seal_summary, self._take_summary, alone)

    async def _is_long(self) -> bool:
        """Return whether the prompt is longer than the request wants it to be, or the length does not matter."""
        threshold = self.request.compact_threshold
        if self.request.compacts_only or threshold is None:
            return True
        turn = await fitting(self.generation, Turn(self.request, self.shown, self._budget))
        return await self.generation.count(turn) > threshold

    async def _begin_summary(self) -> ResponseRun[None]:
        try:
            return await begin_summary(self.request, self.shown, self.engine, self.tenant)
        except ApiError as error:
            raise CompactionError(f"{FAILED}{error.message}") from error

    async def _take_summary(self, text: str) -> None:
        self.shown = (*compacted(self.shown), summary_message(text))

    def _asks_the_client(self) -> bool:
        """Return whether the response ends for the client to answer a call."""
        return any(item["type"] in CLIENT_CALLS for item in self._output())

    @property
    def stored(self) -> StoredResponse:
        """The response as it is now, for a store."""
        return StoredResponse(self.driver.response, self._stored_items)

    async def _settle(self) -> None:
        """Store the response, if that is wanted and not done by the owner of its log, and if its client has not gone away."""
        self.generation.log(self.driver.response)
        if self.archive is not None and not self.request.background and self.driver.status != "cancelled":
            stored = self.stored
            await commit_end(self.lease, stored, partial(self.archive.put, self.tenant, stored))

    def _break_off(self) -> Sequence[Delta]:
        return self.parser.end("abort", self._usage)

    def _is_for_clients(self, error: BaseException) -> bool:
        return isinstance(error, EngineError)


def begin_response(  # noqa: PLR0913 - what a run is made of
    request: CreateResponse,
    items: Sequence[Item],
    engine: Engine | HostEngine,
    writer: Writer[T],
    *,
    generation: Generation | None = None,
    settings: Mapping[str, object] | None = None,
    tools: ToolRunner | None = None,
    archive: Archive | None = None,
    shown: Sequence[Item] | None = None,
    seals: Seals | None = None,
    lease: ConversationLease | None = None,
    tenant: str = SHARED,
    ids: Ids = random_id,
    clock: Clock = now,
) -> ResponseRun[T]:
    """Create the run of a response.

    Args:
        request: What is asked for.
        items: The conversation that the model goes on from, the request's input included, as clients and stores see it.
        engine: Generates the turns.
        writer: The form in which events are given.
        generation: What the engine does for this response, prepared; a plain engine needs none.
        settings: What the engine resolved, for the response to echo.
        tools: Returns the response its hosted tools, if there are any.
        archive: Stores the response when it has ended, if that is wanted.
        shown: The same conversation as the model is shown it, where that differs (`Seals.opened`).
        seals: Seals what the client is to carry; without them it carries nothing sealed.
        lease: Its part in a conversation that the client has created.
        tenant: Whose it is.
        ids: Makes ids.
        clock: Tells the time.

    Returns:
        The run, whose `events` are to be iterated.
    """
    generation = generation or begin_generation(engine, request, items)
    driver = ResponseDriver(
        {**response_settings(request.raw), **(settings or {})},
        writer=writer,
        ids=ids,
        clock=clock,
        response_id=generation.response_id or (None if lease is None else lease.response_id),
        late=None if seals is None or REASONING_WANTED not in request.include else seals.late_fields,
        additions=generation.additions,
    )
    rendered = items if shown is None else shown
    more = (tools or NullTools(), archive, rendered, lease, tenant)
    return ResponseRun(driver, request, items, engine, generation, generation.parser, *more)


async def begin_summary(
    request: CreateResponse, shown: Sequence[Item], engine: Engine | HostEngine, tenant: str
) -> ResponseRun[None]:
    """Create the run in which a model writes the summary of a conversation.

    Args:
        request: The request that the summary is made for.
        shown: The conversation as the model is shown it.
        engine: Generates the summary.
        tenant: Whose it is.

    Raises:
        ApiError: The engine refuses to summarize it.
    """
    raw = summary_request(request.raw)
    asking = engine.read(raw) if isinstance(engine, HostEngine) else read_request(raw)
    items = (*shown, *asking.input)
    generation = begin_generation(engine, asking, items, tenant)
    settings = await generation.prepare(Turn(asking, items))
    return begin_response(asking, items, engine, NullWriter(), generation=generation, settings=settings)


def _counted(usage: Usage, output: EngineOutput) -> Usage:
    """Return the usage of a turn after a step; a 0 changes nothing."""
    return Usage(
        input_tokens=output.input_tokens or usage.input_tokens,
        cached_tokens=output.cached_tokens or usage.cached_tokens,
        cache_write_tokens=output.cache_write_tokens or usage.cache_write_tokens,
    )


def _has_failed(item: Item) -> bool:
    """Return whether an item of a turn that has just ended was rejected, for no tool has run yet."""
    return item.get("status") == "failed"


def _spent(end: Sequence[Delta]) -> int:
    """Return the tokens that a turn generated, by the deltas of its end."""
    return sum(delta.usage.output_tokens for delta in end if isinstance(delta, EndTurn))
