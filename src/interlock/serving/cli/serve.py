"""The command `interlock serve`: the standalone server or a gateway. `main` starts vLLM with the plugin."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen

from interlock.events.dialects import DIALECTS, DialectName
from interlock.serving.cli.options import (
    FILE,
    KEY_VARIABLE,
    NumberType,
    UpstreamOptions,
    examples,
    option,
    option_errors,
    options_of,
    upstreams_of,
)
from interlock.serving.cli.sources import bind, fail, is_url, read_rules
from interlock.serving.requests.logs import LOG_FORMATS, LogFormat, announce, log_to_stderr
from interlock.serving.requests.tool_offer import CALL_SECONDS, HOSTED_TOOLS, HostedTool

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from interlock.serving.engines.engine import Engine
    from interlock.serving.engines.upstream.survey import UpstreamReport
    from interlock.serving.engines.upstream.translator import Upstream
    from interlock.serving.requests.api_keys import Keys
    from interlock.serving.store import ResponseStore
    from interlock.serving.tools.hosting import ToolServers
    from interlock.serving.tools.tool_runner import LocalTool, ToolRunner

logger = logging.getLogger(__name__)

LISTED: Final = 5
"""The most models of an upstream that the banner names."""


@frozen(kw_only=True)
class ServeSettings(UpstreamOptions):
    """The settings of a server, which the command line, a file (`--config`) and the environment fill."""

    host: str = option(default="127.0.0.1", metavar="ADDRESS", help="The address to listen on.")
    port: int = option(type=click.IntRange(0, 65535), default=8000, metavar="PORT", help="The port; 0 for any free one.")
    engine: str = option(
        type=click.Choice(["embedded", "vllm"]),
        default="embedded",
        help="The engine: the embedded one, which needs no model, or vLLM. `--engine vllm MODEL` runs `vllm serve MODEL` "
        "with the plugin, and takes the options of vLLM instead of these.",
    )
    api_key: tuple[str, ...] = option(
        multiple=True, metavar="KEY", help=f"An API key that clients must send; can be repeated. Default: {KEY_VARIABLE}, if set."
    )
    api_key_file: Path | None = option(
        from_environment=True,
        type=FILE,
        metavar="FILE",
        help="Read the API keys from a file, and again at SIGHUP; each line is a key, or a tenant's name and a key.",
    )
    metrics_key: str | None = option(
        from_environment=True,
        metavar="KEY",
        help="The only key that reads /metrics, for Prometheus. Default: any key of --api-key.",
    )
    share_between_keys: bool = option(
        from_environment=True, is_flag=True, help="Let all API keys see the same stored responses, instead of each its own."
    )
    cors_origin: tuple[str, ...] = option(
        multiple=True, metavar="ORIGIN", help="Allow web pages of this origin; can be repeated; * allows all."
    )
    allowed_host: tuple[str, ...] = option(
        from_environment=True,
        multiple=True,
        metavar="HOST",
        help="Refuse requests for other hosts, except probes; can be repeated; *.example.com allows all names below. "
        "Default: the names of this machine if --host is one, else all.",
    )
    dialect: DialectName = option(
        type=click.Choice([*DIALECTS]), default="openai", help="The dialect for clients that name none."
    )
    model: tuple[str, ...] = option(
        multiple=True,
        metavar="NAME",
        help="The name of the model; repeat it for clients that accept only certain names: --model tiny --model gpt-4o. "
        "For a gateway also ALIAS=NAME.",
    )
    rate: float = option(type=NumberType(min=0), default=0, metavar="N", help="Tokens per second of each stream; 0 for no limit.")
    script: Path | None = option(
        type=FILE, metavar="FILE", help="Answer by this script (TOML or JSON), or replay this recording."
    )
    family: str | None = option(
        metavar="NAME",
        help="The format of a model family, such as qwen3_coder: the embedded engine writes it, a gateway reads its text.",
    )
    pass_key: bool = option(
        from_environment=True, is_flag=True, help="Send each client's own key to the server behind the gateway."
    )
    store: str | None = option(
        from_environment=True,
        metavar="URL",
        help="The store for responses: memory:, sqlite:PATH (shared on one host) or "
        "postgresql://HOST/DATABASE (shared by several hosts).",
    )
    max_stored: int = option(
        type=click.IntRange(min=1),
        default=256,
        metavar="MIB",
        help="The largest size of the default store in memory, which evicts the least recently used responses.",
    )
    max_streams: int | None = option(
        type=click.IntRange(min=1),
        metavar="N",
        help="The most responses to generate at once, in all processes together; further requests receive 429.",
    )
    workers: int = option(
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="The number of processes that serve, usually one for each core; more than one need a store that they share.",
    )
    drain: float = option(
        type=NumberType(min=0),
        default=0,
        metavar="SECONDS",
        help="The longest time for which responses in progress may go on after SIGINT or SIGTERM; new requests receive 503.",
    )
    keep_alive: float = option(
        from_environment=True,
        type=NumberType(min=0),
        default=15,
        metavar="SECONDS",
        help="Break every silence of a stream after this time, so that clients and proxies do not end it; 0 for never.",
    )
    log_level: str = option(
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="warning",
        help="The least severe messages to log to standard error; info logs each response and each request.",
    )
    log_format: LogFormat = option(
        from_environment=True, type=click.Choice(LOG_FORMATS), default="text", help="Log lines of text, or JSON objects."
    )
    tool_server: tuple[str, ...] = option(
        multiple=True, metavar="NAME=URL", help=f"The MCP server of a hosted tool ({', '.join(HOSTED_TOOLS)}); can be repeated."
    )
    tool_timeout: float = option(
        type=NumberType(min=0.1), default=CALL_SECONDS, metavar="SECONDS", help="The longest time for a call of a hosted tool."
    )
    code_interpreter: bool = option(
        from_environment=True, is_flag=True, help="Run the code of `code_interpreter` in a sandbox of this server."
    )
    web_search: str | None = option(
        from_environment=True,
        metavar="PROVIDER",
        help="Search the web for `web_search` with searxng=URL, brave, tavily or exa, and open the pages.",
    )
    view: bool = option(is_flag=True, help="Show recent streams at /interlock/, to clients with the API key.")
    allow_mcp_host: tuple[str, ...] = option(
        multiple=True,
        metavar="HOST",
        help="Let requests name MCP servers of this host or private network; can be repeated; * allows all public hosts.",
    )

    def __attrs_post_init__(self) -> None:
        """End the command if two settings exclude each other."""
        if self.view and self.workers > 1:
            fail(f"--workers {self.workers}: --view shows the streams of one process; leave out --view or --workers")
        if self.api_key_file and (self.share_between_keys or _api_keys(self)):
            others = f"--api-key, {KEY_VARIABLE} and --share-between-keys"
            fail(f"--api-key-file {self.api_key_file}: the file has all keys and their tenants; leave out {others}")


@contextmanager
def _pause_collector() -> Generator[None]:
    """Disable the garbage collector until the server is ready: imports make many objects and little garbage."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@click.command(
    epilog=examples(
        "interlock serve --port 8001 --rate 30",
        "interlock serve --script recordings/mcp-call.jsonl",
        "interlock serve --engine vllm openai/gpt-oss-20b",
        "interlock serve --upstream http://127.0.0.1:11434",
    )
)
@options_of(ServeSettings)
@_pause_collector()
def serve(**options: Any) -> None:  # noqa: ANN401 - click converts them to the types of the settings
    """Serve the Responses API, with an engine or as a gateway."""
    settings = ServeSettings(**options)
    log_to_stderr(settings.log_level, settings.log_format)
    if settings.engine == "vllm":
        fail("vLLM starts only from the command line: interlock serve --engine vllm MODEL")
    from interlock.serving import metrics
    from interlock.serving.http import server

    if settings.workers > 1:
        metrics.share()
    upstreams = upstreams_of(settings, models=settings.model, family=settings.family, pass_key=settings.pass_key)
    running, tools, create = _application(settings, upstreams)
    with option_errors(f"--api-key or {KEY_VARIABLE}"):
        application = create()
    if settings.view:
        from interlock.serving.view.web import RecentStreams, ViewerMiddleware

        application.add_middleware(ViewerMiddleware, recent=RecentStreams(application.state.keys))
    listening = bind(server.listen if settings.workers == 1 else server.reserve, settings.host, settings.port)
    keys: Keys = application.state.keys
    url, reporting = server.url_of(listening), set[asyncio.Task[None]]()

    async def report() -> None:
        reports = await _survey(upstreams)
        announce(logger, _banner(settings, running, tools, reports, url, keys), settings.log_format)
        for warning in _warnings(settings, reports, keys):
            logger.warning("%s", warning)

    def on_ready() -> None:
        gc.enable()
        if settings.workers > 1:
            asyncio.run(report())
            return
        if keys.file is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, keys.reload)
        reporting.add(asyncio.create_task(report()))  # the loop itself keeps no task

    if settings.workers == 1:
        server.serve(application, listening, on_ready=on_ready, log_level=settings.log_level, drain=settings.drain)
    else:
        from interlock.serving.http.workers import Supervisor
        from interlock.serving.responses.active_runs import Slots

        slots = Slots.shared(settings.max_streams, settings.workers)
        level, drain = settings.log_level, settings.drain
        Supervisor(lambda each: create(slots=each), listening, slots, on_ready, level, drain, keys).run()


def _application(settings: ServeSettings, upstreams: Sequence[Upstream]) -> tuple[Engine, ToolRunner, Callable[..., Starlette]]:
    """Return the engine, its tools, and a function that creates the application, which takes the `slots` of several processes."""
    from interlock.serving.http.app import AppSettings, create_app
    from interlock.serving.http.host_guard import LOOPBACK
    from interlock.serving.requests.api_keys import Keys
    from interlock.serving.responses.sealing import SealingKeys
    from interlock.serving.tools.address import AddressPolicy
    from interlock.serving.tools.hosting import ToolServers

    with option_errors():  # the error names the variable
        sealing_keys = SealingKeys.from_environment()
    with option_errors(f"--api-key-file {settings.api_key_file}"):
        keys = Keys.of_file(settings.api_key_file) if settings.api_key_file else _api_keys(settings)
    with option_errors("--allow-mcp-host"):
        policy = AddressPolicy.of(settings.allow_mcp_host)
    servers = ToolServers(_hosted_tools(settings), policy, settings.tool_timeout)
    running, tools = _engine(settings, upstreams, servers)
    app_settings = AppSettings(
        api_key=keys,
        share_between_keys=settings.share_between_keys,
        cors_origins=settings.cors_origin,
        allowed_hosts=settings.allowed_host or ((*LOOPBACK, settings.host) if _is_local(settings.host) else ()),
        dialect=DIALECTS[settings.dialect],
        max_streams=settings.max_streams,
        keep_alive=settings.keep_alive,
        metrics_key=settings.metrics_key,
        sealing_keys=sealing_keys or SealingKeys.random(),
    )
    return running, tools, partial(create_app, running, app_settings, store=_open_store(settings), tools=tools)


def _api_keys(settings: ServeSettings) -> tuple[str, ...]:
    return settings.api_key or ((os.environ[KEY_VARIABLE],) if KEY_VARIABLE in os.environ else ())


async def _survey(upstreams: Sequence[Upstream]) -> Sequence[UpstreamReport]:
    """Ask the upstreams of a gateway for their models; another engine has none."""
    if not upstreams:
        return ()
    from interlock.serving.engines.upstream.survey import survey

    return await survey(upstreams)


def _banner(
    settings: ServeSettings,
    engine: Engine,
    tools: ToolRunner,
    reports: Sequence[UpstreamReport],
    url: str,
    keys: Keys,
) -> list[str]:
    """Return what the command says when the server is ready: a line, and further ones with the details."""
    served = [*dict.fromkeys(name for report in reports for name in report.names)] or [*engine.models]
    streams = f", its streams at {url}/interlock/" if settings.view else ""
    store = re.sub(r"//[^/]*@", "//…@", (settings.store or "memory:").partition("?")[0])
    models = [f"upstream: {each.upstream.client.url} ({each.upstream.api}): {_names(each.names)}" for each in reports]
    return [
        f"Serving {_names(served) if served else 'upstream models'} at {url}/v1{streams}",
        *(models or [f"engine: {'embedded' if settings.script is None else f'script {settings.script}'}"]),
        f"store: {store}",
        f"tools: {', '.join(tool for tool in HOSTED_TOOLS if tool in tools.hosted) or 'none'}",
        f"API keys: {keys.count or ('those of the upstreams' if _passes_keys(reports) else 'none')}",
    ]


def _names(names: Sequence[str]) -> str:
    rest = len(names) - LISTED
    return (", ".join(names[:LISTED]) + (f" and {rest} more" if rest > 0 else "")) or "no models"


def _passes_keys(reports: Iterable[UpstreamReport]) -> bool:
    return any(report.upstream.client.pass_key for report in reports)


def _is_local(host: str) -> bool:
    """Return whether only this machine reaches an address to listen on."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _warnings(settings: ServeSettings, reports: Sequence[UpstreamReport], keys: Keys) -> Iterator[str]:
    """Yield what is probably wrong with the settings and the upstreams."""
    from interlock.serving.responses.sealing import KEYS_VARIABLE, RANDOM_KEY

    for report in reports:
        if report.fault is not None:
            yield f"the upstream {report.upstream.client.url} {report.fault}"
    if not (_is_local(settings.host) or keys.count or _passes_keys(reports)):
        yield f"--host {settings.host}: other machines can use the server without a key; add --api-key, or listen on 127.0.0.1"
    if KEYS_VARIABLE not in os.environ and settings.store is not None and not settings.store.startswith("memory:"):
        yield RANDOM_KEY


def _open_store(settings: ServeSettings) -> ResponseStore:
    """Return the store at a URL, or one in memory, which several workers cannot share."""
    from interlock.serving.store import MemoryStore, open_store

    with option_errors("--store"):
        store = open_store(settings.store) if settings.store else MemoryStore(max_bytes=settings.max_stored * 2**20)
    if settings.workers > 1 and isinstance(store, MemoryStore):
        shared = "--store sqlite:PATH or postgresql://HOST/DATABASE"
        fail(f"--workers {settings.workers}: each process would have a store of its own in memory; add {shared}")
    return store


def _engine(settings: ServeSettings, upstreams: Sequence[Upstream], servers: ToolServers) -> tuple[Engine, ToolRunner]:
    """Return the engine and its tools; a script supplies its own tool results."""
    if not upstreams:
        return _local_engine(settings, servers)
    if settings.script is not None:
        fail("--script does not apply to a gateway: leave out --script, or --upstream and the upstreams of --config")
    from interlock.serving.engines.upstream.gateway import Gateway

    return Gateway(upstreams, servers.descriptions), servers


def _local_engine(settings: ServeSettings, servers: ToolRunner) -> tuple[Engine, ToolRunner]:
    from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
    from interlock.serving.engines.script import family_format
    from interlock.serving.engines.scripted_engine import ScriptedEngine
    from interlock.serving.tools.tool_runner import ScriptedTools

    script, family, models, rate = settings.script, settings.family, settings.model, settings.rate
    if script is None:
        with option_errors("--family"):
            output_format = None if family is None else family_format(family)
        return EmbeddedEngine(models or (MODEL,), rate=rate, family=output_format), servers
    if family is not None:
        fail("--family does not apply to --script, which names the families of its rules")
    engine = ScriptedEngine(read_rules(script), models, rate=rate)
    return engine, ScriptedTools(engine)


def _hosted_tools(settings: ServeSettings) -> dict[HostedTool, str | LocalTool]:
    """Return the MCP servers of the hosted tools, and the tools that this server runs itself."""
    tools: dict[HostedTool, str | LocalTool] = {**_tool_servers(settings.tool_server)}
    if settings.code_interpreter and "code_interpreter" in tools:
        fail("--code-interpreter: --tool-server code_interpreter=URL names another interpreter; leave out one of them")
    if settings.web_search and "web_search" in tools:
        fail("--web-search: --tool-server web_search=URL names another search; leave out one of them")
    if settings.code_interpreter:
        from interlock.serving.tools.code_interpreter import CodeInterpreter

        with option_errors("--code-interpreter"):
            tools["code_interpreter"] = CodeInterpreter()
    if settings.web_search:
        from interlock.serving.tools.web_search import WebSearch

        with option_errors("--web-search"):
            tools["web_search"] = WebSearch.of(settings.web_search)
    return tools


def _tool_servers(options: Iterable[str]) -> dict[HostedTool, str]:
    """Parse each `NAME=URL`; for a repeated name, the last URL wins."""
    servers: dict[HostedTool, str] = {}
    for text in options:
        name, _, url = text.partition("=")
        tools: list[HostedTool] = [tool for tool in HOSTED_TOOLS if tool == name]
        if not tools or not is_url(url):
            fail(f"--tool-server {text}: write NAME=URL, where NAME is one of {', '.join(HOSTED_TOOLS)}")
        servers[tools[0]] = url
    return servers
