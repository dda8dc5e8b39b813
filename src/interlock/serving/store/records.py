"""The values that a store takes and returns, the edits that it carries out, and the errors that it raises."""

# ruff: noqa: N818 - an error is named after what has happened

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from attrs import field, frozen

from interlock.fsm.errors import InterlockError
from interlock.fsm.processes.conversation import ConversationTrigger
from interlock.fsm.processes.stored import StoredTrigger
from interlock.serving.requests.input_items import Item

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
    """There is no room for another background response, even if every ended one were evicted."""


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
    """The right of an owner to write the events of one response. Each owner has the next epoch, which ends the earlier ones."""

    tenant: str
    response_id: str
    owner: str
    epoch: int


@frozen
class Log:
    """Committed events of a background response, as they are sent.

    Args:
        first: The number of the first of them.
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
    """What a store contains: the number of responses in each state, `size` in bytes, and the leases that have not lapsed."""

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
