"""The database of a store: its connection, its layout, and what the effects of `stored` and `conversation` do to its rows."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeVar, assert_never, cast

from attrs import define, evolve, field, fields, frozen
from msgspec.json import decode

from interlock.events.json import dumps
from interlock.fsm.table import State
from interlock.serving.requests.input_items import JsonItem
from interlock.serving.store.tables import (
    CONVERSATION,
    STORED,
    ConversationEffect,
    ConversationTrigger,
    StoredEffect,
    StoredTrigger,
)
from interlock.serving.store.values import (
    LEASE,
    Addition,
    Conflict,
    ConversationEdit,
    Edit,
    Lease,
    LeaseLost,
    Log,
    ResponseKey,
    SequenceError,
    StoredChunk,
    StoredConversation,
    StoreDown,
    StoredResponse,
    WrongStore,
    body_of,
    chunks_of,
    compress,
    index_id,
    put_together,
)

Values: TypeAlias = Sequence[object]

T = TypeVar("T", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)

VERSION: Final = 2
"""The version of the layout. A store of another version is refused."""

LAYOUT: Final = """
    CREATE TABLE layout (version INTEGER NOT NULL);
    INSERT INTO layout VALUES ({version});

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
        version INTEGER NOT NULL, owner TEXT NOT NULL, until {float} NOT NULL, written {float} NOT NULL, UNIQUE (tenant, id)
    );
    CREATE INDEX conversation_by_written ON conversation (written);
    CREATE TABLE member (
        conversation {int} NOT NULL REFERENCES conversation, place INTEGER NOT NULL, item {int} NOT NULL REFERENCES item,
        PRIMARY KEY (conversation, place)
    ) {clustered};
    CREATE INDEX member_by_item ON member (item);
"""
"""The statements that create the tables, with the database's own SQL for the words in braces: `DatabaseConnection.types`."""


class Contention(Exception):  # noqa: N818 - a state of the database, which passes
    """Another transaction blocks this one, which is then tried again."""


class DatabaseConnection(ABC):
    """A connection to a database. Statements have `?` for each value, or `?1`, `?2` to use a value twice."""

    types: ClassVar[Mapping[str, str]]
    """The database's own SQL for the words in braces in `LAYOUT`."""
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
            WrongStore: The database belongs to another program.
        """

    def begin_layout(self) -> None:
        """Begin a transaction that locks the layout. Subclasses also prepare an empty database."""
        self.begin(write=True)

    def prepare(self, *, create: bool) -> None:
        """Create the tables if the database is empty and `create` is true; raise a `StoreDown` if it lacks the current layout."""
        version = self.layout()
        if version is None and create:
            version = self._create()
        if version is None:
            raise StoreDown("The database has no store.")
        if version != VERSION:
            raise WrongStore(f"The store has layout {version}, but this release of Interlock needs layout {VERSION}.")

    def _create(self) -> int:
        """Create the tables, unless another process has been faster, and return the version of the layout."""
        self.begin_layout()
        try:
            version = self.layout()
            if version is None:
                for statement in LAYOUT.format(version=VERSION, **self.types).split(";"):
                    self.execute(statement)
            self.commit()
        except BaseException:
            self.roll_back()
            raise
        return version or VERSION


@frozen
class Failure:
    """An error of a database."""

    error: Exception  # what the callers receive
    lost: bool = False  # the connection must be opened again
    common: bool = False  # every other transaction would fail now too
    passing: bool = False  # other processes blocked the transaction, which may succeed when it is tried again


_T, _E = StoredTrigger, StoredEffect
_CT, _CE = ConversationTrigger, ConversationEffect

Seq: TypeAlias = int  # the primary key of a row

UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")  # characters that some databases replace

REMOVED: Final = 10_000  # events that one statement removes

UNFINISHED: Final = ", ".join(f"'{name}'" for name, state in STORED.states.items() if _T.APPEND in state.rows)
"""The states of responses that have not ended, as SQL."""

VALID: Final = "(? < until AND until <= ?)"
"""The condition that a lease has not lapsed, as SQL; its values are `Transaction.lease`. See `has_lapsed`."""


def has_lapsed(until: float, now: float) -> bool:
    """Return whether a lease is over. A lease that ends too far ahead dates from before the clock was reset, as by a restart."""
    return not now < until <= now + 2 * LEASE


@define(eq=False)
class Transaction:
    """A transaction and the time of its first look at the `clock`: `now` for leases, and `today` for expiry.

    `ttl` and `conversations` are the seconds from the last write of a response or conversation until it expires; None for never.
    `use` records the use of a response or conversation; `changed` collects the responses whose subscribers to notify.
    """

    connection: DatabaseConnection
    clock: Callable[[], tuple[float, float]]
    ttl: float | None
    conversations: float | None
    use: Callable[[Literal["response", "conversation"], Seq], None] = lambda _table, _seq: None
    changed: list[ResponseKey] = field(factory=list[ResponseKey])
    locked: dict[ResponseKey, ResponseRow | None] = field(factory=dict[ResponseKey, "ResponseRow | None"])
    """The rows that this transaction has locked, in their current state; None for a response that does not exist."""

    @cached_property
    def _times(self) -> tuple[float, float]:
        return self.clock()

    @property
    def now(self) -> float:
        return self._times[0]

    @property
    def today(self) -> float:
        return self._times[1]

    @property
    def lease(self) -> tuple[float, float]:
        """The values of `VALID`."""
        return self.now, self.now + 2 * LEASE

    def expiry(self, ttl: float | None) -> float:
        """Return the time at or before which the last write is of what has expired."""
        return -inf if ttl is None else self.today - ttl


@frozen
class Items:
    """The items of responses and conversations. Equal items of a tenant share a row."""

    connection: DatabaseConnection

    def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, JsonItem]:
        """Return items by their ids. If two have the same id, the later one wins."""
        query = "SELECT body FROM item WHERE tenant = ? AND id = ? ORDER BY seq DESC LIMIT 1"
        bodies = ((item_id, self.connection.value(query, (tenant, index_id(item_id)))) for item_id in item_ids)
        return {item_id: decode(body) for item_id, body in bodies if body is not None}

    def add(self, tenant: str, chunks: Sequence[StoredChunk]) -> None:
        """Insert the items that are not stored yet."""
        # The conflict clause locks an existing row, so that nobody removes it before the commit.
        insert = """
            INSERT INTO item (tenant, id, digest, body) VALUES (?, ?, ?, ?)
            ON CONFLICT (digest) DO UPDATE SET body = excluded.body WHERE FALSE
        """
        self.connection.execute_many(insert, [(tenant, chunk.id, chunk.digest, chunk.packed) for chunk in chunks])

    def drop(self, item: Seq) -> None:
        """Remove an item unless something refers to it; raise `Contention` if another transaction uses it."""
        in_use = "SELECT EXISTS (SELECT 1 FROM link WHERE item = ?1) OR EXISTS (SELECT 1 FROM member WHERE item = ?1)"
        if self._lock("item", item) and not self.connection.value(in_use, (item,)):
            self.connection.execute("DELETE FROM item WHERE seq = ?", (item,))

    def add_chain(self, tenant: str, chunks: Sequence[StoredChunk]) -> bytes | None:
        """Store a chain, and return the digest of its last link, or None if it is empty."""
        digests = [chunk.link for chunk in chunks]
        count = self._count_links(digests)
        self.add(tenant, chunks[count:])
        insert = """
            INSERT INTO link (digest, before, item) VALUES (
                ?, (SELECT seq FROM link WHERE digest = ?), (SELECT seq FROM item WHERE digest = ?)
            ) ON CONFLICT (digest) DO UPDATE SET item = excluded.item WHERE FALSE
        """
        befores = [None, *digests][count:]
        new = zip(digests[count:], befores, chunks[count:], strict=False)
        self.connection.execute_many(insert, [(digest, before, chunk.digest) for digest, before, chunk in new])
        return digests[-1] if digests else None

    def _count_links(self, digests: Sequence[bytes]) -> int:
        """Return how many links of a chain are stored, and lock the last of them against removal."""
        query = "SELECT seq FROM link WHERE digest = ?"
        while True:
            low, high = 0, len(digests)  # a bisection: a link is stored only if all links before it are
            while low < high:
                middle = (low + high + 1) // 2
                if self.connection.value(query, (digests[middle - 1],)) is None:
                    high = middle - 1
                else:
                    low = middle
            share = self.connection.share
            if not low or not share or self.connection.value(f"{query}{share}", (digests[low - 1],)) is not None:
                return low

    def drop_chain(self, link: Seq | None) -> None:
        """Remove a chain back to the first link that something else refers to; raise `Contention` as `drop` does."""
        in_use = "SELECT EXISTS (SELECT 1 FROM link WHERE before = ?1) OR EXISTS (SELECT 1 FROM response WHERE tip = ?1)"
        while link is not None and self._lock("link", link) and not self.connection.value(in_use, (link,)):
            link, item = self.connection.rows("DELETE FROM link WHERE seq = ? RETURNING before, item", (link,))[0]
            self.drop(item)

    def _lock(self, table: Literal["item", "link"], seq: Seq) -> bool:
        """Lock a row, so that others cannot refer to it, and return whether it still exists.

        Raises:
            Contention: Another transaction uses the row, and waiting for it could cause a deadlock.
        """
        if not self.connection.lock:
            return True
        query = f"SELECT seq FROM {table} WHERE seq = ?"  # noqa: S608 - constants
        if self.connection.value(f"{query}{self.connection.lock} SKIP LOCKED", (seq,)) is not None:
            return True
        if self.connection.value(query, (seq,)) is not None:
            raise Contention
        return False

    def chain(self, link: Seq | None) -> list[bytes]:
        """Return the items of a chain as JSON, in order."""
        query = """
            WITH RECURSIVE chain (place, before, item) AS (
                SELECT 0, before, item FROM link WHERE seq = ?
                UNION ALL SELECT place + 1, link.before, link.item FROM chain JOIN link ON link.seq = chain.before
            )
            SELECT body FROM chain JOIN item ON item.seq = chain.item ORDER BY place DESC
        """
        return [body for (body,) in self.connection.rows(query, (link,))]


@frozen
class ResponseRow:
    """A row of the table `response`. Rows are equal if they look the same to a subscriber."""

    seq: Seq
    tenant: str
    id: str
    state: str = STORED.initial
    tip: Seq | None = None
    outputs: int = 0
    owner: str = ""
    epoch: int = 0
    until: float = field(default=0.0, eq=False)
    cancelled: int = 0
    oldest: int = 0
    following: int = 0
    written: float = field(default=0.0, eq=False)


_COLUMNS: Final = [column.name for column in fields(ResponseRow)]
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM response"  # noqa: S608 - the names of the columns
_MARKS: Final = {name: "(SELECT seq FROM link WHERE digest = ?)" if name == "tip" else "?" for name in _COLUMNS}
"""The placeholder of each column in a statement. The value of `tip` is the digest of a link."""
_INSERT: Final = (
    f"INSERT INTO response ({', '.join(_COLUMNS[1:])}) "  # noqa: S608 - the names of the columns
    f"VALUES ({', '.join(_MARKS[name] for name in _COLUMNS[1:])}) RETURNING seq"
)


def _apply_time(state: State[T, E], due: Mapping[T, bool]) -> State[T, E]:
    """Fire the triggers that are due by the clock and have an edge, in order, without carrying out their effects."""
    for trigger, is_due in due.items():
        if is_due and trigger in state.rows:
            state, _ = state.rows[trigger]
    return state


def lock(connection: DatabaseConnection, keys: Sequence[ResponseKey]) -> dict[ResponseKey, ResponseRow | None]:
    """Lock responses in a fixed order, which prevents deadlocks, and return their rows."""
    keys = [key for key in keys if not UNSTORABLE.search("".join(key))] or [("", "")]  # rows have replacements in the other names
    size = 2 ** (len(keys) - 1).bit_length()  # a power of two, so that there are few distinct statements to prepare
    keys = [*keys, *[keys[0]] * (size - len(keys))]
    marks = ", ".join("(?, ?)" for _ in keys)
    query = f"{_SELECT} WHERE (tenant, id) IN ({marks}) ORDER BY seq{connection.lock}"
    rows = [ResponseRow(*row) for row in connection.rows(query, [name for key in keys for name in key])]
    return {**dict.fromkeys(keys), **{(row.tenant, row.id): row for row in rows}}


@frozen
class Responses:
    """The responses of all tenants."""

    tx: Transaction

    def rows(self, where: str, *values: object) -> list[ResponseRow]:
        """Return the rows that match a condition, expired ones included."""
        return [ResponseRow(*row) for row in self.tx.connection.rows(f"{_SELECT} WHERE {where}", values)]

    def row(self, tenant: str, response_id: str) -> ResponseRow | None:
        """Return the row of a response, even if it has expired."""
        key = tenant, response_id
        if key in self.tx.locked:
            return self.tx.locked[key]
        rows = self.rows(f"tenant = ? AND id = ?{self.tx.connection.lock}", tenant, response_id)
        return rows[0] if rows else None

    def state(self, row: ResponseRow) -> State[StoredTrigger, StoredEffect]:
        """Return the current state of a response, which may have expired or lost its lease."""
        due = {_T.LAPSE: has_lapsed(row.until, self.tx.now), _T.EXPIRE: row.written <= self._expiry}
        return _apply_time(STORED.states[row.state], due)

    @property
    def _expiry(self) -> float:
        return self.tx.expiry(self.tx.ttl)

    def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        row = self.row(tenant, response_id)
        if row is None or not self.state(row).rows:
            return None
        self.tx.use("response", row.seq)
        body = self.tx.connection.value("SELECT json FROM body WHERE response = ?", (row.seq,))
        return None if body is None else put_together(body, Items(self.tx.connection).chain(row.tip), row.outputs)

    def read(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        row = self.row(tenant, response_id)
        if row is None or not (state := self.state(row)).rows:
            return None
        self.tx.use("response", row.seq)
        query = "SELECT frame FROM event WHERE response = ? AND number >= ? ORDER BY number LIMIT ?"
        frames = self.tx.connection.rows(query, (row.seq, first, limit)) if first >= row.oldest else ()
        return Log(tuple(frame for (frame,) in frames), first, row.oldest, row.following, state.name, bool(row.cancelled))

    def write(self, tenant: str, response_id: str, edit: Edit) -> ResponseRow | None:
        """Carry out an edit, and return the new row, or None if the state has no edge for it.

        Raises:
            LeaseLost: The lease of the edit is over.
            Conflict: The edit stores a response whose id exists, or adds to a conversation that has another owner or is gone.
            SequenceError: The events of the edit do not continue the log.
        """
        row = self.row(tenant, response_id)
        if row is not None and not self.state(row).rows:  # expired, but not yet swept
            self.remove(row)
            row = None
        row = row or ResponseRow(0, tenant, response_id)
        state = self.state(row)
        edge = state.row_for(edit.trigger, is_owner=(edit.owner, edit.epoch) == (row.owner, row.epoch))
        if edge is None:
            if edit.trigger in STORED.owned:
                raise LeaseLost(f"The lease of {edit.owner!r} is over: the response is {state.name}.")
            if edit.stored is not None:
                raise Conflict(f"There is a response with that id already; it is {state.name}.")
            return None
        dest, effects = edge
        if _E.LOG in effects and edit.first != row.following:
            raise SequenceError(row.following, edit.first)
        if _E.JOIN in effects and edit.addition is not None:
            Conversations(self.tx).require_owner(tenant, edit.addition)
        row = self._carry_out(row, dest.name, effects, edit)
        self.tx.use("response", row.seq)
        return row

    def _carry_out(self, row: ResponseRow, state: str, effects: Sequence[StoredEffect], edit: Edit) -> ResponseRow:  # noqa: C901, PLR0912, PLR0915 - a case for each effect
        connection, now, today = self.tx.connection, self.tx.now, self.tx.today
        changes: dict[str, Any] = {"state": state}
        tip: bytes | None = None
        for effect in effects:
            match effect:
                case _E.KEEP:
                    stored = cast("StoredResponse", edit.stored)
                    tip = Items(connection).add_chain(row.tenant, chunks_of(row.tenant, stored.conversation))
                    changes |= {"outputs": len(stored.output), "written": today}
                case _E.TAKE:
                    changes |= {"owner": edit.owner, "epoch": row.epoch + 1, "until": now + LEASE, "written": today}
                case _E.EXTEND:
                    changes |= {"until": now + LEASE, "written": today}
                case _E.LOG:
                    events = ((row.seq, number, frame) for number, frame in enumerate(edit.frames, edit.first))
                    connection.execute_many("INSERT INTO event VALUES (?, ?, ?)", events)
                    changes["following"] = row.following + len(edit.frames)
                case _E.FLAG:
                    changes["cancelled"] = 1
                case _E.JOIN:
                    if (addition := edit.addition) is not None:
                        join = ConversationEdit(_CT.JOIN, addition.owner, items=addition.items)
                        Conversations(self.tx).write(row.tenant, addition.conversation_id, join)
                case _E.RELEASE:
                    changes["owner"] = ""
                case _E.TRIM:
                    self._remove_events(row)
                    changes["oldest"] = row.following
                case _E.ERASE:
                    connection.execute("DELETE FROM body WHERE response = ?", (row.seq,))
                    changes |= {"tip": None, "outputs": 0, "until": now + LEASE, "written": -inf}
                case _E.REMOVE:
                    self.remove(row)
                case _E.WAKE:
                    self.tx.changed.append((row.tenant, row.id))
                case _:
                    assert_never(effect)
        if _E.REMOVE in effects:
            return row
        new = evolve(row, **changes)
        values = {**changes, "tip": tip} if _E.KEEP in effects else changes
        if row.seq:
            update = f"UPDATE response SET {', '.join(f'{name} = {_MARKS[name]}' for name in values)} WHERE seq = ?"  # noqa: S608 - the names of the columns
            connection.execute(update, [*values.values(), row.seq])
        else:
            values = {name: getattr(new, name) for name in _COLUMNS[1:]} | values
            new = evolve(new, seq=connection.value(_INSERT, [*values.values()]))
        if _E.ERASE in effects:
            Items(connection).drop_chain(row.tip)
        key = row.tenant, row.id
        if _E.KEEP in effects and edit.stored is not None:
            insert = "INSERT INTO body VALUES (?, ?) ON CONFLICT (response) DO UPDATE SET json = excluded.json"
            connection.execute(insert, (new.seq, compress(body_of(edit.stored))))
            Items(connection).drop_chain(row.tip)
            self.tx.locked.pop(key, None)  # its tip is not known here
        elif key in self.tx.locked:
            self.tx.locked[key] = new
        return new

    def remove(self, row: ResponseRow) -> None:
        """Remove a response and everything that only it refers to."""
        connection = self.tx.connection
        self._remove_events(row)
        connection.execute("DELETE FROM body WHERE response = ?", (row.seq,))
        connection.execute("DELETE FROM response WHERE seq = ?", (row.seq,))
        Items(connection).drop_chain(row.tip)
        if (row.tenant, row.id) in self.tx.locked:
            self.tx.locked[row.tenant, row.id] = None

    def _remove_events(self, row: ResponseRow) -> None:
        """Remove the events of a response in several statements, so that no answer of the database takes long."""
        delete = "DELETE FROM event WHERE response = ? AND number >= ? AND number < ? RETURNING 1"
        for first in range(row.oldest, row.following, REMOVED):
            self.tx.connection.rows(delete, (row.seq, first, first + REMOVED))

    def lost(self, limit: int) -> list[ResponseKey]:
        """Return up to `limit` responses whose lease has lapsed, the longest lapsed first."""
        lapsed = f"(state = 'lost' OR NOT {VALID})"  # a stored `lost` stays lost, with any lease
        rows = self.rows(f"state IN ({UNFINISHED}) AND {lapsed} ORDER BY until LIMIT ?", *self.tx.lease, limit)
        return [(row.tenant, row.id) for row in rows if _T.ADOPT in self.state(row).rows]

    def expire(self, limit: int) -> int:
        """Remove up to `limit` expired responses, and return how many. The last write of a hidden response was at no time."""
        suffix = self.tx.connection.lock
        where = f"written <= ? AND (state IN ('ended', 'lost') OR NOT {VALID}) ORDER BY written LIMIT ?"
        rows = self.rows(f"{where}{suffix}{suffix and ' SKIP LOCKED'}", self._expiry, *self.tx.lease, limit)
        for row in rows:
            self.remove(row)
            self.tx.changed.append((row.tenant, row.id))
        return len(rows)

    def trim(self, age: float, limit: int) -> int:
        """Remove the logs of up to `limit` responses that ended at least `age` seconds ago, and return how many."""
        where = "state = 'ended' AND oldest < following AND written <= ? ORDER BY written LIMIT ?"
        rows = self.rows(where, self.tx.today - age, limit)
        return sum(self.write(row.tenant, row.id, Edit(_T.TRIM)) is not None for row in rows)

    def count(self) -> tuple[Counter[str], tuple[Lease, ...]]:
        """Return the number of responses in each state, and the leases that have not lapsed."""
        counts: Counter[str] = Counter()
        query = f"SELECT state, NOT {VALID}, written <= ?, count(*) FROM response GROUP BY 1, 2, 3"  # noqa: S608 - constants
        for name, lapsed, expired, count in self.tx.connection.rows(query, (*self.tx.lease, self._expiry)):
            state = _apply_time(STORED.states[name], {_T.LAPSE: lapsed, _T.EXPIRE: expired})
            if state.rows:
                counts[state.name] += count
        rows = self.rows(f"state IN ({UNFINISHED}) AND {VALID}", *self.tx.lease)
        return counts, tuple(Lease(row.tenant, row.id, row.owner, row.epoch) for row in rows if _T.LAPSE in self.state(row).rows)


def _conflict(conversation_id: str, trigger: ConversationTrigger) -> Conflict:
    if trigger in CONVERSATION.owned:
        return Conflict(f"The conversation '{conversation_id}' was taken or changed meanwhile.")
    return Conflict(f"A response is being made that adds to the conversation '{conversation_id}'.")


@frozen
class ConversationRow:
    """A row of the table `conversation`."""

    seq: Seq
    id: str
    created_at: int
    metadata: bytes
    version: int
    owner: str
    until: float
    written: float

    @property
    def conversation(self) -> StoredConversation:
        return StoredConversation(self.id, self.created_at, decode(self.metadata), self.version)


@frozen
class Conversations:
    """The conversations that clients have created."""

    tx: Transaction

    def row(self, tenant: str, conversation_id: str) -> ConversationRow | None:
        """Return the row of a conversation, even if it has expired."""
        columns = "seq, id, created_at, metadata, version, owner, until, written"
        query = f"SELECT {columns} FROM conversation WHERE tenant = ? AND id = ?{self.tx.connection.lock}"  # noqa: S608 - constants
        values = self.tx.connection.row(query, (tenant, conversation_id))
        return None if values is None else ConversationRow(*values)

    def state(self, row: ConversationRow) -> State[ConversationTrigger, ConversationEffect]:
        """Return the current state of a conversation, which may have expired or lost its lease."""
        due = {
            _CT.LAPSE: bool(row.owner) and has_lapsed(row.until, self.tx.now),
            _CT.EXPIRE: row.written <= self.tx.expiry(self.tx.conversations),
        }
        return _apply_time(CONVERSATION.states["leased" if row.owner else "free"], due)

    def current(self, tenant: str, conversation_id: str) -> ConversationRow | None:
        """Return the row of a conversation, and record its use; return None if there is none or it has expired."""
        row = self.row(tenant, conversation_id)
        if row is None or not self.state(row).rows:
            return None
        self.tx.use("conversation", row.seq)
        return row

    def get(self, tenant: str, conversation_id: str) -> StoredConversation | None:
        row = self.current(tenant, conversation_id)
        return None if row is None else row.conversation

    def items(self, tenant: str, conversation_id: str) -> tuple[JsonItem, ...] | None:
        row = self.current(tenant, conversation_id)
        if row is None:
            return None
        query = "SELECT body FROM member JOIN item ON item.seq = member.item WHERE conversation = ? ORDER BY place"
        return tuple(decode(body) for (body,) in self.tx.connection.rows(query, (row.seq,)))

    def require_owner(self, tenant: str, addition: Addition) -> None:
        """Raise `Conflict` if the conversation of an addition has another owner or no longer exists."""
        row = self.current(tenant, addition.conversation_id)
        if row is None:
            raise _conflict(addition.conversation_id, _CT.JOIN)
        self._effects(row, _CT.JOIN, addition.owner)

    def write(self, tenant: str, conversation_id: str, edit: ConversationEdit) -> StoredConversation | None:  # noqa: C901 - likewise
        """Carry out an edit, and return the conversation, or None if it or the item does not exist.

        Raises:
            Conflict: The state has no edge for the edit.
        """
        connection = self.tx.connection
        if (new := edit.conversation) is not None:
            old = self.row(tenant, conversation_id)
            if old is not None:  # the new conversation replaces it
                self.remove(old.seq)
            columns = "tenant, id, created_at, metadata, version, owner, until, written"
            insert = f"INSERT INTO conversation ({columns}) VALUES (?, ?, ?, ?, ?, '', 0, ?)"  # noqa: S608 - constants
            connection.execute(insert, (tenant, new.id, new.created_at, dumps(new.metadata), new.version, self.tx.today))
        row = self.current(tenant, conversation_id)
        member = None if row is None or edit.item_id is None else self._member(row.seq, edit.item_id)
        if row is None or (edit.item_id is not None and member is None):
            return None
        for effect in self._effects(row, edit.trigger, edit.owner):
            match effect:
                case _CE.KEEP:
                    self._append(tenant, row.seq, edit.items)
                case _CE.DESCRIBE:
                    values = dumps(edit.metadata), self.tx.today, row.seq
                    connection.execute("UPDATE conversation SET metadata = ?, written = ? WHERE seq = ?", values)
                case _CE.WRITE:
                    self._append(tenant, row.seq, edit.items)
                    if member is not None:
                        place, item = member
                        connection.execute("DELETE FROM member WHERE conversation = ? AND place = ?", (row.seq, place))
                        Items(connection).drop(item)
                    update = "UPDATE conversation SET version = version + 1, written = ? WHERE seq = ?"
                    connection.execute(update, (self.tx.today, row.seq))
                case _CE.TAKE:
                    now, _ = self.tx.clock()  # the lock on the row may have taken long
                    update = "UPDATE conversation SET owner = ?, until = ?, written = ? WHERE seq = ?"
                    connection.execute(update, (edit.owner, now + LEASE, self.tx.today, row.seq))
                case _CE.FREE:
                    connection.execute("UPDATE conversation SET owner = '' WHERE seq = ?", (row.seq,))
                case _CE.REMOVE:
                    self.remove(row.seq)
                    return row.conversation
                case _:
                    assert_never(effect)
        return self.get(tenant, conversation_id)

    def remove(self, conversation: Seq) -> None:
        """Remove a conversation, and the items that nothing else refers to."""
        items = self.tx.connection.rows("DELETE FROM member WHERE conversation = ? RETURNING item", (conversation,))
        self.tx.connection.execute("DELETE FROM conversation WHERE seq = ?", (conversation,))
        for (item,) in items:
            Items(self.tx.connection).drop(item)

    def expire(self, limit: int) -> int:
        """Remove up to `limit` expired conversations, and return how many."""
        suffix = self.tx.connection.lock
        where = f"written <= ? AND (owner = '' OR NOT {VALID}) ORDER BY written LIMIT ?{suffix}{suffix and ' SKIP LOCKED'}"
        values = self.tx.expiry(self.tx.conversations), *self.tx.lease, limit
        rows = self.tx.connection.rows(f"SELECT seq FROM conversation WHERE {where}", values)  # noqa: S608 - constants
        for (seq,) in rows:
            self.remove(seq)
        return len(rows)

    def count(self) -> int:
        """Return the number of conversations that have not expired."""
        where = f"written > ? OR (owner != '' AND {VALID})"
        values = self.tx.expiry(self.tx.conversations), *self.tx.lease
        return int(self.tx.connection.value(f"SELECT count(*) FROM conversation WHERE {where}", values))  # noqa: S608 - constants

    def _effects(self, row: ConversationRow, trigger: ConversationTrigger, owner: str) -> tuple[ConversationEffect, ...]:
        """Return the effects of an edit by the response `owner`; raise `Conflict` if it has no edge."""
        state = CONVERSATION.states[CONVERSATION.initial] if trigger is _CT.CREATE else self.state(row)
        edge = state.row_for(trigger, is_owner=owner == row.owner)
        if edge is None:
            raise _conflict(row.id, trigger)
        _, effects = edge
        return effects

    def _append(self, tenant: str, conversation: Seq, items: Sequence[JsonItem]) -> None:
        connection = self.tx.connection
        start = connection.value("SELECT coalesce(max(place), -1) + 1 FROM member WHERE conversation = ?", (conversation,))
        chunks = chunks_of(tenant, items)
        Items(connection).add(tenant, chunks)
        insert = "INSERT INTO member (conversation, place, item) VALUES (?, ?, (SELECT seq FROM item WHERE digest = ?))"
        connection.execute_many(insert, [(conversation, place, chunk.digest) for place, chunk in enumerate(chunks, start)])

    def _member(self, conversation: Seq, item_id: str) -> tuple[Any, ...] | None:
        """Return the place and the primary key of the first item with an id in a conversation."""
        query = """
            SELECT place, member.item FROM member JOIN item ON item.seq = member.item
            WHERE conversation = ? AND id = ? ORDER BY place LIMIT 1
        """
        return self.tx.connection.row(query, (conversation, index_id(item_id)))
