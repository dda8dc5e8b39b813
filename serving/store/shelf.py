"""Items in memory: each is held once, and a conversation that goes on from another shares all that they have in common.

A conversation is a chain of links from its last item to its first. What holds a conversation holds its last link; a link that
nothing holds any more goes, and with the last link of an item, the item.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from sys import getsizeof
from typing import Final, TypeAlias, cast

from attrs import define, field

from interlock.serving.requests.conversation import Item
from interlock.serving.store.packing import pack, unpack

__all__ = ["Link", "Shelf", "chain", "unpacked"]

PER_ITEM: Final = 700
"""Bytes that the tables take for an item beside its JSON, as measured: its id, and its entries."""
PER_LINK: Final = 400
"""The same for a link."""


@define(eq=False)
class Link:
    """One item of a conversation.

    Args:
        before: The item before it; None for the first.
        item: The item as JSON.
        holders: How many links and responses go on from it.
    """

    before: Link | None
    item: bytes
    holders: int = 0


_Place: TypeAlias = tuple[str, Link | None, bytes]


@define(eq=False)
class Shelf:
    """The items of all conversations."""

    size: int = field(default=0, init=False)
    """The bytes of memory that they take."""
    _items: dict[tuple[str, bytes], bytes] = field(factory=dict[tuple[str, bytes], bytes], init=False)
    """Every item of a tenant, by itself, so that equal ones are held once."""
    _holders: Counter[tuple[str, bytes]] = field(factory=Counter[tuple[str, bytes]], init=False)
    """In how many places each item is."""
    _named: dict[tuple[str, str], bytes] = field(factory=dict[tuple[str, str], bytes], init=False)
    """The items by their ids; of two with one id, the one that came last."""
    _links: dict[_Place, Link] = field(factory=dict[_Place, Link], init=False)

    def __len__(self) -> int:
        """Return how many items there are."""
        return len(self._items)

    def needed(self, packed: Iterable[bytes]) -> int:
        """Return the bytes that a conversation takes if it shares nothing.

        Args:
            packed: Its items as JSON.
        """
        return sum(PER_LINK + PER_ITEM + getsizeof(each) for each in packed)

    def find(self, tenant: str, item_id: str) -> Item | None:
        """Return an item by its id.

        Args:
            tenant: To whom it belongs.
            item_id: The id.
        """
        packed = self._named.get((tenant, item_id))
        return None if packed is None else unpacked(packed)

    def hold(self, tenant: str, items: Iterable[Item]) -> Link | None:
        """Hold a conversation, and return its last link; None for one without items.

        Args:
            tenant: To whom it belongs.
            items: Its items, each with an id.
        """
        link: Link | None = None
        for item in items:
            place = tenant, link, self.take(tenant, item)
            following = self._links.get(place)
            if following is None:
                self._links[place] = following = Link(link, place[2])
                self.size += PER_LINK
                if link is not None:
                    link.holders += 1
            else:
                self.drop(tenant, place[2])
            link = following
        if link is not None:
            link.holders += 1
        return link

    def let_go(self, tenant: str, link: Link | None) -> None:
        """Hold a conversation no longer.

        Args:
            tenant: To whom it belongs.
            link: What `hold` returned.
        """
        while link is not None:
            link.holders -= 1
            if link.holders:
                return
            del self._links[tenant, link.before, link.item]
            self.size -= PER_LINK
            self.drop(tenant, link.item)
            link = link.before

    def take(self, tenant: str, item: Item) -> bytes:
        """Hold one item, and return it as JSON.

        Args:
            tenant: To whom it belongs.
            item: The item, with an id.
        """
        packed = pack(item)
        key = tenant, packed
        held = self._items.get(key)
        if held is None:
            self._items[key] = held = packed
            self.size += PER_ITEM + getsizeof(packed)
        self._holders[key] += 1
        self._named[tenant, str(item["id"])] = held
        return held

    def drop(self, tenant: str, packed: bytes) -> None:
        """Hold one item no longer.

        Args:
            tenant: To whom it belongs.
            packed: What `take` returned.
        """
        key = tenant, packed
        self._holders[key] -= 1
        if self._holders[key]:
            return
        held = self._items.pop(key)
        del self._holders[key]
        self.size -= PER_ITEM + getsizeof(held)
        name = tenant, str(unpacked(held)["id"])
        if self._named.get(name) is held:
            del self._named[name]


def chain(link: Link | None) -> Iterator[bytes]:
    """Yield the items of a conversation as JSON, from the last to the first.

    Args:
        link: Its last link.
    """
    while link is not None:
        yield link.item
        link = link.before


def unpacked(packed: bytes) -> Item:
    """Return an item that was packed.

    Args:
        packed: It, as JSON.
    """
    return cast("Item", unpack(packed))
