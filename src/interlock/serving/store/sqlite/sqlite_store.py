"""The stores in SQLite: one in a file, which the processes of one host can share, and a bounded one in memory.

Acknowledged writes to a file survive a killed process, and with `synchronous=full` a loss of power. The file must not be on a
network file system: SQLite's write-ahead log needs memory that all processes share.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import ClassVar, Final, Literal, TypeVar

import apsw
from attrs import define, evolve, field

from interlock.fsm.processes.stored import StoredTrigger
from interlock.serving.requests.input_items import Item
from interlock.serving.store.chain import body_of, pack
from interlock.serving.store.interface import (
    LEASE,
    Conversation,
    ConversationEdit,
    Edit,
    EditResult,
    Key,
    Log,
    Notifications,
    ResponseStore,
    StoredResponse,
    StoreFull,
    StoreInfo,
    StoreUnusable,
    Subscription,
    SweepResult,
)
from interlock.serving.store.sqlite import sql_schema
from interlock.serving.store.sqlite.database import Connection, DatabaseThread, loses_commits, store_down
from interlock.serving.store.sqlite.rows import UNFINISHED, Conversations, Items, ResponseRow, Responses, Seq, Transaction

__all__ = ["MemoryStore", "SqlStore", "SqliteStore"]

R = TypeVar("R")

POLL: Final = 0.02  # seconds between two checks for writes of other processes, while there are subscriptions
SWEEP_BATCH: Final = 100  # responses that a sweep removes in one transaction, so that others can write in between

# Bytes of memory, as measured:
PAGE: Final = 4096 + 272  # of a page of 4096 bytes
PER_ITEM: Final = 300  # of the rows and indexes of an item, beside its JSON
PER_EVENT: Final = 16  # of the row of an event, beside its frame

USAGE: Final = """
    -- When a row was used last, as a count of uses, and how many bytes were written about a response.
    ALTER TABLE response ADD COLUMN used INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE response ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE conversation ADD COLUMN used INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX response_by_used ON response (used);
    CREATE INDEX conversation_by_used ON conversation (used);
"""
FIGURES: Final = """
    SELECT (SELECT count(*) FROM response), (SELECT count(*) FROM conversation), page_count, freelist_count
    FROM pragma_page_count, pragma_freelist_count
"""
UNFINISHED_USAGE: Final = f"SELECT count(*), sum(bytes) FROM response WHERE state IN ({UNFINISHED})"  # noqa: S608 - constants
EVICTABLE: Final = f"""
    SELECT * FROM (
        SELECT seq, NULL, used FROM response
        WHERE ?1 AND used < ?3 AND state NOT IN ({UNFINISHED}) ORDER BY used LIMIT 1
    ) UNION ALL SELECT * FROM (
        SELECT NULL, seq, used FROM conversation
        WHERE ?2 AND used < ?3 AND NOT (owner != '' AND ?4 < until AND until <= ?5) ORDER BY used LIMIT 1
    ) ORDER BY used LIMIT 1
"""  # noqa: S608 - likewise
"""The least recently used response or conversation, except the last used one and any in progress."""


@define(eq=False)
class SqlStore(ResponseStore):
    """Stores responses and conversations as rows.

    Args:
        ttl: Seconds from the last write about a response until it expires; None for never.
        logs: Seconds from the end of a response until its events are removed; None for as long as the response is stored.
        clock: Returns the time for leases in seconds, the same for all processes, which only a restart of the host resets.
        calendar: Returns the time for expiry in seconds since the epoch.
    """

    ttl: float | None = field(default=None, kw_only=True)
    logs: float | None = field(default=None, kw_only=True)
    clock: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    calendar: Callable[[], float] = field(default=time.time, kw_only=True)
    _notifications: Notifications = field(factory=Notifications, init=False)
    _kind: ClassVar[str]

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        return await self._read(lambda tx: Responses(tx).get(tenant, response_id))

    async def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, Item]:
        ids = [*item_ids]
        return await self._read(lambda tx: Items(tx.connection).find(tenant, ids)) if ids else {}

    async def read(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        return await self._read(lambda tx: Responses(tx).read(tenant, response_id, first, limit))

    def subscribe(self, tenant: str, response_id: str) -> AbstractContextManager[Subscription]:
        return self._notifications.subscribe((tenant, response_id))

    async def lost(self, limit: int) -> Sequence[Key]:
        return await self._read(lambda tx: Responses(tx).lost(limit))

    async def sweep(self) -> SweepResult:
        expired = await self._repeat(lambda tx: Responses(tx).expire(SWEEP_BATCH))
        age = self.logs
        trimmed = 0 if age is None else await self._repeat(lambda tx: Responses(tx).trim(age, SWEEP_BATCH))
        await self._free_space()
        return SweepResult(expired, trimmed)

    async def info(self) -> StoreInfo:
        return await self._read(self._info)

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        return await self._read(lambda tx: Conversations(tx).get(tenant, conversation_id))

    async def conversation_items(self, tenant: str, conversation_id: str) -> tuple[Item, ...] | None:
        return await self._read(lambda tx: Conversations(tx).items(tenant, conversation_id))

    async def _write(self, tenant: str, response_id: str, edit: Edit) -> EditResult | None:
        row = await self._change(lambda tx: self._edit(tx, tenant, response_id, edit))
        return None if row is None else EditResult(row.epoch, bool(row.cancelled))

    async def _write_conversation(self, tenant: str, conversation_id: str, edit: ConversationEdit) -> Conversation | None:
        return await self._change(lambda tx: Conversations(tx).write(tenant, conversation_id, edit))

    def _edit(self, tx: Transaction, tenant: str, response_id: str, edit: Edit) -> ResponseRow | None:
        return Responses(tx).write(tenant, response_id, edit)

    def _info(self, tx: Transaction) -> StoreInfo:
        counts, leases = Responses(tx).count()
        conversations, items, events = (
            tx.connection.value(f"SELECT count(*) FROM {table}")  # noqa: S608 - constants
            for table in ("conversation", "item", "event")
        )
        size = self._size(tx.connection)
        return StoreInfo(self._kind, sql_schema.VERSION, counts, conversations, items, events, size, leases)

    def _transaction(self, connection: Connection) -> Transaction:
        return Transaction(connection, self.clock(), self.calendar(), self.ttl)

    async def _repeat(self, work: Callable[[Transaction], int]) -> int:
        """Run work until it has nothing left to do; return the sum of what it has done."""
        total = 0
        while step := await self._change(work):
            total += step
        return total

    @abstractmethod
    async def _read(self, work: Callable[[Transaction], R]) -> R:
        """Run work that only reads."""

    @abstractmethod
    async def _change(self, work: Callable[[Transaction], R]) -> R:
        """Run work that writes; after the commit, notify the subscribers of changed responses."""

    @abstractmethod
    def _size(self, connection: Connection) -> int:
        """Return the size of the store in bytes."""

    @abstractmethod
    async def _free_space(self) -> None:
        """Free unused pages."""


@define(eq=False)
class SqliteStore(SqlStore):
    """Stores responses in a file, which is created if it does not exist.

    Args:
        path: The path of the file.
        synchronous: Whether acknowledged writes survive a killed process (`normal`), or a loss of power too (`full`).
        busy: Seconds to wait for a lock of another process.
        max_bytes: The largest size of the file; None for no limit.

    Raises:
        StoreUnusable: This release of SQLite can lose commits.
    """

    path: str
    synchronous: Literal["normal", "full"] = field(default="normal", kw_only=True)
    busy: float = field(default=5.0, kw_only=True)
    max_bytes: int | None = field(default=None, kw_only=True)
    _writer: DatabaseThread = field(init=False)
    _reader: DatabaseThread = field(init=False)
    _kind = f"SQLite {apsw.sqlite_lib_version()}"
    _rows: dict[Key, ResponseRow | None] = field(factory=dict[Key, "ResponseRow | None"], init=False)
    """The responses that have subscriptions, as the last poll saw them."""
    _version: int = field(default=0, init=False)  # the last `data_version`, which changes when another connection writes

    def __attrs_post_init__(self) -> None:
        """Create the threads, which start on first use."""
        version = apsw.sqlite_lib_version()
        if loses_commits(version):
            message = f"SQLite {version} can lose commits of processes that share a file; 3.51.3 does not: pip install -U apsw."
            raise StoreUnusable(message)
        self._writer = DatabaseThread(
            self.path, self._open, "BEGIN IMMEDIATE", self._poll, lambda: POLL if self._notifications.responses() else None
        )
        self._reader = DatabaseThread(self.path, self._open, "BEGIN")

    @contextmanager
    def subscribe(self, tenant: str, response_id: str) -> Generator[Subscription]:
        with self._notifications.subscribe((tenant, response_id)) as subscription:
            self._writer.poll_soon()
            yield subscription

    async def migrate(self) -> int:
        return await asyncio.to_thread(self._run_alone, sql_schema.migrate)

    async def close(self) -> None:
        """Close the file. The next use opens it again."""
        await self._writer.stop()
        await self._reader.stop()

    async def _read(self, work: Callable[[Transaction], R]) -> R:
        return await self._reader.run(lambda connection: work(self._transaction(connection)))

    async def _change(self, work: Callable[[Transaction], R]) -> R:
        changed: list[Key] = []

        def run(connection: Connection) -> R:
            tx = self._transaction(connection)
            result = work(tx)
            changed[:] = tx.changed  # replaced, because the work is run again if its batch fails
            return result

        return await self._writer.run(run, lambda: self._notifications.notify(changed))

    def _size(self, connection: Connection) -> int:
        files = (Path(f"{connection.path}{suffix}") for suffix in ("", "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def _poll(self, connection: Connection) -> None:
        """Notify the subscribers of responses that another process has changed."""
        version = connection.value("PRAGMA data_version")
        if version == self._version:
            return
        self._version = version
        responses = Responses(self._transaction(connection))
        rows = {key: responses.row(*key) for key in self._notifications.responses()}
        self._notifications.notify(key for key, row in rows.items() if key not in self._rows or self._rows[key] != row)
        self._rows = rows

    def _open(self) -> Connection:
        """Open the file, and create the tables in an empty one."""
        connection = self._connect()
        try:
            sql_schema.prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> Connection:
        connection = Connection(self.path, self.busy)
        if not connection.value("PRAGMA page_count"):
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has no effect once something is written
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        connection.execute("PRAGMA secure_delete = ON")  # overwrites deleted data
        connection.execute("PRAGMA foreign_keys = ON")
        if self.max_bytes is not None:
            connection.execute(f"PRAGMA max_page_count = {self.max_bytes // connection.value('PRAGMA page_size')}")
        return connection

    async def _free_space(self) -> None:
        await asyncio.to_thread(self._run_alone, _vacuum)

    def _run_alone(self, work: Callable[[Connection], R]) -> R:
        """Run work on a connection of its own, outside of a transaction."""
        try:
            with closing(self._connect()) as connection:
                return work(connection)
        except apsw.Error as error:
            raise store_down(self.path, error) from error


@define(eq=False)
class MemoryStore(SqlStore):
    """Stores responses in memory, and evicts the least recently used responses and conversations.

    It does not evict unfinished responses, locked conversations, or the last used entry, so that a client that waits for the end
    of a response can get it.

    Args:
        max_responses: The most responses, and the most conversations.
        max_bytes: The most bytes of memory. A response that is larger by itself is not stored.
    """

    max_responses: int = field(default=10_000, kw_only=True)
    max_bytes: int = field(default=256 * 2**20, kw_only=True)
    _kind = "memory"
    _connection: Connection = field(init=False)
    _uses: int = field(default=0, init=False)
    _empty_pages: int = field(init=False)  # of the tables without rows, which do not count

    def __attrs_post_init__(self) -> None:
        self.calendar = self.clock
        self._connection = connection = Connection(":memory:")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA foreign_keys = ON")
        sql_schema.prepare(connection)
        connection.execute(USAGE)
        self._empty_pages = connection.value("PRAGMA page_count")

    @property
    def stored_bytes(self) -> int:
        """The bytes of memory that count towards `max_bytes`."""
        _, _, pages, free = self._connection.rows(FIGURES)[0]
        return int(pages - free - self._empty_pages) * PAGE

    async def migrate(self) -> int:
        return sql_schema.VERSION

    async def close(self) -> None:
        """Do nothing: the responses stay until the process ends."""

    async def _read(self, work: Callable[[Transaction], R]) -> R:
        return self._run(work, lambda: None)

    async def _change(self, work: Callable[[Transaction], R]) -> R:
        return self._run(work, self._make_room)

    def _run(self, work: Callable[[Transaction], R], before_commit: Callable[[], None]) -> R:
        """Run work in a transaction, in the thread of the caller. Any exception rolls it back."""
        connection = self._connection
        tx = evolve(self._transaction(connection), use=self._use)
        try:
            connection.execute("BEGIN")
            result = work(tx)
            before_commit()
            connection.execute("COMMIT")
        except apsw.Error as error:
            raise store_down(connection.path, error) from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        self._notifications.notify(tx.changed)
        return result

    def _size(self, connection: Connection) -> int:
        return int(connection.value("PRAGMA page_count")) * PAGE

    async def _free_space(self) -> None:
        self._connection.execute("PRAGMA incremental_vacuum")

    def _edit(self, tx: Transaction, tenant: str, response_id: str, edit: Edit) -> ResponseRow | None:
        row = super()._edit(tx, tenant, response_id, edit)
        if row is None or edit.trigger is StoredTrigger.DELETE:
            return row
        size = _size_of(edit)
        self._uses += 1
        update = "UPDATE response SET used = ?, bytes = bytes + ? WHERE seq = ?"
        self._connection.execute(update, (self._uses, size, row.seq))
        if edit.trigger is StoredTrigger.ENQUEUE:
            count, total = self._connection.rows(UNFINISHED_USAGE)[0]
            if count > self.max_responses or (total > self.max_bytes and total > size):
                raise StoreFull("Too many responses are being made in the background.")
        if edit.trigger is StoredTrigger.PUT and size > self.max_bytes:
            Responses(tx).remove(row)
        return row

    def _use(self, table: Literal["response", "conversation"], seq: Seq) -> None:
        self._uses += 1
        self._connection.execute(f"UPDATE {table} SET used = ? WHERE seq = ?", (self._uses, seq))  # noqa: S608 - constants

    def _make_room(self) -> None:
        """Evict until the rest is within the bounds, and free the pages beyond `max_bytes`."""
        tx = self._transaction(self._connection)
        max_pages = self.max_bytes // PAGE + self._empty_pages
        while True:
            responses, conversations, pages, free = self._connection.rows(FIGURES)[0]
            is_full = pages - free > max_pages
            tables = is_full or responses > self.max_responses, is_full or conversations > self.max_responses
            lease = tx.now, tx.now + 2 * LEASE
            row = self._connection.row(EVICTABLE, (*tables, self._uses, *lease)) if any(tables) else None
            if row is None:
                break
            response, conversation, _ = row
            if response is not None:
                Responses(tx).remove(Responses(tx).rows("seq = ?", response)[0])
            else:
                Conversations(tx).remove(conversation)
        if pages > max_pages:
            self._connection.execute(f"PRAGMA incremental_vacuum({pages - max_pages})")


def _vacuum(connection: Connection) -> None:
    """Return free pages to the disk, and empty the write-ahead log, which may still contain deleted data."""
    connection.execute("PRAGMA incremental_vacuum")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _size_of(edit: Edit) -> int:
    """Return the bytes that an edit stores if it shares no item with other responses."""
    size = sum(PER_EVENT + len(frame) for frame in edit.frames)
    if edit.stored is not None:
        size += len(body_of(edit.stored)) + sum(PER_ITEM + len(pack(item)) for item in edit.stored.conversation)
    return size
