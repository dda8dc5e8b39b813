"""The layout of a store in SQLite: its tables, its versions, and their migration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from interlock.serving.store.interface import StoreDown
from interlock.serving.store.sqlite.database import Connection

__all__ = ["VERSION", "migrate", "prepare"]

APPLICATION: Final = 0x494C4B31  # the application id in the header of the file: `ILK1`

LAYOUTS: Final[Mapping[int, str]] = {
    1: """
        CREATE TABLE layout (version INTEGER NOT NULL);
        INSERT INTO layout VALUES (1);

        -- Each item is stored once. `digest` is of tenant and body.
        CREATE TABLE item (
            seq INTEGER PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, digest BLOB NOT NULL UNIQUE, body BLOB NOT NULL
        );
        CREATE INDEX item_by_id ON item (tenant, id);

        -- Conversations of responses are chains that share their common links. `digest` is of all items up to this one.
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

        -- The response object without its output, in a table of its own because every event updates the row above.
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
"""The statements that migrate each layout to the next version; the first starts with an empty file."""

VERSION: Final = max(LAYOUTS)


def version_of(connection: Connection) -> int:
    """Return the version of the layout; 0 for an empty file. Raises `StoreDown` for a file of another program."""
    if not connection.value("SELECT count(*) FROM sqlite_schema"):
        return 0
    if connection.value("PRAGMA application_id") != APPLICATION:
        raise StoreDown(f"{connection.path} is a database of another program.")
    return int(connection.value("SELECT version FROM layout"))


def prepare(connection: Connection) -> None:
    """Create the tables in an empty file. Raises `StoreDown` for any other file without the current layout."""
    version = version_of(connection)
    if version == 0:
        migrate(connection)
    elif version < VERSION:
        raise StoreDown(f"The store has the layout {version}, and {VERSION} is needed: run `interlock store migrate`.")
    else:
        _refuse_newer(version)


def migrate(connection: Connection) -> int:
    """Migrate an older layout in one transaction, and return its version. Raises `StoreDown` for a newer one."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = version_of(connection)
        _refuse_newer(version)
        for step in range(version + 1, VERSION + 1):
            connection.execute(LAYOUTS[step])
        connection.execute("UPDATE layout SET version = ?", (VERSION,))
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return version


def _refuse_newer(version: int) -> None:
    if version > VERSION:
        raise StoreDown(f"The store has the layout {version}, of a newer release of Interlock; {VERSION} is known here.")
