"""Stores of responses and conversations, which later requests continue, fetch and delete.

A store knows nothing of requests or of HTTP.

    interface      the protocol, its values and its errors
    edits          the writes, as edges of the tables
    chain          the stored form of a response
    notifications  subscriptions to the changes of a response
    opening        a store by its URL
    sqlite/        in a file or in memory
    redis/         in Redis or Valkey
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
    ConversationStore,
    Lease,
    LeaseLost,
    Log,
    ResponseStore,
    SequenceError,
    StoreDown,
    StoredResponse,
    StoreError,
    StoreFull,
    StoreInfo,
    StoreUnusable,
    SweepResult,
)
from interlock.serving.store.notifications import Subscription
from interlock.serving.store.opening import open_store

if TYPE_CHECKING:
    from interlock.serving.store.sqlite import MemoryStore

__all__ = [
    "LEASE",
    "RENEW",
    "SHARED",
    "Addition",
    "Conflict",
    "Conversation",
    "ConversationStore",
    "Lease",
    "LeaseLost",
    "Log",
    "MemoryStore",
    "ResponseStore",
    "SequenceError",
    "StoreDown",
    "StoreError",
    "StoreFull",
    "StoreInfo",
    "StoreUnusable",
    "StoredResponse",
    "Subscription",
    "SweepResult",
    "open_store",
]

# It needs apsw, which may not be installed.
__getattr__ = exporter(__name__, {"MemoryStore"}, ["interlock.serving.store.sqlite"])
