"""Serves the viewer over HTTP: the site of `interlock view`, and the middleware that shows the recent streams of a server."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias, TypeVar

import orjson
from attrs import define, field, frozen
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlock.events.dialects import OPEN_RESPONSES, OPENAI, DialectName
from interlock.events.json import as_text, elements, members
from interlock.events.sse import CONTENT_TYPE
from interlock.events.stream import TextDelta, wire_name
from interlock.serving.requests.api_keys import Keys, authorization_of
from interlock.serving.view.page import HEADERS, NDJSON, head, served
from interlock.serving.view.trace import Line, Trace, encode_lines

T = TypeVar("T")

MOUNT: Final = "/interlock/"
CAPTURED: Final = re.compile(r"/v1/(?:responses(?:/.*)?|messages|chat/completions)")
"""Matches the paths whose streams are captured."""

STREAMS: Final = 50
STREAM_BYTES: Final = 8 * 2**20
TOTAL_BYTES: Final = 64 * 2**20
REQUEST_BYTES: Final = 2**18
"""The limits of what the middleware stores: streams, bytes of a stream, bytes of all streams, and bytes of a request."""

_DATA: Final = re.compile(rb"^data:(.*)$", re.MULTILINE)
_FIRST: Final = 4
"""The chunks at the beginning of a stream that may have its id, because pings come before it."""

_WORDS: Final = 80
"""The characters of a stream's text that the list shows."""

_USAGE: Final = {"input_tokens": 0, "prompt_tokens": 0, "output_tokens": 1, "completion_tokens": 1}
"""The place of each count of tokens in the list."""

_POLL_SECONDS: Final = 0.05
_BATCH: Final = 256

Batches: TypeAlias = Iterable[Iterable[Line]]
"""The lines of a page, in batches that are sent as they arrive. Taking a batch may block."""


@define(eq=False)
class _Feed:
    """The lines of one page for any number of clients; a thread reads them once."""

    batches: Batches
    _chunks: list[bytes] = field(factory=list[bytes], init=False)
    _thread: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._thread = threading.Thread(target=self._fill, name="interlock-view", daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        for batch in self.batches:
            self._chunks.append(encode_lines(batch))

    async def read(self) -> AsyncGenerator[bytes]:
        async for chunks in _follow(self._chunks, lambda: not self._thread.is_alive()):
            for chunk in chunks:
                yield chunk


async def _follow(items: Sequence[T], is_ended: Callable[[], bool]) -> AsyncGenerator[Sequence[T]]:
    """Yield the items of a list that grows until `is_ended` returns True, in batches as they are added."""
    position = 0
    while True:
        ended = is_ended()
        batch = items[position:]
        position += len(batch)
        if batch:
            yield batch
        elif ended:
            return
        else:
            await asyncio.sleep(_POLL_SECONDS)


def site(title: str, batches: Batches) -> tuple[str, Starlette]:
    """Return the path of a page, and the application that serves it."""
    path = f"/{secrets.token_urlsafe(16)}/"  # random, so that no other page in the browser can read the streams
    feed = _Feed(batches)

    async def page(_: Request) -> Response:
        return HTMLResponse(served(title), headers=HEADERS)

    async def lines(_: Request) -> Response:
        return StreamingResponse(feed.read(), media_type=NDJSON, headers=HEADERS)

    return path, Starlette(routes=[Route(path, page), Route(f"{path}lines", lines)])


@define(eq=False)
class CapturedStream:
    """The request and the bytes of one stream."""

    url: str
    method: str
    dialect: DialectName
    tenant: str | None = ""
    """The tenant of the API key; None if the key is invalid."""
    number: int | None = field(default=None, init=False)
    """Its number in the list; None until its response begins."""
    start_time: float = field(factory=time.time, init=False)
    chunks: list[tuple[float, bytes]] = field(factory=list[tuple[float, bytes]], init=False)
    """Each chunk with the milliseconds from the start to its arrival."""
    size: int = field(default=0, init=False)
    ended: bool = field(default=False, init=False)
    truncated: bool = field(default=False, init=False)
    request: bytearray | None = field(factory=bytearray, init=False)
    summary: Mapping[str, object] | None = field(default=None, init=False)
    """The result of `_summary`, which judges the ended stream once."""
    _start: float = field(factory=time.monotonic, init=False)

    def add(self, chunk: bytes) -> None:
        self.truncated = self.truncated or self.size + len(chunk) > STREAM_BYTES
        if chunk and not self.truncated:
            self.chunks.append(((time.monotonic() - self._start) * 1000, chunk))
            self.size += len(chunk)

    def add_request(self, chunk: bytes) -> None:
        if self.request is not None:
            self.request += chunk
            if len(self.request) > REQUEST_BYTES:
                self.request = None

    def entry(self) -> dict[str, object]:
        response: Mapping[str, object] = {}
        for line in _DATA.findall(b"".join(chunk for _, chunk in self.chunks[:_FIRST])):
            with suppress(orjson.JSONDecodeError):
                body = members(orjson.loads(line))
                response = members(body.get("response", body.get("message", body)))
            if "id" in response:
                break
        state = {
            "number": self.number,
            "started": self.start_time,
            "ended": self.ended,
            "truncated": self.truncated,
            "bytes": self.size,
            "duration": self.chunks[-1][0] if self.chunks else 0,
            **(self.summary or {}),
        }
        return {**state, "id": response.get("id", ""), "model": response.get("model", "")}

    def describe(self) -> Mapping[str, object]:
        """Return the name and request of the stream for its page."""
        name = str(self.entry()["id"] or f"stream {self.number}")
        if self.request is None:
            return {"name": name}
        body = self.request.decode(errors="replace") or None
        return {"name": name, "request": {"method": self.method, "url": self.url, "body": body}}


@define(eq=False)
class RecentStreams:
    """The latest streams of a server, and the API keys that give access to them. If `keys` is None, nobody has access."""

    keys: Keys | None = field(repr=False)
    streams: dict[str, CapturedStream] = field(factory=dict[str, CapturedStream], init=False)
    """The streams by their numbers in paths, the oldest first."""
    _next: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)

    def store(self, stream: CapturedStream) -> None:
        """Store a stream whose response has started."""
        stream.number, self._next = self._next, self._next + 1
        self.streams[str(stream.number)] = stream
        self._evict()

    def add(self, stream: CapturedStream, chunk: bytes) -> None:
        if str(stream.number) in self.streams:
            before = stream.size
            stream.add(chunk)
            self._bytes += stream.size - before
            self._evict()

    def _evict(self) -> None:
        while len(self.streams) > STREAMS or self._bytes > TOTAL_BYTES:
            self._bytes -= self.streams.pop(next(iter(self.streams))).size

    def tenant(self, authorization: str) -> str | None:
        """Return the tenant of an `Authorization` header with a key as bearer token or password; None if access is denied."""
        if self.keys is None:
            return None
        scheme, _, credentials = authorization.partition(" ")
        if self.keys.passed and not authorization:
            return None  # else a browser never asks for the key
        if scheme.lower() != "basic" or not (self.keys.tenants or self.keys.passed):
            return self.keys.tenant(authorization)
        try:
            return self.keys.tenant_of_key(base64.b64decode(credentials, validate=True).decode("latin-1").partition(":")[2])
        except binascii.Error:
            return None


@frozen(eq=False)
class ViewerMiddleware:
    """The ASGI middleware that captures the streams of a server as clients receive them, and shows them at `/interlock/`."""

    app: ASGIApp
    recent: RecentStreams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif path == MOUNT.rstrip("/") or path.startswith(MOUNT):
            await self._answer(scope)(scope, receive, send)
        elif CAPTURED.fullmatch(path):
            await self._capture(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _capture(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        url = f"{scope.get('scheme', 'http')}://{headers.get('host', 'localhost')}{scope['path']}"
        dialect = OPEN_RESPONSES.name if "openresponses-version" in headers else OPENAI.name
        stream = CapturedStream(url, scope["method"], dialect, self.recent.tenant(authorization_of(headers)))

        async def receive_and_store() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                stream.add_request(message.get("body", b""))
            return message

        async def store_and_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                if Headers(raw=list(message["headers"])).get("content-type", "").startswith(CONTENT_TYPE):
                    self.recent.store(stream)
            elif stream.number is not None:
                self.recent.add(stream, bytes(message.get("body", b"")))
            await send(message)

        try:
            await self.app(scope, receive_and_store, store_and_send)
        finally:
            stream.ended = True

    def _answer(self, scope: Scope) -> Response:
        tenant = self.recent.tenant(Headers(scope=scope).get("authorization", ""))
        if tenant is None:
            headers = {
                **HEADERS,
                "www-authenticate": 'Basic realm="Interlock: enter the API key as the password", charset="UTF-8"',
            }
            return Response("Enter the server's API key as the password.\n", 401, headers, "text/plain")
        if scope["path"] == MOUNT.rstrip("/"):
            return RedirectResponse(MOUNT)
        number, _, last = scope["path"].removeprefix(MOUNT).rpartition("/")
        streams = {name: stream for name, stream in self.recent.streams.items() if stream.tenant == tenant}
        stream = streams.get(number)
        if last not in {"", "lines"} or (number and stream is None):
            return Response(
                f"There is no such stream, or it was evicted. {MOUNT} lists the others.\n", 404, HEADERS, "text/plain"
            )
        if last == "":
            return HTMLResponse(served("Streams" if stream is None else f"stream {stream.number}"), headers=HEADERS)
        if stream is not None:
            return StreamingResponse(self._lines(stream), media_type=NDJSON, headers=HEADERS)
        return StreamingResponse(self._list([*reversed(streams.values())]), media_type=NDJSON, headers=HEADERS)

    async def _list(self, streams: Sequence[CapturedStream]) -> AsyncGenerator[bytes]:
        """Yield the lines of the list. A thread judges the streams that have ended since the list was last read."""
        for stream in streams:
            if stream.ended and stream.summary is None:
                stream.summary = await asyncio.to_thread(_summary, stream)
        yield encode_lines([head("list"), ("list", [stream.entry() for stream in streams])])

    async def _lines(self, stream: CapturedStream) -> AsyncGenerator[bytes]:
        """Yield the lines of a stream, which may be unfinished. The judge runs in a thread."""
        trace = Trace(dialect=stream.dialect)
        yield encode_lines([head("stream", stream.describe())])
        async for chunks in _follow(stream.chunks, lambda: stream.ended):
            for start in range(0, len(chunks), _BATCH):
                yield await asyncio.to_thread(_judge, trace, chunks[start : start + _BATCH])
        yield await asyncio.to_thread(lambda: encode_lines(trace.end()))


def _summary(stream: CapturedStream) -> Mapping[str, object]:
    """Return the verdict of an ended stream, the tokens that it counts, and its first words, or else the tools that it calls."""
    trace = Trace(dialect=stream.dialect)
    lines = [*(line for arrival, chunk in stream.chunks for line in trace.feed(chunk, arrival)), *trace.end()]
    tokens: list[object] = [None, None]
    text = ""
    for data in (str(line[-1]) for line in lines if line[0] == "e"):
        with suppress(orjson.JSONDecodeError):
            body = members(orjson.loads(data))
            for place in (body, members(body.get("response")), members(body.get("message"))):
                for name, count in members(place.get("usage")).items():
                    if name in _USAGE:
                        tokens[_USAGE[name]] = count
            text += _text(body)[: _WORDS - len(text)]
    tools = [as_text(members(line[-1]).get("name")) for line in lines if line[0] == "lane"]
    return {
        "findings": dict(Counter(as_text(members(line[-1]).get("severity")) for line in lines if line[0] == "f")),
        "ending": lines[-1][-1],
        "tokens": tokens,
        "words": text.strip() or ", ".join(filter(None, tools)),
    }


def _text(body: Mapping[str, object]) -> str:
    delta = body.get("delta")
    if body.get("type") == wire_name(TextDelta):
        return as_text(delta)
    chunk = next(iter(elements(body.get("choices"))), None)
    return as_text(members(delta).get("text")) or as_text(members(members(chunk).get("delta")).get("content"))


def _judge(trace: Trace, chunks: Iterable[tuple[float, bytes]]) -> bytes:
    return b"".join(encode_lines(trace.feed(chunk, arrival)) for arrival, chunk in chunks)
