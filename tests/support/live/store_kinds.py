"""The kinds of stores, as parameters of tests; the fixture `make_store` opens a store of a kind."""

import pytest
from live.postgres_server import needs_postgres

POSTGRES = pytest.param("postgres", marks=needs_postgres)
SHARED = ["sqlite", POSTGRES]
KINDS = ["memory", *SHARED]
