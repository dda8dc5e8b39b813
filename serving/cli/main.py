"""The way into the command `interlock`. Where a package is not installed, it says which extra brings it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

import interlock
from interlock.serving.vllm.launch import launch, vllm_arguments

_EXTRAS: Final[Mapping[str, str]] = {
    "openai_harmony": "cli",
    "rich": "cli",
    "typer": "cli",
    "httpx2": "serve",
    "jsonschema": "serve",
    "mcp": "serve",
    "mcp_types": "serve",
    "starlette": "serve",
    "uvicorn": "serve",
}
"""The extra that brings a package, for all that the command may lack."""


def main() -> None:
    """Run the command.

    Raises:
        SystemExit: The command ended with this status.
    """
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
