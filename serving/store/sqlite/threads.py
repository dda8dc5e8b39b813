"""Threads that speak with SQLite: the event loop never waits for a disk or a lock.

A thread has a connection of its own. What is asked of it while it is at work is done next, all of it in one transaction: so many
writers cost one commit. If that fails, each is done alone, so that nobody pays for another's fault.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, Generic, TypeVar

import apsw
from attrs import define, field, frozen

from interlock.serving.store.errors import StoreDown, StoreError
from interlock.serving.store.sqlite.sql import Sql

__all__ = ["Worker", "down"]

R = TypeVar("R")

BATCH: Final = 256
"""Jobs that are done in one transaction at most."""


class Signal(Enum):
    """What is said to a thread beside jobs."""

    STOP = auto()
    LOOK = auto()
    """Somebody watches now: look around from now on."""


@frozen(eq=False)
class Job(Generic[R]):
    """Something to be done with the connection, and who waits for it.

    Args:
        work: What is done. It raises `StoreError` before it has written anything, or not at all.
        after: What is done when it is committed.
        result: What it returned.
        loop: Of who waits.
    """

    work: Callable[[Sql], R]
    after: Callable[[], None]
    result: asyncio.Future[R] = field(factory=lambda: asyncio.get_running_loop().create_future(), init=False)

    def done(self, value: R) -> None:
        """Hand over what it returned."""
        self._told(lambda: self.result.set_result(value))

    def failed(self, error: Exception) -> None:
        """Hand over what it raised."""
        self._told(lambda: self.result.set_exception(error))

    def _told(self, tell: Callable[[], None]) -> None:
        def told() -> None:
            if not self.result.done():
                tell()

        try:
            self.result.get_loop().call_soon_threadsafe(told)
        except RuntimeError:
            return  # its loop is closed: nobody waits


@define(eq=False)
class Worker:
    """A thread with a connection, which it opens when it is first needed, and again when it was lost.

    Args:
        path: The file.
        open: Opens a connection.
        begin: The statement that begins a transaction.
        look: Looks around with the connection when nothing was asked for a while.
        pause: Returns the seconds after which it looks around; None for never.
    """

    path: str
    open: Callable[[], Sql]
    begin: str
    look: Callable[[Sql], None] = lambda _connection: None
    pause: Callable[[], float | None] = lambda: None
    _asked: SimpleQueue[Job[Any] | Signal] = field(factory=SimpleQueue["Job[Any] | Signal"], init=False)
    _thread: Thread | None = field(default=None, init=False)
    _connection: Sql | None = field(default=None, init=False)
    _file: tuple[int, int] | None = field(default=None, init=False)
    """Device and inode of the file that is open."""

    async def do(self, work: Callable[[Sql], R], after: Callable[[], None] = lambda: None) -> R:
        """Have something done in a transaction, and return what it returned.

        Args:
            work: What is done. It raises `StoreError` before it has written anything, or not at all.
            after: What is done when it is committed, in the thread.

        Raises:
            StoreDown: The file cannot be used now.
        """
        job = Job(work, after)
        if self._thread is None:
            self._thread = Thread(target=self._run, name=f"interlock: {self.begin}", daemon=True)
            self._thread.start()
        self._asked.put(job)
        return await job.result

    def hurry(self) -> None:
        """Have the thread ask `pause` again."""
        self._asked.put(Signal.LOOK)

    async def stop(self) -> None:
        """Do what was asked for, and close the connection; the next job opens it again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._asked.put(Signal.STOP)
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def _run(self) -> None:
        going = True
        while going:
            jobs, going = self._next()
            if jobs:
                self._do_all(jobs)
            elif going:
                self._look()
        self._close()

    def _next(self) -> tuple[list[Job[Any]], bool]:
        """Return what was asked for, and whether the thread goes on."""
        jobs: list[Job[Any]] = []
        try:
            asked = self._asked.get(timeout=self.pause())
            while isinstance(asked, Job):
                jobs.append(asked)
                if len(jobs) == BATCH:
                    break
                asked = self._asked.get_nowait()
        except Empty:
            return jobs, True
        return jobs, asked is not Signal.STOP

    def _do_all(self, jobs: Sequence[Job[Any]]) -> None:
        try:
            done = self._transact(self._opened(), jobs)
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits is told
            self._undo(error)
            if len(jobs) == 1:
                jobs[0].failed(down(self.path, error) if isinstance(error, apsw.Error) else error)
            else:
                for job in jobs:
                    self._do_all([job])
        else:
            for job, told in done:
                job.after()
                told()

    def _transact(self, connection: Sql, jobs: Sequence[Job[Any]]) -> list[tuple[Job[Any], Callable[[], None]]]:
        """Do jobs in one transaction, and return how each is told what came of it."""
        done: list[tuple[Job[Any], Callable[[], None]]] = []
        connection.do(self.begin)
        for job in jobs:
            try:
                done.append((job, partial(job.done, job.work(connection))))
            except StoreError as error:
                done.append((job, partial(job.failed, error)))
        connection.do("COMMIT")
        return done

    def _look(self) -> None:
        try:
            self.look(self._opened())
        except Exception as error:  # noqa: BLE001 - the thread goes on; who watches looks by himself after a while
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


def down(path: str, error: apsw.Error) -> StoreDown:
    """Return what is raised where SQLite cannot do something now.

    Args:
        path: The file.
        error: What SQLite said.
    """
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
        found = os.stat(path)  # noqa: PTH116 - twice as fast as a Path, once for each transaction
    except OSError:
        return None
    return found.st_dev, found.st_ino
