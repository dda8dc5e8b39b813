"""A Postgres server for all tests of one process, emptied for each test."""

from itertools import count

import pytest
from live.stores import PostgresServer

from interlock.serving.store.sqlite import MemoryStore, SqliteStore


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
            case _:
                from interlock.serving.store.postgres import PostgresStore  # noqa: PLC0415 - psycopg is not on every machine

                server = request.getfixturevalue("postgres_server")
                server.clear()
                return PostgresStore(server.url, **settings)

    return make
