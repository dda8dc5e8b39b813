"""A Redis server and a Postgres server for all tests of one process, emptied for each."""

import socket

import pytest
from live.postgres_server import PostgresServer
from live.redis_server import RedisServer


@pytest.fixture(scope="session")
def redis_server():
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture
def redis_url(redis_server):
    with socket.create_connection(("127.0.0.1", redis_server.port)) as connection:
        connection.sendall(b"FLUSHALL\r\n")
        assert connection.recv(100) == b"+OK\r\n"
    return redis_server.url


@pytest.fixture(scope="session")
def postgres_server():
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def postgres_url(postgres_server):
    postgres_server.clear()
    return postgres_server.url
