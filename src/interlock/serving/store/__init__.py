"""Stores of responses and conversations, which later requests continue, fetch or delete.

A store handles neither requests nor HTTP.

    interface     the methods of a store, their values and errors, and subscriptions
    chain         the stored form of a response
    opening       opens a store by its URL
    copying       copies a store to another
    sql/          stores in memory, in an SQLite file and in Postgres
    redis         a store in Redis or Valkey
    redis_client  the connections to Redis
"""

from typing import TYPE_CHECKING

from interlock.late import exporter
from interlock.serving.store.interface import (
    LEASE,
    RENEW,
    SHARED,
    Addition,
    Conflict,
    Conversation,
    Lease,
    LeaseLost,
    Log,
    ResponseStore,
    SequenceError,
    StoreDown,
    StoredResponse,
    StoreError,
    StoreFull,
    StoreUnusable,
)
from interlock.serving.store.opening import open_store

if TYPE_CHECKING:
    from interlock.serving.store.sql.sqlite import MemoryStore

__all__ = [
    "LEASE",
    "RENEW",
    "SHARED",
    "Addition",
    "Conflict",
    "Conversation",
    "Lease",
    "LeaseLost",
    "Log",
    "MemoryStore",
    "ResponseStore",
    "SequenceError",
    "StoreDown",
    "StoreError",
    "StoreFull",
    "StoreUnusable",
    "StoredResponse",
    "open_store",
]

# SQLite needs apsw, which may be missing.
__getattr__ = exporter(__name__, {"MemoryStore"}, ["interlock.serving.store.sql.sqlite"])
