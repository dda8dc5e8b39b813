"""The base classes of the SQL stores, which turn each call into work in a transaction."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Final, TypeVar

from attrs import define, field

from interlock.serving.requests.input_items import Item
from interlock.serving.store.interface import (
    Conversation,
    ConversationEdit,
    Edit,
    EditResult,
    Key,
    Log,
    Notifications,
    ResponseStore,
    StoredResponse,
    StoreInfo,
    Subscription,
    SweepResult,
)
from interlock.serving.store.sql import sql_schema
from interlock.serving.store.sql.database import Connection, Database, DatabaseThread
from interlock.serving.store.sql.rows import Conversations, Items, ResponseRow, Responses, Transaction, lock

__all__ = ["SharedSqlStore", "SqlStore"]

R = TypeVar("R")

SWEEP_BATCH: Final = 100  # responses that a sweep removes in one transaction, so that others can write in between
LISTED: Final = 1000  # rows that a listing reads at a time


@define(eq=False)
class SqlStore(ResponseStore):
    """Stores responses and conversations as rows.

    Args:
        ttl: Seconds from the last write of a response until it expires; None for never.
        logs: Seconds from the end of a response until its events are removed; None to keep them as long as the response.
        clock: Returns the time in seconds, for tests; None for the clock of the database or, if it has none, of the host. On the
            host, leases use the monotonic clock, which only a restart of the host resets.
    """

    ttl: float | None = field(default=None, kw_only=True)
    logs: float | None = field(default=None, kw_only=True)
    clock: Callable[[], float] | None = field(default=None, kw_only=True)
    _notifications: Notifications = field(factory=Notifications, init=False)

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

    def responses(self) -> AsyncGenerator[Key, None]:
        return self._list("response")

    def conversations(self) -> AsyncGenerator[Key, None]:
        return self._list("conversation")

    async def _list(self, table: str) -> AsyncGenerator[Key, None]:
        query = f"SELECT seq, tenant, id FROM {table} WHERE seq > ? ORDER BY seq LIMIT {LISTED}"  # noqa: S608 - constants
        rows: list[tuple[int, str, str]] = [(0, "", "")]
        while rows:
            last = rows[-1][0]
            rows = await self._read(lambda tx: tx.connection.rows(query, (last,)))  # noqa: B023 - awaited at once
            for _, tenant, name in rows:
                yield tenant, name

    async def _write(self, tenant: str, response_id: str, edit: Edit) -> EditResult | None:
        row = await self._change(lambda tx: self._edit(tx, tenant, response_id, edit), (tenant, response_id))
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
        kind, size = self._describe(tx.connection)
        return StoreInfo(kind, sql_schema.VERSION, counts, conversations, items, events, size, leases)

    def _transaction(self, connection: Connection) -> Transaction:
        """Return a `Transaction` on the store's clock."""

        def clock() -> tuple[float, float]:
            now = connection.time() if self.clock is None else self.clock()
            return (time.monotonic(), time.time()) if now is None else (now, now)

        return Transaction(connection, clock, self.ttl)

    async def _repeat(self, work: Callable[[Transaction], int]) -> int:
        """Run work until it returns 0, and return the sum of its results."""
        total = 0
        while step := await self._change(work):
            total += step
        return total

    @abstractmethod
    async def _read(self, work: Callable[[Transaction], R]) -> R:
        """Run work that only reads."""

    @abstractmethod
    async def _change(self, work: Callable[[Transaction], R], key: Key | None = None, /) -> R:
        """Run work that writes, about the response `key` if any, and notify the subscribers of changed responses afterwards."""

    @abstractmethod
    def _describe(self, connection: Connection, /) -> tuple[str, int]:
        """Return the name and version of the database, and the size of the store in bytes."""

    @abstractmethod
    async def _free_space(self) -> None:
        """Free unused pages."""


@define(eq=False)
class SharedSqlStore(SqlStore):
    """A store that several processes share: one thread writes, another reads.

    Args:
        create: Whether to create the store if it does not exist.
    """

    create: bool = field(default=True, kw_only=True)
    _database: Database = field(init=False)
    _writer: DatabaseThread[Transaction] = field(init=False)
    _reader: DatabaseThread[Transaction] = field(init=False)
    _poller: DatabaseThread[Transaction] = field(init=False)  # receives the changes of other processes

    @contextmanager
    def subscribe(self, tenant: str, response_id: str) -> Generator[Subscription]:
        with self._notifications.subscribe((tenant, response_id)) as subscription:
            self._poller.poll_soon()
            yield subscription

    async def migrate(self) -> int:
        return await asyncio.to_thread(self._run_alone, sql_schema.migrate)

    async def info(self) -> StoreInfo:
        """Count on a separate connection, because counting can take long."""
        return await asyncio.to_thread(self._run_alone, self._count)

    def _count(self, connection: Connection) -> StoreInfo:
        sql_schema.prepare(connection, create=self.create)
        return self._info(self._begin_reading(connection))

    async def close(self) -> None:
        """Close the connections. The next use opens them again."""
        for thread in (self._poller, self._writer, self._reader):
            await thread.stop()

    async def _read(self, work: Callable[[Transaction], R]) -> R:
        return await self._reader.run(work)

    async def _change(self, work: Callable[[Transaction], R], key: Key | None = None) -> R:
        return await self._writer.run(work, key)

    def _open(self) -> Connection:
        """Open a connection; if `create` is true, create the tables in an empty database."""
        connection = self._database.connect()
        try:
            sql_schema.prepare(connection, create=self.create)
        except BaseException:
            connection.close()
            raise
        return connection

    def _begin_reading(self, connection: Connection, _keys: Sequence[Key] = ()) -> Transaction:
        connection.begin(write=False)
        return self._transaction(connection)

    def _begin_writing(self, connection: Connection, keys: Sequence[Key] = ()) -> Transaction:
        connection.begin(write=True)
        locked = lock(connection, [*dict.fromkeys(keys)]) if keys and connection.lock else {}
        tx = self._transaction(connection)
        tx.locked |= locked
        return tx

    def _commit(self, tx: Transaction) -> Callable[[], None]:
        tx.connection.commit()
        return lambda: self._notifications.notify(tx.changed)

    def _run_alone(self, work: Callable[[Connection], R]) -> R:
        """Run work on a separate connection, without beginning a transaction."""
        try:
            with closing(self._database.connect()) as connection:
                return work(connection)
        except Exception as error:
            failure = self._database.failure(error)
            if failure is None:
                raise
            raise failure.error from error
