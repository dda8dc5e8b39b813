"""The memory of WebSocket connections, limited in bytes for each connection, each tenant and the process.

The latest response of each lane (the requests of one `stream_id`) is cached as JSON, which takes a sixth of the memory of Python
objects. If there is no room, the least recently used response is evicted.
"""

from __future__ import annotations

from collections import Counter
from sys import getsizeof
from typing import Final, TypeAlias

from attrs import define, field, frozen

from interlock.serving.requests.api_errors import ApiError
from interlock.serving.store import StoredResponse
from interlock.serving.store.chain import body_of, pack, put_together

NO_ROOM: Final = "websocket_stream_limit_reached"

Scope: TypeAlias = tuple[object, ...]
"""The process (an empty tuple), a tenant (its name), or a connection (its tenant's name and a unique object)."""


@frozen
class CachedResponse:
    """The latest response of a lane."""

    id: str
    chunks: tuple[bytes, ...] = ()
    """The response without its output, and the items of its conversation, as JSON; empty if evicted or never cached."""
    outputs: int = 0  # how many items at the end are its output
    size: int = 0


@define(eq=False)
class SocketMemory:
    """The memory of all connections of a process, with the limits of the process and of each tenant."""

    process_bytes: int = 2**30
    tenant_bytes: int = 2**29
    used: Counter[Scope] = field(factory=Counter[Scope], init=False)
    cache: dict[tuple[Scope, str | None], CachedResponse] = field(
        factory=dict[tuple[Scope, "str | None"], CachedResponse], init=False
    )
    """The latest responses by connection and lane, the least recently used first."""

    def for_connection(self, tenant: str, limit: int) -> ConnectionMemory:
        return ConnectionMemory(self, (tenant, object()), limit)

    def count(self, connection: Scope, size: int) -> None:
        """Add `size` to the bytes in use of a connection, its tenant and the process; a negative `size` releases bytes."""
        for length in range(len(connection) + 1):
            scope = connection[:length]
            self.used[scope] += size
            if not self.used[scope]:
                del self.used[scope]

    def evict(self, scope: Scope) -> bool:
        """Evict the least recently used response of a scope; return whether there was one."""
        for (connection, lane), cached in self.cache.items():
            if cached.chunks and connection[: len(scope)] == scope:
                self.cache[connection, lane] = CachedResponse(cached.id)
                self.count(connection, -cached.size)
                return True
        return False


@define(eq=False)
class ConnectionMemory:
    """The memory of one connection."""

    _memory: SocketMemory
    _scope: Scope
    _limit: int

    def reserve(self, size: int) -> None:
        """Reserve bytes, and evict responses to make room; raise an `ApiError` if there is still not enough."""
        memory = self._memory
        bounds = (("connection", self._limit), ("key", memory.tenant_bytes), ("server", memory.process_bytes))
        for length, (owner, limit) in zip((2, 1, 0), bounds, strict=True):
            scope = self._scope[:length]
            while memory.used[scope] + size > limit:
                if not memory.evict(scope):
                    message = f"The WebSocket requests of this {owner} would take more than {limit} bytes of memory."
                    raise ApiError(400, message, param="stream_id", code=NO_ROOM)
        memory.count(self._scope, size)

    def release(self, size: int) -> None:
        self._memory.count(self._scope, -size)

    def store(self, lane: str | None, stored: StoredResponse) -> None:
        """Cache the latest response of a lane, if there is room for it."""
        self.discard(lane)
        chunks = (body_of(stored), *map(pack, stored.conversation))
        cached = CachedResponse(stored.id, chunks, len(stored.output), getsizeof(chunks) + sum(map(getsizeof, chunks)))
        try:
            self.reserve(cached.size)
        except ApiError:
            cached = CachedResponse(stored.id)
        self._memory.cache[self._scope, lane] = cached

    def take(self, lane: str | None, response_id: object) -> tuple[StoredResponse | None, int]:
        """Remove and return the cached response of a lane, with its bytes, which stay reserved; None if it has another id."""
        cached = self._memory.cache.get((self._scope, lane))
        if cached is None or not cached.chunks or cached.id != response_id:
            return None, 0
        del self._memory.cache[self._scope, lane]
        body, *items = cached.chunks
        return put_together(body, items, cached.outputs), cached.size

    def was_evicted(self, lane: str | None, response_id: object) -> bool:
        """Return whether the latest response of a lane has this id but is not cached."""
        return self._memory.cache.get((self._scope, lane)) == CachedResponse(str(response_id))

    def discard(self, lane: str | None) -> None:
        cached = self._memory.cache.pop((self._scope, lane), None)
        if cached is not None:
            self.release(cached.size)

    def close(self) -> None:
        """Release all memory of the connection, which has ended."""
        for scope, lane in [*self._memory.cache]:
            if scope == self._scope:
                self.discard(lane)
        self.release(self._memory.used[self._scope])
