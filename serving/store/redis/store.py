"""A store in Redis or Valkey, which the processes of several hosts may share.

What is acknowledged is there as long as Redis keeps it: with `appendfsync always` whatever happens, with `everysec` but for the
last second before the machine stops. Redis must not evict (`maxmemory-policy noeviction`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from attrs import define, field

from interlock.fsm.processes.stored import StoredTrigger
from interlock.serving.requests.conversation import Item
from interlock.serving.store.changes import Change
from interlock.serving.store.errors import Conflict, Gap, LeaseLost, StoreDown
from interlock.serving.store.leases import Lease
from interlock.serving.store.packing import unpack
from interlock.serving.store.pieces import Piece, body_of, links_of, pieces_of, put_together
from interlock.serving.store.redis.calls import CONNECTIONS, Calls, Severed
from interlock.serving.store.redis.conversing import RedisConversations
from interlock.serving.store.redis.listening import Listener
from interlock.serving.store.redis.scripts import VERSION
from interlock.serving.store.values import Info, Log, StoredResponse, Swept
from interlock.serving.store.wakes import Wakes, Watch
from interlock.serving.store.writing import Writing, Written

__all__ = ["RedisStore"]

LONG: Final = 16
"""Items of a conversation from which on it is asked first how much of it is stored already, to send the rest only."""

SWEPT_AT_ONCE: Final = 100
"""Responses that are removed by one script, during which Redis does nothing else."""

_LEASED: Final = frozenset({StoredTrigger.APPEND, StoredTrigger.RENEW, StoredTrigger.FINISH})
_NEW: Final = frozenset({StoredTrigger.PUT, StoredTrigger.ENQUEUE})


@define(eq=False)
class RedisStore(RedisConversations, Writing):
    """Holds responses in Redis; see `ResponseStore`.

    Args:
        url: `redis://` or `rediss://`, with host, port, database, and perhaps a password.
        ttl: Seconds for which a response is stored after it was written last; None for ever. Conversations stay.
        logs: Seconds for which the events of a response are, after its end; None for as long as it.
        clock: Tells the time in seconds; None for the clock of Redis, which all processes have in common. Another is for tests.
        max_connections: How many connections this process has at most, two or more: one of them only listens for changes.
    """

    url: str
    ttl: float | None = None
    logs: float | None = field(default=None, kw_only=True)
    clock: Callable[[], float] | None = field(default=None, kw_only=True)
    max_connections: int = field(default=CONNECTIONS, kw_only=True)
    _wakes: Wakes = field(factory=Wakes, init=False)
    _listener: Listener = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make what connects when it is needed."""
        self._calls = Calls(self.url, self.ttl, self.logs, self.clock, self.max_connections)
        self._listener = Listener(self._calls, self._wakes)

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response."""
        found = await self._calls.run("get", tenant, {"id": response_id})
        if found is None:
            return None
        body, outputs, items = found
        return put_together(body, reversed(items), int(outputs))

    async def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, Item]:
        """Return items that are held."""
        wanted = [*item_ids]
        bodies: list[bytes] = await self._calls.run("find", tenant, {"ids": wanted}) if wanted else []
        return {item_id: cast("Item", unpack(body)) for item_id, body in zip(wanted, bodies, strict=True) if body}

    async def read(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        """Return events of a response."""
        found = await self._calls.run("read", tenant, {"id": response_id, "first": first, "limit": limit})
        if found is None:
            return None
        frames, oldest, following, state, cancelled = found
        return Log(tuple(frames), first, int(oldest), int(following), state.decode(), bool(cancelled))

    @contextmanager
    def watching(self, tenant: str, response_id: str) -> Generator[Watch]:
        """Watch a response."""
        with self._wakes.watching(tenant, response_id) as watch:
            self._listener.hurry()
            yield watch
        self._listener.hurry()

    async def lost(self, limit: int) -> Sequence[tuple[str, str]]:
        """Return responses whose owner is lost."""
        lost: list[tuple[str, str]] = []
        for tenant in await self._calls.tenants():
            found = await self._calls.run("lost", tenant, {"limit": limit})
            lost += [(tenant, name.decode()) for name in found]
        return lost[:limit]

    async def sweep(self) -> Swept:
        """Remove what is stored no longer."""
        expired, trimmed = 0, 0
        for tenant in await self._calls.tenants():
            while True:
                removed, names = await self._calls.run("sweep", tenant, {"limit": SWEPT_AT_ONCE})
                for name in names:
                    trimmed += await self._write(tenant, name.decode(), Change(StoredTrigger.TRIM)) is not None
                expired += removed
                if max(removed, len(names)) < SWEPT_AT_ONCE:
                    break
        return Swept(expired, trimmed)

    async def info(self) -> Info:
        """Return what is in the store; the size is that of all of the server."""
        counts: Counter[str] = Counter()
        leases: list[Lease] = []
        conversations = items = events = 0
        for tenant in await self._calls.tenants():
            states, owners, logged, talks, pieces = await self._calls.run("census", tenant, {})
            counts.update(state.decode() for state in states)
            leases += [Lease(tenant, name.decode(), owner.decode(), int(epoch)) for name, owner, epoch in owners]
            conversations, items, events = conversations + talks, items + int(pieces), events + logged
        about = await self._calls.about()
        kind = f"Redis {about['redis_version']}"
        return Info(kind, VERSION, counts, conversations, items, events, int(about["used_memory"]), tuple(leases))

    async def migrate(self) -> int:
        """Bring the layout up to date; there is one only.

        Raises:
            StoreDown: The server has the layout of a newer release.
        """
        version = await self._calls.layout()
        if version > VERSION:
            message = f"The store has the layout {version}, of a newer release of Interlock; {VERSION} is known here."
            raise StoreDown(message)
        return version

    async def close(self) -> None:
        """Let go of the connections. What is asked for afterwards connects again."""
        await self._listener.stop()
        await self._calls.close()

    async def _write(self, tenant: str, response_id: str, change: Change) -> Written | None:
        """Fire the edge of a change in a script."""
        pieces = () if change.stored is None else pieces_of(tenant, change.stored.conversation)
        links = [link.hex() for link in links_of(tenant, pieces)]
        known = await self._calls.run("known", tenant, {"links": links}) if len(links) > LONG else 0
        try:
            told = await self._told(tenant, response_id, change, pieces, links, known)
        except Severed:
            if not _may_come_again(change):
                raise
            told = await self._told(tenant, response_id, change, pieces, links, 0)
            if _was_made(change, told):
                return Written(max(change.epoch, 1), cancelled=False)
        if told[0] == b"again":  # what was there of the conversation has been deleted meanwhile
            told = await self._told(tenant, response_id, change, pieces, links, 0)
        match told:
            case [b"ok", epoch, cancelled]:
                return Written(int(epoch), bool(cancelled))
            case [b"gap", expected]:
                raise Gap(int(expected), change.first)
            case [b"lease", state, _]:
                raise LeaseLost(f"The lease of {change.owner!r} is over: the response is {state.decode()}.")
            case [b"none", state, _] if change.trigger in _NEW:
                raise Conflict(f"There is a response with that id already; it is {state.decode()}.")
            case [b"changed"]:
                raise Conflict(f"The conversation '{_joined(change)}' has changed meanwhile.")
            case _:
                return None

    async def _told(
        self, tenant: str, response_id: str, change: Change, pieces: Sequence[Piece], links: Sequence[str], known: int
    ) -> list[Any]:
        """Run the script that writes."""
        stored, addition = change.stored, change.addition
        added = () if addition is None else pieces_of(tenant, addition.items)
        asked: dict[str, object] = {
            "id": response_id,
            "trigger": change.trigger,
            "leased": change.trigger in _LEASED,
            "owner": change.owner,
            "epoch": change.epoch,
            "first": change.first,
            "known": links[known - 1] if known else "",
            "links": [[link, *_named(piece)] for link, piece in zip(links[known:], pieces[known:], strict=True)],
            "outputs": 0 if stored is None else len(stored.output),
            "conversation": _joined(change),
            "version": 0 if addition is None else addition.version,
            "added": [[*_named(piece)] for piece in added],
        }
        body = b"" if stored is None else body_of(stored)
        values = [body, *(piece.packed for piece in (*pieces[known:], *added)), *change.frames]
        told: list[Any] = await self._calls.run("write", tenant, asked, values, again=False)
        return told


def _joined(change: Change) -> str:
    """Return the conversation to which a change adds."""
    return "" if change.addition is None else change.addition.conversation_id


def _may_come_again(change: Change) -> bool:
    """Return whether a change may be made again when it is not known whether it was made: whether it can be seen afterwards."""
    return change.trigger not in {StoredTrigger.ADOPT, StoredTrigger.DELETE} and change.addition is None


def _was_made(change: Change, told: Sequence[Any]) -> bool:
    """Return whether the refusal of a change that came again says that it was made the first time: by nobody else."""
    match told:
        case [b"gap", expected]:
            return int(expected) == change.first + len(change.frames)
        case [b"lease", b"ended", epoch]:
            return change.trigger is StoredTrigger.FINISH and int(epoch) == change.epoch
        case [b"none", b"queued", owner]:
            return change.trigger is StoredTrigger.ENQUEUE and owner.decode() == change.owner
        case _:
            return False


def _named(piece: Piece) -> tuple[str, str]:
    return piece.digest.hex(), piece.id
