"""A real server in a process of its own, and a watchdog that asks for its health while something else is asked of it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import httpx

PATIENCE: Final = 300
"""Seconds after which a request counts as never answered."""


def memory_of(pid: int) -> int:
    """Return the bytes of memory that a process has; 0 where the system does not say."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS")), 0)


@contextmanager
def serving() -> Generator[tuple[str, int]]:
    """Run a server; yield its URL and the number of its process."""
    command = [sys.executable, "-m", "interlock", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:  # noqa: S603 - our own
        assert process.stdout is not None
        line = ""
        while "http://" not in line:
            line = process.stdout.readline()
        url = next(word for word in line.split() if word.startswith("http://")).rstrip(".")
        try:
            yield url.removesuffix("/v1"), process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


class Watch:
    """Asks for `/health` again and again, and for the memory of the server's process."""

    def __init__(self, url: str, pid: int) -> None:
        self._url, self._pid = f"{url}/health", pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.longest = 0.0
        self.memory = self.before = memory_of(self._pid)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        with httpx.Client(timeout=PATIENCE) as client:
            client.get(self._url)
            while not self._over.is_set():
                began = time.perf_counter()
                client.get(self._url)
                self.longest = max(self.longest, time.perf_counter() - began)
                self.memory = max(self.memory, memory_of(self._pid))
                time.sleep(0.002)
