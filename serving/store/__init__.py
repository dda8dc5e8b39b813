"""Stores of responses: what a later request can go on from, refer to, ask for again and delete.

A store knows responses, those that are being made in the background too, the items that led to them, and conversations. It knows
nothing of requests or of HTTP.
"""

from interlock.serving.store.errors import Conflict, Gap, LeaseLost, StoreDown, StoreError, StoreFull, StoreUnfit
from interlock.serving.store.leases import LEASE, RENEW, Lease
from interlock.serving.store.memory import MemoryStore
from interlock.serving.store.opening import open_store
from interlock.serving.store.store import SHARED, ConversationStore, ResponseStore
from interlock.serving.store.values import Addition, Conversation, Info, Log, StoredResponse, Swept
from interlock.serving.store.wakes import Watch

__all__ = [
    "LEASE",
    "RENEW",
    "SHARED",
    "Addition",
    "Conflict",
    "Conversation",
    "ConversationStore",
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
    "Swept",
    "Watch",
    "open_store",
]
