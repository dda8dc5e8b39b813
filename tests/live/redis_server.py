"""A Redis server of our own: on a free port, in a folder that goes with it."""

import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress

import pytest

COMMAND = shutil.which("redis-server") or shutil.which("valkey-server")

needs_redis = pytest.mark.skipif(COMMAND is None, reason="there is no redis-server (Debian's package of that name brings it)")


class RedisServer:
    """A server that can be stopped, killed and started again with what it has kept."""

    def __init__(self, *settings, environment=None):
        self.folder = tempfile.mkdtemp(prefix="interlock-redis-")
        self.settings = settings
        self.environment = environment
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = None
        self.start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self):
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder, "--save", "", *self.settings]
        self.process = subprocess.Popen(  # noqa: S603 - the server that is installed
            [COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment
        )
        for _ in range(500):
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(100).startswith(b"+PONG"):
                    return
            time.sleep(0.02)
        raise AssertionError("the server did not start")

    def clear(self):
        """Remove everything."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"FLUSHALL\r\n")
            assert connection.recv(100) == b"+OK\r\n"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
