"""An HTTP client for one upstream server: JSON answers and event streams, with timeouts, retries and errors as `ApiError`.

Errors and log messages contain no keys, and errors do not contain the address of the upstream.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from http import HTTPStatus
from math import isfinite
from typing import Final, NoReturn

import httpx2
import orjson
from attrs import define, field, frozen

from interlock.events.json import dumps
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.json_values import is_object, members

logger = logging.getLogger(__name__)

MAX_EVENT: Final = 16 * 2**20
"""The most bytes of an event, or of an answer that is not a stream."""
MAX_MESSAGE: Final = 2_000
"""The most characters of an upstream's error message."""

RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""The statuses after which another attempt may succeed."""
LONGEST_WAIT: Final = 5.0
"""The longest wait in seconds before another attempt; if it would be longer, the client receives the error instead."""
STALLED: Final = "upstream_timeout"
"""The error code for a silent upstream, which is not retried, because that would double the wait."""
BACKOFF: Final = 0.25
"""Seconds before the second attempt; each further one waits twice as long."""

FETCH: Final = 30.0
"""The longest time in seconds for an answer that is not a stream, retries included."""

DONE: Final = b"[DONE]"
"""The data of the last event; not every API has it."""
DRAIN: Final = 0.1
"""Seconds to wait for the end of a body after `DONE`."""

LIMITS: Final = httpx2.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=4)


@frozen
class Timeouts:
    """The longest waits in seconds: for a connection, for the head and each chunk until the first event, and for later chunks."""

    connect: float = 10
    first: float = 600
    between: float = 120


@frozen
class SseReader:
    """Splits the bytes of an event stream into the data of its events; names, ids and comments are dropped."""

    _rest: list[bytes] = field(factory=list[bytes])
    _data: list[bytes] = field(factory=list[bytes])

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that a chunk completes; raise `ApiError` if one is too large."""
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            self._rest.append(chunk)
            self._require_small()
            return []
        text = b"".join([*self._rest, head])
        self._rest[:] = [tail] if tail else []
        events: list[bytes] = []
        for line in text.split(b"\n"):
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip())
            elif self._data and (not line or line == b"\r"):
                events.append(b"\n".join(self._data))
                self._data.clear()
        if self._data or self._rest:
            self._require_small()
        return events

    def end(self) -> list[bytes]:
        """Return the data of an event that the end of the stream completes."""
        return self.feed(b"\n\n")

    def _require_small(self) -> None:
        if sum(map(len, self._rest)) + sum(map(len, self._data)) > MAX_EVENT:
            raise upstream_error("The upstream server sent an event that is too large.")


@define(eq=False)
class UpstreamClient:
    """Calls one upstream. Paths are relative to its URL; a leading slash makes them relative to the URL without `/v1`."""

    url: str
    key: str | None = field(default=None, repr=False)
    pass_key: bool = False
    """Whether a client's `Authorization` header, if it has one, replaces `key`."""
    timeouts: Timeouts = Timeouts()
    retries: int = 2
    _http: httpx2.AsyncClient | None = field(default=None, init=False)

    @property
    def http(self) -> httpx2.AsyncClient:
        if self._http is None:
            secure = self.url.startswith("https:")  # loads certificates only for TLS
            self._http = httpx2.AsyncClient(verify=secure, timeout=httpx2.Timeout(None), limits=LIMITS)
        return self._http

    async def fetch(self, path: str, body: Mapping[str, object] | None = None, authorization: str | None = None) -> object:
        """Return the JSON answer to a GET, or to a POST if there is a body.

        Raises:
            ApiError: The upstream refuses the request, cannot be reached, is too slow, or does not answer with JSON.
        """
        stream = self.stream(path, body, authorization)
        seconds = min(self.timeouts.first, FETCH)
        try:
            async with asyncio.timeout(seconds):
                await stream.open()
                return _decoded(await stream.read())
        except TimeoutError:
            _raise_stalled(seconds)
        finally:
            await stream.close()

    def stream(self, path: str, body: Mapping[str, object] | None = None, authorization: str | None = None) -> EventStream:
        """Return a call that has not begun: a POST, or a GET if there is no body."""
        headers = {"accept": "text/event-stream, application/json", "accept-encoding": "identity"}
        if body is not None:
            headers["content-type"] = "application/json"
        if self.pass_key and authorization:
            headers["authorization"] = authorization
        elif self.key:
            headers["authorization"] = f"Bearer {self.key}"
        base = self.url.removesuffix("/v1") if path.startswith("/") else f"{self.url}/"
        return EventStream(self, f"{base}{path}", None if body is None else dumps(body), headers)

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()


@define(eq=False)
class EventStream:
    """One call of an upstream, which is retried on failure, up to the client's `retries`, until its first event arrives."""

    _client: UpstreamClient
    _url: str
    _body: bytes | None = field(repr=False)
    _headers: Mapping[str, str] = field(repr=False)
    _attempts: int = field(default=0, init=False)
    _response: httpx2.Response | None = field(default=None, init=False)

    async def open(self) -> None:
        """Wait for the head of the answer, unless it has arrived.

        Raises:
            ApiError: The upstream refuses the request, or cannot be reached.
        """
        while self._response is None:
            self._attempts += 1
            try:
                self._response = await self._attempt()
            except ApiError as error:
                await self._wait_or_raise(error)

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yield the data of each event up to `DONE`; an answer that is JSON instead of a stream is one event.

        Raises:
            ApiError: The upstream refuses the request, the stream stalls or breaks, or the answer is not a stream.
        """
        while True:
            await self.open()
            response = self._response
            assert response is not None  # noqa: S101 - `open` has set it
            reader, is_first = SseReader(), True
            try:
                if _media_type(response) == "application/json":
                    yield await self.read()
                    return
                _require_stream(response)
                chunks = _chunks(response)
                chunk: bytes | None = b""
                while chunk is not None:
                    chunk = await self._next(chunks, is_first=is_first)
                    for data in reader.end() if chunk is None else reader.feed(chunk):
                        is_first = False
                        yield data
                        if data == DONE:
                            await _drain(chunks)
                            return
            except ApiError as error:
                if not is_first:
                    raise
                await self.close()
                await self._wait_or_raise(error)
            else:
                return

    async def read(self) -> bytes:
        """Return the whole body of an open call."""
        response = self._response
        assert response is not None  # noqa: S101 - the caller has opened it
        chunks, parts, size = _chunks(response), list[bytes](), 0
        while (chunk := await self._next(chunks, is_first=True)) is not None:
            parts.append(chunk)
            size += len(chunk)
            if size > MAX_EVENT:
                raise upstream_error("The answer of the upstream server is too large.")
        return b"".join(parts)

    async def close(self) -> None:
        """Close the connection of an unfinished call, which makes the upstream abort it."""
        response, self._response = self._response, None
        if response is not None:
            await response.aclose()

    async def _attempt(self) -> httpx2.Response:
        http, timeouts = self._client.http, self._client.timeouts
        method = "GET" if self._body is None else "POST"
        request = http.build_request(method, self._url, content=self._body, headers=self._headers)
        request.extensions["timeout"] = {"connect": timeouts.connect}
        try:
            async with asyncio.timeout(timeouts.first):
                response = await http.send(request, stream=True)
        except TimeoutError:
            _raise_stalled(timeouts.first)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            logger.warning("the upstream server could not be reached: %s", type(error).__name__)
            raise upstream_error("The upstream server cannot be reached.", "upstream_unreachable") from error
        if response.is_success:
            return response
        self._response = response
        try:
            raise _refusal(response, await self.read(), self._headers.get("authorization"))
        finally:
            await self.close()

    async def _next(self, chunks: AsyncGenerator[bytes, None], *, is_first: bool) -> bytes | None:
        """Return the next bytes of the body, or None at its end."""
        seconds = self._client.timeouts.first if is_first else self._client.timeouts.between
        try:
            async with asyncio.timeout(seconds):
                return await anext(chunks, None)
        except TimeoutError:
            _raise_stalled(seconds)
        except httpx2.HTTPError as error:
            logger.warning("the connection to the upstream server broke: %s", type(error).__name__)
            message = "The connection to the upstream server broke before the end of its answer."
            raise upstream_error(message, "upstream_disconnected") from error

    async def _wait_or_raise(self, error: ApiError) -> None:
        """Wait until the next attempt, or raise the error if there is no further one."""
        backoff = min(BACKOFF * 2 ** (self._attempts - 1), LONGEST_WAIT)
        wait = backoff if error.retry_after is None else error.retry_after
        is_lasting = error.status not in RETRIED or error.code == STALLED
        if self._attempts > self._client.retries or is_lasting or wait > LONGEST_WAIT:
            raise error
        logger.info("the upstream server failed with status %d; next attempt in %.2f s", error.status, wait)
        await asyncio.sleep(wait)


def _chunks(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """Return the chunks of a body, decompressed if the server compresses it in spite of the request."""
    return response.aiter_bytes() if "content-encoding" in response.headers else response.aiter_raw()


async def _drain(chunks: AsyncGenerator[bytes, None]) -> None:
    """Read the end of a body, so that its connection can be reused, but give up soon if it does not come."""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(DRAIN):
            async for _ in chunks:
                pass


def upstream_error(message: str, code: str = "upstream_error") -> ApiError:
    """Return the error for a fault of the upstream server."""
    return ApiError(502, message, "server_error", code=code)


def _raise_stalled(seconds: float) -> NoReturn:
    message = f"The upstream server sent nothing for {seconds:g} seconds."
    raise ApiError(504, message, "server_error", code=STALLED)


def _media_type(response: httpx2.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _require_stream(response: httpx2.Response) -> None:
    media_type = _media_type(response)
    if media_type not in ("text/event-stream", ""):
        message = f"The upstream server answered with {media_type[:100]} instead of an event stream."
        raise upstream_error(message)


def _decoded(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except ValueError:
        message = "The upstream server did not answer with JSON."
        raise upstream_error(message) from None


def error_of(value: object, status: int = 502, authorization: str | None = None, retry_after: float | None = None) -> ApiError:
    """Return the error in an error body of any common form, or in an event."""
    body = members(value)
    error = body.get("error", body.get("detail", body))
    fields = members(error)
    message = fields.get("message") if is_object(error) else error
    text = message if isinstance(message, str) and message else f"The upstream server answered with status {status}."
    for secret in (authorization, (authorization or "").partition(" ")[2]):
        text = text.replace(secret, "***") if secret else text
    kind, code = fields.get("type"), fields.get("code")
    default_type = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    return ApiError(
        status,
        text[:MAX_MESSAGE],
        kind if isinstance(kind, str) and kind else default_type,
        code=code if isinstance(code, str) else None,
        retry_after=retry_after,
    )


def _refusal(response: httpx2.Response, body: bytes, authorization: str | None) -> ApiError:
    status = response.status_code if response.is_error else int(HTTPStatus.BAD_GATEWAY)
    value: object = None
    with suppress(ValueError):
        value = orjson.loads(body)
    return error_of(value, status, authorization, _retry_after(response.headers.get("retry-after")))


def _retry_after(header: str | None) -> float | None:
    """Return the seconds until a `Retry-After`, which has seconds or a date (RFC 9110, section 10.2.3)."""
    if header is None:
        return None
    with suppress(ValueError):
        seconds = float(header)
        return max(seconds, 0) if isfinite(seconds) else None
    with suppress(ValueError):
        return max(email.utils.parsedate_to_datetime(header).timestamp() - time.time(), 0)
    return None
