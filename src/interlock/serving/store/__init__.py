"""Stores of responses: what a later request can go on from, refer to, ask for again and delete.

A store knows responses, those that are being made in the background too, the items that led to them, and conversations. It knows
nothing of requests or of HTTP.

    interface      the protocol
    records        what is stored
    edits          what the edges of the tables let happen
    chain          a conversation as a chain of shared chunks
    notifications  who waits is told of what changes
    opening        a store by its URL
    store_errors   what can go wrong
    sqlite/        in a file or in memory
    redis/         in Redis or Valkey
"""

from typing import TYPE_CHECKING

from interlock.late import exporter
from interlock.serving.store.interface import SHARED, ConversationStore, ResponseStore
from interlock.serving.store.notifications import Subscription
from interlock.serving.store.opening import open_store
from interlock.serving.store.records import LEASE, RENEW, Addition, Conversation, Expired, Info, Lease, Log, StoredResponse
from interlock.serving.store.store_errors import Conflict, Gap, LeaseLost, StoreDown, StoreError, StoreFull, StoreUnfit

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
    "Expired",
    "Gap",
    "Info",
    "Lease",
    "LeaseLost",
    "Log",
    "MemoryStore",
    "ResponseStore",
    "StoreDown",
    "StoreError",
    "StoreFull",
    "StoreUnfit",
    "StoredResponse",
    "Subscription",
    "open_store",
]

# It needs apsw, which a command without the server may not have.
__getattr__ = exporter(__name__, {"MemoryStore"}, ["interlock.serving.store.sqlite"])
