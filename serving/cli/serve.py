"""The command `interlock serve`: the standalone server, with the embedded engine or a recording."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import typer

from interlock.events.dialects import DIALECTS, DialectName
from interlock.serving.cli.sources import fail, read_recording
from interlock.serving.tools.hosted import CALL_SECONDS, HOSTED_TOOLS, HostedTool

if TYPE_CHECKING:
    from interlock.parsers import Tagged
    from interlock.serving.engines.engine import Engine
    from interlock.serving.sealing import SealingKeys
    from interlock.serving.store import ResponseStore
    from interlock.serving.tools.configuration import ToolServers
    from interlock.serving.tools.protocol import ToolRunner
    from interlock.serving.tools.reach import Reach

KEY_VARIABLE: Final = "INTERLOCK_API_KEY"
"""The environment variable that holds the key of the server."""

MIB: Final = 2**20

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


def serve(  # noqa: PLR0913 - a command has an argument for each of its options
    *,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="The port; 0 for any that is free.")] = 8000,
    engine: Annotated[
        Literal["embedded", "vllm"],
        typer.Option(
            help="Where model output comes from: the embedded engine, which needs no model, or vLLM. `--engine vllm MODEL` "
            "starts `vllm serve MODEL` with the plugin, and takes vLLM's options instead of those listed here."
        ),
    ] = "embedded",
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help=f"The key that clients have to send, one of them if it is given again; without it, that of {KEY_VARIABLE}.",
        ),
    ] = None,
    share_between_keys: Annotated[
        bool,
        typer.Option(
            "--share-between-keys",
            envvar="INTERLOCK_SHARE_BETWEEN_KEYS",
            help="Let what was stored with one key be there for the others too.",
        ),
    ] = False,
    cors_origin: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Let pages of this origin in; may be given again; * for all.")
    ] = None,
    dialect: Annotated[DialectName, typer.Option(help="The dialect for clients that ask for none.")] = "openai",
    model: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A name of the model; may be given again.")] = None,
    rate: Annotated[float, typer.Option(min=0, metavar="N", help="Tokens per second of each stream; 0 for no limit.")] = 0,
    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Replay the turns of this recording, and the results of its tools.")
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Have the embedded engine write the format of this family of models: qwen3_coder, …"),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="INTERLOCK_STORE",
            help="Where responses are stored: memory:, sqlite:PATH (the processes of one host), redis://HOST (several hosts).",
        ),
    ] = None,
    max_stored: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="MIB",
            help="The memory that stored responses and their events may take in `memory:`; the least used give way.",
        ),
    ] = 256,
    max_streams: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="The responses that may be made at once; one more gets 429."),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="The least severe messages to log to standard error.")] = "warning",
    tool_server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=URL", help=f"The MCP server behind a hosted tool ({', '.join(HOSTED_TOOLS)}); may be given again."
        ),
    ] = None,
    tool_timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How long the call of a hosted tool may take.")
    ] = CALL_SECONDS,
    view: Annotated[
        bool, typer.Option("--view", help="Show the last streams at /interlock/, to whoever has the API key.")
    ] = False,
    redact: Annotated[bool, typer.Option("--redact", help="Hide what is said in the streams that are shown.")] = False,
    allow_mcp_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="A host whose MCP servers a request may name, or a network of private addresses; may be given again; "
            "* for all that are public.",
        ),
    ] = None,
) -> None:
    """Serve the Responses API, with the embedded engine or with vLLM."""
    if engine == "vllm":
        fail("vLLM is started by the command itself: interlock serve --engine vllm MODEL")
    from interlock.serving.http import server
    from interlock.serving.http.app import create_app
    from interlock.serving.sealing import RANDOM_KEY
    from interlock.serving.tools.configuration import ToolServers

    keys, sealing_keys = _keys(api_key), _sealing_keys()
    servers = ToolServers(_tool_servers(tool_server or ()), _reach(allow_mcp_host or ()), tool_timeout)
    running, tools = _engine(script, model, rate, servers, _family(family))
    application = create_app(
        running,
        api_key=keys,
        share_between_keys=share_between_keys,
        cors_origins=cors_origin or (),
        dialect=DIALECTS[dialect],
        store=_store(store, max_stored * MIB),
        tools=tools,
        max_streams=max_streams,
        sealing_keys=sealing_keys,
    )
    if view:
        from interlock.serving.keys import Keys
        from interlock.serving.view.watching import Watch, Watching

        application.add_middleware(Watching, watch=Watch(Keys.of(keys, shared=share_between_keys), redact=redact))
    try:
        listening = server.listen(host, port)
    except OSError as error:
        fail(f"{host}:{port}: {error.strerror}")
    ready = f"Serving {running.models[0]} at {server.url_of(listening)}/v1"
    if view:
        ready += f", its streams at {server.url_of(listening)}/interlock/"
    if sealing_keys is None:
        ready += f"\n{RANDOM_KEY}"
    server.serve(application, listening, on_ready=lambda: typer.echo(ready, err=True), log_level=log_level)


def _family(name: str | None) -> Tagged | None:
    """Return the format of a family with the reasoning that its models write."""
    from interlock.parsers import Tagged
    from interlock.parsers.families import USUAL

    if name is not None and name not in USUAL:
        fail(f"--family {name}: there is {', '.join(USUAL)}")
    return None if name is None else Tagged(name, USUAL[name])


def _engine(
    script: Path | None, models: list[str] | None, rate: float, servers: ToolServers, family: Tagged | None
) -> tuple[Engine, ToolRunner]:
    """Return the engine and its tools; a script brings the results of its tools along."""
    from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
    from interlock.serving.engines.script import SCRIPTED, ScriptedEngine
    from interlock.serving.tools.recorded import RecordedTools

    if script is None:
        return EmbeddedEngine(models or (MODEL,), rate=rate, family=family), servers
    recording = read_recording(script)
    turns = [turn.outputs for turn in recording.turns]
    return ScriptedEngine(turns, recording.format, models or (SCRIPTED,), rate=rate), RecordedTools(recording.turns)


def _tool_servers(given: Iterable[str]) -> dict[HostedTool, str]:
    """Parse each `NAME=URL`; the last one of a name counts."""
    servers: dict[HostedTool, str] = {}
    for each in given:
        name, _, url = each.partition("=")
        meant: list[HostedTool] = [tool for tool in HOSTED_TOOLS if tool == name]
        if not meant or not url.startswith(("http://", "https://")):
            fail(f"--tool-server {each}: not NAME=URL with a NAME of {', '.join(HOSTED_TOOLS)}")
        servers[meant[0]] = url
    return servers


def _keys(given: Sequence[str] | None) -> Sequence[str]:
    """Return the keys of the server; end the command where one is such that it would let everybody in, or nobody."""
    from interlock.serving.keys import Keys

    keys = given or [os.environ[KEY_VARIABLE]] if given or KEY_VARIABLE in os.environ else []
    try:
        Keys.of(keys)
    except ValueError as error:
        fail(f"--api-key or {KEY_VARIABLE}: {error}")
    return keys


def _sealing_keys() -> SealingKeys | None:
    from interlock.serving.sealing import SealingKeys

    try:
        return SealingKeys.from_environment()
    except ValueError as error:
        fail(str(error))


def _store(url: str | None, max_bytes: int) -> ResponseStore:
    """Return the store that is asked for; by default that in memory, bounded."""
    from interlock.serving.store import MemoryStore, StoreError
    from interlock.serving.store.opening import open_store

    try:
        return open_store(url) if url else MemoryStore(max_bytes=max_bytes)
    except StoreError as error:
        fail(f"--store: {error}")


def _reach(given: Iterable[str]) -> Reach:
    from interlock.serving.tools.reach import Reach

    try:
        return Reach.of(given)
    except ValueError as error:
        fail(f"--allow-mcp-host: {error}")
