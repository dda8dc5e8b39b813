"""The connections to Redis: a client that runs the script of the store, and a listener that receives notifications.

A call of the script is one commit. If a connection is lost, for example because Redis restarts, the next call notices, and cannot
know whether Redis has carried it out. A call that may be made twice is repeated; for the others the caller decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlsplit, urlunsplit

import redis.asyncio as redis
from attrs import define, field
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from interlock.events.json import dumps
from interlock.fsm.processes.conversation import CONVERSATION
from interlock.fsm.processes.stored import STORED
from interlock.fsm.table import Table
from interlock.serving.store.interface import LEASE, Key, Notifications, StoreDown

__all__ = ["CONNECTIONS", "SCRIPT", "VERSION", "Disconnected", "Listener", "RedisClient"]

R = TypeVar("R")

VERSION: Final = 1  # of the layout
PREFIX: Final = "interlock"  # of all keys

CONNECTIONS: Final = 50  # the default of `max_connections`
TIMEOUT: Final = 5.0  # seconds after which a server that does not answer is down
CONNECTION_WAIT: Final = 20.0  # seconds for which a call waits for a free connection: many calls at once are no fault

ALIVE: Final = f"{PREFIX}:alive"  # a channel without messages: a connection without any channel cannot listen
RECONNECT: Final = 0.5  # seconds until the listener tries again; subscribers read by themselves meanwhile
SILENCE: Final = 10.0  # seconds for which the listener waits for a message before it asks again


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
    _lua("STORED", STORED)
    + _lua("CONVERSATION", CONVERSATION)
    + Path(__file__).with_name("store.lua").read_text(encoding="utf-8")
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

        It reads `arguments` as JSON, and `values` as bytes. A `repeatable` operation has the same effect when it is run twice.
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
        """Close the connections."""
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
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    @property
    def _is_current(self) -> bool:
        """Whether the running task goes on; its cancellation alone does not tell, because the client may swallow it."""
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
