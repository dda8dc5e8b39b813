"""A store in the memory of the process, bounded by a count and by bytes: it evicts what was least recently used."""

from __future__ import annotations

from typing import Final, Literal

from attrs import define, evolve, field

from interlock.fsm.processes.stored import STORED, StoredTrigger
from interlock.serving.store.chain import body_of, pack
from interlock.serving.store.edits import Edit
from interlock.serving.store.records import LEASE
from interlock.serving.store.sqlite import sql_schema as layout
from interlock.serving.store.sqlite.database import Inline, Sql
from interlock.serving.store.sqlite.rows import Conversations, ResponseRow, Responses, Seq, Transaction
from interlock.serving.store.sqlite.sqlite_store import SqlStore
from interlock.serving.store.store_errors import StoreFull

__all__ = ["MAX_BYTES", "MAX_RESPONSES", "MemoryStore"]

MAX_RESPONSES: Final = 10_000
MAX_BYTES: Final = 256 * 2**20

PAGE: Final = 4096 + 272
"""Bytes that SQLite takes for a page of 4096 bytes in memory, as measured."""
PER_ITEM: Final = 300
"""Bytes that the rows and indexes of an item take beside its JSON, as measured."""
PER_EVENT: Final = 16
"""The same for an event."""

_T: Final = StoredTrigger
_OPEN: Final = ", ".join(f"'{name}'" for name, state in STORED.states.items() if _T.APPEND in state.rows)
"""The states of responses that are being made, or would be if their owners were not lost."""

USAGE: Final = """
    -- What was used, in that order; and how many bytes were written about a response.
    CREATE TABLE usage (
        tick INTEGER PRIMARY KEY, bytes INTEGER NOT NULL DEFAULT 0,
        response INTEGER UNIQUE REFERENCES response ON DELETE CASCADE,
        conversation INTEGER UNIQUE REFERENCES conversation ON DELETE CASCADE
    );
"""
USE_RESPONSE: Final = """
    INSERT OR REPLACE INTO usage (response, bytes)
    VALUES (?1, ?2 + coalesce((SELECT bytes FROM usage WHERE response = ?1), 0))
"""
OPEN_USAGE: Final = f"SELECT count(*), sum(bytes) FROM response JOIN usage ON response = seq WHERE state IN ({_OPEN})"  # noqa: S608 - constants
FIGURES: Final = """
    SELECT (SELECT count(*) FROM response), (SELECT count(*) FROM conversation), page_count, freelist_count
    FROM pragma_page_count, pragma_freelist_count
"""
EVICTABLE: Final = f"""
    SELECT usage.response, usage.conversation FROM usage
    LEFT JOIN response ON response.seq = usage.response LEFT JOIN conversation ON conversation.seq = usage.conversation
    WHERE tick < (SELECT max(tick) FROM usage)
    AND CASE WHEN usage.conversation IS NULL THEN ?1 AND response.state NOT IN ({_OPEN})
    ELSE ?2 AND NOT (conversation.owner != '' AND ?3 < conversation.until AND conversation.until <= ?4) END
    ORDER BY tick LIMIT 1
"""  # noqa: S608 - likewise


@define(eq=False)
class MemoryStore(SqlStore):
    """Holds responses until the process ends, or until there are too many; see `ResponseStore`.

    Those that are being made stay, and so do the conversations that are held for them; of the others, it evicts the least
    recently used. What was used last stays, so that a response is there for whoever has waited for its end.

    Args:
        max_responses: How many responses it holds, and how many conversations.
        max_bytes: How many bytes of memory they may take. A response that is larger alone is not stored.
        clock: Tells the time in seconds, also for how long a response is stored; one that is never set back.
    """

    max_responses: int = field(default=MAX_RESPONSES, kw_only=True)
    max_bytes: int = field(default=MAX_BYTES, kw_only=True)
    _sql: Sql = field(init=False)
    _empty: int = field(init=False)
    """The pages of the empty tables, which are not counted."""

    def __attrs_post_init__(self) -> None:
        """Make the tables."""
        self.calendar = self.clock
        self._sql = sql = Sql(":memory:")
        sql.do("PRAGMA auto_vacuum = INCREMENTAL")
        sql.do("PRAGMA foreign_keys = ON")
        layout.create(sql)
        sql.do(USAGE)
        self._empty = sql.one("PRAGMA page_count")
        self._reader, self._writer = Inline(sql), Inline(sql, self._make_room)

    @property
    def held_bytes(self) -> int:
        """The bytes of memory that everything takes."""
        _, _, pages, free = self._sql.rows(FIGURES)[0]
        return int(pages - free - self._empty) * PAGE

    async def migrate(self) -> int:
        """Do nothing: it has no older layout."""
        return layout.VERSION

    async def close(self) -> None:
        """Do nothing: what it holds ends with the process."""

    def _kind(self) -> str:
        return "memory"

    def _size(self, sql: Sql) -> int:
        return int(sql.one("PRAGMA page_count")) * PAGE

    async def _tidy(self) -> None:
        self._sql.do("PRAGMA incremental_vacuum")

    def _transaction(self, sql: Sql) -> Transaction:
        return evolve(super()._transaction(sql), use=self._use)

    def _edit(self, tx: Transaction, tenant: str, response_id: str, edit: Edit) -> ResponseRow | None:
        """Write an edit, or refuse it: what is refused here is undone."""
        row = super()._edit(tx, tenant, response_id, edit)
        if row is None or edit.trigger is _T.DELETE:
            return row
        needed = _bytes_of(edit)
        self._use("response", row.seq, needed)
        if edit.trigger is _T.ENQUEUE:
            self._require_room(needed)
        if edit.trigger is _T.PUT and needed > self.max_bytes:
            Responses(tx).remove(row)
        return row

    def _require_room(self, needed: int) -> None:
        """Refuse a response that is to be made if there is no room for it beside the others that are.

        Raises:
            StoreFull: There is none.
        """
        count, size = self._sql.rows(OPEN_USAGE)[0]
        if count > self.max_responses or (size > self.max_bytes and size > needed):
            raise StoreFull("Too many responses are being made in the background.")

    def _use(self, table: Literal["response", "conversation"], row: Seq, written: int = 0) -> None:
        """Note that something is used now, and the bytes that were written about it."""
        if table == "response":
            self._sql.do(USE_RESPONSE, (row, written))
        else:
            self._sql.do("INSERT OR REPLACE INTO usage (conversation) VALUES (?)", (row,))

    def _make_room(self) -> None:
        """Evict what was least recently used where too much is held, and give the room back."""
        most = self.max_bytes // PAGE
        while True:
            responses, conversations, pages, free = self._sql.rows(FIGURES)[0]
            full = pages - free - self._empty > most
            tables = full or responses > self.max_responses, full or conversations > self.max_responses
            if not (any(tables) and self._evict(*tables)):
                break
        excess = pages - self._empty - most
        if excess > 0:
            self._sql.do(f"PRAGMA incremental_vacuum({excess})")

    def _evict(self, responses: bool, conversations: bool) -> bool:  # noqa: FBT001 - of which table
        """Evict what was least recently used of these tables, but not what was used last of all; return whether something was."""
        tx = self._transaction(self._sql)
        entry = self._sql.row(EVICTABLE, (responses, conversations, tx.now, tx.now + 2 * LEASE))
        if entry is None:
            return False
        response, conversation = entry
        if response is not None:
            Responses(tx).remove(Responses(tx).at(response))
        else:
            Conversations(tx).remove(conversation)
        return True


def _bytes_of(edit: Edit) -> int:
    """Return the bytes that what is stored takes if it shares nothing."""
    frames = sum(PER_EVENT + len(frame) for frame in edit.frames)
    if edit.stored is None:
        return frames
    return frames + len(body_of(edit.stored)) + sum(PER_ITEM + len(pack(item)) for item in edit.stored.conversation)
