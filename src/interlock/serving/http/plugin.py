"""The endpoint plugin: what vLLM loads by its entry point, and what it is called for.

vLLM calls it twice while a server starts: with its application, and with the state of that. Then the service's routes are put in
front of vLLM's. On a vLLM that it does not know, the log has a warning that explains why the plugin is inactive.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from contextlib import suppress
from importlib import import_module
from threading import get_ident
from typing import Any, Final, TypeVar, get_args

import orjson
from attrs import define, field, frozen
from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from interlock.events.dialects import OPEN_RESPONSES, OPENAI, Dialect
from interlock.events.json import dumps
from interlock.parsers import parser_for
from interlock.serving.engines.vllm import compat
from interlock.serving.engines.vllm.compat import Client, Serving
from interlock.serving.engines.vllm.readers import configured
from interlock.serving.engines.vllm.vllm_engine import Admissions, Salt, VllmEngine, VllmRefusedError
from interlock.serving.http.app import Api
from interlock.serving.http.error_responses import answer_error
from interlock.serving.http.intake import JSON, MAX_BODY_BYTES
from interlock.serving.http.websocket.socket_connection import Limits
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.api_keys import TENANT, Keys
from interlock.serving.requests.body import read_object, read_object_in_turns
from interlock.serving.requests.containment import panics_as_errors
from interlock.serving.requests.hosted_tools import HostedTool
from interlock.serving.requests.yielder import Yielder
from interlock.serving.responses.active_runs import GRACE
from interlock.serving.responses.archive import Archive
from interlock.serving.responses.sealing import RANDOM_KEY, Envelope, SealingKeys
from interlock.serving.responses.service import ResponseService
from interlock.serving.store import StoreError
from interlock.serving.store.opening import IN_MEMORY, open_store
from interlock.serving.tools.address import AddressPolicy
from interlock.serving.tools.hosting import ToolServers
from interlock.serving.view.web import RecentStreams, ViewerMiddleware

__all__ = ["InterlockPlugin"]

T = TypeVar("T")

logger = logging.getLogger("vllm.interlock")  # below vLLM's own, which has a handler

# The environment variables of the settings that docs/vllm.md explains.
TOOL_TIMEOUT: Final = "INTERLOCK_TOOL_TIMEOUT"
ALLOW_MCP_HOSTS: Final = "INTERLOCK_ALLOW_MCP_HOSTS"
CACHE_SALT: Final = "INTERLOCK_CACHE_SALT"
DIALECT: Final = "INTERLOCK_DIALECT"
VIEW: Final = "INTERLOCK_VIEW"
VIEW_REDACT: Final = "INTERLOCK_VIEW_REDACT"
SHARE: Final = "INTERLOCK_SHARE_BETWEEN_KEYS"
STORE: Final = "INTERLOCK_STORE"

DIALECTS: Final[Mapping[str, Dialect]] = {dialect.name: dialect for dialect in (OPENAI, OPEN_RESPONSES)}
SALTS: Final[Mapping[str, Salt]] = {salt: salt for salt in get_args(Salt)}
TOOLS: Final[Mapping[str, HostedTool]] = {"python": "code_interpreter", "browser": "web_search", "container": "container"}
"""The hosted tools by the names that the servers of `--tool-server` call themselves."""

DEFAULT_TOOL_TIMEOUT: Final = 120.0


@define(eq=False)
class InterlockPlugin:
    """Makes Interlock the stream of a vLLM server's `/v1/responses`.

    Args:
        name: What `VLLM_PLUGINS` calls it.
        required_tasks: Only a server that generates has responses.
    """

    name: str = "interlock"
    required_tasks: tuple[str, ...] = ("generate",)
    _app: Starlette | None = field(default=None, init=False)
    """vLLM's application; None where vLLM's own route stays."""
    _watching: asyncio.Task[None] | None = field(default=None, init=False)
    """Ends the responses whose process was lost."""
    _recent: RecentStreams | None = field(default=None, init=False)
    """The last streams, if they are to be shown."""

    def attach_router(self, app: Starlette) -> None:
        """Look whether this vLLM is known; the server starts even if it is not.

        Args:
            app: vLLM's application.
        """
        try:
            obstacle = compat.obstacle(compat.version())
            if obstacle is None:
                with suppress(ImportError):  # a uvicorn that takes no WebSockets
                    import_module("interlock.serving.http.bounded_protocol").install()
            if obstacle is None and os.environ.get(VIEW) == "1":
                self._recent = RecentStreams(None, redact=os.environ.get(VIEW_REDACT) == "1")
                app.add_middleware(ViewerMiddleware, recent=self._recent)
        except Exception as error:  # noqa: BLE001 - a build that nobody foresaw
            obstacle = f"{error!r}"
        if obstacle is None:
            self._app = app
        else:
            self._leave(obstacle)

    async def init_state(self, engine_client: Client | None, state: State, args: object) -> None:
        """Put the service's routes in front of vLLM's, if the model makes responses.

        Args:
            engine_client: vLLM's way to its engine.
            state: Of vLLM's application.
            args: vLLM's command line.
        """
        serving: Serving | None = getattr(state, "openai_serving_responses", None)
        if self._app is None or serving is None:
            return
        try:
            given: list[str] = getattr(args, "api_key", None) or [os.environ.get("VLLM_API_KEY", "")]
            keys = Keys.of([key for key in given if key], shared=os.environ.get(SHARE) == "1")
            sealing_keys = SealingKeys.from_environment()
            archive, tools, admissions = _archive(serving), _tools(serving), Admissions()
            family = None if serving.use_harmony else configured(args)
            hide_end, salt = compat.reads_end_as_text(), _salt(keys)
            engine = VllmEngine(serving, frozenset(tools.hosted), family, hide_end, salt, admissions)
            service = ResponseService(engine, archive, tools, Envelope(sealing_keys or SealingKeys.random()))
            origins = frozenset(getattr(args, "allowed_origins", None) or ())
            api = Api(service, MAX_BODY_BYTES, _named(DIALECT, DIALECTS, OPENAI), Limits(), origins, read_any_object)
            parser_for(engine.format, {})  # what the first request would make for all later ones
            if engine_client is not None:
                admissions.watch(engine_client)
                _end_runs_at_shutdown(engine_client, api)
            mount = Mount(keys, compat.router())
            self._app.router.routes[:0] = [mount.mounted(route) for route in api.response_routes()]
        except Exception as error:  # noqa: BLE001 - likewise
            self._leave(f"{error!r}")
            return
        state.interlock = api
        self._watching = asyncio.create_task(archive.watch_over())
        readers = "its own parser of harmony" if serving.use_harmony else "vLLM's parsers"
        readers = readers if family is None else f"its own parsers for {family.name}"
        logger.info("Interlock makes the events of /v1/responses, with %s.", readers)
        if sealing_keys is None:
            logger.warning(RANDOM_KEY)
        if self._recent is not None:
            self._recent.keys = keys
        processes: int = getattr(args, "api_server_count", None) or 1
        if serving.enable_store and processes > 1 and _store_url().startswith("memory:"):
            logger.warning(
                "With %d API processes, a stored response is there only in the one that made it, unless %s names a store.",
                processes,
                STORE,
            )

    def _leave(self, obstacle: str) -> None:
        self._app = None
        logger.warning("Interlock leaves vLLM %s's own /v1/responses in place: %s.", compat.version(), obstacle)


@frozen(eq=False)
class Mount:
    """The service's routes as routes of vLLM's application, which has its own middleware and its own answers to errors.

    Args:
        keys: The server's API keys, which say whose a request is; vLLM checks them.
        vllm: vLLM's module of routes.
    """

    keys: Keys
    vllm: compat.Router

    def mounted(self, route: BaseRoute) -> BaseRoute:
        """Return a route of the service as one of vLLM's application."""
        if isinstance(route, WebSocketRoute):
            return WebSocketRoute(route.path, self._connecting(route.endpoint))
        assert isinstance(route, Route)  # noqa: S101 - the service has no others
        aware = self.vllm.load_aware_call(self._answering(route.endpoint))

        async def endpoint(request: Request) -> object:
            return await aware(raw_request=request)

        return Route(route.path, endpoint, methods=[*(route.methods or ())])

    def _connecting(self, connect: Callable[..., Any]) -> Callable[..., Any]:
        async def connecting(socket: WebSocket) -> None:
            self._identify(socket)
            await connect(socket)

        return connecting

    def _answering(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        """Return an endpoint whose errors are answered here, or by vLLM where they are vLLM's."""

        async def answering(*, raw_request: Request) -> Response:
            self._identify(raw_request)
            with panics_as_errors():
                try:
                    made = await answer(raw_request)
                except VllmRefusedError as refused:
                    return _refused(refused)
                except (ApiError, StoreError, ClientDisconnect) as error:
                    return answer_error(raw_request, error)
            return made if isinstance(made, Response) else LongAnswer(made)

        return answering

    def _identify(self, connection: HTTPConnection) -> None:
        """Note whose a request is that vLLM has let in."""
        connection.scope[TENANT] = self.keys.tenant(connection.headers.get("authorization", "")) or ""


class LongAnswer(StreamingResponse):
    """An answer as vLLM's middleware knows it: a response of starlette's, with what is to be done when it is over."""

    def __init__(self, answer: ASGIApp) -> None:
        super().__init__(())
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; then run what vLLM has put into `background`, however the answer ended.

        Raises:
            PanicError: Its cause was raised, and is no `Exception`; vLLM answers with an error body.
        """
        try:
            with panics_as_errors():
                await self._answer(scope, receive, send)
        finally:
            if self.background is not None:
                await self.background()


async def read_any_object(body: bytes, yielder: Yielder) -> dict[str, object]:
    """Return the object that a body says, in every encoding that vLLM reads; `NaN` is null.

    Raises:
        ApiError: 400; it is no JSON, no object, or nested too deeply.
    """
    try:
        return await read_object_in_turns(body, yielder)
    except ApiError as refused:
        try:
            return read_object(orjson.dumps(json.loads(body)))
        except (ValueError, TypeError, RecursionError):
            raise refused from None


def _refused(refused: VllmRefusedError) -> Response:
    """Answer a refusal of vLLM's as vLLM does.

    Raises:
        Exception: What vLLM has raised, for its handlers to answer.
    """
    if refused.answer is None or isinstance(refused.answer, Exception):
        raise refused.answer or refused
    return Response(dumps(refused.answer.model_dump(mode="json", by_alias=True)), refused.status, media_type=JSON)


def _end_runs_at_shutdown(engine_client: Client, api: Api) -> None:
    """End the open responses before the engine is shut down, and then the server, which sends nothing more to its sockets."""
    loop, thread, shut_down = asyncio.get_running_loop(), get_ident(), engine_client.shutdown

    async def end() -> None:
        for held in (api.service.active_runs, api.open_sockets):
            held.end()
        for held in (api.service.active_runs, api.open_sockets):
            await held.wait(GRACE)

    def shutdown(*arguments: object, **options: object) -> object:
        if loop.is_running():
            ending = asyncio.run_coroutine_threadsafe(end(), loop)
            if get_ident() != thread:
                wait([ending], GRACE)
        return shut_down(*arguments, **options)

    engine_client.shutdown = shutdown


def _archive(serving: Serving) -> Archive:
    """Return the stored responses: where the environment says, or else in memory, if vLLM was told to store any.

    Raises:
        StoreError: The environment names no store that there is.
    """
    if os.environ.get(STORE):
        serving.enable_store = True
    return Archive(open_store(_store_url()))


def _store_url() -> str:
    return os.environ.get(STORE) or IN_MEMORY


def _tools(serving: Serving) -> ToolServers:
    """Return the hosted tools: the servers of `--tool-server`, and those that requests may name.

    Raises:
        ValueError: The environment names a network that is none.
    """
    hosted: dict[HostedTool, str] = {TOOLS[name]: url for name, url in compat.tool_urls(serving).items() if name in TOOLS}
    if serving.tool_server is not None and not hosted:
        logger.warning("no server of --tool-server has a tool that can be called here: %s", ", ".join(TOOLS))
    allowed = [host.strip() for host in os.environ.get(ALLOW_MCP_HOSTS, "").split(",") if host.strip()]
    return ToolServers(hosted, AddressPolicy.of(allowed), _tool_timeout())


def _salt(keys: Keys) -> Salt:
    """Return who shares the prefix cache: by default the requests of one tenant, where there are several."""
    several = len({tenant for _, tenant in keys.tenants}) > 1
    return _named(CACHE_SALT, SALTS, "tenant" if several else "none")


def _named(variable: str, values: Mapping[str, T], default: T) -> T:
    """Return what an environment variable names."""
    given = os.environ.get(variable, "")
    if given and given not in values:
        logger.warning("%s is none of %s: %r", variable, ", ".join(values), given)
    return values.get(given, default)


def _tool_timeout() -> float:
    given = os.environ.get(TOOL_TIMEOUT)
    try:
        return float(given or DEFAULT_TOOL_TIMEOUT)
    except ValueError:
        logger.warning("%s is no number of seconds: %r", TOOL_TIMEOUT, given)
        return DEFAULT_TOOL_TIMEOUT
