"""Runs a server in several processes behind one port, on uvicorn's supervisor.

uvicorn starts the processes, and replaces one that exits or hangs. This module adds what it lacks: the processes drain, a second
signal ends them at once, SIGHUP reads the file of API keys again, and a lost supervisor ends its processes.

Each process listens on a socket of its own, and the kernel spreads connections between these; on one socket for all, a process
that is awake accepts most of a burst. The supervisor binds the port too, so that no other server takes it meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing import parent_process
from socket import socket
from types import FrameType
from typing import Final

import uvicorn
from starlette.applications import Starlette
from uvicorn.supervisors import multiprocess

from interlock.serving import metrics
from interlock.serving.http.server import STARTUP_FAILURE, Server, die_of, listen
from interlock.serving.requests.api_keys import Keys
from interlock.serving.settings import Settings

logger = logging.getLogger(__name__)

STOP_SIGNALS: Final = {signal.SIGINT, signal.SIGTERM}
SIGNALS: Final = {*STOP_SIGNALS, signal.SIGHUP}

HANGS: Final = 10.0
"""Seconds without an answer after which a process that serves is killed and replaced."""


class WorkerServer(Server):
    """The server of one of several processes, which the supervisor stops."""

    def __init__(self, app: Starlette) -> None:
        super().__init__(app, self._begin)
        self._keys: Keys = app.state.keys

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop if the supervisor asks for it. A terminal sends SIGINT to all processes, the supervisor included."""
        del frame
        if sig == signal.SIGTERM:
            self.stop()

    def _begin(self) -> None:
        gc.freeze()  # the collector blocks the event loop, and these objects last anyway
        gc.enable()
        loop, supervisor = asyncio.get_running_loop(), parent_process()
        assert supervisor is not None  # noqa: S101 - `Worker` starts this process
        loop.add_reader(supervisor.sentinel, self._lose_supervisor, loop, supervisor.sentinel)
        if self._keys.file is not None:
            loop.add_signal_handler(signal.SIGHUP, self._keys.reload, logging.DEBUG)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _lose_supervisor(self, loop: asyncio.AbstractEventLoop, sentinel: int) -> None:
        """Stop soon, so that another server can have the port."""
        loop.remove_reader(sentinel)
        self.stop(drain=False)


class Worker(multiprocess.Process):
    """A process, as the supervisor sees it; in the process, `create` makes the application, which listens on `address`."""

    def __init__(self, config: uvicorn.Config, create: Callable[[], Starlette], address: tuple[str, int]) -> None:
        self._create = create
        self._address = address
        super().__init__(config, [])

    def target(self, sockets: list[socket] | None = None) -> None:
        del sockets
        gc.disable()
        self._server = server = WorkerServer(self._create())
        threading.Thread(target=self.always_pong, daemon=True).start()
        server.run([listen(*self._address, reuse_port=True)])


class Supervisor(multiprocess.Multiprocess):
    """Starts the processes of a server, passes signals on to them, and waits until they have drained.

    Args:
        settings: The settings of the server, which say how many processes there are, and how long they may drain.
        create: Makes the application, in each process; it is pickled.
        reserved: Has the address; see `reserve`.
        on_ready: Is called when all processes accept connections.
        keys: Have the file that SIGHUP reads again.
    """

    def __init__(
        self, settings: Settings, create: Callable[[], Starlette], reserved: socket, on_ready: Callable[[], None], keys: Keys
    ) -> None:
        super().__init__(uvicorn.Config(create, workers=settings.workers, log_config=None), [reserved])
        self._settings = settings
        self._create = create
        self._address: tuple[str, int] = reserved.getsockname()[:2]
        self._on_ready = on_ready
        self._keys = keys
        self._stops: list[int] = []
        """The signals that ask the server to stop."""
        self._has_failed = False
        for number in multiprocess.SIGNALS.keys() - (SIGNALS if keys.file is not None else STOP_SIGNALS):
            signal.signal(number, signal.SIG_DFL)  # uvicorn changes the number of processes, or ignores a closed terminal

    def run(self) -> None:
        """Run until a signal ends the server, or a process that cannot start, with a `SystemExit`."""
        super().run()
        metrics.unshare()
        if self._has_failed:
            raise SystemExit(STARTUP_FAILURE)
        if self._stops[-1] != signal.SIGINT:
            die_of(self._stops[-1])

    def init_processes(self) -> None:
        try:
            for _ in range(self.processes_num):
                self.processes.append(self._start())
        except OSError as error:
            self._fail(f"no process could start: {error.strerror}")
        if all(map(self._await, self.processes)):
            self._on_ready()

    def keep_subprocess_alive(self) -> None:
        """Replace the processes that have exited, or hang."""
        for index, worker in enumerate(self.processes):
            if self.should_exit.is_set() or worker.is_alive(HANGS):
                continue
            reason = "hangs" if worker.process.is_alive() else _exit_of(worker)
            worker.kill()
            worker.join()
            metrics.forget(worker.pid or 0)
            logger.warning("process %d %s; another starts", worker.pid, reason)
            try:
                self.processes[index] = self._start()
            except OSError as error:  # the next round tries again
                logger.warning("no process could start: %s", error.strerror)
            else:
                self._await(self.processes[index])

    def join_all(self) -> None:
        """Wait until the processes have drained; kill those that still run after a second signal, or far too long."""
        deadline = time.monotonic() + self._settings.drain + 4 * self._settings.times.grace
        while not self._stops[1:] and time.monotonic() < deadline and any(each.exitcode is None for each in self.processes):
            time.sleep(self._settings.times.tick)
            self.handle_signals()
        for worker in self.processes:
            worker.kill()
        super().join_all()

    def handle_int(self) -> None:
        self._stop(signal.SIGINT)

    def handle_term(self) -> None:
        self._stop(signal.SIGTERM)

    def handle_hup(self) -> None:
        """Read the file of API keys again, in all processes if it is valid."""
        if self._keys.file is not None and self._keys.reload():
            for worker in self.processes:
                if worker.pid is not None and worker.exitcode is None:  # it was not waited for, so the number is its own
                    os.kill(worker.pid, signal.SIGHUP)

    def _stop(self, number: int) -> None:
        self._stops.append(number)
        self.should_exit.set()

    def _start(self) -> Worker:
        worker = Worker(self.config, self._create, self._address)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # signals to the process wait until it handles them
        try:
            worker.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return worker

    def _await(self, worker: multiprocess.Process) -> bool:
        """Return whether a process has started; one that cannot ends the server."""
        while not worker.is_ready(timeout=1):
            time.sleep(self._settings.times.tick)
            self.handle_signals()
            if self.should_exit.is_set():
                return False
            if worker.exitcode is not None:
                self._fail(f"process {worker.pid} {_exit_of(worker)}")
                return False
        return True

    def _fail(self, reason: str) -> None:
        logger.error("%s; the server cannot start", reason)
        self._has_failed = True
        self.should_exit.set()


def _exit_of(worker: multiprocess.Process) -> str:
    code = worker.exitcode or 0
    return f"was ended by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"has exited with status {code}"
