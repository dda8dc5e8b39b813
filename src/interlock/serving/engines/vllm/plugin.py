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
from copy import copy
from functools import partial
from importlib import import_module
from threading import get_ident
from typing import Any, Final, TypeVar

import orjson
from attrs import define, evolve, field
from msgspec import structs
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from interlock import __version__
from interlock.events.json import dumps
from interlock.parsers import parser_for
from interlock.parsers.families import Family
from interlock.parsers.hosted_tools import HostedTool
from interlock.serving import traces
from interlock.serving.build import build_tools, compose
from interlock.serving.engines.vllm import compat
from interlock.serving.engines.vllm.compat import EngineClient, Serving
from interlock.serving.engines.vllm.readers import configure
from interlock.serving.engines.vllm.vllm_engine import Admissions, VllmEngine, VllmRefusedError
from interlock.serving.http.answers import JsonResponse, answer_error, note_refusal
from interlock.serving.http.app import MESSAGES_HEADER, MESSAGES_PATH, Api, add_header, name_request
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.api_keys import TENANT, Keys
from interlock.serving.requests.body import JSON, read_object
from interlock.serving.requests.logs import current_request_id
from interlock.serving.requests.runtime import Yielder, panics_as_errors
from interlock.serving.responses.sealing import RANDOM_KEY
from interlock.serving.settings import Settings, SettingsError, read_settings, variable
from interlock.serving.store.values import StoreError
from interlock.serving.tools.hosting import ToolServers
from interlock.serving.view.web import RecentStreams, ViewerMiddleware

T = TypeVar("T")

IN_MEMORY: Final = "memory:"

VERSION_HEADER: Final = "x-interlock"
"""The header of answers with the version of the plugin."""

logger = logging.getLogger("vllm.interlock")  # a child of vLLM's logger, which has a handler

VLLM_TOOLS: Final[Mapping[str, HostedTool]] = {"python": "code_interpreter", "browser": "web_search", "container": "container"}
"""The hosted tools by the names that the servers of `--tool-server` report."""

FIELDS: Final = (
    *("store", "share_between_keys", "dialect", "keep_alive", "tool_timeout", "code_interpreter", "web_search"),
    *("allow_mcp_host", "raw_reasoning", "view"),
)
"""The fields of `Settings` that the plugin has, beside those that only it has."""


@define(eq=False)
class InterlockPlugin:
    """Serves `/v1/responses` of a vLLM server with Interlock; `VLLM_PLUGINS` enables the plugin by its `name`."""

    name: str = "interlock"
    required_tasks: tuple[str, ...] = ("generate",)
    _app: Starlette | None = field(default=None, init=False)
    """vLLM's application; None before `attach_router`, and while the plugin is inactive."""
    _settings: Settings = field(factory=Settings, init=False)
    _watching: asyncio.Task[None] | None = field(default=None, init=False)
    """The task that maintains the store."""
    api: Api | None = field(default=None, init=False)
    """What the plugin serves; None before `init_state`, and while the plugin is inactive."""

    def attach_router(self, app: Starlette) -> None:
        """Keep vLLM's application for `init_state` if this vLLM is supported; if not, the server starts without the plugin.

        Raises:
            SystemExit: The plugin stays inactive, although `INTERLOCK_REQUIRED` requires it.
        """
        try:
            obstacle = compat.obstacle(compat.version())
            if obstacle is None:
                self._settings = read_settings(names=FIELDS)
        except SettingsError as error:
            obstacle = str(error)
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
            self._leave("the model does not generate responses")
            return
        try:
            obstacle = compat.serving_obstacle(serving)
            if obstacle is None:
                self._serve(self._app, serving, engine_client, args)
            else:
                self._leave(obstacle)
        except SettingsError as error:
            self._leave(str(error))
        except Exception as error:  # noqa: BLE001 - an unknown build of vLLM may raise anything
            self._leave(f"{error!r}")

    def _serve(self, app: Starlette, serving: Serving, engine_client: EngineClient | None, args: object) -> None:
        """Make everything that can fail first, and only then change vLLM, so that a failure leaves vLLM as it was."""
        settings = _of_vllm(self._settings, args)
        serving = copy(serving)
        serving.enable_store = serving.enable_store or settings.store is not None
        tools, admissions = _tools(settings, serving), Admissions()
        family = None if serving.use_harmony or settings.parsers == "vllm" else _family(args, serving)
        has_tenants = len({*settings.api_key}) > 1 and not settings.share_between_keys
        salt = settings.cache_salt or ("tenant" if has_tenants else "none")
        engine = VllmEngine(serving, tools.descriptions, family, salt, admissions)
        application = compose(settings, engine, tools)
        keys: Keys = application.state.keys
        api = evolve(application.api, decode=read_any_object)
        parser_for(engine.format, {})  # so that the first request need not load it
        routes = [*(mount(route, keys, compat.router()) for route in _served_routes(api)), _model_list(serving, api)]
        changes: list[Callable[[], object]] = []
        if engine_client is not None:
            changes.append(partial(setattr, engine_client, "add_request", admissions.watch(engine_client)))
            changes.append(partial(setattr, engine_client, "shutdown", _ending_shutdown(engine_client, api)))
        changes += compat.accept_function_tools(getattr(args, "tool_call_parser", None))
        with suppress(ImportError):  # uvicorn may lack WebSockets
            changes.append(import_module("interlock.serving.http.bounded_protocol").install)
        if settings.view:  # in the router, because vLLM has built the middleware of the application by now
            viewer = ViewerMiddleware(app.router.middleware_stack, RecentStreams(keys))
            changes.append(partial(setattr, app.router, "middleware_stack", viewer))
        for change in changes:
            change()
        app.router.routes[:0] = routes
        self.api = api
        self._watching = asyncio.create_task(api.service.archive.maintain())
        readers = "its own Harmony parser" if serving.use_harmony else "vLLM's parsers"
        readers = readers if family is None else f"its own parsers for {family.name}"
        logger.info("Interlock serves /v1/responses with %s.", readers)
        processes: int = getattr(args, "api_server_count", None) or 1
        is_shared = not (settings.store or IN_MEMORY).startswith(IN_MEMORY)
        if settings.keys is None and (processes > 1 or is_shared):
            logger.warning(RANDOM_KEY, "process", "process")
        if serving.enable_store and processes > 1 and not is_shared:
            logger.warning(
                "With %d API processes, a stored response is available only in the process that made it, "
                "unless %s names a shared store.",
                processes,
                variable("store"),
            )

    def _leave(self, obstacle: str) -> None:
        if _is_required():
            name = variable("required")
            raise SystemExit(f"Interlock cannot serve /v1/responses, and {name}=1 requires it: {obstacle}")
        self._app = None
        logger.warning("Interlock leaves vLLM %s's own /v1/responses in place: %s.", compat.version(), obstacle)


def _is_required() -> bool:
    """Return whether vLLM must not start without the plugin, even if another setting is wrong."""
    return os.environ.get(variable("required"), "0").lower() not in {"", "0", "false"}


def _of_vllm(settings: Settings, args: object) -> Settings:
    """Return the settings with the API keys and origins of vLLM's command line."""
    api_keys: list[str] = getattr(args, "api_key", None) or [os.environ.get("VLLM_API_KEY", "")]
    origins: list[str] = getattr(args, "allowed_origins", None) or []
    return structs.replace(settings, api_key=tuple(filter(None, api_keys)), cors_origin=tuple(origins))


def _tools(settings: Settings, serving: Serving) -> ToolServers:
    """Return the runner of hosted tools, also of those of `--tool-server`, and have `serving` describe those of this process."""
    urls = {VLLM_TOOLS[name]: url for name, url in compat.tool_urls(serving).items() if name in VLLM_TOOLS}
    if serving.tool_server is not None and not urls:
        logger.warning("no server of --tool-server has a tool that Interlock can call (%s)", ", ".join(VLLM_TOOLS))
    own = {"code_interpreter": settings.code_interpreter, "web_search": settings.web_search}
    servers = tuple(f"{kind}={url}" for kind, url in urls.items() if not own.get(kind))
    tools = build_tools(structs.replace(settings, tool_server=servers))
    compat.describe_tools(serving, {name: tools.descriptions[kind] for name, kind in VLLM_TOOLS.items() if own.get(kind)})
    return tools


def _log_as_vllm() -> None:
    """Log the package's warnings as vLLM's own: dependencies of vLLM set the root logger to levels that hide them."""
    interlock, vllm = logging.getLogger("interlock"), logging.getLogger("vllm")
    interlock.setLevel(vllm.getEffectiveLevel())
    interlock.propagate = vllm.propagate
    for handler in vllm.handlers:
        interlock.addHandler(handler)


def _served_routes(api: Api) -> list[BaseRoute]:
    """Return the routes of the APIs that the settings name."""
    names = api.settings.dialects
    return [*(api.response_routes() if "responses" in names else ()), *api.dialect_routes(names)]


def _model_list(serving: Serving, api: Api) -> Route:
    """Return the route of vLLM's own list of models, with the catalogue that Codex reads."""

    async def list_models(_: Request) -> Response:
        listed: BaseModel = await serving.models.show_available_models()
        return JsonResponse({**listed.model_dump(mode="json"), "models": api.codex_models(await api.service.engine.names())})

    return Route("/v1/models", list_models, methods=["GET"])


def mount(route: BaseRoute, keys: Keys, vllm: compat.VllmObject) -> BaseRoute:
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
        response.headers.update(_own_headers(raw_request))
        return response

    aware = vllm.load_aware_call(answering)

    async def endpoint(request: Request) -> object:
        return await aware(raw_request=request)

    return Route(route.path, endpoint, methods=[*(route.methods or ())])


def _own_headers(request: Request) -> Mapping[str, str]:
    """Return the headers that vLLM does not set: the release, and the id of the request where Anthropic's SDKs read it."""
    version, request_id = {VERSION_HEADER: __version__}, current_request_id()
    is_messages = request_id is not None and request.url.path.startswith(MESSAGES_PATH)
    return {**version, MESSAGES_HEADER: request_id or ""} if is_messages else version


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
        for name, value in _own_headers(self._request).items():
            send = add_header(send, name, value)
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
    note_refusal(error)
    if error.answer is None or isinstance(error.answer, Exception):
        raise error.answer or error
    return Response(dumps(error.answer.model_dump(mode="json", by_alias=True)), error.status, media_type=JSON)


def _ending_shutdown(engine_client: EngineClient, api: Api) -> Callable[..., object]:
    """Return a `shutdown` of the engine that first ends the open responses and sockets, to which nothing is sent afterwards.

    In a thread other than the event loop's, it waits until they have ended, for `Times.grace` seconds at most; in the
    loop's, it cannot wait.
    """
    loop, thread, shut_down = asyncio.get_running_loop(), get_ident(), engine_client.shutdown
    grace = api.settings.times.grace

    async def end() -> None:
        connections = (api.service.active_runs, api.open_sockets)
        for each in connections:
            each.end()
        for each in connections:
            await each.wait(grace)

    def shutdown(*arguments: object, **options: object) -> object:
        if loop.is_running():
            ending = asyncio.run_coroutine_threadsafe(end(), loop)
            if get_ident() != thread:
                wait([ending], grace)
        return shut_down(*arguments, **options)

    return shutdown


def _family(args: object, serving: Serving) -> Family | None:
    """Return the family that the command line names, if any; log why if it is a template that cannot be compiled."""
    try:
        return configure(args, compat.response_template(serving))
    except ValueError as reason:
        logger.warning("Interlock cannot compile the checkpoint's response_template, so vLLM's parser reads it: %s.", reason)
        return None
