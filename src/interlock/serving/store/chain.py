"""The stored form of a response: its body, and its conversation as a chain of items that are each stored once.

A link names an item and the previous link by the digests of their content. Conversations that continue one another share links,
so each turn of a long conversation adds only its own. Bodies and items are stored as JSON, which takes a sixth of the memory of
the objects. Bodies compress well, because most of their fields rarely differ.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

import orjson
from attrs import field, frozen

from interlock.events.json import clean, dumps, loads
from interlock.serving.requests.input_items import JsonItem
from interlock.serving.store.values import StoredResponse

DIGEST: Final = 16  # bytes: enough to make a collision infeasible
LONGEST_ID: Final = 256  # characters of an id in an index, because databases limit the size of an entry
_BLANK: Final = b" "  # marks JSON that orjson cannot write, such as integers over 64 bits

_COMPRESSED: Final = b"H"  # the first byte of a compressed body: the zlib header for this window
_WINDOW: Final = 12  # the power of two of the window: 4 KiB
_MEMORY: Final = 5  # `memLevel` of zlib
_TYPICAL: Final = (
    b'{"parallel_tool_calls":true,"previous_response_id":"resp_","tools":[{"type":"function","name":"","description":"","strict":true,'
    b'"parameters":{"type":"object","properties":{},"required":[],"additionalProperties":false}}],"user":null,"id":"resp_","object":'
    b'"response","created_at":17,"status":"completed","completed_at":17,"error":null,"incomplete_details":null,"background":false,'
    b'"frequency_penalty":0.0,"instructions":null,"max_output_tokens":null,"max_tool_calls":null,"metadata":{},"model":"","parallel_'
    b'tool_calls":true,"presence_penalty":0.0,"previous_response_id":null,"prompt_cache_key":null,"reasoning":{"effort":null,"summary":'
    b'null},"safety_identifier":null,"service_tier":"default","store":true,"temperature":1.0,"text":{"format":{"type":"text"}},"tool_'
    b'choice":"auto","tools":[],"top_logprobs":0,"top_p":1.0,"truncation":"disabled","user":null,"output":[],"usage":{"input_tokens":'
    b'1,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":1,"output_tokens_details":{"reasoning_tokens":'
    b'0},"total_tokens":1}}'
)
"""The dictionary of the compressor. Changing it changes the layout of the stores."""


@frozen
class StoredChunk:
    """A stored item: its link in the chain, the digest of its tenant and content, its id, and the item as JSON."""

    link: bytes
    digest: bytes
    id: str  # as in the indexes
    packed: bytes = field(repr=False)


def pack(value: object) -> bytes:
    """Return a value as JSON."""
    try:
        # A copy, because the bytes of orjson keep the whole buffer alive, which is several times as long.
        return bytes(memoryview(orjson.dumps(value)))
    except orjson.JSONEncodeError:
        return _BLANK + dumps(value)


def unpack(packed: bytes) -> Any:  # noqa: ANN401 - any value of JSON
    """Parse JSON from `pack`."""
    return loads(packed) if packed.startswith(_BLANK) else orjson.loads(packed)


def chunks_of(tenant: str, items: Iterable[JsonItem]) -> tuple[StoredChunk, ...]:
    """Return the chunks of a conversation, whose items must have ids. Tenants share no chunks."""
    chunks: list[StoredChunk] = []
    root = link = _digest(tenant.encode())
    for item in items:
        packed = pack(item)
        digest = _digest(root, packed)
        link = _digest(link, digest)
        chunks.append(StoredChunk(link, digest, index_id(str(item["id"])), packed))
    return tuple(chunks)


def index_id(item_id: str) -> str:
    """Return the id under which the indexes of a store have an item: its own, or a digest of a long one."""
    text = clean(item_id)
    return text if len(text) <= LONGEST_ID else _digest(text.encode()).hex()


def body_of(stored: StoredResponse) -> bytes:
    """Return a response without its output, as JSON."""
    return pack({**stored.response, "output": []})


def compress(body: bytes) -> bytes:
    """Compress a body, typically to a seventh of its size."""
    compressor = zlib.compressobj(level=6, wbits=_WINDOW, memLevel=_MEMORY, zdict=_TYPICAL)
    return compressor.compress(body) + compressor.flush()


def put_together(body: bytes, packed: Iterable[bytes], outputs: int) -> StoredResponse:
    """Rebuild a response from its body, compressed or not, and its items, of which the last `outputs` are its output."""
    if body.startswith(_COMPRESSED):
        body = zlib.decompressobj(_WINDOW, _TYPICAL).decompress(body)
    items = [unpack(each) for each in packed]
    start = len(items) - outputs
    return StoredResponse({**unpack(body), "output": items[start:]}, tuple(items[:start]))


def _digest(*parts: bytes) -> bytes:
    return blake2b(b"".join(parts), digest_size=DIGEST).digest()
