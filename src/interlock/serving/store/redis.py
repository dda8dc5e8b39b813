"""A store in Redis or Valkey, which the processes of several hosts can share. It needs the package `redis`.

Acknowledged writes are as durable as Redis makes them: with `appendfsync always` they survive a crash of the machine, with
`everysec` all but the last second does. Redis must not evict (`maxmemory-policy noeviction`).

A call of the script is one commit. If the connection is lost, for example because Redis restarts, the next call fails, and may or
may not have been carried out. Repeatable calls are made again; for the others the store decides.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast
from urllib.parse import urlsplit, urlunsplit

import redis.asyncio as redis
from attrs import define, field
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from interlock.events.json import dumps
from interlock.fsm.processes.conversation import CONVERSATION, ConversationTrigger
from interlock.fsm.processes.stored import STORED, StoredTrigger
from interlock.fsm.table import Table
from interlock.serving.requests.input_items import Item
from interlock.serving.store.chain import Chunk, body_of, chunks_of, links_of, pack, put_together, unpack
from interlock.serving.store.interface import (
    LEASE,
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

__all__ = ["SCRIPT", "TIMEOUT", "Disconnected", "RedisClient", "RedisStore", "key_prefix"]

R = TypeVar("R")

VERSION: Final = 1  # of the layout
PREFIX: Final = "interlock"  # of all keys

TIMEOUT: Final = 5.0  # seconds after which a server that does not answer is down
CONNECTION_WAIT: Final = 20.0  # seconds for which a call waits for a free connection: many calls at once are normal

ALIVE: Final = f"{PREFIX}:alive"  # a channel without messages: a connection without any channel cannot listen
RECONNECT: Final = 0.5  # seconds until the listener tries again; subscribers read by themselves meanwhile
SILENCE: Final = 10.0  # seconds for which the listener waits for a message before it asks again

LONG: Final = 16  # items, above which the store first asks how many are stored, and sends only the rest
SWEEP_BATCH: Final = 100  # responses that one call of the script removes, during which Redis does nothing else


def _lua(name: str, table: Table[Any, Any]) -> str:
    """Return a table as Lua: for each state and trigger, the next state and the effects."""
    states: list[str] = []
    for state in table.states.values():
        rows: list[str] = []
        for trigger, (dest, effects) in state.rows.items():
            names = ", ".join(f"'{effect}'" for effect in effects)
            rows.append(f"{trigger} = {{'{dest.name}', {{{names}}}}}")
        states.append(f"{state.name} = {{{', '.join(rows)}}}")
    return f"local {name} = {{{', '.join(states)}}}\n"


SCRIPT: Final = (
    _lua("STORED", STORED) + _lua("CONVERSATION", CONVERSATION) + Path(__file__).with_suffix(".lua").read_text("utf-8")
)


class Disconnected(StoreDown):
    """The connection was lost, or could not be made. Redis may or may not have carried out the call."""


@define(eq=False)
class RedisClient:
    """Runs the script for a `RedisStore`. Each method raises `StoreDown` if the server cannot be used now."""

    url: str
    ttl: float | None
    logs: float | None
    clock: Callable[[], float] | None
    max_connections: int
    _client: redis.Redis | None = field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _script: Any = field(default=None, init=False)
    _tenants: set[str] = field(factory=set[str], init=False)
    """The tenants that this process has registered, after it has checked the layout of the server."""

    @property
    def redacted_url(self) -> str:
        """The URL without the password."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @property
    def client(self) -> Any:  # noqa: ANN401 - the methods of the class have no complete types
        """The client of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            settings: dict[str, Any] = {"socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT}
            settings |= {"max_connections": self.max_connections, "timeout": CONNECTION_WAIT, "retry": Retry(NoBackoff(), 0)}
            pool = cast("Any", redis.BlockingConnectionPool).from_url(self.url, **settings)
            self._client, self._loop = redis.Redis.from_pool(pool), loop
            self._script = self._client.register_script(SCRIPT)
            self._tenants.clear()
        return self._client

    async def run(
        self, operation: str, tenant: str, arguments: dict[str, object], values: Sequence[bytes] = (), *, repeatable: bool = True
    ) -> Any:  # noqa: ANN401 - any value of Redis
        """Run an operation of the script on the keys of a tenant, and return its result.

        The script reads `arguments` as JSON, `values` as bytes. Running a `repeatable` operation twice has the same effect.
        """
        now = -1 if self.clock is None else _milliseconds(self.clock())
        times = {"now": now, "lease": _milliseconds(LEASE), "ttl": _milliseconds(self.ttl), "logs": _milliseconds(self.logs)}
        argv = [dumps({"operation": operation, **times, **arguments}), *values]

        async def call() -> Any:  # noqa: ANN401 - any value of Redis
            if tenant not in self._tenants:
                await self._register(tenant)
            return await self._script(keys=[key_prefix(tenant)], args=argv)

        return await (self._call_repeatable(call) if repeatable else self._call(call))

    async def tenants(self) -> list[str]:
        """Return all tenants that have stored something."""
        tenants = await self._call_repeatable(lambda: self.client.smembers(f"{PREFIX}:tenants"))
        return sorted(tenant.decode() for tenant in tenants)

    async def names(self, tenant: str, index: Literal["written", "conversations"]) -> list[str]:
        """Return the responses of a tenant in the order of their last writes, or its conversations."""
        key = f"{key_prefix(tenant)}:{index}"
        client = self.client
        names = await self._call_repeatable(lambda: client.zrange(key, 0, -1) if index == "written" else client.smembers(key))
        return [name.decode() for name in names]

    async def server_info(self) -> dict[str, Any]:
        """Return the reply of the server to `INFO`."""
        info: dict[str, Any] = await self._call_repeatable(self.client.info)
        return info

    async def layout(self) -> int:
        """Return the version of the layout; an empty server gets the current one."""

        async def call() -> int:
            await self.client.set(f"{PREFIX}:layout", VERSION, nx=True)
            return int(await self.client.get(f"{PREFIX}:layout"))

        return await self._call_repeatable(call)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    async def _call_repeatable(self, call: Callable[[], Awaitable[R]]) -> R:
        """Make a call, and repeat it if the connection was lost."""
        try:
            return await self._call(call)
        except Disconnected:
            return await self._call(call)

    async def _call(self, call: Callable[[], Awaitable[R]]) -> R:
        """Make a call; after an error, close the connections that are not in use."""
        client = self.client
        try:
            return await call()
        except (RedisError, OSError) as error:
            self._tenants.clear()  # another server may come back
            await client.connection_pool.disconnect(inuse_connections=False)
            kind = Disconnected if isinstance(error, (RedisConnectionError, OSError)) else StoreDown
            raise kind(f"{self.redacted_url} cannot be used: {error}.") from error

    async def _register(self, tenant: str) -> None:
        """Check the layout of the server, and add a tenant to its list."""
        version = await self.layout()
        if version != VERSION:
            raise StoreDown(
                f"{self.redacted_url} has the layout {version}, and {VERSION} is needed: see `interlock store migrate`."
            )
        await self.client.sadd(f"{PREFIX}:tenants", tenant)
        self._tenants.add(tenant)


@define(eq=False)
class Listener:
    """Receives the notifications of all subscriptions of a process on one connection."""

    redis: RedisClient
    notifications: Notifications
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    def update(self) -> None:
        """Adjust the channels to the subscriptions, soon."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._listen())
        self._changed.set()

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    @property
    def _is_current(self) -> bool:
        """Whether the running task is still the listener; the client may swallow a cancellation."""
        return self._task is asyncio.current_task()

    async def _listen(self) -> None:
        while self._is_current:
            try:
                async with self.redis.client.pubsub() as pubsub:
                    await pubsub.subscribe(ALIVE)
                    await self._receive(pubsub)
            except (RedisError, OSError):
                await asyncio.sleep(RECONNECT if self._is_current else 0)

    async def _receive(self, pubsub: Any) -> None:  # noqa: ANN401 - of a class without types
        """Receive messages on one connection until it is lost, and follow the subscriptions."""
        channels: dict[bytes, Key] = {}
        message = asyncio.create_task(pubsub.get_message(timeout=SILENCE))
        change = asyncio.create_task(self._changed.wait())
        self._changed.set()
        try:
            while self._is_current:
                await asyncio.wait({message, change}, return_when=asyncio.FIRST_COMPLETED)
                if change.done():
                    self._changed.clear()
                    await self._subscribe(pubsub, channels)
                    change = asyncio.create_task(self._changed.wait())
                if message.done():
                    key = channels.get(message.result()["channel"]) if message.result() else None
                    if key is not None:  # the confirmation of a new channel counts: there may be changes from before it
                        self.notifications.notify([key])
                    message = asyncio.create_task(pubsub.get_message(timeout=SILENCE))
        finally:
            message.cancel()
            change.cancel()
            await asyncio.gather(message, change, return_exceptions=True)

    async def _subscribe(self, pubsub: Any, channels: dict[bytes, Key]) -> None:  # noqa: ANN401 - likewise
        """Subscribe to the channels of all subscriptions, and to no others."""
        wanted = {f"{key_prefix(tenant)}:w:{name}".encode(): (tenant, name) for tenant, name in self.notifications.responses()}
        added, removed = wanted.keys() - channels.keys(), channels.keys() - wanted.keys()
        channels.clear()
        channels.update(wanted)
        if added:
            await pubsub.subscribe(*added)
        if removed:
            await pubsub.unsubscribe(*removed)


def key_prefix(tenant: str) -> str:
    """Return the beginning of all keys of a tenant: a digest of its name, in the braces of a hash tag for clusters."""
    return f"{PREFIX}:{{{blake2b(tenant.encode(), digest_size=8).hexdigest()}}}"


def _milliseconds(seconds: float | None) -> int:
    return 0 if seconds is None else round(seconds * 1000)


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
    max_connections: int = field(default=50, kw_only=True)
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

    async def responses(self) -> AsyncGenerator[Key, None]:
        for tenant in await self._redis.tenants():
            for name in await self._redis.names(tenant, "written"):
                yield tenant, name

    async def conversations(self) -> AsyncGenerator[Key, None]:
        for tenant in await self._redis.tenants():
            for name in await self._redis.names(tenant, "conversations"):
                yield tenant, name

    async def info(self) -> StoreInfo:
        """Return the store's contents; the size is the memory of the server."""
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
        # Firing these two again has another effect.
        repeatable = edit.trigger not in {ConversationTrigger.CHANGE, ConversationTrigger.DELETE}
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
            if edit.addition is not None or edit.trigger in {StoredTrigger.ADOPT, StoredTrigger.DELETE}:
                raise  # a second refusal would not tell whether the edit was made
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
