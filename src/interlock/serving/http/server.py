"""Runs the application on uvicorn: in the foreground until a signal, in a thread, or in several processes behind one port.

The table `SERVER` defines the states. When the server has to stop, it refuses new requests and waits for the responses in
progress, but not longer than the time to drain. Then it ends each of them with a terminal event, stops listening, waits a few
seconds for clients to read the events, and closes all connections.

Of several processes, each listens on a socket of its own, and the kernel spreads connections between these; on one socket for
all, a process that is awake accepts most of a burst. uvicorn's supervisor starts the processes, and replaces one that exits or
hangs. `Supervisor` adds what it lacks: the processes drain, a second signal ends them at once, SIGHUP reads the file of API keys
again, and a lost supervisor ends its processes. It binds the port too, so that no other server takes it meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from functools import partial
from http import HTTPStatus
from math import inf
from multiprocessing import parent_process
from time import monotonic, sleep
from types import FrameType
from typing import Final, assert_never

import uvicorn
from httptools import HttpParserError
from starlette.types import ASGIApp
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.supervisors import multiprocess

from interlock.events.json import dumps
from interlock.events.shapes import counted
from interlock.fsm.table import Machine
from interlock.serving import metrics
from interlock.serving.engines.shortcut import ClientSocket
from interlock.serving.http.answers import BODY, log_refusal
from interlock.serving.http.app import METRICS_PATH, OPEN_PATHS, Application
from interlock.serving.http.tables import SERVER, ServerEffect, ServerTrigger
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.api_keys import Keys
from interlock.serving.requests.logs import FIELDS
from interlock.serving.responses.active_runs import ActiveRuns
from interlock.serving.settings import Settings

logger = logging.getLogger(__name__)

UNSENT: Final = 64 * 2**10
"""How many unsent bytes the system buffers for a connection; by default, it buffers megabytes for a client that does not read.
uvicorn buffers as many itself, then makes the writer wait, so that the engine generates no more."""

STARTUP_FAILURE: Final = 3  # uvicorn's exit status
STOP_SIGNALS: Final = {signal.SIGINT, signal.SIGTERM}
SIGNALS: Final = {*STOP_SIGNALS, signal.SIGHUP}

HANGS: Final = 10.0
"""Seconds without an answer after which a process that serves is killed and replaced."""

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 200
PARSED_BYTES: Final = 16 * 1024  # bytes to parse in one step: the parser copies an unfinished header at each
LARGE_HEAD: Final = f"The request line and headers may have {MAX_HEAD_BYTES:,} bytes and {MAX_HEADERS} headers."
TWO_HOSTS: Final = "The request has two Host headers."
PROBES: Final = OPEN_PATHS | {METRICS_PATH}
_TOO_LARGE: Final = ApiError(431, LARGE_HEAD, code="headers_too_large")


class Server(uvicorn.Server):
    """uvicorn's server, extended to drain, and to end the open responses of its application before it waits for them.

    The application has the settings and the responses; one that is not an `Application` has the defaults and none.
    """

    def __init__(self, app: ASGIApp, on_ready: Callable[[], None]) -> None:
        api = app.api if isinstance(app, Application) else None
        settings = Settings() if api is None else api.settings
        level = settings.log_level
        config = uvicorn.Config(
            app,
            interface="asgi3",
            log_config=None,  # the process sets up logging
            log_level="info" if level == "debug" else level,  # the debug messages of a WebSocket have its frames
            access_log=level in {"debug", "info"},
            timeout_graceful_shutdown=settings.times.grace,
            timeout_keep_alive=settings.times.idle,
            http=_protocol(app),
            ws=_open_socket,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - uvicorn only calls it
            ws_max_size=settings.max_body_bytes,
        )
        super().__init__(config)
        self._active_runs = ActiveRuns() if api is None else api.service.active_runs
        self._open_sockets = ActiveRuns() if api is None else api.open_sockets
        self._on_ready = on_ready
        self._drain = settings.drain
        self._times = settings.times
        self._deadline = inf
        self._signal: int | None = None
        self._machine = Machine.at_start(SERVER)
        self._woken = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        with suppress(SystemExit):  # uvicorn 0.46 only returns
            await super().startup(sockets)
        self._fire(ServerTrigger.READY if self.started else ServerTrigger.FAIL)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; a second signal ends the process at once."""
        del frame
        self._signal = sig
        if ServerTrigger.STOP in self._machine.state.rows:
            self._fire(ServerTrigger.STOP)

    def stop(self, *, drain: bool = True) -> None:
        """Begin to stop, if the server has not; without `drain`, end the responses in progress soon. Thread-safe."""
        if not drain:
            self._drain, self._deadline = 0.0, 0.0
        if ServerEffect.DRAIN in self._machine.state.rows.get(ServerTrigger.STOP, (None, ()))[1]:
            self._fire(ServerTrigger.STOP)
        self._call_soon(self._woken.set)

    def _call_soon(self, call: Callable[..., object], *args: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            # A signal handler runs in the context of any task, and no request is what its log lines are about.
            self._loop.call_soon_threadsafe(call, *args, context=Context())

    async def main_loop(self) -> None:
        """Look every `tick` seconds, and after `stop`, whether to stop."""
        counter = 0
        while not await self.on_tick(counter):
            counter += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), self._times.tick)
            self._woken.clear()

    async def on_tick(self, counter: int) -> bool:
        if ServerTrigger.IDLE in self._machine.state.rows:
            if self._is_idle:
                self._fire(ServerTrigger.IDLE)
            elif monotonic() >= self._deadline:
                self._fire(ServerTrigger.EXPIRE)
        return await super().on_tick(counter)

    @property
    def _is_idle(self) -> bool:
        """Whether no response is in progress and no request is being answered; WebSockets wait for requests."""
        return not len(self._active_runs) and len(self.server_state.tasks) <= len(self._open_sockets)

    def _fire(self, trigger: ServerTrigger) -> None:
        for effect in self._machine.fire(trigger):
            match effect:
                case ServerEffect.ANNOUNCE:
                    self._on_ready()
                case ServerEffect.DRAIN:
                    self._active_runs.refuse()
                    self._deadline = monotonic() + self._drain
                    count = counted(len(self._active_runs), "response")
                    # Not at once, because a signal may have interrupted the log.
                    self._call_soon(logger.info, "draining for at most %g seconds: %s in progress", self._drain, count)
                case ServerEffect.END if self._signal is not None:
                    super().handle_exit(self._signal, None)
                case ServerEffect.END:
                    self.should_exit = True
                case ServerEffect.GIVE_UP:
                    raise SystemExit(STARTUP_FAILURE)
                case ServerEffect.KILL:
                    die_of(self._signal or signal.SIGTERM)
                case _:
                    assert_never(effect)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the open responses and WebSockets, then shut the server down."""
        if count := len(self._active_runs):
            logger.warning("the server shuts down, and ends %s in progress", counted(count, "response"))
        self._active_runs.end()
        self._open_sockets.end()
        await self._open_sockets.wait(self._times.grace)  # otherwise uvicorn closes them before their last events
        await super().shutdown(sockets)
        self._fire(ServerTrigger.CLOSE)


def _filter_access_lines() -> None:
    """Filter the access lines, in a process of this server alone: those of a host program stay as they are."""
    logging.getLogger("uvicorn.access").addFilter(_access_line)


def _access_line(record: logging.LogRecord) -> bool:
    """Give an access line its fields, and log a probe that succeeds at `debug`, because every few seconds one does."""
    match record.args:
        case (client, method, str(path), _, int(status)):
            setattr(record, FIELDS, {"client": client, "method": method, "path": path, "http_status": status})
            if path.partition("?")[0] in PROBES and status < HTTPStatus.BAD_REQUEST:
                record.levelno, record.levelname = logging.DEBUG, "DEBUG"
                return logger.isEnabledFor(logging.DEBUG)
        case _:  # of another release of uvicorn
            pass
    return True


def _protocol(app: ASGIApp) -> type[asyncio.Protocol]:
    """Return the protocol of HTTP connections, which can be passed by if no middleware changes bodies."""
    return DirectProtocol if isinstance(app, Application) and app.passes_bodies else HttpProtocol


def _open_socket(**options: object) -> asyncio.Protocol:
    from interlock.serving.http.bounded_protocol import BoundedProtocol  # noqa: PLC0415 - few clients use WebSockets

    return BoundedProtocol(**options)


class PlainCycle(RequestResponseCycle):
    """Answers a client of HTTP/1.0, which knows no chunks: the end of the connection is that of the body."""

    async def send(self, message: ASGISendEvent) -> None:
        self.chunked_encoding = False
        if message["type"] == "http.response.body":
            self.expected_content_length = len(message.get("body", b""))  # all that may come is what comes now
        await super().send(message)


class HttpProtocol(HttpToolsProtocol):
    """Refuses requests with large heads or two hosts, and serves clients of HTTP/1.0 too."""

    _head_bytes = 0
    """The bytes since the request began or a part of its body came, in steps of at most `PARSED_BYTES`."""
    _refusal: ApiError | None = None
    """Why the request is refused, if it is."""

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), PARSED_BYTES):
            part = data[start : start + PARSED_BYTES]
            self._head_bytes += len(part)
            super().data_received(part)
            if self.transport.is_closing() or self not in self.connections:  # refused, or a WebSocket from now on
                return
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refusal = _TOO_LARGE
                self.send_400_response(LARGE_HEAD)
                return

    def send_400_response(self, msg: str) -> None:
        """Refuse the request with the status of the refusal, and close the connection."""
        if self._refusal is None:
            super().send_400_response(msg)
            return
        log_refusal(self._refusal)
        status, body = HTTPStatus(self._refusal.status), dumps(self._refusal.body())
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        super().on_message_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            self._refuse(_TOO_LARGE)

    def _refuse(self, error: ApiError) -> None:
        """End the parsing of the request, so that uvicorn calls `send_400_response`."""
        self._refusal = error
        raise HttpParserError(error.message)

    def on_headers_complete(self) -> None:
        if sum(name == b"host" for name, _ in self.headers) > 1:
            self._refuse(ApiError(400, TWO_HOSTS, code="invalid_header"))
        super().on_headers_complete()
        if self.cycle and self.scope["http_version"] == "1.0":  # there is none for the handshake of a WebSocket
            self.cycle.__class__ = PlainCycle  # its task has not begun


class DirectProtocol(HttpProtocol):
    """Adds the extension to the scope of each request."""

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.cycle:
            self.scope["extensions"] = {BODY: {"socket": partial(ClientSocket, self.cycle)}}


def die_of(number: int) -> None:
    """End the process as a signal does by default."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def listen(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Bind a port of this machine, or any free one for port 0; connections wait until a server accepts them.

    With `reuse_port`, other sockets of this user can listen on the port too, if they have the option.

    Raises:
        OSError: The port is taken, or the host is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=2048, reuse_port=reuse_port)
    # Connections inherit the option. Without it, the system may hold an event until the client acknowledges the last one.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(AttributeError):  # not every system has this option
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
    return listener


def reserve(host: str, port: int) -> socket.socket:
    """Bind a port for workers, or any free one for port 0, without listening on it.

    Raises:
        OSError: The port is taken, or the host is not an address of this machine.
    """
    with listen(host, port) as exclusive:  # workers of another server would share the port
        family, address = exclusive.family, exclusive.getsockname()
    reserved = socket.socket(family)
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        reserved.setsockopt(socket.SOL_SOCKET, option, 1)
    if family == socket.AF_INET6:
        reserved.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    reserved.bind(address)
    return reserved


def url_of(listener: socket.socket) -> str:
    """Return the HTTP URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: ASGIApp, listener: socket.socket, *, on_ready: Callable[[], None]) -> None:
    """Serve an application on a socket from `listen` until a signal ends it.

    `on_ready` is called in the event loop once connections are accepted.
    """

    def ready() -> None:
        gc.freeze()  # the collector blocks the event loop, and these objects last anyway
        on_ready()

    _filter_access_lines()
    server = Server(app, ready)
    with suppress(KeyboardInterrupt):  # uvicorn raises it again after the shutdown
        server.run([listener])


class ServerThread:
    """Serves any ASGI application in a thread: a context manager with its URL, which shuts the server down at the end."""

    def __init__(self, app: ASGIApp) -> None:
        self._listener = listen("127.0.0.1", 0)
        self._ready = threading.Event()
        self._server = Server(app, self._ready.set)
        self._thread = threading.Thread(target=self._run, name="interlock-server")

    def __enter__(self) -> str:
        self._thread.start()
        self._ready.wait()
        if not self._server.started:
            self._thread.join()
            self._listener.close()
            raise RuntimeError("the server did not start; its log has the reason")
        return url_of(self._listener)

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Shut the server down, and wait for it; a second call does nothing."""
        self._server.stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            with suppress(SystemExit):  # the application cannot start
                self._server.run([self._listener])
        finally:
            self._ready.set()


class WorkerServer(Server):
    """The server of one of several processes, which the supervisor stops."""

    def __init__(self, app: Application) -> None:
        super().__init__(app, self._begin)
        _filter_access_lines()
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
        logger.warning("the supervisor is gone, so this process ends its responses and exits")
        self.stop(drain=False)


class Worker(multiprocess.Process):
    """A process, as the supervisor sees it; in the process, `create` makes the application, which listens on `address`."""

    def __init__(self, config: uvicorn.Config, create: Callable[[], Application], address: tuple[str, int]) -> None:
        self._create = create
        self._address = address
        super().__init__(config, [])

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        del sockets
        gc.disable()
        self._server = server = WorkerServer(self._create())
        threading.Thread(target=self.always_pong, daemon=True).start()
        server.run([listen(*self._address, reuse_port=True)])


class Supervisor(multiprocess.Multiprocess):
    """Starts the processes of a server, passes signals on to them, and waits until they have drained.

    `create` is pickled, and makes the application in each process; `reserve` has made the socket `reserved`. `on_ready` is called
    when all processes accept connections.
    """

    def __init__(
        self,
        settings: Settings,
        create: Callable[[], Application],
        reserved: socket.socket,
        on_ready: Callable[[], None],
        keys: Keys,
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
        deadline = monotonic() + self._settings.drain + 4 * self._settings.times.grace
        while not self._stops[1:] and monotonic() < deadline and any(each.exitcode is None for each in self.processes):
            sleep(self._settings.times.tick)
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
            sleep(self._settings.times.tick)
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
