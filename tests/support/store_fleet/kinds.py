"""Starts a store of each kind; a kind is a row of `KINDS`."""

from contextlib import closing, contextmanager, nullcontext

import pytest
from attrs import frozen
from live.postgres_server import BINARIES, PostgresServer


@frozen
class Local:
    """A store without a server."""

    url: str


@contextmanager
def postgres_server(*settings, **others):
    """Start a server of Postgres."""
    if BINARIES is None:
        pytest.skip("there is no postgres")
    with closing(PostgresServer(*settings, **others)) as server:
        yield server


KINDS = {
    "memory": lambda _folder: nullcontext(Local("memory:")),
    "sqlite": lambda folder: nullcontext(Local(f"sqlite:{folder}/store.db")),
    "postgres": lambda _folder, **settings: postgres_server(**settings),
}
"""Each starts an empty store, whose files are in a folder, and yields an object with its `url`."""

SHARED = KINDS.keys() - {"memory"}
"""The kinds that several processes can share."""
