"""Running the application: in the foreground until a signal, or in a thread for tests and for those who embed it.

It knows uvicorn, sockets and signals. At a shutdown it takes no more connections, ends the open responses legally, gives
them a grace period to reach their clients, and then closes what is left.
"""

from __future__ import annotations

import gc
import logging
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Final

import uvicorn
from starlette.applications import Starlette

from interlock.serving.http.bounded_protocol import BoundedProtocol
from interlock.serving.http.intake import MAX_BODY_BYTES
from interlock.serving.responses.active_runs import GRACE, ActiveRuns

__all__ = ["ServerThread", "listen", "serve", "url_of"]

IDLE: Final = 75
"""Seconds after which a connection without a request is closed. Clients have to be the first, because a request that is sent at
that moment is lost; httpx and with it the SDK close theirs after five seconds, and so would uvicorn."""

UNSENT: Final = 64 * 2**10
"""Bytes that the system takes of a connection before they can be sent: without a bound it takes megabytes for each client that
does not read. Beyond them uvicorn keeps as many, and then has whoever writes wait: an engine that is asked for steps is asked no
more."""


class Server(uvicorn.Server):
    """A server of one application, that ends its open responses before it waits for them.

    Args:
        app: What `interlock.serving.http.app.create_app` made.
        on_ready: Called in the server's thread once connections are taken.
        log_level: uvicorn's, such as `warning`.
    """

    def __init__(self, app: Starlette, on_ready: Callable[[], None], log_level: str) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,  # logging is set up once for the process, by whoever runs it
            log_level=log_level,
            access_log=log_level in {"debug", "info"},
            timeout_graceful_shutdown=GRACE,
            timeout_keep_alive=IDLE,
            ws=BoundedProtocol,
            ws_max_size=MAX_BODY_BYTES,
        )
        super().__init__(config)
        self._active_runs: ActiveRuns = app.state.active_runs
        self._open_sockets: ActiveRuns = app.state.open_sockets
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin the shutdown; a second signal ends the process at once, without a word."""
        if self.should_exit:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the open responses and connections, then the server."""
        self._active_runs.end()
        self._open_sockets.end()
        await self._open_sockets.wait(GRACE)  # uvicorn would cut them before their last events are sent
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Bind a port; connections wait until a server accepts them.

    Args:
        host: A name or an address of this machine.
        port: The port, or 0 for any that is free.

    Raises:
        OSError: The port is taken, or the host is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=2048)
    with suppress(AttributeError):  # a system without it
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
    return listening


def url_of(listening: socket.socket) -> str:
    """Return the URL at which a socket can be reached."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: Starlette, listening: socket.socket, *, on_ready: Callable[[], None], log_level: str = "warning") -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        app: What `interlock.serving.http.app.create_app` made.
        listening: From `listen`.
        on_ready: Called once connections are taken.
        log_level: uvicorn's, such as `warning`.
    """

    def ready() -> None:
        gc.collect()
        gc.freeze()  # what is there now stays: the collector need not look at it again and again, in which nothing else runs
        on_ready()

    logging.basicConfig(level=log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    server = Server(app, ready, log_level)
    with suppress(KeyboardInterrupt):  # which uvicorn raises anew once it has shut down
        server.run([listening])


class ServerThread:
    """Serves in a thread, as a context manager that gives the URL and shuts the server down at the end.

    Args:
        app: What `interlock.serving.http.app.create_app` made.
    """

    def __init__(self, app: Starlette) -> None:
        self._listening = listen("127.0.0.1", 0)
        self._ready = threading.Event()
        self._server = Server(app, self._ready.set, "warning")
        self._thread = threading.Thread(target=self._server.run, args=([self._listening],), name="interlock-server")

    def __enter__(self) -> str:
        """Start, and give the server's URL."""
        self._thread.start()
        self._ready.wait()
        return url_of(self._listening)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Shut the server down, and wait until it has."""
        self.stop()

    def stop(self) -> None:
        """Shut the server down, and wait until it has; a second call does nothing."""
        self._server.should_exit = True
        self._thread.join()
