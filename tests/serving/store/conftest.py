"""A Redis server and a Postgres server for all tests of one process, emptied for each test."""

from itertools import count

import pytest
import redis
from live.postgres_server import PostgresServer
from live.redis_server import RedisServer

from interlock.serving.store import MemoryStore
from interlock.serving.store.redis import RedisStore
from interlock.serving.store.sql.sqlite import SqliteStore


@pytest.fixture(scope="session")
def redis_server():
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture
def redis_url(redis_server):
    redis_server.clear()
    return redis_server.url


@pytest.fixture
def plain(redis_url):
    """A client of the server, whose connections are closed after the test."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture(scope="session")
def postgres_server():
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def postgres_url(postgres_server):
    postgres_server.clear()
    return postgres_server.url


@pytest.fixture
def make_store(request, tmp_path):
    """A function that returns a new, empty store of a kind."""
    numbers = count()

    def make(kind, **settings):
        match kind:
            case "memory":
                return MemoryStore(**settings)
            case "sqlite":
                return SqliteStore(str(tmp_path / f"{next(numbers)}.db"), **settings)
            case "postgres":
                from interlock.serving.store.sql.postgres import PostgresStore  # noqa: PLC0415 - psycopg is not on every machine

                store_class = PostgresStore
            case _:
                store_class = RedisStore
        server = request.getfixturevalue(f"{kind}_server")
        server.clear()
        return store_class(server.url, **settings)

    return make
