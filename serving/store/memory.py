"""A store in the memory of the process, bounded by a count and by bytes: who was not used longest goes first."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

from attrs import define, field

from interlock.events.json import dumps
from interlock.serving.requests.conversation import Item
from interlock.serving.store.store import StoredResponse

__all__ = ["MemoryStore"]

MAX_RESPONSES: Final = 10_000
MAX_BYTES: Final = 256 * 2**20


@define(eq=False)
class MemoryStore:
    """Holds responses until the process ends, or until there are too many; see `ResponseStore`.

    Args:
        max_responses: How many responses it holds.
        max_bytes: How many bytes of JSON it holds. What several responses have in common counts for each of them, so that
            the bound holds whichever of them go. A response that is larger alone is not held.
    """

    max_responses: int = MAX_RESPONSES
    max_bytes: int = MAX_BYTES
    _held: OrderedDict[str, tuple[StoredResponse, int]] = field(factory=OrderedDict[str, tuple[StoredResponse, int]], init=False)
    """The responses with their sizes; the one that was used last is the last."""
    _bytes: int = field(default=0, init=False)
    _items: dict[str, Item] = field(factory=dict[str, Item], init=False)
    _holders: Counter[str] = field(factory=Counter[str], init=False)
    """In how many of the conversations each item is, by its id."""

    async def put(self, stored: StoredResponse) -> None:
        """Hold a response; others go to make room for it."""
        size = len(dumps([stored.response, stored.items]))
        if size > self.max_bytes:
            return
        await self.delete(stored.id)
        self._held[stored.id] = (stored, size)
        self._bytes += size
        items = {str(item["id"]): item for item in stored.conversation}
        self._items.update(items)
        self._holders.update(items.keys())
        while len(self._held) > self.max_responses or self._bytes > self.max_bytes:
            self._let_go(next(iter(self._held)))

    async def get(self, response_id: str) -> StoredResponse | None:
        """Give a response, which is now the one used last."""
        if response_id not in self._held:
            return None
        self._held.move_to_end(response_id)
        return self._held[response_id][0]

    async def delete(self, response_id: str) -> bool:
        """Let a response go."""
        if response_id not in self._held:
            return False
        self._let_go(response_id)
        return True

    async def find(self, item_ids: Iterable[str]) -> Mapping[str, Item]:
        """Give items of the responses that are held."""
        return {item_id: self._items[item_id] for item_id in item_ids if item_id in self._items}

    def _let_go(self, response_id: str) -> None:
        stored, size = self._held.pop(response_id)
        self._bytes -= size
        for item_id in {str(item["id"]) for item in stored.conversation}:
            self._holders[item_id] -= 1
            if not self._holders[item_id]:
                del self._holders[item_id], self._items[item_id]
