"""The stores in SQLite: one in a file, which the processes of one host can share, and a bounded one in memory.

Acknowledged writes to a file survive a killed process, and with `synchronous=full` a loss of power. The file must not be on a
network file system: SQLite's write-ahead log needs memory that all processes share.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeVar

import apsw
from attrs import define, field

from interlock.events.json import clean, dumps
from interlock.serving.store.response_store import SWEEP_BATCH, ConnectionRole, ResponseStore, SharedStore
from interlock.serving.store.rows import (
    UNFINISHED,
    Conversations,
    DatabaseConnection,
    Failure,
    ResponseRow,
    Responses,
    Seq,
    Transaction,
    Values,
)
from interlock.serving.store.tables import StoredTrigger
from interlock.serving.store.values import Edit, ResponseKey, StoreDown, StoreFull, StoreUnusable, WrongStore, body_of

R = TypeVar("R")

logger = logging.getLogger(__name__)

REQUIRED_SQLITE: Final = (3, 51, 3)  # the first release without "The WAL-reset bug", which loses commits of several writers
APPLICATION: Final = 0x494C4B31  # the application id in the header of the file: `ILK1`
POLL: Final = 0.02  # seconds between checks for writes of other processes, while there are subscriptions
FULL: Final = (apsw.SQLITE_FULL, apsw.SQLITE_IOERR_SHMSIZE)  # no room for data, or for the index of the write-ahead log
VACUUMED: Final = 1000  # pages that a sweep returns to the disk in one transaction, so that others can write in between
READ_ONLY: Final = "cannot be written: it is read-only"
PAUSE: Final = 0.01  # seconds between two such transactions, or attempts, because SQLite has no queue of writers

# Bytes of memory, as measured:
PAGE_BYTES: Final = 4096 + 272  # of a page of 4096 bytes
PER_ITEM: Final = 300  # of the rows and indexes of an item, besides its JSON

USAGE: Final = """
    -- When a row was used last, as a count of uses.
    ALTER TABLE response ADD COLUMN used INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE conversation ADD COLUMN used INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX response_by_used ON response (used);
    CREATE INDEX conversation_by_used ON conversation (used);
"""
FIGURES: Final = """
    SELECT (SELECT count(*) FROM response), (SELECT count(*) FROM conversation), page_count, freelist_count
    FROM pragma_page_count, pragma_freelist_count
"""
EVICTABLE: Final = f"""
    SELECT * FROM (
        SELECT seq, NULL, used FROM response
        WHERE ?1 AND used < ?3 AND state NOT IN ({UNFINISHED}) ORDER BY used LIMIT 1
    ) UNION ALL SELECT * FROM (
        SELECT NULL, seq, used FROM conversation
        WHERE ?2 AND used < ?3 AND NOT (owner != '' AND ?4 < until AND until <= ?5) ORDER BY used LIMIT 1
    ) ORDER BY used LIMIT 1
"""  # noqa: S608 - constants
"""Selects the least recently used response or conversation, except the last used one and any in progress."""


@define(eq=False)
class SqliteConnection(DatabaseConnection):
    """A connection to a file or to `:memory:`. It waits for locks of other connections for up to `busy` seconds."""

    path: str
    busy: float = 0.0
    flags: int = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    file: tuple[int, int] | None = field(default=None, init=False)  # device and inode at the path when it was opened
    data_version: int = field(default=0, init=False)  # at the last poll; each connection counts differently
    _connection: Any = field(init=False)  # apsw's types cannot be read under Python 3.11
    types: ClassVar[Mapping[str, str]] = {
        "seq": "INTEGER PRIMARY KEY",
        "int": "INTEGER",
        "float": "REAL",
        "bytes": "BLOB",
        "clustered": "WITHOUT ROWID",
    }

    def __attrs_post_init__(self) -> None:
        self._connection = apsw.Connection(self.path, flags=self.flags)
        self._connection.set_busy_timeout(int(self.busy * 1000))

    def rows(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        try:
            rows: list[tuple[Any, ...]] = self._connection.execute(statement, values).fetchall()
        except UnicodeEncodeError:  # a lone surrogate, which is rare and slow to look for
            return self.rows(statement, [clean(value) if isinstance(value, str) else value for value in values])
        return rows

    def begin(self, *, write: bool, waited: float = 0.0) -> None:  # noqa: ARG002 - other processes hold a lock briefly
        self.execute("BEGIN IMMEDIATE" if write else "BEGIN")

    def roll_back(self) -> None:
        if self._connection.in_transaction:
            self.execute("ROLLBACK")

    def close(self) -> None:
        with suppress(apsw.Error):
            self._connection.close(True)  # noqa: FBT003 - the argument has no name in every release

    @property
    def is_read_only(self) -> bool:
        return bool(self._connection.readonly("main"))

    def use_log(self) -> None:
        """Use a write-ahead log, waiting for other connections to a new file, for which SQLite does not wait here."""
        patience = time.monotonic() + self.busy
        while True:
            try:
                return self.execute("PRAGMA journal_mode = WAL")
            except apsw.BusyError:
                if time.monotonic() > patience:
                    raise
            time.sleep(PAUSE)

    def keep_log(self) -> None:
        """Leave the write-ahead log at the path, which belongs to another file now, as it is when the connection is closed."""
        self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def layout(self) -> int | None:
        if not self.value("SELECT count(*) FROM sqlite_schema"):
            return None
        if self.value("PRAGMA application_id") != APPLICATION:
            raise WrongStore(f"{self.path} is a database of another program.")
        return int(self.value("SELECT version FROM layout"))

    def begin_layout(self) -> None:
        super().begin_layout()
        if self.layout() is None:
            self.execute(f"PRAGMA application_id = {APPLICATION}")


@define(eq=False)
class SqliteStore(SharedStore[SqliteConnection]):
    """Stores responses in a file.

    Raises:
        StoreUnusable: This release of SQLite can lose commits.
    """

    path: str
    synchronous: Literal["normal", "full"] = field(default="normal", kw_only=True)
    """Whether acknowledged writes survive a killed process (`normal`), or a loss of power too (`full`)."""
    busy: float = field(default=5.0, kw_only=True)  # seconds to wait for a lock of another process
    max_bytes: int | None = field(default=None, kw_only=True)  # the largest size of the file; None for no limit
    listener: ClassVar[ConnectionRole] = "writer"  # because the `data_version` of its connection leaves out its own writes
    _file: tuple[int, int] | None = field(default=None, init=False)  # that of the last connection
    _rows: dict[ResponseKey, ResponseRow | None] = field(factory=dict[ResponseKey, "ResponseRow | None"], init=False)
    """The rows of the responses with subscriptions, as the last poll read them."""

    def __attrs_post_init__(self) -> None:
        version = apsw.sqlite_lib_version()
        if tuple(map(int, version.split("."))) < REQUIRED_SQLITE:
            message = f"SQLite {version} can lose commits of processes that share a file; 3.51.3 does not: pip install -U apsw."
            raise StoreUnusable(message)

    @property
    def name(self) -> str:
        return self.path

    def connect(self) -> SqliteConnection:
        """Open a connection to the file.

        Raises:
            StoreDown: There is no file, and `create` is false.
            WrongStore: The file is read-only, and `create` is true.
        """
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if self.create else 0)
        if not self.create and not Path(self.path).exists():
            raise StoreDown(f"{self.path} does not exist.")
        connection = SqliteConnection(self.path, self.busy, flags)
        if self.create and connection.is_read_only:  # SQLite opens such a file without an error
            connection.close()
            raise WrongStore(f"{self.path} {READ_ONLY}.")
        connection.file = _identity(self.path)
        before, self._file = self._file, connection.file
        if before not in (None, connection.file):
            logger.warning("the file %s was deleted or replaced, and with it what it stored", self.path)
        if not connection.value("PRAGMA page_count"):
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has no effect once something is written
        connection.use_log()
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        connection.execute("PRAGMA secure_delete = ON")  # overwrites deleted data
        connection.execute("PRAGMA foreign_keys = ON")
        if self.max_bytes is not None:
            pages = max(self.max_bytes // connection.value("PRAGMA page_size"), 1)  # SQLite takes 0 for no limit
            connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    def is_current(self, connection: SqliteConnection) -> bool:
        """Return whether the file is still the one at the path, so that no write goes to a file that was deleted or replaced."""
        if connection.file == _identity(self.path):
            return True
        connection.keep_log()
        return False

    def failure(self, error: Exception) -> Failure | None:
        match error:
            case StoreDown():  # the file is missing, or its layout is wrong
                return Failure(error, lost=True)
            case apsw.BusyError():
                return Failure(StoreDown(f"{self.path} is locked by another process."), common=True)
            case apsw.Error() if getattr(error, "extendedresult", None) in FULL:
                limit = "" if self.max_bytes is None else f", or the file is as large as max_bytes={self.max_bytes} allows"
                return Failure(StoreDown(f"{self.path} cannot grow: the disk is full{limit}."))
            case apsw.ReadOnlyError():
                down: StoreDown = WrongStore(f"{self.path} {READ_ONLY}.")
            case apsw.CantOpenError():
                reason = "it is a folder" if Path(self.path).is_dir() else "its folder is missing, or belongs to another user"
                down = WrongStore(f"{self.path} cannot be opened: {reason} ({error}).")
            case apsw.CorruptError() | apsw.NotADBError():
                down = WrongStore(f"{self.path} is damaged, or is no SQLite database: {error}.")
            case apsw.Error() if not isinstance(error, apsw.TooBigError):  # a TooBigError concerns only one call
                down = StoreDown(f"{self.path} cannot be used: {error}.")
            case _:
                return None
        return Failure(down, lost=True)

    def poll_interval(self) -> float | None:
        return POLL if self._notifications.responses() else None

    def poll(self, connection: SqliteConnection) -> None:
        version = connection.value("PRAGMA data_version")  # changes when another connection writes
        if version == connection.data_version:
            return
        connection.data_version = version
        responses = Responses(self._transaction(connection))
        rows = {key: responses.row(*key) for key in self._notifications.responses()}
        self._notifications.notify(key for key, row in rows.items() if key not in self._rows or self._rows[key] != row)
        self._rows = rows

    def _describe(self, _connection: DatabaseConnection) -> tuple[str, int]:
        files = (Path(f"{self.path}{suffix}") for suffix in ("", "-wal"))
        return f"SQLite {apsw.sqlite_lib_version()}", sum(file.stat().st_size for file in files if file.exists())

    async def _free_space(self) -> None:
        await asyncio.to_thread(self._run_alone, self.connect, _vacuum)


@define(eq=False)
class MemoryStore(ResponseStore):
    """Stores responses in memory, and evicts the least recently used responses and conversations.

    It does not evict unfinished responses, leased conversations, or the last used entry, so that a client that waits for the end
    of a response can get it.
    """

    max_responses: int = field(default=10_000, kw_only=True)  # and as many conversations
    max_bytes: int = field(default=256 * 2**20, kw_only=True)  # of memory; a single larger response is refused
    _connection: SqliteConnection = field(init=False)
    _uses: int = field(default=0, init=False)
    _empty_pages: int = field(init=False)  # of the empty tables, which do not count

    def __attrs_post_init__(self) -> None:
        self.clock = self.clock or time.monotonic
        self._connection = connection = SqliteConnection(":memory:")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.prepare(create=True)
        connection.execute(USAGE)
        self._empty_pages = connection.value("PRAGMA page_count")

    @property
    def stored_bytes(self) -> int:
        """The bytes of memory that count towards `max_bytes`."""
        _, _, pages, free = self._connection.rows(FIGURES)[0]
        return int(pages - free - self._empty_pages) * PAGE_BYTES

    async def close(self) -> None:
        """Do nothing, because the responses stay until the process ends."""

    async def _read(self, work: Callable[[Transaction], R]) -> R:
        return self._run(work)

    async def _change(self, work: Callable[[Transaction], R], _key: ResponseKey | None = None) -> R:
        def change(tx: Transaction) -> R:
            result = work(tx)
            self._make_room(tx)
            return result

        return self._run(change)

    def _run(self, work: Callable[[Transaction], R]) -> R:
        """Run work in a transaction, in the thread of the caller. Any exception rolls it back."""
        connection = self._connection
        tx = self._transaction(connection)
        tx.use = self._use
        try:
            connection.begin(write=False)
            result = work(tx)
            connection.commit()
        except apsw.Error as error:
            raise StoreDown(f"The store in memory cannot be used: {error}.") from error
        finally:
            connection.roll_back()
        self._notifications.notify(tx.changed)
        return result

    def _describe(self, connection: DatabaseConnection) -> tuple[str, int]:
        return "memory", int(connection.value("PRAGMA page_count")) * PAGE_BYTES

    async def _free_space(self) -> None:
        self._connection.execute("PRAGMA incremental_vacuum")

    def _edit(self, tx: Transaction, tenant: str, response_id: str, edit: Edit) -> ResponseRow | None:
        if edit.stored is not None and edit.trigger in {StoredTrigger.PUT, StoredTrigger.ENQUEUE}:
            # The size includes items that are stored already, because they also count when all other responses are evicted.
            items = sum(PER_ITEM + len(dumps(item)) for item in edit.stored.conversation)
            if len(body_of(edit.stored)) + items > self.max_bytes:
                raise StoreFull("The response is larger than the store may be.")
        row = super()._edit(tx, tenant, response_id, edit)
        if edit.trigger is StoredTrigger.ENQUEUE and not self._make_room(tx):
            raise StoreFull("Too many responses are being made in the background.")
        return row

    def _use(self, table: Literal["response", "conversation"], seq: Seq) -> None:
        self._uses += 1
        self._connection.execute(f"UPDATE {table} SET used = ? WHERE seq = ?", (self._uses, seq))  # noqa: S608 - constants

    def _make_room(self, tx: Transaction) -> bool:
        """Evict until the rest is within the limits or cannot be evicted, and free the pages beyond `max_bytes`.

        Return whether the remaining responses are within the limits, or only one remains.
        """
        max_pages = self.max_bytes // PAGE_BYTES + self._empty_pages
        while True:
            responses, conversations, pages, free = self._connection.rows(FIGURES)[0]
            is_full = pages - free > max_pages
            exceeded = is_full or responses > self.max_responses, is_full or conversations > self.max_responses
            if any(exceeded) and (Responses(tx).expire(SWEEP_BATCH) or Conversations(tx).expire(SWEEP_BATCH)):
                continue
            row = self._connection.row(EVICTABLE, (*exceeded, self._uses, *tx.lease)) if any(exceeded) else None
            if row is None:
                break
            response, conversation, _ = row
            if response is not None:
                Responses(tx).remove(Responses(tx).rows("seq = ?", response)[0])
            else:
                Conversations(tx).remove(conversation)
        if pages > max_pages:
            self._connection.execute(f"PRAGMA incremental_vacuum({pages - max_pages})")
        return not exceeded[0] or responses == 1


def _vacuum(connection: DatabaseConnection) -> None:
    """Return free pages to the disk, and empty the write-ahead log, which may still contain deleted data."""
    for _ in range(0, connection.value("PRAGMA freelist_count"), VACUUMED):
        connection.execute(f"PRAGMA incremental_vacuum({VACUUMED})")
        time.sleep(PAUSE)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - twice as fast as a Path, once for each transaction
    except OSError:
        return None
    return status.st_dev, status.st_ino
