"""The kinds of stores, as parameters of tests; the fixture `make_store` opens a store of a kind."""

import pytest
from live.postgres_server import needs_postgres
from live.redis_server import needs_redis

POSTGRES = pytest.param("postgres", marks=needs_postgres)
REDIS = pytest.param("redis", marks=needs_redis)
KINDS = ["memory", "sqlite", POSTGRES, REDIS]
