"""The part that a response has in a conversation: nobody else adds to it meanwhile, and it is added to when the response ends.

Who comes second is told so before anything is generated. It knows the store, and neither HTTP nor how a response is made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Self

from attrs import field, frozen

from interlock.fsm.deltas import Fault
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.identity import random_id
from interlock.serving.requests.input_items import Item
from interlock.serving.store.interface import ConversationStore
from interlock.serving.store.records import RENEW, Addition, StoredResponse
from interlock.serving.store.store_errors import Conflict, StoreDown

__all__ = ["ConversationLease", "commit_end", "locked", "no_such_conversation"]

logger = logging.getLogger(__name__)

ANSWERED: Final = frozenset({"completed", "incomplete"})
"""The statuses of responses that are added."""

LOST: Final = Fault("server_error", "The conversation was deleted or added to by somebody else while the response was made.")


@frozen(eq=False)
class ConversationLease:
    """The part of one response in a conversation.

    Args:
        store: Holds the conversation.
        tenant: To whom it belongs.
        conversation_id: Its id.
        response_id: The id of the response, if it is given one by this server; in any case who holds the conversation.
        version: The version of the conversation that the response goes on from.
        items: The items of the conversation.
    """

    store: ConversationStore
    tenant: str
    conversation_id: str
    response_id: str
    version: int
    items: tuple[Item, ...] = field(repr=False)

    @classmethod
    async def begin(cls, store: ConversationStore, tenant: str, conversation_id: str) -> Self:
        """Return the part of a new response in a conversation, which is held from now on.

        Args:
            store: Holds the conversation.
            tenant: To whom it belongs.
            conversation_id: Its id.

        Raises:
            ApiError: 404 if there is no such conversation, 409 if another response is being made in it.
            StoreDown: The store cannot be used now.
        """
        response_id = random_id("resp")
        try:
            version = await store.hold(tenant, conversation_id, response_id)
        except Conflict:
            raise locked(conversation_id) from None
        items = None if version is None else await store.conversation_items(tenant, conversation_id)
        if version is None or items is None:
            raise no_such_conversation(conversation_id)
        return cls(store, tenant, conversation_id, response_id, version, items)

    @asynccontextmanager
    async def kept(self, interrupt: Callable[[Fault], None]) -> AsyncGenerator[None]:
        """Hold the conversation until the end of the context.

        Args:
            interrupt: Ends the response; called if the conversation is held no longer.
        """
        keeping = asyncio.create_task(self._keep(interrupt))
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
            await self.release()

    async def release(self) -> None:
        """Let others add to the conversation again."""
        with suppress(StoreDown):  # then the hold ends by itself
            await self.store.release(self.tenant, self.conversation_id, self.response_id)

    def addition(self, stored: StoredResponse) -> Addition | None:
        """Return what the response adds to the conversation: its request's input, and its output.

        Args:
            stored: The response when it has ended; what it answered begins with the conversation.

        Returns:
            None if there is no answer, because it failed or was cancelled: whoever asks again would add the question twice.
        """
        if stored.response["status"] not in ANSWERED:
            return None
        return Addition(self.conversation_id, self.version, stored.conversation[len(self.items) :])

    async def _keep(self, interrupt: Callable[[Fault], None]) -> None:
        while True:
            await asyncio.sleep(RENEW)
            try:
                version = await self.store.hold(self.tenant, self.conversation_id, self.response_id)
            except StoreDown as error:
                logger.warning("%s: its conversation could not be held on to: %s", self.response_id, error)
                continue  # the commit of the addition has the last word
            except Conflict:
                version = None
            if version != self.version:
                interrupt(LOST)
                return


async def commit_end(
    lease: ConversationLease | None, stored: StoredResponse, write: Callable[[Addition | None], Awaitable[None]]
) -> None:
    """Store a response that has ended, with what it adds to its conversation if that is still there.

    Args:
        lease: Its part in a conversation; None if it belongs to none.
        stored: The response.
        write: Stores it, with what it adds to a conversation, in one commit.

    Raises:
        StoreError: What `write` raises where nothing is added.
    """
    try:
        await write(None if lease is None else lease.addition(stored))
    except Conflict as conflict:
        logger.warning("%s: it is not added to its conversation: %s", stored.id, conflict)
        await write(None)


def locked(conversation_id: str) -> ApiError:
    """Return the error for a conversation that another response is adding to.

    Args:
        conversation_id: Its id.
    """
    message = f"Another response is being made in the conversation '{conversation_id[:100]}'; try again when it has ended."
    return ApiError(409, message, param="conversation", code="conversation_locked")


def no_such_conversation(conversation_id: str) -> ApiError:
    """Return the error for a conversation that there is not.

    Args:
        conversation_id: Its id.
    """
    return ApiError(404, f"Conversation with id '{conversation_id[:100]}' not found.", param="conversation")
