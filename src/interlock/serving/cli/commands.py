"""The list of the commands, with examples, and the command `interlock replay`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

import interlock
from interlock.events.dialects import DIALECTS, DialectName
from interlock.serving.cli.check import check
from interlock.serving.cli.machines import diagram, verify
from interlock.serving.cli.run_client import run
from interlock.serving.cli.serve import serve
from interlock.serving.cli.sources import read_recording
from interlock.serving.cli.store import store
from interlock.serving.cli.view import view


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE|-", help="A recording of an engine's output, or - for standard input.")],
    *,
    chunk: Annotated[int | None, typer.Option(min=1, metavar="N", help="Split the output into chunks of N tokens.")] = None,
    stream: Annotated[bool, typer.Option(help="Write the stream, or only the final response as JSON.")] = True,
    dialect: Annotated[DialectName, typer.Option(help="The dialect of the stream.")] = "openai",
) -> None:
    """Write the stream of a recording.

    The recorded output goes through parser, driver and encoder, as an engine's output does in the server.
    """
    import orjson

    from interlock.serving.engines.recordings import rechunk, replay_frames, replay_response

    recording = read_recording(file)
    recording = recording if chunk is None else rechunk(recording, chunk)
    if stream:
        sys.stdout.buffer.writelines(replay_frames(recording, DIALECTS[dialect]))
    else:
        response = DIALECTS[dialect].convert(replay_response(recording))
        sys.stdout.buffer.write(orjson.dumps(response, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


app = typer.Typer(
    name="interlock",
    help="Serve, check and view streams of the Responses API.",
    epilog="Run `interlock COMMAND --help` for the options of a command and examples.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help reads the same in a pipe, and starts faster
    pretty_exceptions_enable=False,
)

EXAMPLES: Final[Mapping[Callable[..., None], tuple[str, ...]]] = {
    serve: (
        "interlock serve --port 8001 --rate 30",
        "interlock serve --script recordings/mcp-call.jsonl",
        "interlock serve --engine vllm openai/gpt-oss-20b",
        "interlock serve --upstream http://127.0.0.1:11434",
    ),
    run: (
        "interlock run codex --upstream http://127.0.0.1:11434",
        "interlock run codex --upstream http://127.0.0.1:8000 -- exec 'Fix the tests.'",
        "interlock run python agent.py --upstream https://api.deepseek.com/v1 --upstream-key KEY",
    ),
    check: (
        "interlock check stream.sse streams/",
        "interlock check http://127.0.0.1:8000/v1/responses --body request.json",
        "curl -sN ... | interlock check - --json",
        "interlock check --explain R10",
    ),
    view: (
        "interlock view recordings/web-search.jsonl",
        "interlock view stream.sse --html out.html",
        "interlock view http://127.0.0.1:8000/v1/responses --body request.json",
        "interlock view before.sse after.sse",
    ),
    verify: ("interlock verify", "interlock verify --json"),
    diagram: ("interlock diagram message --format table", "interlock diagram mcp_call --format svg > mcp_call.svg"),
    replay: (
        "interlock replay recordings/web-search.jsonl",
        "interlock replay recordings/answer.jsonl --chunk 1 | interlock check -",
    ),
}
"""The commands in the order of the help, with examples."""

for command, examples in EXAMPLES.items():
    # `\b` keeps the line breaks of a paragraph.
    app.command(epilog="\n".join(["\b", "Examples:", *(f"  {example}" for example in examples)]))(command)

app.add_typer(store, name="store")


def _print_version(value: bool) -> None:  # noqa: FBT001 - typer passes the value of an option by position
    if value:
        typer.echo(f"interlock {interlock.__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Handle the options before a command."""
