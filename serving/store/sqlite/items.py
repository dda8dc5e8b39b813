"""Items in SQLite: each is stored once, and conversations share the links that they have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

from attrs import frozen

from interlock.serving.requests.conversation import Item
from interlock.serving.store.packing import unpack
from interlock.serving.store.pieces import Piece, links_of
from interlock.serving.store.sqlite.sql import Sql

__all__ = ["Items"]

Seq: TypeAlias = int
"""What a row is referred to by."""


@frozen
class Items:
    """The items of all conversations; each method is part of a transaction.

    Args:
        sql: A connection.
    """

    sql: Sql

    def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, Item]:
        """Return items by their ids; of two with one id, the one that came last."""
        query = "SELECT body FROM item WHERE tenant = ? AND id = ? ORDER BY seq DESC LIMIT 1"
        found = ((item_id, self.sql.one(query, (tenant, item_id))) for item_id in item_ids)
        return {item_id: cast("Item", unpack(body)) for item_id, body in found if body is not None}

    def take(self, tenant: str, piece: Piece) -> Seq:
        """Store an item, unless it is, and return its row."""
        there = self.sql.one("SELECT seq FROM item WHERE digest = ?", (piece.digest,))
        if there is not None:
            return int(there)
        values = (tenant, piece.id, piece.digest, piece.packed)
        return self.sql.insert("INSERT INTO item (tenant, id, digest, body) VALUES (?, ?, ?, ?)", values)

    def hold(self, tenant: str, pieces: Sequence[Piece]) -> Seq | None:
        """Store a conversation, and return its last link; None for one without items."""
        digests = links_of(tenant, pieces)
        place, link = self._stored(digests)
        for digest, piece in zip(digests[place:], pieces[place:], strict=True):
            values = digest, link, self.take(tenant, piece)
            link = self.sql.insert("INSERT INTO link (digest, before, item) VALUES (?, ?, ?)", values)
        return link

    def _stored(self, digests: Sequence[bytes]) -> tuple[int, Seq | None]:
        """Return how many links of a conversation are stored already, and the last of them; those before one that is, are."""
        low, high, link = 0, len(digests), None
        while low < high:
            middle = (low + high + 1) // 2
            found = self.sql.one("SELECT seq FROM link WHERE digest = ?", (digests[middle - 1],))
            if found is None:
                high = middle - 1
            else:
                low, link = middle, found
        return low, link

    def let_go(self, link: Seq | None) -> None:
        """Remove a conversation that a response held, but not what others go on from."""
        while link is not None:
            held = "SELECT EXISTS (SELECT 1 FROM link WHERE before = ?1) OR EXISTS (SELECT 1 FROM response WHERE tip = ?1)"
            if self.sql.one(held, (link,)):
                return
            before, item = self.sql.rows("DELETE FROM link WHERE seq = ? RETURNING before, item", (link,))[0]
            self.drop(item)
            link = before

    def drop(self, item: Seq) -> None:
        """Remove an item, unless something refers to it."""
        held = "SELECT EXISTS (SELECT 1 FROM link WHERE item = ?1) OR EXISTS (SELECT 1 FROM member WHERE item = ?1)"
        if not self.sql.one(held, (item,)):
            self.sql.do("DELETE FROM item WHERE seq = ?", (item,))

    def chain(self, link: Seq | None) -> list[bytes]:
        """Return the items of a conversation as JSON, in their order."""
        query = """
            WITH RECURSIVE chain (place, before, item) AS (
                SELECT 0, before, item FROM link WHERE seq = ?
                UNION ALL SELECT place + 1, link.before, link.item FROM chain JOIN link ON link.seq = chain.before
            )
            SELECT body FROM chain JOIN item ON item.seq = chain.item ORDER BY place DESC
        """
        return [body for (body,) in self.sql.rows(query, (link,))]
