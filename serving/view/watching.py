"""The viewer inside of a server: the last streams are kept, and shown at `/interlock/` to whoever has the server's key.

It is an ASGI middleware, so it sees the bytes that clients get and nothing of how they are made. Keeping them is all that it does
while a stream goes on; they are judged when somebody looks, and in a thread. What is kept is bounded.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import AsyncGenerator, Iterable
from typing import Final, cast

import orjson
from attrs import define, field, frozen
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlock.events.dialects import OPEN_RESPONSES, OPENAI, DialectName
from interlock.events.sse import CONTENT_TYPE
from interlock.serving.keys import Keys
from interlock.serving.view.page import HEADERS, head, served
from interlock.serving.view.trace import Line, Trace, encoded

MOUNT: Final = "/interlock/"
WATCHED: Final = "/v1/responses"

STREAMS: Final = 50
"""Streams that are kept."""
STREAM_BYTES: Final = 8 * 2**20
"""Bytes that are kept of one; what follows is not."""
TOTAL_BYTES: Final = 64 * 2**20
"""Bytes that are kept of all; the oldest streams give way."""
REQUEST_BYTES: Final = 2**18
"""How long a request may be to be kept."""

_PATIENCE: Final = 0.1
"""Seconds between two looks for further bytes."""
_NDJSON: Final = "application/x-ndjson"


@define(eq=False)
class Kept:
    """One stream.

    Args:
        number: Its own.
        url: Where it was asked for.
        method: How.
        dialect: The name of its dialect.
        tenant: Who asked for it; None for somebody without a key.
    """

    number: int
    url: str
    method: str
    dialect: DialectName
    tenant: str | None = ""
    began: float = field(factory=time.time, init=False)
    pieces: list[tuple[float, bytes]] = field(factory=list[tuple[float, bytes]], init=False)
    """When each came, in milliseconds since the beginning, and what it was."""
    size: int = field(default=0, init=False)
    over: bool = field(default=False, init=False)
    cut: bool = field(default=False, init=False)
    """Whether more came than is kept."""
    request: bytearray | None = field(factory=bytearray, init=False)
    """The body that asked for it; None if it was too long."""
    _start: float = field(factory=time.monotonic, init=False)

    def take(self, piece: bytes) -> None:
        """Keep some bytes.

        Args:
            piece: What was sent to the client.
        """
        self.cut = self.cut or self.size + len(piece) > STREAM_BYTES
        if piece and not self.cut:
            self.pieces.append(((time.monotonic() - self._start) * 1000, piece))
            self.size += len(piece)

    def ask(self, piece: bytes) -> None:
        """Keep some bytes of the request.

        Args:
            piece: What the client sent.
        """
        if self.request is not None:
            self.request += piece
            if len(self.request) > REQUEST_BYTES:
                self.request = None

    def listed(self) -> dict[str, object]:
        """Return what the list says of it."""
        response = _response(self.pieces[0][1]) if self.pieces else {}
        said = {"number": self.number, "began": self.began, "over": self.over, "cut": self.cut, "bytes": self.size}
        return {**said, "id": response.get("id", ""), "model": response.get("model", "")}

    def about(self, *, redact: bool) -> dict[str, object]:
        """Return the data that the page needs before the first event."""
        name = str(self.listed()["id"] or f"stream {self.number}")
        if redact or self.request is None:
            return {"name": name}
        body = self.request.decode(errors="replace") or None
        return {"name": name, "request": {"method": self.method, "url": self.url, "body": body}}


def _response(first: bytes) -> dict[str, object]:
    """Return the response that the first event shows, as far as it can be read."""
    _, _, data = first.partition(b"data:")
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
        keys: What opens it, one of them; None while they are not known.
        redact: Whether texts are hidden.
    """

    keys: Keys | None = field(repr=False)
    redact: bool = False
    streams: dict[str, Kept] = field(factory=dict[str, Kept], init=False)
    """By their numbers, as a path has them."""
    _next: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)
    """Bytes of all streams."""

    def begin(self, scope: Scope) -> Kept:
        """Begin a stream, and forget those that there is no more room for.

        Args:
            scope: Of the request that asks for it.
        """
        headers = Headers(scope=scope)
        url = f"{scope.get('scheme', 'http')}://{headers.get('host', 'localhost')}{scope['path']}"
        dialect = OPEN_RESPONSES.name if "openresponses-version" in headers else OPENAI.name
        return Kept(-1, url, scope["method"], dialect, self.tenant(headers.get("authorization", "")))

    def keep(self, kept: Kept) -> None:
        """Keep a stream whose answer has begun.

        Args:
            kept: From `begin`.
        """
        kept.number, self._next = self._next, self._next + 1
        self.streams[str(kept.number)] = kept
        self._make_room()

    def take(self, kept: Kept, piece: bytes) -> None:
        """Keep some bytes of a stream, unless it had to give way.

        Args:
            kept: Which.
            piece: What was sent to the client.
        """
        if str(kept.number) in self.streams:
            before = kept.size
            kept.take(piece)
            self._bytes += kept.size - before
            self._make_room()

    def _make_room(self) -> None:
        while len(self.streams) > STREAMS or self._bytes > TOTAL_BYTES:
            self._bytes -= self.streams.pop(next(iter(self.streams))).size

    def tenant(self, authorization: str) -> str | None:
        """Return the tenant of a header `Authorization` with one of the keys: as a bearer token, or as the password of a browser.

        Args:
            authorization: The header.

        Returns:
            None if it has none of the keys; its sender is not let in.
        """
        if self.keys is None:
            return None
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "basic" or not self.keys.tenants:
            return self.keys.tenant(authorization)
        try:
            return self.keys.tenant_with(base64.b64decode(given, validate=True).decode("latin-1").partition(":")[2])
        except binascii.Error:
            return None


@frozen(eq=False)
class Watching:
    """The middleware.

    Args:
        app: The server.
        watch: What is kept.
    """

    app: ASGIApp
    watch: Watch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Show what was kept, or pass a request on and keep what it streams."""
        path = scope.get("path", "")
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif path == MOUNT.rstrip("/") or path.startswith(MOUNT):
            await self._shown(scope)(scope, receive, send)
        elif path == WATCHED or path.startswith(f"{WATCHED}/"):
            await self._keep(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _keep(self, scope: Scope, receive: Receive, send: Send) -> None:
        kept = self.watch.begin(scope)

        async def hear() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                kept.ask(message.get("body", b""))
            return message

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                if Headers(raw=list(message["headers"])).get("content-type", "").startswith(CONTENT_TYPE):
                    self.watch.keep(kept)
            elif kept.number >= 0:
                self.watch.take(kept, bytes(message.get("body", b"")))
            await send(message)

        try:
            await self.app(scope, hear, tell)
        finally:
            kept.over = True

    def _shown(self, scope: Scope) -> Response:
        tenant = self.watch.tenant(Headers(scope=scope).get("authorization", ""))
        if tenant is None:
            refused = {**HEADERS, "www-authenticate": 'Basic realm="Interlock: the password is the API key", charset="UTF-8"'}
            return Response("The viewer needs the server's API key.\n", 401, refused, "text/plain")
        if scope["path"] == MOUNT.rstrip("/"):
            return RedirectResponse(MOUNT)
        rest = scope["path"].removeprefix(MOUNT)
        number, _, last = rest.rpartition("/")
        shown = {name: kept for name, kept in self.watch.streams.items() if kept.tenant == tenant}
        kept = shown.get(number)
        if last not in {"", "lines"} or (number and kept is None):
            return Response("There is no such stream (any more).\n", 404, HEADERS, "text/plain")
        if last == "":
            return HTMLResponse(served("Streams" if kept is None else f"stream {kept.number}"), headers=HEADERS)
        if kept is not None:
            return StreamingResponse(self._lines(kept), media_type=_NDJSON, headers=HEADERS)
        listed = [one.listed() for one in reversed(shown.values())]
        lines: list[Line] = [head("list", [], redact=self.watch.redact), ("listed", listed)]
        return Response(encoded(lines), media_type=_NDJSON, headers=HEADERS)

    async def _lines(self, kept: Kept) -> AsyncGenerator[bytes]:
        """Yield the lines of a stream, also of one that goes on; each piece is judged in a thread."""
        trace = Trace(
            dialect=OPEN_RESPONSES.name if kept.dialect == OPEN_RESPONSES.name else OPENAI.name, redact=self.watch.redact
        )
        yield encoded([head("stream", [kept.about(redact=self.watch.redact)], redact=self.watch.redact)])
        sent = 0
        while True:
            over = kept.over
            pieces = kept.pieces[sent:]
            sent += len(pieces)
            for at in range(0, len(pieces), 256):
                yield await asyncio.to_thread(_told, trace, pieces[at : at + 256])
            if over and sent == len(kept.pieces):
                break
            if not pieces:
                await asyncio.sleep(_PATIENCE)
        yield await asyncio.to_thread(lambda: encoded(trace.end()))


def _told(trace: Trace, pieces: Iterable[tuple[float, bytes]]) -> bytes:
    return b"".join(encoded(trace.feed(piece, at)) for at, piece in pieces)
