"""A store that several processes share: threads do the work, so that the event loop never waits for a disk or a lock."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from random import uniform
from threading import Thread
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar

from attrs import define, field

from interlock.serving.store.database import Contention, DatabaseConnection, Failure
from interlock.serving.store.response_store import ResponseStore, Subscription
from interlock.serving.store.rows import Transaction, lock
from interlock.serving.store.values import ResponseKey, StoreDown, StoreError, StoreInfo

R = TypeVar("R")
C = TypeVar("C", bound=DatabaseConnection)
ConnectionRole: TypeAlias = Literal["reader", "writer", "listener"]

BATCH: Final = 256  # the most jobs in one transaction
ATTEMPTS: Final = 12  # for one transaction that other processes block
BACKOFF: Final = 0.005  # seconds of the shortest pause between attempts; later pauses can be longer


@define(eq=False)
class SharedStore(ResponseStore, Generic[C]):
    """A store that several processes share. A thread writes, another reads, and one of them or a third receives notifications."""

    create: bool = field(default=True, kw_only=True)  # whether to create the store if it does not exist
    timeout: float | None = field(default=None, init=False)
    """Seconds of silence after which the database is down; None if the database has its own limits."""
    listener: ClassVar[ConnectionRole]  # the thread that notices the changes of other processes
    _threads: dict[ConnectionRole, DatabaseThread[C]] = field(factory=dict[ConnectionRole, "DatabaseThread[C]"], init=False)

    async def migrate(self) -> int:
        return await asyncio.to_thread(self._run_alone, self.connect, lambda connection: connection.migrate())

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

    def check_soon(self) -> None:
        """Close and open the connection after the jobs in the queue if it is not current."""
        self._queue.put(Job(lambda _tx: None, None))

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
