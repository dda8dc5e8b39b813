"""What a store of responses is to a server: what can be asked of it.

Several processes may share a store. Nothing that one of them was told is taken back: what a method has written is there for all.
"""

# ruff: noqa: D417 - what all methods take is explained above them

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from interlock.serving.requests.input_items import Item
from interlock.serving.store.notifications import Subscription
from interlock.serving.store.records import Addition, Conversation, Expired, Info, Lease, Log, StoredResponse

__all__ = ["SHARED", "ConversationStore", "ResponseStore"]

SHARED: Final = ""
"""The tenant of all clients, where what one has stored is there for the others."""


class ConversationStore(Protocol):
    """Holds the conversations that clients have created, until they delete them.

    `tenant` is to whom a conversation belongs: what one has stored is not there for another. `conversation_id` is its id. Each
    method raises `StoreDown` if the store cannot be used now.
    """

    async def create_conversation(self, tenant: str, conversation: Conversation, items: Sequence[Item] = ()) -> None:
        """Store a new conversation.

        Args:
            conversation: It.
            items: What it begins with. Each has an id.
        """
        ...

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """Return a conversation, or None if there is none."""
        ...

    async def update_conversation(self, tenant: str, conversation_id: str, metadata: Mapping[str, object]) -> Conversation | None:
        """Give a conversation other metadata, and return it, or None if there is none.

        Args:
            metadata: All of its metadata.
        """
        ...

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation, and return whether there was one."""
        ...

    async def conversation_items(self, tenant: str, conversation_id: str) -> tuple[Item, ...] | None:
        """Return the items of a conversation in their order, or None if there is no such conversation."""
        ...

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[Item]) -> Conversation | None:
        """Add items to the end of a conversation, and return it, or None if there is none.

        Args:
            items: The items, each with an id.

        Raises:
            Conflict: A response is being made that adds to the conversation.
        """
        ...

    async def delete_item(self, tenant: str, conversation_id: str, item_id: str) -> Conversation | None:
        """Remove an item from a conversation, and return the conversation, or None if there is none or it has no such item.

        Args:
            item_id: The item's id.

        Raises:
            Conflict: A response is being made that adds to the conversation.
        """
        ...

    async def hold(self, tenant: str, conversation_id: str, owner: str) -> int | None:
        """Keep others from adding to a conversation, for as long as a lease lasts; its owner may hold it again and again.

        An `Addition` that is committed ends the hold.

        Args:
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
            owner: As for `hold`.
        """
        ...


class ResponseStore(ConversationStore, Protocol):
    """Holds responses for as long as it can or is to. The edges of the table `stored` say what it accepts.

    `tenant` is to whom a response belongs: what one has stored is not there for another. `response_id` is its id, and `lease` is
    that of its owner. Each method raises `StoreDown` if the store cannot be used now.
    """

    async def put(self, tenant: str, stored: StoredResponse, addition: Addition | None = None) -> None:
        """Store a response that has ended, and what it adds to a conversation, in one commit.

        Args:
            stored: The response. It takes the place of an ended one with its id.
            addition: What it adds to a conversation.

        Raises:
            Conflict: The conversation has changed meanwhile, or is gone; or a response of that id is being made.
        """
        ...

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response, or None if it is not held, or no more.

        One in the background is as it was enqueued until it has ended.
        """
        ...

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Delete a response, its log, and the items that nothing else refers to; return whether there was one.

        Args:
            response_id: The response's id. If it is being made, its owner loses the lease.
        """
        ...

    async def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, Item]:
        """Return items that are held, by their ids; one that is not there is left out.

        Args:
            item_ids: The ids of items of conversations or outputs.
        """
        ...

    async def enqueue(self, tenant: str, stored: StoredResponse, owner: str) -> Lease:
        """Store a response that is to be made in the background.

        Args:
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
        """Ask the owner of a response to cancel it; return whether there is such a response, ended or not."""
        ...

    async def read(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        """Return events of a response in the background, or None if there is no such response.

        Args:
            response_id: The response's id. One that was put as a whole has no events.
            first: The number of the first event that is wanted.
            limit: How many events at most.
        """
        ...

    def watching(self, tenant: str, response_id: str) -> AbstractContextManager[Subscription]:
        """Subscribe to a response: every change of its log, of its state and of its flag ends a wait.

        Subscribe first and read then, so that nothing falls between.
        """
        ...

    async def adopt(self, tenant: str, response_id: str, owner: str) -> Lease | None:
        """Take over a response whose owner is lost.

        Args:
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

    async def sweep(self) -> Expired:
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
