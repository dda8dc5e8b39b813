"""Turns a request into a run, which resolves the request's conversation and prepares the engine.

HTTP routes and WebSockets share it. docs/request.md describes the stations of a request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from attrs import evolve, field, frozen

from interlock.events.sse import Writer
from interlock.fsm.deltas import Start
from interlock.parsers import parser_for
from interlock.serving.engines.engine import Engine, Generation, Turn
from interlock.serving.engines.generation import Silence, fitting
from interlock.serving.requests.api_errors import PromptError, invalid
from interlock.serving.requests.create import ResponseRequest
from interlock.serving.requests.input_items import JsonItem, join
from interlock.serving.requests.logs import log_with
from interlock.serving.requests.runtime import Yielder
from interlock.serving.responses.active_runs import ActiveRuns
from interlock.serving.responses.archive import Archive
from interlock.serving.responses.conversation_lease import ConversationLease, no_such_conversation
from interlock.serving.responses.run import NullWriter, RequestContext, ResponseRun, begin_summary, new_driver
from interlock.serving.responses.sealing import SealingKeys, Seals
from interlock.serving.store import StoredResponse
from interlock.serving.tools.tool_runner import NullTools, ToolRunner

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

T = TypeVar("T")


@frozen(eq=False)
class ResponseService:
    """Begins the responses of one server. Without `tools`, the model cannot call hosted tools."""

    engine: Engine
    archive: Archive
    tools: ToolRunner | None
    sealing_keys: SealingKeys
    active_runs: ActiveRuns = field(factory=ActiveRuns)

    def begin(
        self,
        request: ResponseRequest,
        tenant: str,
        writer: Writer[T],
        *,
        latest: StoredResponse | None = None,
        generate: bool = True,
        connection: HTTPConnection | None = None,
    ) -> ResponseRun[T]:
        """Return the run of a request, which does nothing until its `events` are iterated.

        `latest` is the previous response, if the caller has it. Without `generate`, the engine only renders the prompt, or warms
        its cache if the request wants that. The run refuses the request with:

        - `ApiError`, if the engine refuses it; 400 for an unknown previous response or an input that does not fit; 404 for an
          unknown conversation or item; 409 if the conversation has another response in progress; 429 if the server has too many;
        - `StoreDown`, if the store is not available, and the request needs it.
        """
        generates = generate and not request.prewarms

        async def resolve(run: ResponseRun[T]) -> None:
            yielder = Yielder()
            async with self._hold_lease(run, tenant) as lease:
                context = await self._resolve(request, tenant, lease=lease, latest=latest, connection=connection)
                await yielder.checkpoint()
                generation = await self.engine.begin(context.request, context.items, tenant, connection)
                run.resources.push_async_callback(generation.close)
                turn = Turn(context.request, context.model_items, request.max_output_tokens)
                if not request.background:  # which does not wait for another server that counts
                    turn = await fitting(generation, turn)
                settings = await generation.prepare(turn)
                context = evolve(context, model_items=turn.items, seals=context.seals if generates else None)
                used = generation if generates else self._silence(generation, warms=request.prewarms)
                run.use(context, used, new_driver(context, used, settings, writer))
                log_with(response_id=run.driver.id, model=run.request.model)

        tools, archive = self.tools if generates else None, self.archive if request.store else None
        return ResponseRun(request, self.engine, resolve, self.active_runs, tools or NullTools(), archive, not request.background)

    def _silence(self, generation: Generation, *, warms: bool) -> Generation:
        """Return a generation without output."""
        parser = parser_for(self.engine.format, {})
        return Silence(self.engine, parser, generation.response_id, generation=generation, warms=warms)

    @asynccontextmanager
    async def _hold_lease(self, run: ResponseRun[T], tenant: str) -> AsyncGenerator[ConversationLease | None]:
        """Acquire the lease on the conversation of a request, if it names one.

        A run keeps the lease alive until its end; a `BackgroundResponse`, until the last commit.
        """
        if run.request.store:
            self.archive.require_store()
        conversation_id = run.request.conversation_id
        if conversation_id is None:
            yield None
            return
        lease = await ConversationLease.acquire(self.archive.store, tenant, conversation_id)
        async with AsyncExitStack() as undo:
            if run.request.background:
                undo.push_async_callback(lease.release)
            else:
                await run.resources.enter_async_context(lease.keep_alive(run.interrupt))
            yield lease
            undo.pop_all()

    def begin_summary(
        self, request: ResponseRequest, tenant: str, connection: HTTPConnection | None = None
    ) -> tuple[ResponseRun[None], Seals]:
        """Return a run that summarizes the conversation of a request, and the seals for the summary."""
        resolve = partial(self._resolve, request, tenant, connection=connection)
        return begin_summary(request, self.engine, resolve, self.active_runs), self._seals(request, tenant)

    async def count(self, request: ResponseRequest, tenant: str, connection: HTTPConnection | None = None) -> int:
        """Return the number of tokens in the prompt of a request, and of the tools of its MCP servers; see `begin` for errors."""
        context = await self._resolve(request, tenant)
        generation = await self.engine.begin(context.request, context.items, tenant, connection)
        try:
            lists = await self._tool_lists(context, generation)
            turn = await fitting(generation, Turn(context.request, (*context.model_items, *lists), request.max_output_tokens))
            return await generation.count(turn)
        except PromptError as error:
            raise invalid("input", str(error), error.code) from None

    async def _tool_lists(self, context: RequestContext, generation: Generation) -> list[JsonItem]:
        """Return the lists of tools with which a response would begin."""
        driver = new_driver(context, generation, {}, NullWriter())
        driver.feed([Start()])
        runner = self.tools or NullTools()
        session = runner.begin(context.request, context.items, context.tenant)
        async with session as tools, aclosing(tools.prepare(driver.items)) as preparation:
            async for step in preparation:
                driver.feed(step)
        return [item for item in driver.items() if item["type"] == "mcp_list_tools"]

    async def _resolve(
        self,
        request: ResponseRequest,
        tenant: str,
        *,
        lease: ConversationLease | None = None,
        latest: StoredResponse | None = None,
        connection: HTTPConnection | None = None,
    ) -> RequestContext:
        """Resolve the history, references and encrypted content of a request."""
        store, previous_id, conversation_id = self.archive.store, request.previous_response_id, request.conversation_id
        previous: Sequence[JsonItem] = ()
        if lease is not None:
            previous = lease.items
        elif conversation_id is not None:
            conversation = await store.conversation_items(tenant, conversation_id)
            if conversation is None:
                raise no_such_conversation(conversation_id)
            previous = conversation
        elif previous_id is not None:
            previous = (latest or await self.archive.previous(tenant, previous_id)).conversation
        references = [str(item["id"]) for item in request.input if item["type"] == "item_reference"]
        items = join(previous, request.input, await store.find(tenant, references) if references else {})
        seals = self._seals(request, tenant)
        unsealed, removed = await seals.unseal(items, request.input, self.engine.names)
        return RequestContext(request.apply_updates(items), items, tenant, unsealed, removed, lease, seals, connection)

    def _seals(self, request: ResponseRequest, tenant: str) -> Seals:
        return Seals(self.sealing_keys, request.model, tenant)
