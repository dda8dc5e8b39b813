"""What connections hold: bounded in bytes for each of them, for each tenant and for the process.

The response that a lane may go on from is held as JSON in bytes, a sixth of what its objects would take. Where there is no room,
the lane that was not used longest lets go of its own.
"""

from __future__ import annotations

from collections import Counter
from sys import getsizeof
from typing import Final, TypeAlias

from attrs import define, field, frozen

from interlock.serving.requests.api_errors import ApiError
from interlock.serving.store import StoredResponse
from interlock.serving.store.chain import body_of, pack, put_together

__all__ = ["NO_ROOM", "Memory", "Share"]

MIB: Final = 2**20
NO_ROOM: Final = "websocket_stream_limit_reached"

Scope: TypeAlias = tuple[object, ...]
"""The process (nothing), a tenant (its name), or a connection (its tenant's name, and an object of its own)."""


@frozen
class Kept:
    """A response as a lane holds it.

    Args:
        id: Its id.
        packed: The response without its output, and the items of its conversation, as JSON; nothing once it was let go.
        outputs: How many of the last items are its output.
        size: Bytes that it takes.
    """

    id: str
    packed: tuple[bytes, ...] = ()
    outputs: int = 0
    size: int = 0


@define(eq=False)
class Memory:
    """What the connections of a process hold.

    Args:
        process_bytes: What all of them may hold.
        tenant_bytes: What those of one tenant may hold.
    """

    process_bytes: int = 1024 * MIB
    tenant_bytes: int = 512 * MIB
    used: Counter[Scope] = field(factory=Counter[Scope], init=False)
    """The bytes that are held, in each scope that holds any."""
    kept: dict[tuple[Scope, str | None], Kept] = field(factory=dict[tuple[Scope, "str | None"], Kept], init=False)
    """What lanes hold, in the order in which they were used."""

    def share(self, tenant: str, limit: int) -> Share:
        """Return the share of a new connection.

        Args:
            tenant: Whose it is.
            limit: Bytes that it may hold.
        """
        return Share(self, (tenant, object()), limit)

    def hold(self, place: Scope, size: int) -> None:
        """Count bytes for a connection, or free them if they are fewer than none."""
        for length in range(len(place) + 1):
            self.used[place[:length]] += size
            if not self.used[place[:length]]:
                del self.used[place[:length]]

    def let_go(self, scope: Scope) -> bool:
        """Let go of what was not used longest in a scope, and return whether there was anything."""
        for (place, name), kept in self.kept.items():
            if kept.packed and place[: len(scope)] == scope:
                self.kept[place, name] = Kept(kept.id)
                self.hold(place, -kept.size)
                return True
        return False


@define(eq=False)
class Share:
    """What one connection holds.

    Args:
        memory: Of the process.
        place: The scope of the connection.
        limit: Bytes that it may hold.
    """

    _memory: Memory
    _place: Scope
    _limit: int

    def hold(self, size: int) -> None:
        """Count bytes that are held from now on, and make room for them.

        Args:
            size: How many.

        Raises:
            ApiError: There is no room for them.
        """
        memory = self._memory
        bounds = (("connection", self._limit), ("key", memory.tenant_bytes), ("server", memory.process_bytes))
        for length, (who, limit) in zip((2, 1, 0), bounds, strict=True):
            scope = self._place[:length]
            while memory.used[scope] + size > limit:
                if not memory.let_go(scope):
                    message = f"What the WebSockets of this {who} hold would be larger than {limit} bytes."
                    raise ApiError(400, message, param="stream_id", code=NO_ROOM)
        memory.hold(self._place, size)

    def free(self, size: int) -> None:
        """Count bytes no longer.

        Args:
            size: How many.
        """
        self._memory.hold(self._place, -size)

    def keep(self, name: str | None, stored: StoredResponse) -> None:
        """Hold the response that ended last in a lane, if there is room for it.

        Args:
            name: Of the lane.
            stored: The response.
        """
        self.forget(name)
        packed = (body_of(stored), *map(pack, stored.conversation))
        kept = Kept(stored.id, packed, len(stored.output), getsizeof(packed) + sum(map(getsizeof, packed)))
        try:
            self.hold(kept.size)
        except ApiError:
            kept = Kept(stored.id)
        self._memory.kept[self._place, name] = kept

    def recall(self, name: str | None, response_id: object) -> tuple[StoredResponse | None, int]:
        """Return the response that a lane holds, and hold it in the lane no longer.

        Args:
            name: Of the lane.
            response_id: The id that the response must have.

        Returns:
            None if it is not there, and the bytes that go on to be counted.
        """
        kept = self._memory.kept.get((self._place, name))
        if kept is None or not kept.packed or kept.id != response_id:
            return None, 0
        del self._memory.kept[self._place, name]
        body, *items = kept.packed
        return put_together(body, items, kept.outputs), kept.size

    def has_let_go(self, name: str | None, response_id: object) -> bool:
        """Return whether a lane would hold a response if there had been room.

        Args:
            name: Of the lane.
            response_id: The id of the response.
        """
        return self._memory.kept.get((self._place, name)) == Kept(str(response_id))

    def forget(self, name: str | None) -> None:
        """Hold nothing more for a lane.

        Args:
            name: Of the lane.
        """
        kept = self._memory.kept.pop((self._place, name), None)
        if kept is not None:
            self.free(kept.size)

    def close(self) -> None:
        """Hold nothing more: the connection has ended."""
        for place, name in [*self._memory.kept]:
            if place == self._place:
                self.forget(name)
        self.free(self._memory.used[self._place])
