"""The run of a response on an engine: the engine generates turns, a parser reads them, and tools run between them.

The same run makes a stream or a JSON response, so both have the same content.
`interlock.serving.responses.run` has the turn loop, interruptions and endings.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from attrs import Factory, define, evolve, field, frozen

from interlock.events.resource import response_settings
from interlock.events.sse import Writer
from interlock.events.stream import StreamEvent
from interlock.fsm import deltas
from interlock.fsm.deltas import Delta, EndTurn, Enqueue, Start, Usage
from interlock.fsm.driver import ReadyCall, ResponseDriver
from interlock.fsm.ids import Clock, Ids
from interlock.fsm.processes.turns import TurnTrigger
from interlock.parsers.client_tools import CLIENT_TOOLS
from interlock.serving.engines.engine import Engine, EngineOutput, Turn
from interlock.serving.engines.generation import Generation, HostEngine, PlainGeneration, begin_generation, fitting
from interlock.serving.requests.api_errors import ApiError, EngineError, PromptError
from interlock.serving.requests.containment import is_fault
from interlock.serving.requests.context_window import compacted, summary_message, summary_request
from interlock.serving.requests.create import CreateResponse, read_request
from interlock.serving.requests.identity import now, random_id
from interlock.serving.requests.input_items import Item, with_ids
from interlock.serving.requests.json_values import elements, members
from interlock.serving.responses.archive import Archive
from interlock.serving.responses.conversation_lease import ConversationLease, commit_end
from interlock.serving.responses.run import Activity, Run
from interlock.serving.responses.sealing import REASONING_WANTED, Seals
from interlock.serving.store import SHARED, StoredResponse, StoreError
from interlock.serving.tools.tool_runner import NullTools, ToolRunner, Tools

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

__all__ = ["NullWriter", "RequestContext", "ResponseRun", "Summary", "begin_response", "begin_summary", "summary_of"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

CLIENT_CALLS: Final = frozenset(
    {"function_call", "custom_tool_call", "mcp_approval_request", *(tool.kind for tool in CLIENT_TOOLS.values())}
)
"""The items that the client answers with another request."""

NOT_COMPACTED: Final = "The conversation could not be compacted: "


class CompactionError(EngineError):
    """A conversation could not be compacted. The response fails instead of losing part of the conversation."""


@frozen
class NullWriter:
    """Writes nothing, for a response without a stream."""

    def write(self, event: StreamEvent) -> None:
        pass

    def repeat(self, event: StreamEvent) -> Callable[[str, int], None]:
        del event
        return lambda _text, _number: None


@frozen
class RequestContext:
    """A request, and the conversation that it continues, with references replaced by items."""

    request: CreateResponse
    items: Sequence[Item]
    """The conversation with the request's input, as clients and stores see it."""
    tenant: str = SHARED
    model_items: Sequence[Item] = field(default=Factory(lambda self: self.items, takes_self=True))
    """The same conversation as the model reads it; see `Seals.unseal`."""
    lease: ConversationLease | None = None
    """The lease on the conversation that the response is added to."""
    seals: Seals | None = None
    """The seals for reasoning and summaries. If None, nothing is sealed or compacted."""
    connection: HTTPConnection | None = field(default=None, repr=False)
    """The client's connection, for a host engine."""


@define(eq=False)
class ResponseRun(Run[T]):
    """The run of one response on an engine; see `begin_response`."""

    context: RequestContext
    engine: Engine | HostEngine
    generation: Generation
    _tool_runner: ToolRunner
    _archive: Archive | None
    _stored_items: tuple[Item, ...] = field(init=False)
    """The conversation as a store needs it: each item has an id."""
    _remaining_tokens: int | None = field(init=False)  # the output tokens that the request still allows
    _tools: Tools = field(init=False)
    _resources: AsyncExitStack = field(factory=AsyncExitStack, init=False)
    """The tools and the conversation lease, released at the end of the run."""
    _turn_count: int = field(default=0, init=False)
    _turn_usage: Usage = field(factory=Usage, init=False)
    _calls: Sequence[ReadyCall] = field(default=(), init=False)
    """The calls whose tools run next: those of the last turn, or before the first turn those that the client has approved."""
    _rejected: Sequence[Item] = field(default=(), init=False)
    """The calls of the last turn with invalid arguments."""

    def __attrs_post_init__(self) -> None:
        self._stored_items = with_ids(self.context.items)
        self._remaining_tokens = self.request.max_output_tokens

    @property
    def request(self) -> CreateResponse:
        return self.context.request

    @property
    def stored(self) -> StoredResponse:
        """The response as it is now, for a store."""
        return StoredResponse(self.driver.response, self._stored_items)

    async def admit(self) -> None:
        """Wait until a host engine has accepted the first turn, unless listing tools or writing a summary comes first."""
        if isinstance(self.generation, PlainGeneration) or any(tool.get("type") == "mcp" for tool in self.request.tools):
            return
        if not await self._needs_compaction():
            await self.generation.admit(self._turn())

    def _opening(self) -> Sequence[Delta]:
        return [Enqueue(), Start()] if self.request.background else [Start()]

    async def _acquire(self) -> None:
        lease = self.context.lease
        if lease is not None and not self.request.background:  # `BackgroundResponse` renews its lease
            await self._resources.enter_async_context(lease.keep_alive(self.interrupt))

    async def _needs_compaction(self) -> bool:
        threshold = self.request.compact_threshold
        if self.context.seals is None or (threshold is None and not self.request.compacts_only):
            return False
        if threshold is None or self.request.compacts_only:
            return True
        turn = await fitting(self.generation, Turn(self.request, self.context.model_items, self._remaining_tokens))
        return await self.generation.count(turn) > threshold

    def _compact(self) -> Activity:
        seals = cast("Seals", self.context.seals)  # `_needs_compaction` requires them

        async def steps() -> AsyncGenerator[Sequence[Delta], None]:
            yield [Start(), deltas.Open("compaction")]
            item = next(call for call in self.driver.ready if call.kind == "compaction")
            yield [deltas.Run(item.id)]
            summary = await self._summarize()
            yield [EndTurn("stop", summary.usage)]
            if summary.fault is not None:
                raise summary.fault
            model_items = (*compacted(self.context.model_items), summary_message(summary.text))
            self.context = evolve(self.context, model_items=model_items)
            yield [deltas.Succeed(item.id, {"encrypted_content": seals.seal_summary(summary.text)})]

        trigger = TurnTrigger.ANSWER if self.request.compacts_only else TurnTrigger.PREPARE
        return Activity(steps(), lambda: trigger)

    async def _summarize(self) -> Summary:
        try:
            run = await begin_summary(self.context, self.engine)
        except ApiError as error:
            raise CompactionError(f"{NOT_COMPACTED}{error.message}") from error
        async with aclosing(run.events()) as events:
            async for _ in events:
                pass
        return summary_of(run.driver)

    def _prepare(self) -> Activity:
        async def steps() -> AsyncGenerator[Sequence[Delta], None]:
            self._tools = await self._resources.enter_async_context(self._tool_runner.begin(self.request, self.context.items))
            async with aclosing(self._tools.prepare(self._output)) as preparation:
                async for step in preparation:
                    yield step

        def next_trigger() -> TurnTrigger:
            self._calls = self.driver.ready
            return TurnTrigger.CALL if self._calls else TurnTrigger.GO_ON

        return Activity(steps(), next_trigger)

    def _turn(self) -> Turn:
        output = self._output()
        items = self._tools.with_outputs(item for item in output if item["type"] != "compaction") if output else ()
        return Turn(self.request, (*self.context.model_items, *items), self._remaining_tokens, index=self._turn_count)

    def _generate(self) -> Activity:
        first_item, rejects = 0, False

        def take(changes: Sequence[Delta]) -> Sequence[Delta]:
            nonlocal rejects
            rejects = rejects or any(isinstance(delta, deltas.Reject) for delta in changes)
            return self._tools.rewrite(changes)

        async def steps() -> AsyncGenerator[Sequence[Delta], None]:
            nonlocal first_item
            first_item, finish_reason = len(self._output()), None
            parser = self.generation.parser
            turn = await fitting(self.generation, self._turn())
            async with aclosing(self.generation.generate(turn)) as outputs:
                async for output in outputs:
                    yield take(parser.feed(output.chunk))
                    finish_reason = output.finish_reason
                    if output.input_tokens or output.cached_tokens or output.output_tokens:
                        self._turn_usage = _updated_usage(self._turn_usage, output)
            if finish_reason is None:
                raise EngineError("The engine stopped without a finish reason.")
            end, self._turn_usage = parser.end(finish_reason, self._turn_usage), Usage()
            self._turn_count += 1
            if self._remaining_tokens is not None:
                self._remaining_tokens -= sum(delta.usage.output_tokens for delta in end if isinstance(delta, EndTurn))
            yield take(end)

        def next_trigger() -> TurnTrigger:
            self._calls = self.driver.ready
            # Tools of this server have not run yet. A failed item is a call with invalid arguments, or one that an upstream ran.
            failed = [item for item in self._output()[first_item:] if item.get("status") == "failed"]
            self._rejected = failed if rejects else []
            return TurnTrigger.CALL if self._calls or self._rejected else TurnTrigger.ANSWER

        return Activity(steps(), next_trigger)

    def _run_tools(self) -> Activity:
        calls, rejected = self._calls, self._rejected

        async def steps() -> AsyncGenerator[Sequence[Delta], None]:
            async with aclosing(self._tools.run(calls, rejected)) as results:
                async for delta in results:
                    yield [delta]

        def next_trigger() -> TurnTrigger:
            none_ran = self.driver.ready == calls and not rejected
            if none_ran or any(item["type"] in CLIENT_CALLS for item in self._output()):
                return TurnTrigger.ANSWER
            return TurnTrigger.GO_ON if self._remaining_tokens is None or self._remaining_tokens > 0 else TurnTrigger.EXHAUST

        return Activity(steps(), next_trigger)

    def _output(self) -> Sequence[Item]:
        return cast("Sequence[Item]", self.driver.response["output"])

    async def _settle(self) -> None:
        """Log the response, and store it unless it was cancelled or a `BackgroundResponse` stores it."""
        try:
            self.generation.log(self.driver.response)
        finally:
            if self._archive is not None and not self.request.background and self.driver.status != "cancelled":
                await self._store(self._archive)

    async def _store(self, archive: Archive) -> None:
        """Store the response; if that fails, replace its last event with one that has `store: false`."""
        stored = self.stored
        try:
            await commit_end(self.context.lease, stored, partial(archive.put, self.context.tenant, stored))
        except BaseException as error:
            if not is_fault(error):
                raise
            self._events[-1] = self.driver.mark_unstored()
            if not isinstance(error, StoreError):
                raise
            logger.warning("%s: could not be stored: %s", stored.id, error)

    def _abort_turn(self) -> Sequence[Delta]:
        return self.generation.parser.end("abort", self._turn_usage)

    async def _close(self) -> None:
        try:
            await super()._close()
        finally:
            for close in (self.generation.close, self._resources.aclose):
                try:
                    await close()
                except BaseException as error:  # noqa: BLE001 - `_record` logs it, and reraises a cancellation
                    self._record(error, "its engine or its tools could not be closed")


def begin_response(  # noqa: PLR0913 - all but three have a default
    context: RequestContext,
    engine: Engine | HostEngine,
    writer: Writer[T],
    *,
    generation: Generation | None = None,
    settings: Mapping[str, object] | None = None,
    tools: ToolRunner | None = None,
    archive: Archive | None = None,
    ids: Ids = random_id,
    clock: Clock = now,
) -> ResponseRun[T]:
    """Return the run of a response; iterate its `events`.

    A host engine needs a prepared `generation` and its `settings`, which the response echoes. An `archive` stores a foreground
    response at its end.
    """
    request, seals = context.request, context.seals
    generation = generation or begin_generation(engine, request, context.items)
    driver = ResponseDriver(
        {**response_settings(request.raw), **(settings or {})},
        writer=writer,
        ids=ids,
        clock=clock,
        response_id=generation.response_id or (None if context.lease is None else context.lease.response_id),
        late=None if seals is None or REASONING_WANTED not in request.include else seals.late_fields,
        additions=generation.additions,
    )
    return ResponseRun(driver, context, engine, generation, tools or NullTools(), archive)


async def begin_summary(context: RequestContext, engine: Engine | HostEngine) -> ResponseRun[None]:
    """Return the run in which the model summarizes a conversation; raise an `ApiError` if the engine refuses it."""
    body = summary_request(context.request.raw)
    request = engine.read(body) if isinstance(engine, HostEngine) else read_request(body)
    items = (*context.model_items, *request.input)
    generation = begin_generation(engine, request, items, context.tenant, context.connection)
    settings = await generation.prepare(Turn(request, items))
    return begin_response(RequestContext(request, items), engine, NullWriter(), generation=generation, settings=settings)


@frozen
class Summary:
    """The summary of a conversation, its usage, and why it failed if it did."""

    text: str
    usage: Usage
    fault: EngineError | None = None


def summary_of(driver: ResponseDriver[Any]) -> Summary:
    """Return the summary in a finished response; a truncated, failed or empty summary has a fault."""
    response = driver.response
    output = cast("Sequence[Item]", response["output"])
    parts = [members(part) for item in output if item["type"] == "message" for part in elements(item["content"])]
    text = "".join(str(part["text"]) for part in parts if part["type"] == "output_text").strip()
    error = members(response["error"])
    match response["status"]:
        case "completed" if text:
            return Summary(text, driver.usage)
        case "completed":
            fault: EngineError = CompactionError(f"{NOT_COMPACTED}the model wrote no summary.")
        case "failed" if error.get("code") == PromptError.code:
            fault = PromptError(str(error.get("message")))
        case "failed":
            fault = CompactionError(f"{NOT_COMPACTED}{error.get('message')}")
        case status:
            fault = CompactionError(f"{NOT_COMPACTED}the model did not finish the summary (status '{status}').")
    return Summary("", driver.usage, fault)


def _updated_usage(usage: Usage, output: EngineOutput) -> Usage:
    """Return the usage of a turn after an output, in which 0 means unchanged."""
    return Usage(
        input_tokens=output.input_tokens or usage.input_tokens,
        cached_tokens=output.cached_tokens or usage.cached_tokens,
        cache_write_tokens=output.cache_write_tokens or usage.cache_write_tokens,
        output_tokens=output.output_tokens or usage.output_tokens,
        reasoning_tokens=output.reasoning_tokens or usage.reasoning_tokens,
    )
