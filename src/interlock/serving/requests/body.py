"""Reads the body of a request within limits, and decodes it to a JSON object.

Lone surrogates, which come from clients that truncate strings in the middle of a character, become U+FFFD.
"""

from __future__ import annotations

import asyncio
import re
import sys
import zlib
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol, cast

import orjson
from attrs import define, field

from interlock.serving.requests.api_errors import ApiError, invalid
from interlock.serving.requests.logs import log_model
from interlock.serving.requests.runtime import Yielder

if TYPE_CHECKING:  # commands that serve nothing do not need it
    from starlette.requests import Request

JSON: Final = "application/json"

DISCARDED: Final = 64 * 2**20
"""How many bytes beyond the limit of a body are read and discarded, so that the client can read the error."""

DECODED_BYTES: Final = 2**17
"""The most bytes to decompress at once, in a fraction of a millisecond; then other tasks run."""

WINDOW_LOG: Final = 23
"""The largest zstd window, as a power of 2: RFC 9659 allows 8 MiB. zstd allocates all of it at once."""

MAX_MEMBERS: Final = 100
"""The most gzip members, zlib streams or zstd frames in a body: even an empty one costs time."""

GZIP: Final = 16 + zlib.MAX_WBITS

MAX_DEPTH: Final = 100
"""The most levels of arrays and objects in a body: more than any request needs, and fewer than the recursion limit."""

MAX_VALUES: Final = 50_000
"""The most JSON values in a body, because decoding blocks the event loop and each value takes a hundred bytes."""

MAX_REPAIRED: Final = 4 * 2**20
"""The most bytes of a body with lone surrogates, because such a body is decoded twice."""

CHUNK: Final = re.compile(rb"(?:[^\\]|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.){1,16384}+", re.DOTALL)
"""Matches the next chunk of a body, without splitting an escape or a pair of surrogates."""
SURROGATES: Final = re.compile(
    rb"\\(?:(u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|[^u])|u[dD][89a-fA-F][\da-fA-F]{2})", re.DOTALL
)
"""Matches a lone surrogate, or in group 1 an escape to keep: a pair of surrogates, or an escape of one character."""


@define
class JsonBudget:
    """Counts the JSON values of a body as it arrives, by commas and brackets, so that a body with too many is never decoded."""

    values: int = field(default=1, init=False)
    _in_string: bool = field(default=False, init=False)
    _escape: bytes = field(default=b"", init=False)
    """The backslash at the end of the last chunk, if it escapes a character of the next chunk."""

    def count(self, chunk: bytes) -> bool:
        """Count the values of the next chunk, and return whether the body still has no more than the limit."""
        text = (self._escape + chunk).replace(rb"\\", b"")
        self._escape = text[-1:] if text.endswith(b"\\") else b""
        strings = text.replace(rb"\"", b"").split(b'"')
        outside = b"".join(strings[self._in_string :: 2])
        self._in_string ^= len(strings) % 2 == 0
        self.values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        return self.values <= MAX_VALUES


def too_many_values() -> ApiError:
    """Return the error for a body that `JsonBudget` refuses."""
    return ApiError(413, f"The body of the request has more than {MAX_VALUES} JSON values.", code="request_too_large")


async def read_object(body: bytes, yielder: Yielder) -> dict[str, object]:
    """Decode a body to a JSON object; raise a 400 for one that is none, too deep, or too long with lone surrogates."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        chunks: list[bytes] = []
        for chunk in _repair(body, error):
            chunks.append(chunk)
            await yielder.checkpoint()
        try:
            value = orjson.loads(b"".join(chunks))
        except orjson.JSONDecodeError as still:
            raise _unreadable(_place(still)) from None
    if type(value) is not dict:
        raise _unreadable("it must be an object")
    fields = cast("dict[str, object]", value)
    require_shallow(fields)
    return fields


def _repair(body: bytes, error: orjson.JSONDecodeError) -> Iterator[bytes]:
    """Yield a body that could not be decoded, in chunks, with U+FFFD in place of lone surrogates."""
    body = body.removeprefix(BOM_UTF8)
    if len(body) > MAX_REPAIRED:
        raise _unreadable(f"{_place(error)}; a body with lone surrogates may have at most {MAX_REPAIRED} bytes")
    start = 0
    while chunk := CHUNK.match(body, start):
        yield SURROGATES.sub(lambda escape: escape[0] if escape[1] else rb"\ufffd", chunk[0])
        start = chunk.end()
    yield body[start:]


def _place(error: orjson.JSONDecodeError) -> str:
    return f"{error.msg} (line {error.lineno}, column {error.colno})"


def require_shallow(value: object) -> None:
    """Raise an `ApiError` with the status 400 for a body with too many levels."""
    level: Sequence[object] = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[object] = []
        for outer in level:
            if type(outer) is dict:
                below += cast("dict[str, object]", outer).values()
            elif type(outer) is list:
                below += cast("list[object]", outer)
        if not below:
            return
        level = below
    raise _unreadable(f"it is nested deeper than {MAX_DEPTH} levels")


def _unreadable(reason: str) -> ApiError:
    return invalid(None, f"The body of the request could not be read as JSON: {reason}.", "invalid_json")


class _Decompressor(Protocol):
    """The interface of the decompressors of zlib and zstd, each for one member or frame."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


@define(eq=False)
class Decoder:
    """Decompresses one body."""

    _name: str  # of the content coding
    _start: Callable[[], _Decompressor]  # creates the decompressor of the next member or frame
    _error: type[Exception]  # raised for invalid data
    _member: _Decompressor | None = field(default=None, init=False)
    _members: int = field(default=0, init=False)

    def decompress(self, chunk: bytes) -> Iterator[bytes]:
        """Decompress a chunk of the body, and yield slices of at most `DECODED_BYTES` bytes; raise a 400 for invalid data."""
        for start in range(0, len(chunk), DECODED_BYTES):
            data = chunk[start : start + DECODED_BYTES]
            while data:
                member = self._current_member()
                yield from self._slices(member, data)
                data = member.unused_data

    def end(self) -> None:
        """Raise a 400 if the last member is truncated or the body is empty."""
        if self._member is None or not self._member.eof:
            raise self._invalid("it is truncated")

    def _current_member(self) -> _Decompressor:
        if self._member is None or self._member.eof:
            self._members += 1
            if self._members > MAX_MEMBERS:
                raise self._invalid(f"it has more than {MAX_MEMBERS} members")
            self._member = self._start()
        return self._member

    def _slices(self, member: _Decompressor, data: bytes) -> Iterator[bytes]:
        try:
            while True:
                output = member.decompress(data, DECODED_BYTES)
                yield output
                if member.eof or len(output) < DECODED_BYTES:
                    return
                data = getattr(member, "unconsumed_tail", b"")  # zstd keeps its unread input
        except self._error as error:
            raise self._invalid(str(error)) from None

    def _invalid(self, reason: str) -> ApiError:
        return invalid(None, f"The body of the request could not be decompressed as {self._name}: {reason}.", "invalid_body")


def decoder_for(content_encoding: str) -> Decoder | None:
    """Return the decoder for a `Content-Encoding`, or None for no compression; raise a 415 for an unknown coding or several."""
    match content_encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return Decoder("gzip", lambda: zlib.decompressobj(GZIP), zlib.error)
        case "deflate":
            return Decoder("deflate", zlib.decompressobj, zlib.error)
        case "zstd" if (decoder := _zstd_decoder()) is not None:
            return decoder
        case _:
            message = f"Unsupported content encoding: '{content_encoding[:100]}'. Supported encodings are: {codings()}."
            raise ApiError(415, message, code="unsupported_content_encoding")


def codings() -> str:
    """Return the content codings that can be read, as `Accept-Encoding` lists them."""
    return "gzip, deflate" if _zstd_decoder() is None else "gzip, deflate, zstd"


def _zstd_decoder() -> Decoder | None:
    """Return a decoder for zstd, or None if its package is not installed."""
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd  # noqa: PLC0415
        else:
            from backports import zstd  # pyright: ignore[reportMissingTypeStubs] - only the namespace lacks stubs  # noqa: PLC0415
    except ImportError:
        return None
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: WINDOW_LOG}
    return Decoder("zstd", lambda: zstd.ZstdDecompressor(options=options), zstd.ZstdError)


async def read_json(
    request: Request,
    *,
    max_bytes: int,
    decode: Callable[[bytes, Yielder], Awaitable[dict[str, object]]] = read_object,
) -> dict[str, object]:
    """Read and `decode` the body of a request; see `read_body` and `read_object` for the errors."""
    yielder = Yielder()
    body = await decode(await read_body(request, max_bytes, yielder), yielder)
    log_model(body)
    await yielder.checkpoint()  # because decoding may have taken long
    return body


async def read_body(request: Request, max_bytes: int, yielder: Yielder) -> bytes:  # noqa: C901 - each limit, where it is met
    """Read the body of a request whose content type is JSON.

    A request without a content type is refused too, because browsers send such requests for foreign pages without a preflight.
    `max_bytes` limits the body before and after decompression. Other tasks run between the slices of a long body. A body that is
    refused while it is read is still read to its end, up to a limit, so that the client can read the error.

    Raises:
        ApiError: 415 for another content type or an unknown coding, 413 for a body that is too large or has too many values,
            400 for a body that cannot be decompressed.
        ClientDisconnect: The client disconnected.
    """
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != JSON:
        message = f"Unsupported content type: '{content_type[:100]}'. This method only accepts '{JSON}'."
        raise ApiError(415, message, code="unsupported_content_type")
    coding = request.headers.get("content-encoding")
    decoder = None if coding is None else decoder_for(coding)
    body, budget, is_small = bytearray(), JsonBudget(), True
    refusal: ApiError | None = None
    received = size = 0
    async for chunk in request.stream():
        received += len(chunk)
        if received > max_bytes + DISCARDED:
            break
        if refusal is not None or not chunk:
            continue
        try:
            for part in (chunk,) if decoder is None else decoder.decompress(chunk):
                size += len(part)
                if max(size, received) > max_bytes:
                    raise _too_large(max_bytes)
                if is_small and (is_small := budget.count(part)):
                    body += part
                await (yielder.checkpoint() if decoder is None else asyncio.sleep(0))
        except ApiError as error:
            refusal = error
    if refusal is not None:
        raise refusal
    if received > max_bytes:
        raise _too_large(max_bytes)
    if decoder is not None:
        decoder.end()
    if not is_small:
        raise too_many_values()
    return bytes(body)


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(413, f"The body of the request is larger than {max_bytes} bytes.", code="request_too_large")
