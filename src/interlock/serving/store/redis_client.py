"""Connections to Redis: some send many calls in one round trip, and one listens for notifications."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b, sha1
from struct import pack
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlsplit, urlunsplit

import msgspec
import redis.asyncio as redis
from attrs import define, field
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError

from interlock.events.json import clean
from interlock.serving.store import Notifications, ResponseKey, StoreDown, WrongLayout

logger = logging.getLogger(__name__)

Reply: TypeAlias = Any
"""Any value of Redis."""
UntypedClient: TypeAlias = Any
"""A client or a connection of the package `redis`, whose methods have no complete types."""
PendingCommand: TypeAlias = tuple[tuple[object, ...], "asyncio.Future[Reply]"]  # a command and its future reply

PREFIX: Final = "interlock"  # of all keys
TIMEOUT: Final = 5.0  # seconds that the server has to answer
BATCH: Final = 64  # the most calls in one round trip
BATCH_SIZE: Final = 2**14
"""A round trip takes no more calls after this many bytes, which Redis reads at once, and logs in one write."""

ALIVE: Final = f"{PREFIX}:alive"  # a channel without messages, because a connection needs a channel to listen
RECONNECT: Final = 0.5  # seconds until the listener connects again; meanwhile, subscribers poll
STRING: Final = 0xDB  # the MessagePack type of a string with a length of 32 bits
SILENCE: Final = 10.0  # seconds that the listener waits for one message


class Disconnected(StoreDown):
    """The connection was lost or could not be opened. Redis may or may not have carried out the call."""


@define(eq=False)
class RedisClient:
    """Sends commands to Redis. Those that arrive while all connections are busy share a round trip."""

    url: str
    script: str  # loaded into Redis if that does not know it
    max_connections: int
    digest: str = field(init=False)  # the name of the script in Redis, for EVALSHA
    _client: redis.Redis | None = field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _calls: deque[PendingCommand] = field(factory=deque[PendingCommand], init=False)
    _senders: set[asyncio.Task[None]] = field(factory=set["asyncio.Task[None]"], init=False)
    _has_checked_policy: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.digest = sha1(self.script.encode(), usedforsecurity=False).hexdigest()

    @property
    def redacted_url(self) -> str:
        """The URL without user name and password."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @property
    def client(self) -> UntypedClient:
        """The client for the running event loop."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            settings: dict[str, object] = {"socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT}
            settings |= {"max_connections": self.max_connections, "retry": Retry(NoBackoff(), 0)}
            if self.url.startswith("rediss:"):
                settings["ssl_check_hostname"] = True  # the default from redis-py 6 on
            self._client, self._loop = cast("UntypedClient", redis.Redis).from_url(self.url, **settings), loop
            self._calls, self._senders = deque(), set()
        return self._client

    async def execute(self, *command: object, repeatable: bool = True) -> Reply:
        """Send a command, and return its reply.

        A `repeatable` command has the same effect when it runs twice; it is sent again if the connection was lost.

        Raises:
            StoreDown: Redis cannot be used now.
        """
        try:
            return await self._enqueue(command)
        except Disconnected:
            if not repeatable:
                raise
            return await self._enqueue(command)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await asyncio.gather(*self._senders)
            await client.aclose()

    async def _enqueue(self, command: tuple[object, ...]) -> Reply:
        client = self.client
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._calls.append((command, reply))
        if len(self._senders) < self.max_connections - 1:  # the listener needs one
            self._senders.add(asyncio.create_task(self._send_all(client, self._calls)))
        return await reply

    async def _send_all(self, client: UntypedClient, calls: deque[PendingCommand]) -> None:
        """Send batch after batch of calls until none waits."""
        try:
            while calls:
                await self._send_batch(client, _next_batch(calls))
        finally:  # no `await` since `calls` was empty, so that no call relies on this sender
            self._senders.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _send_batch(self, client: UntypedClient, batch: Sequence[PendingCommand]) -> None:
        """Send calls in one round trip, and set their results."""
        replies: list[Reply]
        try:
            replies = await self._send(client, [command for command, _ in batch])
        except Exception as error:  # noqa: BLE001 - any error is passed on to the callers
            with suppress(RedisError, OSError):
                await client.connection_pool.disconnect(inuse_connections=False)  # idle connections are lost too
            replies = [error] * len(batch)
        for (_, future), reply in zip(batch, replies, strict=True):
            if future.done():  # the caller was cancelled
                continue
            if isinstance(reply, Exception):
                future.set_exception(self._store_down(reply) if isinstance(reply, (RedisError, OSError)) else reply)
            else:
                future.set_result(reply)

    async def _send(self, client: UntypedClient, commands: Sequence[tuple[object, ...]]) -> list[Reply]:
        """Send commands, and return the reply to each, which may be an error."""
        if not self._has_checked_policy:
            await self._check_policy(client)
        replies = await _execute(client, commands)
        unknown = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:  # the server is new, or has restarted
            _, *repeated = await _execute(client, [("SCRIPT LOAD", self.script), *(commands[index] for index in unknown)])
            for index, reply in zip(unknown, repeated, strict=True):
                replies[index] = reply
        return replies

    async def _check_policy(self, client: UntypedClient) -> None:
        """Log a warning if the server may evict keys."""
        [memory] = await _execute(client, [("INFO", "memory")])
        self._has_checked_policy = True
        policy = "noeviction" if isinstance(memory, ResponseError) else memory.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            logger.warning(
                "%s has the maxmemory-policy %s, and may lose stored responses; set it to noeviction", self.redacted_url, policy
            )

    def _store_down(self, error: Exception) -> StoreDown:
        message = str(error)
        if message.startswith("LAYOUT "):
            _, version, needed = message.split()
            return WrongLayout(int(version), int(needed), self.redacted_url)
        kind = Disconnected if isinstance(error, (RedisConnectionError, OSError)) else StoreDown
        return kind(f"{self.redacted_url} cannot be used: {message}.")


@define(eq=False)
class Listener:
    """Receives the notifications of all subscriptions of a process on one connection."""

    redis: RedisClient
    notifications: Notifications
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    def start(self) -> None:
        """Listen in the running event loop, if it does not yet, and adjust the channels to the subscriptions soon."""
        if self._task is None or self._task.done() or self._task.get_loop() is not asyncio.get_running_loop():
            self._changed = asyncio.Event()
            self._task = asyncio.create_task(self._listen())
        self.update()

    def update(self) -> None:
        """Adjust the channels to the subscriptions soon, if the listener runs."""
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
            except Exception as error:  # noqa: BLE001 - the client raises many kinds when its connection is closed
                logger.info("the connection for notifications was lost: %r", error)
                await asyncio.sleep(RECONNECT if self._is_current else 0)

    async def _receive(self, pubsub: UntypedClient) -> None:
        """Receive messages on one connection until it is lost, and adjust its channels to the subscriptions."""
        channels: dict[bytes, ResponseKey] = {}
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
                    if key is not None:  # also when a new channel is confirmed, for the changes missed until then
                        self.notifications.notify([key])
                    message = asyncio.create_task(pubsub.get_message(timeout=SILENCE))
        finally:
            message.cancel()
            change.cancel()
            await asyncio.gather(message, change, return_exceptions=True)

    async def _subscribe(self, pubsub: UntypedClient, channels: dict[bytes, ResponseKey]) -> None:
        """Make the channels of the connection match the subscriptions."""
        wanted = {f"{key_prefix(key[0])}:w:{clean(key[1])}".encode(): key for key in self.notifications.responses()}
        added, removed = wanted.keys() - channels.keys(), channels.keys() - wanted.keys()
        channels.clear()
        channels.update(wanted)
        if added:
            await pubsub.subscribe(*added)
        if removed:
            await pubsub.unsubscribe(*removed)


def key_prefix(tenant: str) -> str:
    """Return the prefix of a tenant's keys: a digest of its name, in the braces of a hash tag."""
    return f"{PREFIX}:{{{blake2b(tenant.encode(), digest_size=8).hexdigest()}}}"


def _next_batch(calls: deque[PendingCommand]) -> list[PendingCommand]:
    """Remove and return the calls for one round trip."""
    batch: list[PendingCommand] = []
    size = 0
    while calls and len(batch) < BATCH and size < BATCH_SIZE:
        batch.append(calls.popleft())
        command, _ = batch[-1]
        size += sum(len(part) for part in command if isinstance(part, bytes))
    return batch


async def _execute(client: UntypedClient, commands: Sequence[tuple[object, ...]]) -> list[Reply]:
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    replies: list[Reply] = await pipeline.execute(raise_on_error=False)
    return replies


def as_text(value: bytes) -> msgspec.Raw:
    """Return bytes as a MessagePack string, because the Lua of Redis cannot read the binary type."""
    return msgspec.Raw(pack(">BI", STRING, len(value)) + value)
