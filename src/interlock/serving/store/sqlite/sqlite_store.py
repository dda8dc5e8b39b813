"""A store in a file of SQLite, which the processes of one host may share, and what it has in common with the one in memory.

What is written is there after the process is killed; after the machine loses its power it is with `synchronous=full`. The file
must not be on a network file system: SQLite's write-ahead log needs memory that all who write share.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Literal, TypeVar

import apsw
from attrs import define, field

from interlock.fsm.processes.stored import StoredTrigger
from interlock.serving.requests.input_items import Item
from interlock.serving.store.edits import Edit, EditResult, ResponseEdits
from interlock.serving.store.notifications import Notifications, Subscription
from interlock.serving.store.records import Conversation, Expired, Info, Log, StoredResponse
from interlock.serving.store.sqlite import sql_schema as layout
from interlock.serving.store.sqlite.database import Sql, Worker, Works, loses_commits, store_down
from interlock.serving.store.sqlite.rows import Conversations, Items, ResponseRow, Responses, Transaction
from interlock.serving.store.store_errors import StoreUnfit

__all__ = ["SqlStore", "SqliteStore"]

R = TypeVar("R")

POLL: Final = 0.02
"""Seconds after which it is looked whether another process has written, as long as there are subscriptions."""

SWEPT_AT_ONCE: Final = 100
"""Responses that are removed in one transaction, so that others can write in between."""


@define(eq=False)
class SqlStore(ResponseEdits):
    """Holds responses and conversations as rows; see `ResponseStore`.

    Args:
        ttl: Seconds for which a response is stored after it was written last; None for ever. Conversations stay.
        logs: Seconds for which the events of a response are, after its end; None for as long as it.
        clock: Tells the time in seconds, for leases; the same for all processes, and never set back but by a restart of the host.
        calendar: Tells the time in seconds since the epoch, which may be set.
    """

    ttl: float | None = field(default=None, kw_only=True)
    logs: float | None = field(default=None, kw_only=True)
    clock: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    calendar: Callable[[], float] = field(default=time.time, kw_only=True)
    _notifications: Notifications = field(factory=Notifications, init=False)
    _writer: Works = field(init=False)
    _reader: Works = field(init=False)

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response."""
        return await self._read(lambda tx: Responses(tx).get(tenant, response_id))

    async def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, Item]:
        """Return items that are stored."""
        wanted = [*item_ids]
        return await self._read(lambda tx: Items(tx.sql).find(tenant, wanted)) if wanted else {}

    async def read(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        """Return events of a response."""
        return await self._read(lambda tx: Responses(tx).log(tenant, response_id, first, limit))

    def watching(self, tenant: str, response_id: str) -> AbstractContextManager[Subscription]:
        """Subscribe to a response."""
        return self._notifications.subscribe(tenant, response_id)

    async def lost(self, limit: int) -> Sequence[tuple[str, str]]:
        """Return responses whose owner is lost."""
        return await self._read(lambda tx: Responses(tx).lost(limit))

    async def sweep(self) -> Expired:
        """Remove what is stored no longer, and give the room back."""
        expired = await self._repeat(lambda tx: Responses(tx).expire(SWEPT_AT_ONCE))
        trimmed = 0 if self.logs is None else await self._repeat(self._trim)
        await self._tidy()
        return Expired(expired, trimmed)

    async def info(self) -> Info:
        """Return what is in the store."""
        return await self._read(self._info)

    async def create_conversation(self, tenant: str, conversation: Conversation, items: Sequence[Item] = ()) -> None:
        """Store a new conversation."""
        await self._change(lambda tx: Conversations(tx).create(tenant, conversation, items))

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """Return a conversation."""
        return await self._read(lambda tx: Conversations(tx).get(tenant, conversation_id))

    async def update_conversation(self, tenant: str, conversation_id: str, metadata: Mapping[str, object]) -> Conversation | None:
        """Give a conversation other metadata."""
        return await self._change(lambda tx: Conversations(tx).update(tenant, conversation_id, metadata))

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation."""
        return await self._change(lambda tx: Conversations(tx).delete(tenant, conversation_id))

    async def conversation_items(self, tenant: str, conversation_id: str) -> tuple[Item, ...] | None:
        """Return the items of a conversation."""
        return await self._read(lambda tx: Conversations(tx).items(tenant, conversation_id))

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[Item]) -> Conversation | None:
        """Add items to a conversation that nobody holds."""
        return await self._change(lambda tx: Conversations(tx).add_items(tenant, conversation_id, items))

    async def delete_item(self, tenant: str, conversation_id: str, item_id: str) -> Conversation | None:
        """Remove an item from a conversation that nobody holds."""
        return await self._change(lambda tx: Conversations(tx).delete_item(tenant, conversation_id, item_id))

    async def hold(self, tenant: str, conversation_id: str, owner: str) -> int | None:
        """Keep others from adding to a conversation."""
        return await self._change(lambda tx: Conversations(tx).hold(tenant, conversation_id, owner))

    async def release(self, tenant: str, conversation_id: str, owner: str) -> None:
        """Let others add to a conversation again."""
        await self._change(lambda tx: Conversations(tx).release(tenant, conversation_id, owner))

    async def _write(self, tenant: str, response_id: str, edit: Edit) -> EditResult | None:
        """Write an edit, in a file together with what others write at the moment."""

        def work(tx: Transaction) -> EditResult | None:
            row = self._edit(tx, tenant, response_id, edit)
            return None if row is None else EditResult(row.epoch, bool(row.cancelled))

        return await self._change(work)

    def _edit(self, tx: Transaction, tenant: str, response_id: str, edit: Edit) -> ResponseRow | None:
        return Responses(tx).write(tenant, response_id, edit)

    def _transaction(self, sql: Sql) -> Transaction:
        return Transaction(sql, self.clock(), self.calendar(), self.ttl)

    async def _read(self, work: Callable[[Transaction], R]) -> R:
        return await self._reader.do(lambda sql: work(self._transaction(sql)))

    async def _change(self, work: Callable[[Transaction], R]) -> R:
        """Do something that writes, and notify of the responses that have changed when it is committed."""
        changed: list[tuple[str, str]] = []

        def do(sql: Sql) -> R:
            tx = self._transaction(sql)
            result = work(tx)
            changed[:] = tx.changed  # not added: it may be done again
            return result

        def notify() -> None:
            for key in changed:
                self._notifications.notify(*key)

        return await self._writer.do(do, notify)

    async def _repeat(self, work: Callable[[Transaction], int]) -> int:
        """Do something in steps until nothing is left, and return how much there was."""
        done = 0
        while step := await self._change(work):
            done += step
        return done

    def _trim(self, tx: Transaction) -> int:
        responses = Responses(tx)
        keys = responses.trimmable(self.logs or 0.0, SWEPT_AT_ONCE)
        return sum(responses.write(*key, Edit(StoredTrigger.TRIM)) is not None for key in keys)

    def _info(self, tx: Transaction) -> Info:
        counts, leases = Responses(tx).count()
        conversations, items, events = (
            tx.sql.one(f"SELECT count(*) FROM {table}")  # noqa: S608 - constants
            for table in ("conversation", "item", "event")
        )
        return Info(self._kind(), layout.VERSION, counts, conversations, items, events, self._size(tx.sql), leases)

    @abstractmethod
    def _kind(self) -> str:
        """Return of which kind the store is."""

    @abstractmethod
    def _size(self, sql: Sql) -> int:
        """Return the bytes that everything takes."""

    @abstractmethod
    async def _tidy(self) -> None:
        """Give room back that is not needed."""


@define(eq=False)
class SqliteStore(SqlStore):
    """Holds responses in a file; see `ResponseStore`.

    Args:
        path: The file, which is made if there is none.
        synchronous: `normal`: what is acknowledged outlives the process; `full`: the power of the machine too.
        busy: Seconds for which a lock of another process is waited for.
        max_bytes: How large the file may become; None for as large as the disk allows.

    Raises:
        StoreUnfit: This release of SQLite can lose commits.
    """

    path: str
    synchronous: Literal["normal", "full"] = field(default="normal", kw_only=True)
    busy: float = field(default=5.0, kw_only=True)
    max_bytes: int | None = field(default=None, kw_only=True)
    _threads: tuple[Worker, Worker] = field(init=False)
    """The writer and the reader."""
    _seen: dict[tuple[str, str], tuple[object, ...]] = field(factory=dict[tuple[str, str], "tuple[object, ...]"], init=False)
    """What the writer saw last of the responses that have subscriptions."""
    _version: int = field(default=0, init=False)
    """The `data_version` that the writer saw last: it changes when another connection has written."""

    def __attrs_post_init__(self) -> None:
        """Make the threads, which begin when they are needed."""
        version = apsw.sqlite_lib_version()
        if loses_commits(version):
            message = f"SQLite {version} can lose commits of processes that share a file; 3.51.3 does not: pip install -U apsw."
            raise StoreUnfit(message)
        pause: Callable[[], float | None] = lambda: POLL if self._notifications else None  # noqa: E731 - an argument with a type
        writer, reader = (
            Worker(self.path, self._open, "BEGIN IMMEDIATE", self._poll, pause),
            Worker(self.path, self._open, "BEGIN"),
        )
        self._threads = self._writer, self._reader = writer, reader

    @contextmanager
    def watching(self, tenant: str, response_id: str) -> Generator[Subscription]:
        """Subscribe to a response."""
        with self._notifications.subscribe(tenant, response_id) as subscription:
            self._threads[0].poll_soon()
            yield subscription

    async def migrate(self) -> int:
        """Bring the layout up to date, and return the version that it was of."""
        return await asyncio.get_running_loop().run_in_executor(None, self._migrate)

    async def close(self) -> None:
        """Close the file. What is asked for afterwards opens it again."""
        for thread in self._threads:
            await thread.stop()

    def _kind(self) -> str:
        return f"SQLite {apsw.sqlite_lib_version()}"

    def _size(self, sql: Sql) -> int:
        files = (Path(f"{sql.path}{end}") for end in ("", "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def _poll(self, sql: Sql) -> None:
        """Notify of responses that another process has written about."""
        version = sql.one("PRAGMA data_version")
        if version == self._version:
            return
        self._version = version
        keys, responses = self._notifications.responses(), Responses(self._transaction(sql))
        for key in keys:
            row = responses.row(*key)
            state = row.seq, row.epoch, row.following, row.cancelled, row.state
            if self._seen.get(key) != state:
                self._notifications.notify(*key)
            self._seen[key] = state
        self._seen = {key: self._seen[key] for key in keys}

    def _open(self) -> Sql:
        """Open the file, and make the layout if there is none."""
        sql = self._connect()
        try:
            layout.create(sql)
            layout.require_layout(sql)
        except BaseException:
            sql.close()
            raise
        return sql

    def _connect(self) -> Sql:
        sql = Sql(self.path, self.busy)
        if not sql.one("PRAGMA page_count"):
            sql.do("PRAGMA auto_vacuum = INCREMENTAL")  # which has to be said before anything is written
        sql.do("PRAGMA journal_mode = WAL")
        sql.do(f"PRAGMA synchronous = {self.synchronous}")
        sql.do("PRAGMA secure_delete = ON")  # what is deleted is overwritten
        sql.do("PRAGMA foreign_keys = ON")
        if self.max_bytes is not None:
            sql.do(f"PRAGMA max_page_count = {self.max_bytes // sql.one('PRAGMA page_size')}")
        return sql

    async def _tidy(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._vacuum)

    def _vacuum(self) -> None:
        """Give room back to the disk; what was deleted is overwritten in the file, and the log that still has it is emptied."""
        with self._connected() as sql:
            sql.rows("PRAGMA incremental_vacuum")
            sql.rows("PRAGMA wal_checkpoint(TRUNCATE)")

    def _migrate(self) -> int:
        with self._connected() as sql:
            return layout.migrate(sql)

    @contextmanager
    def _connected(self) -> Generator[Sql]:
        """Have a connection for a moment, in whatever thread.

        Raises:
            StoreDown: The file cannot be used now.
        """
        try:
            sql = self._connect()
            try:
                yield sql
            finally:
                sql.close()
        except apsw.Error as error:
            raise store_down(self.path, error) from error
