"""The memory of WebSockets: the latest response of each lane, in a dictionary bounded in bytes, with the requests in flight.

A response is kept as JSON, which takes a sixth of the memory of Python objects. If there is no room, the least recently used
response is evicted, whichever connection has it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from sys import getsizeof
from typing import Final

from attrs import define, field, frozen

from interlock.serving.requests.api_errors import ApiError
from interlock.serving.store import StoredResponse
from interlock.serving.store.chain import body_of, pack, put_together

NO_ROOM: Final = "websocket_stream_limit_reached"


@frozen
class CachedResponse:
    """A response without its output, and the items of its conversation, as JSON; the last `outputs` of these are its output."""

    id: str
    chunks: tuple[bytes, ...]
    outputs: int

    @classmethod
    def of(cls, stored: StoredResponse) -> CachedResponse:
        return cls(stored.id, (body_of(stored), *map(pack, stored.conversation)), len(stored.output))

    @property
    def size(self) -> int:
        return getsizeof(self.chunks) + sum(map(getsizeof, self.chunks))


@define(eq=False)
class SocketMemory:
    """The memory of all WebSockets of a process, at most `limit` bytes."""

    limit: int
    used: int = field(default=0, init=False)
    responses: OrderedDict[tuple[ConnectionMemory, str | None], CachedResponse] = field(
        factory=OrderedDict[tuple["ConnectionMemory", "str | None"], CachedResponse], init=False
    )
    """The latest responses by connection and lane, the least recently used first."""

    def reserve(self, size: int) -> None:
        """Reserve bytes, and evict responses to make room; raise an `ApiError` if there is still not enough."""
        while self.used + size > self.limit:
            if not self.responses:
                message = f"The WebSocket requests of this server would take more than {self.limit} bytes of memory."
                raise ApiError(400, message, param="stream_id", code=NO_ROOM)
            _, evicted = self.responses.popitem(last=False)
            self.used -= evicted.size
        self.used += size


@define(eq=False)
class ConnectionMemory:
    """The part of one connection: the latest responses of its lanes, and the bytes reserved for its requests."""

    _memory: SocketMemory
    _reserved: int = field(default=0, init=False)

    def reserve(self, size: int) -> None:
        """Reserve bytes for a request; raise an `ApiError` if there are not enough."""
        self._memory.reserve(size)
        self._reserved += size

    def release(self, size: int) -> None:
        self._memory.used -= size
        self._reserved -= size

    def store(self, lane: str | None, stored: StoredResponse) -> None:
        """Cache the latest response of a lane, if there is room for it."""
        self._discard(lane)
        cached = CachedResponse.of(stored)
        with suppress(ApiError):
            self._memory.reserve(cached.size)
            self._memory.responses[self, lane] = cached

    def take(self, lane: str | None, response_id: object) -> tuple[StoredResponse | None, int]:
        """Remove and return the latest response of a lane, with its bytes, which stay reserved; None if it has another id."""
        cached = self._memory.responses.get((self, lane))
        if cached is None or cached.id != response_id:
            return None, 0
        del self._memory.responses[self, lane]
        self._reserved += cached.size
        body, *items = cached.chunks
        return put_together(body, items, cached.outputs), cached.size

    def close(self, lanes: Iterable[str | None]) -> None:
        """Release all memory of the connection, which has ended, and had these lanes."""
        for lane in lanes:
            self._discard(lane)
        self.release(self._reserved)

    def _discard(self, lane: str | None) -> None:
        cached = self._memory.responses.pop((self, lane), None)
        if cached is not None:
            self._memory.used -= cached.size
