"""The rows of a store in SQL: what the edges of the tables `stored` and `conversation` do to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, assert_never, cast

from attrs import evolve, field, fields, frozen

from interlock.fsm.processes.conversation import ConversationEffect, ConversationTrigger
from interlock.fsm.processes.stored import STORED, StoredEffect, StoredTrigger
from interlock.fsm.table import Machine
from interlock.serving.requests.input_items import Item
from interlock.serving.store.chain import Chunk, body_of, chunks_of, links_of, pack, put_together, unpack, unpack_item
from interlock.serving.store.edits import (
    Edit,
    conversation_effects,
    has_lapsed,
    require_next,
    response_machine,
    stored_effects,
)
from interlock.serving.store.records import LEASE, Addition, Conversation, Lease, Log, StoredResponse
from interlock.serving.store.sqlite.database import Sql
from interlock.serving.store.store_errors import Conflict

__all__ = ["Conversations", "Items", "ResponseRow", "Responses", "Seq", "Transaction"]

_T, _E = StoredTrigger, StoredEffect
_CT, _CE = ConversationTrigger, ConversationEffect

Seq: TypeAlias = int
"""What a row is referred to by."""


def _ignore(_table: Literal["response", "conversation"], _row: Seq) -> None:
    """Take no note of what is used."""


@frozen
class Transaction:
    """A transaction, in which rows are read and written.

    Args:
        sql: The connection.
        now: The time by which leases are measured.
        today: The time by which it is measured how long a response is stored.
        ttl: Seconds for which it is; None for ever.
        use: Takes note of a response or conversation that is used.
        changed: Takes tenant and id of each response that has changed.
    """

    sql: Sql
    now: float
    today: float
    ttl: float | None
    use: Callable[[Literal["response", "conversation"], Seq], None] = _ignore
    changed: list[tuple[str, str]] = field(factory=list[tuple[str, str]])


@frozen
class Items:
    """The items of all conversations."""

    sql: Sql

    def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, Item]:
        """Return items by their ids; of two with one id, the one that came last."""
        query = "SELECT body FROM item WHERE tenant = ? AND id = ? ORDER BY seq DESC LIMIT 1"
        bodies = ((item_id, self.sql.one(query, (tenant, item_id))) for item_id in item_ids)
        return {item_id: unpack_item(body) for item_id, body in bodies if body is not None}

    def add(self, tenant: str, chunk: Chunk) -> Seq:
        """Store an item, unless it is, and return its row."""
        seq = self.sql.one("SELECT seq FROM item WHERE digest = ?", (chunk.digest,))
        if seq is not None:
            return int(seq)
        values = (tenant, chunk.id, chunk.digest, chunk.packed)
        return self.sql.insert("INSERT INTO item (tenant, id, digest, body) VALUES (?, ?, ?, ?)", values)

    def drop(self, item: Seq) -> None:
        """Remove an item, unless something refers to it."""
        referred = "SELECT EXISTS (SELECT 1 FROM link WHERE item = ?1) OR EXISTS (SELECT 1 FROM member WHERE item = ?1)"
        if not self.sql.one(referred, (item,)):
            self.sql.do("DELETE FROM item WHERE seq = ?", (item,))

    def add_chain(self, tenant: str, chunks: Sequence[Chunk]) -> Seq | None:
        """Store a conversation, and return its last link; None for one without items."""
        digests = links_of(tenant, chunks)
        place, link = self._stored(digests)
        for digest, chunk in zip(digests[place:], chunks[place:], strict=True):
            values = digest, link, self.add(tenant, chunk)
            link = self.sql.insert("INSERT INTO link (digest, before, item) VALUES (?, ?, ?)", values)
        return link

    def _stored(self, digests: Sequence[bytes]) -> tuple[int, Seq | None]:
        """Return how many links of a conversation are stored already, and the last of them.

        A stored link has all links before it in the store too, so that halving finds the last one.
        """
        low, high, link = 0, len(digests), None
        while low < high:
            middle = (low + high + 1) // 2
            seq = self.sql.one("SELECT seq FROM link WHERE digest = ?", (digests[middle - 1],))
            if seq is None:
                high = middle - 1
            else:
                low, link = middle, seq
        return low, link

    def drop_chain(self, link: Seq | None) -> None:
        """Remove a conversation that a response had, but not what others go on from."""
        while link is not None:
            referred = "SELECT EXISTS (SELECT 1 FROM link WHERE before = ?1) OR EXISTS (SELECT 1 FROM response WHERE tip = ?1)"
            if self.sql.one(referred, (link,)):
                return
            before, item = self.sql.rows("DELETE FROM link WHERE seq = ? RETURNING before, item", (link,))[0]
            self.drop(item)
            link = before

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


@frozen
class ResponseRow:
    """A response as it is stored; see the table `response`."""

    seq: Seq
    tenant: str
    id: str
    state: str = STORED.initial
    tip: Seq | None = None
    outputs: int = 0
    owner: str = ""
    epoch: int = 0
    until: float = 0.0
    cancelled: int = 0
    oldest: int = 0
    following: int = 0
    written: float = 0.0


_COLUMNS: Final = [column.name for column in fields(ResponseRow)]
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM response"  # noqa: S608 - the names of the columns
_INSERT: Final = f"INSERT INTO response ({', '.join(_COLUMNS[1:])}) VALUES ({', '.join('?' * len(_COLUMNS[1:]))})"  # noqa: S608 - likewise


@frozen
class Responses:
    """The responses."""

    tx: Transaction

    def row(self, tenant: str, response_id: str) -> ResponseRow:
        """Return a response; one that is absent if there is none."""
        values = self.tx.sql.row(_SELECT + " WHERE tenant = ? AND id = ?", (tenant, response_id))
        return ResponseRow(0, tenant, response_id) if values is None else ResponseRow(*values)

    def at(self, seq: Seq) -> ResponseRow:
        """Return the response that a row holds."""
        return ResponseRow(*self.tx.sql.rows(_SELECT + " WHERE seq = ?", (seq,))[0])

    def machine(self, row: ResponseRow) -> Machine[StoredTrigger, StoredEffect]:
        """Return the life of a response where it is now."""
        expired = self.tx.ttl is not None and self.tx.today >= row.written + self.tx.ttl
        return response_machine(row.state, lapsed=has_lapsed(row.until, self.tx.now), expired=expired)

    def is_there(self, row: ResponseRow) -> bool:
        """Return whether a response is there, and not expired."""
        return bool(row.seq) and bool(self.machine(row).state.rows)

    def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response."""
        row = self.row(tenant, response_id)
        if not self.is_there(row):
            return None
        self.tx.use("response", row.seq)
        body = self.tx.sql.one("SELECT json FROM body WHERE response = ?", (row.seq,))
        return put_together(body, Items(self.tx.sql).chain(row.tip), row.outputs)

    def log(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        """Return events of a response."""
        row = self.row(tenant, response_id)
        if not self.is_there(row):
            return None
        query = "SELECT frame FROM event WHERE response = ? AND number >= ? ORDER BY number LIMIT ?"
        frames = self.tx.sql.rows(query, (row.seq, first, limit)) if first >= row.oldest else ()
        state = self.machine(row).state.name
        return Log(tuple(frame for (frame,) in frames), first, row.oldest, row.following, state, bool(row.cancelled))

    def write(self, tenant: str, response_id: str, edit: Edit) -> ResponseRow | None:
        """Fire the edge of an edit, carry out its effects, and return the response as it is then; None if there is no such edge.

        Raises:
            StoreError: The edit is refused; nothing was written about the response.
        """
        row = self.row(tenant, response_id)
        machine = self.machine(row)
        if not machine.state.rows:  # it has expired, and has yet to be swept
            self.remove(row)
            row = ResponseRow(0, tenant, response_id)
            machine = self.machine(row)
        effects = stored_effects(machine, row.owner, row.epoch, edit)
        if effects is None:
            return None
        if _E.LOG in effects:
            require_next(row.following, edit)
        if _E.JOIN in effects and edit.addition is not None:
            Conversations(self.tx).require_version(tenant, edit.addition)
        return self._carry_out(row, machine.state.name, effects, edit)

    def _carry_out(self, row: ResponseRow, state: str, effects: Sequence[StoredEffect], edit: Edit) -> ResponseRow:
        """Carry out the effects of an edge: first what they do to the row, which has to be there for the rest."""
        changes: dict[str, Any] = {"state": state}
        for effect in effects:
            changes |= self._changes(row, effect, edit)
        before, row = row, self._save(row, changes)
        for effect in effects:
            self._follow(before, row, effect, edit)
        return row

    def _save(self, row: ResponseRow, changes: Mapping[str, Any]) -> ResponseRow:
        """Write what has changed of a row, and return it as it is stored."""
        row = evolve(row, **changes)
        if not row.seq:
            return evolve(row, seq=self.tx.sql.insert(_INSERT, [getattr(row, name) for name in _COLUMNS[1:]]))
        update = f"UPDATE response SET {', '.join(f'{name} = ?' for name in changes)} WHERE seq = ?"  # noqa: S608 - likewise
        self.tx.sql.do(update, [*changes.values(), row.seq])
        return row

    def _changes(self, row: ResponseRow, effect: StoredEffect, edit: Edit) -> Mapping[str, Any]:  # noqa: PLR0911 - a case for each effect
        """Return the columns of a row that an effect changes."""
        match effect:
            case _E.KEEP:
                stored = cast("StoredResponse", edit.stored)
                tip = Items(self.tx.sql).add_chain(row.tenant, chunks_of(row.tenant, stored.conversation))
                return {"tip": tip, "outputs": len(stored.output), "written": self.tx.today}
            case _E.TAKE:
                lease = {"owner": edit.owner, "epoch": row.epoch + 1}
                return {**lease, "until": self.tx.now + LEASE, "written": self.tx.today}
            case _E.EXTEND:
                return {"until": self.tx.now + LEASE, "written": self.tx.today}
            case _E.LOG:
                return {"following": row.following + len(edit.frames)}
            case _E.FLAG:
                return {"cancelled": 1}
            case _E.RELEASE:
                return {"owner": ""}
            case _E.TRIM:
                return {"oldest": row.following}
            case _E.JOIN | _E.REMOVE | _E.WAKE:
                return {}
            case _:
                assert_never(effect)

    def _follow(self, before: ResponseRow, row: ResponseRow, effect: StoredEffect, edit: Edit) -> None:
        """Do what an effect does beside the row."""
        match effect:
            case _E.LOG:
                rows = ((row.seq, edit.first + index, frame) for index, frame in enumerate(edit.frames))
                self.tx.sql.many("INSERT INTO event VALUES (?, ?, ?)", rows)
            case _E.KEEP:
                body = body_of(cast("StoredResponse", edit.stored))
                self.tx.sql.do("INSERT OR REPLACE INTO body VALUES (?, ?)", (row.seq, body))
                if before.tip != row.tip:
                    Items(self.tx.sql).drop_chain(before.tip)
            case _E.JOIN if edit.addition is not None:
                Conversations(self.tx).join(row.tenant, edit.addition)
            case _E.TRIM:
                self.tx.sql.do("DELETE FROM event WHERE response = ?", (row.seq,))
            case _E.REMOVE:
                self.remove(row)
            case _E.WAKE:
                self.tx.changed.append((row.tenant, row.id))
            case _:
                pass

    def remove(self, row: ResponseRow) -> None:
        """Remove a response with all that only it refers to."""
        self.tx.sql.do("DELETE FROM event WHERE response = ?", (row.seq,))
        self.tx.sql.do("DELETE FROM body WHERE response = ?", (row.seq,))
        self.tx.sql.do("DELETE FROM response WHERE seq = ?", (row.seq,))
        Items(self.tx.sql).drop_chain(row.tip)

    def lost(self, limit: int) -> list[tuple[str, str]]:
        """Return responses whose owner is lost."""
        over = "state = 'lost' OR NOT (? < until AND until <= ?)"  # one that was written about when it was lost is lost for good
        where = f"state IN ('queued', 'running', 'lost') AND ({over}) ORDER BY until LIMIT ?"
        query = f"SELECT tenant, id FROM response WHERE {where}"  # noqa: S608 - a constant
        keys = self.tx.sql.rows(query, (self.tx.now, self.tx.now + 2 * LEASE, limit))
        return [(tenant, name) for tenant, name in keys if _T.ADOPT in self.machine(self.row(tenant, name)).state.rows]

    def expire(self, limit: int) -> int:
        """Remove responses that are stored no longer, and return how many."""
        if self.tx.ttl is None:
            return 0
        query = "SELECT tenant, id FROM response WHERE written <= ? ORDER BY written LIMIT ?"
        keys = self.tx.sql.rows(query, (self.tx.today - self.tx.ttl, limit))
        for tenant, response_id in keys:
            self.remove(self.row(tenant, response_id))
            self.tx.changed.append((tenant, response_id))
        return len(keys)

    def trimmable(self, kept: float, limit: int) -> list[tuple[str, str]]:
        """Return ended responses that have a log and about which nothing was written for so many seconds."""
        where = "state = 'ended' AND oldest < following AND written <= ? ORDER BY written LIMIT ?"
        query = f"SELECT tenant, id FROM response WHERE {where}"  # noqa: S608 - a constant
        return self.tx.sql.rows(query, (self.tx.today - kept, limit))

    def count(self) -> tuple[Counter[str], tuple[Lease, ...]]:
        """Return how many responses are in each state, and the leases that have not lapsed."""
        counts: Counter[str] = Counter()
        leases: list[Lease] = []
        rows = self.tx.sql.rows("SELECT tenant, id, state, owner, epoch, until, written FROM response")
        for tenant, response_id, state, owner, epoch, until, written in rows:
            row = ResponseRow(1, tenant, response_id, state, owner=owner, epoch=epoch, until=until, written=written)
            name = self.machine(row).state.name
            if STORED.states[name].rows:
                counts[name] += 1
            if name in {"queued", "running"}:
                leases.append(Lease(tenant, response_id, owner, epoch))
        return counts, tuple(leases)


@frozen
class ConversationRow:
    """A conversation as it is stored; see the table `conversation`."""

    seq: Seq
    created_at: int
    metadata: bytes
    version: int
    owner: str
    until: float


@frozen
class Conversations:
    """The conversations that clients have created."""

    tx: Transaction

    def create(self, tenant: str, conversation: Conversation, items: Sequence[Item]) -> None:
        """Store a new conversation."""
        self.delete(tenant, conversation.id)
        values = tenant, conversation.id, conversation.created_at, pack(conversation.metadata), conversation.version
        insert = """
            INSERT INTO conversation (tenant, id, created_at, metadata, version, owner, until) VALUES (?, ?, ?, ?, ?, '', 0)
        """
        seq = self.tx.sql.insert(insert, values)
        self.tx.use("conversation", seq)
        self._grow(tenant, seq, items)

    def get(self, tenant: str, name: str) -> Conversation | None:
        """Return a conversation."""
        row = self._row(tenant, name)
        if row is None:
            return None
        return Conversation(name, row.created_at, cast("Mapping[str, object]", unpack(row.metadata)), row.version)

    def update(self, tenant: str, name: str, metadata: Mapping[str, object]) -> Conversation | None:
        """Give a conversation other metadata."""
        row = self._row(tenant, name)
        if row is not None:
            update = "UPDATE conversation SET metadata = ? WHERE seq = ?"
            self._fire(name, row, _CT.DESCRIBE, lambda: self.tx.sql.do(update, (pack(metadata), row.seq)))
        return self.get(tenant, name)

    def delete(self, tenant: str, name: str) -> bool:
        """Delete a conversation, and the items that nothing else refers to."""
        row = self._row(tenant, name)
        if row is not None:
            self._fire(name, row, _CT.DELETE, lambda: self.remove(row.seq))
        return row is not None

    def items(self, tenant: str, name: str) -> tuple[Item, ...] | None:
        """Return the items of a conversation."""
        row = self._row(tenant, name)
        if row is None:
            return None
        query = "SELECT body FROM member JOIN item ON item.seq = member.item WHERE conversation = ? ORDER BY place"
        return tuple(unpack_item(body) for (body,) in self.tx.sql.rows(query, (row.seq,)))

    def add_items(self, tenant: str, name: str, items: Sequence[Item]) -> Conversation | None:
        """Add items to a conversation that nobody holds."""
        row = self._row(tenant, name)
        if row is None:
            return None
        self._fire(name, row, _CT.CHANGE, lambda: self._grow(tenant, row.seq, items))
        return self.get(tenant, name)

    def delete_item(self, tenant: str, name: str, item_id: str) -> Conversation | None:
        """Remove an item from a conversation that nobody holds."""
        row = self._row(tenant, name)
        query = """
            SELECT place, member.item FROM member JOIN item ON item.seq = member.item
            WHERE conversation = ? AND id = ? ORDER BY place LIMIT 1
        """
        member = None if row is None else self.tx.sql.row(query, (row.seq, item_id))
        if row is None or member is None:
            return None
        place, item = member
        self._fire(name, row, _CT.CHANGE, lambda: self._drop(row.seq, place, item))
        return self.get(tenant, name)

    def hold(self, tenant: str, name: str, owner: str) -> int | None:
        """Keep others from adding to a conversation."""
        row = self._row(tenant, name)
        if row is None:
            return None
        self._fire(name, row, _CT.HOLD, by=owner)
        return row.version

    def release(self, tenant: str, name: str, owner: str) -> None:
        """Let others add to a conversation again."""
        row = self._row(tenant, name)
        if row is not None:
            self._fire(name, row, _CT.RELEASE, by=owner)

    def require_version(self, tenant: str, addition: Addition) -> None:
        """Refuse an addition to a conversation that has changed, before anything is written.

        Raises:
            Conflict: The conversation has changed, or is gone.
        """
        row = self._row(tenant, addition.conversation_id)
        if row is None or row.version != addition.version:
            raise Conflict(f"The conversation '{addition.conversation_id}' has changed meanwhile.")

    def join(self, tenant: str, addition: Addition) -> None:
        """Add to a conversation what `require_version` has let through; nobody holds it any more."""
        row = cast("ConversationRow", self._row(tenant, addition.conversation_id))
        self._fire(addition.conversation_id, row, _CT.JOIN, lambda: self._grow(tenant, row.seq, addition.items))

    def remove(self, conversation: Seq) -> None:
        """Remove a conversation, and the items that nothing else refers to."""
        items = self.tx.sql.rows("DELETE FROM member WHERE conversation = ? RETURNING item", (conversation,))
        self.tx.sql.do("DELETE FROM conversation WHERE seq = ?", (conversation,))
        for (item,) in items:
            Items(self.tx.sql).drop(item)

    def _row(self, tenant: str, name: str) -> ConversationRow | None:
        query = "SELECT seq, created_at, metadata, version, owner, until FROM conversation WHERE tenant = ? AND id = ?"
        values = self.tx.sql.row(query, (tenant, name))
        if values is None:
            return None
        self.tx.use("conversation", values[0])
        return ConversationRow(*values)

    def _grow(self, tenant: str, conversation: Seq, items: Sequence[Item]) -> None:
        last = "SELECT coalesce(max(place), -1) FROM member WHERE conversation = ?"
        place = self.tx.sql.one(last, (conversation,))
        added = [Items(self.tx.sql).add(tenant, chunk) for chunk in chunks_of(tenant, items)]
        rows = [(conversation, place + index, item) for index, item in enumerate(added, 1)]
        self.tx.sql.many("INSERT INTO member VALUES (?, ?, ?)", rows)

    def _drop(self, conversation: Seq, place: int, item: Seq) -> None:
        self.tx.sql.do("DELETE FROM member WHERE conversation = ? AND place = ?", (conversation, place))
        Items(self.tx.sql).drop(item)

    def _fire(
        self,
        name: str,
        row: ConversationRow,
        trigger: ConversationTrigger,
        write: Callable[[], object] = lambda: None,
        by: str = "",
    ) -> None:
        """Fire an edge of a conversation by somebody, and carry out its effects; `write` does what is neither hold nor version.

        Raises:
            Conflict: Another holds it.
        """
        for effect in conversation_effects(name, row.owner, row.until, self.tx.now, trigger, by):
            match effect:
                case _CE.KEEP | _CE.DESCRIBE | _CE.REMOVE:
                    write()
                case _CE.WRITE:
                    write()
                    self.tx.sql.do("UPDATE conversation SET version = version + 1 WHERE seq = ?", (row.seq,))
                case _CE.TAKE:
                    take = "UPDATE conversation SET owner = ?, until = ? WHERE seq = ?"
                    self.tx.sql.do(take, (by, self.tx.now + LEASE, row.seq))
                case _CE.FREE:
                    self.tx.sql.do("UPDATE conversation SET owner = '' WHERE seq = ?", (row.seq,))
                case _:
                    assert_never(effect)
