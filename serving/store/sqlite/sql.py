"""A connection to SQLite, with the few things that are asked of it; what apsw declares cannot be read under Python 3.11."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias, cast

import apsw
from attrs import define, field

__all__ = ["Sql"]

Values: TypeAlias = Sequence[object]


class _Cursor(Protocol):
    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows that are left."""
        ...


class _Connection(Protocol):
    in_transaction: bool

    def execute(self, statements: str, bindings: Values = ...) -> _Cursor:
        """Run statements."""
        ...

    def executemany(self, statements: str, sequenceofbindings: Iterable[Values]) -> _Cursor:
        """Run statements with many bindings."""
        ...

    def last_insert_rowid(self) -> int:
        """Return the row that was inserted last."""
        ...

    def close(self, force: bool) -> None:  # noqa: FBT001 - as apsw has it
        """Close the connection."""
        ...


@define(eq=False)
class Sql:
    """A connection, used by one thread.

    Args:
        path: The file, which is made if there is none.
        busy: Seconds for which a lock of another connection is waited for.
    """

    path: str
    busy: float
    _connection: _Connection = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Open the file."""
        connection = apsw.Connection(self.path)
        connection.set_busy_timeout(int(self.busy * 1000))
        self._connection = cast("_Connection", connection)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._connection.in_transaction

    def rows(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows.

        Args:
            statement: One, or several without values.
            values: What its question marks stand for.
        """
        return self._connection.execute(statement, values).fetchall()

    def row(self, statement: str, values: Values = ()) -> tuple[Any, ...] | None:
        """Run a statement, and return its first row; None if there is none."""
        found = self.rows(statement, values)
        return found[0] if found else None

    def one(self, statement: str, values: Values = ()) -> Any:  # noqa: ANN401 - as it is in the database
        """Run a statement, and return the first value of its first row; None if there is none."""
        found = self.row(statement, values)
        return None if found is None else found[0]

    def insert(self, statement: str, values: Values) -> int:
        """Run a statement that inserts a row, and return what the row is referred to by."""
        self._connection.execute(statement, values)
        return self._connection.last_insert_rowid()

    def do(self, statement: str, values: Values = ()) -> None:
        """Run a statement."""
        self.rows(statement, values)

    def many(self, statement: str, values: Iterable[Values]) -> None:
        """Run a statement with many values."""
        self._connection.executemany(statement, values)

    def close(self) -> None:
        """Close the connection, whatever is in the way."""
        self._connection.close(True)  # noqa: FBT003 - the argument has no name in every release
