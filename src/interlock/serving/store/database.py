"""The connection to a database, the layout of the tables and its migration, and the errors of a database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

from attrs import frozen

from interlock.serving.store.values import StoreDown, WrongLayout

Values: TypeAlias = Sequence[object]

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
"""The statements that lead to each version of the layout from the one before; the first starts with an empty database.

`DatabaseConnection.types` has the database's own SQL for the words in braces.
"""

VERSION: Final = max(LAYOUTS)


class Contention(Exception):  # noqa: N818 - a state of the database, which passes
    """Another transaction blocks this one, which is then tried again."""


class DatabaseConnection(ABC):
    """A connection to a database. Statements have `?` for each value, or `?1`, `?2` to use a value twice."""

    types: ClassVar[Mapping[str, str]]
    """The database's own SQL for the words in braces in `LAYOUTS`."""
    answered: float = 0.0  # the monotonic time of the last answer, if the database is on a network
    lock: str = ""  # the end of a SELECT of rows that the transaction changes, so that other processes wait for it
    share: str = ""  # the end of a SELECT of rows that the transaction refers to, so that others do not remove them

    @abstractmethod
    def rows(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Execute a statement, and return its rows."""

    def execute(self, statement: str, values: Values = ()) -> None:
        self.rows(statement, values)

    def row(self, statement: str, values: Values = ()) -> tuple[Any, ...] | None:
        rows = self.rows(statement, values)
        return rows[0] if rows else None

    def value(self, statement: str, values: Values = ()) -> Any:  # noqa: ANN401 - as it is in the database
        row = self.row(statement, values)
        return None if row is None else row[0]

    def execute_many(self, statement: str, values: Iterable[Values]) -> None:
        for each in values:
            self.execute(statement, each)

    def abort(self) -> None:  # noqa: B027 - a local file always answers
        """Fail what another thread waits for on this connection, if the database is on a network. Thread-safe."""

    @abstractmethod
    def begin(self, *, write: bool, waited: float = 0.0) -> None:
        """Begin a transaction, whose caller has `waited` seconds; it waits the less for locks on a network."""

    def time(self) -> float | None:
        """Return the time of the database's clock, or None if it has no clock."""
        return None

    def commit(self) -> None:
        self.execute("COMMIT")

    @abstractmethod
    def roll_back(self) -> None:
        """Roll back the transaction, if there is one."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection, even with open statements, without raising an error."""

    @abstractmethod
    def layout(self) -> int | None:
        """Return the version of the layout, or None for an empty database.

        Raises:
            StoreDown: The database belongs to another program.
        """

    def begin_migration(self) -> None:
        """Begin a transaction that locks the layout. Subclasses also prepare an empty database."""
        self.begin(write=True)

    def prepare(self, *, create: bool) -> None:
        """Create the tables if the database is empty and `create` is true; raise `StoreDown` if it lacks the current layout."""
        version = self.layout()
        if version is None:
            if not create:
                raise StoreDown("The database has no store.")
            self.migrate()
        elif version != VERSION:
            raise WrongLayout(version, VERSION)

    def migrate(self) -> int:
        """Migrate an older layout in one transaction, and return its version; raise `WrongLayout` for a newer one."""
        self.begin_migration()
        try:
            version = self.layout() or 0
            if version > VERSION:
                raise WrongLayout(version, VERSION)  # noqa: TRY301 - rolled back below
            for step in range(version + 1, VERSION + 1):
                for statement in LAYOUTS[step].format_map(self.types).split(";"):
                    self.execute(statement)
            self.execute(f"UPDATE layout SET version = {VERSION}")  # noqa: S608 - a number
            self.commit()
        except BaseException:
            self.roll_back()
            raise
        return version


@frozen
class Failure:
    """An error of a database."""

    error: Exception  # what the callers receive
    lost: bool = False  # the connection must be opened again
    common: bool = False  # every other transaction would fail now too
    passing: bool = False  # other processes blocked the transaction, which may succeed when it is tried again
