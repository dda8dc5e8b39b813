"""Runs the application on uvicorn: in the foreground until a signal, or in a thread.

At shutdown, the server ends each open response with a terminal event, stops listening, waits a few seconds for clients to read
the events, and closes all connections.
"""

from __future__ import annotations

import gc
import logging
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final

import uvicorn
from starlette.applications import Starlette

from interlock.serving.http.bounded_protocol import BoundedProtocol
from interlock.serving.http.request_body import MAX_BODY_BYTES
from interlock.serving.responses.run import GRACE, ActiveRuns

KEEP_ALIVE: Final = 75
"""Seconds after which the server closes an idle connection. A client that does not close it earlier loses a request that it sends
at that moment. httpx, which the SDK uses, closes idle connections after five seconds, which is also uvicorn's default."""

UNSENT: Final = 64 * 2**10
"""How many unsent bytes the system buffers for a connection; by default, it buffers megabytes for a client that does not read.
uvicorn buffers as many itself, then makes the writer wait, so that the engine generates no more."""

STARTUP_FAILURE: Final = 3  # uvicorn's exit status


class Server(uvicorn.Server):
    """uvicorn's server, extended to end the open responses of its application at shutdown, before it waits for them."""

    def __init__(self, app: Starlette, on_ready: Callable[[], None], log_level: str) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,  # the process sets up logging
            log_level=log_level,
            access_log=log_level in {"debug", "info"},
            timeout_graceful_shutdown=GRACE,
            timeout_keep_alive=KEEP_ALIVE,
            ws=BoundedProtocol,
            ws_max_size=MAX_BODY_BYTES,
        )
        super().__init__(config)
        self._active_runs: ActiveRuns = app.state.active_runs
        self._open_sockets: ActiveRuns = app.state.open_sockets
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.started:
            raise SystemExit(STARTUP_FAILURE)  # uvicorn 0.46 only returns
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin the shutdown; a second signal ends the process at once."""
        if self.should_exit:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the open responses and WebSockets, then shut the server down."""
        self._active_runs.end()
        self._open_sockets.end()
        await self._open_sockets.wait(GRACE)  # otherwise uvicorn closes them before their last events
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Bind a port of this machine, or any free one for port 0; connections wait until a server accepts them.

    Raises:
        OSError: The port is taken, or the host is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=2048)
    # Connections inherit the option. Without it, the system may hold an event until the client acknowledges the last one.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(AttributeError):  # not every system has this option
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the HTTP URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: Starlette, listener: socket.socket, *, on_ready: Callable[[], None], log_level: str = "warning") -> None:
    """Serve an application on a socket from `listen` until a signal ends it; call `on_ready` once connections are accepted."""

    def ready() -> None:
        gc.freeze()  # the collector blocks the event loop, and these objects last anyway
        on_ready()

    logging.basicConfig(level=log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    server = Server(app, ready, log_level)
    with suppress(KeyboardInterrupt):  # uvicorn raises it again after the shutdown
        server.run([listener])


class ServerThread:
    """Serves an application in a thread: a context manager that returns the URL, and shuts the server down at its end."""

    def __init__(self, app: Starlette) -> None:
        self._listener = listen("127.0.0.1", 0)
        self._ready = threading.Event()
        self._server = Server(app, self._ready.set, "warning")
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
        self._server.should_exit = True
        self._thread.join()

    def _run(self) -> None:
        try:
            with suppress(SystemExit):  # the application cannot start
                self._server.run([self._listener])
        finally:
            self._ready.set()
