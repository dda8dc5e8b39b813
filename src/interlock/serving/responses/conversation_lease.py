"""The lease of a response on its conversation, which keeps other responses out until this response has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Self

from attrs import field, frozen

from interlock.embedding import random_id
from interlock.fsm.deltas import Fault
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.input_items import JsonItem
from interlock.serving.requests.runtime import alongside
from interlock.serving.store import RENEW, Addition, Conflict, ResponseStore, StoreDown, StoredResponse

logger = logging.getLogger(__name__)

CONVERSATION_CHANGED: Final = Fault(
    "server_error", "The conversation was changed or deleted by another request while the response was made."
)


@frozen(eq=False)
class ConversationLease:
    """The lease of a response on a conversation, and the items that the response continues."""

    store: ResponseStore
    tenant: str
    conversation_id: str
    response_id: str
    """The owner of the conversation, and the id of the response unless its engine sets another."""
    items: tuple[JsonItem, ...] = field(repr=False)

    @classmethod
    async def acquire(cls, store: ResponseStore, tenant: str, conversation_id: str) -> Self:
        """Acquire the lease for a new response; raise a 404 for an unknown conversation, or a 409 for a locked one."""
        response_id = random_id("resp")
        try:
            exists = await store.hold(tenant, conversation_id, response_id)
        except Conflict:
            raise lock_error(conversation_id) from None
        items = await store.conversation_items(tenant, conversation_id) if exists else None
        if items is None:
            raise no_such_conversation(conversation_id)
        return cls(store, tenant, conversation_id, response_id, items)

    @asynccontextmanager
    async def keep_alive(self, interrupt: Callable[[Fault], None]) -> AsyncGenerator[None]:
        """Renew the lease until the end of the context, then release it; interrupt the response if the lease is lost."""
        try:
            async with alongside(self._renew(interrupt)):
                yield
        finally:
            await self.release()

    async def release(self) -> None:
        """Release the lease, so that other requests can change the conversation."""
        with suppress(StoreDown):  # then the lease expires by itself
            await self.store.release(self.tenant, self.conversation_id, self.response_id)

    def addition(self, stored: StoredResponse) -> Addition | None:
        """Return the input and output of a finished response, or None if it failed or was cancelled."""
        if stored.response["status"] not in {"completed", "incomplete"}:
            return None  # so that a retry does not add the input twice
        return Addition(self.conversation_id, self.response_id, stored.conversation[len(self.items) :])

    async def _renew(self, interrupt: Callable[[Fault], None]) -> None:
        while True:
            await asyncio.sleep(RENEW)
            try:
                owned = await self.store.renew_hold(self.tenant, self.conversation_id, self.response_id)
            except StoreDown as error:
                logger.warning("%s: the lease of its conversation could not be renewed: %s", self.response_id, error)
                continue  # the commit of the addition finds out whether the conversation has another owner
            except Conflict:
                owned = False
            if not owned:
                interrupt(CONVERSATION_CHANGED)
                return


async def commit_end(
    lease: ConversationLease | None, stored: StoredResponse, write: Callable[[Addition | None], Awaitable[None]]
) -> None:
    """Store a finished response with `write`; if it still owns its conversation, add it there in the same commit."""
    try:
        await write(None if lease is None else lease.addition(stored))
    except Conflict as conflict:
        logger.warning("%s: could not be added to its conversation: %s", stored.id, conflict)
        await write(None)


def lock_error(conversation_id: str) -> ApiError:
    """Return the error for a conversation that another response holds."""
    message = f"Another response is being made in the conversation '{conversation_id[:100]}'; try again when it has ended."
    return ApiError(409, message, param="conversation", code="conversation_locked")


def no_such_conversation(conversation_id: str) -> ApiError:
    """Return the error for an unknown conversation."""
    return ApiError(404, f"Conversation with id '{conversation_id[:100]}' not found.", param="conversation")
