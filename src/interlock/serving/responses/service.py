"""Turns a request into a run: reads it, resolves what it continues, and has the engine accept it.

All routes and sockets share it. docs/request.md has the stations of a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from attrs import evolve, field, frozen

from interlock.events.sse import Writer
from interlock.serving.engines.engine import Engine, Turn
from interlock.serving.engines.generation import Generation, HostEngine, Rendering, begin_generation, fitting
from interlock.serving.requests.api_errors import ApiError, PromptError, invalid
from interlock.serving.requests.create import CreateResponse, read_request
from interlock.serving.requests.input_items import Item
from interlock.serving.requests.yielder import Yielder
from interlock.serving.responses.active_runs import ActiveRuns
from interlock.serving.responses.archive import Archive
from interlock.serving.responses.conversation_lease import ConversationLease, no_such_conversation
from interlock.serving.responses.response_run import RequestContext, ResponseRun, begin_response, begin_summary
from interlock.serving.responses.sealing import Envelope, Seals
from interlock.serving.store import StoredResponse
from interlock.serving.tools.tool_runner import ToolRunner

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

__all__ = ["ResponseService", "no_such_model"]

T = TypeVar("T")


@frozen(eq=False)
class ResponseService:
    """Begins the responses of one server.

    Args:
        engine: Generates the output.
        archive: The stored responses.
        tools: Gives responses their hosted tools; None if there are none.
        envelope: Seals what clients carry.
        active_runs: The responses in progress.
    """

    engine: Engine | HostEngine
    archive: Archive
    tools: ToolRunner | None
    envelope: Envelope
    active_runs: ActiveRuns = field(factory=ActiveRuns)

    async def models(self) -> Sequence[str]:
        """Return the names of the models."""
        return await self.engine.names() if isinstance(self.engine, HostEngine) else self.engine.models

    async def read(self, raw: Mapping[str, object], yielder: Yielder) -> CreateResponse:
        """Validate the body of a request.

        Args:
            raw: The body.
            yielder: Yields before the validation, which may take tens of milliseconds, if decoding took long.

        Raises:
            ApiError: 400; it names the invalid parameter. 404 for an unknown model.
        """
        await yielder.checkpoint()
        if isinstance(self.engine, HostEngine):
            return self.engine.read(raw)
        request = read_request(raw)
        if request.model not in self.engine.models:
            raise no_such_model(request.model)
        return request

    async def begin(
        self,
        request: CreateResponse,
        tenant: str,
        writer: Writer[T],
        *,
        latest: StoredResponse | None = None,
        generate: bool = True,
        connection: HTTPConnection | None = None,
    ) -> ResponseRun[T]:
        """Return the run of a request that the engine has accepted; `BackgroundRegistry.begin` has it accept background ones.

        Args:
            request: The request.
            tenant: The tenant of the request.
            writer: Writes the events.
            latest: The previous response, if the caller has it, as it may not be stored.
            generate: Whether to generate; otherwise the prompt is only rendered.
            connection: The connection of the request.

        Raises:
            ApiError: The engine refuses the request. 400 for an unknown previous response, or an input that does not fit it; 404
                for another unknown reference; 409 if the conversation has another response in progress; 429 if too many are.
            StoreDown: The store is not available, and the request needs it.
        """
        yielder = Yielder()
        if request.store:
            self.archive.require_store()
        lease = await self._lease(request, tenant)
        generation: Generation | None = None
        try:
            previous = await self._previous_items(request, tenant, latest) if lease is None else lease.items
            context = evolve(await self._resolve(request, tenant, previous), lease=lease)
            await yielder.checkpoint()
            self.active_runs.require_room()
            generation = begin_generation(self.engine, request, context.items, tenant, connection)
            turn = await fitting(generation, Turn(request, context.model_items, request.max_output_tokens))
            settings = await generation.prepare(turn)
            run = begin_response(
                evolve(context, model_items=turn.items, seals=context.seals if generate else None),
                self.engine,
                writer,
                generation=generation if generate else Rendering(generation, generation.parser, generation.response_id),
                settings=settings,
                tools=self.tools if generate else None,
                archive=self.archive if request.store else None,
            )
            if not request.background:
                await run.admit()
        except BaseException:
            if generation is not None:
                await generation.close()
            if lease is not None:
                await lease.release()
            raise
        return run

    async def begin_summary(self, request: CreateResponse, tenant: str) -> tuple[ResponseRun[None], Sequence[Item], Seals]:
        """Return the run that summarizes the conversation of a request, the conversation, and the seals for the summary.

        Raises:
            ApiError: As for `begin`.
        """
        context = await self._resolve(request, tenant, await self._previous_items(request, tenant))
        self.active_runs.require_room()
        run = await begin_summary(context, self.engine)
        try:
            await run.admit()
        except BaseException:
            await run.generation.close()
            raise
        return run, context.items, self._seals(request, tenant)

    async def count(self, request: CreateResponse, tenant: str, connection: HTTPConnection | None = None) -> int:
        """Return the number of tokens in the prompt of a request.

        Raises:
            ApiError: 400 for an unknown previous response, or an input that does not fit it or cannot be rendered; 404 for
                another unknown reference.
        """
        conversation_id = request.conversation_id
        if conversation_id is None:
            previous: Sequence[Item] | None = await self._previous_items(request, tenant)
        else:
            previous = await self.archive.store.conversation_items(tenant, conversation_id)
        if previous is None:
            raise no_such_conversation(str(conversation_id))
        context = await self._resolve(request, tenant, previous)
        generation = begin_generation(self.engine, request, context.items, tenant, connection)
        try:
            turn = await fitting(generation, Turn(request, context.model_items, request.max_output_tokens))
            return await generation.count(turn)
        except PromptError as error:
            raise invalid("input", str(error), error.code) from None

    async def _lease(self, request: CreateResponse, tenant: str) -> ConversationLease | None:
        conversation_id = request.conversation_id
        return None if conversation_id is None else await ConversationLease.acquire(self.archive.store, tenant, conversation_id)

    async def _previous_items(self, request: CreateResponse, tenant: str, latest: StoredResponse | None = None) -> Sequence[Item]:
        """Return the conversation up to the previous response."""
        if request.previous_response_id is None:
            return ()
        previous = latest or await self.archive.previous(tenant, request.previous_response_id)
        return previous.conversation

    async def _resolve(self, request: CreateResponse, tenant: str, previous: Sequence[Item]) -> RequestContext:
        """Resolve references and encrypted content in a conversation with the request's input."""
        references = [str(item["id"]) for item in request.input if item["type"] == "item_reference"]
        items = request.resolve(previous, await self.archive.store.find(tenant, references) if references else {})
        seals = self._seals(request, tenant)
        return RequestContext(request, items, tenant, await seals.unseal(items, request.input), seals=seals)

    def _seals(self, request: CreateResponse, tenant: str) -> Seals:
        return Seals(self.envelope, request.model, tenant)


def no_such_model(name: str) -> ApiError:
    """Return the error for a model that the server does not have."""
    message = f"The model '{name[:100]}' does not exist or you do not have access to it."
    return ApiError(404, message, param="model", code="model_not_found")
