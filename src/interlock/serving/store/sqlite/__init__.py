"""Stores in SQLite: in a file, for the processes of one host, and in memory, for one process. They need the package `apsw`.

store       the store, and what files need
memory      the store in memory, and its bound
rows        all SQL on rows
connection  connections and transactions
layout      tables and their versions
"""

from interlock.serving.store.sqlite.memory import MemoryStore
from interlock.serving.store.sqlite.store import SqliteStore

__all__ = ["MemoryStore", "SqliteStore"]
