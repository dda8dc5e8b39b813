"""Connections to a database, and the threads that use them, so that the event loop never waits for a disk or a lock."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from random import uniform
from threading import Thread
from time import monotonic, sleep
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar

from attrs import define, field, frozen

from interlock.serving.store.interface import Key, StoreDown, StoreError

__all__ = ["Connection", "Contention", "Database", "DatabaseThread", "Failure"]

R = TypeVar("R")
T = TypeVar("T")  # a transaction

Values: TypeAlias = Sequence[object]

BATCH: Final = 256  # the most jobs in one transaction
ATTEMPTS: Final = 12  # for one transaction that other processes block
BACKOFF: Final = 0.005  # seconds of the shortest pause between attempts; later pauses can be longer


class Contention(Exception):  # noqa: N818 - a state of the database, which passes
    """Another transaction blocks this one, which is then tried again."""


class Connection(ABC):
    """A connection to a database. Statements have `?` for each value, or `?1`, `?2` to use a value twice."""

    types: ClassVar[Mapping[str, str]]
    """The SQL of this database for the names in braces in `sql_schema`."""
    answered: float = 0.0  # the monotonic time of the last answer, if the database is on a network
    lock: str = ""  # the end of a SELECT of rows that the transaction changes, so that other processes wait for it
    share: str = ""  # the end of a SELECT of rows that the transaction refers to, so that others do not remove them

    @abstractmethod
    def rows(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Execute a statement, and return its rows."""

    def execute(self, statement: str, values: Values = ()) -> None:
        self.rows(statement, values)

    def row(self, statement: str, values: Values = ()) -> tuple[Any, ...] | None:
        rows = self.rows(statement, values)
        return rows[0] if rows else None

    def value(self, statement: str, values: Values = ()) -> Any:  # noqa: ANN401 - as it is in the database
        row = self.row(statement, values)
        return None if row is None else row[0]

    def execute_many(self, statement: str, values: Iterable[Values]) -> None:
        for each in values:
            self.execute(statement, each)

    @abstractmethod
    def begin(self, *, write: bool) -> None:
        """Begin a transaction."""

    def time(self) -> float | None:
        """Return the time of the database's clock, or None if it has no clock."""
        return None

    def commit(self) -> None:
        self.execute("COMMIT")

    @abstractmethod
    def roll_back(self) -> None:
        """Roll back the transaction, if there is one."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection, even with open statements, without raising an error."""

    @abstractmethod
    def layout(self) -> int | None:
        """Return the version of the layout, or None for an empty database."""

    def begin_migration(self) -> None:
        """Begin a transaction that locks the layout. Subclasses also prepare an empty database."""
        self.begin(write=True)


@frozen
class Failure:
    """An error of a database.

    Args:
        error: The error that callers receive.
        lost: Whether the connection must be opened again.
        common: Whether every other transaction would fail now too.
        passing: Whether the same transaction may succeed when it is tried again, because other processes blocked it.
    """

    error: StoreDown
    lost: bool = False
    common: bool = False
    passing: bool = False


class Database(ABC):
    """A database: opens connections, and classifies errors."""

    @abstractmethod
    def connect(self) -> Connection:
        """Open a connection."""

    @abstractmethod
    def failure(self, error: Exception) -> Failure | None:
        """Classify an error of the database; return None for any other error."""

    def is_current(self, _connection: Connection, /) -> bool:
        """Return whether a connection still leads to the current database at the URL."""
        return True


@define(eq=False)
class Job(Generic[T, R]):
    """Work for a thread, and its future result; see `DatabaseThread.run`."""

    work: Callable[[T], R]
    key: Key | None
    result: Future[R]
    abandoned: bool = False


@define(eq=False)
class DatabaseThread(Generic[T]):
    """Runs work in a thread with one connection, which it opens on first use, and again after a loss.

    Jobs that arrive while the thread is busy run next, in one transaction, so many writers share a commit.

    Args:
        name: The name of the database in messages.
        database: Classifies errors, and knows whether a connection is current.
        open: Opens a connection.
        begin: Begins a transaction for jobs that change the responses with these keys.
        commit: Commits a transaction, and returns a function to call after that.
        poll: Called with the connection every `interval()` seconds, between two batches of jobs.
        interval: Returns None if there is nothing to poll for.
        timeout: Seconds of silence after which the database is down; None if the database has its own limits.
    """

    name: str
    database: Database
    open: Callable[[], Connection]
    begin: Callable[[Connection, Sequence[Key]], T]
    commit: Callable[[T], Callable[[], None]]
    poll: Callable[[Connection], None] = lambda _connection: None
    interval: Callable[[], float | None] = lambda: None
    timeout: float | None = None
    _worker: Worker[T] | None = field(default=None, init=False)

    async def run(self, work: Callable[[T], R], key: Key | None = None) -> R:
        """Run `work` in a transaction, and return its result after the commit; `key` is the response that it changes.

        `work` may raise a `StoreError` only before it writes, because the other jobs in the transaction are committed.

        Raises:
            StoreDown: The database cannot be used now.
        """
        job = Job(work, key, Future[R]())
        job.result.set_running_or_notify_cancel()  # a cancelled caller does not cancel the job
        worker = self._start()
        worker.queue.put(job)
        result = asyncio.wrap_future(job.result)
        result.add_done_callback(lambda done: done.cancelled() or done.exception())  # in case the caller does not wait any more
        while not (await asyncio.wait([result], timeout=self.timeout))[0]:
            if self.timeout is not None and worker.silence() > self.timeout:
                job.abandoned = True
                raise StoreDown(f"{self.name} does not answer.")
        return result.result()

    def poll_soon(self) -> None:
        """Poll after the jobs in the queue, and call `interval` again."""
        self._start().queue.put("poll")

    async def stop(self) -> None:
        """Finish the jobs in the queue, and close the connection. The next job opens another one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.queue.put("stop")
            await asyncio.to_thread(worker.join, self.timeout)

    def _start(self) -> Worker[T]:
        if self._worker is None:
            self._worker = Worker(self)
            self._worker.start()
        return self._worker


class Worker(Thread, Generic[T]):
    """The thread of a `DatabaseThread`. It can outlive `DatabaseThread.stop` if the database does not answer."""

    def __init__(self, owner: DatabaseThread[T]) -> None:
        super().__init__(name=f"interlock: {owner.name}", daemon=True)
        self.queue: SimpleQueue[Job[T, Any] | Literal["poll", "stop"]] = SimpleQueue()
        self._owner = owner
        self._connection: Connection | None = None
        self._committing = False
        self._begun = 0.0  # the time of the last attempt to run a batch

    def silence(self) -> float:
        """Return the seconds since the last answer of the database, or since the start of the batch if that is later."""
        connection = self._connection
        return monotonic() - max(self._begun, 0.0 if connection is None else connection.answered)

    def run(self) -> None:
        polled = 0.0
        command = ""
        while command != "stop":
            interval = self._owner.interval()
            due = inf if interval is None else polled + interval
            jobs, command = self._next_jobs(None if interval is None else max(due - monotonic(), 0.0))
            if jobs:
                self._run_batch(jobs)
            if command == "poll" or (command != "stop" and monotonic() >= due):
                self._poll()
                polled = monotonic()
        self._close()

    def _next_jobs(self, timeout: float | None) -> tuple[list[Job[T, Any]], str]:
        """Wait for jobs, and return those in the queue, and the command after them, if there is one."""
        jobs: list[Job[T, Any]] = []
        try:
            entry = self.queue.get(timeout=timeout)
            while isinstance(entry, Job):
                jobs.append(entry)
                if len(jobs) == BATCH:
                    return jobs, ""
                entry = self.queue.get_nowait()
        except Empty:
            return jobs, ""
        return jobs, entry

    def _run_batch(self, jobs: Sequence[Job[T, Any]], attempts: int = ATTEMPTS) -> None:
        jobs = [job for job in jobs if not job.abandoned]
        self._begun = monotonic()
        try:
            outcomes, notify = self._commit(self._open_connection(), jobs)
        except Exception as error:  # noqa: BLE001 - the callers receive every error
            failure = self._recover(error)
            was_lost = failure is not None and failure.lost and not self._committing
            if failure is not None and attempts > 1 and (failure.passing or (was_lost and attempts == ATTEMPTS)):
                if failure.passing:
                    sleep(BACKOFF * uniform(1, ATTEMPTS + 1 - attempts))  # noqa: S311 - a pause
                self._run_batch(jobs, attempts - 1)
            elif len(jobs) > 1 and not (failure is not None and (failure.lost or failure.common)):
                for job in jobs:  # one by one, so that the failing job does not fail the others
                    self._run_batch([job])
            else:
                for job in jobs:
                    job.result.set_exception(error if failure is None else failure.error)
        else:
            notify()
            for set_outcome in outcomes:
                set_outcome()

    def _commit(self, connection: Connection, jobs: Sequence[Job[T, Any]]) -> tuple[list[Callable[[], None]], Callable[[], None]]:
        """Run jobs in one transaction; return the setter of each outcome, and the function to call after the commit."""
        self._committing = False
        outcomes: list[Callable[[], None]] = []
        tx = self._owner.begin(connection, [job.key for job in jobs if job.key is not None])
        for job in jobs:
            try:
                outcomes.append(partial(job.result.set_result, job.work(tx)))
            except StoreError as error:
                outcomes.append(partial(job.result.set_exception, error))
        self._committing = True
        return outcomes, self._owner.commit(tx)

    def _poll(self) -> None:
        try:
            self._owner.poll(self._open_connection())
        except Exception as error:  # noqa: BLE001 - the thread goes on; subscribers read without notifications
            self._recover(error)

    def _open_connection(self) -> Connection:
        if self._connection is not None and not self._owner.database.is_current(self._connection):
            self._close()
        if self._connection is None:
            self._committing = False
            self._connection = self._owner.open()
        return self._connection

    def _recover(self, error: Exception) -> Failure | None:
        """Roll back the transaction, or close the connection if it is lost."""
        failure = self._owner.database.failure(error)
        if isinstance(error, Contention):
            failure = Failure(StoreDown(f"{self._owner.name} is locked by another process."), passing=True)
        if self._connection is not None:
            if failure is not None and failure.lost:
                self._close()
            else:
                try:
                    self._connection.roll_back()
                except Exception:  # noqa: BLE001 - the connection cannot be used any more
                    self._close()
        return failure

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
