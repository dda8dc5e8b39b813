"""What a store holds and returns: responses, conversations, leases, logs, and how much there is of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from attrs import field, frozen

from interlock.serving.requests.input_items import Item

__all__ = ["LEASE", "RENEW", "Addition", "Conversation", "Expired", "Info", "Lease", "Log", "StoredResponse"]

LEASE: Final = 15.0
"""Seconds that a lease lasts."""

RENEW: Final = 5.0
"""Seconds after which an owner renews its lease: it may fail twice before others take over."""


@frozen
class StoredResponse:
    """A response, and what it answered.

    Args:
        response: The response object; of one that has ended, that of its terminal event.
        items: The conversation that it answered: what came before its request, and its request's input. Each has an id.
    """

    response: Mapping[str, object] = field(repr=False)
    items: tuple[Item, ...] = field(repr=False)

    @property
    def id(self) -> str:
        """The response's id."""
        return str(self.response["id"])

    @property
    def output(self) -> Sequence[Item]:
        """The response's own items."""
        return cast("Sequence[Item]", self.response["output"])

    @property
    def conversation(self) -> tuple[Item, ...]:
        """What the next request goes on from."""
        return (*self.items, *self.output)


@frozen
class Conversation:
    """A conversation that a client has created, without its items.

    Args:
        id: Its id.
        created_at: When, in seconds since the epoch.
        metadata: What the client has attached to it.
        version: How often its items have changed.
    """

    id: str
    created_at: int
    metadata: Mapping[str, object]
    version: int = 0


@frozen
class Addition:
    """What a response adds to a conversation, in the commit that ends it.

    Args:
        conversation_id: The conversation.
        version: The one that the response went on from: nothing is added to another.
        items: The items, in their order. Each has an id.
    """

    conversation_id: str
    version: int
    items: tuple[Item, ...] = field(repr=False)


@frozen
class Lease:
    """The right to write the events of one response.

    Args:
        tenant: To whom the response belongs.
        response_id: The response.
        owner: Who has the lease.
        epoch: How many have had it, this owner included; the store takes nothing from those before.
    """

    tenant: str
    response_id: str
    owner: str
    epoch: int


@frozen
class Log:
    """The events of a response in the background, as far as they are committed, from the number that was asked for.

    Args:
        frames: Some of them, each as it is sent.
        first: The number of the first, which is the one asked for.
        oldest: The smallest number that is still held; from a smaller one, nothing can be read.
        following: The number of the event that is to be appended next.
        state: Where the response is in its life, by the table `stored`: `queued`, `running`, `lost` or `ended`.
        cancelled: Whether cancelling was asked for.
    """

    frames: tuple[bytes, ...] = field(repr=False)
    first: int
    oldest: int
    following: int
    state: str
    cancelled: bool

    @property
    def complete(self) -> bool:
        """Whether no event comes after these."""
        return self.state == "ended" and self.first + len(self.frames) >= self.following


@frozen
class Expired:
    """What was cleared away.

    Args:
        expired: Responses about which nothing was written for as long as they are stored.
        trimmed: Responses whose log was removed.
    """

    expired: int = 0
    trimmed: int = 0


@frozen
class Info:
    """What is in a store.

    Args:
        kind: Of which kind it is, and the version of what it runs on.
        version: The version of its layout.
        responses: How many responses there are in each state of their life.
        conversations: How many conversations there are.
        items: How many different items there are.
        events: How many events the logs hold.
        size: Bytes that all of it takes.
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
