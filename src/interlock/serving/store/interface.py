"""The interface of a store: its methods with their values and errors, and subscriptions to changes of a response.

Several processes may share a store. All of them see each committed write.
"""

# ruff: noqa: N818 - an error is named after what has happened

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final, TypeAlias, cast

from attrs import define, field, frozen

from interlock.fsm.errors import InterlockError
from interlock.fsm.processes.conversation import ConversationTrigger
from interlock.fsm.processes.stored import StoredTrigger
from interlock.serving.requests.input_items import Item

Key: TypeAlias = tuple[str, str]  # the tenant and the id of a response

_T, _CT = StoredTrigger, ConversationTrigger

SHARED: Final = ""
"""The tenant of all clients that share what they store."""

LEASE: Final = 15.0
"""Seconds that a lease lasts."""

RENEW: Final = 5.0
"""Seconds after which an owner renews its lease: it may fail twice before another process takes over."""


class StoreError(InterlockError):
    """An error that a store raises on purpose."""


class StoreDown(StoreError):
    """The store cannot be used now: it is unreachable, full or read-only. The last commit may or may not have been made."""


class StoreUnusable(StoreError):
    """The store cannot be used at all: its URL is wrong, or a package that it needs is missing or too old."""


class StoreFull(StoreError):
    """There is no room for another background response, or for so large a one, even if every ended one were evicted."""


class LeaseLost(StoreError):
    """Another process owns the response, or the response has ended or is deleted. Nothing was written."""


class SequenceError(StoreError):
    """The events, from the number `first` on, do not follow the log, whose next number is `expected`. Nothing was written."""

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
    """A conversation that a client has created, without its items. Its version counts the changes of its items."""

    id: str
    created_at: int
    metadata: Mapping[str, object]
    version: int = 0


@frozen
class Addition:
    """The items that a response adds to a conversation when it ends, if the conversation still has this version."""

    conversation_id: str
    version: int
    items: tuple[Item, ...] = field(repr=False)


@frozen
class Lease:
    """The right of an owner to write the events of one response. A new owner has the next epoch, which ends earlier leases."""

    tenant: str
    response_id: str
    owner: str
    epoch: int


@frozen
class Log:
    """Committed events of a background response, as they are sent.

    Args:
        first: The number of the first frame.
        oldest: The number of the oldest event that is stored.
        following: The number of the next event to be appended.
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
    """The number of expired responses, and of logs of ended ones, that a sweep has removed."""

    expired: int
    trimmed: int


@frozen
class StoreInfo:
    """A store's contents: the number of responses in each state, `size` in bytes, and the leases that have not lapsed."""

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
    """A write about one response, in one commit.

    `epoch` is that of the owner's lease; None for an edit that needs no lease. `first` is the number of the first frame.
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
    """A write about one conversation, in one commit: it appends `items`, or removes the item with the id `item_id`."""

    trigger: ConversationTrigger
    owner: str = ""
    conversation: Conversation | None = None
    metadata: Mapping[str, object] | None = None
    items: Sequence[Item] = ()
    item_id: str | None = None


@frozen
class EditResult:
    """A response after an edit: the epoch of its lease, and whether a client has asked to cancel it."""

    epoch: int
    cancelled: bool


@define(eq=False)
class Subscription:
    """Waits for changes of one response. A change between two waits is not missed."""

    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    async def wait(self, seconds: float) -> None:
        """Wait until the response has changed since the last wait, up to a number of seconds.

        A notification can get lost, for example when the store is down; read again after the wait in any case.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    def notify(self) -> None:
        """End the wait. Thread-safe."""
        with suppress(RuntimeError):  # the loop is closed: nothing waits
            self._loop.call_soon_threadsafe(self._changed.set)


@define(eq=False)
class Notifications:
    """The subscriptions of a process."""

    _subscriptions: dict[Key, set[Subscription]] = field(factory=dict[Key, set[Subscription]], init=False)

    def responses(self) -> list[Key]:
        """Return the responses that have subscriptions. Thread-safe."""
        return [*self._subscriptions]

    @contextmanager
    def subscribe(self, key: Key) -> Generator[Subscription]:
        subscription = Subscription()
        subscriptions = self._subscriptions.setdefault(key, set())
        subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            subscriptions.discard(subscription)
            if not subscriptions:
                self._subscriptions.pop(key, None)

    def notify(self, keys: Iterable[Key]) -> None:
        """Notify the subscriptions of some responses. Thread-safe."""
        for key in keys:
            for subscription in [*self._subscriptions.get(key, ())]:
                subscription.notify()


class ResponseStore(ABC):
    """Stores responses until they expire, and conversations until they are deleted.

    Each write fires an edge of the table `stored` or `conversation`; a write without an edge has no effect.

    Responses and conversations belong to a tenant, and no other tenant can see them. Each item has an id. A method raises

    - `StoreDown` if the store cannot be used now,
    - with a lease `LeaseLost` if another process owns the response, or the response has ended or is gone,
    - with events `SequenceError` if they do not follow the last one, and
    - `Conflict` for a change of a conversation that a response holds.
    """

    async def put(self, tenant: str, stored: StoredResponse, addition: Addition | None = None) -> None:
        """Store an ended response, which replaces an ended one with its id, and add to a conversation, in one commit.

        Raises:
            Conflict: The conversation has changed or is gone, or a background response with the same id is running.
            StoreFull: It is larger than the store may be.
        """
        await self._write(tenant, stored.id, Edit(_T.PUT, stored, addition))

    @abstractmethod
    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response, or None if there is none. A background response stays as it was enqueued until it ends."""

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Delete a response, which ends its lease, and the items that nothing else refers to; return whether there was one."""
        return await self._write(tenant, response_id, Edit(_T.DELETE)) is not None

    @abstractmethod
    async def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, Item]:
        """Return the items of conversations and outputs that have these ids, by id. Missing ones are left out."""

    async def enqueue(self, tenant: str, stored: StoredResponse, owner: str) -> Lease:
        """Store a background response, and return the lease under which its owner writes the events.

        Raises:
            Conflict: There is a response with the same id.
            StoreFull: There is no room for it.
        """
        await self._write(tenant, stored.id, Edit(_T.ENQUEUE, stored, owner=owner))
        return Lease(tenant, stored.id, owner, epoch=1)

    async def append(self, lease: Lease, first: int, frames: Sequence[bytes]) -> bool:
        """Append events, numbered from `first` on, and renew the lease; return whether a client has asked to cancel."""
        return await self._write_as_owner(lease, Edit(_T.APPEND, None, None, lease.owner, lease.epoch, first, frames))

    async def renew(self, lease: Lease) -> bool:
        """Renew a lease; return whether a client has asked to cancel."""
        return await self._write_as_owner(lease, Edit(_T.RENEW, None, None, lease.owner, lease.epoch))

    async def finish(
        self, lease: Lease, first: int, frames: Sequence[bytes], stored: StoredResponse, addition: Addition | None = None
    ) -> None:
        """End a response: append its last events, store its body, and add to a conversation, in one commit. The lease ends.

        Raises:
            Conflict: The conversation has changed or is gone. The lease stays valid.
        """
        await self._write_as_owner(lease, Edit(_T.FINISH, stored, addition, lease.owner, lease.epoch, first, frames))

    async def cancel(self, tenant: str, response_id: str) -> bool:
        """Ask the owner of a response to cancel it; return whether there is such a response, ended or not."""
        return await self._write(tenant, response_id, Edit(_T.CANCEL)) is not None

    async def adopt(self, tenant: str, response_id: str, owner: str) -> Lease | None:
        """Take over a response whose lease has lapsed, and return the next lease, or None if there is no such response."""
        result = await self._write(tenant, response_id, Edit(_T.ADOPT, owner=owner))
        return None if result is None else Lease(tenant, response_id, owner, result.epoch)

    async def trim(self, tenant: str, response_id: str) -> bool:
        """Remove the events of a response that has ended; return whether there is one."""
        return await self._write(tenant, response_id, Edit(_T.TRIM)) is not None

    @abstractmethod
    async def read(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        """Return up to `limit` events from the number `first` on (none after `put`), or None if there is no such response."""

    @abstractmethod
    def subscribe(self, tenant: str, response_id: str) -> AbstractContextManager[Subscription]:
        """Subscribe to every change of a response. Subscribe before reading, so that no change is missed."""

    @abstractmethod
    async def lost(self, limit: int) -> Sequence[Key]:
        """Return tenant and id of up to `limit` responses whose owner is lost, the oldest loss first."""

    async def create_conversation(self, tenant: str, conversation: Conversation, items: Sequence[Item] = ()) -> None:
        """Store a new conversation with its first items."""
        edit = ConversationEdit(_CT.CREATE, conversation=conversation, items=items)
        await self._write_conversation(tenant, conversation.id, edit)

    @abstractmethod
    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """Return a conversation, or None if there is none."""

    async def update_conversation(self, tenant: str, conversation_id: str, metadata: Mapping[str, object]) -> Conversation | None:
        """Replace the metadata of a conversation, and return the conversation, or None if there is none."""
        return await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.DESCRIBE, metadata=metadata))

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation, and return whether there was one."""
        return await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.DELETE)) is not None

    @abstractmethod
    async def conversation_items(self, tenant: str, conversation_id: str) -> tuple[Item, ...] | None:
        """Return the items of a conversation in order, or None if there is no such conversation."""

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[Item]) -> Conversation | None:
        """Append items to a conversation, and return the conversation, or None if there is none."""
        return await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.CHANGE, items=items))

    async def delete_item(self, tenant: str, conversation_id: str, item_id: str) -> Conversation | None:
        """Remove an item from a conversation, and return the conversation, or None if either does not exist."""
        return await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.CHANGE, item_id=item_id))

    async def hold(self, tenant: str, conversation_id: str, owner: str) -> int | None:
        """Lock a conversation for the response `owner`, or renew the lock, until an `Addition`, a `release` or `LEASE` seconds.

        Returns the version of the conversation for the `Addition`, or None if there is no such conversation.
        """
        conversation = await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.HOLD, owner))
        return None if conversation is None else conversation.version

    async def release(self, tenant: str, conversation_id: str, owner: str) -> None:
        """Unlock a conversation if `owner` holds it."""
        await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.RELEASE, owner))

    @abstractmethod
    async def sweep(self) -> SweepResult:
        """Remove expired responses and logs, which are invisible already, to free their space."""

    @abstractmethod
    def responses(self) -> AsyncIterator[Key]:
        """Yield tenant and id of every response, the earliest first if the store has their order."""

    @abstractmethod
    def conversations(self) -> AsyncIterator[Key]:
        """Yield tenant and id of every conversation."""

    @abstractmethod
    async def info(self) -> StoreInfo:
        """Return the store's contents."""

    @abstractmethod
    async def migrate(self) -> int:
        """Migrate an older layout to the current one, and return the version that the store had."""

    @abstractmethod
    async def close(self) -> None:
        """Close files and connections. Acknowledged writes are stored. The next use opens them again."""

    @abstractmethod
    async def _write(self, tenant: str, response_id: str, edit: Edit) -> EditResult | None:
        """Carry out all effects of an edit in one commit; return None if the edit comes too late for the table."""

    @abstractmethod
    async def _write_conversation(self, tenant: str, conversation_id: str, edit: ConversationEdit) -> Conversation | None:
        """Carry out all effects of an edit in one commit, and return the conversation; None if it or the item does not exist."""

    async def _write_as_owner(self, lease: Lease, edit: Edit) -> bool:
        result = await self._write(lease.tenant, lease.response_id, edit)
        return result is not None and result.cancelled


def refuse(edit: Edit, state: str) -> None:
    """Raise the error for an edit that is illegal in a state; return if it merely comes too late."""
    if edit.epoch is not None:
        raise LeaseLost(f"The lease of {edit.owner!r} is over: the response is {state}.")
    if edit.stored is not None:
        raise Conflict(f"There is a response with that id already; it is {state}.")
