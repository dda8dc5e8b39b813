"""How a request becomes a run: it is judged, what it goes on from is found, and what the model is shown is made ready.

It is the same for every way in which a request comes in, and knows none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import field, frozen

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
from interlock.serving.responses.response_run import ResponseRun, begin_response, begin_summary
from interlock.serving.responses.sealing import Envelope, Seals
from interlock.serving.store import StoredResponse
from interlock.serving.tools.tool_runner import ToolRunner

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

__all__ = ["ResponseService", "no_such_model"]

T = TypeVar("T")


@frozen(eq=False)
class ResponseService:
    """Makes the runs of one server.

    Args:
        engine: Where the output of models comes from.
        archive: The stored responses.
        tools: Returns responses their hosted tools; None if there are none.
        envelope: Seals what clients carry.
        active_runs: The responses that are being made.
    """

    engine: Engine | HostEngine
    archive: Archive
    tools: ToolRunner | None
    envelope: Envelope
    active_runs: ActiveRuns = field(factory=ActiveRuns)

    async def models(self) -> Sequence[str]:
        """Return the names by which requests may ask for a model."""
        return await self.engine.names() if isinstance(self.engine, HostEngine) else self.engine.models

    async def asked(self, raw: Mapping[str, object], yielder: Yielder) -> CreateResponse:
        """Validate a body; that may take some tens of milliseconds, as may what is around it, and others then run in between.

        Args:
            raw: The body.
            yielder: Of the work with the request; it began when the request was read.

        Raises:
            ApiError: 400; it names the parameter that is wrong. 404 for an unknown model.
        """
        await yielder.checkpoint()
        if isinstance(self.engine, HostEngine):
            asked = self.engine.read(raw)
        else:
            asked = read_request(raw)
            if asked.model not in self.engine.models:
                raise no_such_model(asked.model)
        return asked

    async def run(
        self,
        asked: CreateResponse,
        tenant: str,
        writer: Writer[T],
        *,
        latest: StoredResponse | None = None,
        generate: bool = True,
        connection: HTTPConnection | None = None,
    ) -> ResponseRun[T]:
        """Return the run of a request that the engine has taken; in the background, `BackgroundRegistry.begin` waits for that.

        Args:
            asked: The request.
            tenant: Whose it is.
            writer: The form in which events are given.
            latest: The previous response, if it is at hand although it may not be stored.
            generate: Whether the model is asked; without it, the prompt is rendered and nothing else.
            connection: What the request came over.

        Raises:
            ApiError: What the engine refuses. 400 if there is no such previous response, or the input does not fit to it; 404 for
                what else the request names and is not there; 409 if another response is being made in its conversation; 429 if
                too many are.
            StoreDown: The store cannot be used now, and the response or what it goes on from is to be there.
        """
        yielder = Yielder()
        if asked.store:
            self.archive.require_store()
        lease = await self._membership(asked, tenant)
        generation: Generation | None = None
        try:
            before = await self._before(asked, tenant, latest) if lease is None else lease.items
            items = await self._conversation(asked, tenant, before)
            seals = Seals(self.envelope, asked.model, tenant)
            shown = await seals.unseal(items, asked.input)
            await yielder.checkpoint()
            self.active_runs.require_room()
            generation = begin_generation(self.engine, asked, items, tenant, connection)
            turn = await fitting(generation, Turn(asked, shown, asked.max_output_tokens))
            settings = await generation.prepare(turn)
            archive = self.archive if asked.store else None
            more: dict[str, Any] = {
                "shown": turn.items,
                "seals": seals,
                "lease": lease,
                "tenant": tenant,
            }
            more |= {"settings": settings, "generation": generation, "tools": self.tools, "archive": archive}
            if not generate:
                more |= {"generation": Rendering(generation, generation.parser, generation.response_id), "tools": None}
            run = begin_response(asked, items, self.engine, writer, **more)
            if generate:
                run.compact_with(seals)
            if not asked.background:
                await run.admitted()
        except BaseException:
            if generation is not None:
                await generation.close()
            if lease is not None:
                await lease.release()
            raise
        return run

    async def summary(self, asked: CreateResponse, tenant: str) -> tuple[ResponseRun[None], Sequence[Item], Seals]:
        """Return the run that writes the summary of a conversation, the conversation, and what seals the summary.

        Args:
            asked: A request that would go on from the conversation.
            tenant: Whose it is.

        Raises:
            ApiError: What the engine refuses. 400 if there is no such previous response, or the input does not fit to it; 404 for
                what else the request names and is not there; 429 if too many responses are being made.
        """
        items = await self._conversation(asked, tenant, await self._before(asked, tenant, None))
        seals = Seals(self.envelope, asked.model, tenant)
        shown = await seals.unseal(items, asked.input)
        self.active_runs.require_room()
        run = await begin_summary(asked, shown, self.engine, tenant)
        try:
            await run.admitted()
        except BaseException:
            await run.generation.close()
            raise
        return run, items, seals

    async def count(self, asked: CreateResponse, tenant: str, connection: HTTPConnection | None = None) -> int:
        """Return how many tokens the prompt of a request has.

        Args:
            asked: The request.
            tenant: Whose it is.
            connection: What it came over.

        Raises:
            ApiError: 400 if there is no such previous response, or the input does not fit to it or cannot be rendered; 404 for
                what else the request names and is not there.
        """
        name = asked.conversation_id
        store = self.archive.store
        before = await (self._before(asked, tenant, None) if name is None else store.conversation_items(tenant, name))
        if before is None:
            raise no_such_conversation(str(name))
        items = await self._conversation(asked, tenant, before)
        shown = await Seals(self.envelope, asked.model, tenant).unseal(items, asked.input)
        generation = begin_generation(self.engine, asked, items, tenant, connection)
        try:
            return await generation.count(await fitting(generation, Turn(asked, shown, asked.max_output_tokens)))
        except PromptError as error:
            raise invalid("input", str(error), error.code) from None

    async def _membership(self, asked: CreateResponse, tenant: str) -> ConversationLease | None:
        """Return the part of a response in the conversation that its request names."""
        name = asked.conversation_id
        return None if name is None else await ConversationLease.begin(self.archive.store, tenant, name)

    async def _before(self, asked: CreateResponse, tenant: str, latest: StoredResponse | None) -> Sequence[Item]:
        """Return the conversation until the previous response."""
        if asked.previous_response_id is None:
            return ()
        before = latest or await self.archive.previous(tenant, asked.previous_response_id)
        return before.conversation

    async def _conversation(self, asked: CreateResponse, tenant: str, before: Sequence[Item]) -> tuple[Item, ...]:
        """Return the items that the model continues: what came before, and the input of the request."""
        referred = [str(item["id"]) for item in asked.input if item["type"] == "item_reference"]
        return asked.resolve(before, await self.archive.store.find(tenant, referred) if referred else {})


def no_such_model(name: str) -> ApiError:
    """Return the error for a model that is not served.

    Args:
        name: Its name.
    """
    message = f"The model '{name[:100]}' does not exist or you do not have access to it."
    return ApiError(404, message, param="model", code="model_not_found")
