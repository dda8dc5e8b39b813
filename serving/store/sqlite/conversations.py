"""The conversations of a store in SQLite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import assert_never, cast

from attrs import frozen

from interlock.fsm.processes.conversation import ConversationEffect, ConversationTrigger
from interlock.serving.requests.conversation import Item
from interlock.serving.store.errors import Conflict
from interlock.serving.store.holds import effects_of
from interlock.serving.store.leases import LEASE
from interlock.serving.store.packing import pack, unpack
from interlock.serving.store.pieces import pieces_of
from interlock.serving.store.sqlite.items import Items, Seq
from interlock.serving.store.sqlite.sql import Sql
from interlock.serving.store.values import Addition, Conversation

__all__ = ["Conversations"]

_T, _E = ConversationTrigger, ConversationEffect


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
        row = self._row(tenant, name)
        if row is not None:
            update = "UPDATE conversation SET metadata = ? WHERE seq = ?"
            self._fire(name, row, _T.DESCRIBE, lambda: self.sql.do(update, (pack(metadata), row.seq)))
        return self.get(tenant, name)

    def delete(self, tenant: str, name: str) -> bool:
        """Delete a conversation, and the items that nothing else refers to."""
        row = self._row(tenant, name)
        if row is not None:
            self._fire(name, row, _T.DELETE, lambda: self._remove(row.seq))
        return row is not None

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
        self._fire(name, row, _T.CHANGE, lambda: self._grow(tenant, row.seq, items))
        return self.get(tenant, name)

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
        ((place, item),) = found
        self._fire(name, row, _T.CHANGE, lambda: self._drop(row.seq, place, item))
        return self.get(tenant, name)

    def hold(self, tenant: str, name: str, owner: str) -> int | None:
        """Keep others from adding to a conversation."""
        row = self._row(tenant, name)
        if row is None:
            return None
        self._fire(name, row, _T.HOLD, by=owner)
        return row.version

    def release(self, tenant: str, name: str, owner: str) -> None:
        """Let others add to a conversation again."""
        row = self._row(tenant, name)
        if row is not None:
            self._fire(name, row, _T.RELEASE, by=owner)

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
            self._fire(addition.conversation_id, row, _T.JOIN, lambda: self._grow(tenant, row.seq, addition.items))

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

    def _drop(self, conversation: Seq, place: int, item: Seq) -> None:
        self.sql.do("DELETE FROM member WHERE conversation = ? AND place = ?", (conversation, place))
        Items(self.sql).drop(item)

    def _remove(self, conversation: Seq) -> None:
        items = self.sql.rows("DELETE FROM member WHERE conversation = ? RETURNING item", (conversation,))
        self.sql.do("DELETE FROM conversation WHERE seq = ?", (conversation,))
        for (item,) in items:
            Items(self.sql).drop(item)

    def _fire(
        self, name: str, row: Row, trigger: ConversationTrigger, write: Callable[[], object] = lambda: None, by: str = ""
    ) -> None:
        """Fire an edge of a conversation, and carry out its effects.

        Args:
            name: Its id.
            row: The conversation.
            trigger: What is fired.
            write: Changes what an edge changes beside the hold and the version.
            by: Who holds it, or is to.

        Raises:
            Conflict: Another holds it.
        """
        for effect in effects_of(name, row.owner, row.until, self.now, trigger, by):
            match effect:
                case _E.KEEP | _E.DESCRIBE | _E.REMOVE:
                    write()
                case _E.WRITE:
                    write()
                    self.sql.do("UPDATE conversation SET version = version + 1 WHERE seq = ?", (row.seq,))
                case _E.TAKE:
                    self.sql.do("UPDATE conversation SET owner = ?, until = ? WHERE seq = ?", (by, self.now + LEASE, row.seq))
                case _E.FREE:
                    self.sql.do("UPDATE conversation SET owner = '' WHERE seq = ?", (row.seq,))
                case _:
                    assert_never(effect)


def _said(name: str, row: Row) -> Conversation:
    return Conversation(name, row.created_at, cast("Mapping[str, object]", unpack(row.metadata)), row.version)
