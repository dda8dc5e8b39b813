"""Stores of responses and conversations, which later requests continue, fetch or delete.

Processes that share a store see one another's committed writes. A store handles neither requests nor HTTP.

    values              what a store stores and returns, the edits that write it, and the errors
    stored_table        the life of a stored response, as a table
    conversation_table  the life of a conversation, as a table
    response_store      the methods of a store
    shared_store        the threads of a store that several processes share
    sqlite              the stores in memory and in a file, with the package `apsw`
    postgres            the store in Postgres, with the package `psycopg`
    rows                the statements that carry out the effects of the two tables
    chain               the stored form of a response
    database            the interface of a connection to a database, the layout and its versions
    opening             opens a store by its URL
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import exporter
from interlock.serving.store.opening import open_store
from interlock.serving.store.response_store import ResponseStore
from interlock.serving.store.values import (
    LEASE,
    RENEW,
    SHARED,
    Addition,
    Conflict,
    Lease,
    LeaseLost,
    Log,
    ResponseKey,
    SequenceError,
    StoredConversation,
    StoreDown,
    StoredResponse,
    StoreError,
    StoreFull,
    StoreInfo,
    StoreUnusable,
    SweepResult,
)

if TYPE_CHECKING:
    from interlock.serving.store.sqlite import MemoryStore

__all__ = [
    "LEASE",
    "RENEW",
    "SHARED",
    "Addition",
    "Conflict",
    "Lease",
    "LeaseLost",
    "Log",
    "MemoryStore",
    "ResponseKey",
    "ResponseStore",
    "SequenceError",
    "StoreDown",
    "StoreError",
    "StoreFull",
    "StoreInfo",
    "StoreUnusable",
    "StoredConversation",
    "StoredResponse",
    "SweepResult",
    "open_store",
]

# SQLite needs `apsw`, which may be missing.
__getattr__ = exporter(__name__, {"MemoryStore"}, ["interlock.serving.store.sqlite"])
