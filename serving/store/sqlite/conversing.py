"""What is asked about conversations, handed to the threads of a store in SQLite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import define, field

from interlock.serving.requests.conversation import Item
from interlock.serving.store.sqlite.conversations import Conversations
from interlock.serving.store.sqlite.sql import Sql
from interlock.serving.store.sqlite.threads import Worker
from interlock.serving.store.values import Conversation

__all__ = ["SqliteConversations"]


@define(eq=False)
class SqliteConversations:
    """Holds conversations in a file; see `ConversationStore`."""

    clock: Callable[[], float] = field(kw_only=True)
    _writer: Worker = field(init=False)
    _reader: Worker = field(init=False)

    async def create_conversation(self, tenant: str, conversation: Conversation, items: Sequence[Item] = ()) -> None:
        """Store a new conversation."""
        await self._writer.do(lambda sql: self._conversations(sql).create(tenant, conversation, items))

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """Return a conversation."""
        return await self._reader.do(lambda sql: self._conversations(sql).get(tenant, conversation_id))

    async def update_conversation(self, tenant: str, conversation_id: str, metadata: Mapping[str, object]) -> Conversation | None:
        """Give a conversation other metadata."""
        return await self._writer.do(lambda sql: self._conversations(sql).update(tenant, conversation_id, metadata))

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation."""
        return await self._writer.do(lambda sql: self._conversations(sql).delete(tenant, conversation_id))

    async def conversation_items(self, tenant: str, conversation_id: str) -> tuple[Item, ...] | None:
        """Return the items of a conversation."""
        return await self._reader.do(lambda sql: self._conversations(sql).items(tenant, conversation_id))

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[Item]) -> Conversation | None:
        """Add items to a conversation that nobody holds."""
        return await self._writer.do(lambda sql: self._conversations(sql).add(tenant, conversation_id, items))

    async def delete_item(self, tenant: str, conversation_id: str, item_id: str) -> Conversation | None:
        """Remove an item from a conversation that nobody holds."""
        return await self._writer.do(lambda sql: self._conversations(sql).remove(tenant, conversation_id, item_id))

    async def hold(self, tenant: str, conversation_id: str, owner: str) -> int | None:
        """Keep others from adding to a conversation."""
        return await self._writer.do(lambda sql: self._conversations(sql).hold(tenant, conversation_id, owner))

    async def release(self, tenant: str, conversation_id: str, owner: str) -> None:
        """Let others add to a conversation again."""
        await self._writer.do(lambda sql: self._conversations(sql).release(tenant, conversation_id, owner))

    def _conversations(self, sql: Sql) -> Conversations:
        return Conversations(sql, self.clock())
