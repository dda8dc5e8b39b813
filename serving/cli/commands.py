"""The commands of `interlock`: their options, what they print, and how they end.

It knows terminals and exit statuses, and leaves the work to others. What a program may read goes to standard output and
is never coloured; messages go to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, NoReturn, TypeAlias

import orjson
import typer

import interlock
from interlock.events.dialects import DIALECTS, DialectName
from interlock.fsm.diagram import RENDERERS, Format
from interlock.serving.cli.check import UNREADABLE, check
from interlock.serving.cli.diagrams import GRAPHS, summary
from interlock.serving.cli.verify import verify
from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
from interlock.serving.engines.engine import Engine
from interlock.serving.engines.script import SCRIPTED, ScriptedEngine
from interlock.serving.http import server
from interlock.serving.http.app import create_app
from interlock.serving.recordings.rechunk import rechunk
from interlock.serving.recordings.recording import Recording, RecordingError, read
from interlock.serving.recordings.replay import replay_frames, replay_response
from interlock.serving.tools import CALL_SECONDS, HOSTED_TOOLS, HostedTool, Reach, ToolServers
from interlock.serving.tools.protocol import ToolRunner
from interlock.serving.tools.recorded import RecordedTools

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

app = typer.Typer(
    name="interlock",
    help="A finite-state-machine streaming engine for the Responses API.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.command()(check)
app.command()(verify)

InputFile = Annotated[Path, typer.Argument(metavar="FILE|-", help="A file, or - for standard input.")]


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer hands an option's value over like this
    if wanted:
        typer.echo(f"interlock {interlock.__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command()
def serve(  # noqa: PLR0913 - a command has an argument for each of its options
    *,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any that is free.")] = 8000,
    api_key: Annotated[
        str | None, typer.Option(envvar="INTERLOCK_API_KEY", help="What clients have to give as their key.")
    ] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Let pages of this origin in; may be given again; * for all.")
    ] = None,
    dialect: Annotated[DialectName, typer.Option(help="What is spoken to clients that ask for nothing else.")] = "openai",
    model: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A name of the model; may be given again.")] = None,
    rate: Annotated[float, typer.Option(min=0, metavar="N", help="Tokens per second of each stream; 0 for no limit.")] = 0,
    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Replay the turns of this recording, and what its tools gave.")
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="What is logged to standard error.")] = "warning",
    tool_server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=URL", help=f"The MCP server behind a hosted tool ({', '.join(HOSTED_TOOLS)}); may be given again."
        ),
    ] = None,
    tool_timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How long the call of a hosted tool may take.")
    ] = CALL_SECONDS,
    allow_mcp_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="A host whose MCP servers a request may name, or a network of private addresses; may be given again; "
            "* for all that are public.",
        ),
    ] = None,
) -> None:
    """Serve the Responses API with the embedded engine, which needs no model; --engine vllm MODEL starts vLLM with the plugin."""
    servers = ToolServers(_tool_servers(tool_server or ()), _reach(allow_mcp_host or ()), tool_timeout)
    engine, tools = _engine(script, model, rate, servers)
    application = create_app(engine, api_key=api_key, cors_origins=cors_origin or (), dialect=DIALECTS[dialect], tools=tools)
    try:
        listening = server.listen(host, port)
    except OSError as error:
        _fail(f"{host}:{port}: {error.strerror}")
    ready = f"Serving {engine.models[0]} at {server.url_of(listening)}/v1"
    server.serve(application, listening, on_ready=lambda: typer.echo(ready, err=True), log_level=log_level)


def _engine(script: Path | None, models: list[str] | None, rate: float, servers: ToolServers) -> tuple[Engine, ToolRunner]:
    """Give the engine and its tools; a script brings the results of its tools along."""
    if script is None:
        return EmbeddedEngine(models or (MODEL,), rate=rate), servers
    recording = _read(script)
    turns = [turn.outputs for turn in recording.turns]
    return ScriptedEngine(turns, recording.format, models or (SCRIPTED,), rate=rate), RecordedTools(recording.turns)


def _tool_servers(given: Iterable[str]) -> dict[HostedTool, str]:
    """Read `NAME=URL`; what is meant twice counts as said last."""
    servers: dict[HostedTool, str] = {}
    for each in given:
        name, _, url = each.partition("=")
        meant: list[HostedTool] = [tool for tool in HOSTED_TOOLS if tool == name]
        if not meant or not url.startswith(("http://", "https://")):
            _fail(f"--tool-server {each}: not NAME=URL with a NAME of {', '.join(HOSTED_TOOLS)}")
        servers[meant[0]] = url
    return servers


def _reach(given: Iterable[str]) -> Reach:
    try:
        return Reach.of(given)
    except ValueError as error:
        _fail(f"--allow-mcp-host: {error}")


@app.command()
def replay(
    file: InputFile,
    *,
    chunk: Annotated[int | None, typer.Option(min=1, metavar="N", help="Cut the recording into chunks of N tokens.")] = None,
    stream: Annotated[bool, typer.Option(help="Write the stream, or only the final response as JSON.")] = True,
    dialect: Annotated[DialectName, typer.Option(help="What to speak.")] = "openai",
) -> None:
    """Run a recording through parser, driver and encoder; write what the client would have got."""
    recording = _read(file)
    recording = recording if chunk is None else rechunk(recording, chunk)
    output = sys.stdout.buffer
    if stream:
        for frame in replay_frames(recording, DIALECTS[dialect]):
            output.write(frame)
    else:
        response = DIALECTS[dialect].spoken(replay_response(recording))
        output.write(orjson.dumps(response, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    output.flush()


@app.command()
def diagram(
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="Which; without it, all that can be drawn are listed.")
    ] = None,
    *,
    form: Annotated[Format, typer.Option("--format", help="What to write.")] = "mermaid",
) -> None:
    """Draw the lifecycle of a kind of item, of the response, or the framing of harmony."""
    if kind is None:
        typer.echo("\n".join(map(summary, GRAPHS.values())))
    elif kind not in GRAPHS:
        _fail(f"no diagram of {kind!r}; there are: {', '.join(GRAPHS)}")
    else:
        typer.echo(RENDERERS[form](GRAPHS[kind]), nl=False)


def _is_piped(file: Path) -> bool:
    return str(file) == "-"


def _name(file: Path) -> str:
    return "standard input" if _is_piped(file) else str(file)


def _read(file: Path) -> Recording:
    try:
        return read(sys.stdin.buffer if _is_piped(file) else file)
    except RecordingError as error:
        _fail(f"{_name(file)}:{error.line}: {error.message}")
    except OSError as error:
        _fail(f"{file}: {error.strerror}")


def _fail(message: str) -> NoReturn:
    typer.echo(f"interlock: {message}", err=True)
    raise typer.Exit(UNREADABLE)
