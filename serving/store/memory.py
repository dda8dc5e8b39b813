"""A store in the memory of the process, bounded by a count and by bytes: the response that was not used longest goes first.

What it holds is JSON in bytes and no objects, which would take six times as much. Items that several responses share, as those
of one conversation do, are held once.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from sys import getsizeof
from typing import Final, cast

from attrs import define, field, frozen

from interlock.serving.requests.conversation import Item
from interlock.serving.store.packing import pack, unpack
from interlock.serving.store.store import StoredResponse

__all__ = ["MAX_BYTES", "MAX_RESPONSES", "MemoryStore"]

MAX_RESPONSES: Final = 10_000
MAX_BYTES: Final = 256 * 2**20

PER_ITEM: Final = 700
"""Bytes that the tables take for an item beside its JSON, as measured: its id, and its entries."""
PER_RESPONSE: Final = 1200
"""The same for a response."""


@frozen
class Held:
    """A response as it is held.

    Args:
        response: The response object without its output, as JSON.
        items: The conversation that it answered, each item as JSON.
        output: Its own items.
    """

    response: bytes
    items: tuple[bytes, ...]
    output: tuple[bytes, ...]

    @classmethod
    def of(cls, stored: StoredResponse) -> Held:
        """Return a response in this form."""
        response: dict[str, object] = {**stored.response, "output": []}
        return cls(pack(response), tuple(map(pack, stored.items)), tuple(map(pack, stored.output)))

    def stored(self) -> StoredResponse:
        """Return the response that it was."""
        response = cast("dict[str, object]", unpack(self.response))
        items, output = (tuple(cast("Item", unpack(each)) for each in held) for held in (self.items, self.output))
        return StoredResponse({**response, "output": [*output]}, items)

    @property
    def size(self) -> int:
        """The bytes that it takes beside its items."""
        return PER_RESPONSE + sum(map(getsizeof, (self.response, self.items, self.output)))


@define(eq=False)
class MemoryStore:
    """Holds responses until the process ends, or until there are too many; see `ResponseStore`.

    Args:
        max_responses: How many responses it holds.
        max_bytes: How many bytes of memory they may take. A response that is larger alone is not held.
    """

    max_responses: int = MAX_RESPONSES
    max_bytes: int = MAX_BYTES
    _held: OrderedDict[str, Held] = field(factory=OrderedDict[str, Held], init=False)
    """The responses; the one that was used last is the last."""
    _bytes: int = field(default=0, init=False)
    _items: dict[bytes, bytes] = field(factory=dict[bytes, bytes], init=False)
    """Every item, by itself, so that equal ones are held once."""
    _holders: Counter[bytes] = field(factory=Counter[bytes], init=False)
    """In how many places each item is."""
    _named: dict[str, bytes] = field(factory=dict[str, bytes], init=False)
    """The items by their ids; of two with one id, the one that came last."""

    @property
    def held_bytes(self) -> int:
        """The bytes of memory that the responses take."""
        return self._bytes

    async def put(self, stored: StoredResponse) -> None:
        """Store a response; others are evicted to make room for it."""
        held = Held.of(stored)
        alone = held.size + sum(PER_ITEM + getsizeof(each) for each in {*held.items, *held.output})
        if alone > self.max_bytes:
            return
        await self.delete(stored.id)
        items, output = (tuple(self._hold(each) for each in some) for some in (held.items, held.output))
        for item, packed in zip(stored.conversation, (*items, *output), strict=True):
            self._named[str(item["id"])] = packed
        self._held[stored.id] = held = Held(held.response, items, output)
        self._bytes += held.size
        while len(self._held) > self.max_responses or self._bytes > self.max_bytes:
            self._let_go(next(iter(self._held)))

    async def get(self, response_id: str) -> StoredResponse | None:
        """Return a response, which is now the one used last."""
        if response_id not in self._held:
            return None
        self._held.move_to_end(response_id)
        return self._held[response_id].stored()

    async def delete(self, response_id: str) -> bool:
        """Delete a response."""
        if response_id not in self._held:
            return False
        self._let_go(response_id)
        return True

    async def find(self, item_ids: Iterable[str]) -> Mapping[str, Item]:
        """Return items of the responses that are held."""
        return {item_id: cast("Item", unpack(self._named[item_id])) for item_id in item_ids if item_id in self._named}

    def _hold(self, item: bytes) -> bytes:
        if item not in self._items:
            self._items[item] = item
            self._bytes += PER_ITEM + getsizeof(item)
        self._holders[item] += 1
        return self._items[item]

    def _let_go(self, response_id: str) -> None:
        held = self._held.pop(response_id)
        self._bytes -= held.size
        for item in (*held.items, *held.output):
            self._holders[item] -= 1
            if not self._holders[item]:
                del self._holders[item], self._items[item]
                self._bytes -= PER_ITEM + getsizeof(item)
                name = str(cast("Item", unpack(item))["id"])
                if self._named.get(name) is item:
                    del self._named[name]
