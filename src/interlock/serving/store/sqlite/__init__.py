"""Stores in SQLite: in a file for the processes of one host, or in memory for one process. They need the package `apsw`.

sqlite_store  both stores
rows          the SQL on rows
database      connections, threads and transactions
sql_schema    the tables and their versions
"""

from interlock.serving.store.sqlite.sqlite_store import MemoryStore, SqliteStore

__all__ = ["MemoryStore", "SqliteStore"]
