"""Connections to SQLite, and threads that run work on them, so that the event loop never waits for a disk or a lock."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import apsw
from attrs import define, field, frozen

from interlock.serving.store.interface import StoreDown, StoreError

__all__ = ["Connection", "DatabaseThread", "loses_commits", "store_down"]

R = TypeVar("R")

Values: TypeAlias = Sequence[object]

BATCH: Final = 256  # the most jobs in one transaction


def loses_commits(version: str) -> bool:
    """Return whether a version of SQLite has "The WAL-reset bug", which loses commits of connections that write to one file."""
    # SQLite's documentation of write-ahead logging lists the versions.
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    fixed = {(3, 50): 7, (3, 44): 6}.get((major, minor))  # the first fixed patches of older releases
    return (3, 7, 0) <= (major, minor, patch) <= (3, 51, 2) and (fixed is None or patch < fixed)


@define(eq=False)
class Connection:
    """A connection to a file or to `:memory:`. It waits for a lock of another connection for `busy` seconds."""

    path: str
    busy: float = 0.0
    _connection: Any = field(init=False)  # apsw's types cannot be read under Python 3.11

    def __attrs_post_init__(self) -> None:
        self._connection = apsw.Connection(self.path)
        self._connection.set_busy_timeout(int(self.busy * 1000))

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction)

    def rows(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._connection.execute(statement, values).fetchall()
        return rows

    def row(self, statement: str, values: Values = ()) -> tuple[Any, ...] | None:
        rows = self.rows(statement, values)
        return rows[0] if rows else None

    def value(self, statement: str, values: Values = ()) -> Any:  # noqa: ANN401 - as it is in the database
        row = self.row(statement, values)
        return None if row is None else row[0]

    def execute(self, statement: str, values: Values = ()) -> None:
        self.rows(statement, values)

    def execute_many(self, statement: str, values: Iterable[Values]) -> None:
        self._connection.executemany(statement, values)

    def close(self) -> None:
        """Close the connection, even with open statements."""
        self._connection.close(True)  # noqa: FBT003 - the argument has no name in every release


@frozen(eq=False)
class Job(Generic[R]):
    """Work for a thread, and its future result; see `DatabaseThread.run`."""

    work: Callable[[Connection], R]
    after: Callable[[], None]
    result: Future[R]


@define(eq=False)
class DatabaseThread:
    """Runs work in a thread with a connection, which it opens on first use, and again after an error or if the file is replaced.

    Jobs that arrive while the thread is busy are done next, in one transaction, so that many writers cost one commit.

    Args:
        path: The file.
        open: Opens a connection.
        begin: The statement that begins a transaction.
        poll: Called with the connection after `interval()` seconds without a job.
        interval: Returns None if there is nothing to poll for.
    """

    path: str
    open: Callable[[], Connection]
    begin: str
    poll: Callable[[Connection], None] = lambda _connection: None
    interval: Callable[[], float | None] = lambda: None
    _queue: SimpleQueue[Job[Any] | Literal["poll", "stop"]] = field(
        factory=SimpleQueue["Job[Any] | Literal['poll', 'stop']"], init=False
    )
    _thread: Thread | None = field(default=None, init=False)
    _connection: Connection | None = field(default=None, init=False)
    _file: tuple[int, int] | None = field(default=None, init=False)  # device and inode

    async def run(self, work: Callable[[Connection], R], after: Callable[[], None] = lambda: None) -> R:
        """Run `work`, and return its result; call `after` in the thread once it is committed.

        Work raises a `StoreError` before it has written anything, because the jobs beside it are committed.

        Raises:
            StoreDown: The database cannot be used now.
        """
        result: Future[R] = Future()
        result.set_running_or_notify_cancel()  # a cancelled caller does not cancel the job
        if self._thread is None:
            self._thread = Thread(target=self._loop, name=f"interlock: {self.begin}", daemon=True)
            self._thread.start()
        self._queue.put(Job(work, after, result))
        return await asyncio.wrap_future(result)

    def poll_soon(self) -> None:
        """Poll now, and ask `interval` again."""
        self._queue.put("poll")

    async def stop(self) -> None:
        """Finish the jobs in the queue, and close the connection. The next job opens it again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put("stop")
            await asyncio.to_thread(thread.join)

    def _loop(self) -> None:
        running = True
        while running:
            jobs, running = self._next_jobs()
            if jobs:
                self._run_batch(jobs)
            elif running:
                self._poll()
        self._close()

    def _next_jobs(self) -> tuple[list[Job[Any]], bool]:
        """Return the jobs in the queue, none after a pause, and whether the thread goes on."""
        jobs: list[Job[Any]] = []
        try:
            entry = self._queue.get(timeout=self.interval())
            while isinstance(entry, Job):
                jobs.append(entry)
                if len(jobs) == BATCH:
                    break
                entry = self._queue.get_nowait()
        except Empty:
            return jobs, True
        return jobs, entry != "stop"

    def _run_batch(self, jobs: Sequence[Job[Any]]) -> None:
        try:
            outcomes = self._commit(self._open_connection(), jobs)
        except Exception as error:  # noqa: BLE001 - any error is passed on to the callers
            self._roll_back(error)
            if len(jobs) == 1:
                jobs[0].result.set_exception(store_down(self.path, error) if isinstance(error, apsw.Error) else error)
            else:  # one by one, so that the failing job does not fail the others
                for job in jobs:
                    self._run_batch([job])
        else:
            for job, set_outcome in zip(jobs, outcomes, strict=True):
                job.after()
                set_outcome()

    def _commit(self, connection: Connection, jobs: Sequence[Job[Any]]) -> list[Callable[[], None]]:
        """Run jobs in one transaction; return the setter of each outcome."""
        outcomes: list[Callable[[], None]] = []
        connection.execute(self.begin)
        for job in jobs:
            try:
                outcomes.append(partial(job.result.set_result, job.work(connection)))
            except StoreError as error:
                outcomes.append(partial(job.result.set_exception, error))
        connection.execute("COMMIT")
        return outcomes

    def _poll(self) -> None:
        try:
            self.poll(self._open_connection())
        except Exception as error:  # noqa: BLE001 - the thread goes on; subscribers read again by themselves
            self._roll_back(error)

    def _open_connection(self) -> Connection:
        """Return the connection: a new one if the path names another file than the one that is open."""
        if self._connection is not None and self._file != _identity(self.path):
            self._close()
        if self._connection is None:
            self._connection = self.open()
            self._file = _identity(self.path)
        return self._connection

    def _roll_back(self, error: Exception) -> None:
        """Roll back the transaction, or close the connection after an error that may be due to the file."""
        if self._connection is None:
            return
        if isinstance(error, apsw.Error) and not isinstance(error, (apsw.BusyError, apsw.FullError)):
            self._close()
        elif self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(apsw.Error):
                connection.close()


def store_down(path: str, error: apsw.Error) -> StoreDown:
    """Return the `StoreDown` for an error of SQLite."""
    match error:
        case apsw.BusyError():
            return StoreDown(f"{path} is locked by another process.")
        case apsw.FullError():
            return StoreDown(f"{path} cannot grow: the disk is full, or the file is as large as it may be.")
        case apsw.ReadOnlyError():
            return StoreDown(f"{path} cannot be written: it is read-only.")
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreDown(f"{path} is damaged, or is no SQLite database: {error}.")
        case _:
            return StoreDown(f"{path} cannot be used: {error}.")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - twice as fast as a Path, once for each transaction
    except OSError:
        return None
    return status.st_dev, status.st_ino
