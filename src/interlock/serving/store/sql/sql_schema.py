"""The layout of a store in SQL: its tables, its versions, and their migration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from interlock.serving.store.interface import StoreDown, WrongLayout
from interlock.serving.store.sql.connection import Connection

__all__ = ["VERSION", "migrate", "prepare"]

LAYOUTS: Final[Mapping[int, str]] = {
    1: """
        CREATE TABLE layout (version INTEGER NOT NULL);
        INSERT INTO layout VALUES (0);

        -- Each item is stored once. `digest` covers its tenant and body.
        CREATE TABLE item (
            seq {seq}, tenant TEXT NOT NULL, id TEXT NOT NULL, digest {bytes} NOT NULL UNIQUE, body {bytes} NOT NULL
        );
        CREATE INDEX item_by_id ON item (tenant, id);

        -- The conversations of responses are chains that share their common links. `digest` covers all items up to this one.
        CREATE TABLE link (
            seq {seq}, digest {bytes} NOT NULL UNIQUE, before {int} REFERENCES link, item {int} NOT NULL REFERENCES item
        );
        CREATE INDEX link_by_before ON link (before);
        CREATE INDEX link_by_item ON link (item);

        -- The output of a response is the last `outputs` items of its conversation.
        CREATE TABLE response (
            seq {seq}, tenant TEXT NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL,
            tip {int} REFERENCES link, outputs INTEGER NOT NULL, owner TEXT NOT NULL, epoch INTEGER NOT NULL,
            until {float} NOT NULL, cancelled INTEGER NOT NULL, oldest INTEGER NOT NULL, following INTEGER NOT NULL,
            written {float} NOT NULL, UNIQUE (tenant, id)
        );
        CREATE INDEX response_by_tip ON response (tip);
        CREATE INDEX response_by_written ON response (written);
        CREATE INDEX response_by_until ON response (until) WHERE state IN ('queued', 'running', 'lost');

        -- The response object without its output has its own table, because every event updates the row above.
        CREATE TABLE body (response {int} PRIMARY KEY REFERENCES response, json {bytes} NOT NULL);
        CREATE TABLE event (
            response {int} NOT NULL REFERENCES response, number INTEGER NOT NULL, frame {bytes} NOT NULL,
            PRIMARY KEY (response, number)
        ) {clustered};

        CREATE TABLE conversation (
            seq {seq}, tenant TEXT NOT NULL, id TEXT NOT NULL, created_at {int} NOT NULL, metadata {bytes} NOT NULL,
            version INTEGER NOT NULL, owner TEXT NOT NULL, until {float} NOT NULL, UNIQUE (tenant, id)
        );
        CREATE TABLE member (
            conversation {int} NOT NULL REFERENCES conversation, place INTEGER NOT NULL, item {int} NOT NULL REFERENCES item,
            PRIMARY KEY (conversation, place)
        ) {clustered};
        CREATE INDEX member_by_item ON member (item);
    """,
    2: "",  # new responses have compressed bodies, which releases with layout 1 cannot read
}
"""The statements that lead to each version from the one before; the first starts with an empty database."""

VERSION: Final = max(LAYOUTS)


def prepare(connection: Connection, *, create: bool) -> None:
    """Create the tables if the database is empty and `create` is true. Raises `StoreDown` without the current layout."""
    version = connection.layout()
    if version is None:
        if not create:
            raise StoreDown("The database has no store.")
        migrate(connection)
    elif version != VERSION:
        raise WrongLayout(version, VERSION)


def migrate(connection: Connection) -> int:
    """Migrate an older layout in one transaction, and return its version. Raises `WrongLayout` for a newer one."""
    connection.begin_migration()
    try:
        version = connection.layout() or 0
        if version > VERSION:
            raise WrongLayout(version, VERSION)  # noqa: TRY301 - rolled back below
        for step in range(version + 1, VERSION + 1):
            for statement in LAYOUTS[step].format_map(connection.types).split(";"):
                connection.execute(statement)
        connection.execute(f"UPDATE layout SET version = {VERSION}")  # noqa: S608 - a number
        connection.commit()
    except BaseException:
        connection.roll_back()
        raise
    return version
