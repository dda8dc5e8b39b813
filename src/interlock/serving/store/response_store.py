"""The store of responses and conversations: its methods, each of which is work in a transaction, and subscriptions to changes.

In a store that several processes share, threads do the work, so that the event loop never waits for a disk or a lock.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from random import uniform
from threading import Thread
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar

from attrs import define, field

from interlock.serving.requests.input_items import JsonItem
from interlock.serving.store.rows import (
    VERSION,
    Contention,
    Conversations,
    DatabaseConnection,
    Failure,
    Items,
    ResponseRow,
    Responses,
    Transaction,
    lock,
)
from interlock.serving.store.tables import ConversationTrigger, StoredTrigger
from interlock.serving.store.values import (
    Addition,
    Conflict,
    ConversationEdit,
    Edit,
    Lease,
    Log,
    ResponseKey,
    StoredConversation,
    StoreDown,
    StoredResponse,
    StoreError,
    StoreInfo,
    SweepResult,
)

R = TypeVar("R")
C = TypeVar("C", bound=DatabaseConnection)
_T, _CT = StoredTrigger, ConversationTrigger

ConnectionRole: TypeAlias = Literal["reader", "writer", "listener"]

BATCH: Final = 256  # the most jobs in one transaction
ATTEMPTS: Final = 12  # for one transaction that other processes block
BACKOFF: Final = 0.005  # seconds of the shortest pause between attempts; later pauses can be longer
SWEEP_BATCH: Final = 10  # expired responses that one transaction removes; few, so that it is short and needs little room


@define(eq=False)
class Subscription:
    """Waits for changes of one response. After a change between two waits, the second returns at once."""

    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    async def wait(self, seconds: float) -> None:
        """Wait until the response changes, for at most `seconds`; return at once if it has changed since the last wait.

        A notification can get lost, for example while the store is down, so read again after every wait.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    def notify(self) -> None:
        """End the wait. Thread-safe."""
        with suppress(RuntimeError):  # the loop is closed: nothing waits
            self._loop.call_soon_threadsafe(self._changed.set)


@define(eq=False)
class Notifications:
    """The subscriptions of one process to a store."""

    _subscriptions: dict[ResponseKey, set[Subscription]] = field(factory=dict[ResponseKey, set[Subscription]], init=False)

    def responses(self) -> list[ResponseKey]:
        """Return the responses that have subscriptions. Thread-safe."""
        return [*self._subscriptions]

    @contextmanager
    def subscribe(self, key: ResponseKey) -> Generator[Subscription]:
        subscription = Subscription()
        subscriptions = self._subscriptions.setdefault(key, set())
        subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            subscriptions.discard(subscription)
            if not subscriptions:
                self._subscriptions.pop(key, None)

    def notify(self, keys: Iterable[ResponseKey]) -> None:
        """Notify the subscriptions of these responses. Thread-safe."""
        for key in keys:
            for subscription in [*self._subscriptions.get(key, ())]:
                subscription.notify()


@define(eq=False, slots=False)  # so that a test can replace a method of one store
class ResponseStore(ABC):
    """Stores responses and conversations until they expire or are deleted.

    Each write fires an edge of the table `stored` or `conversation`; if the state has no such edge,
    nothing is written. Responses and conversations belong to a tenant, and no other tenant can see them. Each item has an id.

    - Every method raises `StoreDown` if the store cannot be used now.
    - A method that takes a lease raises `LeaseLost` if another process owns the response, or the response has ended or is gone.
    - A method that takes events raises `SequenceError` if they do not follow the last one.
    - A method that changes the items of a conversation raises `Conflict` while a response holds it.
    """

    ttl: float | None = field(default=None, kw_only=True)
    """Seconds from the last write of a response until it expires; None for never."""
    logs: float | None = field(default=None, kw_only=True)
    """Seconds from the end of a response until its events are removed; None to keep them as long as the response."""
    conversations: float | None = field(default=None, kw_only=True)
    """Seconds from the last write of a conversation until it expires; None for never."""
    clock: Callable[[], float] | None = field(default=None, kw_only=True)
    """Returns the time in seconds, for tests; None for the clock of the database or, if it has none, of the host. On the host,
    leases use the monotonic clock, which only a restart of the host resets."""
    _notifications: Notifications = field(factory=Notifications, init=False)

    async def put(self, tenant: str, stored: StoredResponse, addition: Addition | None = None) -> None:
        """Store an ended response, and add to a conversation, in one commit. It replaces an ended response with the same id.

        Raises:
            Conflict: The conversation has another owner or is gone, or a background response with the same id has not ended.
            StoreFull: The response alone exceeds the limit of the store.
        """
        await self._write(tenant, stored.id, Edit(_T.PUT, stored, addition))

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response, or None. Until a background response ends, it is returned as it was enqueued."""
        return await self._read(lambda tx: Responses(tx).get(tenant, response_id))

    async def hide(self, tenant: str, response_id: str) -> bool:
        """Delete a response, but let readers read its events for `LEASE` seconds; return whether it existed.

        Its id cannot be used again until then. A response that has not ended is deleted with its events.
        """
        return await self._write(tenant, response_id, Edit(_T.HIDE)) is not None

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Delete a response with its events and the items that nothing else refers to; return whether it existed, even hidden."""
        return await self._write(tenant, response_id, Edit(_T.DELETE)) is not None

    async def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, JsonItem]:
        """Return the stored items with these ids, by id. Unknown ids are left out."""
        ids = [*item_ids]
        return await self._read(lambda tx: Items(tx.connection).find(tenant, ids)) if ids else {}

    async def enqueue(self, tenant: str, stored: StoredResponse, owner: str) -> Lease:
        """Store a background response, and return the lease with which its owner writes the events.

        Raises:
            Conflict: A response with the same id exists.
            StoreFull: There is no room for it.
        """
        await self._write(tenant, stored.id, Edit(_T.ENQUEUE, stored, owner=owner))
        return Lease(tenant, stored.id, owner, epoch=1)

    async def append(self, lease: Lease, first: int, frames: Sequence[bytes]) -> bool:
        """Append events, numbered from `first` on, and renew the lease; return whether a client has asked to cancel."""
        return await self._write_as_owner(lease, Edit(_T.APPEND, None, None, lease.owner, lease.epoch, first, frames))

    async def renew(self, lease: Lease) -> bool:
        """Renew a lease; return whether a client has asked to cancel."""
        return await self._write_as_owner(lease, Edit(_T.RENEW, None, None, lease.owner, lease.epoch))

    async def finish(
        self, lease: Lease, first: int, frames: Sequence[bytes], stored: StoredResponse, addition: Addition | None = None
    ) -> None:
        """End a response: append its last events, store its body, and add to a conversation, in one commit. The lease ends.

        Raises:
            Conflict: The conversation has another owner or is gone. The lease stays valid.
        """
        await self._write_as_owner(lease, Edit(_T.FINISH, stored, addition, lease.owner, lease.epoch, first, frames))

    async def cancel(self, tenant: str, response_id: str) -> bool:
        """Ask the owner of a response to cancel it; return whether the response exists, ended or not."""
        return await self._write(tenant, response_id, Edit(_T.CANCEL)) is not None

    async def adopt(self, tenant: str, response_id: str, owner: str) -> Lease | None:
        """Take over a response whose lease has lapsed; return the new lease, or None if there is no such response."""
        result = await self._write(tenant, response_id, Edit(_T.ADOPT, owner=owner))
        return None if result is None else Lease(tenant, response_id, owner, result.epoch)

    async def trim(self, tenant: str, response_id: str) -> bool:
        """Remove the events of an ended response; return whether there is such a response."""
        return await self._write(tenant, response_id, Edit(_T.TRIM)) is not None

    async def read(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        """Return up to `limit` events of a response, hidden or not, from the number `first` on, or None for an unknown response.

        There are no events if the response was stored with `put`, or if `first` is before the oldest stored event.
        """
        return await self._read(lambda tx: Responses(tx).read(tenant, response_id, first, limit))

    def subscribe(self, tenant: str, response_id: str) -> AbstractContextManager[Subscription]:
        """Subscribe to changes of a response. Subscribe before the first read, so that you miss no change."""
        return self._notifications.subscribe((tenant, response_id))

    async def lost(self, limit: int) -> Sequence[ResponseKey]:
        """Return the tenant and id of up to `limit` responses whose lease has lapsed, the longest lapsed first."""
        return await self._read(lambda tx: Responses(tx).lost(limit))

    async def create_conversation(self, tenant: str, conversation: StoredConversation, items: Sequence[JsonItem] = ()) -> None:
        """Store a new conversation with its first items. It replaces a conversation with the same id."""
        edit = ConversationEdit(_CT.CREATE, conversation=conversation, items=items)
        await self._write_conversation(tenant, conversation.id, edit)

    async def conversation(self, tenant: str, conversation_id: str) -> StoredConversation | None:
        """Return a conversation, or None if there is none."""
        return await self._read(lambda tx: Conversations(tx).get(tenant, conversation_id))

    async def update_conversation(
        self, tenant: str, conversation_id: str, metadata: Mapping[str, object]
    ) -> StoredConversation | None:
        """Replace the metadata of a conversation; return the conversation, or None if there is none."""
        return await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.DESCRIBE, metadata=metadata))

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation; return whether it existed."""
        return await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.DELETE)) is not None

    async def conversation_items(self, tenant: str, conversation_id: str) -> tuple[JsonItem, ...] | None:
        """Return the items of a conversation in order, or None for an unknown conversation."""
        return await self._read(lambda tx: Conversations(tx).items(tenant, conversation_id))

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[JsonItem]) -> StoredConversation | None:
        """Append items to a conversation; return the conversation, or None if there is none."""
        return await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.CHANGE, items=items))

    async def delete_item(self, tenant: str, conversation_id: str, item_id: str) -> StoredConversation | None:
        """Remove an item from a conversation; return the conversation, or None if either does not exist."""
        return await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.CHANGE, item_id=item_id))

    async def hold(self, tenant: str, conversation_id: str, owner: str) -> bool:
        """Lease a conversation to a new response, its owner; return whether there is such a conversation.

        The lease ends with an `Addition`, with `release`, or after `LEASE` seconds. A response whose lease has lapsed stays the
        owner until another response holds the conversation or a client changes its items.

        Raises:
            Conflict: Another response has the lease.
        """
        return await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.HOLD, owner)) is not None

    async def renew_hold(self, tenant: str, conversation_id: str, owner: str) -> bool:
        """Renew the lease on a conversation; return whether there is such a conversation.

        Raises:
            Conflict: The response does not own the conversation any more.
        """
        return await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.RENEW, owner)) is not None

    async def release(self, tenant: str, conversation_id: str, owner: str) -> None:
        """End the lease on a conversation if `owner` owns it."""
        with suppress(Conflict):
            await self._write_conversation(tenant, conversation_id, ConversationEdit(_CT.RELEASE, owner))

    async def sweep(self) -> SweepResult:
        """Delete expired responses and conversations, which readers already cannot see, and expired logs."""
        expired = await self._repeat(lambda tx: Responses(tx).expire(SWEEP_BATCH))
        conversations = await self._repeat(lambda tx: Conversations(tx).expire(SWEEP_BATCH))
        age = self.logs
        trimmed = 0 if age is None else await self._repeat(lambda tx: Responses(tx).trim(age, SWEEP_BATCH))
        await self._free_space()
        return SweepResult(expired, trimmed, conversations)

    async def info(self) -> StoreInfo:
        """Return the store's contents."""
        return await self._read(self._info)

    @abstractmethod
    async def close(self) -> None:
        """Close files and connections. The next use opens them again."""

    async def _write(self, tenant: str, response_id: str, edit: Edit) -> ResponseRow | None:
        return await self._change(lambda tx: self._edit(tx, tenant, response_id, edit), (tenant, response_id))

    async def _write_as_owner(self, lease: Lease, edit: Edit) -> bool:
        row = await self._write(lease.tenant, lease.response_id, edit)
        return row is not None and bool(row.cancelled)

    async def _write_conversation(self, tenant: str, conversation_id: str, edit: ConversationEdit) -> StoredConversation | None:
        return await self._change(lambda tx: Conversations(tx).write(tenant, conversation_id, edit))

    def _edit(self, tx: Transaction, tenant: str, response_id: str, edit: Edit) -> ResponseRow | None:
        return Responses(tx).write(tenant, response_id, edit)

    def _info(self, tx: Transaction) -> StoreInfo:
        counts, leases = Responses(tx).count()
        items, events = (tx.connection.value(f"SELECT count(*) FROM {table}") for table in ("item", "event"))  # noqa: S608 - constants
        kind, size = self._describe(tx.connection)
        return StoreInfo(kind, VERSION, counts, Conversations(tx).count(), items, events, size, leases)

    def _transaction(self, connection: DatabaseConnection) -> Transaction:
        """Return a `Transaction` on the store's clock."""

        def clock() -> tuple[float, float]:
            now = connection.time() if self.clock is None else self.clock()
            return (time.monotonic(), time.time()) if now is None else (now, now)

        return Transaction(connection, clock, self.ttl, self.conversations)

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
    async def _change(self, work: Callable[[Transaction], R], key: ResponseKey | None = None, /) -> R:
        """Run work that writes, about the response `key` if any, and notify the subscribers of changed responses afterwards."""

    @abstractmethod
    def _describe(self, connection: DatabaseConnection, /) -> tuple[str, int]:
        """Return the name and version of the database, and the size of the store in bytes."""

    async def _free_space(self) -> None:  # noqa: B027 - Postgres frees its pages itself
        """Free unused pages."""


@define(eq=False)
class SharedStore(ResponseStore, Generic[C]):
    """A store that several processes share. A thread writes, another reads, and one of them or a third receives notifications."""

    create: bool = field(default=True, kw_only=True)  # whether to create the store if it does not exist
    timeout: float | None = field(default=None, init=False)
    """Seconds of silence after which the database is down; None if the database has its own limits."""
    listener: ClassVar[ConnectionRole]  # the thread that notices the changes of other processes
    _threads: dict[ConnectionRole, DatabaseThread[C]] = field(factory=dict[ConnectionRole, "DatabaseThread[C]"], init=False)

    async def info(self) -> StoreInfo:
        """Count on a separate connection, because counting can take long."""
        return await asyncio.to_thread(self._run_alone, self.open, lambda connection: self._info(self.begin(connection)))

    async def close(self) -> None:
        threads, self._threads = self._threads, {}
        for thread in threads.values():
            await thread.stop()

    async def _read(self, work: Callable[[Transaction], R]) -> R:
        return await self._thread("reader").run(work)

    async def _change(self, work: Callable[[Transaction], R], key: ResponseKey | None = None) -> R:
        return await self._thread("writer").run(work, key)

    @contextmanager
    def subscribe(self, tenant: str, response_id: str) -> Generator[Subscription]:
        with self._notifications.subscribe((tenant, response_id)) as subscription:
            self._thread(self.listener).poll_soon()
            yield subscription

    def _thread(self, role: ConnectionRole) -> DatabaseThread[C]:
        if role not in self._threads:
            self._threads[role] = DatabaseThread(self, role)
        return self._threads[role]

    def _run_alone(self, connect: Callable[[], C], work: Callable[[C], R]) -> R:
        """Run work on a separate connection, without beginning a transaction."""
        try:
            with closing(connect()) as connection:
                return work(connection)
        except Exception as error:
            failure = self.failure(error)
            if failure is None or failure.error is error:
                raise
            raise failure.error from error

    def open(self, _role: ConnectionRole | None = None) -> C:
        """Open the connection of a thread, or for work alone; if `create` is true, create the tables in an empty database."""
        connection = self.connect()
        try:
            connection.prepare(create=self.create)
        except BaseException:
            connection.close()
            raise
        return connection

    def begin(self, connection: C, keys: Sequence[ResponseKey] = (), *, write: bool = False, waited: float = 0.0) -> Transaction:
        """Begin a transaction for jobs that change the responses with these keys, and the first of which has `waited` seconds."""
        connection.begin(write=write, waited=waited)
        locked = lock(connection, [*dict.fromkeys(keys)]) if keys and connection.lock else {}
        tx = self._transaction(connection)
        tx.locked |= locked
        return tx

    def commit(self, tx: Transaction) -> None:
        tx.connection.commit()
        self._notifications.notify(tx.changed)

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the database in messages."""

    @abstractmethod
    def connect(self) -> C:
        """Open a connection to the database, which may be empty."""

    @abstractmethod
    def failure(self, error: Exception) -> Failure | None:
        """Classify an error of the database; return None for any other error."""

    def is_current(self, _connection: C, /) -> bool:
        """Return whether a connection still leads to the current database at the URL."""
        return True

    @abstractmethod
    def poll_interval(self) -> float | None:
        """Return the seconds between two calls of `poll`; None if there is nothing to poll for."""

    @abstractmethod
    def poll(self, connection: C, /) -> None:
        """Notify the subscribers of responses that other processes have changed. Called between two batches of jobs."""


@define(eq=False)
class Job:
    """Work for a thread, and its future result; see `DatabaseThread.run`."""

    work: Callable[[Transaction], Any]
    key: ResponseKey | None
    result: Future[Any] = field(factory=Future[Any], init=False)
    abandoned: bool = field(default=False, init=False)
    _enqueued: float = field(factory=time.monotonic, init=False)

    @property
    def waited(self) -> float:
        """The seconds since its caller began to wait."""
        return time.monotonic() - self._enqueued


@define(eq=False)
class DatabaseThread(Generic[C]):
    """Runs work of a store in a thread with one connection, which it opens on first use, and again after a loss.

    Jobs that arrive while the thread is busy run next, in one transaction, so many writers share a commit. The thread can outlive
    `stop` if the database does not answer.
    """

    store: SharedStore[C]
    role: ConnectionRole
    connection: C | None = field(default=None, init=False)
    _queue: SimpleQueue[Job | Literal["poll", "stop"]] = field(factory=SimpleQueue[Any], init=False)
    _committing: bool = field(default=False, init=False)
    _begun: float = field(default=0.0, init=False)  # the time when the last batch left the queue
    _thread: Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._thread = Thread(target=self._serve, name=f"interlock: {self.store.name}", daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[Transaction], R], key: ResponseKey | None = None) -> R:
        """Run `work` in a transaction, and return its result after the commit; `key` is the response that it changes.

        `work` may raise a `StoreError` only before it writes, because the other jobs in the transaction are committed.

        Raises:
            StoreDown: The database cannot be used now.
        """
        job = Job(work, key)
        job.result.set_running_or_notify_cancel()  # a cancelled caller does not cancel the job
        self._queue.put(job)
        result: asyncio.Future[R] = asyncio.wrap_future(job.result)
        result.add_done_callback(lambda done: done.cancelled() or done.exception())  # in case the caller does not wait any more
        while not result.done():
            patience = inf if self.store.timeout is None else self.store.timeout - min(job.waited, self._silence())
            if patience <= 0:
                job.abandoned = True
                if self.connection is not None:
                    self.connection.abort()
                raise StoreDown(f"{self.store.name} does not answer.")
            await asyncio.wait([result], timeout=None if patience == inf else patience)
        return result.result()

    def poll_soon(self) -> None:
        """Poll after the jobs in the queue, and call `poll_interval` again."""
        self._queue.put("poll")

    async def stop(self) -> None:
        """Finish the jobs in the queue, and close the connection."""
        self._queue.put("stop")
        await asyncio.to_thread(self._thread.join, self.store.timeout)

    def _silence(self) -> float:
        """Return the seconds since the last answer of the database, or since the start of the batch if that is later."""
        connection = self.connection
        return time.monotonic() - max(self._begun, 0.0 if connection is None else connection.answered)

    def _serve(self) -> None:
        polled = 0.0
        command = ""
        while command != "stop":
            interval = self.store.poll_interval() if self.role == self.store.listener else None
            due = inf if interval is None else polled + interval
            jobs, command = self._next_jobs(None if interval is None else max(due - time.monotonic(), 0.0))
            if jobs:
                self._begun = time.monotonic()
                self._run_batch(jobs)
            if command == "poll" or (command != "stop" and time.monotonic() >= due):
                self._poll()
                polled = time.monotonic()
        self._close()

    def _next_jobs(self, timeout: float | None) -> tuple[list[Job], str]:
        """Wait for jobs, and return those in the queue, and the command after them, if there is one."""
        jobs: list[Job] = []
        try:
            entry = self._queue.get(timeout=timeout)
            while isinstance(entry, Job):
                jobs.append(entry)
                if len(jobs) == BATCH:
                    return jobs, ""
                entry = self._queue.get_nowait()
        except Empty:
            return jobs, ""
        return jobs, entry

    def _run_batch(self, jobs: Sequence[Job], attempts: int = ATTEMPTS) -> None:
        """Run jobs in one transaction. If it fails, try again, or run each job alone, or pass the error to the callers."""
        try:
            connection = self._open_connection()
            outcomes = self._commit(connection, [job for job in jobs if not job.abandoned])
        except Exception as error:  # noqa: BLE001 - the callers receive every error
            failure = self._recover(error)
            was_lost = failure is not None and failure.lost and not self._committing
            if failure is not None and attempts > 1 and (failure.passing or (was_lost and attempts == ATTEMPTS)):
                if failure.passing:
                    time.sleep(BACKOFF * uniform(1, ATTEMPTS + 1 - attempts))  # noqa: S311 - a pause
                self._run_batch(jobs, attempts - 1)
            elif len(jobs) > 1 and not (failure is not None and (failure.lost or failure.common)):
                for job in jobs:  # one by one, so that the failing job does not fail the others
                    self._run_batch([job])
            else:
                for job in jobs:
                    job.result.set_exception(error if failure is None else failure.error)
        else:
            for set_outcome in outcomes:
                set_outcome()

    def _commit(self, connection: C, jobs: Sequence[Job]) -> list[Callable[[], None]]:
        """Run jobs in one transaction, and return the setter of each outcome."""
        self._committing = False
        keys = [job.key for job in jobs if job.key is not None]
        tx = self.store.begin(
            connection, keys, write=self.role == "writer", waited=max((job.waited for job in jobs), default=0.0)
        )
        outcomes: list[Callable[[], None]] = []
        for job in jobs:
            try:
                outcomes.append(partial(job.result.set_result, job.work(tx)))
            except StoreError as error:
                outcomes.append(partial(job.result.set_exception, error))
        self._committing = True
        self.store.commit(tx)
        return outcomes

    def _poll(self) -> None:
        try:
            self.store.poll(self._open_connection())
        except Exception as error:  # noqa: BLE001 - the thread goes on; subscribers read without notifications
            self._recover(error)

    def _open_connection(self) -> C:
        if self.connection is not None and not self.store.is_current(self.connection):
            self._close()
        if self.connection is None:
            self._committing = False
            self.connection = self.store.open(self.role)
        return self.connection

    def _recover(self, error: Exception) -> Failure | None:
        """Roll back the transaction, or close the connection if it is lost."""
        failure = self.store.failure(error)
        if isinstance(error, Contention):
            failure = Failure(StoreDown(f"{self.store.name} is locked by another process."), passing=True)
        if self.connection is not None:
            if failure is not None and failure.lost:
                self._close()
            else:
                try:
                    self.connection.roll_back()
                except Exception:  # noqa: BLE001 - the connection cannot be used any more
                    self._close()
        return failure

    def _close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
