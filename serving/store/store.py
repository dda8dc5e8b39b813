"""What a store of responses is to a server: what it holds, and what can be asked of it.

Several processes may share a store. Nothing that one of them was told is taken back: what a method has written is there for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol, cast

from attrs import field, frozen

from interlock.serving.requests.conversation import Item
from interlock.serving.store.leases import Lease
from interlock.serving.store.wakes import Watch

__all__ = ["SHARED", "Addition", "Conversation", "ConversationStore", "Info", "Log", "ResponseStore", "StoredResponse", "Swept"]

SHARED: Final = ""
"""The tenant of all clients, where what one has stored is there for the others."""


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
class Swept:
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


class ConversationStore(Protocol):
    """Holds the conversations that clients have created, until they delete them.

    Each method raises `StoreDown` if the store cannot be used now.
    """

    async def create_conversation(self, tenant: str, conversation: Conversation, items: Sequence[Item] = ()) -> None:
        """Store a new conversation.

        Args:
            tenant: To whom it belongs.
            conversation: It.
            items: What it begins with. Each has an id.
        """
        ...

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """Return a conversation, or None if there is none.

        Args:
            tenant: To whom it belongs.
            conversation_id: Its id.
        """
        ...

    async def update_conversation(self, tenant: str, conversation_id: str, metadata: Mapping[str, object]) -> Conversation | None:
        """Give a conversation other metadata, and return it, or None if there is none.

        Args:
            tenant: To whom it belongs.
            conversation_id: Its id.
            metadata: All of its metadata.
        """
        ...

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation, and return whether there was one.

        Args:
            tenant: To whom it belongs.
            conversation_id: Its id.
        """
        ...

    async def conversation_items(self, tenant: str, conversation_id: str) -> tuple[Item, ...] | None:
        """Return the items of a conversation in their order, or None if there is no such conversation.

        Args:
            tenant: To whom it belongs.
            conversation_id: Its id.
        """
        ...

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[Item]) -> Conversation | None:
        """Add items to the end of a conversation, and return it, or None if there is none.

        Args:
            tenant: To whom it belongs.
            conversation_id: Its id.
            items: The items, each with an id.

        Raises:
            Conflict: A response is being made that adds to the conversation.
        """
        ...

    async def delete_item(self, tenant: str, conversation_id: str, item_id: str) -> Conversation | None:
        """Remove an item from a conversation, and return the conversation, or None if there is none or it has no such item.

        Args:
            tenant: To whom it belongs.
            conversation_id: Its id.
            item_id: The item's id.

        Raises:
            Conflict: A response is being made that adds to the conversation.
        """
        ...

    async def hold(self, tenant: str, conversation_id: str, owner: str) -> int | None:
        """Keep others from adding to a conversation, for as long as a lease lasts; its owner may hold it again and again.

        An `Addition` that is committed ends the hold.

        Args:
            tenant: To whom it belongs.
            conversation_id: Its id.
            owner: Who holds it: the id of the response that is to be added.

        Returns:
            The version of the conversation, for the `Addition`; None if there is no such conversation.

        Raises:
            Conflict: Another holds it.
        """
        ...

    async def release(self, tenant: str, conversation_id: str, owner: str) -> None:
        """Let others add to a conversation again, if this owner holds it.

        Args:
            tenant: To whom it belongs.
            conversation_id: Its id.
            owner: As for `hold`.
        """
        ...


class ResponseStore(ConversationStore, Protocol):
    """Holds responses for as long as it can or is to. The edges of the table `stored` say what it accepts.

    Whatever a client's request reaches has a tenant: what one has stored is not there for another. Each method raises `StoreDown`
    if the store cannot be used now.
    """

    async def put(self, tenant: str, stored: StoredResponse, addition: Addition | None = None) -> None:
        """Store a response that has ended, and what it adds to a conversation, in one commit.

        Args:
            tenant: To whom it belongs.
            stored: The response. It takes the place of an ended one with its id.
            addition: What it adds to a conversation.

        Raises:
            Conflict: The conversation has changed meanwhile, or is gone; or a response of that id is being made.
        """
        ...

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response, or None if it is not held, or no more.

        One in the background is as it was enqueued until it has ended.

        Args:
            tenant: To whom it belongs.
            response_id: The response's id.
        """
        ...

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Delete a response, its log, and the items that nothing else refers to; return whether there was one.

        Args:
            tenant: To whom it belongs.
            response_id: The response's id. If it is being made, its owner loses the lease.
        """
        ...

    async def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, Item]:
        """Return items that are held, by their ids; one that is not there is left out.

        Args:
            tenant: To whom they belong.
            item_ids: The ids of items of conversations or outputs.
        """
        ...

    async def enqueue(self, tenant: str, stored: StoredResponse, owner: str) -> Lease:
        """Store a response that is to be made in the background.

        Args:
            tenant: To whom it belongs.
            stored: The response as it is now.
            owner: Who is to make it.

        Returns:
            The lease under which its events are written.

        Raises:
            Conflict: There is a response with that id.
            StoreFull: There is no room for it.
        """
        ...

    async def append(self, lease: Lease, first: int, frames: Sequence[bytes]) -> bool:
        """Append events to the log of a response, which renews its lease.

        Args:
            lease: The owner's.
            first: The number of the first of them.
            frames: The events as they are sent, numbered one by one.

        Returns:
            Whether cancelling was asked for.

        Raises:
            LeaseLost: Another owns the response, or it has ended or is gone.
            Gap: The events do not follow on the last one.
        """
        ...

    async def renew(self, lease: Lease) -> bool:
        """Renew a lease, and return whether cancelling was asked for.

        Args:
            lease: The owner's.

        Raises:
            LeaseLost: Another owns the response, or it has ended or is gone.
        """
        ...

    async def finish(
        self, lease: Lease, first: int, frames: Sequence[bytes], stored: StoredResponse, addition: Addition | None = None
    ) -> None:
        """End a response: its last events, its body, and what it adds to a conversation are one commit.

        Args:
            lease: The owner's, which ends.
            first: The number of the first of the last events.
            frames: The last events, the terminal one included.
            stored: The response as it ended.
            addition: What it adds to a conversation.

        Raises:
            LeaseLost: Another owns the response, or it has ended or is gone.
            Gap: The events do not follow on the last one.
            Conflict: The conversation has changed meanwhile, or is gone. The lease goes on.
        """
        ...

    async def cancel(self, tenant: str, response_id: str) -> bool:
        """Ask the owner of a response to cancel it; return whether there is such a response, ended or not.

        Args:
            tenant: To whom it belongs.
            response_id: The response's id.
        """
        ...

    async def read(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        """Return events of a response in the background, or None if there is no such response.

        Args:
            tenant: To whom it belongs.
            response_id: The response's id. One that was put as a whole has no events.
            first: The number of the first event that is wanted.
            limit: How many events at most.
        """
        ...

    def watching(self, tenant: str, response_id: str) -> AbstractContextManager[Watch]:
        """Watch a response: every change of its log, of its state and of its flag wakes who waits.

        Watch first and read then, so that nothing falls between.

        Args:
            tenant: To whom it belongs.
            response_id: The response's id.
        """
        ...

    async def adopt(self, tenant: str, response_id: str, owner: str) -> Lease | None:
        """Take over a response whose owner is lost.

        Args:
            tenant: To whom it belongs.
            response_id: The response's id.
            owner: Who takes over.

        Returns:
            The lease, of the next epoch; None if the owner's has not lapsed, or the response has ended or is gone.
        """
        ...

    async def lost(self, limit: int) -> Sequence[tuple[str, str]]:
        """Return tenant and id of responses whose owner is lost, those that were lost first at the beginning.

        Args:
            limit: How many at most.
        """
        ...

    async def sweep(self) -> Swept:
        """Clear away what is stored no longer. Nobody sees it before either; this makes room."""
        ...

    async def info(self) -> Info:
        """Return what is in the store."""
        ...

    async def migrate(self) -> int:
        """Bring an older layout of the store up to date, and return the version that it was of."""
        ...

    async def close(self) -> None:
        """Let go of files and connections. What was acknowledged is stored; the store is not used any more."""
        ...
