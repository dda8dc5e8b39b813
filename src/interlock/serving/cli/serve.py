"""The command `interlock serve`: the standalone server or a gateway. `main` starts vLLM with the plugin."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import secrets
import signal
from base64 import b64encode
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

import click
from msgspec import structs

from interlock.parsers.hosted_tools import HOSTED_TOOLS
from interlock.serving.cli.options import (
    bind,
    examples,
    fail,
    gateway_upstreams,
    option_errors,
    options_of,
    read_rules,
    settings_of,
)
from interlock.serving.requests.logs import announce, log_to_stderr
from interlock.serving.settings import DEFAULTS, Settings

if TYPE_CHECKING:
    from interlock.serving.engines.engine import Engine
    from interlock.serving.engines.upstream.upstream_client import Upstream
    from interlock.serving.engines.upstream.upstreams import UpstreamReport
    from interlock.serving.http.app import Application
    from interlock.serving.requests.api_keys import Keys
    from interlock.serving.tools.hosting import ToolRunner, ToolServers

logger = logging.getLogger(__name__)

LOOPBACK: Final = ("localhost", "*.localhost", "127.0.0.1", "[::1]")
"""The hosts that lead to this machine in every browser."""
MAX_NAMED: Final = 5
"""The most models of an upstream that the banner names."""


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
        "interlock serve --script examples/recordings/mcp-call.jsonl",
        "interlock serve --engine vllm openai/gpt-oss-20b",
        "interlock serve --upstream http://127.0.0.1:11434",
    )
)
@options_of()
@_pause_collector()
def serve(**_options: object) -> None:
    """Serve the Responses API, with an engine or as a gateway.

    Each option but --port is also a variable, as INTERLOCK_MAX_STREAMS is for --max-streams, and each a key of the file of
    --config, as max_streams is. Options override variables, and variables the file.
    """
    settings = settings_of()
    log_to_stderr(settings.log_level, settings.log_format)
    if settings.engine == "vllm":
        fail("vLLM starts only from the command line: interlock serve --engine vllm MODEL")
    settings = _share_key(_guard_local(settings))
    from interlock.serving import metrics
    from interlock.serving.build import add_viewer, build_tools, compose
    from interlock.serving.http import server

    if settings.workers > 1:
        metrics.share()
    with option_errors():
        upstreams, servers = gateway_upstreams(settings), build_tools(settings)
        running, tools = _engine(settings, upstreams, servers)
        application = compose(settings, running, tools)
        asyncio.run(_check_store(settings.store))
    keys: Keys = application.state.keys
    if settings.view:
        add_viewer(application)
    listening = bind(server.listen if settings.workers == 1 else server.reserve, settings.host, settings.port)
    url, reporting = server.url_of(listening), set[asyncio.Task[None]]()

    async def report() -> None:
        reports = await _survey(upstreams)
        announce(logger, _banner(settings, running, tools, reports, url, keys), settings.log_format)
        for warning in _warnings(settings, running, reports, keys):
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
        server.serve(application, listening, on_ready=on_ready)
    else:
        server.Supervisor(settings, partial(_create, settings), listening, on_ready, keys).run()


async def _check_store(url: str | None) -> None:
    """Raise `WrongStore` for a store that an operator has to correct; one that is only down may come back."""
    if not url:
        return
    from interlock.serving.store import open_store
    from interlock.serving.store.values import StoreDown, WrongStore

    opened = open_store(url)  # made here, if there is none, because only that shows whether it can be
    try:
        await opened.lost(1)
    except WrongStore:
        raise
    except StoreDown:
        pass
    finally:
        await opened.close()


def _create(settings: Settings) -> Application:
    """Return the application of one of several processes, which begins here."""
    from interlock.serving.build import build_tools, compose

    log_to_stderr(settings.log_level, settings.log_format)
    engine, tools = _engine(settings, gateway_upstreams(settings), build_tools(settings))
    return compose(settings, engine, tools)


async def _survey(upstreams: Sequence[Upstream]) -> Sequence[UpstreamReport]:
    """Ask the upstreams of a gateway for their models; another engine has none."""
    if not upstreams:
        return ()
    from interlock.serving.engines.upstream.upstreams import survey

    return await survey(upstreams)


def _banner(
    settings: Settings,
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
    models = [f"upstream: {each.upstream.url} ({each.upstream.settings.api}): {_names(each.names)}" for each in reports]
    return [
        f"Serving {_names(served) if served else 'upstream models'} at {url}/v1{streams}",
        *(models or [f"engine: {'embedded' if settings.script is None else f'script {settings.script}'}"]),
        f"store: {store}",
        *(() if settings.script else (f"tools: {', '.join(tool for tool in HOSTED_TOOLS if tool in tools.hosted) or 'none'}",)),
        f"API keys: {keys.count or ('those of the upstreams' if engine.passes_keys else 'none')}",
    ]


def _names(names: Sequence[str]) -> str:
    rest = len(names) - MAX_NAMED
    return (", ".join(names[:MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")) or "no models"


def _guard_local(settings: Settings) -> Settings:
    """Return the settings with the hosts of this machine, if only it reaches the server and no others are named."""
    if settings.allowed_host or not is_local(settings.host):
        return settings
    return structs.replace(settings, allowed_host=(*LOOPBACK, f"[{settings.host}]" if ":" in settings.host else settings.host))


def _share_key(settings: Settings) -> Settings:
    """Return the settings with a random sealing key, if several processes share it and none is set."""
    if settings.keys is not None or settings.workers == 1:
        return settings
    return structs.replace(settings, keys=b64encode(secrets.token_bytes(32)).decode())


def is_local(host: str) -> bool:
    """Return whether only this machine reaches an address to listen on."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _warnings(settings: Settings, engine: Engine, reports: Sequence[UpstreamReport], keys: Keys) -> Iterator[str]:
    """Yield what is probably wrong with the settings and the upstreams."""
    from interlock.serving.responses.sealing import RANDOM_KEY

    for report in reports:
        if report.fault is not None:
            yield f"the upstream {report.upstream.url} {report.fault}"
    if not (is_local(settings.host) or keys.count or engine.passes_keys):
        yield f"--host {settings.host}: other machines can use the server without a key; add --api-key, or listen on 127.0.0.1"
    if "keys" not in settings.places and settings.store is not None and not settings.store.startswith("memory:"):
        yield RANDOM_KEY % ("server", "server")


def _engine(settings: Settings, upstreams: Sequence[Upstream], servers: ToolServers) -> tuple[Engine, ToolRunner]:
    """Return the engine and its tools; a script supplies its own tool results."""
    if not upstreams:
        return _local_engine(settings, servers)
    if settings.script is not None:
        advice = "leave it out, or --upstream and the upstreams of --config"
        raise settings.error("script", f"it does not apply to a gateway; {advice}")
    from interlock.serving.engines.upstream.gateway import Gateway

    return Gateway(upstreams, servers.descriptions), servers


def _local_engine(settings: Settings, servers: ToolRunner) -> tuple[Engine, ToolRunner]:
    from interlock.serving.build import TOOL_SETTINGS
    from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
    from interlock.serving.engines.script import RecordedRule, ScriptedEngine, family_format
    from interlock.serving.tools.hosting import ScriptedTools

    script, family, models, rate = settings.script, settings.family, settings.model, settings.rate
    if script is None:
        with settings.errors("family"):
            output_format = None if family is None else family_format(family)
        return EmbeddedEngine(models or (MODEL,), rate=rate, family=output_format), servers
    if family is not None:
        raise settings.error("family", "it does not apply to a script, which names the families of its rules")
    for name in TOOL_SETTINGS:
        if getattr(settings, name) != DEFAULTS[name]:
            raise settings.error(name, "it does not apply to a script, whose calls have the results of their tools (`returns`)")
    rules = read_rules(script)
    if settings.workers > 1 and not any(isinstance(rule, RecordedRule) for rule in rules):
        raise settings.error("workers", "each process would have steps and requests of the script of its own; leave it out")
    engine = ScriptedEngine(rules, models, rate=rate)
    return engine, ScriptedTools(engine)
