"""The viewer inside of a server: the last streams are stored, and shown at `/interlock/` to those who have the server's key.

It is an ASGI middleware, so it sees the bytes that clients receive and not how they are made. While a stream goes on, its bytes
are only stored; they are judged when somebody opens the page, in a thread. The storage is bounded.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Final, cast

import orjson
from attrs import define, field, frozen
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlock.events.dialects import OPEN_RESPONSES, OPENAI, DialectName
from interlock.events.sse import CONTENT_TYPE
from interlock.serving.requests.api_keys import Keys
from interlock.serving.view.event_lines import Line, Trace, encoded
from interlock.serving.view.page import HEADERS, NDJSON, head, served

MOUNT: Final = "/interlock/"
WATCHED: Final = "/v1/responses"

STREAMS: Final = 50
"""The most streams that are stored."""
STREAM_BYTES: Final = 8 * 2**20
"""The most bytes that are stored of a stream; the rest is dropped."""
TOTAL_BYTES: Final = 64 * 2**20
"""The most bytes that are stored of all streams; the oldest streams are evicted."""
REQUEST_BYTES: Final = 2**18
"""The most bytes of a request that is stored."""

_POLL_SECONDS: Final = 0.1
_AT_ONCE: Final = 256
"""The most chunks that are judged at once."""


@define(eq=False)
class WatchedStream:
    """One stream.

    Args:
        url: The URL of the request.
        method: Its method.
        dialect: The dialect of the stream.
        tenant: The tenant of the request; None without a key.
    """

    url: str
    method: str
    dialect: DialectName
    tenant: str | None = ""
    number: int | None = field(default=None, init=False)
    """Its number in the list; None until its response begins."""
    began: float = field(factory=time.time, init=False)
    chunks: list[tuple[float, bytes]] = field(factory=list[tuple[float, bytes]], init=False)
    """Its bytes, each chunk with the milliseconds from the beginning to its arrival."""
    size: int = field(default=0, init=False)
    over: bool = field(default=False, init=False)
    cut: bool = field(default=False, init=False)
    """Whether bytes were dropped."""
    request: bytearray | None = field(factory=bytearray, init=False)
    """The body of the request; None if it is too long."""
    _start: float = field(factory=time.monotonic, init=False)

    def add(self, chunk: bytes) -> None:
        """Store some bytes that were sent to the client."""
        self.cut = self.cut or self.size + len(chunk) > STREAM_BYTES
        if chunk and not self.cut:
            self.chunks.append(((time.monotonic() - self._start) * 1000, chunk))
            self.size += len(chunk)

    def add_request(self, chunk: bytes) -> None:
        """Store some bytes of the request."""
        if self.request is not None:
            self.request += chunk
            if len(self.request) > REQUEST_BYTES:
                self.request = None

    def entry(self) -> dict[str, object]:
        """Return its entry in the list."""
        response = _response(self.chunks[0][1] if self.chunks else b"")
        state = {"number": self.number, "began": self.began, "over": self.over, "cut": self.cut, "bytes": self.size}
        return {**state, "id": response.get("id", ""), "model": response.get("model", "")}

    def about(self, *, redact: bool) -> Mapping[str, object]:
        """Return what the page says before the first event."""
        name = str(self.entry()["id"] or f"stream {self.number}")
        if redact or self.request is None:
            return {"name": name}
        body = self.request.decode(errors="replace") or None
        return {"name": name, "request": {"method": self.method, "url": self.url, "body": body}}


def _response(chunk: bytes) -> Mapping[str, object]:
    """Return the response that the first event shows, as far as it can be read."""
    _, _, data = chunk.partition(b"data:")
    try:
        body: object = orjson.loads(data.partition(b"\n")[0])
    except orjson.JSONDecodeError:
        return {}
    response = cast("dict[str, object]", body).get("response") if isinstance(body, dict) else None
    return cast("dict[str, object]", response) if isinstance(response, dict) else {}


@define(eq=False)
class Watch:
    """The last streams of a server.

    Args:
        keys: The keys that open the viewer; None while they are not known.
        redact: Whether texts are hidden.
    """

    keys: Keys | None = field(repr=False)
    redact: bool = False
    streams: dict[str, WatchedStream] = field(factory=dict[str, WatchedStream], init=False)
    """By their numbers, as a path has them."""
    _next: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)
    """Bytes of all streams."""

    def begin(self, scope: Scope) -> WatchedStream:
        """Return the stream of a request."""
        headers = Headers(scope=scope)
        url = f"{scope.get('scheme', 'http')}://{headers.get('host', 'localhost')}{scope['path']}"
        dialect = OPEN_RESPONSES.name if "openresponses-version" in headers else OPENAI.name
        return WatchedStream(url, scope["method"], dialect, self.tenant(headers.get("authorization", "")))

    def store(self, stream: WatchedStream) -> None:
        """Store a stream whose response has begun."""
        stream.number, self._next = self._next, self._next + 1
        self.streams[str(stream.number)] = stream
        self._make_room()

    def add(self, stream: WatchedStream, chunk: bytes) -> None:
        """Store some bytes of a stream, unless it was evicted."""
        if str(stream.number) in self.streams:
            before = stream.size
            stream.add(chunk)
            self._bytes += stream.size - before
            self._make_room()

    def _make_room(self) -> None:
        while len(self.streams) > STREAMS or self._bytes > TOTAL_BYTES:
            self._bytes -= self.streams.pop(next(iter(self.streams))).size

    def tenant(self, authorization: str) -> str | None:
        """Return the tenant of an `Authorization` header: its key is a bearer token, or the password that a browser sends.

        Returns:
            None if the header has none of the keys.
        """
        if self.keys is None:
            return None
        scheme, _, credentials = authorization.partition(" ")
        if scheme.lower() != "basic" or not self.keys.tenants:
            return self.keys.tenant(authorization)
        try:
            return self.keys.tenant_with(base64.b64decode(credentials, validate=True).decode("latin-1").partition(":")[2])
        except binascii.Error:
            return None


@frozen(eq=False)
class Watching:
    """The middleware.

    Args:
        app: The server.
        watch: Where the streams are stored.
    """

    app: ASGIApp
    watch: Watch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Show the stored streams, or pass a request on and store its stream."""
        path = scope.get("path", "")
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif path == MOUNT.rstrip("/") or path.startswith(MOUNT):
            await self._answer(scope)(scope, receive, send)
        elif path == WATCHED or path.startswith(f"{WATCHED}/"):
            await self._store(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _store(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = self.watch.begin(scope)

        async def receive_and_store() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                stream.add_request(message.get("body", b""))
            return message

        async def store_and_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                if Headers(raw=list(message["headers"])).get("content-type", "").startswith(CONTENT_TYPE):
                    self.watch.store(stream)
            elif stream.number is not None:
                self.watch.add(stream, bytes(message.get("body", b"")))
            await send(message)

        try:
            await self.app(scope, receive_and_store, store_and_send)
        finally:
            stream.over = True

    def _answer(self, scope: Scope) -> Response:
        tenant = self.watch.tenant(Headers(scope=scope).get("authorization", ""))
        if tenant is None:
            headers = {**HEADERS, "www-authenticate": 'Basic realm="Interlock: the password is the API key", charset="UTF-8"'}
            return Response("The viewer needs the server's API key.\n", 401, headers, "text/plain")
        if scope["path"] == MOUNT.rstrip("/"):
            return RedirectResponse(MOUNT)
        number, _, last = scope["path"].removeprefix(MOUNT).rpartition("/")
        streams = {name: stream for name, stream in self.watch.streams.items() if stream.tenant == tenant}
        stream = streams.get(number)
        if last not in {"", "lines"} or (number and stream is None):
            return Response("This stream does not exist, or no longer.\n", 404, HEADERS, "text/plain")
        if last == "":
            return HTMLResponse(served("Streams" if stream is None else f"stream {stream.number}"), headers=HEADERS)
        if stream is not None:
            return StreamingResponse(self._lines(stream), media_type=NDJSON, headers=HEADERS)
        entries = [stream.entry() for stream in reversed(streams.values())]
        lines: list[Line] = [head("list", [], redact=self.watch.redact), ("listed", entries)]
        return Response(encoded(lines), media_type=NDJSON, headers=HEADERS)

    async def _lines(self, stream: WatchedStream) -> AsyncGenerator[bytes]:
        """Yield the lines of a stream, also of one that goes on."""
        trace = Trace(dialect=stream.dialect, redact=self.watch.redact)
        yield encoded([head("stream", [stream.about(redact=self.watch.redact)], redact=self.watch.redact)])
        judged = 0
        while True:
            over = stream.over
            chunks = stream.chunks[judged:]
            judged += len(chunks)
            for start in range(0, len(chunks), _AT_ONCE):
                yield await asyncio.to_thread(_judged, trace, chunks[start : start + _AT_ONCE])
            if over and judged == len(stream.chunks):
                break
            if not chunks:
                await asyncio.sleep(_POLL_SECONDS)
        yield await asyncio.to_thread(lambda: encoded(trace.end()))


def _judged(trace: Trace, chunks: Iterable[tuple[float, bytes]]) -> bytes:
    return b"".join(encoded(trace.feed(chunk, arrival)) for arrival, chunk in chunks)
