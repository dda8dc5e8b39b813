"""The way into the command `interlock`, which works, to say what is missing, where the extra `serve` is not installed."""

from __future__ import annotations

import sys

from interlock.serving.vllm.launch import launch, vllm_arguments

_NEEDED = frozenset({"httpx2", "jsonschema", "mcp", "mcp_types", "openai_harmony", "rich", "starlette", "typer", "uvicorn"})


def main() -> None:
    """Run the command.

    Raises:
        SystemExit: Always, with the command's status.
    """
    if (passed := vllm_arguments(sys.argv[1:])) is not None:
        launch(passed)
    try:
        from interlock.serving.cli.commands import app  # noqa: PLC0415 - it needs packages that may not be there
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        sys.exit(f"interlock: the command needs {error.name}; install it with: pip install 'interlock[serve]'")
    app()
