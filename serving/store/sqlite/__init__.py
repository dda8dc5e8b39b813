"""A store in a file of SQLite, for the processes of one host. It needs the package `apsw`: `pip install 'interlock[sqlite]'`."""

from interlock.serving.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
