"""Composes a server from its settings and its engine, for the command, the vLLM plugin, tests, and servers of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from inspect import iscoroutinefunction, isgeneratorfunction, signature, unwrap
from typing import Final

from attrs import evolve
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from interlock.events.json import is_array
from interlock.fsm.table import DeclarationError
from interlock.parsers import parser_for
from interlock.parsers.hosted_tools import HOSTED_TOOLS, HostedTool
from interlock.serving import metrics
from interlock.serving.engines.engine import Engine
from interlock.serving.http.app import Api, Application, KeyGate
from interlock.serving.requests.api_keys import Keys
from interlock.serving.responses.active_runs import ActiveRuns
from interlock.serving.responses.archive import Archive
from interlock.serving.responses.sealing import SealingKeys
from interlock.serving.responses.service import ResponseService
from interlock.serving.settings import DEFAULTS, Settings
from interlock.serving.store import open_store
from interlock.serving.store.response_store import ResponseStore
from interlock.serving.tools.address import AddressPolicy
from interlock.serving.tools.hosting import LocalFunction, LocalTool, ToolRunner, ToolServers

TOOL_SETTINGS: Final = ("tool_server", "tool_timeout", "code_interpreter", "web_search", "allow_mcp_host")
"""The settings that `build_tools` reads."""

COMMAND_SETTINGS: Final = (
    *("host", "port", "engine", "model", "rate", "script", "family", "workers", "log_format", "config"),
    *("upstream", "upstream_api", "upstream_key", "upstream_timeout", "upstream_retries", "upstreams", "pass_key"),
)
"""The settings that only the command reads."""
PLUGIN_SETTINGS: Final = ("required", "cache_salt", "parsers", "dialects")
"""The settings that only the vLLM plugin reads."""
STORE_SETTINGS: Final = ("store", "max_stored")
"""The settings that `_open_store` reads."""

EXPOSED_HEADERS: Final = ("x-request-id", "request-id", "retry-after")
"""The headers of answers that pages of other origins may read."""


def build(
    settings: Settings,
    engine: Engine,
    *,
    store: ResponseStore | None = None,
    tools: ToolRunner | None = None,
    functions: Mapping[str, Sequence[LocalFunction]] | None = None,
) -> Application:
    """Return the ASGI application of a server.

    Args:
        settings: The settings.
        engine: Generates the output.
        store: Stores responses, conversations and background events, instead of that of the settings. Closed at shutdown.
        tools: Runs hosted tools, instead of those of the settings.
        functions: Tools of this server, by the label of the MCP server that requests name to use them.

    Raises:
        DeclarationError: The engine lacks `models` or `format`, or an attribute or method of it has another type; or functions
            cannot be used.
        SettingsError: A value cannot be used, such as a key that no header can have or the URL of no store, or one is for the
            tools or the store that an argument replaces, or only for `interlock serve` or the vLLM plugin.
    """
    given: object = engine
    if not isinstance(given, Engine):  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller may have no types
        what = f"the class {given.__name__}" if isinstance(given, type) else f"one of {type(given).__name__}"
        raise DeclarationError(f"build needs an instance of Engine, not {what}")
    _refuse(settings, COMMAND_SETTINGS, "only `interlock serve` uses it; leave it out")
    _refuse(settings, PLUGIN_SETTINGS, "only the vLLM plugin uses it; leave it out")
    if store is not None:
        _refuse(settings, STORE_SETTINGS, "build got 'store', which replaces it; leave it out")
        if isinstance(store, str):
            raise DeclarationError("build got the URL of a store: give it open_store(URL)")
    if tools is None:
        tools = evolve(build_tools(settings), functions=functions or {})
    elif functions:
        raise DeclarationError("build got 'tools' and 'functions': give the functions to ToolServers")
    else:
        _refuse(settings, TOOL_SETTINGS, "build got 'tools', which it does not change: give it to ToolServers instead")
    application = compose(settings, engine, tools, store)
    if settings.view:
        add_viewer(application)
    return application


def _refuse(settings: Settings, names: Sequence[str], reason: str) -> None:
    """Refuse each of some settings that has another value than its default."""
    for name in names:
        if getattr(settings, name) != DEFAULTS[name]:
            raise settings.error(name, reason)


def add_viewer(application: Application) -> None:
    """Add the viewer of recent streams to an application."""
    from interlock.serving.view.web import RecentStreams, ViewerMiddleware  # noqa: PLC0415 - few servers show their streams

    application.add_middleware(ViewerMiddleware, recent=RecentStreams(application.state.keys))


def compose(settings: Settings, engine: Engine, tools: ToolRunner, store: ResponseStore | None = None) -> Application:
    """Return the application of a server whose tools are made; see `build`."""
    _require_declared(engine)
    service = ResponseService(
        engine,
        Archive(store or _open_store(settings), settings.times),
        tools,
        _sealing_keys(settings),
        ActiveRuns(settings.max_streams),
        settings.raw_reasoning,
    )
    api = Api(service, settings)
    keys = _api_keys(settings, engine)
    with settings.errors("metrics_key"):
        metrics_keys = keys if settings.metrics_key is None else Keys.of([settings.metrics_key])
    middleware: list[Middleware] = []
    if settings.cors_origin:
        everything = ["*"]
        middleware.append(
            Middleware(
                CORSMiddleware,
                settings.cors_origin,
                allow_methods=everything,
                allow_headers=everything,
                expose_headers=EXPOSED_HEADERS,
            )
        )
    if keys.tenants or keys.passed or metrics_keys.tenants:
        middleware.append(Middleware(KeyGate, keys=keys, metrics_keys=metrics_keys))
    metrics.register()
    return Application(api, keys, middleware)


def _require_declared(engine: Engine) -> None:
    """Refuse an engine that lacks what the server needs of it, or has it with another type."""
    kind = type(engine)
    for name in ("models", "format"):
        if not hasattr(engine, name):
            close = get_close_matches(name, vars(kind).keys() | getattr(engine, "__dict__", {}).keys())
            hint = f"; rename '{close[0]}'" if close else ""
            raise DeclarationError(f"{kind.__name__} has no '{name}'{hint}")
    models: object = engine.models
    if not is_array(models) or not all(isinstance(name, str) and name for name in models):  # a text would be one of letters
        raise DeclarationError(f"the models of {kind.__name__} are a list of names, not {models!r:.100}")
    if engine.format != "harmony":  # which loads its vocabulary
        try:
            parser_for(engine.format, {})
        except ValueError as error:
            raise DeclarationError(f"the format of {kind.__name__}: {error}") from None
    _require_methods(engine)


def _require_methods(engine: Engine) -> None:
    """Refuse an engine with a method that cannot be called as the server calls it."""
    kind = type(engine)
    methods = ("admit", "begin", "close", "count", "names", "has_tools", "require_ready")
    for name in methods:
        if not iscoroutinefunction(unwrap(getattr(kind, name))):  # a decorator may have wrapped it
            raise DeclarationError(f"'{name}' of {kind.__name__} is declared with 'async def'")
    if iscoroutinefunction(kind.generate) or isgeneratorfunction(kind.generate):
        raise DeclarationError(f"'generate' of {kind.__name__} is an asynchronous generator: it yields its outputs")
    for name in (*methods, "generate"):
        _, *expected = signature(getattr(Engine, name)).parameters
        try:
            signature(getattr(engine, name)).bind(*expected)
        except TypeError:
            raise DeclarationError(f"'{name}' of {kind.__name__} takes {', '.join(['self', *expected])}") from None


def _api_keys(settings: Settings, engine: Engine) -> Keys:
    if settings.api_key_file is not None:
        with settings.errors("api_key_file"):
            return Keys.of_file(settings.api_key_file)
    with settings.errors("api_key"):
        return Keys.of(settings.api_key, shared=settings.share_between_keys, passed=engine.passes_keys)


def _sealing_keys(settings: Settings) -> SealingKeys:
    with settings.errors("keys"):
        return SealingKeys.random() if settings.keys is None else SealingKeys.from_text(settings.keys)


def _open_store(settings: Settings) -> ResponseStore:
    with settings.errors("store"):
        return open_store(settings.store or f"memory:?ttl=never&max_bytes={settings.max_stored * 2**20}")


def build_tools(settings: Settings) -> ToolServers:
    """Return the runner of hosted tools; raise a `SettingsError` if two settings name one, or a value cannot be used."""
    tools: dict[HostedTool, str | LocalTool] = dict(_tool_servers(settings))
    if settings.code_interpreter:
        if "code_interpreter" in tools:
            message = f"{settings.place('tool_server')} names another interpreter; leave out one of them"
            raise settings.error("code_interpreter", message)
        from interlock.serving.tools.code_interpreter import CodeInterpreter  # noqa: PLC0415 - few servers run code

        with settings.errors("code_interpreter"):
            interpreter = CodeInterpreter()
            interpreter.require_start()
            tools["code_interpreter"] = interpreter
    if settings.web_search:
        if "web_search" in tools:
            raise settings.error("web_search", f"{settings.place('tool_server')} names another search; leave out one of them")
        from interlock.serving.tools.web_search import WebSearch  # noqa: PLC0415 - few servers search

        with settings.errors("web_search"):
            tools["web_search"] = WebSearch.of(settings.web_search)
    with settings.errors("allow_mcp_host"):
        policy = AddressPolicy.of(settings.allow_mcp_host)
    return ToolServers(tools, policy, settings.tool_timeout)


def _tool_servers(settings: Settings) -> Iterator[tuple[HostedTool, str]]:
    """Yield the URL of each tool; of a repeated name, the last one counts."""
    for text in settings.tool_server:
        name, _, url = text.partition("=")
        tools: list[HostedTool] = [tool for tool in HOSTED_TOOLS if tool == name]
        if not tools or not url.startswith(("http://", "https://")):
            raise settings.error("tool_server", f"{text}: write NAME=URL, where NAME is one of {', '.join(HOSTED_TOOLS)}")
        yield tools[0], url
