"""The layout of a store in SQLite: its tables, its version, and how an older one is brought up to date."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from interlock.serving.store.sqlite.database import Sql
from interlock.serving.store.store_errors import StoreDown

__all__ = ["VERSION", "create", "migrate", "require_layout"]

APPLICATION: Final = 0x494C4B31
"""What the header of a file says that is a store: `ILK1`."""

LAYOUTS: Final[Mapping[int, str]] = {
    1: """
        CREATE TABLE layout (version INTEGER NOT NULL);
        INSERT INTO layout VALUES (1);

        -- Every item once. `digest` is of tenant and body.
        CREATE TABLE item (
            seq INTEGER PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, digest BLOB NOT NULL UNIQUE, body BLOB NOT NULL
        );
        CREATE INDEX item_by_id ON item (tenant, id);

        -- Conversations as chains, which share what they have in common. `digest` is of all items up to this one.
        CREATE TABLE link (
            seq INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE,
            before INTEGER REFERENCES link, item INTEGER NOT NULL REFERENCES item
        );
        CREATE INDEX link_by_before ON link (before);
        CREATE INDEX link_by_item ON link (item);

        -- The output of a response is the last `outputs` items of its conversation.
        CREATE TABLE response (
            seq INTEGER PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL,
            tip INTEGER REFERENCES link, outputs INTEGER NOT NULL, owner TEXT NOT NULL, epoch INTEGER NOT NULL,
            until REAL NOT NULL, cancelled INTEGER NOT NULL, oldest INTEGER NOT NULL, following INTEGER NOT NULL,
            written REAL NOT NULL, UNIQUE (tenant, id)
        );
        CREATE INDEX response_by_tip ON response (tip);
        CREATE INDEX response_by_written ON response (written);
        CREATE INDEX response_by_until ON response (until) WHERE state IN ('queued', 'running', 'lost');

        -- The response object without its output; by itself, because the row above is written with every event.
        CREATE TABLE body (response INTEGER PRIMARY KEY REFERENCES response, json BLOB NOT NULL);

        CREATE TABLE event (
            response INTEGER NOT NULL REFERENCES response, number INTEGER NOT NULL, frame BLOB NOT NULL,
            PRIMARY KEY (response, number)
        ) WITHOUT ROWID;

        CREATE TABLE conversation (
            seq INTEGER PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, created_at INTEGER NOT NULL, metadata BLOB NOT NULL,
            version INTEGER NOT NULL, owner TEXT NOT NULL, until REAL NOT NULL, UNIQUE (tenant, id)
        );
        CREATE TABLE member (
            conversation INTEGER NOT NULL REFERENCES conversation, place INTEGER NOT NULL, item INTEGER NOT NULL REFERENCES item,
            PRIMARY KEY (conversation, place)
        ) WITHOUT ROWID;
        CREATE INDEX member_by_item ON member (item);
    """,
}
"""What makes each layout of the one before; the first is made of an empty file."""

VERSION: Final = max(LAYOUTS)


def version_of(connection: Sql) -> int:
    """Return the version of the layout; 0 for an empty file.

    Raises:
        StoreDown: The file is another program's.
    """
    tables = connection.one("SELECT count(*) FROM sqlite_schema")
    if not tables:
        return 0
    if connection.one("PRAGMA application_id") != APPLICATION:
        raise StoreDown(f"{connection.path} is a database of another program.")
    return int(connection.one("SELECT version FROM layout"))


def create(connection: Sql) -> None:
    """Make the layout in an empty file, unless another process has made it meanwhile."""
    if version_of(connection) == 0:
        migrate(connection)


def migrate(connection: Sql) -> int:
    """Bring the layout up to date in one transaction, and return the version that it was of.

    Raises:
        StoreDown: The file is of a newer layout.
    """
    connection.do("BEGIN IMMEDIATE")
    try:
        before = version_of(connection)
        _refuse_newer(before)
        for version in range(before + 1, VERSION + 1):
            connection.do(LAYOUTS[version])
        connection.do("UPDATE layout SET version = ?", (VERSION,))
        connection.do(f"PRAGMA application_id = {APPLICATION}")
    except BaseException:
        connection.do("ROLLBACK")
        raise
    connection.do("COMMIT")
    return before


def require_layout(connection: Sql) -> None:
    """Refuse a file whose layout is not the one that is known here.

    Raises:
        StoreDown: It is of another version.
    """
    version = version_of(connection)
    _refuse_newer(version)
    if version < VERSION:
        raise StoreDown(f"The store has the layout {version}, and {VERSION} is needed: run `interlock store migrate`.")


def _refuse_newer(version: int) -> None:
    if version > VERSION:
        raise StoreDown(f"The store has the layout {version}, of a newer release of Interlock; {VERSION} is known here.")
