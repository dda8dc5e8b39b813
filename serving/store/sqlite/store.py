"""A store in a file of SQLite, which the processes of one host may share.

What is written is there after the process is killed; after the machine loses its power it is with `synchronous=full`. The file
must not be on a network file system: SQLite's write-ahead log needs memory that all who write share.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal

import apsw
from attrs import define, field

from interlock.fsm.processes.stored import StoredTrigger
from interlock.serving.requests.conversation import Item
from interlock.serving.store.changes import Change
from interlock.serving.store.errors import StoreUnfit
from interlock.serving.store.sqlite import layout
from interlock.serving.store.sqlite.conversing import SqliteConversations
from interlock.serving.store.sqlite.items import Items
from interlock.serving.store.sqlite.responses import Responses
from interlock.serving.store.sqlite.sql import Sql
from interlock.serving.store.sqlite.threads import Worker, down
from interlock.serving.store.sqlite.versions import loses_commits
from interlock.serving.store.values import Info, Log, StoredResponse, Swept
from interlock.serving.store.wakes import Wakes, Watch
from interlock.serving.store.writing import Writing, Written

__all__ = ["SqliteStore"]

_T = StoredTrigger

LOOK: Final = 0.02
"""Seconds after which it is looked whether another process has written, as long as somebody watches."""

SWEPT_AT_ONCE: Final = 100
"""Responses that are removed in one transaction, so that others can write in between."""


@define(eq=False)
class SqliteStore(SqliteConversations, Writing):
    """Holds responses in a file; see `ResponseStore`.

    Args:
        path: The file, which is made if there is none.
        ttl: Seconds for which a response is stored after it was written last; None for ever. Conversations stay.
        logs: Seconds for which the events of a response are, after its end; None for as long as it.
        synchronous: `normal`: what is acknowledged outlives the process; `full`: the power of the machine too.
        busy: Seconds for which a lock of another process is waited for.
        max_bytes: How large the file may become; None for as large as the disk allows.
        clock: Tells the time in seconds, for leases; the same for all processes, and never set back but by a restart of the host.
        calendar: Tells the time in seconds since the epoch, which may be set.

    Raises:
        StoreUnfit: This release of SQLite can lose commits.
    """

    path: str
    ttl: float | None = None
    logs: float | None = field(default=None, kw_only=True)
    synchronous: Literal["normal", "full"] = field(default="normal", kw_only=True)
    busy: float = field(default=5.0, kw_only=True)
    max_bytes: int | None = field(default=None, kw_only=True)
    clock: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    calendar: Callable[[], float] = field(default=time.time, kw_only=True)
    _wakes: Wakes = field(factory=Wakes, init=False)
    _seen: dict[tuple[str, str], tuple[object, ...]] = field(factory=dict[tuple[str, str], "tuple[object, ...]"], init=False)
    """What the writer saw last of the responses that are watched."""
    _version: int = field(default=0, init=False)
    """The `data_version` that the writer saw last: it changes when another connection has written."""

    def __attrs_post_init__(self) -> None:
        """Make the threads, which begin when they are needed."""
        version = apsw.sqlite_lib_version()
        if loses_commits(version):
            message = f"SQLite {version} can lose commits of processes that share a file; 3.51.3 does not: pip install -U apsw."
            raise StoreUnfit(message)
        self._writer = Worker(self.path, self._open, "BEGIN IMMEDIATE", self._look, lambda: LOOK if self._wakes else None)
        self._reader = Worker(self.path, self._open, "BEGIN")

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response."""
        return await self._reader.do(lambda sql: self._responses(sql).stored(tenant, response_id))

    async def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, Item]:
        """Return items that are held."""
        wanted = [*item_ids]
        return await self._reader.do(lambda sql: Items(sql).find(tenant, wanted)) if wanted else {}

    async def read(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        """Return events of a response."""
        return await self._reader.do(lambda sql: self._responses(sql).log(tenant, response_id, first, limit))

    @contextmanager
    def watching(self, tenant: str, response_id: str) -> Generator[Watch]:
        """Watch a response."""
        with self._wakes.watching(tenant, response_id) as watch:
            self._writer.hurry()
            yield watch

    async def lost(self, limit: int) -> Sequence[tuple[str, str]]:
        """Return responses whose owner is lost."""
        return await self._reader.do(lambda sql: self._responses(sql).lost(limit))

    async def sweep(self) -> Swept:
        """Remove what is stored no longer, and give the room back to the disk."""
        expired = await self._repeated(self._expire)
        trimmed = 0 if self.logs is None else await self._repeated(partial(self._trim, self.logs))
        await asyncio.get_running_loop().run_in_executor(None, self._tidy)
        return Swept(expired, trimmed)

    async def info(self) -> Info:
        """Return what is in the store."""
        return await self._reader.do(self._info)

    async def migrate(self) -> int:
        """Bring the layout up to date, and return the version that it was of."""
        return await asyncio.get_running_loop().run_in_executor(None, self._migrate)

    async def close(self) -> None:
        """Close the file. What is asked for afterwards opens it again."""
        await self._writer.stop()
        await self._reader.stop()

    async def _write(self, tenant: str, response_id: str, change: Change) -> Written | None:
        """Write a change in the writer's thread, together with what others write at the moment."""
        woken: list[tuple[str, str]] = []

        def work(sql: Sql) -> Written | None:
            woken.clear()  # it may be done again
            row = self._responses(sql, woken).write(tenant, response_id, change)
            return None if row is None else Written(row.epoch, bool(row.cancelled))

        def after() -> None:
            for key in woken:
                self._wakes.wake(*key)

        return await self._writer.do(work, after)

    def _responses(self, sql: Sql, woken: list[tuple[str, str]] | None = None) -> Responses:
        return Responses(sql, self.clock(), self.calendar(), self.ttl, [] if woken is None else woken)

    async def _repeated(self, work: Callable[[Sql], int]) -> int:
        """Do something in steps until nothing is left, and return how much there was."""
        done = 0
        while step := await self._writer.do(work):
            done += step
        return done

    def _expire(self, sql: Sql) -> int:
        return self._responses(sql).expire(SWEPT_AT_ONCE)

    def _trim(self, kept: float, sql: Sql) -> int:
        responses = self._responses(sql)
        return sum(responses.write(*key, Change(_T.TRIM)) is not None for key in responses.trimmable(kept, SWEPT_AT_ONCE))

    def _info(self, sql: Sql) -> Info:
        counts, leases = self._responses(sql).census()
        conversations, items, events = (
            sql.one(f"SELECT count(*) FROM {table}")  # noqa: S608 - constants
            for table in ("conversation", "item", "event")
        )
        size = sum(Path(f"{self.path}{end}").stat().st_size for end in ("", "-wal") if Path(f"{self.path}{end}").exists())
        kind = f"SQLite {apsw.sqlite_lib_version()}"
        return Info(kind, layout.VERSION, counts, conversations, items, events, size, leases)

    def _look(self, sql: Sql) -> None:
        """Wake those who watch a response that another process has written about."""
        version = sql.one("PRAGMA data_version")
        if version == self._version:
            return
        self._version = version
        watched, responses = self._wakes.watched(), self._responses(sql)
        for key in watched:
            row = responses.row(*key)
            seen = row.seq, row.epoch, row.following, row.cancelled, row.state
            if self._seen.get(key) != seen:
                self._wakes.wake(*key)
            self._seen[key] = seen
        self._seen = {key: self._seen[key] for key in watched}

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

    def _tidy(self) -> None:
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
            raise down(self.path, error) from error
