"""A Postgres server of our own: on a free port, in a folder that goes with it."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest


def _binaries():
    """Return the folder of the server's programs: that of the newest release, where Debian keeps several."""
    command = shutil.which("postgres")
    if command is not None:
        return Path(command).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    return folders[-1] if folders else None


BINARIES = _binaries() if find_spec("psycopg") else None

needs_postgres = pytest.mark.skipif(BINARIES is None, reason="there is no psycopg, or no postgres (Debian: postgresql)")

UNPRIVILEGED = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
"""A server refuses to run as root; the package has made this user."""


class PostgresServer:
    """A server that can be stopped, killed and started again with what it has kept.

    Args:
        settings: More of its configuration.
        primary: The server of which this one is a replica.
        environment: What the environment of its processes has beside ours.
        prefix: What its command begins with; it runs as root then.
    """

    def __init__(self, *settings, primary=None, environment=None, prefix=()):
        self.prefix = prefix
        self.folder = Path(tempfile.mkdtemp(prefix="interlock-postgres-", dir="/tmp"))
        if UNPRIVILEGED:
            shutil.chown(self.folder, "postgres", "postgres")
        self.data = self.folder / "data"
        self.settings = settings
        self.environment = {**os.environ, **(environment or {})}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = None
        if primary is None:
            self.run("initdb", "-D", self.data, "-U", "interlock", "-A", "trust", "-N", "--locale=C", "-E", "UTF8")
            self.start()
        else:
            self.replicate(primary)

    @property
    def url(self):
        return f"postgresql://interlock@127.0.0.1:{self.port}/postgres"

    def run(self, command, *arguments):
        subprocess.run([BINARIES / command, *arguments], check=True, capture_output=True, cwd="/", **UNPRIVILEGED)  # noqa: S603 - the server that is installed

    def start(self):
        settings = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        pairs = [*(f"{name}={value}" for name, value in settings.items()), *self.settings]
        user = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups") if self.prefix else ()
        arguments = [
            *self.prefix,
            *user,
            BINARIES / "postgres",
            "-D",
            self.data,
            *(word for pair in pairs for word in ("-c", pair)),
        ]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - likewise
                arguments, stdout=log, stderr=log, cwd="/", env=self.environment, **({} if self.prefix else UNPRIVILEGED)
            )
        for _ in range(500):
            if self.process.poll() is not None:  # processes of the one that was killed are still there
                return self.start()
            if self.query("SELECT 1") == [(1,)]:
                return None
            time.sleep(0.02)
        raise AssertionError((self.folder / "log").read_text())

    def query(self, statement):
        """Execute a statement, and return its rows; None if the server cannot be reached, or there are none."""
        import psycopg  # noqa: PLC0415 - not on every machine

        with suppress(psycopg.OperationalError), psycopg.connect(self.url, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else None
        return None

    def clear(self):
        """Remove what the stores have written."""
        self.query("DROP SCHEMA IF EXISTS interlock CASCADE")

    def disconnect_all(self):
        """Close the connections of all stores."""
        self.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'interlock'")

    def signal(self, number):
        """Send a signal to all processes of the server."""
        pid = self.process.pid
        with suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            for each in [pid, *map(int, children)]:
                with suppress(ProcessLookupError):
                    os.kill(each, number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    def replicate(self, primary):
        """Become a replica of a server, and forget all else."""
        shutil.rmtree(self.data, ignore_errors=True)
        source = f"host=127.0.0.1 port={primary.port} user=interlock application_name=standby"
        self.run("pg_basebackup", "-D", self.data, "-R", "-X", "stream", "-c", "fast", "-d", source)
        self.start()

    def promote(self):
        """Make a standby the primary."""
        self.query("SELECT pg_promote()")

    def close(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
