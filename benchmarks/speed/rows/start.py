"""The start of the command, beside an interpreter that does nothing: CPU time of a whole process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from types import ModuleType

from speed.size import Size
from speed.timing import FLOOR, INTERLOCK, Round, Row

_ROOT = Path(__file__).parents[3]
_COMMANDS = {
    "--help": ("--help",),
    "check": ("check", f"{_ROOT / 'examples' / 'streams' / 'message.sse'}"),
    "diagram": ("diagram", "message"),
    "replay of text": ("replay", f"{_ROOT / 'examples' / 'recordings' / 'text.jsonl'}"),
    "replay of harmony": ("replay", f"{_ROOT / 'examples' / 'recordings' / 'answer.jsonl'}"),
}
_MILLISECONDS = 1_000  # in a second


def rows(size: Size, peer: ModuleType | None) -> list[Row]:  # noqa: ARG001 - vLLM has nothing of the kind
    """Return a row for each command."""
    floor = _process("-c", "pass")
    return [
        Row("start", f"interlock {name}", "ms", {INTERLOCK: _process("-m", "interlock", *arguments), FLOOR: floor}, size.repeats)
        for name, arguments in _COMMANDS.items()
    ]


def _process(*arguments: str) -> Round:
    """Return what runs Python once, and measures the CPU time of it."""

    def measure() -> float:
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own command
        after = getrusage(RUSAGE_CHILDREN)
        return _MILLISECONDS * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)

    return measure
