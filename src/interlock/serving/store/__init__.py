"""Stores of responses and conversations, which later requests continue, fetch or delete.

This module is the interface of a store: its methods, their values and errors, and subscriptions to changes of a response.
Processes that share a store see one another's committed writes. A store handles neither requests nor HTTP.

    chain               the stored form of a response
    stored_table        a stored response, as a table
    conversation_table  a conversation, as a table
    opening             opens a store by its URL
    sql/                stores in memory, in an SQLite file and in Postgres
"""

# ruff: noqa: N818 - an error is named after what has happened

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from attrs import define, field, frozen

from interlock.fsm.errors import InterlockError
from interlock.late import exporter
from interlock.serving.requests.input_items import JsonItem
from interlock.serving.store.conversation_table import CONVERSATION, ConversationTrigger
from interlock.serving.store.stored_table import STORED, StoredTrigger

if TYPE_CHECKING:
    from interlock.serving.store.opening import open_store as open_store
    from interlock.serving.store.sql.sqlite import MemoryStore as MemoryStore

# The modules of the stores import this one, and SQLite needs apsw, which may be missing.
__getattr__ = exporter(
    __name__, {"MemoryStore", "open_store"}, ["interlock.serving.store.opening", "interlock.serving.store.sql.sqlite"]
)

ResponseKey: TypeAlias = tuple[str, str]  # the tenant, and the id of a response or conversation

_T, _CT = StoredTrigger, ConversationTrigger

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


class WrongLayout(StoreDown):
    """The store has a layout that this release of Interlock cannot use."""

    def __init__(self, version: int, needed: int, name: str = "The store") -> None:
        advice = "run `interlock store migrate`" if version < needed else "use a newer release"
        super().__init__(f"{name} has layout {version}, but this release of Interlock needs layout {needed}: {advice}.")


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
    state: str  # of the response, in the table `interlock.serving.store.stored_table`
    cancelled: bool  # whether a client has asked to cancel the response

    @property
    def ended(self) -> bool:
        """Whether no event follows the stored events."""
        return StoredTrigger.APPEND not in STORED.states[self.state].rows

    @property
    def complete(self) -> bool:
        """Whether these are the last events."""
        return self.ended and self.first + len(self.frames) >= self.following


@frozen
class SweepResult:
    """The numbers of expired responses and of expired logs that a sweep has removed."""

    expired: int
    trimmed: int


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


@frozen
class EditResult:
    """The epoch of a response's lease after an edit, and whether a client has asked to cancel it."""

    epoch: int
    cancelled: bool


@define(eq=False)
class Subscription:
    """Waits for changes of one response. After a change between two waits, the second returns at once."""

    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    async def wait(self, seconds: float) -> None:
        """Wait until the response changes, for at most `seconds`; return at once if it has changed since the last wait.

        A notification can get lost, for example while the store is down, so read again after every wait.
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
    """The subscriptions of one process to a store."""

    _subscriptions: dict[ResponseKey, set[Subscription]] = field(factory=dict[ResponseKey, set[Subscription]], init=False)

    def responses(self) -> list[ResponseKey]:
        """Return the responses that have subscriptions. Thread-safe."""
        return [*self._subscriptions]

    @contextmanager
    def subscribe(self, key: ResponseKey) -> Generator[Subscription]:
        subscription = Subscription()
        subscriptions = self._subscriptions.setdefault(key, set())
        subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            subscriptions.discard(subscription)
            if not subscriptions:
                self._subscriptions.pop(key, None)

    def notify(self, keys: Iterable[ResponseKey]) -> None:
        """Notify the subscriptions of these responses. Thread-safe."""
        for key in keys:
            for subscription in [*self._subscriptions.get(key, ())]:
                subscription.notify()


@define(eq=False, slots=False)  # so that a test can replace a method of one store
class ResponseStore(ABC):
    """Stores responses until they expire, and conversations until they are deleted.

    Each write fires an edge of the tables `STORED` and `CONVERSATION`; if the state has no such edge, nothing is written.
    Responses and conversations belong to a tenant, and no other tenant can see them. Each item has an id.

    - Every method raises `StoreDown` if the store cannot be used now.
    - A method that takes a lease raises `LeaseLost` if another process owns the response, or the response has ended or is gone.
    - A method that takes events raises `SequenceError` if they do not follow the last one.
    - A method that changes the items of a conversation raises `Conflict` while a response holds it.
    """

    ttl: float | None = field(default=None, kw_only=True)
    """Seconds from the last write of a response until it expires; None for never."""
    logs: float | None = field(default=None, kw_only=True)
    """Seconds from the end of a response until its events are removed; None to keep them as long as the response."""
    clock: Callable[[], float] | None = field(default=None, kw_only=True)
    """Returns the time in seconds, for tests; None for a clock that the processes share."""
    _notifications: Notifications = field(factory=Notifications, init=False)

    async def put(self, tenant: str, stored: StoredResponse, addition: Addition | None = None) -> None:
        """Store an ended response, and add to a conversation, in one commit. It replaces an ended response with the same id.

        Raises:
            Conflict: The conversation has another owner or is gone, or a background response with the same id has not ended.
            StoreFull: The response alone exceeds the limit of the store.
        """
        await self._write(tenant, stored.id, Edit(_T.PUT, stored, addition))

    @abstractmethod
    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response, or None. Until a background response ends, it is returned as it was enqueued."""

    async def hide(self, tenant: str, response_id: str) -> bool:
        """Delete a response, but let readers read its events for `LEASE` seconds; return whether it existed.

        Its id cannot be used again until then. A response that has not ended is deleted with its events.
        """
        return await self._write(tenant, response_id, Edit(_T.HIDE)) is not None

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Delete a response with its events and the items that nothing else refers to; return whether it existed, even hidden."""
        return await self._write(tenant, response_id, Edit(_T.DELETE)) is not None

    @abstractmethod
    async def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, JsonItem]:
        """Return the stored items with these ids, by id. Unknown ids are left out."""

    async def enqueue(self, tenant: str, stored: StoredResponse, owner: str) -> Lease:
        """Store a background response, and return the lease with which its owner writes the events.

        Raises:
            Conflict: A response with the same id exists.
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
            Conflict: The conversation has another owner or is gone. The lease stays valid.
        """
        await self._write_as_owner(lease, Edit(_T.FINISH, stored, addition, lease.owner, lease.epoch, first, frames))

    async def cancel(self, tenant: str, response_id: str) -> bool:
        """Ask the owner of a response to cancel it; return whether the response exists, ended or not."""
        return await self._write(tenant, response_id, Edit(_T.CANCEL)) is not None

    async def adopt(self, tenant: str, response_id: str, owner: str) -> Lease | None:
        """Take over a response whose lease has lapsed; return the new lease, or None if there is no such response."""
        result = await self._write(tenant, response_id, Edit(_T.ADOPT, owner=owner))
        return None if result is None else Lease(tenant, response_id, owner, result.epoch)

    async def trim(self, tenant: str, response_id: str) -> bool:
        """Remove the events of an ended response; return whether there is such a response."""
        return await self._write(tenant, response_id, Edit(_T.TRIM)) is not None

    @abstractmethod
    async def read(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        """Return up to `limit` events of a response, hidden or not, from the number `first` on, or None for an unknown response.

        There are no events if the response was stored with `put`, or if `first` is before the oldest stored event.
        """

    def subscribe(self, tenant: str, response_id: str) -> AbstractContextManager[Subscription]:
        """Subscribe to changes of a response. Subscribe before the first read, so that you miss no change."""
        return self._notifications.subscribe((tenant, response_id))

    @abstractmethod
    async def lost(self, limit: int) -> Sequence[ResponseKey]:
        """Return the tenant and id of up to `limit` responses whose lease has lapsed, the longest lapsed first."""

    async def create_conversation(self, tenant: str, conversation: StoredConversation, items: Sequence[JsonItem] = ()) -> None:
        """Store a new conversation with its first items. It replaces a conversation with the same id."""
        edit = ConversationEdit(_CT.CREATE, conversation=conversation, items=items)
        await self._write_conversation(tenant, conversation.id, edit)

    @abstractmethod
    async def conversation(self, tenant: str, conversation_id: str) -> StoredConversation | None:
        """Return a conversation, or None if there is none."""

    async def update_conversation(
        self, tenant: str, conversation_id: str, metadata: Mapping[str, object]
    ) -> StoredConversation | None:
        """Replace the metadata of a conversation; return the conversation, or None if there is none."""
        return await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.DESCRIBE, metadata=metadata))

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation; return whether it existed."""
        return await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.DELETE)) is not None

    @abstractmethod
    async def conversation_items(self, tenant: str, conversation_id: str) -> tuple[JsonItem, ...] | None:
        """Return the items of a conversation in order, or None for an unknown conversation."""

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[JsonItem]) -> StoredConversation | None:
        """Append items to a conversation; return the conversation, or None if there is none."""
        return await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.CHANGE, items=items))

    async def delete_item(self, tenant: str, conversation_id: str, item_id: str) -> StoredConversation | None:
        """Remove an item from a conversation; return the conversation, or None if either does not exist."""
        return await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.CHANGE, item_id=item_id))

    async def hold(self, tenant: str, conversation_id: str, owner: str) -> bool:
        """Lease a conversation to a new response, its owner; return whether there is such a conversation.

        The lease ends with an `Addition`, with `release`, or after `LEASE` seconds. A response whose lease has lapsed stays the
        owner until another response holds the conversation or a client changes its items.

        Raises:
            Conflict: Another response has the lease.
        """
        return await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.HOLD, owner)) is not None

    async def renew_hold(self, tenant: str, conversation_id: str, owner: str) -> bool:
        """Renew the lease on a conversation; return whether there is such a conversation.

        Raises:
            Conflict: The response does not own the conversation any more.
        """
        return await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.RENEW, owner)) is not None

    async def release(self, tenant: str, conversation_id: str, owner: str) -> None:
        """End the lease on a conversation if `owner` owns it."""
        with suppress(Conflict):
            await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.RELEASE, owner))

    @abstractmethod
    async def sweep(self) -> SweepResult:
        """Delete expired responses, which readers already cannot see, and expired logs."""

    @abstractmethod
    async def info(self) -> StoreInfo:
        """Return the store's contents."""

    @abstractmethod
    async def migrate(self) -> int:
        """Migrate an older layout to the current one; return the version before the migration.

        Raises:
            WrongLayout: The layout is newer than the current one.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close files and connections. The next use opens them again."""

    @abstractmethod
    async def _write(self, tenant: str, response_id: str, edit: Edit) -> EditResult | None:
        """Carry out all effects of an edit in one commit; return None if the state has no edge for it (see `refuse`)."""

    @abstractmethod
    async def _write_conversation(self, tenant: str, conversation_id: str, edit: ConversationEdit) -> StoredConversation | None:
        """Carry out all effects of an edit in one commit; return the conversation, or None if it or the item does not exist.

        Raises:
            Conflict: The state has no edge for the edit.
        """

    async def _write_as_owner(self, lease: Lease, edit: Edit) -> bool:
        result = await self._write(lease.tenant, lease.response_id, edit)
        return result is not None and result.cancelled


def refuse(edit: Edit, state: str) -> None:
    """Raise the error for an edit that the store refuses in `state`; return if the edit has no lease and stores no response.

    The store refuses an edit if the state has no edge for it, or if its lease is over.

    Raises:
        LeaseLost: The edit needs a lease.
        Conflict: The edit stores a new response.
    """
    if edit.trigger in STORED.owned:
        raise LeaseLost(f"The lease of {edit.owner!r} is over: the response is {state}.")
    if edit.stored is not None:
        raise Conflict(f"There is a response with that id already; it is {state}.")


def conversation_conflict(conversation_id: str, trigger: ConversationTrigger) -> Conflict:
    """Return the error for an edit of a conversation that the store refuses."""
    if trigger in CONVERSATION.owned:
        return Conflict(f"The conversation '{conversation_id}' was taken or changed meanwhile.")
    return Conflict(f"A response is being made that adds to the conversation '{conversation_id}'.")
