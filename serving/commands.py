"""The commands of `interlock`: their options, what they print, and how they end.

It knows terminals and exit statuses, and leaves the work to others. What a program may read goes to standard output and
is never coloured; messages go to standard error.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final, NoReturn

import orjson
import typer

import interlock
from interlock.serving.rechunk import rechunk
from interlock.serving.recording import Recording, RecordingError, read
from interlock.serving.replay import replay_frames, replay_response

UNREADABLE: Final = 2
"""The exit status when the input is not what it should be, as for a wrong option."""

app = typer.Typer(
    name="interlock",
    help="A finite-state-machine streaming engine for the Responses API.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

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
def replay(
    file: InputFile,
    *,
    chunk: Annotated[int | None, typer.Option(min=1, metavar="N", help="Cut the recording into chunks of N tokens.")] = None,
    stream: Annotated[bool, typer.Option(help="Write the stream, or only the final response as JSON.")] = True,
) -> None:
    """Run a recording through parser, driver and encoder; write what the client would have got."""
    recording = _read(file)
    recording = recording if chunk is None else rechunk(recording, chunk)
    output = sys.stdout.buffer
    if stream:
        for frame in replay_frames(recording):
            output.write(frame)
    else:
        output.write(orjson.dumps(replay_response(recording), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    output.flush()


def _read(file: Path) -> Recording:
    piped = str(file) == "-"
    try:
        return read(sys.stdin.buffer if piped else file)
    except RecordingError as error:
        _fail(f"{'standard input' if piped else file}:{error.line}: {error.message}")
    except OSError as error:
        _fail(f"{file}: {error.strerror}")


def _fail(message: str) -> NoReturn:
    typer.echo(f"interlock: {message}", err=True)
    raise typer.Exit(UNREADABLE)
