"""The server's routes: what is asked over HTTP, and who answers it.

It knows paths, statuses and the order in which a request is judged. How a response is made is in
`interlock.serving.responses.response_run`, how it is sent in `interlock.serving.http.answers`, and what a body may say in
`interlock.serving.requests.create`. Every error is answered with an OpenAI error body.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final, TypeVar

from attrs import field, frozen
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from interlock.events.dialects import OPEN_RESPONSES, OPENAI, Dialect
from interlock.events.json import dumps
from interlock.events.sse import SseWriter, Writer
from interlock.parsers import parser_for
from interlock.serving.engines.engine import Engine
from interlock.serving.http.answers import Exchange, KeptAnswer, StreamedAnswer, WholeAnswer, unless_gone
from interlock.serving.http.compact_route import CompactedAnswer, compact_request
from interlock.serving.http.conversation_routes import Conversations, conversation_routes
from interlock.serving.http.error_responses import answer_error
from interlock.serving.http.intake import JSON, MAX_BODY_BYTES, FaultBarrier, KeyGate, error_response, is_foreign_page, read_body
from interlock.serving.http.response_routes import StoredRoutes
from interlock.serving.http.websocket.socket_connection import Begun, Connection, Limits
from interlock.serving.http.websocket.socket_memory import Memory
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.api_keys import Keys, tenant_of
from interlock.serving.requests.body import read_object_in_turns
from interlock.serving.requests.create import CreateResponse
from interlock.serving.requests.identity import now
from interlock.serving.requests.yielder import Yielder
from interlock.serving.responses.active_runs import GRACE, ActiveRuns
from interlock.serving.responses.archive import Archive
from interlock.serving.responses.background_response import BackgroundRegistry
from interlock.serving.responses.response_run import NullWriter, ResponseRun
from interlock.serving.responses.sealing import Envelope, SealingKeys
from interlock.serving.responses.service import ResponseService, no_such_model
from interlock.serving.store import ResponseStore, StoredResponse, StoreError, open_store
from interlock.serving.tools.tool_runner import ToolRunner

__all__ = ["Api", "create_app"]

T = TypeVar("T")

OPEN_PATHS: Final = frozenset({"/health"})
POLICY_VIOLATION: Final = 1008


def create_app(  # noqa: PLR0913 - a server has an argument for each of its settings
    engine: Engine,
    *,
    api_key: str | Sequence[str] | None = None,
    share_between_keys: bool = False,
    cors_origins: Sequence[str] = (),
    max_body_bytes: int = MAX_BODY_BYTES,
    dialect: Dialect = OPENAI,
    store: ResponseStore | None = None,
    tools: ToolRunner | None = None,
    socket_limits: Limits | None = None,
    max_streams: int | None = None,
    sealing_keys: SealingKeys | None = None,
) -> Starlette:
    """Create the server as an ASGI application.

    Its state holds `active_runs`, the responses that are being made, and `open_sockets`, the WebSocket connections;
    `interlock.serving.http.server` ends both at a shutdown. It holds
    `background_registry` too, those that are made in the background, and `socket_memory`, what the connections hold.

    Args:
        engine: Where the output of models comes from.
        api_key: What a client has to give as `Authorization: Bearer …`, or several such keys; None lets everybody in.
        share_between_keys: Whether what was stored with one of several keys is there for the others too.
        cors_origins: The origins whose pages may use the server from a browser; `*` for all.
        max_body_bytes: How large the body of a request may be.
        dialect: The dialect of requests that ask for none; the header `OpenResponses-Version` asks for Open Responses'.
        store: Where responses are held, those in the background with their events, by default in memory, bounded. The server
            closes it at its end.
        tools: Returns responses their hosted tools; without it, hosted calls fail.
        socket_limits: What one WebSocket connection may use.
        max_streams: How many responses may be made at once, over HTTP, WebSockets and in the background; None for no limit.
        sealing_keys: Seal what clients carry; by default a random one, and what was sealed opens while the server lives.

    Raises:
        ValueError: A key is empty, or cannot be sent in a header.
    """
    envelope = Envelope(sealing_keys or SealingKeys.random())
    service = ResponseService(engine, Archive(store or open_store()), tools, envelope, ActiveRuns(max_streams))
    api = Api(service, max_body_bytes, dialect, socket_limits or Limits(), frozenset(cors_origins))
    middleware = [Middleware(FaultBarrier)]
    if cors_origins:
        middleware.append(Middleware(CORSMiddleware, cors_origins, allow_methods=["*"], allow_headers=["*"]))
    keys = Keys.of([api_key] if isinstance(api_key, str) else api_key or (), shared=share_between_keys)
    if keys.tenants:
        middleware.append(Middleware(KeyGate, keys=keys, open_paths=OPEN_PATHS))
    app = Starlette(
        routes=api.routes(),
        middleware=middleware,
        exception_handlers=dict.fromkeys((ApiError, StoreError, HTTPException, ClientDisconnect, Exception), answer_error),
        lifespan=api.lifespan,
    )
    app.router.redirect_slashes = False
    app.state.active_runs = service.active_runs
    app.state.open_sockets = api.open_sockets
    app.state.socket_memory = api.socket_memory
    app.state.background_registry = api.background_registry
    return app


@frozen(eq=False)
class Api:
    """The answers to each route; see `create_app` for most of the arguments.

    Args:
        service: Makes the responses.
        decode: Returns the object that a body says.
        open_sockets: The WebSocket connections.
        socket_memory: What they hold.
        started_at: When the server was started.
    """

    service: ResponseService
    max_body_bytes: int
    dialect: Dialect
    socket_limits: Limits
    origins: frozenset[str]
    decode: Callable[[bytes, Yielder], Awaitable[dict[str, object]]] = read_object_in_turns
    open_sockets: ActiveRuns = field(factory=ActiveRuns)
    socket_memory: Memory = field(factory=Memory)
    started_at: int = field(factory=now)

    @cached_property
    def background_registry(self) -> BackgroundRegistry:
        """The responses in the background."""
        return BackgroundRegistry(self.service.archive, self.service.active_runs)

    @cached_property
    def conversations(self) -> Conversations:
        """The answers about conversations."""
        return Conversations(self.service.archive.store, self.max_body_bytes, self.service.envelope, self.service.models)

    def routes(self) -> list[BaseRoute]:
        """Return all routes."""
        return [
            *self.response_routes(),
            WebSocketRoute("/{path:path}", refuse_socket),
            Route("/v1/models", self.list_models, methods=["GET"]),
            Route("/v1/models/{id:path}", self.retrieve_model, methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
        ]

    def response_routes(self) -> list[BaseRoute]:
        """Return the routes of responses and conversations, which another application may mount beside its own."""
        stored = StoredRoutes(self.service.archive, self.dialect)
        return [
            Route("/v1/responses", self.create, methods=["POST"]),
            WebSocketRoute("/v1/responses", self.connect),
            Route("/v1/responses/compact", self.compact, methods=["POST"]),
            Route("/v1/responses/input_tokens", self.count_input, methods=["POST"]),
            Route("/v1/responses/{id}", stored.retrieve_or_delete, methods=["GET", "DELETE"]),
            Route("/v1/responses/{id}/cancel", stored.cancel, methods=["POST"]),
            Route("/v1/responses/{id}/input_items", stored.list_input, methods=["GET"]),
            *conversation_routes(lambda _: self.conversations),
        ]

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncGenerator[None]:
        """Live as long as the server, and end what is still open when it ends.

        What the first request would make for all later ones is made before anybody waits for it.
        """
        parser_for(self.service.engine.format, {})
        async with self.service.archive.maintained():
            try:
                yield
            finally:
                self.service.active_runs.end()
                await self.background_registry.wait(GRACE)

    async def create(self, request: Request) -> ASGIApp:
        """Create a response."""
        asked = await self._asked(request)
        tenant, dialect = tenant_of(request), self._dialect(request)
        if not (asked.stream or asked.background):
            return WholeAnswer(Exchange(await self._run(request, asked, NullWriter()), self.service.active_runs), dialect)
        run = await self._run(request, asked, SseWriter(dialect))
        if not asked.background:
            return StreamedAnswer(Exchange(run, self.service.active_runs))
        queued = await self.background_registry.begin(tenant, run, run.context.lease)
        if asked.stream:
            return KeptAnswer(await self.service.archive.tail(tenant, queued))
        return _json(dialect.spoken(queued.response))

    async def _run(self, request: Request, asked: CreateResponse, writer: Writer[T]) -> ResponseRun[T]:
        """Begin a response, unless its client goes away before."""
        return await unless_gone(request.receive, self.service.begin(asked, tenant_of(request), writer, connection=request))

    async def _asked(self, request: Request, meant: Callable[[dict[str, object]], dict[str, object]] = dict) -> CreateResponse:
        """Read and validate the body of a request, as what it means."""
        yielder = Yielder()
        body = await self.decode(await read_body(request, self.max_body_bytes, yielder), yielder)
        return await self.service.read(meant(body), yielder)

    async def count_input(self, request: Request) -> Response:
        """Count the tokens of the prompt that a request would have."""
        asked = await self._asked(request)
        count = await self.service.count(asked, tenant_of(request), request)
        return _json({"object": "response.input_tokens", "input_tokens": count})

    async def compact(self, request: Request) -> ASGIApp:
        """Compact a conversation: put a summary, which only a server can read, into the place of all but the user's messages."""
        asked = await self._asked(request, compact_request)
        run, items, seals = await unless_gone(request.receive, self.service.begin_summary(asked, tenant_of(request)))
        return CompactedAnswer(Exchange(run, self.service.active_runs), items, seals.seal_summary)

    async def connect(self, socket: WebSocket) -> None:
        """Serve a client in WebSocket mode, unless a page of another origin opened the socket."""
        if is_foreign_page(socket, self.origins):
            await socket.close(POLICY_VIOLATION)
            return
        await socket.accept()
        dialect = OPEN_RESPONSES if "openresponses-version" in socket.headers else self.dialect
        host = SocketHost(self.service, dialect, socket)
        share = self.socket_memory.share(tenant_of(socket), self.socket_limits.held_bytes)
        connection = Connection(socket, host, self.service.active_runs, share, self.socket_limits)
        with self.open_sockets.track(connection):
            await connection.serve()

    def _dialect(self, request: Request) -> Dialect:
        return OPEN_RESPONSES if "openresponses-version" in request.headers else self.dialect

    async def list_models(self, _request: Request) -> Response:
        """List the models."""
        return _json({"object": "list", "data": [self._model(name) for name in await self.service.models()]})

    async def retrieve_model(self, request: Request) -> Response:
        """Describe a model."""
        name = request.path_params["id"]
        if name not in await self.service.models():
            raise no_such_model(name)
        return _json(self._model(name))

    async def health(self, _request: Request) -> Response:
        """Answer that the server is alive."""
        return _json({"status": "ok"})

    def _model(self, name: str) -> dict[str, object]:
        return {"id": name, "object": "model", "created": self.started_at, "owned_by": "interlock"}


@frozen(eq=False)
class SocketHost:
    """Makes the responses of one WebSocket connection.

    Args:
        service: The server's.
        dialect: What the client speaks.
        socket: The connection.
    """

    service: ResponseService
    dialect: Dialect
    socket: WebSocket

    async def begin(self, body: Mapping[str, object], *, generate: bool, latest: StoredResponse | None) -> Begun:
        """Validate a request and return its run; without `generate`, its prompt is rendered and nothing else."""
        asked = await self.service.read(body, Yielder())
        more: dict[str, Any] = {"latest": latest, "generate": generate, "connection": self.socket}
        run = await self.service.begin(asked, tenant_of(self.socket), SseWriter(self.dialect), **more)
        return Begun(run, lambda: run.stored)


async def refuse_socket(socket: WebSocket) -> None:
    """Refuse a WebSocket at a path that has none."""
    error = ApiError(HTTPStatus.NOT_FOUND, f"Invalid URL (WEBSOCKET {socket.url.path})")
    await socket.send_denial_response(error_response(error))


def _json(value: object) -> Response:
    return Response(dumps(value), media_type=JSON)
