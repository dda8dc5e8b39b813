"""The responses of a store in SQLite: what the edges of the table `stored` do to the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, assert_never, cast

from attrs import evolve, fields, frozen

from interlock.fsm.processes.stored import STORED, StoredEffect, StoredTrigger
from interlock.fsm.table import Machine
from interlock.serving.store.changes import Change, fired, require_following
from interlock.serving.store.leases import LEASE, Lease, has_lapsed, machine_at
from interlock.serving.store.pieces import body_of, pieces_of, put_together
from interlock.serving.store.sqlite.conversations import Conversations
from interlock.serving.store.sqlite.items import Items, Seq
from interlock.serving.store.sqlite.sql import Sql
from interlock.serving.store.values import Log, StoredResponse

__all__ = ["Responses", "Row"]

_T, _E = StoredTrigger, StoredEffect


@frozen
class Row:
    """A response as it is stored; see the table `response`."""

    seq: Seq
    tenant: str
    id: str
    state: str = STORED.initial
    tip: Seq | None = None
    outputs: int = 0
    owner: str = ""
    epoch: int = 0
    until: float = 0.0
    cancelled: int = 0
    oldest: int = 0
    following: int = 0
    written: float = 0.0


_COLUMNS: Final = [column.name for column in fields(Row)]
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM response"  # noqa: S608 - the names of the columns


@frozen
class Responses:
    """The responses; each method is part of a transaction.

    Args:
        sql: A connection.
        now: The time by which leases are measured.
        today: The time by which it is measured how long a response is stored.
        ttl: Seconds for which it is; None for ever.
        woken: Takes tenant and id of each response that has changed.
    """

    sql: Sql
    now: float
    today: float
    ttl: float | None
    woken: list[tuple[str, str]]

    def row(self, tenant: str, response_id: str) -> Row:
        """Return a response; one that is absent if there is none."""
        found = self.sql.row(_SELECT + " WHERE tenant = ? AND id = ?", (tenant, response_id))
        return Row(0, tenant, response_id) if found is None else Row(*found)

    def machine(self, row: Row) -> Machine[StoredTrigger, StoredEffect]:
        """Return the life of a response where it is now."""
        expired = self.ttl is not None and self.today >= row.written + self.ttl
        return machine_at(row.state, lapsed=has_lapsed(row.until, self.now), expired=expired)

    def is_there(self, row: Row) -> bool:
        """Return whether a response is there, and not expired."""
        return bool(row.seq) and bool(self.machine(row).state.rows)

    def stored(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response."""
        row = self.row(tenant, response_id)
        if not self.is_there(row):
            return None
        body = self.sql.one("SELECT json FROM body WHERE response = ?", (row.seq,))
        return put_together(body, Items(self.sql).chain(row.tip), row.outputs)

    def log(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        """Return events of a response."""
        row = self.row(tenant, response_id)
        if not self.is_there(row):
            return None
        query = "SELECT frame FROM event WHERE response = ? AND number >= ? ORDER BY number LIMIT ?"
        frames = self.sql.rows(query, (row.seq, first, limit)) if first >= row.oldest else ()
        state = self.machine(row).state.name
        return Log(tuple(frame for (frame,) in frames), first, row.oldest, row.following, state, bool(row.cancelled))

    def write(self, tenant: str, response_id: str, change: Change) -> Row | None:
        """Fire the edge of a change, and carry out its effects.

        Returns:
            The response as it is then; None if there is no such edge.

        Raises:
            LeaseLost: See `interlock.serving.store.changes`.
            Conflict: Likewise, or the conversation has changed.
            Gap: The events do not follow on the last one.
        """
        row = self.row(tenant, response_id)
        if row.seq and not self.is_there(row):
            self._remove(row)
            row = Row(0, tenant, response_id)
        machine = self.machine(row)
        effects = fired(machine, row.owner, row.epoch, change)
        if effects is None:
            return None
        if _E.LOG in effects:
            require_following(row.following, change)
        if _E.JOIN in effects:
            Conversations(self.sql, self.now).require_version(tenant, change.addition)
        return self._carry_out(row, machine.state.name, effects, change)

    def _carry_out(self, row: Row, state: str, effects: Sequence[StoredEffect], change: Change) -> Row:
        """Carry out the effects of an edge: first what they do to the row, which has to be there for the rest."""
        before, row = row, evolve(row, state=state)
        for effect in effects:
            row = self._changed(row, effect, change)
        row = self._saved(before, row)
        for effect in effects:
            self._follow(before, row, effect, change)
        return row

    def _saved(self, before: Row, row: Row) -> Row:
        """Write what has changed of a row, and return it as it is stored."""
        if not row.seq:
            columns = _COLUMNS[1:]
            insert = f"INSERT INTO response ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - likewise
            return evolve(row, seq=self.sql.insert(insert, [getattr(row, name) for name in columns]))
        changed = [name for name in _COLUMNS if getattr(row, name) != getattr(before, name)]
        if changed:
            update = f"UPDATE response SET {', '.join(f'{name} = ?' for name in changed)} WHERE seq = ?"  # noqa: S608 - likewise
            self.sql.do(update, [*(getattr(row, name) for name in changed), row.seq])
        return row

    def _changed(self, row: Row, effect: StoredEffect, change: Change) -> Row:
        """Return a row as an effect changes it."""
        match effect:
            case _E.KEEP:
                stored = cast("StoredResponse", change.stored)
                tip = Items(self.sql).hold(row.tenant, pieces_of(row.tenant, stored.conversation))
                row = evolve(row, tip=tip, outputs=len(stored.output), written=self.today)
            case _E.TAKE:
                row = evolve(row, owner=change.owner, epoch=row.epoch + 1, until=self.now + LEASE, written=self.today)
            case _E.EXTEND:
                row = evolve(row, until=self.now + LEASE, written=self.today)
            case _E.LOG:
                row = evolve(row, following=row.following + len(change.frames))
            case _E.FLAG:
                row = evolve(row, cancelled=1)
            case _E.RELEASE:
                row = evolve(row, owner="")
            case _E.TRIM:
                row = evolve(row, oldest=row.following)
            case _E.JOIN | _E.REMOVE | _E.WAKE:
                pass
            case _:
                assert_never(effect)
        return row

    def _follow(self, before: Row, row: Row, effect: StoredEffect, change: Change) -> None:
        """Do what an effect does beside the row."""
        match effect:
            case _E.LOG:
                rows = ((row.seq, change.first + index, frame) for index, frame in enumerate(change.frames))
                self.sql.many("INSERT INTO event VALUES (?, ?, ?)", rows)
            case _E.KEEP:
                body = body_of(cast("StoredResponse", change.stored))
                self.sql.do("INSERT OR REPLACE INTO body VALUES (?, ?)", (row.seq, body))
                if before.tip != row.tip:
                    Items(self.sql).let_go(before.tip)
            case _E.JOIN:
                Conversations(self.sql, self.now).join(row.tenant, change.addition)
            case _E.TRIM:
                self.sql.do("DELETE FROM event WHERE response = ?", (row.seq,))
            case _E.REMOVE:
                self._remove(row)
            case _E.WAKE:
                self.woken.append((row.tenant, row.id))
            case _:
                pass

    def _remove(self, row: Row) -> None:
        self.sql.do("DELETE FROM event WHERE response = ?", (row.seq,))
        self.sql.do("DELETE FROM body WHERE response = ?", (row.seq,))
        self.sql.do("DELETE FROM response WHERE seq = ?", (row.seq,))
        Items(self.sql).let_go(row.tip)

    def lost(self, limit: int) -> list[tuple[str, str]]:
        """Return responses whose owner is lost."""
        over = "state = 'lost' OR NOT (? < until AND until <= ?)"  # one that was written about when it was lost is lost for good
        where = f"state IN ('queued', 'running', 'lost') AND ({over}) ORDER BY until LIMIT ?"
        query = f"SELECT tenant, id FROM response WHERE {where}"  # noqa: S608 - a constant
        found = self.sql.rows(query, (self.now, self.now + 2 * LEASE, limit))
        return [(tenant, name) for tenant, name in found if _T.ADOPT in self.machine(self.row(tenant, name)).state.rows]

    def expire(self, limit: int) -> int:
        """Remove responses that are stored no longer, and return how many."""
        if self.ttl is None:
            return 0
        query = "SELECT tenant, id FROM response WHERE written <= ? ORDER BY written LIMIT ?"
        keys = self.sql.rows(query, (self.today - self.ttl, limit))
        for tenant, response_id in keys:
            self._remove(self.row(tenant, response_id))
            self.woken.append((tenant, response_id))
        return len(keys)

    def trimmable(self, kept: float, limit: int) -> list[tuple[str, str]]:
        """Return ended responses that have a log and about which nothing was written for so many seconds."""
        where = "state = 'ended' AND oldest < following AND written <= ? ORDER BY written LIMIT ?"
        query = f"SELECT tenant, id FROM response WHERE {where}"  # noqa: S608 - a constant
        return self.sql.rows(query, (self.today - kept, limit))

    def census(self) -> tuple[Counter[str], tuple[Lease, ...]]:
        """Return how many responses are in each state, and the leases that have not lapsed."""
        counts: Counter[str] = Counter()
        leases: list[Lease] = []
        rows = self.sql.rows("SELECT tenant, id, state, owner, epoch, until, written FROM response")
        for tenant, response_id, state, owner, epoch, until, written in rows:
            row = Row(1, tenant, response_id, state, owner=owner, epoch=epoch, until=until, written=written)
            name = self.machine(row).state.name
            if STORED.states[name].rows:
                counts[name] += 1
            if name in {"queued", "running"}:
                leases.append(Lease(tenant, response_id, owner, epoch))
        return counts, tuple(leases)
