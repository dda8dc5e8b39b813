"""The routes in front of vLLM's: what is asked over HTTP, and how a run is answered.

They read a request before vLLM validates it, so that vLLM is asked for what it can render, and send what vLLM refuses as vLLM
would. On a server whose instance was not hooked (its model generates nothing), vLLM's own routes answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

from attrs import evolve, frozen
from starlette.requests import HTTPConnection
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from interlock.events.dialects import OPENAI
from interlock.events.json import dumps
from interlock.serving.errors import ApiError
from interlock.serving.faults import panics_as_errors
from interlock.serving.http.answers import Exchange, KeptAnswer, StreamedAnswer, WholeAnswer
from interlock.serving.http.intake import JSON, error_response
from interlock.serving.runs.background import NOT_STREAMED, Record
from interlock.serving.vllm.held import deleted, input_items
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
        (f"{PATH}/{{response_id}}", vllm.load_aware_call(api.retrieving()), "GET", []),
        (f"{PATH}/{{response_id}}/cancel", vllm.load_aware_call(api.cancelling()), "POST", []),
        (f"{PATH}/input_tokens", vllm.with_cancellation(vllm.load_aware_call(api.counting())), "POST", valid),
        (f"{PATH}/{{response_id}}", vllm.load_aware_call(api.deleting()), "DELETE", []),
        (f"{PATH}/{{response_id}}/input_items", vllm.load_aware_call(api.listing()), "GET", []),
    ):
        app.add_api_route(path, endpoint, methods=[method], dependencies=dependencies)
    app.router.routes.append(WebSocketRoute(PATH, api.connect))
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
                except ApiError as error:
                    return error_response(error)

        create.__annotations__ = {"body": dict[str, Any], "raw_request": HttpRequest}
        return create

    async def _create(self, hooks: Hooks, body: Mapping[str, object], raw_request: HttpRequest) -> object:
        dialect = hooks.spoken(raw_request)
        theirs, reading = await hooks.read(body, dialect, _tenant(hooks, raw_request))
        request = valid_request(self.vllm, theirs)
        # Both answers come from pieces (rule R19): vLLM's parsers may see one whole text otherwise, and of a whole that is
        # broken off vLLM shows nothing, and counts nothing.
        streamed, request.stream = bool(request.stream), True
        begun = await hooks.begin(evolve(reading, streamed=streamed), request, raw_request)
        record = hooks.records.get(request.request_id) if request.background else None
        if isinstance(begun, self.vllm.ErrorResponse):
            return _refused(begun)
        if record is not None:
            queued = record.queued
            await _admitted(hooks, record)
            return LongAnswer(KeptAnswer(record)) if streamed else _json(dialect.spoken(queued))
        if isinstance(begun, VllmRun):
            run = cast("VllmRun[bytes]", begun)
            await admitted(run)
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

    def counting(self) -> Endpoint:
        """Return the endpoint that counts the tokens of the prompt that a request would have."""

        async def count(body: dict[str, Any], raw_request: HttpRequest) -> object:
            hooks = _hooks(raw_request)
            if hooks is None:
                return error_response(NO_RESPONSES)
            with panics_as_errors():
                try:
                    return await self._count(hooks, body, raw_request)
                except ApiError as error:
                    return error_response(error)

        count.__annotations__ = {"body": dict[str, Any], "raw_request": HttpRequest}
        return count

    async def _count(self, hooks: Hooks, body: Mapping[str, object], raw_request: HttpRequest) -> Response:
        prompt = {**body, "stream": True, "background": False, "store": False}
        theirs, reading = await hooks.read(prompt, OPENAI, _tenant(hooks, raw_request))
        asked = evolve(reading, generate=False)
        begun = await hooks.begin(asked, valid_request(self.vllm, theirs), raw_request)
        if isinstance(begun, self.vllm.ErrorResponse):
            return _refused(begun)
        await cast("RenderedRun[bytes]", begun).abandon()
        return _json({"object": "response.input_tokens", "input_tokens": asked.prompts[-1]})

    def deleting(self) -> Endpoint:
        """Return the endpoint that deletes a response."""

        async def delete(response_id: str, raw_request: HttpRequest) -> object:
            return await deleted(_hooks(raw_request), response_id)

        delete.__annotations__ |= {"response_id": str, "raw_request": HttpRequest}
        return delete

    def listing(self) -> Endpoint:
        """Return the endpoint that lists what a response answered."""

        async def list_input(response_id: str, raw_request: HttpRequest) -> object:
            return await input_items(_hooks(raw_request), response_id, raw_request)

        list_input.__annotations__ |= {"response_id": str, "raw_request": HttpRequest}
        return list_input

    def retrieving(self) -> Endpoint:
        """Return the endpoint that shows a response, or streams one that is made in the background."""

        async def retrieve(
            response_id: str, raw_request: HttpRequest, starting_after: int | None = None, *, stream: bool | None = False
        ) -> object:
            hooks = _hooks(raw_request)
            if hooks is not None:
                record, shown = hooks.records.get(response_id), hooks.shown(response_id)
                if stream and record is not None:
                    return LongAnswer(KeptAnswer(record, 0 if starting_after is None else starting_after + 1))
                if stream and shown is not None:
                    return error_response(NOT_STREAMED)
                if shown is not None:
                    return _json(hooks.spoken(raw_request).spoken(shown))
            return await self.vllm.retrieve_responses(
                response_id=response_id, raw_request=raw_request, starting_after=starting_after, stream=stream
            )

        retrieve.__annotations__ |= {"response_id": str, "raw_request": HttpRequest}
        return retrieve

    def cancelling(self) -> Endpoint:
        """Return the endpoint that cancels a response that is made in the background."""

        async def cancel(response_id: str, raw_request: HttpRequest) -> object:
            hooks = _hooks(raw_request)
            record = None if hooks is None else hooks.records.get(response_id)
            if hooks is None or record is None or record.over:
                return await self.vllm.cancel_responses(response_id=response_id, raw_request=raw_request)
            await record.cancel()
            return _json(hooks.spoken(raw_request).spoken(record.response))

        cancel.__annotations__ |= {"response_id": str, "raw_request": HttpRequest}
        return cancel


async def _admitted(hooks: Hooks, record: Record[VllmRun[bytes]]) -> None:
    """Wait until the engine has taken a request that is answered in the background; what it refuses leaves no response."""
    try:
        await record.run.admitted()
    except BaseException:
        await record.wait()
        await hooks.forget(str(record.response["id"]))
        raise


def _tenant(hooks: Hooks, request: HttpRequest) -> str:
    return hooks.tenant(request.headers.get("authorization", ""))


def _hooks(request: HTTPConnection) -> Hooks | None:
    hooks = getattr(request.app.state, STATE, None)
    return hooks if isinstance(hooks, Hooks) else None


def _json(value: object) -> Response:
    return Response(dumps(value), media_type=JSON)


def _refused(refused: ErrorResponse) -> Response:
    """Send a refusal of vLLM's as vLLM does."""
    return Response(dumps(refused.model_dump(mode="json", by_alias=True)), refused.error.code, media_type=JSON)
