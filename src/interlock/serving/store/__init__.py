"""Stores of responses and conversations, which later requests continue, fetch and delete.

A store knows nothing of requests or of HTTP.

    interface  the methods of a store, and subscriptions
    records    their values, edits and errors
    chain      the stored form of a response
    opening    a store by its URL
    sqlite/    in a file or in memory
    redis/     in Redis or Valkey
"""

from typing import TYPE_CHECKING

from interlock.late import exporter
from interlock.serving.store.interface import ResponseStore
from interlock.serving.store.opening import open_store
from interlock.serving.store.records import (
    LEASE,
    RENEW,
    SHARED,
    Addition,
    Conflict,
    Conversation,
    Lease,
    LeaseLost,
    Log,
    SequenceError,
    StoreDown,
    StoredResponse,
    StoreError,
    StoreFull,
    StoreUnusable,
)

if TYPE_CHECKING:
    from interlock.serving.store.sqlite import MemoryStore

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

# It needs apsw, which may not be installed.
__getattr__ = exporter(__name__, {"MemoryStore"}, ["interlock.serving.store.sqlite"])
