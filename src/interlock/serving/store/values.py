"""What a store stores and returns, the edits that write it, and the errors."""

# ruff: noqa: N818 - an error is named after what has happened

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast

from attrs import field, frozen

from interlock.fsm.table import InterlockError
from interlock.serving.requests.input_items import JsonItem
from interlock.serving.store.conversation_table import ConversationTrigger
from interlock.serving.store.stored_table import STORED, StoredTrigger

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


class WrongLayout(StoreDown):
    """The store has a layout that this release of Interlock cannot use."""

    def __init__(self, version: int, needed: int) -> None:
        advice = "run `interlock store migrate`" if version < needed else "use a newer release"
        super().__init__(f"The store has layout {version}, but this release of Interlock needs layout {needed}: {advice}.")


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
