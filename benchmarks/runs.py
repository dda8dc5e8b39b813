"""What a page says of the run behind its figures: the day, the commit, the command and the machine."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = "interlock", "vllm", "openai", "pydantic", "orjson", "oss-harmony"


def this_run() -> dict[str, Any]:
    """Return a description of the run of this process, as JSON for its results."""
    return {"date": datetime.now(UTC).date().isoformat(), "commit": _commit(), "command": _command(), "machine": _machine()}


def with_run(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with the run of this process; those that an earlier run measured keep theirs."""
    run = this_run()
    return [{"run": run, **row} for row in rows]


def described(run: Mapping[str, Any]) -> str:
    """Return a run as a sentence of a page."""
    machine = ", ".join(f"{name} {value}" for name, value in run["machine"].items())
    return f"Run of {run['date']}, commit {run['commit']}: `{run['command']}`; {machine}."


def one_of(names: Collection[str]) -> Callable[[str], str]:
    """Return a type of an argument, for any number of them; `choices` would refuse that there are none."""

    def name(text: str) -> str:
        if text not in names:
            raise ArgumentTypeError(f"{text!r} is none of {', '.join(names)}")
        return text

    return name


def _commit() -> str:
    """Return the checked-out commit, with a plus if tracked files differ from it; "unknown" outside of a repository."""
    command = ("git", "-C", str(ROOT), "describe", "--always", "--abbrev=8", "--exclude=*", "--dirty=+")
    return subprocess.run(command, capture_output=True, check=False, text=True).stdout.strip() or "unknown"  # noqa: S603 - our own


def _command() -> str:
    script = Path(sys.argv[0]).resolve()
    return shlex.join([str(script.relative_to(ROOT)) if script.is_relative_to(ROOT) else script.name, *sys.argv[1:]])


def _machine() -> dict[str, str]:
    return {"processor": _processor(), "python": platform.python_version(), **dict(_versions())}


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _versions() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for name in (package, f"{package}-cpu"):
            try:
                yield package, version(name)
            except PackageNotFoundError:
                continue
            break
