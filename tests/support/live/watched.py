"""A real server in its own process, and a watchdog that requests its health during other requests."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.client import HTTPConnection
from math import inf
from pathlib import Path
from typing import Final, Self

PATIENCE: Final = 300
"""Seconds after which a request counts as never answered."""

LOGGED: Final = 5_000
"""Characters of a server's log that are shown at most."""


def memory_of(pid: int) -> int:
    """Return the bytes of memory of a process; 0 if the system does not report them."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS")), 0)


def descriptors_of(pid: int) -> int:
    """Return the number of open files and sockets of a process; 0 if the system does not report it."""
    descriptors = Path(f"/proc/{pid}/fd")
    return len([*descriptors.iterdir()]) if descriptors.exists() else 0


def computed_by(pid: int) -> float:
    """Return the CPU seconds of a process's main thread, which runs the event loop; infinity if they are unknown."""
    scheduled = Path(f"/proc/{pid}/schedstat")
    return int(scheduled.read_text().split()[0]) / 1e9 if scheduled.exists() else inf


@contextmanager
def serving(*options: str) -> Generator[tuple[str, int]]:
    """Run a server with options; yield its URL and the number of its process. An exception shows its log."""
    command = [sys.executable, "-m", "interlock", "serve", "--port", "0", *options]
    with (
        tempfile.NamedTemporaryFile("a") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,  # noqa: S603 - our own
    ):
        try:
            yield _url_in(Path(log.name), process), process.pid
        except BaseException:
            sys.stderr.write(Path(log.name).read_text()[-LOGGED:])
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _url_in(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Wait until a server writes its URL."""
    while process.poll() is None:
        match = re.search(r"http://[\w.]+:\d+", log.read_text())
        if match:
            return match[0]
        time.sleep(0.1)
    raise RuntimeError("the server ended before it served")


class Watch:
    """Requests `/health` repeatedly, and reads the memory of the server's process.

    `longest` is the longest wait, in seconds; `busy` is the longest part of a wait in which the server computed something else.
    """

    def __init__(self, url: str, pid: int) -> None:
        self._host, self._pid = url.removeprefix("http://"), pid
        self._ready, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.longest = self.busy = 0.0
        self.memory = self.before = memory_of(self._pid)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        connection = HTTPConnection(self._host, timeout=PATIENCE)
        try:
            self._wait_for_health(connection)
            self._ready.set()
            while not self._over.is_set():
                waited, computed = self._wait_for_health(connection)
                self.longest = max(self.longest, waited)
                self.busy = max(self.busy, min(waited, computed))
                self.memory = max(self.memory, memory_of(self._pid))
                time.sleep(0.002)
        finally:
            self._ready.set()
            connection.close()

    def _wait_for_health(self, connection: HTTPConnection) -> tuple[float, float]:
        """Return how long the answer took, and how long the server computed meanwhile: the rest is the machine's doing."""
        began, computed = time.perf_counter(), computed_by(self._pid)
        try:
            connection.request("GET", "/health")
            connection.getresponse().read()
        except ConnectionError:  # an idle connection is closed after some seconds; a new one is opened by itself
            connection.close()
            connection.request("GET", "/health")
            connection.getresponse().read()
        waited, since = time.perf_counter() - began, computed_by(self._pid)
        return waited, waited if since == inf else since - computed
