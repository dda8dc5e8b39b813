"""Connections to SQLite, and who uses them.

For a file it is a thread, so that the event loop never waits for a disk or a lock; memory has neither, and is used by the caller.
A thread has a connection of its own. What is asked of it while it is at work is done next, all of it in one transaction: so many
writers cost one commit. If that fails, each is done alone, so that nobody pays for another's fault.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import apsw
from attrs import define, field, frozen

from interlock.serving.store.store_errors import StoreDown, StoreError

__all__ = ["Inline", "Sql", "Worker", "Works", "loses_commits", "store_down"]

R = TypeVar("R")

Values: TypeAlias = Sequence[object]

BATCH: Final = 256
"""Jobs that are done in one transaction at most."""

FIRST_UNSAFE: Final = (3, 7, 0)
LAST_UNSAFE: Final = (3, 51, 2)
MENDED: Final = {(3, 50): 7, (3, 44): 6}
"""Older releases that were mended later: from which patch on."""


def loses_commits(version: str) -> bool:
    """Return whether a version of SQLite can lose a commit where several connections write to one file with a write-ahead log.

    Two of them that reset the log at the same moment may take it for empty. See "The WAL-reset bug" in SQLite's documentation of
    write-ahead logging.
    """
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    mended = MENDED.get((major, minor))
    return FIRST_UNSAFE <= (major, minor, patch) <= LAST_UNSAFE and (mended is None or patch < mended)


@define(eq=False)
class Sql:
    """A connection, used by one thread at a time.

    Args:
        path: The file, which is made if there is none, or `:memory:`.
        busy: Seconds for which a lock of another connection is waited for.
    """

    path: str
    busy: float = 0.0
    _connection: Any = field(init=False)  # what apsw declares cannot be read under Python 3.11

    def __attrs_post_init__(self) -> None:
        """Open the file."""
        self._connection = apsw.Connection(self.path)
        self._connection.set_busy_timeout(int(self.busy * 1000))

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return bool(self._connection.in_transaction)

    def rows(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        rows: list[tuple[Any, ...]] = self._connection.execute(statement, values).fetchall()
        return rows

    def row(self, statement: str, values: Values = ()) -> tuple[Any, ...] | None:
        """Run a statement, and return its first row; None if there is none."""
        rows = self.rows(statement, values)
        return rows[0] if rows else None

    def one(self, statement: str, values: Values = ()) -> Any:  # noqa: ANN401 - as it is in the database
        """Run a statement, and return the first value of its first row; None if there is none."""
        row = self.row(statement, values)
        return None if row is None else row[0]

    def insert(self, statement: str, values: Values) -> int:
        """Run a statement that inserts a row, and return what the row is referred to by."""
        self._connection.execute(statement, values)
        return int(self._connection.last_insert_rowid())

    def do(self, statement: str, values: Values = ()) -> None:
        """Run a statement."""
        self.rows(statement, values)

    def many(self, statement: str, values: Iterable[Values]) -> None:
        """Run a statement with many values."""
        self._connection.executemany(statement, values)

    def close(self) -> None:
        """Close the connection, whatever is in the way."""
        self._connection.close(True)  # noqa: FBT003 - the argument has no name in every release


class Works(Protocol):
    """Does work with a connection, each in a transaction."""

    async def do(self, work: Callable[[Sql], R], after: Callable[[], None] = lambda: None) -> R:
        """Do something in a transaction, and return what it returned.

        Args:
            work: What is done. It raises `StoreError` before it has written anything, or not at all.
            after: What is done when it is committed.

        Raises:
            StoreDown: The database cannot be used now.
        """
        ...


@define(eq=False)
class Inline:
    """Does work at once, in the thread of its caller.

    Args:
        connection: To a database in memory.
        finish: What is done at the end of each transaction.
    """

    connection: Sql
    finish: Callable[[], None] = lambda: None

    async def do(self, work: Callable[[Sql], R], after: Callable[[], None] = lambda: None) -> R:
        """Do something in a transaction, which whatever is raised undoes."""
        connection = self.connection
        try:
            connection.do("BEGIN")
            result = work(connection)
            self.finish()
            connection.do("COMMIT")
        except apsw.Error as error:
            raise store_down(connection.path, error) from error
        finally:
            if connection.in_transaction:
                connection.do("ROLLBACK")
        after()
        return result


class Signal(Enum):
    """What a thread is told beside its jobs."""

    STOP = auto()
    POLL = auto()
    """Somebody has subscribed: poll from now on."""


@frozen(eq=False)
class Job(Generic[R]):
    """Something to be done with the connection, and who waits for it; see `Works.do`."""

    work: Callable[[Sql], R]
    after: Callable[[], None]
    result: asyncio.Future[R] = field(factory=lambda: asyncio.get_running_loop().create_future(), init=False)

    def succeed(self, value: R) -> None:
        """Hand over what it returned."""
        self._settle(lambda: self.result.set_result(value))

    def fail(self, error: Exception) -> None:
        """Hand over what it raised."""
        self._settle(lambda: self.result.set_exception(error))

    def _settle(self, settle: Callable[[], None]) -> None:
        def settle_once() -> None:
            if not self.result.done():
                settle()

        with suppress(RuntimeError):  # its loop is closed: nobody waits
            self.result.get_loop().call_soon_threadsafe(settle_once)


@define(eq=False)
class Worker:
    """A thread with a connection, which it opens when it is first needed, and again when it was lost.

    Args:
        path: The file.
        open: Opens a connection.
        begin: The statement that begins a transaction.
        poll: Looks with the connection for what others have written, when nothing was asked for a while.
        pause: Returns the seconds after which it polls; None for never.
    """

    path: str
    open: Callable[[], Sql]
    begin: str
    poll: Callable[[Sql], None] = lambda _connection: None
    pause: Callable[[], float | None] = lambda: None
    _queue: SimpleQueue[Job[Any] | Signal] = field(factory=SimpleQueue["Job[Any] | Signal"], init=False)
    _thread: Thread | None = field(default=None, init=False)
    _connection: Sql | None = field(default=None, init=False)
    _file: tuple[int, int] | None = field(default=None, init=False)
    """Device and inode of the file that is open."""

    async def do(self, work: Callable[[Sql], R], after: Callable[[], None] = lambda: None) -> R:
        """Do something in a transaction; `after` is called in the thread."""
        job = Job(work, after)
        if self._thread is None:
            self._thread = Thread(target=self._run, name=f"interlock: {self.begin}", daemon=True)
            self._thread.start()
        self._queue.put(job)
        return await job.result

    def poll_soon(self) -> None:
        """Have the thread ask `pause` again."""
        self._queue.put(Signal.POLL)

    async def stop(self) -> None:
        """Do what was asked for, and close the connection; the next job opens it again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(Signal.STOP)
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def _run(self) -> None:
        going = True
        while going:
            jobs, going = self._next()
            if jobs:
                self._do_all(jobs)
            elif going:
                self._poll()
        self._close()

    def _next(self) -> tuple[list[Job[Any]], bool]:
        """Return the jobs that wait, and whether the thread goes on."""
        jobs: list[Job[Any]] = []
        try:
            entry = self._queue.get(timeout=self.pause())
            while isinstance(entry, Job):
                jobs.append(entry)
                if len(jobs) == BATCH:
                    break
                entry = self._queue.get_nowait()
        except Empty:
            return jobs, True
        return jobs, entry is not Signal.STOP

    def _do_all(self, jobs: Sequence[Job[Any]]) -> None:
        try:
            results = self._transact(self._opened(), jobs)
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits is told
            self._undo(error)
            if len(jobs) == 1:
                jobs[0].fail(store_down(self.path, error) if isinstance(error, apsw.Error) else error)
            else:
                for job in jobs:
                    self._do_all([job])
        else:
            for job, settle in results:
                job.after()
                settle()

    def _transact(self, connection: Sql, jobs: Sequence[Job[Any]]) -> list[tuple[Job[Any], Callable[[], None]]]:
        """Do jobs in one transaction, and return what settles each when it is committed."""
        results: list[tuple[Job[Any], Callable[[], None]]] = []
        connection.do(self.begin)
        for job in jobs:
            try:
                results.append((job, partial(job.succeed, job.work(connection))))
            except StoreError as error:
                results.append((job, partial(job.fail, error)))
        connection.do("COMMIT")
        return results

    def _poll(self) -> None:
        try:
            self.poll(self._opened())
        except Exception as error:  # noqa: BLE001 - the thread goes on; a subscriber looks by itself after a while
            self._undo(error)

    def _opened(self) -> Sql:
        """Return the connection; a new one if the file is not the one that was opened, because somebody has moved it."""
        if self._connection is not None and self._file != _identity(self.path):
            self._close()
        if self._connection is None:
            self._connection = self.open()
            self._file = _identity(self.path)
        return self._connection

    def _undo(self, error: Exception) -> None:
        """Undo a transaction. After what may have to do with the file, it is opened again."""
        if self._connection is None:
            return
        if isinstance(error, apsw.Error) and not isinstance(error, (apsw.BusyError, apsw.FullError)):
            self._close()
        elif self._connection.in_transaction:
            self._connection.do("ROLLBACK")

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(apsw.Error):
                connection.close()


def store_down(path: str, error: apsw.Error) -> StoreDown:
    """Return what is raised where SQLite cannot do something now."""
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
