"""Runs a server in several processes behind one port: a supervisor, which serves nothing, and its workers.

The tables `SERVER` and `WORKER` (`server_table`, `worker_table`) define the states. Each process listens on a socket of its own,
and the kernel spreads connections between these; on one socket for all, a process that is awake accepts most of a burst. The
supervisor binds the port too, so that no other server takes it meanwhile.

The supervisor forks the processes, so all have the same settings. It has a *channel* to each, a pair of sockets: over it, a
process reports that it is ready, and the supervisor asks it to stop, or to read the file of API keys again. Each side reads the
end when the other is gone.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from selectors import EVENT_READ, DefaultSelector
from time import monotonic
from types import FrameType
from typing import Final, assert_never

from attrs import define, field
from starlette.applications import Starlette

from interlock.fsm.table import Machine
from interlock.serving import metrics
from interlock.serving.http.server import STARTUP_FAILURE, Server, die_of, listen
from interlock.serving.http.server_table import SERVER, ServerEffect, ServerTrigger
from interlock.serving.http.worker_table import WORKER, WorkerEffect, WorkerTrigger
from interlock.serving.requests.api_keys import Keys
from interlock.serving.responses.active_runs import GRACE, Slots

logger = logging.getLogger(__name__)

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
SIGNALS: Final = (*STOP_SIGNALS, signal.SIGHUP)
READY: Final = b"r"
STOP: Final = b"s"
RELOAD: Final = b"k"

STABLE_SECONDS: Final = 10.0
"""How long a process must run so that the next one starts without a delay."""
FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 10.0
"""Seconds before the next start of a process that exits soon after its start; the delay doubles each time."""

SHUTDOWN_SECONDS: Final = 4 * GRACE
"""The most that a process needs after its drain; the supervisor then kills it."""


class WorkerServer(Server):
    """The server of a worker's process, which the supervisor stops; it ignores signals, which a terminal sends to it too."""

    def __init__(self, app: Starlette, channel: socket.socket) -> None:
        super().__init__(app, self._report)
        self._channel = channel
        self._keys: Keys = app.state.keys

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().add_reader(self._channel, self._read)
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ignore the signal."""

    def _report(self) -> None:
        gc.freeze()  # the collector blocks the event loop, and these objects last anyway
        gc.enable()
        with suppress(OSError):  # the supervisor is gone, which `_read` notices
            self._channel.send(READY)

    def _read(self) -> None:
        """Do what the supervisor asks for. Without a supervisor, stop soon, so that another server can have the port."""
        message = _receive(self._channel)
        if message == RELOAD:
            self._keys.reload(logging.DEBUG)
            return
        is_asked = bool(message)
        if not is_asked:
            asyncio.get_running_loop().remove_reader(self._channel)
        self.stop(drain=is_asked)


@define(eq=False)
class Worker:
    """A worker as the supervisor sees it."""

    slots: Slots
    channel: socket.socket | None = field(default=None, init=False)
    """The supervisor's end; None if no process runs."""
    pid: int = field(default=0, init=False)
    started_at: float = field(default=0.0, init=False)
    due_at: float = field(default=0.0, init=False)
    early_exits: int = field(default=0, init=False)
    """How many processes in a row have exited soon after their start."""
    machine: Machine[WorkerTrigger, WorkerEffect] = field(factory=lambda: Machine.at_start(WORKER), init=False)


@define(eq=False)
class Supervisor:
    """Starts the workers of a server, one for each of `slots`, and stops them.

    `application` is called in each process. `reserved` has the address; see `reserve`. SIGHUP reads the file of `keys` again.
    """

    _application: Callable[[Slots], Starlette]
    _reserved: socket.socket
    _slots: Sequence[Slots]
    _on_ready: Callable[[], None]
    _drain: float = 0.0
    _keys: Keys = field(factory=Keys)
    _workers: list[Worker] = field(init=False)
    _machine: Machine[ServerTrigger, ServerEffect] = field(factory=lambda: Machine.at_start(SERVER), init=False)
    _selector: DefaultSelector = field(factory=DefaultSelector, init=False)
    _signals: tuple[socket.socket, socket.socket] = field(factory=socket.socketpair, init=False)
    """Where the numbers of received signals are read and written."""
    _signal: int = field(default=signal.SIGTERM, init=False)
    _deadline: float = field(default=inf, init=False)

    def run(self) -> None:
        """Run until a signal or a failed start ends the server; in the process of a worker, never return.

        Raises:
            SystemExit: A worker could not start, or this is the process of a worker, which ends.
        """
        gc.freeze()  # the processes share the memory of objects that the collector leaves alone
        self._workers = [Worker(slots) for slots in self._slots]
        for end in self._signals:
            end.settimeout(0)
        signal.set_wakeup_fd(self._signals[1].fileno(), warn_on_full_buffer=False)
        for number in STOP_SIGNALS if self._keys.file is None else SIGNALS:
            signal.signal(number, _wake)
        self._selector.register(self._signals[0], EVENT_READ, self._read_signals)
        while self._machine.state.rows:
            self._start_due()
            for key, _ in self._selector.select(self._timeout()):
                key.data()
            if ServerTrigger.IDLE in self._machine.state.rows:
                self._end_if_drained()
        metrics.unshare()
        if self._signal != signal.SIGINT:
            die_of(self._signal)

    def _timeout(self) -> float | None:
        due = [worker.due_at for worker in self._workers if WorkerTrigger.DUE in worker.machine.state.rows]
        first = min(self._deadline, *due, inf)
        return None if first == inf else max(first - monotonic(), 0.0)

    def _start_due(self) -> None:
        for worker in self._workers:
            if WorkerTrigger.DUE in worker.machine.state.rows and worker.due_at <= monotonic():
                self._fire_worker(worker, WorkerTrigger.DUE)

    def _end_if_drained(self) -> None:
        if not any(worker.machine.state.rows for worker in self._workers):
            self._fire(ServerTrigger.IDLE)
            self._fire(ServerTrigger.CLOSE)
        elif monotonic() >= self._deadline:
            self._fire(ServerTrigger.EXPIRE)
            self._fire(ServerTrigger.CLOSE)

    def _read_signals(self) -> None:
        for number in self._signals[0].recv(64):
            if number in STOP_SIGNALS:
                self._signal = number
                self._fire(ServerTrigger.STOP)
            elif number == signal.SIGHUP and self._keys.reload():
                for worker in self._workers:
                    _send(worker, RELOAD)

    def _fire(self, trigger: ServerTrigger) -> None:
        for effect in self._machine.fire(trigger):
            match effect:
                case ServerEffect.ANNOUNCE:
                    self._on_ready()
                case ServerEffect.DRAIN:
                    self._deadline = monotonic() + self._drain + SHUTDOWN_SECONDS
                    for worker in self._workers:
                        self._fire_worker(worker, WorkerTrigger.STOP)
                case ServerEffect.END:
                    self._kill()
                case ServerEffect.GIVE_UP:
                    self._kill()
                    raise SystemExit(STARTUP_FAILURE)
                case ServerEffect.KILL:
                    self._kill()
                    die_of(self._signal)
                case _:
                    assert_never(effect)

    def _kill(self) -> None:
        metrics.unshare()
        for worker in self._workers:
            if worker.channel is not None:  # the process was not waited for, so the number is still its own
                os.kill(worker.pid, signal.SIGKILL)

    def _fire_worker(self, worker: Worker, trigger: WorkerTrigger) -> None:
        for effect in worker.machine.fire(trigger):
            match effect:
                case WorkerEffect.START:
                    self._start(worker)
                case WorkerEffect.RECLAIM:
                    worker.slots.clear()
                case WorkerEffect.BACK_OFF:
                    _back_off(worker)
                case WorkerEffect.TERMINATE:
                    _send(worker, STOP)
                case _:
                    assert_never(effect)

    def _start(self, worker: Worker) -> None:
        server_end, worker_end = socket.socketpair()
        worker.started_at = monotonic()
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the process must not write its signals to the supervisor's socket
        try:
            worker.pid = os.fork()
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            self._end_process(worker, f"no process could start: {error.strerror}")
            return
        worker.channel = server_end
        if worker.pid == 0:
            self._serve(worker, worker_end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        worker_end.close()
        self._selector.register(server_end, EVENT_READ, lambda: self._read_channel(worker))

    def _serve(self, worker: Worker, channel: socket.socket) -> None:
        """Serve in a new process, and exit."""
        signal.set_wakeup_fd(-1)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        self._selector.close()
        for end in (*self._signals, *(each.channel for each in self._workers)):
            if end is not None:
                end.close()
        server = WorkerServer(self._application(worker.slots), channel)
        host, port = self._reserved.getsockname()[:2]
        self._reserved.close()
        server.run([listen(host, port, reuse_port=True)])
        sys.exit()

    def _read_channel(self, worker: Worker) -> None:
        channel = worker.channel
        assert channel is not None  # noqa: S101 - it is registered only while there is one
        if _receive(channel):
            self._fire_worker(worker, WorkerTrigger.READY)
            if self._machine.state is _STARTING and all(each.machine.state is _READY for each in self._workers):
                self._fire(ServerTrigger.READY)
            return
        self._selector.unregister(channel)
        channel.close()
        worker.channel = None
        metrics.forget(worker.pid)
        code = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        how = f"was ended by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"has exited with status {code}"
        self._end_process(worker, f"process {worker.pid} {how}")

    def _end_process(self, worker: Worker, reason: str) -> None:
        is_failed_start = self._machine.state is _STARTING and WorkerTrigger.READY in worker.machine.state.rows
        self._fire_worker(worker, WorkerTrigger.EXIT)
        if is_failed_start:
            logger.error("%s; the server cannot start", reason)
            self._fire(ServerTrigger.FAIL)
        elif WorkerTrigger.DUE in worker.machine.state.rows:
            logger.warning("%s; another starts in %.1f s", reason, max(worker.due_at - monotonic(), 0.0))


_STARTING: Final = SERVER.states["starting"]
_READY: Final = WORKER.states["ready"]


def _send(worker: Worker, message: bytes) -> None:
    """Send a message to the process of a worker, if one runs."""
    if worker.channel is not None:
        with suppress(OSError):  # the process has just exited
            worker.channel.send(message)


def _receive(channel: socket.socket) -> bytes:
    """Receive from a channel; its end may be an error if the other side is gone without having read everything."""
    try:
        return channel.recv(1)
    except ConnectionError:
        return b""


def _wake(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the signal's number is written to a socket."""


def _back_off(worker: Worker) -> None:
    """Set the time of the next start."""
    now = monotonic()
    if now - worker.started_at >= STABLE_SECONDS:
        worker.early_exits, worker.due_at = 0, now
    else:
        worker.due_at = now + min(FIRST_DELAY * 2**worker.early_exits, LONGEST_DELAY)
        worker.early_exits += 1
