"""Clients that load a server with many streams, at the least cost for each event, so that the server dominates the figures."""

from __future__ import annotations

import asyncio
import json
import socket
from random import Random
from time import perf_counter
from typing import Final
from urllib.parse import urlsplit

from alone.script import MODEL
from attrs import define, field

__all__ = ["Crowd", "Tally", "burst", "first_event", "unread"]

DELTA: Final = b".delta\n"
"""The end of the line that names an event of text or of arguments."""
EVENT: Final = b"event: "
LAST: Final = b"\r\n0\r\n\r\n"
"""The end of a chunked body."""

OPENING: Final = 300
"""The streams that begin in a second."""

SHORT: Final = 16
"""The tokens of a stream that is opened for its first event: the fewest that a request allows."""

WELL: Final = b"HTTP/1.1 200 "

SMALL: Final = 4096
"""The receive buffer of a client, in bytes, as small as possible."""


@define
class Tally:
    """The events that all clients have received.

    Args:
        tokens: Events of text or of arguments.
    """

    tokens: int = 0


class Reader(asyncio.Protocol):
    """One connection, which requests one stream at a time.

    Args:
        tally: The count of events.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._tail = b""
        self._asked = 0.0
        self.waited: float | None = None
        """Seconds from the request to its first event."""
        self.begun = asyncio.Event()
        """Set at the first event of the connection."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def ask(self, transport: asyncio.Transport, budget: int | None) -> asyncio.Future[None]:
        """Send a request, and return a future that is done at the end of its stream."""
        self.waited, self.ended = None, asyncio.get_running_loop().create_future()
        self._asked = perf_counter()
        transport.write(request(budget))
        return self.ended

    def data_received(self, data: bytes) -> None:
        """Count events, and detect the end of the stream."""
        self._tally.tokens += data.count(DELTA)
        if data.startswith(b"HTTP/1.1 ") and not data.startswith(WELL):
            self.ended.set_exception(RuntimeError(data.decode(errors="replace")))
        if self.waited is None and EVENT in data:
            self.waited = perf_counter() - self._asked
            self.begun.set()
        self._tail = (self._tail + data)[-len(LAST) :]
        if self._tail == LAST and not self.ended.done():
            self.ended.set_result(None)

    def connection_lost(self, _error: Exception | None) -> None:
        """Cancel the pending stream."""
        if not self.ended.done():
            self.ended.cancel()


def request(budget: int | None) -> bytes:
    """Return a request for a stream, of at most so many tokens."""
    body = json.dumps({"model": MODEL, "input": "Hi.", "stream": True, "store": False, "max_output_tokens": budget}).encode()
    head = (
        f"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _connected(url: str, tally: Tally) -> tuple[asyncio.Transport, Reader]:
    parts = urlsplit(url)
    return await asyncio.get_running_loop().create_connection(lambda: Reader(tally), parts.hostname, parts.port)


@define(eq=False)
class Crowd:
    """Clients that each always have an open stream.

    Args:
        url: The server's.
        streams: How many.
        tokens: Of a whole answer; the first stream of each client is shorter by chance, so that they do not end together.
    """

    url: str
    streams: int
    tokens: int
    tally: Tally = field(factory=Tally, init=False)
    _transports: list[asyncio.Transport] = field(factory=list[asyncio.Transport], init=False)
    _tasks: list[asyncio.Task[None]] = field(factory=list[asyncio.Task[None]], init=False)

    async def open(self) -> None:
        """Begin all streams, one after another, and wait until each has had its first event."""
        chance = Random(7)  # noqa: S311 - the same crowd each time
        readers: list[Reader] = []
        began = perf_counter()
        for number in range(self.streams):
            transport, reader = await _connected(self.url, self.tally)
            self._transports.append(transport)
            self._tasks.append(asyncio.create_task(self._read(transport, reader, chance.randrange(SHORT, self.tokens))))
            readers.append(reader)
            await asyncio.sleep(max(0.0, began + number / OPENING - perf_counter()))
        for reader in readers:
            await reader.begun.wait()

    async def _read(self, transport: asyncio.Transport, reader: Reader, first: int) -> None:
        budget: int | None = first
        while True:
            await reader.ask(transport, budget)
            budget = None

    async def leave(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        for transport in self._transports:
            transport.abort()
        await asyncio.wait(self._tasks)
        await asyncio.sleep(0)  # the sockets are closed in the next step of the loop, which may be the last


async def first_event(url: str) -> float:
    """Request a short stream over a new connection; return the seconds until its first event."""
    transport, reader = await _connected(url, Tally())
    await reader.ask(transport, SHORT)
    transport.abort()
    await asyncio.sleep(0)  # likewise
    assert reader.waited is not None  # noqa: S101 - it has ended
    return reader.waited


async def burst(url: str, streams: int) -> list[float]:
    """Send requests for short streams at once over open connections; return the seconds until the first event of each."""
    connected = [await _connected(url, Tally()) for _ in range(streams)]
    await asyncio.gather(*(reader.ask(transport, SHORT) for transport, reader in connected))
    for transport, _ in connected:
        transport.abort()
    await asyncio.sleep(0)  # likewise
    return [reader.waited for _, reader in connected if reader.waited is not None]


def unread(url: str) -> socket.socket:
    """Request a stream, and return its connection, which nobody reads."""
    parts = urlsplit(url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    client.connect((parts.hostname, parts.port))
    client.sendall(request(None))
    return client
