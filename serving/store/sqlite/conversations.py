"""The conversations of a store in SQLite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from attrs import frozen

from interlock.serving.requests.conversation import Item
from interlock.serving.store.errors import Conflict
from interlock.serving.store.leases import LEASE, has_lapsed
from interlock.serving.store.packing import pack, unpack
from interlock.serving.store.pieces import pieces_of
from interlock.serving.store.sqlite.items import Items, Seq
from interlock.serving.store.sqlite.sql import Sql
from interlock.serving.store.store import Addition, Conversation

__all__ = ["Conversations"]


@frozen
class Row:
    """A conversation as it is stored; see the table `conversation`."""

    seq: Seq
    created_at: int
    metadata: bytes
    version: int
    owner: str
    until: float


@frozen
class Conversations:
    """The conversations that clients have created; each method is part of a transaction.

    Args:
        sql: A connection.
        now: The time by which leases are measured.
    """

    sql: Sql
    now: float

    def create(self, tenant: str, said: Conversation, items: Sequence[Item]) -> None:
        """Store a new conversation."""
        self.delete(tenant, said.id)
        values = tenant, said.id, said.created_at, pack(said.metadata), said.version
        insert = """
            INSERT INTO conversation (tenant, id, created_at, metadata, version, owner, until) VALUES (?, ?, ?, ?, ?, '', 0)
        """
        self._grow(tenant, self.sql.insert(insert, values), items)

    def get(self, tenant: str, name: str) -> Conversation | None:
        """Return a conversation."""
        row = self._row(tenant, name)
        return None if row is None else _said(name, row)

    def update(self, tenant: str, name: str, metadata: Mapping[str, object]) -> Conversation | None:
        """Give a conversation other metadata."""
        update = "UPDATE conversation SET metadata = ? WHERE tenant = ? AND id = ?"
        self.sql.do(update, (pack(metadata), tenant, name))
        return self.get(tenant, name)

    def delete(self, tenant: str, name: str) -> bool:
        """Delete a conversation, and the items that nothing else refers to."""
        row = self._row(tenant, name)
        if row is None:
            return False
        items = self.sql.rows("DELETE FROM member WHERE conversation = ? RETURNING item", (row.seq,))
        self.sql.do("DELETE FROM conversation WHERE seq = ?", (row.seq,))
        for (item,) in items:
            Items(self.sql).drop(item)
        return True

    def items(self, tenant: str, name: str) -> tuple[Item, ...] | None:
        """Return the items of a conversation."""
        row = self._row(tenant, name)
        if row is None:
            return None
        query = "SELECT body FROM member JOIN item ON item.seq = member.item WHERE conversation = ? ORDER BY place"
        return tuple(cast("Item", unpack(body)) for (body,) in self.sql.rows(query, (row.seq,)))

    def add(self, tenant: str, name: str, items: Sequence[Item]) -> Conversation | None:
        """Add items to a conversation that nobody holds."""
        row = self._row(tenant, name)
        if row is None:
            return None
        self._require_free(name, row)
        self._grow(tenant, row.seq, items)
        return self._changed(tenant, name, row)

    def remove(self, tenant: str, name: str, item_id: str) -> Conversation | None:
        """Remove an item from a conversation that nobody holds."""
        row = self._row(tenant, name)
        query = """
            SELECT place, member.item FROM member JOIN item ON item.seq = member.item
            WHERE conversation = ? AND id = ? ORDER BY place LIMIT 1
        """
        found = () if row is None else self.sql.rows(query, (row.seq, item_id))
        if row is None or not found:
            return None
        self._require_free(name, row)
        ((place, item),) = found
        self.sql.do("DELETE FROM member WHERE conversation = ? AND place = ?", (row.seq, place))
        Items(self.sql).drop(item)
        return self._changed(tenant, name, row)

    def hold(self, tenant: str, name: str, owner: str) -> int | None:
        """Keep others from adding to a conversation."""
        row = self._row(tenant, name)
        if row is None:
            return None
        self._require_free(name, row, owner)
        self.sql.do("UPDATE conversation SET owner = ?, until = ? WHERE seq = ?", (owner, self.now + LEASE, row.seq))
        return row.version

    def release(self, tenant: str, name: str, owner: str) -> None:
        """Let others add to a conversation again."""
        self.sql.do("UPDATE conversation SET owner = '' WHERE (tenant, id, owner) = (?, ?, ?)", (tenant, name, owner))

    def require_version(self, tenant: str, addition: Addition | None) -> None:
        """Refuse an addition to a conversation that has changed, before anything is written.

        Raises:
            Conflict: The conversation has changed, or is gone.
        """
        row = None if addition is None else self._row(tenant, addition.conversation_id)
        if addition is not None and (row is None or row.version != addition.version):
            raise Conflict(f"The conversation '{addition.conversation_id}' has changed meanwhile.")

    def join(self, tenant: str, addition: Addition | None) -> None:
        """Add to a conversation what `require_version` has let through; nobody holds it any more."""
        row = None if addition is None else self._row(tenant, addition.conversation_id)
        if addition is not None and row is not None:
            self._grow(tenant, row.seq, addition.items)
            self._changed(tenant, addition.conversation_id, row)
            self.sql.do("UPDATE conversation SET owner = '' WHERE seq = ?", (row.seq,))

    def _row(self, tenant: str, name: str) -> Row | None:
        query = "SELECT seq, created_at, metadata, version, owner, until FROM conversation WHERE tenant = ? AND id = ?"
        found = self.sql.row(query, (tenant, name))
        return None if found is None else Row(*found)

    def _grow(self, tenant: str, conversation: Seq, items: Sequence[Item]) -> None:
        last = "SELECT coalesce(max(place), -1) FROM member WHERE conversation = ?"
        place = self.sql.one(last, (conversation,))
        taken = [Items(self.sql).take(tenant, piece) for piece in pieces_of(tenant, items)]
        rows = [(conversation, place + index, item) for index, item in enumerate(taken, 1)]
        self.sql.many("INSERT INTO member VALUES (?, ?, ?)", rows)

    def _changed(self, tenant: str, name: str, row: Row) -> Conversation | None:
        self.sql.do("UPDATE conversation SET version = version + 1 WHERE seq = ?", (row.seq,))
        return self.get(tenant, name)

    def _require_free(self, name: str, row: Row, owner: str = "") -> None:
        if row.owner not in {"", owner} and not has_lapsed(row.until, self.now):
            raise Conflict(f"A response is being made that adds to the conversation '{name}'.")


def _said(name: str, row: Row) -> Conversation:
    return Conversation(name, row.created_at, cast("Mapping[str, object]", unpack(row.metadata)), row.version)
