"""One upstream server, and the calls of it: JSON answers and event streams, with timeouts, retries and errors as `ApiError`.

Errors and log messages contain no keys, and errors do not contain the address of the upstream.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from http import HTTPStatus
from math import isfinite
from typing import Final
from urllib.parse import urlsplit

import orjson
from attrs import define, evolve, field

from interlock.events.json import dumps, is_array, members, parse
from interlock.events.sse import BOM
from interlock.parsers import Tagged
from interlock.serving import metrics
from interlock.serving.engines.upstream.http_client import PORTS, Answer, HttpClient, HttpError
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.input_items import short_id
from interlock.serving.settings import UpstreamSettings

logger = logging.getLogger(__name__)

MAX_EVENT: Final = 16 * 2**20
"""The most bytes of an event, or of an answer that is not a stream."""
MAX_STREAM: Final = 256 * 2**20
"""The most bytes of a stream."""
MAX_MESSAGE: Final = 2_000
"""The most characters of an upstream's error message."""

RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""The statuses after which another attempt may succeed."""
CLIENT_ERRORS: Final = frozenset({400, 404, 413, 422})
"""The statuses of requests at whose error an operator can do nothing, so that the log has no warning."""
LONGEST_WAIT: Final = 5.0
"""The longest wait in seconds before another attempt; if it would be longer, the client receives the error instead."""
STALLED: Final = "upstream_timeout"
"""The error code for a silent upstream, which is not retried, because that would double the wait."""
UNREACHABLE: Final = "upstream_unreachable"
"""The error code for an upstream without a connection or an answer."""
DISCONNECTED: Final = "upstream_disconnected"
"""The error code for a connection that ends before the answer does."""
REDIRECTED: Final = "upstream_redirect"
"""The error code for a redirect, which is not retried either, because the next answer would be the same."""
UNAUTHORIZED: Final = "upstream_unauthorized"
"""The error code for a 401 to the gateway's own key, of which the client must not think that its own key is wrong."""
LOGGED: Final = frozenset({STALLED, REDIRECTED})
"""The error codes of faults that are logged where they are found, and after which another attempt would not succeed."""
BACKOFF: Final = 0.25
"""Seconds before the second attempt; each further one waits twice as long."""

FETCH: Final = 30.0
"""The longest time in seconds for an answer that is not a stream, retries included."""

DONE: Final = b"[DONE]"
"""The data of the last event; not every API has it."""
DRAIN: Final = 0.1
"""Seconds to wait for the end of a body after its last event."""
ERROR_NAMES: Final = frozenset({b"event: error", b"event:error"})
"""The lines that name an event as an error."""
JSON_STARTS: Final = (b"{", b"[")
"""The beginnings of JSON without `data:`."""
NO_STATUS: Final = 600
"""The least number of three digits that is no status in HTTP; clients and servers raise an error for it."""
FIELD: Final = re.compile(rb"(data|event|id|retry)?:")
"""Matches the beginning of an event stream."""
LONGEST_FIELD: Final = 6
RETURN: Final = ord("\r")
TOO_LARGE: Final = "The answer of the upstream server is too large."
EVENT_TOO_LARGE: Final = "The upstream server sent an event that is too large."
NESTED: Final = ("message", "msg", "detail", "error", "errors", "Message", "title")
"""The fields of an error that may have its message."""
CODES: Final[Mapping[str, str]] = {"400": "invalid_prompt", "429": "rate_limit_exceeded"}
"""The codes of errors that say in an event what an HTTP status says of an answer."""
SHORT_ID: Final = re.compile("[a-zA-Z0-9]{9}")
"""Matches the ids of calls that every service accepts."""
DEPTH: Final = 4
"""How deep in an error its message may be."""


@define(eq=False)
class SseReader:
    """Splits the bytes of an event stream into the data of its events; names, ids and comments are dropped.

    An event named `error` is one whatever its data, and JSON without `data:` at the end of a stream is an event too.
    """

    is_complete: bool = field(default=False, init=False)
    """Whether the last event was read."""
    _size: int = field(default=0, init=False)
    """The bytes that were read."""
    _limit: int = field(factory=lambda: MAX_EVENT, init=False)
    """The most bytes that may be read before the next event is complete."""
    _rest: list[bytes] = field(factory=list[bytes], init=False)
    """The chunks of an incomplete line."""
    _data: list[bytes] = field(factory=list[bytes], init=False)
    """The lines of an incomplete event."""
    _is_error: bool = field(default=False, init=False)
    """Whether the incomplete event is named `error`."""
    _bare: list[bytes] = field(factory=list[bytes], init=False)
    """The lines of JSON without `data:` since the last event."""
    _after_return: bool = field(default=False, init=False)
    """Whether the last byte was a carriage return; a line feed after it ends no other line."""
    _is_start: bool = field(default=True, init=False)

    def feed(self, chunk: bytes) -> list[bytes]:  # noqa: C901 - a call for each line would take longer than the line
        """Return the data of the events that a chunk completes, up to `DONE`; raise `ApiError` if there are too many bytes."""
        self._size += len(chunk)
        if self._after_return or RETURN in chunk:
            chunk = self._normalize_lines(chunk)
        *lines, tail = chunk.split(b"\n")
        if lines and (self._rest or self._is_start):
            lines[0] = self._complete(lines[0])
        events: list[bytes] = []
        data = self._data
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].strip())
            elif not line:
                if data:
                    event = b"\n".join(data)
                    events.append(_as_error(event) if self._is_error else event)
                    data.clear()
                    self._bare.clear()
                    if events[-1] == DONE:
                        self.is_complete = True
                        return events
                self._is_error = False
            elif line in ERROR_NAMES:
                self._is_error = True
            elif self._bare or line.startswith(JSON_STARTS):
                self._bare.append(line)
        if tail:
            self._rest.append(tail)
        if events:
            self._limit = min(self._size - len(tail) + MAX_EVENT, MAX_STREAM)
        if self._size > self._limit:
            raise upstream_error(TOO_LARGE if self._limit == MAX_STREAM else EVENT_TOO_LARGE)
        return events

    def end(self) -> list[bytes]:
        """Return the data of an event that the end of the stream completes."""
        events = self.feed(b"\n\n")
        self.is_complete = True
        bare, self._bare = b"\n".join(self._bare), []
        return [*events, bare] if parse(bare) is not None else events

    def _complete(self, line: bytes) -> bytes:
        """Return the first line of a chunk with what the chunks before had of it, and without a byte order mark."""
        line = b"".join([*self._rest, line])
        self._rest.clear()
        if self._is_start:
            line, self._is_start = line.removeprefix(BOM), False
        return line

    def _normalize_lines(self, chunk: bytes) -> bytes:
        """Return a chunk whose lines end with line feeds alone."""
        if self._after_return:
            chunk = chunk.removeprefix(b"\n")
        self._after_return = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


@define(eq=False)
class Upstream:
    """One server behind the gateway. Paths are relative to its URL; a leading slash makes them relative to the URL without `/v1`.

    With a `family`, Interlock parses its text as that family writes.
    """

    settings: UpstreamSettings = field(repr=False)
    url: str
    key: str | None = field(default=None, repr=False)
    family: Tagged | None = None
    cache: dict[str, object] = field(factory=dict[str, object], init=False, repr=False)
    """Constant facts about the server, which translators cache here."""
    _http: HttpClient | None = field(default=None, init=False)

    @property
    def http(self) -> HttpClient:
        if self._http is None:
            self._http = HttpClient(self.url, self.settings.connect_timeout)
        return self._http

    @property
    def origin(self) -> str:
        """Names the service in the extras of calls (`interlock.events.chat`)."""
        return sha256(self.url.encode()).hexdigest()[:8]

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port, as metrics and traces name the server."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or PORTS[parts.scheme]

    def rename_fields(self, body: Mapping[str, object]) -> dict[str, object]:
        """Return the body of a request with this upstream's field names, without nulls and dropped fields."""
        names = self.settings.fields
        return {names.get(name, name): value for name, value in body.items() if value is not None and names.get(name, name)}

    def fit(self, call_id: str) -> str:
        """Return the id of a call for this upstream: the same, or a short one in its place."""
        return short_id(call_id) if self.settings.short_call_ids and not SHORT_ID.fullmatch(call_id) else call_id

    def authorization(self, passed: str | None) -> str | None:
        """Return the `Authorization` header of a call for a client with the header `passed`."""
        if self.settings.pass_key and passed:
            return passed
        return f"Bearer {self.key}" if self.key else None

    async def fetch(
        self,
        path: str,
        body: Mapping[str, object] | None = None,
        authorization: str | None = None,
        *,
        limit: float = FETCH,
        is_probe: bool = False,
    ) -> object:
        """Return the JSON answer to a GET, or to a POST if there is a body, within `limit` seconds.

        A probe is neither retried nor logged.

        Raises:
            ApiError: The upstream refuses the request, cannot be reached, is too slow, or does not answer with JSON.
        """
        stream = self.stream(path, body, authorization, is_probe=is_probe)
        seconds = min(self.settings.first_timeout, limit)
        with stream.redact_keys():
            try:
                async with asyncio.timeout(seconds):
                    await stream.open()
                    return _decode(await stream.read())
            except TimeoutError:
                message = f"The upstream server did not answer within {seconds:g} seconds."
                raise ApiError(504, message, "server_error", code=STALLED) from None
            finally:
                await stream.close()

    def stream(
        self, path: str, body: Mapping[str, object] | None = None, authorization: str | None = None, *, is_probe: bool = False
    ) -> EventStream:
        """Return a call that has not begun: a POST, or a GET if there is no body."""
        headers = {"accept": "text/event-stream, application/json", "accept-encoding": "identity"}
        if body is not None:
            headers["content-type"] = "application/json"
        if key := self.authorization(authorization):
            headers["authorization"] = key
        base = urlsplit(self.url).path
        base = base.removesuffix("/v1") if path.startswith("/") else f"{base}/"
        return EventStream(self, f"{base}{path}", None if body is None else dumps(body), headers, is_probe)

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.close()


@define(eq=False)
class EventStream:
    """One call of an upstream, which is retried on failure, up to the upstream's `retries`, until the upstream has begun.

    It has begun once the head of a successful answer arrives: another call would generate, and cost, a second time.
    """

    _upstream: Upstream
    _path: str
    _body: bytes | None = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    _is_probe: bool = False
    _attempts: int = field(default=0, init=False)
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop, init=False)
    _response: Answer | None = field(default=None, init=False)
    _limit: float = field(default=0, init=False)
    """The longest wait for the next bytes."""
    _reads_since: float | None = field(default=None, init=False)
    """The time at which the current wait began."""
    receive: Callable[[], bool] | None = field(default=None, init=False)
    """Takes the reads after the first events; see `Answer.receive`."""
    reader: SseReader = field(factory=SseReader, init=False)
    has_begun: bool = field(default=False, init=False)
    """Whether the first events have arrived, so that the call is not retried any more."""
    _timer: asyncio.Handle | None = field(default=None, init=False)
    """Looks at the wait: one for the whole stream, because a timeout for each read would cost more than the read."""

    @property
    def _has_clients_key(self) -> bool:
        """Whether the call has the key that a client has sent, or should have sent."""
        own = self._upstream.authorization(None)
        return self._upstream.settings.pass_key and (own is None or self.headers.get("authorization") != own)

    @contextmanager
    def redact_keys(self) -> Generator[None]:
        """Remove the keys of this call from an `ApiError` that leaves the context, and truncate its message."""
        try:
            yield
        except ApiError as error:
            keys = keys_of(self.headers.get("authorization"))
            kind, code = redact(error.type, keys), error.code and redact(error.code, keys)
            message = redact(error.message, keys)[:MAX_MESSAGE]
            raise evolve(error, message=message, type=kind, code=code) from error.__cause__

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

    async def next_events(self) -> list[bytes] | None:
        """Return the data of the events that the next read of an open call completes, up to `DONE`, and None at its end.

        An answer that is JSON is one event.

        Raises:
            ApiError: The stream stalls or breaks, or the answer is not a stream.
        """
        if not self.has_begun:
            return await self._first_events()
        return None if self.reader.is_complete else await self._read_events()

    async def _first_events(self) -> list[bytes] | None:
        answer, media_type = self.answer, _media_type(self.answer)
        head = b"" if media_type == "text/event-stream" else await self._head()
        text = head.removeprefix(BOM).lstrip()
        if head and not FIELD.match(text):
            if media_type != "application/json" and text[:1] not in (b"{", b"["):
                raise upstream_error(f"The upstream server answered with {media_type or 'a text'} instead of an event stream.")
            events: list[bytes] | None = [await self.read(head)]
            self.reader.is_complete = True
        else:
            events = self.reader.feed(head)
            while not (events or self.reader.is_complete):
                events = await self._read_events()
            self._set_limit(self._upstream.settings.between_timeout)
            answer.receive = self.receive
        self.has_begun = True
        return events or None

    async def _head(self) -> bytes:
        """Return the beginning of a body that shows what it is: many servers label an event stream as something else."""
        head = b""
        while len(text := head.removeprefix(BOM).lstrip()) < LONGEST_FIELD and not FIELD.match(text) and len(head) < MAX_EVENT:
            chunk = await self._read()
            if not chunk:
                break
            head += chunk
        return head

    async def _read_events(self) -> list[bytes]:
        """Return the events that the next read completes: none if it completes none, or a shortcut has taken them."""
        if chunk := await self._read():
            return self.reader.feed(chunk)
        return self.reader.end() if self.answer.is_over else []

    def note_read(self) -> None:
        """Note that a shortcut has taken a read; the wait for the next one begins."""
        self._reads_since = self._loop.time()

    async def read(self, head: bytes = b"") -> bytes:
        """Return the whole body of an open call, which has begun with `head`."""
        parts, size = [head], len(head)
        while size <= MAX_EVENT and (chunk := await self._read()):
            parts.append(chunk)
            size += len(chunk)
        if size > MAX_EVENT:
            raise upstream_error(TOO_LARGE)
        return b"".join(parts)

    async def close(self) -> None:
        """Close the connection of an unfinished call, which makes the upstream abort it."""
        response, self._response = self._response, None
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if response is not None:
            response.receive = None
            response.fail(HttpError("nobody wants the rest of the answer"))

    @property
    def answer(self) -> Answer:
        """The answer, once the call is open."""
        assert self._response is not None  # noqa: S101 - `open` has set it
        return self._response

    async def _attempt(self) -> Answer:
        method = "GET" if self._body is None else "POST"
        self._limit = seconds = self._upstream.settings.first_timeout
        try:
            async with asyncio.timeout(seconds):
                response = await self._upstream.http.request(method, self._path, self.headers, self._body)
        except TimeoutError:
            stall = _stall_error(seconds)
            self._log("%s", stall)
            raise stall from None
        except (HttpError, ValueError) as error:
            raise upstream_error("The upstream server cannot be reached.", UNREACHABLE) from error
        if response.status < HTTPStatus.MULTIPLE_CHOICES:
            _require_plain(response)
            return response
        self._response = response
        try:
            raise self._refusal(response, await self.read())
        finally:
            await self.close()

    async def _read(self) -> bytes:
        """Return the next bytes of the body: none at its end, or if a shortcut took them; raise `ApiError` if it breaks off."""
        answer = self.answer
        if not answer.parts:
            self._reads_since = self._loop.time()
            if self._timer is None:
                self._watch()
            try:
                await answer.more()
            finally:
                self._reads_since = None
        try:
            return answer.take()
        except HttpError as error:
            message = "The connection to the upstream server broke before the end of its answer."
            raise upstream_error(message, DISCONNECTED) from error

    def _set_limit(self, seconds: float) -> None:
        """Wait at most `seconds` for the next bytes from now on."""
        self._limit = seconds
        if self._timer is not None:
            self._timer.cancel()
            self._watch()

    def _watch(self) -> None:
        """End the current wait if it has lasted too long, and look again when the next one may have."""
        loop, since = self._loop, self._reads_since
        now = loop.time()
        due = self._limit + (now if since is None else since)
        if due > now or since is None:
            self._timer = loop.call_at(due, self._watch)
        else:
            self._timer = loop.call_soon(self._end_wait, since)  # after the task that bytes may have woken just now

    def _end_wait(self, since: float) -> None:
        if self._reads_since == since:
            self.answer.fail(_stall_error(self._limit))
        self._watch()

    def _refusal(self, response: Answer, body: bytes) -> ApiError:
        """Return the error for an answer that is not a success."""
        if response.status < HTTPStatus.BAD_REQUEST:
            self._log("the upstream server redirects to %s", response.headers.get("location", "").partition("?")[0])
            message = (
                f"The upstream server redirects to another address (status {response.status}), and the gateway does not follow."
            )
            return upstream_error(message, REDIRECTED)
        status = response.status if response.status < NO_STATUS else HTTPStatus.BAD_GATEWAY
        return error_in(body, status, _retry_after(response.headers.get("retry-after")))

    def _log(self, message: str, *values: object, level: int = logging.WARNING) -> None:
        """Log a message, without the keys of this call, which an upstream may repeat."""
        text = redact(message % values, keys_of(self.headers.get("authorization")))
        logger.log(logging.DEBUG if self._is_probe else level, "%s", text)

    async def drain(self) -> None:
        """Read the end of a body after its last event, for its connection to be reused, but give up soon if it does not come."""
        self.answer.receive = None
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(DRAIN):
                while await self._read():
                    pass

    async def _wait_or_raise(self, error: ApiError) -> None:
        """Wait until the next attempt, or raise the error if there is no further one."""
        backoff = min(BACKOFF * 2 ** (self._attempts - 1), LONGEST_WAIT)
        wait = backoff if error.retry_after is None else error.retry_after
        is_lasting = error.status not in RETRIED or error.code in LOGGED
        reason = f"the call failed with status {error.status}: {error.message[:MAX_MESSAGE]}"
        if error.code == UNREACHABLE:
            reason = f"the upstream server could not be reached: {error.__cause__}"
        if self._is_probe or self._attempts > self._upstream.settings.retries or is_lasting or wait > LONGEST_WAIT:
            if error.status not in CLIENT_ERRORS and error.code not in LOGGED:
                self._log("%s", reason)
            if error.status == HTTPStatus.UNAUTHORIZED and not (self._is_probe or self._has_clients_key):
                raise upstream_error("The upstream server refuses the key of the gateway.", UNAUTHORIZED) from None
            raise error
        self._log("%s; next attempt in %.2f s", reason, wait, level=logging.INFO)
        labels = (*map(str, self._upstream.address), metrics.known_code(error.code, f"{error.status}"))
        metrics.count("interlock_upstream_retries_total", *labels)
        await asyncio.sleep(wait)


def keys_of(authorization: str | None) -> Sequence[str]:
    """Return what no text may contain: the value of an `Authorization` header, and the key in it."""
    value = authorization or ""
    return [secret for secret in (value, value.partition(" ")[2].strip()) if secret]


def redact(text: str, keys: Sequence[str]) -> str:
    """Return a text without keys. Whatever an upstream says about an error passes through here before it leaves the gateway."""
    for key in keys:
        text = text.replace(key, "***")
    return text


def upstream_error(message: str, code: str = "upstream_error") -> ApiError:
    """Return the error for a fault of the upstream server."""
    return ApiError(502, message, "server_error", code=code)


def _stall_error(seconds: float) -> ApiError:
    return ApiError(504, f"The upstream server sent nothing for {seconds:g} seconds.", "server_error", code=STALLED)


def _media_type(response: Answer) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _require_plain(response: Answer) -> None:
    coding = response.headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        error = upstream_error(f"The upstream server compressed its answer ({coding}), which the request does not accept.")
        response.fail(error)
        raise error


def _decode(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except ValueError:
        raise upstream_error("The upstream server did not answer with JSON.") from None


def error_in(data: bytes, status: int = 502, retry_after: float | None = None) -> ApiError:
    """Return the error in an error body of any common form, or in the data of an event."""
    value = parse(data)
    body = members(_first(value))
    error = body.get("error") or body.get("detail") or _first(body.get("errors")) or body
    kind, code = members(error).get("type"), members(error).get("code")
    default_type = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    text = _message_of(body.get("error") or body.get("detail") or value)
    text = text or (dumps(error).decode() if error and error is not body else "")
    return ApiError(
        status,
        text or f"The upstream server answered with status {status}.",
        kind if isinstance(kind, str) and kind else default_type,
        code=code if isinstance(code, str) else None,
        retry_after=retry_after,
    )


def error_event(data: bytes) -> ApiError:
    """Return the error in the data of an event, with its own code, that of the HTTP status it names, or `upstream_error`."""
    fault, body = error_in(data), members(_first(parse(data)))
    error = members(body.get("error") or _first(body.get("errors")) or body)
    number = str(error.get("code", error.get("status")))
    return evolve(fault, code=CODES.get(number, fault.code or "upstream_error"))


def has_message(data: bytes) -> bool:
    """Return whether the data of an event is an error of any form with a message."""
    return bool(_message_of(parse(data)))


def _as_error(data: bytes) -> bytes:
    """Return the data of an event named `error` in a form that says so."""
    value = parse(data)
    if members(value).get("type") == "error" or "error" in members(value) or data == DONE:
        return data
    return dumps({"error": data.decode(errors="replace") if value is None else value})


def _first(value: object) -> object:
    """Return the first of a list of errors, or the only one."""
    return next(iter(value), None) if is_array(value) else value


def _message_of(error: object, depth: int = DEPTH) -> str:
    """Return the message in an error: a text, several of them, or an object with one, such as each of FastAPI's `detail`."""
    if isinstance(error, str) or not depth:
        return error if isinstance(error, str) else ""
    if is_array(error):
        return "; ".join(filter(None, (_message_of(each, depth - 1) for each in error)))
    fields = members(error)
    message = next((text for name in NESTED if (text := _message_of(fields.get(name), depth - 1))), "")
    place = fields.get("loc")
    return f"{'.'.join(map(str, place))}: {message}" if message and is_array(place) else message


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
