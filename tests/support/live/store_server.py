"""A server of a store, as a process of the tests: on a free port, with its data in a temporary folder."""

import os
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path


class StoreServer:
    """A server that a test can stop, kill and start again with the same data.

    Args:
        name: The name of the program, for the folder.
        environment: Variables that its processes have besides those of the tests.
    """

    def __init__(self, name, environment=None):
        self.folder = Path(tempfile.mkdtemp(prefix=f"interlock-{name}-", dir="/tmp"))
        self.environment = {**os.environ, **(environment or {})}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = None

    def signal(self, number):
        """Send a signal to all processes of the server."""
        pid = self.process.pid
        with suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            for each in [pid, *map(int, children)]:
                with suppress(ProcessLookupError):
                    os.kill(each, number)

    def kill(self):
        self.signal(9)
        self.process.wait()

    def close(self):
        """Kill the server, and remove its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
