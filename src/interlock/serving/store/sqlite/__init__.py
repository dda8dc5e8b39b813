"""Stores in SQLite: in a file, for the processes of one host, and in memory, for one process. They need the package `apsw`.

sqlite_store  the store, and what files need
memory_store  the store in memory, and its bound
rows          all SQL on rows
database      connections and transactions
sql_schema    tables and their versions
"""

from interlock.serving.store.sqlite.memory_store import MemoryStore
from interlock.serving.store.sqlite.sqlite_store import SqliteStore

__all__ = ["MemoryStore", "SqliteStore"]
