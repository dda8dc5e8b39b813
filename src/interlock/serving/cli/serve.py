"""The command `interlock serve`: the standalone server, or vLLM with the plugin."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import typer

from interlock.events.dialects import DIALECTS, DialectName
from interlock.serving.cli.sources import fail, is_url, listen, read_recording
from interlock.serving.cli.upstream_options import (
    KEY_VARIABLE,
    RETRIES,
    TIMEOUTS,
    ApiName,
    ConfigFile,
    UpstreamKey,
    UpstreamRetries,
    UpstreamTimeout,
    UpstreamUrl,
    option_errors,
    upstreams_of,
)
from interlock.serving.requests.hosted_tools import CALL_SECONDS, HOSTED_TOOLS, HostedTool

if TYPE_CHECKING:
    from interlock.serving.engines.engine import Engine
    from interlock.serving.engines.upstream.gateway import Gateway, Upstream
    from interlock.serving.tools.hosting import ToolServers
    from interlock.serving.tools.tool_runner import ToolRunner

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

STARTING: Final = 20_000
"""The threshold of the garbage collector during the start, whose imports make many objects and few cycles."""


def serve(  # noqa: PLR0913 - a command has an argument for each of its options
    *,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="The port; 0 for any free one.")] = 8000,
    engine: Annotated[
        Literal["embedded", "vllm"],
        typer.Option(
            help="The engine: the embedded one, which needs no model, or vLLM. `--engine vllm MODEL` runs `vllm serve MODEL` "
            "with the plugin, and takes the options of vLLM instead of these."
        ),
    ] = "embedded",
    api_key: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help=f"An API key that clients must send; can be repeated. Default: {KEY_VARIABLE}, if set."),
    ] = None,
    share_between_keys: Annotated[
        bool,
        typer.Option(
            "--share-between-keys",
            envvar="INTERLOCK_SHARE_BETWEEN_KEYS",
            help="Let all API keys see the same stored responses, instead of each its own.",
        ),
    ] = False,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Allow web pages of this origin; can be repeated; * allows all."),
    ] = None,
    dialect: Annotated[DialectName, typer.Option(help="The dialect for clients that name none.")] = "openai",
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="The name of the model; repeat it for clients that insist on another: --model tiny --model gpt-4o.",
        ),
    ] = None,
    rate: Annotated[float, typer.Option(min=0, metavar="N", help="Tokens per second of each stream; 0 for no limit.")] = 0,
    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Replay this recording, with the results of its tools, as the model.")
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The format of a model family, such as qwen3_coder: the embedded engine writes it, a gateway reads its text.",
        ),
    ] = None,
    upstream: UpstreamUrl = None,
    upstream_api: ApiName = "chat",
    upstream_key: UpstreamKey = None,
    pass_key: Annotated[
        bool, typer.Option("--pass-key", envvar="INTERLOCK_PASS_KEY", help="Send each client's own key to that server.")
    ] = False,
    upstream_timeout: UpstreamTimeout = TIMEOUTS,
    upstream_retries: UpstreamRetries = RETRIES,
    config: ConfigFile = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="INTERLOCK_STORE",
            help="The store for responses: memory:, sqlite:PATH (shared on one host), redis:// or postgresql://HOST (by hosts).",
        ),
    ] = None,
    max_stored: Annotated[
        int,
        typer.Option(min=1, metavar="MIB", help="The size of the default store in memory; it evicts the least recently used."),
    ] = 256,
    max_streams: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="The most responses to generate at once; further requests receive 429."),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="The least severe messages to log to standard error.")] = "warning",
    tool_server: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=URL", help=f"The MCP server of a hosted tool ({', '.join(HOSTED_TOOLS)}); can be repeated."),
    ] = None,
    tool_timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="The longest time for a call of a hosted tool.")
    ] = CALL_SECONDS,
    view: Annotated[
        bool, typer.Option("--view", help="Show recent streams at /interlock/, to clients with the API key.")
    ] = False,
    redact: Annotated[bool, typer.Option("--redact", help="Hide the texts of the streams that --view shows.")] = False,
    allow_mcp_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="Let requests name MCP servers of this host or private network; can be repeated; * allows all public hosts.",
        ),
    ] = None,
) -> None:
    """Serve the Responses API, with an engine or as a gateway."""
    if engine == "vllm":
        fail("the program `interlock` starts vLLM: interlock serve --engine vllm MODEL")
    thresholds = gc.get_threshold()
    gc.set_threshold(STARTING)
    from interlock.serving.http import server
    from interlock.serving.http.app import create_app
    from interlock.serving.requests.api_keys import Keys
    from interlock.serving.responses.sealing import RANDOM_KEY, SealingKeys
    from interlock.serving.store import MemoryStore, open_store
    from interlock.serving.tools.address import AddressPolicy
    from interlock.serving.tools.hosting import ToolServers

    api_keys = api_key or ([os.environ[KEY_VARIABLE]] if KEY_VARIABLE in os.environ else [])
    with option_errors(f"--api-key or {KEY_VARIABLE}"):
        keys = Keys.of(api_keys, shared=share_between_keys)
    with option_errors():  # the error names the variable
        sealing_keys = SealingKeys.from_environment()
    with option_errors("--allow-mcp-host"):
        policy = AddressPolicy.of(allow_mcp_host or ())
    servers = ToolServers(_tool_servers(tool_server or ()), policy, tool_timeout)
    upstreams = upstreams_of(
        config,
        upstream,
        api=upstream_api,
        models=model or (),
        family=family,
        key=upstream_key,
        pass_key=pass_key,
        timeouts=upstream_timeout,
        retries=upstream_retries,
    )
    running, tools = _gateway(upstreams, servers) if upstreams else _engine(script, model, rate, servers, family)
    with option_errors("--store"):
        responses = open_store(store) if store else MemoryStore(max_bytes=max_stored * 2**20)
    application = create_app(
        running,
        api_key=api_keys,
        share_between_keys=share_between_keys,
        cors_origins=cors_origin or (),
        dialect=DIALECTS[dialect],
        store=responses,
        tools=tools,
        max_streams=max_streams,
        sealing_keys=sealing_keys,
    )
    if view:
        from interlock.serving.view.web import RecentStreams, ViewerMiddleware

        application.add_middleware(ViewerMiddleware, recent=RecentStreams(keys, redact=redact))
    listening = listen(host, port)
    names = ", ".join(getattr(running, "models", ())) or "upstream models"
    ready = f"Serving {names} at {server.url_of(listening)}/v1"
    if view:
        ready += f", its streams at {server.url_of(listening)}/interlock/"
    if sealing_keys is None:
        ready += f"\n{RANDOM_KEY}"
    gc.set_threshold(*thresholds)
    server.serve(application, listening, on_ready=lambda: typer.echo(ready, err=True), log_level=log_level)


def _engine(
    script: Path | None, models: list[str] | None, rate: float, servers: ToolRunner, family: str | None
) -> tuple[Engine, ToolRunner]:
    """Return the engine and its tools; a script supplies its own tool results."""
    from interlock.parsers import Tagged
    from interlock.parsers.families import DEFAULT_REASONING
    from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
    from interlock.serving.engines.script import SCRIPTED, ScriptedEngine
    from interlock.serving.tools.tool_runner import RecordedTools

    if family is not None and family not in DEFAULT_REASONING:
        fail(f"--family {family}: unknown family; choose one of {', '.join(DEFAULT_REASONING)}")
    if script is None:
        output_format = None if family is None else Tagged(family, DEFAULT_REASONING[family])
        return EmbeddedEngine(models or (MODEL,), rate=rate, family=output_format), servers
    if family is not None:
        fail("--family does not apply to --script: the recording names its format")
    recording = read_recording(script)
    turns = [turn.outputs for turn in recording.turns]
    return ScriptedEngine(turns, recording.format, models or (SCRIPTED,), rate=rate), RecordedTools(recording.turns)


def _gateway(upstreams: Sequence[Upstream], servers: ToolServers) -> tuple[Gateway, ToolRunner]:
    from interlock.serving.engines.upstream.gateway import Gateway

    return Gateway(upstreams, frozenset(servers.hosted)), servers


def _tool_servers(options: Iterable[str]) -> dict[HostedTool, str]:
    """Parse each `NAME=URL`; for a repeated name, the last URL wins."""
    servers: dict[HostedTool, str] = {}
    for option in options:
        name, _, url = option.partition("=")
        tools: list[HostedTool] = [tool for tool in HOSTED_TOOLS if tool == name]
        if not tools or not is_url(url):
            fail(f"--tool-server {option}: write NAME=URL, where NAME is one of {', '.join(HOSTED_TOOLS)}")
        servers[tools[0]] = url
    return servers
