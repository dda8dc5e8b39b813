"""A store in Redis or Valkey, which the processes of several hosts can share.

Acknowledged writes are as durable as Redis makes them: with `appendfsync always` they survive a crash of the machine, with
`everysec` all but the last second does. Redis must not evict (`maxmemory-policy noeviction`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from attrs import define, field

from interlock.fsm.processes.conversation import ConversationTrigger
from interlock.fsm.processes.stored import StoredTrigger
from interlock.serving.requests.input_items import Item
from interlock.serving.store.chain import Chunk, body_of, chunks_of, links_of, pack, put_together, unpack
from interlock.serving.store.interface import (
    Conflict,
    Conversation,
    ConversationEdit,
    Edit,
    EditResult,
    Key,
    Lease,
    Log,
    Notifications,
    ResponseStore,
    SequenceError,
    StoreDown,
    StoredResponse,
    StoreInfo,
    Subscription,
    SweepResult,
    refuse,
)
from interlock.serving.store.redis.client import CONNECTIONS, VERSION, Disconnected, Listener, RedisClient

__all__ = ["RedisStore"]

_T = ConversationTrigger

LONG: Final = 16  # items, from which on the store asks first how many are stored, and sends only the rest
SWEEP_BATCH: Final = 100  # responses that one call of the script removes, during which Redis does nothing else
_NOT_REPEATABLE: Final = frozenset({_T.CHANGE, _T.DELETE})  # they have another effect when they are fired twice


@define(eq=False)
class RedisStore(ResponseStore):
    """Stores responses in Redis; see `ResponseStore`.

    Args:
        url: `redis://` or `rediss://`, with host, port, database, and perhaps a password.
        ttl: Seconds from the last write about a response until it expires; None for never. Conversations do not expire.
        logs: Seconds from the end of a response until its events are removed; None for as long as the response is stored.
        clock: Returns the time in seconds, for tests; None for the clock of Redis, which all processes share.
        max_connections: The most connections of this process, two or more: one of them only receives notifications.
    """

    url: str
    ttl: float | None = None
    logs: float | None = field(default=None, kw_only=True)
    clock: Callable[[], float] | None = field(default=None, kw_only=True)
    max_connections: int = field(default=CONNECTIONS, kw_only=True)
    _notifications: Notifications = field(factory=Notifications, init=False)
    _redis: RedisClient = field(init=False)
    _listener: Listener = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Create the client and the listener, which connect on first use."""
        self._redis = RedisClient(self.url, self.ttl, self.logs, self.clock, self.max_connections)
        self._listener = Listener(self._redis, self._notifications)

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        reply = await self._redis.run("get", tenant, {"id": response_id})
        if reply is None:
            return None
        body, outputs, items = reply
        return put_together(body, reversed(items), int(outputs))

    async def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, Item]:
        ids = [*item_ids]
        bodies: list[bytes] = await self._redis.run("find", tenant, {"ids": ids}) if ids else []
        return {item_id: unpack(body) for item_id, body in zip(ids, bodies, strict=True) if body}

    async def read(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        reply = await self._redis.run("read", tenant, {"id": response_id, "first": first, "limit": limit})
        if reply is None:
            return None
        frames, oldest, following, state, cancelled = reply
        return Log(tuple(frames), first, int(oldest), int(following), state.decode(), bool(cancelled))

    @contextmanager
    def subscribe(self, tenant: str, response_id: str) -> Generator[Subscription]:
        with self._notifications.subscribe((tenant, response_id)) as subscription:
            self._listener.update()
            yield subscription
        self._listener.update()

    async def conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        reply = await self._redis.run("conversation", tenant, {"id": conversation_id, "trigger": ""})
        return _conversation(conversation_id, reply)

    async def conversation_items(self, tenant: str, conversation_id: str) -> tuple[Item, ...] | None:
        bodies: list[bytes] | None = await self._redis.run("conversation_items", tenant, {"id": conversation_id})
        return None if bodies is None else tuple(unpack(body) for body in bodies)

    async def lost(self, limit: int) -> Sequence[Key]:
        lost: list[Key] = []
        for tenant in await self._redis.tenants():
            names = await self._redis.run("lost", tenant, {"limit": limit})
            lost += [(tenant, name.decode()) for name in names]
        return lost[:limit]

    async def sweep(self) -> SweepResult:
        expired, trimmed = 0, 0
        for tenant in await self._redis.tenants():
            while True:
                removed, names = await self._redis.run("sweep", tenant, {"limit": SWEEP_BATCH})
                for name in names:
                    trimmed += await self._write(tenant, name.decode(), Edit(StoredTrigger.TRIM)) is not None
                expired += removed
                if max(removed, len(names)) < SWEEP_BATCH:
                    break
        return SweepResult(expired, trimmed)

    async def info(self) -> StoreInfo:
        """Return what the store contains; the size is that of the whole server."""
        counts: Counter[str] = Counter()
        leases: list[Lease] = []
        totals = Counter(conversations=0, items=0, events=0)
        for tenant in await self._redis.tenants():
            states, owners, events, conversations, items = await self._redis.run("info", tenant, {})
            counts.update(state.decode() for state in states)
            leases += [Lease(tenant, name.decode(), owner.decode(), int(epoch)) for name, owner, epoch in owners]
            totals.update(conversations=conversations, items=int(items), events=events)
        server = await self._redis.server_info()
        kind = f"Redis {server['redis_version']}"
        return StoreInfo(kind, VERSION, counts, **totals, size=int(server["used_memory"]), leases=tuple(leases))

    async def migrate(self) -> int:
        version = await self._redis.layout()
        if version > VERSION:
            message = f"The store has the layout {version}, of a newer release of Interlock; {VERSION} is known here."
            raise StoreDown(message)
        return version

    async def close(self) -> None:
        """Close the connections. The next use connects again."""
        await self._listener.stop()
        await self._redis.close()

    async def _write_conversation(self, tenant: str, conversation_id: str, edit: ConversationEdit) -> Conversation | None:
        chunks = chunks_of(tenant, edit.items)
        arguments: dict[str, object] = {
            "id": conversation_id,
            "trigger": edit.trigger,
            "owner": edit.owner,
            "items": _names(chunks),
            "item": edit.item_id or "",
        }
        metadata = edit.metadata
        if edit.conversation is not None:
            metadata = edit.conversation.metadata
            arguments |= {"created_at": edit.conversation.created_at, "version": edit.conversation.version}
        values = [pack(metadata), *(chunk.packed for chunk in chunks)]
        repeatable = edit.trigger not in _NOT_REPEATABLE
        reply = await self._redis.run("conversation", tenant, arguments, values, repeatable=repeatable)
        if reply == b"held":
            raise Conflict(f"A response is being made that adds to the conversation '{conversation_id}'.")
        return _conversation(conversation_id, reply)

    async def _write(self, tenant: str, response_id: str, edit: Edit) -> EditResult | None:
        chunks = () if edit.stored is None else chunks_of(tenant, edit.stored.conversation)
        links = [link.hex() for link in links_of(tenant, chunks)]
        count = await self._redis.run("count_links", tenant, {"links": links}) if len(links) > LONG else 0
        try:
            reply = await self._run_write(tenant, response_id, edit, chunks, links, count)
        except Disconnected:
            if not _is_repeatable(edit):
                raise
            reply = await self._run_write(tenant, response_id, edit, chunks, links, 0)
            if _was_made(edit, reply):
                return EditResult(edit.epoch or 1, cancelled=False)
        if reply[0] == b"retry":  # the stored links have been deleted meanwhile
            reply = await self._run_write(tenant, response_id, edit, chunks, links, 0)
        match reply:
            case [b"ok", epoch, cancelled]:
                return EditResult(int(epoch), bool(cancelled))
            case [b"sequence", expected]:
                raise SequenceError(int(expected), edit.first)
            case [b"changed"]:
                raise Conflict(f"The conversation '{_target(edit)}' has changed meanwhile.")
            case _:
                refuse(edit, reply[1].decode())
                return None

    async def _run_write(
        self, tenant: str, response_id: str, edit: Edit, chunks: Sequence[Chunk], links: Sequence[str], count: int
    ) -> list[Any]:
        """Run an edit; the first `count` links of the conversation are stored already."""
        stored, addition = edit.stored, edit.addition
        added = () if addition is None else chunks_of(tenant, addition.items)
        arguments: dict[str, object] = {
            "id": response_id,
            "trigger": edit.trigger,
            "leased": edit.epoch is not None,
            "owner": edit.owner,
            "epoch": edit.epoch or 0,
            "first": edit.first,
            "stored_link": links[count - 1] if count else "",
            "links": [[link, *names] for link, names in zip(links[count:], _names(chunks[count:]), strict=True)],
            "outputs": 0 if stored is None else len(stored.output),
            "conversation": _target(edit),
            "version": 0 if addition is None else addition.version,
            "added": _names(added),
        }
        body = b"" if stored is None else body_of(stored)
        values = [body, *(chunk.packed for chunk in (*chunks[count:], *added)), *edit.frames]
        reply: list[Any] = await self._redis.run("write", tenant, arguments, values, repeatable=False)
        return reply


def _conversation(conversation_id: str, reply: Any) -> Conversation | None:  # noqa: ANN401 - any value of Redis
    if reply is None:
        return None
    created_at, metadata, version = reply
    return Conversation(conversation_id, int(created_at), unpack(metadata), int(version))


def _target(edit: Edit) -> str:
    """Return the id of the conversation to which an edit adds, or an empty text."""
    return "" if edit.addition is None else edit.addition.conversation_id


def _is_repeatable(edit: Edit) -> bool:
    """Return whether an edit can be repeated after a lost reply, because a second refusal tells whether it was made."""
    return edit.trigger not in {StoredTrigger.ADOPT, StoredTrigger.DELETE} and edit.addition is None


def _was_made(edit: Edit, reply: Sequence[Any]) -> bool:
    """Return whether the refusal of a repeated edit means that it was made the first time."""
    match reply:
        case [b"sequence", expected]:
            return int(expected) == edit.first + len(edit.frames)
        case [b"refused", b"ended", epoch, _]:
            return edit.trigger is StoredTrigger.FINISH and int(epoch) == edit.epoch
        case [b"refused", b"queued", _, owner]:
            return edit.trigger is StoredTrigger.ENQUEUE and owner.decode() == edit.owner
        case _:
            return False


def _names(chunks: Iterable[Chunk]) -> list[list[str]]:
    """Return digest and id of items."""
    return [[chunk.digest.hex(), chunk.id] for chunk in chunks]
