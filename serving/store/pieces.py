"""A response in pieces, as a store keeps it: its body, and its conversation as items that each are stored once.

A conversation is a chain of links: each names an item and the link before it, by digests of what they hold. So conversations that
go on from one another share the links that they have in common, and a turn of a long one adds only its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, cast

from attrs import field, frozen

from interlock.serving.requests.conversation import Item
from interlock.serving.store.packing import pack, unpack
from interlock.serving.store.values import StoredResponse

__all__ = ["Piece", "body_of", "links_of", "pieces_of", "put_together"]

DIGEST: Final = 16
"""Bytes of a digest: nobody makes two items with one."""


@frozen
class Piece:
    """An item.

    Args:
        digest: Of the tenant and the item.
        id: The item's id.
        packed: The item as JSON.
    """

    digest: bytes
    id: str
    packed: bytes = field(repr=False)


def pieces_of(tenant: str, items: Iterable[Item]) -> tuple[Piece, ...]:
    """Return items as they are stored.

    Args:
        tenant: To whom they belong: tenants share nothing.
        items: The items, each with an id.
    """
    root = _digest(tenant.encode())
    return tuple(Piece(_digest(root, packed), str(item["id"]), packed) for item in items for packed in [pack(item)])


def links_of(tenant: str, pieces: Sequence[Piece]) -> list[bytes]:
    """Return the digests of the links of a conversation, in its order.

    Args:
        tenant: To whom it belongs.
        pieces: Its items.
    """
    links: list[bytes] = []
    before = _digest(tenant.encode())
    for piece in pieces:
        before = _digest(before, piece.digest)
        links.append(before)
    return links


def body_of(stored: StoredResponse) -> bytes:
    """Return a response without its output as JSON.

    Args:
        stored: The response.
    """
    response: dict[str, object] = {**stored.response, "output": []}
    return pack(response)


def put_together(body: bytes, packed: Iterable[bytes], outputs: int) -> StoredResponse:
    """Return the response that was taken to pieces.

    Args:
        body: What `body_of` returned.
        packed: The items of its conversation as JSON, its output included.
        outputs: How many of the last of them are its output.
    """
    response = cast("dict[str, object]", unpack(body))
    items = [cast("Item", unpack(each)) for each in packed]
    place = len(items) - outputs
    return StoredResponse({**response, "output": items[place:]}, tuple(items[:place]))


def _digest(*parts: bytes) -> bytes:
    hashed = blake2b(digest_size=DIGEST)
    for part in parts:
        hashed.update(part)
    return hashed.digest()
