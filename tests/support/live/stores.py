"""Stores in tests: a Postgres server as a process, responses to store, and a runner of scenarios."""

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from live.ports import free_port

from interlock.serving.store.values import StoredResponse


class StoreServer:
    """A server that a test can stop, kill and start again with the same data.

    Args:
        name: The name of the program, for the folder.
        environment: Variables that its processes have besides those of the tests.
    """

    def __init__(self, name, environment=None):
        self.folder = Path(tempfile.mkdtemp(prefix=f"interlock-{name}-", dir="/tmp"))
        self.environment = {**os.environ, **(environment or {})}
        self.port = free_port()
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


def _binaries():
    """Return the folder of the server's programs. Debian has a folder for each release; this is the newest."""
    command = shutil.which("postgres")
    if command is not None:
        return Path(command).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    return folders[-1] if folders else None


BINARIES = _binaries() if find_spec("psycopg") else None

needs_postgres = pytest.mark.skipif(BINARIES is None, reason="there is no psycopg, or no postgres (Debian: postgresql)")

UNPRIVILEGED = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
"""The server refuses to run as root; Debian's package creates this user."""


class PostgresServer(StoreServer):
    """A server of Postgres; see `StoreServer`.

    Args:
        settings: More settings, as `name=value`.
        primary: The server of which this one is a replica.
        environment: Variables that its processes have besides those of the tests.
        prefix: The beginning of its command, which root runs.
    """

    def __init__(self, *settings, primary=None, environment=None, prefix=()):
        super().__init__("postgres", environment)
        if UNPRIVILEGED:
            shutil.chown(self.folder, "postgres", "postgres")
        self.prefix = prefix
        self.data = self.folder / "data"
        self.settings = settings
        if primary is None:
            self.run("initdb", "-D", self.data, "-U", "interlock", "-A", "trust", "-N", "--locale=C", "-E", "UTF8")
            self.start()
        else:
            self.replicate(primary)

    @property
    def url(self):
        return f"postgresql://interlock@127.0.0.1:{self.port}/postgres"

    def run(self, command, *arguments):
        subprocess.run([BINARIES / command, *arguments], check=True, capture_output=True, cwd="/", **UNPRIVILEGED)  # noqa: S603 - the installed server

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
            if self.process.poll() is not None:  # processes of the killed server still exist
                return self.start()
            if self.query("SELECT 1") == [(1,)]:
                return None
            time.sleep(0.02)
        raise AssertionError((self.folder / "log").read_text())

    def query(self, statement):
        """Execute a statement, and return its rows, or None if it returns no rows or the server cannot be reached."""
        import psycopg  # noqa: PLC0415 - not on every machine

        with suppress(psycopg.OperationalError), psycopg.connect(self.url, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else None
        return None

    def clear(self):
        """Remove the tables of all stores."""
        self.query("DROP SCHEMA IF EXISTS interlock CASCADE")

    def disconnect_all(self):
        """Close the connections of all stores."""
        self.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'interlock'")

    def replicate(self, primary):
        """Become a replica of a server, and discard the data."""
        shutil.rmtree(self.data, ignore_errors=True)
        source = f"host=127.0.0.1 port={primary.port} user=interlock application_name=standby"
        self.run("pg_basebackup", "-D", self.data, "-R", "-X", "stream", "-c", "fast", "-d", source)
        self.start()

    def promote(self):
        """Make a standby the primary."""
        self.query("SELECT pg_promote()")


def stored(number, *items, output=()):
    return StoredResponse({"id": f"resp_{number}", "output": [*output]}, items)


def message(number, text="Hello"):
    return {"id": f"msg_{number}", "type": "message", "content": text}


def run(store, scenario):
    """Run a scenario on a store, and close it."""

    async def main():
        try:
            return await scenario(store)
        finally:
            await store.close()

    return asyncio.run(main())


# The kinds of stores, as parameters of tests; the fixture `make_store` opens a store of a kind


POSTGRES = pytest.param("postgres", marks=needs_postgres)
SHARED = ["sqlite", POSTGRES]
KINDS = ["memory", *SHARED]
