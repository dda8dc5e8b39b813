"""A Redis or Valkey server for tests."""

import shutil
import socket
import subprocess
import time
from contextlib import suppress

import pytest
from live.store_server import StoreServer

COMMAND = shutil.which("redis-server") or shutil.which("valkey-server")

needs_redis = pytest.mark.skipif(COMMAND is None, reason="there is no redis-server (Debian's package of that name contains it)")


class RedisServer(StoreServer):
    """A server of Redis; see `StoreServer`.

    Args:
        settings: More arguments of its command.
        environment: Variables that it has besides those of the tests.
    """

    def __init__(self, *settings, environment=None):
        super().__init__("redis", environment)
        self.settings = settings
        self.start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self):
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder, "--save", "", *self.settings]
        self.process = subprocess.Popen(  # noqa: S603 - the installed server
            [COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment
        )
        for _ in range(500):
            with suppress(OSError):
                if self.ask("PING").startswith(b"+PONG"):
                    return
            time.sleep(0.02)
        raise AssertionError("the server did not start")

    def ask(self, command):
        """Send a command, and return the beginning of its reply."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(f"{command}\r\n".encode())
            return connection.recv(100)

    def clear(self):
        """Remove all keys."""
        assert self.ask("FLUSHALL") == b"+OK\r\n"

    def disconnect_all(self):
        """Close the connections of all clients."""
        self.ask("CLIENT KILL SKIPME yes")
