"""The ASGI application: its routes and its middleware. Exceptions become responses with OpenAI error bodies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import Final

from attrs import evolve, field, frozen
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from interlock.dialects import DIALECT_APIS, ApiName
from interlock.embedding import now, random_id
from interlock.events.dialects import DIALECTS, OPEN_RESPONSES, Dialect
from interlock.events.json import elements, is_array, members
from interlock.events.response_object import InputTokens
from interlock.fsm.deltas import Usage
from interlock.fsm.subjects import usage_of
from interlock.parsers import parser_for
from interlock.serving import metrics
from interlock.serving.http.answers import (
    BackgroundStream,
    JsonResponse,
    StreamedAnswer,
    WholeAnswer,
    answer_error,
    cancel_on_disconnect,
    cancelled_on_disconnect,
    error_response,
    speaks_messages,
    stream_writer,
)
from interlock.serving.http.codex_models import codex_model
from interlock.serving.http.dialect_routes import DialectRoutes, list_messages_models, messages_model
from interlock.serving.http.request_body import read_json
from interlock.serving.http.request_ids import RequestFrame
from interlock.serving.http.socket_memory import ConnectionMemory, SocketMemory
from interlock.serving.http.stored_routes import ConversationRoutes, ResponseRoutes
from interlock.serving.http.unserved import MAX_QUOTED, unserved
from interlock.serving.requests.api_errors import ApiError, PromptError, invalid, missing, no_such_model
from interlock.serving.requests.api_keys import TENANT, Keys, authorization_of, tenant_of
from interlock.serving.requests.body import read_object
from interlock.serving.requests.context_window import SUMMARY_PARAMETERS
from interlock.serving.requests.create import ResponseRequest
from interlock.serving.requests.input_items import JsonItem
from interlock.serving.requests.runtime import Yielder
from interlock.serving.responses.active_runs import ActiveRuns
from interlock.serving.responses.background_response import BackgroundRegistry
from interlock.serving.responses.compaction import summary_of
from interlock.serving.responses.run import NullWriter
from interlock.serving.responses.sealing import Seals
from interlock.serving.responses.service import PendingRun, ResponseService
from interlock.serving.settings import Settings
from interlock.serving.store import StoreError

METRICS_PATH: Final = "/metrics"
OPEN_PATHS: Final = frozenset({"/health", "/ready"})
"""The paths of the probes, which need neither a key nor a host."""
POLICY_VIOLATION: Final = 1008
COMPACT_PARAMETERS: Final = ("input", "previous_response_id", *SUMMARY_PARAMETERS)


class Application(Starlette):
    """The routes of an `Api`. The middleware is, from the outside: `RequestFrame`, hosts, then that of `build`, and of programs.

    `state` has the `keys`, and the `active_runs` and `open_sockets`, which `interlock.serving.http.server` ends at shutdown.
    """

    def __init__(self, api: Api, keys: Keys, middleware: Sequence[Middleware]) -> None:
        super().__init__(
            routes=api.routes(),
            middleware=middleware,
            exception_handlers=dict.fromkeys((ApiError, StoreError, HTTPException, ClientDisconnect, Exception), answer_error),
            lifespan=api.lifespan,
        )
        self.router.redirect_slashes = False
        self.api = api
        self.state.active_runs = api.service.active_runs
        self.state.open_sockets = api.open_sockets
        self.state.keys = keys

    @property
    def passes_bodies(self) -> bool:
        """Whether no middleware, such as one that a program has added, can change the body of an answer."""
        own = frozenset[object]({RequestFrame, HostCheck, KeyGate, CORSMiddleware})
        return own.issuperset(each.cls for each in self.user_middleware)

    def build_middleware_stack(self) -> ASGIApp:
        """Return the application with its middleware."""
        allowed = self.api.settings.allowed_host
        hosts = [Middleware(HostCheck, allowed)] if allowed else []
        own = [Middleware(RequestFrame), *hosts]
        self.user_middleware = [*own, *self.user_middleware]
        engine = self.api.service.engine
        if not engine.has_faults:
            return super().build_middleware_stack()
        from interlock.serving.http.script_faults import ScriptFaults, ShownRequests  # noqa: PLC0415 - few servers have a script

        # Within the check of hosts, because a web page must not read the requests; the viewer would not pass its path on.
        self.user_middleware.insert(len(own), Middleware(ShownRequests, engine, self.state.keys))
        return ScriptFaults(super().build_middleware_stack())


class HostCheck(TrustedHostMiddleware):
    """ASGI middleware that refuses foreign hosts, against web pages whose name leads to this machine (DNS rebinding)."""

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        super().__init__(app, allowed, www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, unless its host is allowed or its path is one of `OPEN_PATHS`."""
        await (self.app if scope.get("path") in OPEN_PATHS else super().__call__)(scope, receive, send)


@frozen
class KeyGate:
    """ASGI middleware that requires a valid key, if there are any, and adds its tenant to the scope; `OPEN_PATHS` need no key."""

    app: ASGIApp
    keys: Keys
    metrics_keys: Keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] in {"http", "websocket"} and scope["path"] not in OPEN_PATHS:
            headers = Headers(scope=scope)
            authorization = authorization_of(headers)
            tenant = self._metrics_tenant(authorization) if scope["path"] == METRICS_PATH else self.keys.tenant(authorization)
            if tenant is None:
                message = "You didn't provide an API key (Authorization: Bearer KEY)."
                if authorization:
                    message = "Incorrect API key provided."
                error = ApiError(401, message, code="invalid_api_key")
                in_messages = speaks_messages(HTTPConnection(scope))
                app = error_response(error, {"www-authenticate": "Bearer"}, in_messages=in_messages)
            else:
                scope[TENANT] = tenant
        await app(scope, receive, send)

    def _metrics_tenant(self, authorization: str) -> str | None:
        """Return as `Keys.tenant` does for the page of metrics, which no key opens that only another server checks."""
        return None if self.metrics_keys.passed else self.metrics_keys.tenant(authorization)


@frozen(eq=False)
class Api:
    """The endpoints of a service; `decode` parses the bodies of requests for responses, compactions and token counts."""

    service: ResponseService
    settings: Settings
    decode: Callable[[bytes, Yielder], Awaitable[dict[str, object]]] = read_object
    open_sockets: ActiveRuns = field(factory=ActiveRuns, init=False)
    started_at: int = field(factory=now, init=False)

    @cached_property
    def read(self) -> Callable[[Request], Awaitable[dict[str, object]]]:
        """Reads the body of a request."""
        return partial(read_json, max_bytes=self.settings.max_body_bytes, decode=self.decode)

    @cached_property
    def socket_memory(self) -> SocketMemory:
        return SocketMemory(self.settings.socket_limits.memory_bytes)

    @cached_property
    def background_registry(self) -> BackgroundRegistry:
        return BackgroundRegistry(self.service.archive)

    def routes(self) -> list[BaseRoute]:
        return [
            *self.response_routes(),
            *self.dialect_routes(DIALECT_APIS),
            WebSocketRoute("/{path:path}", _refuse_socket),
            Route("/v1/models", self.list_models, methods=["GET"]),
            Route("/v1/models/{id:path}", self.retrieve_model, methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route(METRICS_PATH, self.metrics, methods=["GET"]),
            Route("/ready", self.ready, methods=["GET"]),
        ]

    def response_routes(self) -> list[BaseRoute]:
        """Return the routes of responses and conversations, for another application to mount beside its own."""
        return [
            Route("/v1/responses", self.create, methods=["POST"]),
            WebSocketRoute("/v1/responses", self.connect),
            Route("/v1/responses/compact", self.compact, methods=["POST"]),
            Route("/v1/responses/input_tokens", self.count_input, methods=["POST"]),
            *ResponseRoutes(self.service.archive, self._dialect, self.settings.keep_alive).routes(),
            *ConversationRoutes(self.service, partial(read_json, max_bytes=self.settings.max_body_bytes)).routes(),
        ]

    def dialect_routes(self, apis: Collection[ApiName]) -> list[BaseRoute]:
        """Return the routes of other APIs than Responses."""
        routes = DialectRoutes(self.service, self.read, self.settings.keep_alive)
        return [route for api, served in routes.by_api().items() if api in apis for route in served]

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncGenerator[None]:
        """Maintain the store while the server runs; at its end, end the open responses and close a remote engine."""
        parser_for(self.service.engine.format, {})  # loads the parser before the first request needs it
        async with self.service.archive.maintained():
            try:
                yield
            finally:
                self.service.active_runs.end()
                await self.background_registry.wait(self.settings.times.grace)
                await self.service.engine.close()
                await self.service.tools.close()

    async def create(self, request: Request) -> ASGIApp:
        parameters = await self._parameters(request)
        tenant, dialect = tenant_of(request), self._dialect(request)
        if not (parameters.stream or parameters.background):
            return WholeAnswer(PendingRun(self.service, parameters, tenant, NullWriter(), connection=request), dialect)
        pending = PendingRun(self.service, parameters, tenant, stream_writer(parameters, dialect), connection=request)
        if not parameters.background:
            return StreamedAnswer(pending, dialect, self.settings.keep_alive)
        async with cancelled_on_disconnect(pending.control, request.receive):
            queued = await self.background_registry.begin(pending)
        if parameters.stream:
            return BackgroundStream(await self.service.archive.tail(tenant, queued), self.settings.keep_alive)
        return JsonResponse(dialect.convert(queued.response))

    async def _parameters(
        self, request: Request, convert: Callable[[dict[str, object]], dict[str, object]] = dict
    ) -> ResponseRequest:
        """Read the body of a request, convert it with `convert`, and validate it."""
        return self.service.engine.read(convert(await self.read(request)))

    async def count_input(self, request: Request) -> Response:
        parameters = await self._parameters(request)
        count = await cancel_on_disconnect(request.receive, self.service.count(parameters, tenant_of(request), request))
        return JsonResponse(InputTokens(input_tokens=count))

    async def compact(self, request: Request) -> Response:
        """Compact a conversation to the user's messages and an encrypted summary of the whole."""
        parameters = await self._parameters(request, _compact_request)
        tenant = tenant_of(request)
        pending = PendingRun(self.service, parameters, tenant, NullWriter(), connection=request, summarizes=True)
        run = await cancel_on_disconnect(request.receive, pending.run_to_end())
        result = summary_of(run.driver)
        if isinstance(result.fault, PromptError):
            raise invalid("input", str(result.fault), result.fault.code)
        if result.fault is not None:
            raise ApiError(500, str(result.fault), "server_error", code="compaction_failed")
        sealed = Seals(self.service.sealing_keys, parameters.model, tenant).seal_summary(result.text)
        item = {"id": random_id("cmp"), "type": "compaction", "encrypted_content": sealed}
        return JsonResponse(
            {
                "id": run.driver.id,
                "object": "response.compaction",
                "created_at": run.driver.response["created_at"],
                "output": [*_user_messages(run.context.items), item],
                "usage": usage_of(result.usage or Usage()),  # the type has no null
            }
        )

    async def connect(self, socket: WebSocket) -> None:
        """Serve a client in WebSocket mode; close the socket if a page of a foreign origin opened it."""
        if _is_foreign_page(socket, self.settings.cors_origin):
            await _refuse_page(socket)
            return
        from interlock.serving.http.websocket import SocketConnection  # noqa: PLC0415 - few clients use WebSockets

        await socket.accept()
        settings = self.settings
        memory = ConnectionMemory(self.socket_memory)
        connection = SocketConnection(
            socket, self.service, self._dialect(socket), memory, settings.socket_limits, settings.keep_alive
        )
        with self.open_sockets.track(connection.interrupt):
            await connection.serve()

    def _dialect(self, connection: HTTPConnection) -> Dialect:
        return OPEN_RESPONSES if "openresponses-version" in connection.headers else DIALECTS[self.settings.dialect]

    async def list_models(self, request: Request) -> Response:
        if speaks_messages(request):
            return JsonResponse(list_messages_models(await self.service.engine.names(), self.started_at))
        names = await self.service.engine.names()
        return JsonResponse({"object": "list", "data": [self._model(name) for name in names], "models": self.codex_models(names)})

    def codex_models(self, names: Iterable[str]) -> list[dict[str, object]]:
        """Return the models of these names as Codex reads them."""
        facts = self.service.engine.facts
        return [codex_model(name, facts(name), index) for index, name in enumerate(filter(None, names))]

    async def retrieve_model(self, request: Request) -> Response:
        """Return a model."""
        name = request.path_params["id"]
        if name not in (names := await self.service.engine.names()):
            raise no_such_model(name, names)
        return JsonResponse(messages_model(name, self.started_at) if speaks_messages(request) else self._model(name))

    async def health(self, _request: Request) -> Response:
        return JsonResponse({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        """Return the metrics of all processes of the server for Prometheus."""
        page = await asyncio.to_thread(metrics.page, request.headers.get("accept", ""))
        if page is None:
            raise ApiError(404, "This server has no metrics: install interlock[metrics].")
        text, media_type = page
        return Response(text, headers={"content-type": media_type})

    async def ready(self, _request: Request) -> Response:
        """Return 200 if the engine is ready."""
        self.service.active_runs.require_open()
        try:
            await self.service.engine.require_ready()
        except ApiError as error:
            raise evolve(error, status=503) from error
        return JsonResponse({"status": "ready"})

    def _model(self, name: str) -> dict[str, object]:
        model: dict[str, object] = {"id": name, "object": "model", "created": self.started_at, "owned_by": "interlock"}
        window = self.service.engine.facts(name).window
        return model if window is None else {**model, "max_model_len": window}


def _is_foreign_page(socket: WebSocket, origins: Sequence[str]) -> bool:
    """Return whether a page of another origin, not in `origins`, opened a socket; browsers do not prevent that."""
    origin = socket.headers.get("origin")
    if origin is None or origin in origins or "*" in origins:
        return False
    _, _, host = origin.partition("://")
    return host != socket.headers.get("host")


async def _refuse_page(socket: WebSocket) -> None:
    """Refuse a WebSocket of a page of another origin."""
    origin = socket.headers["origin"][:MAX_QUOTED]
    message = f"Pages of the origin '{origin}' are not allowed. The operator of the server can allow it with --cors-origin."
    await _deny(socket, ApiError(403, message, code="origin_not_allowed"))


async def _refuse_socket(socket: WebSocket) -> None:
    """Refuse a WebSocket at an unknown path."""
    await _deny(socket, unserved("WEBSOCKET", socket.url.path, socket.app.routes))


async def _deny(socket: WebSocket, error: ApiError) -> None:
    """Answer the request for a WebSocket with an error, or close the socket if the server cannot answer."""
    if "websocket.http.response" in socket.scope.get("extensions", ()):
        await socket.send_denial_response(error_response(error))
    else:  # a server of vLLM may lack it
        await socket.close(POLICY_VIOLATION)


def _compact_request(body: Mapping[str, object]) -> dict[str, object]:
    """Convert the body of a compaction request to the body of a response request, without compaction triggers."""
    if body.get("model") is None:
        raise missing("model")
    request = {name: body[name] for name in COMPACT_PARAMETERS if body.get(name) is not None}
    items = request.get("input")
    if is_array(items):
        request["input"] = [item for item in elements(items) if members(item).get("type") != "compaction_trigger"]
    return {**request, "store": False}


def _user_messages(items: Sequence[JsonItem]) -> Iterator[dict[str, object]]:
    """Yield the user's messages as items of a response."""
    for item in items:
        if item.get("type") == "message" and item.get("role") == "user":
            content = item.get("content")
            parts = content if is_array(content) else [{"type": "input_text", "text": content}]
            yield {**item, "id": item.get("id") or random_id("msg"), "status": "completed", "content": parts}
