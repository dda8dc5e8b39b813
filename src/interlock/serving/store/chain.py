"""A response in the form in which it is stored: its body, and its conversation as items that each are stored once.

A conversation is a chain of links: each names an item and the link before it, by digests of what they hold. So conversations that
go on from one another share the links that they have in common, and a turn of a long one adds only its own. Bodies and items are
JSON in bytes, a sixth of what their objects take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, cast

import orjson
from attrs import field, frozen

from interlock.events.json import dumps, loads
from interlock.serving.requests.input_items import Item
from interlock.serving.store.records import StoredResponse

__all__ = ["Chunk", "body_of", "chunks_of", "links_of", "pack", "put_together", "unpack", "unpack_item"]

DIGEST: Final = 16
"""Bytes of a digest: nobody makes two items with one."""

_BLANK: Final = b" "
"""Begins what orjson can write or read no more, such as integers over 64 bits; white space before JSON means nothing."""


@frozen
class Chunk:
    """An item.

    Args:
        digest: Of the tenant and the item.
        id: The item's id.
        packed: The item as JSON.
    """

    digest: bytes
    id: str
    packed: bytes = field(repr=False)


def pack(value: object) -> bytes:
    """Return a value as JSON."""
    try:
        # A copy: what orjson returns keeps the whole buffer that it was written into, several times its length.
        return bytes(memoryview(orjson.dumps(value)))
    except orjson.JSONEncodeError:
        return _BLANK + dumps(value)


def unpack(packed: bytes) -> object:
    """Return the value that was packed."""
    return loads(packed) if packed.startswith(_BLANK) else orjson.loads(packed)


def unpack_item(packed: bytes) -> Item:
    """Return the item that was packed."""
    return cast("Item", unpack(packed))


def chunks_of(tenant: str, items: Iterable[Item]) -> tuple[Chunk, ...]:
    """Return items, each with an id, as they are stored; tenants share none."""
    root = _digest(tenant.encode())
    return tuple(Chunk(_digest(root, packed), str(item["id"]), packed) for item in items for packed in [pack(item)])


def links_of(tenant: str, chunks: Sequence[Chunk]) -> list[bytes]:
    """Return the digests of the links of a conversation, in its order."""
    links: list[bytes] = []
    before = _digest(tenant.encode())
    for chunk in chunks:
        before = _digest(before, chunk.digest)
        links.append(before)
    return links


def body_of(stored: StoredResponse) -> bytes:
    """Return a response without its output as JSON."""
    response: dict[str, object] = {**stored.response, "output": []}
    return pack(response)


def put_together(body: bytes, packed: Iterable[bytes], outputs: int) -> StoredResponse:
    """Return the response that is stored as a body and a chain.

    Args:
        body: What `body_of` returned.
        packed: The items of its conversation as JSON, its output included.
        outputs: How many of the last of them are its output.
    """
    response = cast("dict[str, object]", unpack(body))
    items = [unpack_item(each) for each in packed]
    place = len(items) - outputs
    return StoredResponse({**response, "output": items[place:]}, tuple(items[:place]))


def _digest(*parts: bytes) -> bytes:
    digest = blake2b(digest_size=DIGEST)
    for part in parts:
        digest.update(part)
    return digest.digest()
