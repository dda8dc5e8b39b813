"""Sends requests to a server, and reads how much CPU time its process has taken."""

from __future__ import annotations

from asyncio import TaskGroup, run
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx

_TIMEOUT: Final = 300.0
_NANOSECONDS: Final = 1_000
"""In a microsecond."""


def cpu_time(pid: int) -> float:
    """Return the microseconds of CPU time that the threads of a process have used."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / _NANOSECONDS


def send(url: str, body: Mapping[str, object], streams: int) -> int:
    """Send a request some times at once, read the streams to their ends, and give the number of their bytes.

    Args:
        url: Where to.
        body: The request.
        streams: How many at once.
    """
    return run(_send(url, body, streams))


async def _send(url: str, body: Mapping[str, object], streams: int) -> int:
    async with httpx.AsyncClient(timeout=_TIMEOUT) as client, TaskGroup() as group:
        reading = [group.create_task(_read(client, url, body)) for _ in range(streams)]
    return sum(task.result() for task in reading)


async def _read(client: httpx.AsyncClient, url: str, body: Mapping[str, object]) -> int:
    async with client.stream("POST", url, json=body) as answer:
        answer.raise_for_status()
        return sum([len(piece) async for piece in answer.aiter_raw()])
