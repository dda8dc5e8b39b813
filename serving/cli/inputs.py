"""What the commands share: reading a recording, and ending with a message on standard error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import typer

from interlock.events.json import clean

if TYPE_CHECKING:
    from interlock.serving.recordings.recording import Recording

UNUSABLE: Final = 2
"""The exit status when the input cannot be used, as for a wrong option."""

PATIENCE: Final = 300.0
"""How many seconds a URL may take to be read, if nothing else is said."""


def fail(message: str) -> NoReturn:
    """Print a message to standard error and end the command with status 2.

    Raises:
        typer.Exit: Always.
    """
    typer.echo(clean(f"interlock: {message}"), err=True)
    raise typer.Exit(UNUSABLE)


def read_recording(file: Path) -> Recording:
    """Read a recording, or end the command with a message that names the file and the line.

    Args:
        file: Its path; `-` stands for standard input.

    Raises:
        typer.Exit: It cannot be read.
    """
    from interlock.serving.recordings.recording import RecordingError, read

    piped = str(file) == "-"
    try:
        return read(sys.stdin.buffer if piped else file)
    except RecordingError as error:
        fail(f"{'standard input' if piped else file}:{error.line}: {error.message}")
    except OSError as error:
        fail(f"{file}: {error.strerror}")
