"""Calls of the scripts that run inside Redis: one client for the process and its event loop, which connects when first needed.

Each script is one commit, and fires the edges of tables that it is given as data.

A connection may have been lost since it was last used, as by a restart of Redis, and that shows only when it is used. Whether
what was asked was carried out is not known then; what may be done twice is asked again, about the rest who asked decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
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
from interlock.serving.store.records import LEASE
from interlock.serving.store.store_errors import StoreDown

__all__ = ["CONNECTIONS", "SCRIPTS", "VERSION", "Calls", "Disconnected"]

R = TypeVar("R")
T = TypeVar("T")
E = TypeVar("E")

VERSION: Final = 1
"""The version of the layout that the scripts know."""

PREFIX: Final = "interlock"
"""What the names of all keys begin with."""

TIMEOUT: Final = 5.0
"""Seconds after which a server that does not answer is down."""

WAIT: Final = 20.0
"""Seconds for which a call waits for a connection: many more calls at once than connections are no fault."""

CONNECTIONS: Final = 50
"""How many connections a process has at most, if its URL does not say."""


_HERE: Final = Path(__file__).parent
_NAMES: Final = ("write", "known", "get", "read", "find", "converse", "lost", "sweep", "census")
_CONVERSING: Final = frozenset({"write", "converse"})


def _lua(name: str, table: Table[T, E]) -> str:
    """Return a table as Lua: for each state and trigger, the state that follows and the effects."""

    def state(of: str) -> str:
        rows = table.states[of].rows.items()
        return ", ".join(f"{trigger} = {{'{dest.name}', {{{_listed(effects)}}}}}" for trigger, (dest, effects) in rows)

    return f"local {name} = {{{', '.join(f'{of} = {{{state(of)}}}' for of in table.states)}}}\n"


def _listed(names: Iterable[object]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _script(name: str) -> str:
    edges, parts = [_lua("EDGES", STORED)], ["common", name]
    if name in _CONVERSING:
        edges, parts = [*edges, _lua("TALKS", CONVERSATION)], ["common", "conversing", name]
    return "".join(edges) + "".join((_HERE / f"{part}.lua").read_text(encoding="utf-8") for part in parts)


SCRIPTS: Final = {name: _script(name) for name in _NAMES}
"""The text of each script."""


class Disconnected(StoreDown):
    """The connection was lost, or there was none: it is not known whether what was asked was carried out."""


@define(eq=False)
class Calls:
    """The calls of one server. Each method raises `StoreDown` if it cannot be used now, or has another layout.

    Args:
        url: `redis://` or `rediss://`, with host, port, database, and perhaps a password.
        ttl: Seconds for which a response is stored; None for ever.
        logs: Seconds for which the events of a response are, after its end; None for as long as it.
        clock: Tells the time in seconds; None for the clock of the server, which all processes have in common.
        max_connections: How many connections there are at most; calls wait for one. One of them only listens.
    """

    url: str
    ttl: float | None
    logs: float | None
    clock: Callable[[], float] | None
    max_connections: int
    _client: redis.Redis | None = field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _scripts: dict[str, Any] = field(factory=dict[str, Any], init=False)
    _tenants: set[str] = field(factory=set[str], init=False)
    """Those that the server is known to have in its list."""
    _fits: bool = field(default=False, init=False)
    """Whether the layout of the server was looked at."""

    @property
    def shown(self) -> str:
        """The URL without the password."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @property
    def client(self) -> redis.Redis:
        """The client of the event loop that runs."""
        loop, client = asyncio.get_running_loop(), self._client
        if client is None or self._loop is not loop:
            settings: dict[str, Any] = {"socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT}
            settings |= {"max_connections": self.max_connections, "timeout": WAIT, "retry": Retry(NoBackoff(), 0)}
            client = redis.Redis.from_pool(cast("Any", redis.BlockingConnectionPool).from_url(self.url, **settings))
            self._client, self._scripts = client, {name: client.register_script(text) for name, text in SCRIPTS.items()}
            self._loop, self._fits = loop, False
            self._tenants.clear()
        return client

    async def run(
        self, name: str, tenant: str, fields: dict[str, object], values: Sequence[bytes] = (), *, again: bool = True
    ) -> Any:  # noqa: ANN401 - Redis'
        """Run a script, and return what it returned.

        It reads `fields` as JSON, and `values` as the bytes that follow. With `again` it does the same when it is run twice.
        """
        now = -1 if self.clock is None else _milliseconds(self.clock())
        times = {"now": now, "lease": _milliseconds(LEASE), "ttl": _milliseconds(self.ttl), "logs": _milliseconds(self.logs)}
        arguments = [dumps({**times, **fields}), *values]

        async def call() -> Any:  # noqa: ANN401 - Redis'
            if not self._fits or tenant not in self._tenants:
                await self._introduce(tenant)
            return await self._scripts[name](keys=[base_of(tenant)], args=arguments)

        return await (self._repeated(call) if again else self._guarded(call))

    async def tenants(self) -> list[str]:
        """Return all tenants that have stored something."""
        tenants = await self._repeated(lambda: cast("Any", self.client).smembers(f"{PREFIX}:tenants"))
        return sorted(tenant.decode() for tenant in tenants)

    async def about(self) -> dict[str, Any]:
        """Return what the server says of itself."""
        about: dict[str, Any] = await self._repeated(lambda: cast("Any", self.client).info())
        return about

    async def layout(self) -> int:
        """Return the version of the layout, which an empty server gets."""
        client = cast("Any", self.client)

        async def look() -> int:
            await client.set(f"{PREFIX}:layout", VERSION, nx=True)
            return int(await client.get(f"{PREFIX}:layout"))

        return await self._repeated(look)

    async def close(self) -> None:
        """Let go of the connections."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    async def _repeated(self, call: Callable[[], Awaitable[R]]) -> R:
        """Call what may be called again, and call it again if the connection was lost."""
        try:
            return await self._guarded(call)
        except Disconnected:
            return await self._guarded(call)

    async def _guarded(self, call: Callable[[], Awaitable[R]]) -> R:
        """Call, and raise what a store raises. What else waits for a connection gets a new one."""
        client = cast("Any", self.client)
        try:
            return await call()
        except (RedisError, OSError) as error:
            self._fits = False  # it may be another server that comes back
            self._tenants.clear()
            await client.connection_pool.disconnect(inuse_connections=False)
            kind = Disconnected if isinstance(error, (RedisConnectionError, OSError)) else StoreDown
            raise kind(f"{self.shown} cannot be used: {error}.") from error

    async def _introduce(self, tenant: str) -> None:
        """See to it that the server has the layout that the scripts know, and lists the tenant."""
        client = cast("Any", self.client)
        version = await self.layout()
        if version != VERSION:
            raise StoreDown(f"{self.shown} has the layout {version}, and {VERSION} is needed: see `interlock store migrate`.")
        await client.sadd(f"{PREFIX}:tenants", tenant)
        self._fits = True
        self._tenants.add(tenant)


def base_of(tenant: str) -> str:
    """Return what the names of all keys of a tenant begin with. In braces stands what a cluster would choose their place by.

    Args:
        tenant: Its name, of which only a digest is in the keys.
    """
    return f"{PREFIX}:{{{blake2b(tenant.encode(), digest_size=8).hexdigest()}}}"


def _milliseconds(seconds: float | None) -> int:
    return 0 if seconds is None else round(seconds * 1000)
