"""The ASGI application: its middleware, and the routes of responses, conversations and models.

Exceptions become responses with OpenAI error bodies. The stored responses and conversations are the same in every process that
shares the store.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from attrs import evolve, field, frozen
from starlette.applications import Starlette
from starlette.datastructures import Headers, State
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from interlock.dialects import DIALECT_APIS, ApiName
from interlock.embedding import now, random_id
from interlock.events.dialects import DIALECTS, OPEN_RESPONSES, Dialect
from interlock.events.items import ITEMS
from interlock.events.json import elements, is_array, members
from interlock.events.response_object import InputTokens
from interlock.fsm.deltas import Usage
from interlock.fsm.lifecycle import usage_of
from interlock.parsers import parser_for
from interlock.serving import metrics, traces
from interlock.serving.http.answers import (
    MAX_QUOTED,
    NOTED,
    BackgroundStream,
    JsonResponse,
    StreamedAnswer,
    WholeAnswer,
    answer_error,
    cancel_on_disconnect,
    cancelled_on_disconnect,
    error_response,
    log_refusal,
    note_refusal,
    path_of,
    speaks_messages,
    stream_writer,
    unserved,
)
from interlock.serving.http.dialect_routes import DialectRoutes, list_messages_models, messages_model
from interlock.serving.requests.api_errors import ApiError, EngineError, PromptError, invalid, missing, no_such_model
from interlock.serving.requests.api_keys import TENANT, Keys, authorization_of, tenant_of
from interlock.serving.requests.body import read_json, read_object
from interlock.serving.requests.create import read_conversation, read_conversation_items, read_metadata
from interlock.serving.requests.input_items import SUMMARY_PARAMETERS, JsonItem, add_ids, join
from interlock.serving.requests.logs import begin_logs, log_with
from interlock.serving.requests.runtime import Yielder, panics_as_errors
from interlock.serving.responses.active_runs import ActiveRuns
from interlock.serving.responses.archive import lock_error, no_such_conversation
from interlock.serving.responses.background_response import BackgroundRegistry
from interlock.serving.responses.run import CompactionError, NullWriter, summary_of
from interlock.serving.responses.sealing import Seals, require_openable
from interlock.serving.responses.service import PendingRun, ResponseService
from interlock.serving.settings import HOST, ModelFacts, Settings
from interlock.serving.store.values import Conflict, StoredConversation, StoredResponse, StoreError

if TYPE_CHECKING:
    from interlock.serving.http.websocket import SocketMemory


logger = logging.getLogger(__name__)

METRICS_PATH: Final = "/metrics"
OPEN_PATHS: Final = frozenset({"/health", "/ready"})
"""The paths of the probes, which need neither a key nor a host."""
INVALID_HOST: Final = ApiError(400, "Invalid host header", code="invalid_host")
ACCEPTED: Final = "interlock.accepted_host"
"""The key in the scope of a request for an allowed host."""
MAX_REFUSED: Final = 20
POLICY_VIOLATION: Final = 1008
COMPACT_PARAMETERS: Final = ("input", "previous_response_id", *SUMMARY_PARAMETERS)
DEFAULT_LIMIT: Final = 20
MAX_LIMIT: Final = 100

HEADER: Final = "x-request-id"
MESSAGES_PATH: Final = "/v1/messages"
MESSAGES_HEADER: Final = "request-id"
"""The header in which Anthropic's SDKs read the id."""
SANE: Final = re.compile(r"[!-~]{1,128}")
"""Matches an id that may be logged and sent back: visible ASCII."""
STARTS: Final = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
"""The ASGI messages that have the headers of an answer."""

NO_LIFESPAN: Final = (
    "the application serves without its lifespan, so nothing maintains the store, or closes it and the engine; "
    "an application that mounts another one enters its lifespan"
)

EFFORTS: Final = {
    "none": "No reasoning",
    "minimal": "As little reasoning as possible",
    "low": "Fast answers with little reasoning",
    "medium": "A balance of speed and reasoning",
    "high": "Much reasoning for hard problems",
    "xhigh": "Still more reasoning",
}
"""What Codex shows beside the reasoning efforts."""
COMMON_EFFORTS: Final = ("low", "medium", "high")
"""The efforts of a model whose own are unknown. Codex names none in requests unless its user chooses one."""

MAX_TOOL_OUTPUT: Final = 10_000
"""The tokens that Codex itself keeps of a tool's output for large windows."""
OUTPUTS_PER_WINDOW: Final = 16
"""How many outputs of tools fill a small window."""
MAX_ANSWER_RESERVE: Final = 32_000
"""The most tokens of a window that are left for the next answer and outputs of tools; a small window leaves a quarter."""

INSTRUCTIONS: Final = """\
You are a coding agent in a terminal, and work in the user's workspace with the tools that you have. Work on the task until it \
is done, then report.

# Work
- Look before you change anything: read the files that matter, and search with `rg`, or `grep` where it is missing.
- Follow each `AGENTS.md` in the directories of the files that you change. The deepest one takes precedence, but the \
user's own words take precedence over all.
- For a task of several steps, first say in one or two sentences what you will do. Before a group of tool calls, say \
in a sentence what they are for.
- Edit files with `apply_patch`. Find the cause of a fault instead of hiding its effect. Change only what the task needs, in the \
style of the code around it, and leave changes that you did not make alone.
- Check your work: run the tests or the program. Start with the test that is closest to the change.
- A command that fails is information: read its output, and try another way. Ask the user only for what you cannot find out.
- Do not commit, push, delete data or install packages unless the user asks for it.

# Answers
- If the user asks a question or asks for a plan or a review, answer it and change no files. A review lists faults, the gravest \
first, each with its file and line.
- Your last message is short: what you did, where (`path:line`), how you checked it, and what remains. Say plainly what did not \
work. Do not repeat whole files.
"""
"""The base instructions of every entry, which replace Codex's own for models it does not know."""


class Application(Starlette):
    """The routes of an `Api`. The middleware is, from the outside: `RequestFrame`, hosts, then that of `build`, and of programs.

    `state` has the `keys`.
    """

    def __init__(self, api: Api, keys: Keys, middleware: Sequence[Middleware]) -> None:
        super().__init__(
            routes=api.routes(),
            middleware=middleware,
            exception_handlers=dict.fromkeys((ApiError, StoreError, HTTPException, ClientDisconnect, Exception), _answer_error),
            lifespan=api.lifespan,
        )
        self.router.redirect_slashes = False
        self.api = api
        self.state.keys = keys
        self.state.warns_of_lifespan = True  # until the lifespan begins, or the log has warned

    @property
    def passes_bodies(self) -> bool:
        """Whether no middleware, such as one that a program has added, can change the body of an answer."""
        own = frozenset[object]({RequestFrame, HostCheck, KeyGate, CORSMiddleware})
        return own.issuperset(each.cls for each in self.user_middleware)

    def build_middleware_stack(self) -> ASGIApp:
        allowed = self.api.settings.allowed_host
        hosts = [Middleware(HostCheck, allowed)] if allowed else []
        own = [Middleware(RequestFrame, self.state), *hosts]
        self.user_middleware = [*own, *self.user_middleware]
        engine = self.api.service.engine
        if not engine.has_faults:
            return super().build_middleware_stack()
        from interlock.serving.engines.script import ScriptedEngine  # noqa: PLC0415 - few servers have a script
        from interlock.serving.http.script_faults import ScriptFaults, ScriptRoutes  # noqa: PLC0415 - as above

        assert isinstance(engine, ScriptedEngine)  # noqa: S101 - no other engine has faults
        # Within the check of hosts, because a web page must not read the requests; the viewer would not pass its path on.
        routes = Middleware(ScriptRoutes, engine, self.state.keys, self.api.settings.max_body_bytes)
        self.user_middleware.insert(len(own), routes)
        return ScriptFaults(super().build_middleware_stack(), engine)


async def _answer_error(request: Request, error: Exception) -> Response:
    """Answer in the task of the request, whose log lines get the reason; Starlette would call a function in a thread."""
    return answer_error(request, error)


def name_request(headers: Mapping[str, str]) -> str:
    """Return the id of a request, the client's own `x-request-id` or a new one, and begin its logs."""
    sent = headers.get(HEADER, "")
    request_id = sent if SANE.fullmatch(sent) else random_id("req")
    begin_logs(request_id)
    return request_id


@frozen
class RequestFrame:
    """ASGI middleware around all other.

    It gives each request an id, which the log and the answer have, and continues the request's trace. A fault that is not an
    `Exception` becomes one, so that the client receives an error body. The log says once if nothing runs the lifespan.
    """

    app: ASGIApp
    state: State

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with panics_as_errors():
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
                return
            if self.state.warns_of_lifespan:
                self.state.warns_of_lifespan = False
                logger.warning("%s", NO_LIFESPAN)
            headers = Headers(scope=scope)
            request_id = name_request(headers)
            send = add_header(send, HEADER, request_id, partial(_note_answer, scope))
            if path_of(scope).startswith(MESSAGES_PATH):
                send = add_header(send, MESSAGES_HEADER, request_id)
            with traces.continue_trace(headers):
                await self.app(scope, receive, send)


def _note_answer(scope: Scope, start: Message) -> None:
    """Count a refusal by other middleware than ours, such as that of CORS, and log why."""
    status = start.get("status", HTTPStatus.OK)
    if status >= HTTPStatus.BAD_REQUEST and NOTED not in scope:
        log_with(**note_refusal(ApiError(status, f"Status {status}")))


def add_header(send: Send, name: str, value: str, observe: Callable[[Message], None] | None = None) -> Send:
    """Return a `send` that adds a header to the answer, whose start `observe` sees."""
    header = (name.encode(), value.encode())

    def send_with_header(message: Message) -> Awaitable[None]:  # no coroutine of its own, because streams send many messages
        if message["type"] in STARTS:
            if observe is not None:
                observe(message)
            message = {**message, "headers": [*message.get("headers", ()), header]}
        return send(message)

    return send_with_header


class HostCheck(TrustedHostMiddleware):
    """ASGI middleware that refuses foreign hosts, against web pages whose name leads to this machine (DNS rebinding).

    The log has the first `MAX_REFUSED` of them, each once, because the operator may have forgotten to allow one.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        super().__init__(self._accept, allowed, www_redirect=False)
        self._app = app
        self._refused = set[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and path_of(scope) in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        await super().__call__(scope, receive, partial(self._send, scope, receive, send))

    async def _send(self, scope: Scope, receive: Receive, send: Send, message: Message) -> None:
        """Send a message, but in place of Starlette's refusal, a text, an error as the API writes it."""
        if ACCEPTED in scope:
            await send(message)
        elif message["type"] in STARTS:
            self._note(Headers(scope=scope).get("host", "").partition(":")[0])
            await error_response(INVALID_HOST, in_messages=speaks_messages(HTTPConnection(scope)))(scope, receive, send)

    async def _accept(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ACCEPTED] = True
        await self._app(scope, receive, send)

    def _note(self, host: str) -> None:
        is_name = HOST.fullmatch(host) and "*" not in host
        if is_name and host not in self._refused and len(self._refused) < MAX_REFUSED:
            self._refused.add(host)
            logger.warning("refused the host %r: to allow it, add --allowed-host %s", host, host)


@frozen
class KeyGate:
    """ASGI middleware that requires a valid key, if there are any, and adds its tenant to the scope; `OPEN_PATHS` need no key."""

    app: ASGIApp
    keys: Keys
    metrics_keys: Keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] in {"http", "websocket"} and path_of(scope) not in OPEN_PATHS:
            headers = Headers(scope=scope)
            authorization = authorization_of(headers)
            is_metrics = path_of(scope) == METRICS_PATH
            tenant = self._metrics_tenant(authorization) if is_metrics else self.keys.tenant(authorization)
            if tenant is None:
                message = "You didn't provide an API key (Authorization: Bearer KEY)."
                if authorization:
                    message = "Incorrect API key provided."
                if is_metrics and (self.metrics_keys is not self.keys or self.metrics_keys.passed):
                    message = f"{message} This page has its own, that of --metrics-key."
                error = ApiError(401, message, code="invalid_api_key")
                in_messages = speaks_messages(HTTPConnection(scope))
                app = error_response(error, {"www-authenticate": "Bearer"}, in_messages=in_messages)
            else:
                scope[TENANT] = tenant
                if tenant:
                    log_with(tenant=tenant)
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
        return partial(read_json, max_bytes=self.settings.max_body_bytes, decode=self.decode)

    @cached_property
    def socket_memory(self) -> SocketMemory:
        from interlock.serving.http.websocket import SocketMemory  # noqa: PLC0415 - likewise

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
            _route("/v1/responses/{id}", GET=self.retrieve, DELETE=self.delete),
            _route("/v1/responses/{id}/cancel", POST=self.cancel),
            _route("/v1/responses/{id}/input_items", GET=self.list_input),
            *ConversationRoutes(self.service, partial(read_json, max_bytes=self.settings.max_body_bytes)).routes(),
        ]

    def dialect_routes(self, apis: Collection[ApiName]) -> list[BaseRoute]:
        routes = DialectRoutes(self.service, self.read, self.settings.keep_alive)
        return [route for api, served in routes.by_api().items() if api in apis for route in served]

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncGenerator[None]:
        """Maintain the store while the server runs; at its end, end the open responses and close a remote engine."""
        app.state.warns_of_lifespan = False
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
        parameters = self.service.engine.read(await self.read(request))
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

    async def retrieve(self, request: Request) -> ASGIApp:
        stored = await self._find_stored(request)
        if request.query_params.get("stream") != "true":
            return self._response(request, stored)
        after, start = request.query_params.get("starting_after"), 0
        if after is not None:
            if not (after.isascii() and after.isdigit()):
                raise invalid("starting_after", "Invalid 'starting_after': it must be the sequence number of an event.")
            start = int(after.lstrip("0")[:9] or "0") + 1
        return BackgroundStream(await self.service.archive.tail(tenant_of(request), stored, start), self.settings.keep_alive)

    async def cancel(self, request: Request) -> ASGIApp:
        """Cancel a background response; an ended one stays as it is."""
        stored = await self._find_stored(request)
        if stored.response["background"] is not True:
            raise invalid(None, "Only a background response can be cancelled.")
        await self.service.archive.cancel(tenant_of(request), stored.id)
        return self._response(request, await self._find_stored(request))

    async def delete(self, request: Request) -> ASGIApp:
        """Delete a response, after cancelling it if it has not ended."""
        stored = await self._find_stored(request)
        await self.service.archive.delete(tenant_of(request), stored)
        return JsonResponse({"id": stored.id, "object": "response", "deleted": True})

    async def list_input(self, request: Request) -> ASGIApp:
        stored = await self._find_stored(request)
        return _page(stored.items, request.query_params)

    async def _find_stored(self, request: Request) -> StoredResponse:
        response_id = request.path_params["id"]
        stored = await self.service.archive.get(tenant_of(request), response_id)
        if stored is None:
            raise ApiError(404, f"Response with id '{response_id[:100]}' not found.")
        return stored

    def _response(self, request: Request, stored: StoredResponse) -> Response:
        response = {**stored.response, "output": [_show(item) for item in stored.output]}
        return JsonResponse(self._dialect(request).convert(response))

    async def count_input(self, request: Request) -> Response:
        parameters = self.service.engine.read(await self.read(request))
        count = await cancel_on_disconnect(request.receive, self.service.count(parameters, tenant_of(request), request))
        return JsonResponse(InputTokens(input_tokens=count))

    async def compact(self, request: Request) -> Response:
        """Compact a conversation to the user's messages and an encrypted summary of the whole."""
        parameters = self.service.engine.read(_compact_request(await self.read(request)))
        tenant = tenant_of(request)
        pending = PendingRun(self.service, parameters, tenant, NullWriter(), connection=request, summarizes=True)
        async with cancelled_on_disconnect(pending.control, request.receive):
            run = await pending.run_to_end()
        if run.driver.status == "cancelled":
            raise ClientDisconnect
        try:
            summary = summary_of(run.driver)
        except PromptError as error:
            raise invalid("input", str(error), error.code) from None
        except CompactionError as error:
            raise ApiError(500, str(error), "server_error", code="compaction_failed") from None
        except EngineError as error:
            raise ApiError(500, str(error), "server_error", code=error.code) from None
        sealed = Seals(self.service.sealing_keys, parameters.model, tenant).seal_summary(summary)
        item = {"id": random_id("cmp"), "type": "compaction", "encrypted_content": sealed}
        return JsonResponse(
            {
                "id": run.driver.id,
                "object": "response.compaction",
                "created_at": run.driver.response["created_at"],
                "output": [*_user_messages(run.context.items), item],
                "usage": usage_of(run.driver.usage or Usage()),  # the type has no null
            }
        )

    async def connect(self, socket: WebSocket) -> None:
        """Serve a client in WebSocket mode; close the socket if a page of a foreign origin opened it."""
        if _is_foreign_page(socket, self.settings.cors_origin):
            origin = socket.headers["origin"][:MAX_QUOTED]
            message = (
                f"Pages of the origin '{origin}' are not allowed. The operator of the server can allow it with --cors-origin."
            )
            await _deny(socket, ApiError(403, message, code="origin_not_allowed"))
            return
        from interlock.serving.http.websocket import ConnectionMemory, SocketConnection  # noqa: PLC0415 - few clients use WebSockets

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


async def _refuse_socket(socket: WebSocket) -> None:
    await _deny(socket, unserved("WEBSOCKET", socket.url.path, socket.app.routes))


async def _deny(socket: WebSocket, error: ApiError) -> None:
    """Answer the request for a WebSocket with an error, or close the socket if the server cannot answer."""
    if "websocket.http.response" in socket.scope.get("extensions", ()):
        await socket.send_denial_response(error_response(error))
    else:  # a server of vLLM may lack it
        log_refusal(error)
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


def _route(path: str, **endpoints: Callable[[Request], Awaitable[ASGIApp]]) -> Route:
    """Return one route for all methods of a path, so that `Allow` lists all of them."""

    async def endpoint(request: Request) -> ASGIApp:
        try:
            return await endpoints["GET" if request.method == "HEAD" else request.method](request)
        except Conflict:  # only conversations have several writers
            raise lock_error(request.path_params["id"]) from None

    return Route(path, endpoint, methods=[*endpoints])


@frozen(eq=False)
class ConversationRoutes:
    """The endpoints of conversations."""

    service: ResponseService
    read: Callable[[Request], Awaitable[Mapping[str, object]]]
    """Reads the body of a request."""

    def routes(self) -> list[Route]:
        path = "/v1/conversations"
        return [
            _route(path, POST=self.create),
            _route(f"{path}/{{id}}", GET=self.retrieve, POST=self.update, DELETE=self.delete),
            _route(f"{path}/{{id}}/items", GET=self.list_items, POST=self.add_items),
            _route(f"{path}/{{id}}/items/{{item_id}}", GET=self.retrieve_item, DELETE=self.delete_item),
        ]

    async def create(self, request: Request) -> ASGIApp:
        first_items, metadata = read_conversation(await self.read(request))
        items = await self._resolve(request, (), first_items)
        conversation = StoredConversation(random_id("conv"), now(), metadata)
        await self.service.archive.store.create_conversation(tenant_of(request), conversation, items)
        return _conversation(conversation, conversation.id)

    async def retrieve(self, request: Request) -> ASGIApp:
        conversation_id = request.path_params["id"]
        return _conversation(await self.service.archive.store.conversation(tenant_of(request), conversation_id), conversation_id)

    async def update(self, request: Request) -> ASGIApp:
        metadata, conversation_id = read_metadata(await self.read(request)), request.path_params["id"]
        conversation = await self.service.archive.store.update_conversation(tenant_of(request), conversation_id, metadata)
        return _conversation(conversation, conversation_id)

    async def delete(self, request: Request) -> ASGIApp:
        """Delete a conversation, but not its responses."""
        conversation_id = request.path_params["id"]
        if not await self.service.archive.store.delete_conversation(tenant_of(request), conversation_id):
            raise no_such_conversation(conversation_id)
        return JsonResponse({"id": conversation_id, "object": "conversation.deleted", "deleted": True})

    async def list_items(self, request: Request) -> ASGIApp:
        return _page(await self._items(request), request.query_params)

    async def add_items(self, request: Request) -> ASGIApp:
        items, conversation_id = read_conversation_items(await self.read(request)), request.path_params["id"]
        added = await self._resolve(request, await self._items(request), items)
        if await self.service.archive.store.add_items(tenant_of(request), conversation_id, added) is None:
            raise no_such_conversation(conversation_id)
        return _page(added, {"order": "asc", "limit": str(MAX_LIMIT)})

    async def retrieve_item(self, request: Request) -> ASGIApp:
        item_id = request.path_params["item_id"]
        for item in await self._items(request):
            if item["id"] == item_id:
                return JsonResponse(_list_item(item))
        raise _no_such_item(item_id)

    async def delete_item(self, request: Request) -> ASGIApp:
        conversation_id, item_id = request.path_params["id"], request.path_params["item_id"]
        await self._items(request)
        conversation = await self.service.archive.store.delete_item(tenant_of(request), conversation_id, item_id)
        if conversation is None:
            raise _no_such_item(item_id)
        return _conversation(conversation, conversation_id)

    async def _items(self, request: Request) -> Sequence[JsonItem]:
        conversation_id = request.path_params["id"]
        items = await self.service.archive.store.conversation_items(tenant_of(request), conversation_id)
        if items is None:
            raise no_such_conversation(conversation_id)
        return items

    async def _resolve(self, request: Request, history: Sequence[JsonItem], items: Sequence[JsonItem]) -> tuple[JsonItem, ...]:
        """Return new items for a conversation, each with an id, and references replaced with the items that they name."""
        tenant = tenant_of(request)
        await require_openable(items, self.service.sealing_keys, await self.service.engine.names(), tenant)
        references = [str(item["id"]) for item in items if item["type"] == "item_reference"]
        joined = join(history, items, await self.service.archive.store.find(tenant, references))
        return add_ids(joined[len(history) :])


def _conversation(conversation: StoredConversation | None, conversation_id: str) -> Response:
    if conversation is None:
        raise no_such_conversation(conversation_id)
    return JsonResponse(
        {
            "id": conversation.id,
            "object": "conversation",
            "created_at": conversation.created_at,
            "metadata": conversation.metadata,
        }
    )


def _no_such_item(item_id: str) -> ApiError:
    return ApiError(404, f"Item with id '{item_id[:100]}' not found in the conversation.", param="item_id")


def _page(items: Sequence[JsonItem], query: Mapping[str, str]) -> Response:
    """Return the page of `items` that `limit`, `order` and `after` select; `items` are the oldest first, each with an id."""
    order = query.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise invalid("order", f"Invalid value: '{order[:100]}'. Supported values are: 'asc', 'desc'.")
    limit = query.get("limit", str(DEFAULT_LIMIT))
    if not (limit.isascii() and limit.isdigit() and len(limit) <= len(str(MAX_LIMIT)) and 1 <= int(limit) <= MAX_LIMIT):
        raise invalid("limit", f"Invalid 'limit': it must be an integer from 1 to {MAX_LIMIT}.")
    ordered = [_list_item(item) for item in (items if order == "asc" else reversed(items))]
    ids, after = [item["id"] for item in ordered], query.get("after")
    if after is not None and after not in ids:
        raise invalid("after", "Invalid 'after': no item of this list has this id.")
    rest = ordered if after is None else ordered[ids.index(after) + 1 :]
    page = rest[: int(limit)]
    return JsonResponse(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(rest) > len(page),
        }
    )


def _show(item: JsonItem) -> JsonItem:
    """Return an item without the output of code that is stored for the model."""
    result = getattr(ITEMS.get(str(item["type"])), "tool_result", None)
    keep = result is None or "output" in result
    return item if keep else {name: value for name, value in item.items() if name != "output"}


def _list_item(item: JsonItem) -> JsonItem:
    """Return an item as the API lists it: a message gets a status, and a part in place of a string."""
    if item["type"] != "message":
        return _show(item)
    content = item.get("content")
    if not isinstance(content, str):
        return {"status": "completed", **item}
    part: JsonItem = {"type": "input_text", "text": content}
    if item["role"] == "assistant":
        part = {"type": "output_text", "text": content, "annotations": ()}
    return {"status": "completed", **item, "content": (part,)}


def codex_model(name: str, facts: ModelFacts, priority: int) -> dict[str, object]:
    """Return a model's entry in Codex's catalogue; Codex lists the entries by `priority`.

    Codex discards a catalogue that lacks one of its fields, so an entry also has those that only some of its releases need. It
    compacts at `auto_compact_token_limit`, but at nine tenths of `context_window` if that is less; never if both are null.
    """
    efforts = COMMON_EFFORTS if facts.efforts is None else facts.efforts
    window = facts.window
    limit = MAX_TOOL_OUTPUT if window is None else min(MAX_TOOL_OUTPUT, window // OUTPUTS_PER_WINDOW)
    modalities = {} if facts.modalities is None else {"input_modalities": facts.modalities}
    return {
        "slug": name,
        "display_name": name,
        "description": None,
        "default_reasoning_level": None,
        "supported_reasoning_levels": [{"effort": each, "description": EFFORTS.get(each, each)} for each in efforts],
        "shell_type": "default",
        "visibility": "list",
        "supported_in_api": True,
        "priority": priority,
        "availability_nux": None,
        "upgrade": None,
        "base_instructions": INSTRUCTIONS,
        "supports_reasoning_summaries": bool(efforts),
        "default_reasoning_summary": "auto",
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": "freeform",
        "truncation_policy": {"mode": "tokens", "limit": limit},
        "supports_parallel_tool_calls": True,
        "context_window": window,
        "max_context_window": window,
        "auto_compact_token_limit": None if window is None else window - min(MAX_ANSWER_RESERVE, window // 4),
        "experimental_supported_tools": [],
        **modalities,
    }
