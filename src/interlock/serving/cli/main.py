"""The entry point of the command `interlock`, which imports no third-party package before it can report a missing one."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn, TextIO, cast

import interlock

_EXTRAS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("click", "openai_harmony", "rich"), "cli"),
    **dict.fromkeys(("apsw", "httptools", "httpx2", "mcp", "mcp_types", "starlette", "uvicorn"), "serve"),
}
"""The extra of Interlock that installs each package."""
_DISTRIBUTIONS: Final[Mapping[str, str]] = {"openai_harmony": "oss-harmony", "mcp_types": "mcp"}
"""The pip names of packages whose module has another name."""


def main() -> None:
    """Run the command."""
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
        sys.exit(128 + signal.SIGINT)
    except Exception:  # noqa: BLE001 - status 1, which Python would exit with, is a verdict: `check` and `verify` found faults
        traceback.print_exc()
        sys.exit(2)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Interrupt the command, and let a second Ctrl-C end the process silently."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise KeyboardInterrupt


def _give_up(error: OSError) -> NoReturn:
    """Report an `OSError` that no command handles, usually a failed write of its output, and exit."""
    with suppress(OSError):
        file = "" if error.filename is None else f"{error.filename}: "
        print(f"interlock: {file}{error.strerror or error}", file=sys.stderr, flush=True)  # noqa: T201 - a command prints
    # Python flushes the buffers again when it exits, which would fail with a traceback.
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(2)


def _run() -> None:
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):  # works without any extra
        print(f"interlock {interlock.__version__}")  # noqa: T201 - a command prints
        return
    if (options := vllm_arguments(arguments)) is not None:
        launch_vllm(options)
    gc.disable()  # imports make many objects and little garbage; `app` enables the collector before a command runs
    try:
        from interlock.serving.cli.commands import run

        run()
    except ModuleNotFoundError as error:
        package = f"{error.name}".partition(".")[0]
        if package not in _EXTRAS:
            raise
        install = f"pip install {_DISTRIBUTIONS.get(package, package)}"
        everything = f"in a checkout of Interlock, pip install '.[{_EXTRAS[package]}]' installs everything"
        sys.exit(f"interlock: this command needs {package}: {install} ({everything})")
    finally:
        gc.enable()


def vllm_arguments(arguments: Sequence[str]) -> list[str] | None:
    """Return the arguments for `vllm serve`, or None if the command is not `serve --engine vllm`."""
    command, *rest = arguments or [""]
    if command != "serve":
        return None
    if "--engine=vllm" in rest:
        rest.remove("--engine=vllm")
        return rest
    for place, pair in enumerate(pairwise(rest)):
        if pair == ("--engine", "vllm"):
            return rest[:place] + rest[place + 2 :]
    return None


def plugins(environment: Mapping[str, str]) -> str:
    """Return `VLLM_PLUGINS`, the names of the plugins that vLLM loads, with Interlock among them."""
    names = [name for name in environment.get("VLLM_PLUGINS", "").split(",") if name]
    return ",".join(names if "interlock" in names else [*names, "interlock"])


def launch_vllm(arguments: Sequence[str]) -> NoReturn:
    """Replace this process with `vllm serve` and the plugin."""
    neighbour = Path(sys.executable).with_name("vllm")
    program = str(neighbour) if neighbour.exists() else shutil.which("vllm")
    if program is None:
        sys.exit("interlock: vLLM is not installed; in a checkout of Interlock: pip install '.[vllm]'")
    environment = {**os.environ, "VLLM_PLUGINS": plugins(os.environ)}
    os.execve(program, [program, "serve", *arguments], environment)  # noqa: S606 - no shell is wanted
