"""`interlock serve --engine vllm MODEL …`: starts `vllm serve` with the plugin, in the place of this process.

What follows is vLLM's own command line and is passed on as it is; nothing of vLLM is imported.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NoReturn

__all__ = ["launch", "vllm_arguments"]

ENGINE: Final = "--engine"
NAME: Final = "vllm"
PLUGINS: Final = "VLLM_PLUGINS"


def vllm_arguments(arguments: Sequence[str]) -> list[str] | None:
    """Return what `vllm serve` is to be called with.

    Args:
        arguments: Those of `interlock`.

    Returns:
        None if vLLM is not asked for.
    """
    command, *rest = arguments or [""]
    if command != "serve":
        return None
    if f"{ENGINE}={NAME}" in rest:
        rest.remove(f"{ENGINE}={NAME}")
        return rest
    for place, pair in enumerate(pairwise(rest)):
        if pair == (ENGINE, NAME):
            return rest[:place] + rest[place + 2 :]
    return None


def plugins(environment: Mapping[str, str]) -> str:
    """Return the value of `VLLM_PLUGINS` that loads Interlock beside what is loaded already.

    Args:
        environment: Of this process.
    """
    named = [name for name in environment.get(PLUGINS, "").split(",") if name]
    return ",".join(named if "interlock" in named else [*named, "interlock"])


def launch(arguments: Sequence[str]) -> NoReturn:
    """Become `vllm serve`.

    Args:
        arguments: What follows it.

    Raises:
        SystemExit: vLLM is not installed.
    """
    beside = Path(sys.executable).with_name("vllm")
    program = str(beside) if beside.exists() else shutil.which("vllm")
    if program is None:
        sys.exit("interlock: vLLM is not installed; install it with: pip install 'interlock[vllm]'")
    os.execve(program, [program, "serve", *arguments], {**os.environ, PLUGINS: plugins(os.environ)})  # noqa: S606 - no shell is wanted
