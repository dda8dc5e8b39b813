"""What is asked about conversations, of a store in Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from attrs import define, field

from interlock.fsm.processes.conversation import ConversationTrigger
from interlock.serving.requests.conversation import Item
from interlock.serving.store.errors import Conflict
from interlock.serving.store.packing import pack, unpack
from interlock.serving.store.pieces import pieces_of
from interlock.serving.store.redis.calls import Calls
from interlock.serving.store.values import Conversation

__all__ = ["RedisConversations"]

_T = ConversationTrigger

_ONCE: Final = frozenset({_T.CHANGE, _T.DELETE})
"""What does something else when it is done again."""


@define(eq=False)
class RedisConversations:
    """Holds conversations in Redis; see `ConversationStore`."""

    _calls: Calls = field(init=False)

    async def create_conversation(self, tenant: str, conversation: Conversation, items: Sequence[Item] = ()) -> None:
        """Store a new conversation."""
        said = {"created_at": conversation.created_at, "version": conversation.version}
        await self._converse(tenant, conversation.id, _T.CREATE, items, [pack(conversation.metadata)], **said)

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """Return a conversation."""
        return _read(conversation_id, await self._converse(tenant, conversation_id, "look"))

    async def update_conversation(self, tenant: str, conversation_id: str, metadata: Mapping[str, object]) -> Conversation | None:
        """Give a conversation other metadata."""
        return _read(conversation_id, await self._converse(tenant, conversation_id, _T.DESCRIBE, (), [pack(metadata)]))

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation."""
        return await self._converse(tenant, conversation_id, _T.DELETE) is not None

    async def conversation_items(self, tenant: str, conversation_id: str) -> tuple[Item, ...] | None:
        """Return the items of a conversation."""
        found = await self._converse(tenant, conversation_id, "items")
        return None if found is None else tuple(cast("Item", unpack(body)) for body in found[0])

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[Item]) -> Conversation | None:
        """Add items to a conversation that nobody holds."""
        return _read(conversation_id, await self._converse(tenant, conversation_id, _T.CHANGE, items))

    async def delete_item(self, tenant: str, conversation_id: str, item_id: str) -> Conversation | None:
        """Remove an item from a conversation that nobody holds."""
        return _read(conversation_id, await self._converse(tenant, conversation_id, _T.CHANGE, item=item_id))

    async def hold(self, tenant: str, conversation_id: str, owner: str) -> int | None:
        """Keep others from adding to a conversation."""
        held = _read(conversation_id, await self._converse(tenant, conversation_id, _T.HOLD, owner=owner))
        return None if held is None else held.version

    async def release(self, tenant: str, conversation_id: str, owner: str) -> None:
        """Let others add to a conversation again."""
        await self._converse(tenant, conversation_id, _T.RELEASE, owner=owner)

    async def _converse(
        self,
        tenant: str,
        conversation_id: str,
        what: str,
        items: Sequence[Item] = (),
        values: Sequence[bytes] = (),
        **said: object,
    ) -> Any:  # noqa: ANN401 - Redis'
        pieces = pieces_of(tenant, items)
        named = [[piece.digest.hex(), piece.id] for piece in pieces]
        asked = {"id": conversation_id, "what": what, "items": named, **said}
        bodies = [*values, *(piece.packed for piece in pieces)]
        found = await self._calls.run("converse", tenant, asked, bodies, again=what not in _ONCE)
        if found == b"held":
            raise Conflict(f"A response is being made that adds to the conversation '{conversation_id}'.")
        return found


def _read(conversation_id: str, found: Any) -> Conversation | None:  # noqa: ANN401 - Redis'
    if found is None:
        return None
    created_at, metadata, version = found
    return Conversation(conversation_id, int(created_at), cast("Mapping[str, object]", unpack(metadata)), int(version))
