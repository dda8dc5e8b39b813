"""A server process: its start, CPU time and memory."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen
from server.load import cpu_time

__all__ = ["Process", "started"]

HERE: Final = Path(__file__).parents[1]
ADDRESS: Final = re.compile(r"http://([\d.]+:\d+)")
LISTENING: Final = re.compile(r"listening on ([\d.]+:\d+)")
"""The message of agentic-api."""
STATES: Final = ("01", "08")
"""Established, and closed by the client alone."""


@frozen
class Process:
    """A running server.

    Args:
        url: Its URL.
        pid: The number of its process.
    """

    url: str
    pid: int

    @property
    def port(self) -> int:
        """Its port."""
        return urlsplit(self.url).port or 0

    @property
    def microseconds(self) -> float:
        """Its CPU time so far."""
        return cpu_time(self.pid)

    @property
    def megabytes(self) -> float:
        """Its memory, in MB."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS")) / 1e6

    def queued(self) -> list[int]:
        """Return the bytes that the system holds for each of its clients: sent and not received, or not sent."""
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        own = f":{self.port:04X}"
        return [int(line[4].partition(":")[0], 16) for line in lines if line[1].endswith(own) and line[3] in STATES]


@contextmanager
def started(*arguments: str, program: str = sys.executable, address: re.Pattern[str] = ADDRESS) -> Generator[Process]:
    """Start a server, and end it.

    Args:
        arguments: The arguments of the program; the server writes its address to its output.
        program: Python, or another server.
        address: The pattern of its address in the output.
    """
    command: Sequence[str] = [program, *arguments]
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=HERE, text=True, **out) as process:  # noqa: S603 - our own
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        try:
            place = next(found[1] for line in process.stdout if (found := address.search(line)))
            yield Process(f"http://{place}", process.pid)
        finally:
            process.kill()
