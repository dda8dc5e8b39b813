"""A client of HTTP/1.1 for one server, on httptools, which gives the bytes of a body as they arrive.

It has what the calls of an upstream need: connections that are reused, TLS, proxies, limits and backpressure. It follows no
redirect and keeps no cookie. The table `UPSTREAM_CONNECTION` in `connection_table` defines the states of a connection.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, assert_never
from urllib.parse import quote, unquote, urlsplit

import httptools
from attrs import define, field, frozen

import interlock
from interlock.fsm.table import Machine
from interlock.serving.engines.upstream.connection_table import UPSTREAM_CONNECTION
from interlock.serving.engines.upstream.connection_table import UpstreamConnectionEffect as Effect
from interlock.serving.engines.upstream.connection_table import UpstreamConnectionTrigger as Trigger

MAX_HEAD: Final = 64 * 2**10
"""The most bytes of a head, or between two parts of a body."""
SMALL: Final = 4096
"""The most bytes of a read that `Answer.receive` takes, so that a long one does not keep other streams waiting."""
MAX_UNREAD: Final = 64 * 2**10
"""The unread bytes of a body above which the connection is not read."""
IDLE: Final = 4.0
"""Seconds after which an idle connection is closed; many servers close theirs after five."""
STAGGER: Final = 0.25
"""Seconds after which the next address of a server is tried beside the others (RFC 8305, section 5)."""
FINAL: Final = 200
"""The least status of an answer; those below are informational."""
PORTS: Final = {"http": 80, "https": 443}
PATH: Final = "!$%&'()*+,-./:;=@_~"
"""The characters of a path that are sent as they are: those of RFC 3986, section 3.3, and the percent sign of quoted ones."""
TUNNEL: Final = re.compile(rb"HTTP/1\.[01] 2\d\d[ \r].*\r\n\r\n", re.DOTALL)
"""Matches the answer of a proxy that has opened a tunnel."""
BLANK: Final = b"\r\n\r\n"
FRAMED: Final = ("content-length", "transfer-encoding")
"""The headers that give the end of a body; without them, it ends with the connection."""
AGENT: Final = f"interlock/{interlock.__version__}"


class HttpError(Exception):
    """A server cannot be reached, breaks off its answer, or violates HTTP; the message has no key and no address."""


@frozen
class Proxy:
    """A proxy that the environment names, and the headers that it wants."""

    host: str
    port: int
    headers: Mapping[str, str] = field(repr=False)


def proxy_for(url: str) -> Proxy | None:
    """Return the proxy that the environment names for a URL; raise `HttpError` if it cannot be used."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - few gateways have a proxy

    scheme, netloc, *_ = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or proxy_bypass(netloc):
        return None
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme != "http" or not parts.hostname:
        raise HttpError("the proxy that the environment names is not an http:// URL")
    headers: dict[str, str] = {}
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["proxy-authorization"] = f"Basic {b64encode(user.encode()).decode()}"
    return Proxy(parts.hostname, parts.port or PORTS["http"], headers)


@define(eq=False)
class Answer:
    """The answer to a request, while it arrives: `more` waits for it, and `take` returns it."""

    _connection: Connection
    status: int = field(default=0, init=False)
    """The status, or 0 until the head has arrived."""
    headers: dict[str, str] = field(factory=dict[str, str], init=False)
    """The headers, the last one of each name in lower case."""
    parts: list[bytes] = field(factory=list[bytes], init=False)
    """What has arrived of the body and was not taken."""
    end: Trigger | None = field(default=None, init=False)
    """What the end of the answer is for its connection; None until it is complete."""
    error: BaseException | None = field(default=None, init=False)
    """Why the answer will never be complete."""
    is_paused: bool = field(default=False, init=False)
    """Whether the connection is not read until the parts are taken."""
    waiter: asyncio.Future[None] | None = field(default=None, init=False)
    receive: Callable[[], bool] | None = field(default=None, init=False)
    """Takes the parts of a small read while a task waits for them; returns whether the task goes on waiting."""
    on_body: Callable[[bytes], None] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.on_body = self.parts.append

    @property
    def is_over(self) -> bool:
        """Whether no more arrives."""
        return self.end is not None or self.error is not None

    def more(self) -> asyncio.Future[None]:
        """Return a future that is done once more has arrived, or the answer is over."""
        self.waiter = waiter = self._connection.loop.create_future()
        if self.end is not None or self.error is not None:
            waiter.set_result(None)
        return waiter

    def wake(self) -> None:
        """Continue the task that waits for more."""
        waiter, self.waiter = self.waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def take(self) -> bytes:
        """Return the bytes of the body that were not taken; without any, raise the error, or return none at the end."""
        parts = self.parts
        if not parts:
            if self.error is not None:
                raise self.error
            return b""
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        if self.is_paused:
            self.is_paused = False
            self._connection.resume_reading()
        return data

    def fail(self, error: BaseException) -> None:
        """Close the connection, unless the answer is over; `take` raises the error after the last bytes."""
        if not self.is_over:
            self._connection.close(error)

    # The parser calls these, and raises an error with one of theirs as its context.

    def on_message_begin(self) -> None:
        if self.end is not None:
            raise HttpError("there are two answers to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # else it is a trailer
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._connection.parser.get_status_code()
        if status < FINAL:
            self.headers.clear()
            return
        self.status = status
        self._connection.fire(Trigger.HEAD)

    def on_message_complete(self) -> None:
        if self.status:
            self.end = Trigger.END if self._connection.parser.should_keep_alive() else Trigger.CLOSE


@define(eq=False)
class Connection(asyncio.Protocol):
    """A connection, over which one request is sent after another."""

    _client: HttpClient
    loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop, init=False)
    parser: httptools.HttpResponseParser = field(init=False)
    _answer: Answer = field(init=False)
    _transport: asyncio.Transport = field(init=False)
    _machine: Machine[Trigger, Effect] = field(factory=lambda: Machine.at_start(UPSTREAM_CONNECTION), init=False)
    _since_body: int = field(default=0, init=False)
    """The bytes that have arrived since the last ones of a body."""
    _timer: asyncio.TimerHandle = field(init=False)

    # A stream has such a transport, and uvloop's is no subclass that a check would find.
    def connection_made(  # pyright: ignore[reportIncompatibleMethodOverride] - see above
        self,
        transport: asyncio.Transport,  # type: ignore[override]
    ) -> None:
        self._transport = transport
        self._expect()
        self._client.connections.add(self)

    def _expect(self) -> Answer:
        self._answer = answer = Answer(self)
        self.parser = httptools.HttpResponseParser(answer)
        self._since_body = 0
        return answer

    def send(self, data: Sequence[bytes]) -> Answer:
        answer = self._expect()
        self.fire(Trigger.SEND)
        self._transport.writelines(data)
        return answer

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        try:
            self.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            cause = error.__context__
            self.close(cause if isinstance(cause, HttpError) else HttpError(f"the answer is not HTTP/1.1: {error}"))
            return
        if answer.parts:
            self._since_body = 0
            if answer.waiter is not None:
                receive = answer.receive if len(data) <= SMALL and answer.end is None and not answer.waiter.done() else None
                if receive is None or not receive():
                    answer.wake()
            elif not answer.is_paused and sum(map(len, answer.parts)) > MAX_UNREAD:
                answer.is_paused = True
                self._transport.pause_reading()
        else:
            self._since_body += len(data)
            if self._since_body > MAX_HEAD:
                self.close(HttpError("the head or the trailer of the answer is too large"))
        if answer.end is not None:
            is_usable = answer.end in self._machine.state.rows and not self._transport.get_write_buffer_size()
            self.fire(answer.end if is_usable else Trigger.CLOSE)

    def connection_lost(self, exc: Exception | None) -> None:
        answer = self._answer
        if exc is None and answer.status and answer.headers.keys().isdisjoint(FRAMED) and not answer.is_over:
            answer.end = Trigger.CLOSE
        self.close(HttpError("the connection was closed before the end of the answer"))

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self, error: BaseException) -> None:
        """Close the connection; an answer that is not over gets the error."""
        if not self._answer.is_over:
            self._answer.error = error
        self.fire(Trigger.CLOSE)

    def fire(self, trigger: Trigger) -> None:
        """Fire a trigger, unless the connection is closed."""
        for effect in self._machine.fire(trigger) if self._machine.state.rows else ():
            match effect:
                case Effect.KEEP:
                    self._client.idle.append(self)
                    self._timer = self.loop.call_later(IDLE, self.fire, Trigger.CLOSE)
                case Effect.TAKE:
                    self._client.idle.remove(self)
                    self._timer.cancel()
                case Effect.TELL:
                    self._answer.wake()
                case Effect.ABORT:
                    self._client.connections.discard(self)
                    self._transport.abort()
                case _:
                    assert_never(effect)


@define(eq=False)
class HttpClient:
    """Sends requests to the server of a URL; `connect_timeout` is the longest wait in seconds for a connection."""

    _url: str
    _connect_timeout: float
    idle: list[Connection] = field(factory=list[Connection], init=False)
    """The connections for the next requests, the last one first."""
    connections: set[Connection] = field(factory=set[Connection], init=False)
    _host: str = field(init=False)
    _port: int = field(init=False)
    _place: str = field(init=False)
    """The host and the port."""
    _authority: str = field(init=False)
    """The same without the scheme's own port."""
    _proxy: Proxy | None = field(init=False)
    _tls: ssl.SSLContext | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        parts = urlsplit(self._url)
        self._host, self._port = _ascii(parts.hostname or ""), parts.port or PORTS[parts.scheme]
        self._place = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        self._authority = self._place.removesuffix(f":{PORTS[parts.scheme]}")
        self._proxy = proxy_for(self._url)
        if parts.scheme == "https":
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])

    async def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> Answer:
        """Send a request, and return the answer once its head has arrived; the caller reads it to its end, or lets it `fail`.

        A server may close an idle connection while a request is sent over it. If that shows before any answer, the other idle
        connections are probably closed too, so the request is sent again over a new one.

        Raises:
            HttpError: There is no connection, or no answer.
        """
        head = self._head(method, path, headers, body)
        data = [head] if body is None else [head, body]
        while True:
            is_reused = bool(self.idle)
            connection = self.idle[-1] if is_reused else await self._connect()
            answer = connection.send(data)
            try:
                while not answer.status and not answer.is_over:
                    await answer.more()
            except asyncio.CancelledError:
                answer.fail(HttpError("the request was cancelled"))
                raise
            if answer.error is None or answer.status:
                return answer
            if not is_reused:
                raise answer.error
            for idle in [*self.idle]:
                idle.fire(Trigger.CLOSE)

    def _head(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        target, fields = quote(path, safe=PATH), {"host": self._authority, "user-agent": AGENT, **headers}
        if body is not None:
            fields["content-length"] = str(len(body))
        if self._proxy is not None and self._tls is None:
            target = f"http://{self._authority}{target}"
            fields |= self._proxy.headers
        return _encoded(f"{method} {target} HTTP/1.1", fields)

    async def _connect(self) -> Connection:
        loop, proxy = asyncio.get_running_loop(), self._proxy
        try:
            async with asyncio.timeout(self._connect_timeout):
                place = (self._host, self._port) if proxy is None else (proxy.host, proxy.port)
                connected = await _dial(*place)
                try:
                    if proxy is not None and self._tls is not None:
                        await self._tunnel(connected, proxy)
                    host = None if self._tls is None else self._host
                    factory = partial(Connection, self)
                    _, connection = await loop.create_connection(factory, sock=connected, ssl=self._tls, server_hostname=host)
                except BaseException:
                    connected.close()
                    raise
        except (OSError, TimeoutError) as error:
            raise HttpError(f"no connection: {type(error).__name__}") from error
        return connection

    async def _tunnel(self, connected: socket.socket, proxy: Proxy) -> None:
        """Ask a proxy for a connection to the server."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connected, _encoded(f"CONNECT {self._place} HTTP/1.1", {"host": self._place, **proxy.headers}))
        answer = b""
        while not answer.endswith(BLANK):
            part = await loop.sock_recv(connected, MAX_HEAD)
            answer += part
            if not part or len(answer) > MAX_HEAD:
                break
        if not TUNNEL.fullmatch(answer):
            raise HttpError("the proxy refuses a tunnel to the server")

    async def close(self) -> None:
        for connection in [*self.connections]:
            connection.close(HttpError("the client was closed"))
        await asyncio.sleep(0)  # their sockets are closed in the next step of the loop, which may be the last


def _encoded(start: str, fields: Mapping[str, str]) -> bytes:
    """Return the head of a request."""
    lines = [start, *map(": ".join, fields.items())]
    if not "".join(lines).isprintable():
        raise HttpError("a header has a character that no header may have")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def _dial(host: str, port: int) -> socket.socket:
    """Return a socket that is connected to the first address of a host that answers; `STAGGER` parts their attempts."""
    name = _ascii(host).encode()  # as a text, it would import the tables of IDNA
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:  # it is a name, which takes time to resolve
        found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    attempts: set[asyncio.Task[socket.socket]] = set()
    try:
        while True:
            if found:
                (family, kind, protocol, _, address), *found = found
                attempts.add(asyncio.create_task(_open(family, kind, protocol, address)))
            done, attempts = await asyncio.wait(attempts, timeout=STAGGER if found else None, return_when=asyncio.FIRST_COMPLETED)
            best = min(done, key=lambda attempt: attempt.exception() is not None, default=None)
            if best is not None and (best.exception() is None or not (found or attempts)):
                attempts |= done - {best}
                return best.result()
    finally:
        for attempt in attempts:
            attempt.cancel()
        for result in await asyncio.gather(*attempts, return_exceptions=True):
            if isinstance(result, socket.socket):
                result.close()


async def _open(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
    """Return a socket that is connected to an address."""
    connected = socket.socket(family, kind, protocol)
    try:
        connected.setblocking(False)  # noqa: FBT003 - its only argument
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(connected, address)
    except BaseException:
        connected.close()
        raise
    return connected


def _ascii(host: str) -> str:
    """Return a host as it is sent and looked up."""
    return host if host.isascii() else host.encode("idna").decode()
