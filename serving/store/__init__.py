"""Stores of responses: what a later request can go on from, refer to, ask for again and delete.

A store knows responses that have ended and the items that led to them. It knows nothing of requests or of HTTP.
"""

from interlock.serving.store.memory import MemoryStore
from interlock.serving.store.store import ResponseStore, StoredResponse

__all__ = ["MemoryStore", "ResponseStore", "StoredResponse"]
