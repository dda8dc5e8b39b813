"""The contract of a store: its protocols, the values that it stores and returns, and the errors that it raises.

Several processes may share a store. What a method has written is there for all of them.
"""

# ruff: noqa: N818 - an error is named after what has happened

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol, cast

from attrs import field, frozen

from interlock.fsm.errors import InterlockError
from interlock.serving.requests.input_items import Item
from interlock.serving.store.notifications import Subscription

__all__ = [
    "LEASE",
    "RENEW",
    "SHARED",
    "Addition",
    "Conflict",
    "Conversation",
    "ConversationStore",
    "Lease",
    "LeaseLost",
    "Log",
    "ResponseStore",
    "SequenceError",
    "StoreDown",
    "StoreError",
    "StoreFull",
    "StoreInfo",
    "StoreUnusable",
    "StoredResponse",
    "SweepResult",
]

SHARED: Final = ""
"""The tenant of all clients that share what they store."""

LEASE: Final = 15.0
"""Seconds that a lease lasts."""

RENEW: Final = 5.0
"""Seconds after which an owner renews its lease: it may fail twice before another process takes over."""


class StoreError(InterlockError):
    """An error that a store raises on purpose."""


class StoreDown(StoreError):
    """The store cannot be used now: it is unreachable, full or read-only. It may recover by itself.

    The commit that was under way may or may not have been made.
    """


class StoreUnusable(StoreError):
    """The store cannot be used at all: its URL is wrong, or a package that it needs is missing or too old."""


class StoreFull(StoreError):
    """There is no room for another background response, even if every ended one were evicted."""


class LeaseLost(StoreError):
    """Another process owns the response, or the response has ended or is deleted. Nothing was written."""


class SequenceError(StoreError):
    """The events do not follow the last one of the log. Nothing was written.

    Args:
        expected: The number of the next event.
        first: The number of the first event that was to be appended.
    """

    def __init__(self, expected: int, first: int) -> None:
        super().__init__(f"The next event has the number {expected}, not {first}.")
        self.expected = expected
        self.first = first


class Conflict(StoreError):
    """The conversation has changed or is locked, or a response with the same id exists. Nothing was written."""


@frozen
class StoredResponse:
    """A response and the conversation that it answered.

    Args:
        response: The response object; once it has ended, the one of its terminal event.
        items: The items before the response: the history and the input of its request. Each has an id.
    """

    response: Mapping[str, object] = field(repr=False)
    items: tuple[Item, ...] = field(repr=False)

    @property
    def id(self) -> str:
        """The id of the response."""
        return str(self.response["id"])

    @property
    def output(self) -> Sequence[Item]:
        """The items that the response has produced."""
        return cast("Sequence[Item]", self.response["output"])

    @property
    def conversation(self) -> tuple[Item, ...]:
        """The items that the next request continues."""
        return (*self.items, *self.output)


@frozen
class Conversation:
    """A conversation that a client has created, without its items.

    Args:
        created_at: Seconds since the epoch.
        version: How often its items have changed.
    """

    id: str
    created_at: int
    metadata: Mapping[str, object]
    version: int = 0


@frozen
class Addition:
    """The items that a response adds to a conversation when it ends.

    Args:
        conversation_id: The id of the conversation.
        version: The version that the response has continued; the store refuses an addition to any other.
        items: The items in order. Each has an id.
    """

    conversation_id: str
    version: int
    items: tuple[Item, ...] = field(repr=False)


@frozen
class Lease:
    """The right to write the events of one response.

    Args:
        tenant: The tenant of the response.
        response_id: The id of the response.
        owner: The name of the process that has the lease.
        epoch: The number of owners so far; the store refuses writes of earlier ones.
    """

    tenant: str
    response_id: str
    owner: str
    epoch: int


@frozen
class Log:
    """Committed events of a background response.

    Args:
        frames: The events as they are sent.
        first: The number of the first of them, as it was requested.
        oldest: The number of the oldest event that is still stored.
        following: The number of the event that is appended next.
        state: The state of the response in the table `stored`.
        cancelled: Whether a client has asked to cancel the response.
    """

    frames: tuple[bytes, ...] = field(repr=False)
    first: int
    oldest: int
    following: int
    state: str
    cancelled: bool

    @property
    def complete(self) -> bool:
        """Whether no event follows these."""
        return self.state == "ended" and self.first + len(self.frames) >= self.following


@frozen
class SweepResult:
    """How many expired responses, and how many logs of ended ones, a sweep has removed."""

    expired: int
    trimmed: int


@frozen
class StoreInfo:
    """What a store contains.

    Args:
        kind: The kind of store, with the version of its software.
        version: The version of the layout.
        responses: The number of responses in each state of the table `stored`.
        conversations: The number of conversations.
        items: The number of different items.
        events: The number of events in all logs.
        size: The size in bytes.
        leases: The leases that have not lapsed.
    """

    kind: str
    version: int
    responses: Mapping[str, int]
    conversations: int
    items: int
    events: int
    size: int
    leases: tuple[Lease, ...]


class ConversationStore(Protocol):
    """Stores the conversations that clients create, until they delete them.

    A conversation belongs to its `tenant`; no other tenant can see it. Each method raises `StoreDown` if the store cannot be used
    now.
    """

    async def create_conversation(self, tenant: str, conversation: Conversation, items: Sequence[Item] = ()) -> None:
        """Store a new conversation with its first items. Each has an id."""
        ...

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """Return a conversation, or None if there is none."""
        ...

    async def update_conversation(self, tenant: str, conversation_id: str, metadata: Mapping[str, object]) -> Conversation | None:
        """Replace the metadata of a conversation, and return the conversation, or None if there is none."""
        ...

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation, and return whether there was one."""
        ...

    async def conversation_items(self, tenant: str, conversation_id: str) -> tuple[Item, ...] | None:
        """Return the items of a conversation in order, or None if there is no such conversation."""
        ...

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[Item]) -> Conversation | None:
        """Append items to a conversation, and return the conversation, or None if there is none. Each item has an id.

        Raises:
            Conflict: A response holds the conversation.
        """
        ...

    async def delete_item(self, tenant: str, conversation_id: str, item_id: str) -> Conversation | None:
        """Remove an item from a conversation, and return the conversation, or None if either does not exist.

        Raises:
            Conflict: A response holds the conversation.
        """
        ...

    async def hold(self, tenant: str, conversation_id: str, owner: str) -> int | None:
        """Lock a conversation for the response with the id `owner`, or renew its lock, for the time of a lease.

        The commit of an `Addition` releases it. Returns the version of the conversation for the `Addition`, or None if there is
        no such conversation.

        Raises:
            Conflict: Another response holds the conversation.
        """
        ...

    async def release(self, tenant: str, conversation_id: str, owner: str) -> None:
        """Unlock a conversation if `owner` holds it."""
        ...


class ResponseStore(ConversationStore, Protocol):
    """Stores responses until they expire. The table `stored` says which method is legal in which state of a response.

    A response belongs to its `tenant`; no other tenant can see it. Each method raises `StoreDown` if the store cannot be used
    now, and with a lease `LeaseLost` if another process owns the response, or the response has ended or is gone.
    """

    async def put(self, tenant: str, stored: StoredResponse, addition: Addition | None = None) -> None:
        """Store an ended response, and add to a conversation, in one commit. An ended response with the same id is replaced.

        Raises:
            Conflict: The conversation has changed or is gone, or a background response with the same id is running.
        """
        ...

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response, or None if there is none. A background response stays as it was enqueued until it ends."""
        ...

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Delete a response, its log and the items that nothing else refers to; return whether there was one.

        The owner of a running response loses its lease.
        """
        ...

    async def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, Item]:
        """Return the items of conversations and outputs that have these ids, by id. Missing ones are left out."""
        ...

    async def enqueue(self, tenant: str, stored: StoredResponse, owner: str) -> Lease:
        """Store a background response, and return the lease under which its owner writes the events.

        Raises:
            Conflict: There is a response with the same id.
            StoreFull: There is no room for it.
        """
        ...

    async def append(self, lease: Lease, first: int, frames: Sequence[bytes]) -> bool:
        """Append events to a log, numbered from `first` on, and renew the lease.

        Returns whether a client has asked to cancel the response.

        Raises:
            SequenceError: The events do not follow the last one.
        """
        ...

    async def renew(self, lease: Lease) -> bool:
        """Renew a lease; return whether a client has asked to cancel the response."""
        ...

    async def finish(
        self, lease: Lease, first: int, frames: Sequence[bytes], stored: StoredResponse, addition: Addition | None = None
    ) -> None:
        """End a response: append its last events, store its body, and add to a conversation, in one commit. The lease ends.

        Raises:
            SequenceError: The events do not follow the last one.
            Conflict: The conversation has changed or is gone. The lease stays valid.
        """
        ...

    async def cancel(self, tenant: str, response_id: str) -> bool:
        """Ask the owner of a response to cancel it; return whether there is such a response, ended or not."""
        ...

    async def read(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        """Return up to `limit` events from the number `first` on, or None if there is no such response.

        The log of a response that was put as a whole is empty.
        """
        ...

    def subscribe(self, tenant: str, response_id: str) -> AbstractContextManager[Subscription]:
        """Subscribe to every change of a response. Subscribe before reading, so that no change is missed."""
        ...

    async def adopt(self, tenant: str, response_id: str, owner: str) -> Lease | None:
        """Take over a response whose owner is lost: return the lease of the next epoch.

        Returns None if the lease has not lapsed, or the response has ended or is gone.
        """
        ...

    async def lost(self, limit: int) -> Sequence[tuple[str, str]]:
        """Return tenant and id of up to `limit` responses whose owner is lost, the oldest loss first."""
        ...

    async def sweep(self) -> SweepResult:
        """Remove expired responses and logs, which are invisible already, to free their space."""
        ...

    async def info(self) -> StoreInfo:
        """Return what the store contains."""
        ...

    async def migrate(self) -> int:
        """Migrate an older layout to the current one, and return the version that the store had."""
        ...

    async def close(self) -> None:
        """Close files and connections. Acknowledged writes are stored. The store is not used afterwards."""
        ...
