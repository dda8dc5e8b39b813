"""The kinds of stores, each of which can be opened in a folder of its own: a new kind is one more row of `KINDS`."""

from contextlib import closing, contextmanager

import pytest
from live.postgres_server import BINARIES, PostgresServer
from live.redis_server import COMMAND, RedisServer


@contextmanager
def redis_server(environment=None, appendfsync="always"):
    """A real redis-server that writes to the disk before it answers."""
    if COMMAND is None:
        pytest.skip("there is no redis-server")
    with closing(RedisServer("--appendonly", "yes", "--appendfsync", appendfsync, environment=environment)) as server:
        yield server


@contextmanager
def postgres_server(*settings, **others):
    """A real server of Postgres."""
    if BINARIES is None:
        pytest.skip("there is no postgres")
    with closing(PostgresServer(*settings, **others)) as server:
        yield server


@contextmanager
def memory(_folder):
    yield "memory:"


@contextmanager
def sqlite(folder):
    yield f"sqlite:{folder}/store.db"


@contextmanager
def postgres(_folder):
    with postgres_server() as server:
        yield server.url


@contextmanager
def redis(_folder):
    with redis_server() as server:
        yield server.url


KINDS = {"memory": memory, "sqlite": sqlite, "postgres": postgres, "redis": redis}
"""Each makes a store ready, and yields its URL."""

SHARED = KINDS.keys() - {"memory"}
"""The kinds that several processes can share."""
