"""What a store stores and returns, the edits that write it, its form as bytes, and the errors.

A conversation is stored as a chain of items that are each stored once. A link names an item and the previous link by the digests
of their content. Conversations that continue one another share links, so each turn of a long conversation adds only its own.
Bodies and items are stored as JSON, which takes a sixth of the memory of the objects. Bodies compress well, because most of their
fields rarely differ.
"""

# ruff: noqa: N818 - an error is named after what has happened

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, TypeAlias, cast

from attrs import field, frozen
from msgspec.json import decode

from interlock.events.json import clean, dumps
from interlock.fsm.table import InterlockError
from interlock.serving.requests.input_items import JsonItem
from interlock.serving.store.tables import STORED, ConversationTrigger, StoredTrigger

ResponseKey: TypeAlias = tuple[str, str]  # the tenant, and the id of a response or conversation

SHARED: Final = ""
"""The tenant of clients that share their responses and conversations."""

LEASE: Final = 15.0
"""Seconds that a lease lasts."""

RENEW: Final = 5.0
"""Seconds between renewals of a lease. Two can fail before another process takes over."""


class StoreError(InterlockError):
    """An error that a store raises on purpose."""


class StoreDown(StoreError):
    """The store cannot be used now; for example, it is unreachable or full. It may or may not have committed the last write."""


class WrongStore(StoreDown):
    """The database is of another program or a release with another layout, or its file cannot be used; waiting does not help."""


class StoreUnusable(StoreError):
    """The store cannot be used at all: its URL is wrong, or a package that it needs is missing or too old."""


class StoreFull(StoreError):
    """A response does not fit into the store, even if it evicted every ended one."""


class LeaseLost(StoreError):
    """Another process owns the response, or the response has ended or is deleted. Nothing was written."""


class SequenceError(StoreError):
    """The events begin at the number `first`, but the log continues at `expected`. Nothing was written."""

    def __init__(self, expected: int, first: int) -> None:
        super().__init__(f"The next event has the number {expected}, not {first}.")
        self.expected = expected
        self.first = first


class Conflict(StoreError):
    """Another request has taken or changed the conversation, or a response with the same id exists. Nothing was written."""


@frozen
class StoredResponse:
    """A response and the items that precede it."""

    response: Mapping[str, object] = field(repr=False)  # the response object; after the end, as in the terminal event
    items: tuple[JsonItem, ...] = field(repr=False)  # the history and the input of the request; each has an id

    @property
    def id(self) -> str:
        return str(self.response["id"])

    @property
    def output(self) -> Sequence[JsonItem]:
        """The items that the response has produced."""
        return cast("Sequence[JsonItem]", self.response["output"])

    @property
    def conversation(self) -> tuple[JsonItem, ...]:
        """The history for the next request: the items and the output."""
        return (*self.items, *self.output)


@frozen
class StoredConversation:
    """A conversation that a client has created, without its items. `version` counts the changes of the items."""

    id: str
    created_at: int
    metadata: Mapping[str, object]
    version: int = 0


@frozen
class Addition:
    """The items that an ending response adds to a conversation, if `owner` still owns that; see `ResponseStore.hold`."""

    conversation_id: str
    owner: str
    items: tuple[JsonItem, ...] = field(repr=False)


@frozen
class Lease:
    """The right of an owner to write the events of a response. Each new owner gets the next epoch, which ends earlier leases."""

    tenant: str
    response_id: str
    owner: str
    epoch: int


@frozen
class Log:
    """Committed events of a background response."""

    frames: tuple[bytes, ...] = field(repr=False)  # the events as they are sent
    first: int  # the number of the first frame
    oldest: int  # the number of the oldest stored event; `following` if none is stored
    following: int  # the number of the next event to append
    state: str  # of the response, in the table `interlock.serving.store.tables`
    cancelled: bool  # whether a client has asked to cancel the response

    @property
    def ended(self) -> bool:
        """Whether no event follows the stored events."""
        return StoredTrigger.APPEND not in STORED.states[self.state].rows


@frozen
class SweepResult:
    """The numbers of expired responses, logs and conversations that a sweep has removed."""

    expired: int
    trimmed: int
    conversations: int = 0


@frozen
class StoreInfo:
    """A store's contents: the responses by state, other totals, `size` in bytes, and the leases that have not lapsed."""

    kind: str  # with the version of its software
    version: int  # of its layout
    responses: Mapping[str, int]
    conversations: int
    items: int
    events: int
    size: int
    leases: tuple[Lease, ...]


@frozen
class Edit:
    """A write to one response, in one commit.

    `epoch` is the epoch of the owner's lease, or None if the edit needs no lease. `first` is the number of the first frame.
    """

    trigger: StoredTrigger
    stored: StoredResponse | None = None
    addition: Addition | None = None
    owner: str = ""
    epoch: int | None = None
    first: int = 0
    frames: Sequence[bytes] = field(default=(), repr=False)


@frozen
class ConversationEdit:
    """A write to one conversation, in one commit. A `change` appends `items`, or removes the item with the id `item_id`."""

    trigger: ConversationTrigger
    owner: str = ""
    conversation: StoredConversation | None = None
    metadata: Mapping[str, object] | None = None
    items: Sequence[JsonItem] = ()
    item_id: str | None = None


DIGEST: Final = 16  # bytes: enough to make a collision infeasible
LONGEST_ID: Final = 256  # characters of an id in an index, because databases limit the size of an entry

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


def chunks_of(tenant: str, items: Iterable[JsonItem]) -> tuple[StoredChunk, ...]:
    """Return the chunks of a conversation, whose items must have ids. Tenants share no chunks."""
    chunks: list[StoredChunk] = []
    root = link = _digest(tenant.encode())
    for item in items:
        packed = dumps(item)
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
    return dumps({**stored.response, "output": []})


def compress(body: bytes) -> bytes:
    """Compress a body, typically to a seventh of its size."""
    compressor = zlib.compressobj(level=6, wbits=_WINDOW, memLevel=_MEMORY, zdict=_TYPICAL)
    return compressor.compress(body) + compressor.flush()


def put_together(body: bytes, packed: Iterable[bytes], outputs: int) -> StoredResponse:
    """Rebuild a response from its body, compressed or not, and its items, of which the last `outputs` are its output."""
    if body.startswith(_COMPRESSED):
        body = zlib.decompressobj(_WINDOW, _TYPICAL).decompress(body)
    items = [decode(each) for each in packed]
    start = len(items) - outputs
    return StoredResponse({**decode(body), "output": items[start:]}, tuple(items[:start]))


def _digest(*parts: bytes) -> bytes:
    return blake2b(b"".join(parts), digest_size=DIGEST).digest()
