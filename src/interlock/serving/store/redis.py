"""A store in Redis or Valkey, which processes on several hosts can share. It needs the package `redis`.

Redis decides how durable acknowledged writes are: with `appendfsync always`, all survive a crash of the machine; with `everysec`,
all but those of the last second. Redis must not evict keys (`maxmemory-policy noeviction`).

Writes are calls of a Lua script (`redis.lua`), each of which is one commit. If the connection is lost, for example when Redis
restarts, a call fails, and Redis may or may not have carried it out. The client repeats calls that are safe to repeat.
`RedisStore._write` repeats most other writes of responses, and recognizes from the reply whether the first attempt was committed.
Adopting or deleting a response, and changing the items of a conversation or deleting it, fail with `Disconnected`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from attrs import define, evolve, field

from interlock.events.json import clean
from interlock.fsm.processes.conversation import CONVERSATION, ConversationTrigger
from interlock.fsm.processes.stored import STORED, StoredTrigger
from interlock.fsm.table import AnyTable
from interlock.serving.requests.input_items import JsonItem
from interlock.serving.store import (
    LEASE,
    SHARED,
    ConversationEdit,
    Edit,
    EditResult,
    Lease,
    Log,
    ResponseKey,
    ResponseStore,
    SequenceError,
    StoredConversation,
    StoredResponse,
    StoreInfo,
    Subscription,
    SweepResult,
    WrongLayout,
    conversation_conflict,
    refuse,
)
from interlock.serving.store.chain import StoredChunk, body_of, chunks_of, index_id, pack, put_together, unpack
from interlock.serving.store.redis_client import PREFIX, Disconnected, Listener, RedisClient, Reply, as_text, key_prefix

VERSION: Final = 2  # of the layout
TAIL: Final = 8  # the last items of a conversation, which every write sends; the others are sent only if Redis lacks them
PAGE: Final = 100  # the most responses in one call of the script, which blocks Redis meanwhile, and the most concurrent calls


def _lua(name: str, table: AnyTable) -> str:
    """Return a table as Lua source: for each state and trigger, the next state, the effects, and whether it is the owner's."""
    states: list[str] = []
    for state in table.states.values():
        rows: list[str] = []
        for trigger, (dest, effects) in state.rows.items():
            names = ", ".join(f"'{effect}'" for effect in effects)
            rows.append(f"{trigger} = {{'{dest.name}', {{{names}}}, {str(trigger in table.owned).lower()}}}")
        states.append(f"{state.name} = {{{', '.join(rows)}}}")
    return f"local {name} = {{{', '.join(states)}}}\n"


SCRIPT: Final = "".join(
    [
        f"local PREFIX, VERSION = '{PREFIX}', '{VERSION}'\n",
        _lua("STORED", STORED),
        _lua("CONVERSATION", CONVERSATION),
        Path(__file__).with_suffix(".lua").read_text("utf-8"),
    ]
)


@define(eq=False)
class RedisStore(ResponseStore):
    """Stores responses in Redis."""

    url: str  # redis:// or rediss://, with host, port, database and, if needed, a password
    max_connections: int = field(default=8, kw_only=True)  # of this process; one of them receives only notifications
    _redis: RedisClient = field(init=False)
    _listener: Listener = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Create the client and the listener, which connect on first use."""
        self._redis = RedisClient(self.url, SCRIPT, self.max_connections)
        self._listener = Listener(self._redis, self._notifications)

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        reply = await self._run("get", tenant, {"id": response_id})
        if reply is None:
            return None
        body, outputs, items = reply
        return put_together(body, reversed(items), int(outputs))

    async def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, JsonItem]:
        ids = [clean(item_id) for item_id in item_ids]
        bodies: list[bytes] = await self._run("find", tenant, {"ids": [*map(index_id, ids)]}) if ids else []
        return {item_id: unpack(body) for item_id, body in zip(ids, bodies, strict=True) if body}

    async def read(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        reply = await self._run("read", tenant, {"id": response_id, "first": first, "limit": limit})
        if reply is None:
            return None
        frames, oldest, following, state, cancelled, *_ = reply
        return Log(tuple(frames), first, int(oldest), int(following), state.decode(), bool(cancelled))

    @contextmanager
    def subscribe(self, tenant: str, response_id: str) -> Generator[Subscription]:
        with self._notifications.subscribe((tenant, response_id)) as subscription:
            self._listener.start()
            try:
                yield subscription
            finally:
                self._listener.update()

    async def conversation(self, tenant: str, conversation_id: str) -> StoredConversation | None:
        reply = await self._run("conversation", tenant, {"id": conversation_id, "trigger": ""})
        return _conversation(conversation_id, reply)

    async def conversation_items(self, tenant: str, conversation_id: str) -> tuple[JsonItem, ...] | None:
        bodies: list[bytes] | None = await self._run("conversation_items", tenant, {"id": conversation_id})
        return None if bodies is None else tuple(unpack(body) for body in bodies)

    async def lost(self, limit: int) -> Sequence[ResponseKey]:
        lost: list[tuple[int, str, str]] = []
        for tenant in await self._tenants():
            replies = await self._run("lost", tenant, {"limit": limit})
            lost += [(int(till), tenant, name.decode()) for till, name in replies]
        return [(tenant, name) for _, tenant, name in sorted(lost)[:limit]]

    async def sweep(self) -> SweepResult:
        expired, trimmed = 0, 0
        for tenant in await self._tenants():
            while True:
                removed, names = await self._run("sweep", tenant, {"limit": PAGE})
                for name in names:
                    trimmed += await self._write(tenant, name.decode(), Edit(StoredTrigger.TRIM)) is not None
                expired += removed
                if not removed and len(names) < PAGE:
                    break
        return SweepResult(expired, trimmed)

    def responses(self) -> AsyncGenerator[ResponseKey, None]:
        """Yield the tenant and id of every response that is not hidden, for each tenant in the order of their last writes."""
        return self._list("written", "ZRANGE", 0, -1)

    def conversations(self) -> AsyncGenerator[ResponseKey, None]:
        return self._list("conversations", "SMEMBERS")

    async def _list(self, index: str, command: str, *arguments: int) -> AsyncGenerator[ResponseKey, None]:
        """Yield the tenant and id of the responses or conversations that a command reads from an index of the script."""
        for tenant in await self._tenants():
            ids: Iterable[bytes] = await self._redis.execute(command, f"{key_prefix(tenant)}:{index}", *arguments)
            for each in ids:
                yield tenant, each.decode()

    async def info(self) -> StoreInfo:
        """Return how much is stored, and the leases; `size` is all memory that the server uses."""
        counts: Counter[str] = Counter()
        leases: list[Lease] = []
        events = 0
        responses = [key async for key in self.responses()] + [key async for key in self._list("hidden", "ZRANGE", 0, -1)]
        async for (tenant, name), reply in self._run_each("read", responses, {"first": -1, "limit": 0}):
            if reply is not None:
                _, oldest, following, state, _, owner, epoch = reply
                counts[state.decode()] += 1
                events += following - oldest
                if {StoredTrigger.LAPSE, StoredTrigger.RENEW} <= STORED.states[state.decode()].rows.keys():
                    leases.append(Lease(tenant, name, owner.decode(), int(epoch)))
        conversations = len([key async for key in self.conversations()])
        items = sum([int(await self._redis.execute("GET", f"{key_prefix(each)}:count") or 0) for each in await self._tenants()])
        server = await self._redis.execute("INFO")
        kind = f"Valkey {server['valkey_version']}" if "valkey_version" in server else f"Redis {server['redis_version']}"
        return StoreInfo(kind, VERSION, counts, conversations, items, events, int(server["used_memory"]), tuple(leases))

    async def migrate(self) -> int:
        version = int(await self._run("layout", SHARED, {}) or VERSION)
        if version > VERSION:
            raise WrongLayout(version, VERSION, self._redis.redacted_url)
        if version < VERSION:
            await self._migrate()
        return version

    async def _migrate(self) -> None:
        """Migrate layout 1. Migrated keys are left alone, so an interrupted migration can be repeated."""
        keys = [key async for key in self.responses()] + [key async for key in self.conversations()]
        async for _ in self._run_each("migrate", keys, {}):
            pass
        for prefix in [key_prefix(tenant) for tenant in await self._tenants()]:
            await self._redis.execute("DEL", f"{prefix}:items")
            for pattern, kind in (("i:*", "hash"), ("l:*", "hash"), ("n:*", "list")):
                await self._delete(f"{prefix}:{pattern}", kind)
        await self._redis.execute("SET", f"{PREFIX}:layout", VERSION)

    async def _delete(self, pattern: str, kind: str) -> None:
        """Delete the keys of a type whose names match a pattern."""
        cursor = -1
        while cursor:
            cursor, keys = await self._redis.execute("SCAN", max(cursor, 0), "MATCH", pattern, "COUNT", 1000, "TYPE", kind)
            if keys:
                await self._redis.execute("DEL", *keys)

    async def close(self) -> None:
        """Close the connections. The next use connects again."""
        await self._listener.stop()
        await self._redis.close()

    async def _run(self, operation: str, tenant: str, arguments: Mapping[str, object], *, repeatable: bool = True) -> Reply:
        """Run an operation of the script on the keys of a tenant; for `repeatable`, see `RedisClient.execute`."""
        now = -1 if self.clock is None else _milliseconds(self.clock())
        times = {"now": now, "lease": _milliseconds(LEASE), "ttl": _milliseconds(self.ttl), "logs": _milliseconds(self.logs)}
        texts = {name: clean(value) for name, value in arguments.items() if isinstance(value, str)}
        packed = msgspec.msgpack.encode({"operation": operation, "tenant": tenant, **times, **arguments, **texts})
        return await self._redis.execute("EVALSHA", self._redis.digest, 1, key_prefix(tenant), packed, repeatable=repeatable)

    async def _run_each(
        self, operation: str, keys: Sequence[ResponseKey], arguments: Mapping[str, object]
    ) -> AsyncGenerator[tuple[ResponseKey, Reply], None]:
        """Run an operation for each of these responses or conversations, and yield their keys and the results."""
        for start in range(0, len(keys), PAGE):
            page = keys[start : start + PAGE]
            replies = await asyncio.gather(*(self._run(operation, tenant, {"id": name, **arguments}) for tenant, name in page))
            for key, reply in zip(page, replies, strict=True):
                yield key, reply

    async def _tenants(self) -> list[str]:
        """Return all tenants that have stored something."""
        return sorted(tenant.decode() for tenant in await self._run("tenants", SHARED, {}))

    async def _write_conversation(self, tenant: str, conversation_id: str, edit: ConversationEdit) -> StoredConversation | None:
        new = edit.conversation
        arguments: dict[str, object] = {
            "id": conversation_id,
            "trigger": edit.trigger.value,
            "owner": edit.owner,
            "items": _members(chunks_of(tenant, edit.items)),
            "item": index_id(edit.item_id or ""),
            "metadata": as_text(pack(edit.metadata if new is None else new.metadata)),
        }
        if new is not None:
            arguments |= {"created_at": new.created_at, "version": new.version}
        # A repeated change would change the items twice, and a repeated deletion would find no conversation.
        repeatable = edit.trigger not in {ConversationTrigger.CHANGE, ConversationTrigger.DELETE}
        reply = await self._run("conversation", tenant, arguments, repeatable=repeatable)
        match reply:
            case [b"refused", owner] if edit.trigger is ConversationTrigger.HOLD and owner.decode() == edit.owner:
                # The first attempt was committed, because no response starts twice.
                return await self._write_conversation(tenant, conversation_id, evolve(edit, trigger=ConversationTrigger.RENEW))
            case [b"refused", _]:
                raise conversation_conflict(conversation_id, edit.trigger)
            case _:
                return _conversation(conversation_id, reply)

    async def _write(self, tenant: str, response_id: str, edit: Edit) -> EditResult | None:
        try:
            reply = await self._run_write(tenant, response_id, edit)
        except Disconnected:
            if edit.trigger in {StoredTrigger.ADOPT, StoredTrigger.DELETE}:
                raise  # a refused repetition would not tell whether the edit was made
            reply = await self._run_write(tenant, response_id, edit)
            if _was_made(edit, reply):
                return EditResult(edit.epoch or 1, cancelled=False)
        match reply:
            case [b"ok", epoch, cancelled]:
                return EditResult(int(epoch), bool(cancelled))
            case [b"sequence", expected]:
                raise SequenceError(int(expected), edit.first)
            case [b"changed", _]:
                raise conversation_conflict(_target(edit), ConversationTrigger.JOIN)
            case _:
                refuse(edit, reply[1].decode())
                return None

    async def _run_write(self, tenant: str, response_id: str, edit: Edit) -> list[Reply]:
        stored, addition = edit.stored, edit.addition
        arguments: dict[str, object] = {
            "id": response_id,
            "trigger": edit.trigger.value,
            "owner": edit.owner,
            "epoch": edit.epoch or 0,
            "first": edit.first,
            "frames": [*map(as_text, edit.frames)],
            "outputs": 0 if stored is None else len(stored.output),
            "body": as_text(b"" if stored is None else body_of(stored)),
            "conversation": _target(edit),
            "holder": "" if addition is None else addition.owner,
            "added": _members(() if addition is None else chunks_of(tenant, addition.items)),
        }
        chunks = () if stored is None else chunks_of(tenant, stored.conversation)
        linked = max(len(chunks) - TAIL, 0)  # of these items it sends only the links
        while True:
            items = [*([as_text(chunk.link)] for chunk in chunks[:linked]), *_members(chunks[linked:])]
            reply: list[Reply] = await self._run("write", tenant, {**arguments, "items": items}, repeatable=False)
            if reply[0] != b"incomplete":
                return reply
            linked = int(reply[1])  # the items that Redis has


def _conversation(conversation_id: str, reply: Reply) -> StoredConversation | None:
    if reply is None:
        return None
    created_at, metadata, version = reply
    return StoredConversation(conversation_id, int(created_at), unpack(metadata), int(version))


def _target(edit: Edit) -> str:
    """Return the id of the conversation that an edit adds to, or an empty string."""
    return "" if edit.addition is None else edit.addition.conversation_id


def _was_made(edit: Edit, reply: Sequence[Reply]) -> bool:
    """Return whether the refusal of a repeated edit shows that the first attempt was committed."""
    match reply:
        case [b"sequence", expected]:
            return int(expected) == edit.first + len(edit.frames)
        case [b"refused", b"ended", epoch, _]:
            return edit.trigger is StoredTrigger.FINISH and int(epoch) == edit.epoch
        case [b"changed", b"ended"]:  # the response joined its conversation in the same commit
            return edit.trigger is StoredTrigger.PUT
        case [b"refused", b"hidden", *_]:
            return edit.trigger is StoredTrigger.HIDE
        case [b"refused", b"queued", _, owner]:
            return edit.trigger is StoredTrigger.ENQUEUE and owner.decode() == edit.owner
        case _:
            return False


def _members(chunks: Iterable[StoredChunk]) -> list[list[object]]:
    """Return the link, digest, id and JSON of each item for the script."""
    return [[as_text(chunk.link), as_text(chunk.digest), chunk.id, as_text(chunk.packed)] for chunk in chunks]


def _milliseconds(seconds: float | None) -> int:
    """Return a duration or a time as the script takes it: -1 stands for no limit."""
    return -1 if seconds is None else round(seconds * 1000)
