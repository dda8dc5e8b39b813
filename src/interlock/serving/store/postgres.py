"""The store in Postgres, which the processes of several hosts can share. It needs the package `psycopg`.

Each process keeps three connections: one writes, one reads, and one listens for the changes of other processes. Writes that
arrive during a transaction are committed together in the next, so more connections would only add commits. An acknowledged write
is as durable as Postgres makes it (`synchronous_commit`, `synchronous_standby_names`).
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import count
from typing import Any, ClassVar, Final, cast
from urllib.parse import urlsplit, urlunsplit

import psycopg
from attrs import define, field
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.string import StrDumper

from interlock.events.json import clean
from interlock.serving.store.response_store import ConnectionRole, SharedStore
from interlock.serving.store.rows import DatabaseConnection, Failure, Transaction, Values
from interlock.serving.store.values import ResponseKey, StoreDown, WrongStore

SCHEMA: Final = "interlock"
CHANNEL: Final = "interlock"
TIMEOUT: Final = 5.0  # seconds without an answer after which the server is down
LOCK_WAIT: Final = 4.0  # seconds to wait for a transaction of another process
SHORTEST_WAIT: Final = 0.01  # seconds to wait for one when `LOCK_WAIT` is over, as while other jobs waited
RECONNECT: Final = 0.5  # seconds until the listener tries again; meanwhile, subscribers poll
LISTEN: Final = 0.2  # seconds that the listener waits for a notification before it looks whether it has to stop

SETTINGS: Final = {
    "connect_timeout": "5",
    "application_name": "interlock",
    "target_session_attrs": "primary",  # of several hosts: a standby refuses writes and serves old data
    # These detect a server that vanishes without closing its connections.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
OPTIONS: Final = {
    "search_path": SCHEMA,
    "lock_timeout": f"{LOCK_WAIT * 1000:.0f}",
    "idle_in_transaction_session_timeout": "10s",  # a process that is stopped must not keep its locks
}

CLOCK: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"
# Not `to_regclass` and the like, whose cache can miss what another process has just created.
RELATIONS: Final = f"""
    SELECT count(*), count(*) FILTER (WHERE relname = 'layout')
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = '{SCHEMA}'
"""  # noqa: S608 - a constant
# The beginnings of SQLSTATE for kinds of errors:
DOWN: Final = ("08", "0A", "25", "26", "28", "3D", "3F", "40", "42", "53", "55", "57", "58", "F0", "XX")
"""Errors of the server or the connection. All others concern the data of one call."""
KEPT: Final = ("40", "53", "55", "57014", "58", "XX")
"""Errors in `DOWN` that do not require a new connection, and may concern only one of several jobs."""
PASSING: Final = ("23", "40")
"""Errors that concurrent transactions cause, and that a retry resolves."""
REASONS: Final = {
    "25006": "cannot be written: it is read-only",  # perhaps another server has taken over
    "53100": "cannot grow: its disk is full",
    "55P03": "is locked by another process",
}


class _TextDumper(StrDumper):
    """Replaces null characters and lone surrogates, which Postgres cannot store in text."""

    def dump(self, obj: str) -> Any:  # noqa: ANN401 - a buffer
        return super().dump(clean(obj).replace("\0", "\ufffd"))


@cache
def _number(statement: str) -> bytes:
    """Return a statement with the placeholders `$1`, `$2` in place of `?` or `?1`, `?2`."""
    numbers = count(1)
    return re.sub(r"\?(\d*)", lambda mark: f"${mark[1] or next(numbers)}", statement).encode()


@define(eq=False)
class PostgresConnection(DatabaseConnection):
    """A connection to a server. In a transaction, statements without a result are sent with the next one that has a result."""

    connection: psycopg.Connection[tuple[Any, ...]]
    _cursors: dict[str, psycopg.RawCursor[tuple[Any, ...]]] = field(init=False)
    """A cursor for each statement, because a new cursor looks up again how to convert values."""
    _pipeline: ExitStack = field(factory=ExitStack, init=False)  # of the transaction
    _numbers: Iterator[int] = field(factory=count, init=False)
    _began: float = field(default=0.0, init=False)
    _offset: float | None = field(default=None, init=False)
    """Seconds by which the server's clock is ahead of the monotonic clock, once the transaction has received it."""
    types: ClassVar[Mapping[str, str]] = {
        "seq": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "int": "BIGINT",
        "float": "DOUBLE PRECISION",
        "bytes": "BYTEA",
        "clustered": "",
    }

    _socket: socket.socket = field(init=False)
    """A copy of the connection's, which another thread can shut down even while this one closes the connection."""
    opened: float = field(factory=time.monotonic, init=False)

    def __attrs_post_init__(self) -> None:
        self._cursors = defaultdict(lambda: psycopg.RawCursor(self.connection))
        self._socket = socket.socket(fileno=os.dup(self.connection.fileno()))

    @property
    def server(self) -> tuple[str, int]:
        return self.connection.info.host, self.connection.info.port

    def rows(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        rows = self._cursors[statement].execute(_number(statement), values, binary=True).fetchall()
        self.answered = time.monotonic()
        return rows

    def execute(self, statement: str, values: Values = ()) -> None:
        self._cursors[statement].execute(_number(statement), values)

    def execute_many(self, statement: str, values: Iterable[Values]) -> None:
        self._cursors[statement].executemany(_number(statement), [*values])

    def begin(self, *, write: bool, waited: float = 0.0) -> None:
        mode = "" if write else " ISOLATION LEVEL REPEATABLE READ READ ONLY"
        self.lock, self.share = (" FOR UPDATE", " FOR KEY SHARE") if write else ("", "")
        self._pipeline.enter_context(self.connection.pipeline())
        self.execute(f"BEGIN{mode}")
        if waited > LOCK_WAIT / 4:
            left = max(LOCK_WAIT - waited, SHORTEST_WAIT)
            self.execute("SELECT set_config('lock_timeout', ?, true)", (f"{1000 * left:.0f}",))
        self._began, self._offset = time.monotonic(), None
        self.execute(CLOCK)

    def time(self) -> float:
        """Return the time on the server's clock: that of `begin`, plus the time since, which locks can make long."""
        if self._offset is None:
            self._offset = float(self._cursors[CLOCK].fetchall()[0][0]) - self._began
        return self._offset + time.monotonic()

    def commit(self) -> None:
        self.execute("COMMIT")
        self._pipeline.close()
        self.answered = time.monotonic()

    def roll_back(self) -> None:
        with suppress(psycopg.Error):  # which a statement has raised already
            self._pipeline.close()
        if not self.connection.closed:
            # The server may not have prepared what psycopg has sent. A statement that psycopg does not know resets its cache.
            self.connection.execute(f"ROLLBACK -- {next(self._numbers)}".encode())

    def abort(self) -> None:
        with suppress(OSError):  # it is closed
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._pipeline.close()
        self.connection.close()
        self._socket.close()

    def layout(self) -> int | None:
        relations, layouts = self.rows(RELATIONS)[0]
        if relations and not layouts:
            raise WrongStore(f"The schema {SCHEMA} contains tables of another program.")
        return int(self.value("SELECT version FROM layout")) if layouts else None

    def begin_layout(self) -> None:
        super().begin_layout()
        self.execute(f"SELECT pg_advisory_xact_lock(hashtext('{SCHEMA}'))")
        if not self.rows(f"SELECT 1 FROM pg_namespace WHERE nspname = '{SCHEMA}'"):  # noqa: S608 - a constant
            self.execute(f"CREATE SCHEMA {SCHEMA}")  # `IF NOT EXISTS` needs the right to create schemas


@define(eq=False)
class PostgresStore(SharedStore[PostgresConnection]):
    """Stores responses in the schema `interlock` of a database."""

    url: str  # in the syntax of libpq; of several hosts, one accepts writes
    timeout: float | None = field(default=TIMEOUT, init=False)
    listener: ClassVar[ConnectionRole] = "listener"
    _pid: int = field(default=0, init=False)  # the server's process for the writer's connection
    _server: tuple[str, int] | None = field(default=None, init=False)  # the host and port that the writer has connected to
    _moved: float = field(default=0.0, init=False)  # the time when the writer connected to another server than before

    @property
    def name(self) -> str:
        """The URL without user, password and parameters."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    def connect(self) -> PostgresConnection:
        own = cast("dict[str, str]", conninfo_to_dict(self.url))
        options = " ".join(f"-c {name}={value}" for name, value in OPTIONS.items())
        settings = {**SETTINGS, **own, "options": f"{options} {own.get('options', '')}"}
        connection = psycopg.connect(make_conninfo(**settings), autocommit=True)
        connection.adapters.register_dumper(str, _TextDumper)
        return PostgresConnection(connection)

    def open(self, role: ConnectionRole | None = None) -> PostgresConnection:
        if role != "listener":
            connection = super().open(role)
        else:
            try:
                connection = self.connect()
                connection.execute(f"LISTEN {CHANNEL}")
            except psycopg.Error:
                time.sleep(RECONNECT)
                raise
        if role is not None:
            connection.execute(f"SET statement_timeout = {2000 * TIMEOUT:.0f}")
        if role == "writer":
            self._pid = connection.connection.info.backend_pid
            if self._server not in {None, connection.server}:
                self._moved = connection.opened
            self._server = connection.server
        # Nobody was notified of changes before LISTEN, or of a commit after which the last connection was lost.
        self._notifications.notify(self._notifications.responses())
        return connection

    def is_current(self, connection: PostgresConnection) -> bool:
        """Return whether a connection is no older than a failover, after which the old server may still run."""
        return connection.opened >= self._moved

    def commit(self, tx: Transaction) -> None:
        if tx.changed:
            payloads = " ".join({_payload(key) for key in tx.changed})
            tx.connection.execute(f"SELECT pg_notify('{CHANNEL}', ?)", (payloads,))
        super().commit(tx)

    def failure(self, error: Exception) -> Failure | None:
        if isinstance(error, StoreDown):  # the layout is missing or wrong
            return Failure(error, lost=True)
        if not isinstance(error, psycopg.Error):
            return None
        lost = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
        state = error.sqlstate or ("08000" if lost else "")  # psycopg raises some errors itself
        passing = state.startswith(PASSING)
        if not state.startswith(DOWN):
            return Failure(error, passing=True) if passing else None
        reason = REASONS.get(state, f"cannot be used: {str(error).partition(chr(10))[0]}")
        return Failure(StoreDown(f"{self.name} {reason}."), passing=passing, lost=not state.startswith(KEPT))

    def poll_interval(self) -> float:
        return 0.0  # `poll` itself waits

    def poll(self, connection: PostgresConnection) -> None:
        for message in connection.connection.notifies(timeout=LISTEN):
            if message.pid != self._pid:
                changed = message.payload.split()
                self._notifications.notify(key for key in self._notifications.responses() if _payload(key) in changed)

    def _describe(self, connection: DatabaseConnection) -> tuple[str, int]:
        size = "SELECT sum(pg_total_relation_size(oid))::int8 FROM pg_class"
        tables = f"relnamespace = '{SCHEMA}'::regnamespace AND relkind = 'r'"
        version = connection.value("SHOW server_version").split()[0]
        return f"PostgreSQL {version}", int(connection.value(f"{size} WHERE {tables}"))


@lru_cache(4096)
def _payload(key: ResponseKey) -> str:
    """Return the payload of a response: 16 characters, so that a whole batch fits into one notification."""
    return blake2b("\0".join(key).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
