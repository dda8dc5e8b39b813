"""Stores in SQLite: in a file, for the processes of one host, and in memory, for one process. They need the package `apsw`."""

from interlock.serving.store.sqlite.memory import MemoryStore
from interlock.serving.store.sqlite.store import SqliteStore

__all__ = ["MemoryStore", "SqliteStore"]
