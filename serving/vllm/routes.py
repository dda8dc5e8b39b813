"""The routes in front of vLLM's: what is asked over HTTP, and how a run is answered.

They read a request before vLLM validates it, so that vLLM is asked for what it can render, and send what vLLM refuses as vLLM
would. On a server whose instance was not hooked (its model generates nothing), vLLM's own routes answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol, cast

from attrs import evolve, frozen
from starlette.requests import HTTPConnection
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from interlock.events.dialects import OPENAI
from interlock.events.json import dumps
from interlock.serving.errors import ApiError, missing
from interlock.serving.faults import panics_as_errors
from interlock.serving.http.answers import Exchange, KeptAnswer, StreamedAnswer, WholeAnswer
from interlock.serving.http.compacted import CompactedAnswer, compact_request
from interlock.serving.http.conversations import Conversations, conversation_routes
from interlock.serving.http.errors import answer_error
from interlock.serving.http.intake import JSON, MAX_BODY_BYTES, error_response
from interlock.serving.http.stored import StoredRoutes
from interlock.serving.keys import TENANT
from interlock.serving.runs.background import Owner
from interlock.serving.runs.membership import Membership
from interlock.serving.store import StoredResponse, StoreError
from interlock.serving.vllm.compacting import begin_summary
from interlock.serving.vllm.middleware import LongAnswer
from interlock.serving.vllm.rendered import RenderedRun
from interlock.serving.vllm.run import VllmRun, admitted
from interlock.serving.vllm.seams import Endpoint, Router, valid_request
from interlock.serving.vllm.serving import Hooks
from interlock.serving.vllm.shapes import ErrorResponse
from interlock.serving.vllm.sockets import serve_socket

__all__ = ["App", "add_routes"]

PATH: Final = "/v1/responses"
NO_RESPONSES: Final = ApiError(404, "The model of this server makes no responses.")
STATE: Final = "interlock"
"""The name of our hooks in the state of vLLM's application."""


class Routes(Protocol):
    """The list of an application's routes."""

    routes: list[object]


class App(Protocol):
    """vLLM's application, of FastAPI."""

    router: Routes

    def add_middleware(self, middleware_class: type[object], **options: object) -> None:
        """Install a middleware around all others."""
        ...

    def add_api_route(self, path: str, endpoint: Endpoint, *, methods: Sequence[str], dependencies: Sequence[object]) -> None:
        """Add a route after those that are there."""
        ...


def add_routes(app: App, vllm: Router, depends: Callable[[object], object]) -> None:
    """Install our routes in front of vLLM's.

    Up to 0.30 a plugin's routes come last and vLLM's own win; later ones drop vLLM's. In front, ours win everywhere.

    Args:
        app: vLLM's application.
        vllm: vLLM's module of routes.
        depends: FastAPI's `Depends`.
    """
    before = len(app.router.routes)
    api = Api(vllm)
    valid = [depends(vllm.validate_json_request)]
    for path, endpoint, method, dependencies in (
        (PATH, vllm.with_cancellation(vllm.load_aware_call(api.creating())), "POST", valid),
        (f"{PATH}/{{id}}", vllm.load_aware_call(api.about_stored(StoredRoutes.retrieve)), "GET", []),
        (f"{PATH}/{{id}}/cancel", vllm.load_aware_call(api.about_stored(StoredRoutes.cancel)), "POST", []),
        (f"{PATH}/compact", vllm.with_cancellation(vllm.load_aware_call(api.answering(api.compact))), "POST", valid),
        (f"{PATH}/input_tokens", vllm.with_cancellation(vllm.load_aware_call(api.answering(api.count))), "POST", valid),
        (f"{PATH}/{{id}}", vllm.load_aware_call(api.about_stored(StoredRoutes.delete)), "DELETE", []),
        (f"{PATH}/{{id}}/input_items", vllm.load_aware_call(api.about_stored(StoredRoutes.list_input)), "GET", []),
    ):
        app.add_api_route(path, endpoint, methods=[method], dependencies=dependencies)
    app.router.routes += [WebSocketRoute(PATH, api.connect), *conversation_routes(_conversations)]
    routes = app.router.routes
    routes[:] = [*routes[before:], *routes[:before]]


@frozen(eq=False)
class Api:
    """The answers to each route.

    The endpoints are made rather than declared, because FastAPI reads the types of vLLM's from their annotations.
    """

    vllm: Router

    def creating(self) -> Endpoint:
        """Return the endpoint that makes a response."""

        async def create(body: dict[str, Any], raw_request: HttpRequest) -> object:
            hooks = _hooks(raw_request)
            if hooks is None:
                return await self.vllm.create_responses(request=valid_request(self.vllm, body), raw_request=raw_request)
            with panics_as_errors():
                try:
                    return await self._create(hooks, body, raw_request)
                except (ApiError, StoreError) as error:
                    return answer_error(raw_request, error)

        create.__annotations__ = {"body": dict[str, Any], "raw_request": HttpRequest}
        return create

    async def _create(self, hooks: Hooks, body: Mapping[str, object], raw_request: HttpRequest) -> object:
        async with AsyncExitStack() as until_begun:
            membership = await hooks.membership(body, _tenant(hooks, raw_request), until_begun)
            return await self._answer(hooks, body, raw_request, membership, until_begun)

    async def _answer(
        self,
        hooks: Hooks,
        body: Mapping[str, object],
        raw_request: HttpRequest,
        membership: Membership | None,
        until_begun: AsyncExitStack,
    ) -> object:
        dialect = hooks.spoken(raw_request)
        theirs, reading = await hooks.read(body, dialect, _tenant(hooks, raw_request), membership=membership)
        request = valid_request(self.vllm, theirs)
        # Both answers come from pieces (rule R19): vLLM's parsers may see one whole text otherwise, and of a whole that is
        # broken off vLLM shows nothing, and counts nothing.
        streamed, request.stream = bool(request.stream), True
        begun = await hooks.begin(evolve(reading, streamed=streamed), request, raw_request)
        if isinstance(begun, self.vllm.ErrorResponse):
            return _refused(begun)
        if isinstance(begun, Owner):
            owner = cast("Owner[VllmRun[bytes]]", begun)
            queued = await _queued(hooks, owner)
            until_begun.pop_all()
            tail = await hooks.archive.tail(owner.tenant, queued)
            return LongAnswer(KeptAnswer(tail)) if streamed else _json(dialect.spoken(queued.response))
        if isinstance(begun, VllmRun):
            run = cast("VllmRun[bytes]", begun)
            await admitted(run)
            until_begun.pop_all()
            exchange = Exchange(run, hooks.open_runs)
            return LongAnswer(StreamedAnswer(exchange) if streamed else WholeAnswer(exchange, dialect))
        raise TypeError(f"vLLM began a response as {type(begun).__name__}")

    async def connect(self, socket: WebSocket) -> None:
        """Serve a client in WebSocket mode; a server whose model makes no responses refuses."""
        hooks = _hooks(socket)
        if hooks is None:
            await socket.close()
        else:
            await serve_socket(self.vllm, hooks, hooks.spoken(socket), socket)

    def answering(self, answer: Callable[[Hooks, Mapping[str, object], HttpRequest], Awaitable[object]]) -> Endpoint:
        """Return an endpoint that is asked with the body of a request for a response, and makes none.

        Args:
            answer: Returns the answer.
        """

        async def answering(body: dict[str, Any], raw_request: HttpRequest) -> object:
            hooks = _hooks(raw_request)
            if hooks is None:
                return error_response(NO_RESPONSES)
            with panics_as_errors():
                try:
                    return await answer(hooks, body, raw_request)
                except (ApiError, StoreError) as error:
                    return answer_error(raw_request, error)

        answering.__annotations__ = {"body": dict[str, Any], "raw_request": HttpRequest}
        return answering

    async def compact(self, hooks: Hooks, body: Mapping[str, object], raw_request: HttpRequest) -> object:
        """Compact a conversation."""
        asked = compact_request(body)
        _, read = await hooks.read(asked, OPENAI, _tenant(hooks, raw_request))
        if not read.items:
            raise missing("input")
        begun = await begin_summary(hooks, read)
        if isinstance(begun, self.vllm.ErrorResponse):
            return _refused(begun)
        run = cast("VllmRun[bytes]", begun)
        await admitted(run)
        return LongAnswer(CompactedAnswer(Exchange(run, hooks.open_runs), read.items, read.seals.seal_summary))

    async def count(self, hooks: Hooks, body: Mapping[str, object], raw_request: HttpRequest) -> Response:
        """Count the tokens of the prompt that a request would have."""
        prompt = {**body, "stream": True, "background": False, "store": False}
        theirs, reading = await hooks.read(prompt, OPENAI, _tenant(hooks, raw_request))
        asked = evolve(reading, generate=False)
        begun = await hooks.begin(asked, valid_request(self.vllm, theirs), raw_request)
        if isinstance(begun, self.vllm.ErrorResponse):
            return _refused(begun)
        await cast("RenderedRun[bytes]", begun).abandon()
        return _json({"object": "response.input_tokens", "input_tokens": asked.prompts[-1]})

    def about_stored(self, answer: Callable[[StoredRoutes, HttpRequest], Awaitable[ASGIApp]]) -> Endpoint:
        """Return an endpoint about responses that are stored.

        Args:
            answer: The route of `StoredRoutes`.
        """

        async def about(raw_request: HttpRequest) -> object:
            hooks = _hooks(raw_request)
            if hooks is None:
                return error_response(NO_RESPONSES)
            raw_request.scope[TENANT] = _tenant(hooks, raw_request)
            try:
                made = await answer(StoredRoutes(hooks.archive, hooks.dialect), raw_request)
            except (ApiError, StoreError) as error:
                return answer_error(raw_request, error)
            return made if isinstance(made, Response) else LongAnswer(made)

        about.__annotations__ |= {"raw_request": HttpRequest}
        return about


async def _queued(hooks: Hooks, owner: Owner[VllmRun[bytes]]) -> StoredResponse:
    """Return a response that was begun in the background, once it is stored and the engine has taken it.

    What could not be stored is not generated, and what the engine refuses leaves no response.
    """
    try:
        queued = await owner.queued()
    except BaseException:
        await owner.run.abandon()
        raise
    try:
        await owner.run.admitted()
    except BaseException:
        await owner.wait()
        await hooks.archive.store.delete(owner.tenant, queued.id)
        raise
    return queued


def _tenant(hooks: Hooks, request: HttpRequest) -> str:
    return hooks.tenant(request.headers.get("authorization", ""))


def _hooks(request: HTTPConnection) -> Hooks | None:
    hooks = getattr(request.app.state, STATE, None)
    return hooks if isinstance(hooks, Hooks) else None


def _conversations(request: HttpRequest) -> Conversations:
    """Return what answers a request about conversations."""
    hooks = _hooks(request)
    if hooks is None:
        raise NO_RESPONSES
    request.scope[TENANT] = _tenant(hooks, request)
    return Conversations(hooks.archive.store, MAX_BODY_BYTES, hooks.envelope, hooks.models)


def _json(value: object) -> Response:
    return Response(dumps(value), media_type=JSON)


def _refused(refused: ErrorResponse) -> Response:
    """Send a refusal of vLLM's as vLLM does."""
    return Response(dumps(refused.model_dump(mode="json", by_alias=True)), refused.error.code, media_type=JSON)
