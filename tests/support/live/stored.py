"""What tests of stores store, and how they run a scenario."""

import asyncio

import pytest
from live.postgres_server import needs_postgres

from interlock.serving.store.values import StoredResponse


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
