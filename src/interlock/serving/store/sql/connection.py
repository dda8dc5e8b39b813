"""The connection to a database, as the rows and the threads of a store use it, and the errors of a database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from attrs import frozen

from interlock.serving.store.interface import StoreDown

__all__ = ["Connection", "Contention", "Failure", "Values"]

Values: TypeAlias = Sequence[object]


class Contention(Exception):  # noqa: N818 - a state of the database, which passes
    """Another transaction blocks this one, which is then tried again."""


class Connection(ABC):
    """A connection to a database. Statements have `?` for each value, or `?1`, `?2` to use a value twice."""

    types: ClassVar[Mapping[str, str]]
    """The SQL of this database for the names in braces in `sql_schema`."""
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

    @abstractmethod
    def begin(self, *, write: bool) -> None:
        """Begin a transaction."""

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
        """Return the version of the layout, or None for an empty database."""

    def begin_migration(self) -> None:
        """Begin a transaction that locks the layout. Subclasses also prepare an empty database."""
        self.begin(write=True)


@frozen
class Failure:
    """An error of a database."""

    error: StoreDown  # what the callers receive
    lost: bool = False  # the connection must be opened again
    common: bool = False  # every other transaction would fail now too
    passing: bool = False  # other processes blocked the transaction, which may succeed when it is tried again
