"""The way into the command `interlock`. Where a package is not installed, it says which extra brings it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType
from typing import Final, NoReturn, TextIO, cast

import interlock
from interlock.serving.cli.launch import launch, vllm_arguments

_EXTRAS: Final[Mapping[str, str]] = {
    "apsw": "sqlite",
    "openai_harmony": "cli",
    "redis": "redis",
    "rich": "cli",
    "typer": "cli",
    "httpx2": "serve",
    "mcp": "serve",
    "mcp_types": "serve",
    "starlette": "serve",
    "uvicorn": "serve",
}
"""The extra that brings a package, for all that the command may lack."""


UNWRITTEN: Final = 2
"""The exit status when the output cannot be written."""


def main() -> None:
    """Run the command.

    Raises:
        SystemExit: The command ended with this status.
    """
    signal.signal(signal.SIGINT, _interrupt)
    if cast("TextIO | None", sys.stdout) is None:  # it was closed before the command began
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()
    except OSError as error:
        _give_up(error)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit status after Ctrl-C, as of a program that the signal ends."""


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Interrupt the command by the first Ctrl-C, and let a second one end the process without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise KeyboardInterrupt


def _give_up(error: OSError) -> NoReturn:
    """End because something failed that no command expects: most likely its output cannot be written.

    Raises:
        SystemExit: Always.
    """
    with suppress(OSError):
        about = "" if error.filename is None else f"{error.filename}: "
        print(f"interlock: {about}{error.strerror or error}", file=sys.stderr, flush=True)  # noqa: T201 - a command prints
    # What is still in a buffer would fail again when Python ends, with a traceback.
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(UNWRITTEN)


def _run() -> None:
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):  # in every install, with no extra at all
        print(f"interlock {interlock.__version__}")  # noqa: T201 - a command prints
        return
    if (passed := vllm_arguments(arguments)) is not None:
        launch(passed)
    try:
        from interlock.serving.cli.commands import app

        app()
    except ModuleNotFoundError as error:
        package = f"{error.name}".partition(".")[0]
        extra = _EXTRAS.get(package)
        if extra is None:
            raise
        sys.exit(f"interlock: this command needs {package}; install it with: pip install 'interlock[{extra}]'")
