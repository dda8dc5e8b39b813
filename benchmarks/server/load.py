"""Sends requests to a server, reads the streams at the least cost, and reads the CPU time of its process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final
from urllib.parse import urlsplit

from attrs import define, field

_TIMEOUT: Final = 300.0
_NANOSECONDS: Final = 1_000
"""Nanoseconds in a microsecond."""

MARK: Final = b"@@"
"""The mark in a stream at the start of the measured part."""

_HEAD: Final = b"HTTP/1.1 200 "
_END: Final = b"0\r\n\r\n"
"""The end of a stream; an answer that is not streamed ends with its JSON object."""


def cpu_time(pid: int) -> float:
    """Return the microseconds of CPU time that the threads of a process have used."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / _NANOSECONDS


@define(eq=False)
class Reading(asyncio.Protocol):
    """One request on its own connection, and the answer.

    Args:
        request: The bytes of the request.
        on_mark: Called at the mark.
    """

    _request: bytes
    _on_mark: Callable[[], object]
    ended: asyncio.Future[None] = field(factory=lambda: asyncio.get_running_loop().create_future(), init=False)
    """Done when the connection is closed or lost."""
    times: list[float] = field(factory=list[float], init=False)
    """The time of each chunk, in seconds of a clock of the process."""
    _pieces: list[bytes] = field(factory=list[bytes], init=False)
    _marked: bool = field(default=False, init=False)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101 - asyncio's own
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Keep a chunk."""
        self.times.append(perf_counter())
        self._pieces.append(data)
        if not self._marked and MARK in data:
            self._marked = True
            self._on_mark()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self.ended.done():
            return
        if exc is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(exc)

    @property
    def data(self) -> bytes:
        """All received bytes, including the head of the answer and the sizes of its chunks."""
        return b"".join(self._pieces)


async def read(url: str, body: Mapping[str, object], streams: int, on_mark: Callable[[], object]) -> list[Reading]:
    """Send a request several times at once, and read the answers to their ends.

    Args:
        url: Where to.
        body: The request.
        streams: The number of concurrent requests.
        on_mark: Called at the mark in the last of them.

    Raises:
        RuntimeError: An answer is an error, or a stream without an end.
    """
    missing = streams

    def marked() -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            on_mark()

    readings = [await begin(url, body, marked) for _ in range(streams)]
    await end(readings)
    return readings


async def end(readings: Sequence[Reading]) -> None:
    """Wait for the ends of answers.

    Raises:
        RuntimeError: An answer is an error, or a stream without an end.
    """
    async with asyncio.timeout(_TIMEOUT):
        await asyncio.gather(*(reading.ended for reading in readings))
    for reading in readings:
        data = reading.data
        if not data.startswith(_HEAD) or not data.endswith((_END, b"}")):
            raise RuntimeError(f"{data[:1000]!r} … {data[-500:]!r}")


async def begin(url: str, body: Mapping[str, object], on_mark: Callable[[], object] = lambda: None) -> Reading:
    """Send a request.

    Args:
        url: Where to.
        body: The request.
        on_mark: Called at the mark.
    """
    parts, sent = urlsplit(url), json.dumps(body).encode()
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\nContent-Type: application/json\r\n"
    request = b"%bContent-Length: %d\r\n\r\n%b" % (head.encode(), len(sent), sent)
    loop = asyncio.get_running_loop()
    _, reading = await loop.create_connection(lambda: Reading(request, on_mark), parts.hostname, parts.port)
    return reading
