"""The endpoint plugin that vLLM loads by its entry point.

While a server starts, vLLM gives the plugin its application, then the application's state. The plugin puts the service's
routes in front of vLLM's. On an unsupported vLLM the plugin stays inactive, and a warning in the log explains why.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import wait
from contextlib import suppress
from importlib import import_module
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import orjson
from attrs import define, field
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from interlock import __version__
from interlock.events.dialects import DIALECTS, OPENAI
from interlock.events.json import dumps
from interlock.parsers import parser_for
from interlock.parsers.families import Family
from interlock.serving import metrics, traces
from interlock.serving.engines.vllm import compat
from interlock.serving.engines.vllm.compat import EngineClient, Serving
from interlock.serving.engines.vllm.readers import configure
from interlock.serving.engines.vllm.vllm_engine import Admissions, Salt, VllmEngine, VllmRefusedError
from interlock.serving.http.answers import KEEP_ALIVE, JsonResponse, answer_error, count_refusal
from interlock.serving.http.app import Api
from interlock.serving.http.request_body import JSON
from interlock.serving.http.request_ids import add_header, name_request
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.api_keys import TENANT, Keys
from interlock.serving.requests.body import read_object
from interlock.serving.requests.runtime import Yielder, panics_as_errors
from interlock.serving.requests.tool_offer import CALL_SECONDS, HostedTool
from interlock.serving.responses.active_runs import GRACE
from interlock.serving.responses.archive import Archive
from interlock.serving.responses.sealing import RANDOM_KEY, SealingKeys
from interlock.serving.responses.service import ResponseService
from interlock.serving.settings import Settings
from interlock.serving.store import StoreError
from interlock.serving.store.opening import IN_MEMORY, open_store
from interlock.serving.tools.address import AddressPolicy
from interlock.serving.tools.code_interpreter import CodeInterpreter
from interlock.serving.tools.hosting import ToolServers
from interlock.serving.tools.tool_runner import LocalTool
from interlock.serving.view.web import RecentStreams, ViewerMiddleware

if TYPE_CHECKING:
    from interlock.serving.tools.web_search import WebSearch

T = TypeVar("T")

VERSION_HEADER: Final = "x-interlock"
"""The header of answers with the version of the plugin."""

logger = logging.getLogger("vllm.interlock")  # a child of vLLM's logger, which has a handler

# The environment variables of the settings that docs/vllm.md explains.
TOOL_TIMEOUT: Final = "INTERLOCK_TOOL_TIMEOUT"
ALLOW_MCP_HOSTS: Final = "INTERLOCK_ALLOW_MCP_HOSTS"
CACHE_SALT: Final = "INTERLOCK_CACHE_SALT"
DIALECT: Final = "INTERLOCK_DIALECT"
SERVED: Final = "INTERLOCK_DIALECTS"
VIEW: Final = "INTERLOCK_VIEW"
KEEP_ALIVE_VARIABLE: Final = "INTERLOCK_KEEP_ALIVE"
SHARE: Final = "INTERLOCK_SHARE_BETWEEN_KEYS"
STORE: Final = "INTERLOCK_STORE"
REQUIRED: Final = "INTERLOCK_REQUIRED"
CODE_INTERPRETER: Final = "INTERLOCK_CODE_INTERPRETER"
WEB_SEARCH: Final = "INTERLOCK_WEB_SEARCH"

SALTS: Final[Mapping[str, Salt]] = {salt: salt for salt in get_args(Salt)}
TOOLS: Final[Mapping[str, HostedTool]] = {"python": "code_interpreter", "browser": "web_search", "container": "container"}
"""The hosted tools by the names that the servers of `--tool-server` report."""


@define(eq=False)
class InterlockPlugin:
    """Serves `/v1/responses` of a vLLM server with Interlock; `VLLM_PLUGINS` enables the plugin by its `name`."""

    name: str = "interlock"
    required_tasks: tuple[str, ...] = ("generate",)
    _app: Starlette | None = field(default=None, init=False)
    """vLLM's application; None before `attach_router`, and while the plugin is inactive."""
    _watching: asyncio.Task[None] | None = field(default=None, init=False)
    """The task that maintains the store."""
    _recent: RecentStreams | None = field(default=None, init=False)
    """The latest streams, for the viewer."""

    def attach_router(self, app: Starlette) -> None:
        """Prepare vLLM's application if this vLLM is supported; if not, the server starts without the plugin.

        Raises:
            SystemExit: The plugin stays inactive, although `INTERLOCK_REQUIRED` requires it.
        """
        try:
            obstacle = compat.obstacle(compat.version())
            if obstacle is None:
                with suppress(ImportError):  # uvicorn may lack WebSockets
                    import_module("interlock.serving.http.bounded_protocol").install()
            if obstacle is None and os.environ.get(VIEW) == "1":
                self._recent = RecentStreams(None)
                app.add_middleware(ViewerMiddleware, recent=self._recent)
        except Exception as error:  # noqa: BLE001 - an unknown build of vLLM may raise anything
            obstacle = f"{error!r}"
        if obstacle is None:
            self._app = app
            _log_as_vllm()
        else:
            self._leave(obstacle)

    async def init_state(self, engine_client: EngineClient | None, state: State, args: object) -> None:
        """Put the service's routes in front of vLLM's if the model supports responses; `args` is vLLM's parsed command line.

        Raises:
            SystemExit: As for `attach_router`.
        """
        serving: Serving | None = getattr(state, "openai_serving_responses", None)
        if self._app is None:
            return
        if serving is None:
            if os.environ.get(REQUIRED) == "1":
                self._leave("the model does not generate responses")
            return
        try:
            api_keys: list[str] = getattr(args, "api_key", None) or [os.environ.get("VLLM_API_KEY", "")]
            keys = Keys.of([key for key in api_keys if key], shared=os.environ.get(SHARE) == "1")
            sealing_keys = SealingKeys.from_environment()
            if os.environ.get(STORE):
                serving.enable_store = True
            store_url = os.environ.get(STORE) or IN_MEMORY
            archive, tools, admissions = Archive(open_store(store_url)), _tools(serving), Admissions()
            family = None if serving.use_harmony else _family(args, serving)
            has_tenants = len({tenant for _, tenant in keys.tenants}) > 1
            salt: Salt = _choice(CACHE_SALT, SALTS, "tenant" if has_tenants else "none")
            compat.accept_function_tools(getattr(args, "tool_call_parser", None))
            metrics.register()
            engine = VllmEngine(serving, tools.descriptions, family, salt, admissions)
            settings = Settings(
                cors_origin=tuple(getattr(args, "allowed_origins", None) or ()),
                dialect=_choice(DIALECT, DIALECTS, OPENAI).name,
                keep_alive=_seconds(KEEP_ALIVE_VARIABLE, KEEP_ALIVE),
            )
            service = ResponseService(engine, archive, tools, sealing_keys or SealingKeys.random())
            api = Api(service, settings, read_any_object)
            parser_for(engine.format, {})  # so that the first request need not load it
            if engine_client is not None:
                admissions.watch(engine_client)
                _end_runs_at_shutdown(engine_client, api)
            routes = [mount(route, keys, compat.router()) for route in _served_routes(api)]
            self._app.router.routes[:0] = [*routes, _model_list(serving, api)]
        except Exception as error:  # noqa: BLE001 - an unknown build of vLLM may raise anything
            self._leave(f"{error!r}")
            return
        state.interlock = api
        self._watching = asyncio.create_task(archive.maintain())
        readers = "its own Harmony parser" if serving.use_harmony else "vLLM's parsers"
        readers = readers if family is None else f"its own parsers for {family.name}"
        logger.info("Interlock serves /v1/responses with %s.", readers)
        if self._recent is not None:
            self._recent.keys = keys
        processes: int = getattr(args, "api_server_count", None) or 1
        if sealing_keys is None and (processes > 1 or not store_url.startswith("memory:")):
            logger.warning(RANDOM_KEY)
        if serving.enable_store and processes > 1 and store_url.startswith("memory:"):
            logger.warning(
                "With %d API processes, a stored response is available only in the process that made it, "
                "unless %s names a shared store.",
                processes,
                STORE,
            )

    def _leave(self, obstacle: str) -> None:
        if os.environ.get(REQUIRED) == "1":
            raise SystemExit(f"Interlock cannot serve /v1/responses, and {REQUIRED}=1 requires it: {obstacle}")
        self._app = None
        logger.warning("Interlock leaves vLLM %s's own /v1/responses in place: %s.", compat.version(), obstacle)


def _log_as_vllm() -> None:
    """Log the package's warnings as vLLM's own: dependencies of vLLM set the root logger to levels that hide them."""
    interlock, vllm = logging.getLogger("interlock"), logging.getLogger("vllm")
    interlock.setLevel(vllm.getEffectiveLevel())
    interlock.propagate = vllm.propagate
    for handler in vllm.handlers:
        interlock.addHandler(handler)


def _served_routes(api: Api) -> list[BaseRoute]:
    """Return the routes of the APIs that the environment names, separated by commas; by default, only Responses."""
    routes = {
        "responses": api.response_routes,
        "messages": api.dialect_routes.messages_routes,
        "chat": api.dialect_routes.chat_routes,
    }
    names = [name.strip() for name in os.environ.get(SERVED, "responses").split(",")]
    if unknown := [name for name in names if name not in routes]:
        logger.warning("%s must have only %s, not %s", SERVED, ", ".join(routes), ", ".join(map(repr, unknown)))
    return [route for name, served in routes.items() if name in names for route in served()]


def _model_list(serving: Serving, api: Api) -> Route:
    """Return the route of vLLM's own list of models, with the catalogue that Codex reads."""

    async def list_models(_: Request) -> Response:
        listed: BaseModel = await serving.models.show_available_models()
        return JsonResponse({**listed.model_dump(mode="json"), "models": api.codex_models(await api.service.engine.names())})

    return Route("/v1/models", list_models, methods=["GET"])


def mount(route: BaseRoute, keys: Keys, vllm: compat.Router) -> BaseRoute:
    """Adapt a route of the service to vLLM's application, which has its own middleware and error responses.

    vLLM checks the API keys; here they only select the tenant.
    """

    def identify(connection: HTTPConnection) -> None:
        name_request(connection.headers)
        connection.scope[TENANT] = keys.tenant(connection.headers.get("authorization", "")) or ""

    if isinstance(route, WebSocketRoute):
        connect: Callable[..., Any] = route.endpoint

        async def connecting(socket: WebSocket) -> None:
            identify(socket)
            with traces.continue_trace(socket.headers):
                await connect(socket)

        return WebSocketRoute(route.path, connecting)
    assert isinstance(route, Route)  # noqa: S101 - the service has no other kind of route
    answer: Callable[..., Any] = route.endpoint

    async def answering(*, raw_request: Request) -> Response:
        identify(raw_request)
        response = await _or_refusal(raw_request, answer(raw_request))
        if not isinstance(response, Response):
            return LongAnswer(raw_request, response)
        response.headers[VERSION_HEADER] = __version__
        return response

    aware = vllm.load_aware_call(answering)

    async def endpoint(request: Request) -> object:
        return await aware(raw_request=request)

    return Route(route.path, endpoint, methods=[*(route.methods or ())])


class LongAnswer(StreamingResponse):
    """Wraps an answer in a Starlette response, so that vLLM's `load_aware_call` can set its `background` task."""

    def __init__(self, request: Request, answer: ASGIApp) -> None:
        super().__init__(())
        self._request = request
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, or a refusal of the request; then run vLLM's `background` task, even after an error.

        Raises:
            PanicError: The answer raised a fault that is not an `Exception`; vLLM answers with an error body.
        """
        send = add_header(send, VERSION_HEADER, __version__)
        try:
            refusal = await _or_refusal(self._request, self._answer(scope, receive, send))
            if refusal is not None:
                await refusal(scope, receive, send)
        finally:
            if self.background is not None:
                await self.background()


async def _or_refusal(request: Request, answer: Awaitable[T]) -> T | Response:
    """Await the answer to a request, within its trace; a refusal becomes the response that vLLM would give."""
    with traces.continue_trace(request.headers), panics_as_errors():
        try:
            return await answer
        except VllmRefusedError as error:
            return _refusal(error)
        except (ApiError, StoreError, ClientDisconnect) as error:
            return answer_error(request, error)


async def read_any_object(body: bytes, yielder: Yielder) -> dict[str, object]:
    """Decode a body in any encoding that vLLM reads; `NaN` becomes null.

    Raises:
        ApiError: 400 for a body that is not JSON, not an object, or nested too deeply.
    """
    try:
        return await read_object(body, yielder)
    except ApiError as error:
        try:
            return await read_object(orjson.dumps(json.loads(body)), yielder)
        except (ValueError, TypeError, RecursionError):
            raise error from None


def _refusal(error: VllmRefusedError) -> Response:
    """Return vLLM's own answer to a request that it refuses, or raise an exception for vLLM's handlers."""
    count_refusal(error)
    if error.answer is None or isinstance(error.answer, Exception):
        raise error.answer or error
    return Response(dumps(error.answer.model_dump(mode="json", by_alias=True)), error.status, media_type=JSON)


def _end_runs_at_shutdown(engine_client: EngineClient, api: Api) -> None:
    """Make the engine's `shutdown` end the open responses and sockets first, because afterwards the server sends nothing to them.

    In a thread other than the event loop's, it waits until they have ended, for `GRACE` seconds at most; in the loop's, it
    cannot wait.
    """
    loop, thread, shut_down = asyncio.get_running_loop(), get_ident(), engine_client.shutdown

    async def end() -> None:
        connections = (api.service.active_runs, api.open_sockets)
        for each in connections:
            each.end()
        for each in connections:
            await each.wait(GRACE)

    def shutdown(*arguments: object, **options: object) -> object:
        if loop.is_running():
            ending = asyncio.run_coroutine_threadsafe(end(), loop)
            if get_ident() != thread:
                wait([ending], GRACE)
        return shut_down(*arguments, **options)

    engine_client.shutdown = shutdown


def _family(args: object, serving: Serving) -> Family | None:
    """Return the family that the command line names, if any; log why if it is a template that cannot be compiled."""
    try:
        return configure(args, compat.response_template(serving))
    except ValueError as reason:
        logger.warning("Interlock cannot compile the checkpoint's response_template, so vLLM's parser reads it: %s.", reason)
        return None


def _tools(serving: Serving) -> ToolServers:
    """Return the runner of hosted tools, for the servers of `--tool-server` and the MCP servers that requests may name."""
    hosted: dict[HostedTool, str | LocalTool] = {
        TOOLS[name]: url for name, url in compat.tool_urls(serving).items() if name in TOOLS
    }
    if serving.tool_server is not None and not hosted:
        logger.warning("no server of --tool-server has a tool that Interlock can call (%s)", ", ".join(TOOLS))
    if os.environ.get(CODE_INTERPRETER) == "1":
        hosted["code_interpreter"] = CodeInterpreter()
    if setting := os.environ.get(WEB_SEARCH):
        web: type[WebSearch] = import_module("interlock.serving.tools.web_search").WebSearch
        hosted["web_search"] = web.of(setting)
    local = {name: tool.description for name, kind in TOOLS.items() if not isinstance(tool := hosted.get(kind, ""), str)}
    compat.describe_tools(serving, local)
    allowed = [host.strip() for host in os.environ.get(ALLOW_MCP_HOSTS, "").split(",") if host.strip()]
    return ToolServers(hosted, AddressPolicy.of(allowed), _seconds(TOOL_TIMEOUT, CALL_SECONDS))


def _choice(variable: str, values: Mapping[Any, T], default: T) -> T:
    """Return the value that an environment variable names, or the default; warn of an unknown name."""
    name = os.environ.get(variable, "")
    if name and name not in values:
        logger.warning("%s must be one of %s, not %r", variable, ", ".join(values), name)
    return values.get(name, default)


def _seconds(variable: str, default: float) -> float:
    """Return the number in an environment variable, or the default; warn of what is no number, or negative."""
    text = os.environ.get(variable)
    with suppress(ValueError):
        if (seconds := float(text or default)) >= 0:
            return seconds
    logger.warning("%s must be a number of seconds, not %r", variable, text)
    return default
