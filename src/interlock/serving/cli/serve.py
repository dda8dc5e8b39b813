"""The command `interlock serve`: the standalone server or a gateway. `main` starts vLLM with the plugin."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from interlock.events.dialects import DIALECTS, DialectName
from interlock.serving.cli.options import (
    FILE,
    KEY_VARIABLE,
    Number,
    UpstreamOptions,
    dialect_option,
    environment_option,
    examples,
    option_errors,
    upstream_options,
    upstreams_of,
)
from interlock.serving.cli.sources import fail, is_url, listen, read_recording
from interlock.serving.requests.tool_offer import CALL_SECONDS, HOSTED_TOOLS, HostedTool

if TYPE_CHECKING:
    from interlock.serving.engines.engine import Engine
    from interlock.serving.engines.upstream.gateway import Gateway
    from interlock.serving.tools.tool_runner import ToolRunner


@contextmanager
def _without_collector() -> Generator[None]:
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
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, metavar="PORT", help="The port; 0 for any free one.")
@click.option(
    "--engine",
    type=click.Choice(["embedded", "vllm"]),
    default="embedded",
    help="The engine: the embedded one, which needs no model, or vLLM. `--engine vllm MODEL` runs `vllm serve MODEL` "
    "with the plugin, and takes the options of vLLM instead of these.",
)
@click.option(
    "--api-key",
    multiple=True,
    metavar="KEY",
    help=f"An API key that clients must send; can be repeated. Default: {KEY_VARIABLE}, if set.",
)
@environment_option(
    "--share-between-keys",
    is_flag=True,
    help="Let all API keys see the same stored responses, instead of each its own.",
)
@click.option(
    "--cors-origin", multiple=True, metavar="ORIGIN", help="Allow web pages of this origin; can be repeated; * allows all."
)
@dialect_option("The dialect for clients that name none.")
@click.option(
    "--model",
    multiple=True,
    metavar="NAME",
    help="The name of the model; repeat it for clients that accept only certain names: --model tiny --model gpt-4o. "
    "For a gateway also ALIAS=NAME.",
)
@click.option("--rate", type=Number(min=0), default=0, metavar="N", help="Tokens per second of each stream; 0 for no limit.")
@click.option("--script", type=FILE, metavar="FILE", help="Replay this recording, with the results of its tools, as the model.")
@click.option(
    "--family",
    metavar="NAME",
    help="The format of a model family, such as qwen3_coder: the embedded engine writes it, a gateway reads its text.",
)
@upstream_options
@environment_option("--pass-key", is_flag=True, help="Send each client's own key to the server behind the gateway.")
@environment_option(
    "--store",
    metavar="URL",
    help="The store for responses: memory:, sqlite:PATH (shared on one host), redis://HOST or "
    "postgresql://HOST (shared by several hosts).",
)
@click.option(
    "--max-stored",
    type=click.IntRange(min=1),
    default=256,
    metavar="MIB",
    help="The largest size of the default store in memory, which evicts the least recently used responses.",
)
@click.option(
    "--max-streams",
    type=click.IntRange(min=1),
    metavar="N",
    help="The most responses to generate at once; further requests receive 429.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    help="The least severe messages to log to standard error.",
)
@click.option(
    "--tool-server",
    multiple=True,
    metavar="NAME=URL",
    help=f"The MCP server of a hosted tool ({', '.join(HOSTED_TOOLS)}); can be repeated.",
)
@click.option(
    "--tool-timeout",
    type=Number(min=0.1),
    default=CALL_SECONDS,
    metavar="SECONDS",
    help="The longest time for a call of a hosted tool.",
)
@click.option("--view", is_flag=True, help="Show recent streams at /interlock/, to clients with the API key.")
@click.option("--redact", is_flag=True, help="Hide the texts of the streams that --view shows.")
@click.option(
    "--allow-mcp-host",
    multiple=True,
    metavar="HOST",
    help="Let requests name MCP servers of this host or private network; can be repeated; * allows all public hosts.",
)
@_without_collector()
def serve(  # noqa: PLR0913 - a command has an argument for each of its options
    *,
    host: str,
    port: int,
    engine: str,
    api_key: tuple[str, ...],
    share_between_keys: bool,
    cors_origin: tuple[str, ...],
    dialect: DialectName,
    model: tuple[str, ...],
    rate: float,
    script: Path | None,
    family: str | None,
    pass_key: bool,
    store: str | None,
    max_stored: int,
    max_streams: int | None,
    log_level: str,
    tool_server: tuple[str, ...],
    tool_timeout: float,
    view: bool,
    redact: bool,
    allow_mcp_host: tuple[str, ...],
    **upstream: Unpack[UpstreamOptions],
) -> None:
    """Serve the Responses API, with an engine or as a gateway."""
    if engine == "vllm":
        fail("vLLM starts only from the command line: interlock serve --engine vllm MODEL")
    from interlock.serving.http import server
    from interlock.serving.http.app import create_app
    from interlock.serving.responses.sealing import RANDOM_KEY, SealingKeys
    from interlock.serving.store import MemoryStore, open_store
    from interlock.serving.tools.address import AddressPolicy
    from interlock.serving.tools.hosting import ToolServers

    api_keys = api_key or ((os.environ[KEY_VARIABLE],) if KEY_VARIABLE in os.environ else ())
    with option_errors():  # the error names the variable
        sealing_keys = SealingKeys.from_environment()
    with option_errors("--allow-mcp-host"):
        policy = AddressPolicy.of(allow_mcp_host)
    servers = ToolServers(_tool_servers(tool_server), policy, tool_timeout)
    upstreams = upstreams_of(upstream, models=model, family=family, pass_key=pass_key)
    if upstreams and script is not None:
        fail("--script does not apply to a gateway: leave out --script, or --upstream and the upstreams of --config")
    running: Engine | Gateway
    tools: ToolRunner
    if upstreams:
        from interlock.serving.engines.upstream.gateway import Gateway

        running, tools = Gateway(upstreams, frozenset(servers.hosted)), servers
    else:
        running, tools = _engine(script, model, rate, servers, family)
    with option_errors("--store"):
        responses = open_store(store) if store else MemoryStore(max_bytes=max_stored * 2**20)
    with option_errors(f"--api-key or {KEY_VARIABLE}"):
        application = create_app(
            running,
            api_key=api_keys,
            share_between_keys=share_between_keys,
            cors_origins=cors_origin,
            dialect=DIALECTS[dialect],
            store=responses,
            tools=tools,
            max_streams=max_streams,
            sealing_keys=sealing_keys,
        )
    if view:
        from interlock.serving.view.web import RecentStreams, ViewerMiddleware

        application.add_middleware(ViewerMiddleware, recent=RecentStreams(application.state.keys, redact=redact))
    listening = listen(host, port)
    names = ", ".join(getattr(running, "models", ())) or "upstream models"
    ready = f"Serving {names} at {server.url_of(listening)}/v1"
    if view:
        ready += f", its streams at {server.url_of(listening)}/interlock/"
    if sealing_keys is None:
        ready += f"\n{RANDOM_KEY}"

    def on_ready() -> None:
        gc.enable()
        click.echo(ready, err=True)

    server.serve(application, listening, on_ready=on_ready, log_level=log_level)


def _engine(
    script: Path | None, models: Sequence[str], rate: float, servers: ToolRunner, family: str | None
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
