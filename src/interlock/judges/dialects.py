"""Detects the API of a stream, and judges it; the module of this package with the name of an API has its judge.

docs/guides/dialects.md explains the rules of the other APIs than Responses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Final

from interlock.dialects import APIS, DIALECT_APIS, ApiName
from interlock.events.dialects import DialectName
from interlock.events.json import EMPTY, elements, is_object, members, parse
from interlock.events.rulebook import Rule
from interlock.events.sse import BOM, SseMessage
from interlock.judges.judging import Body, DialectJudge, Judge, JudgedMessage, StreamDecoder, Verdict, read_body

UNDECIDED: Final = 2**16
"""The number of bytes after which an undetected stream is judged as one of the Responses API."""

DIALECT_JUDGES: Final[Mapping[str, type[DialectJudge]]] = {
    name: import_module(f"interlock.judges.{name}").JUDGE for name in DIALECT_APIS
}
"""The judge of each other API than Responses."""

DIALECT_RULES: Final[Mapping[str, Rule]] = {
    number: rule for judge in DIALECT_JUDGES.values() for number, rule in judge.rules.items()
}
"""The rules of these APIs, by number."""

_ARRAY: Final = re.compile(rb"\s*\[\s*[{\]]")
_WHOLE: Final = re.compile(rb'\s*\{[^{}]*(?:"object"\s*:\s*"(?:response|chat\.completion)"|"type"\s*:\s*"message")')
_ERROR: Final = re.compile(rb'\s*\{[^{}]*"error"\s*:(?!\s*null)')
_SHOWN: Final = 200
"""The most bytes of a server's error that are shown."""


def why_no_stream(beginning: bytes) -> str:
    """Return why the body of an answer that begins so is no stream; empty if it may be one."""
    beginning = beginning.removeprefix(BOM)
    if _ARRAY.match(beginning):
        return "this is a JSON array, not a stream: write one event per line"
    if _WHOLE.match(beginning):
        return 'this is a whole answer, not a stream: add "stream": true to the request'
    if _ERROR.match(beginning):
        return f"this is an error of the server, not a stream: {beginning[:_SHOWN].decode(errors='replace').strip()}"
    return ""


def find_api(body: Body) -> ApiName | None:
    """Return the API of an event or a whole answer by its shape; None if it fits none."""
    for judge in DIALECT_JUDGES.values():
        if judge.recognizes(body):
            return judge.api
    return "responses" if "type" in body or body.get("object") == "response" else None


def _api_of(message: SseMessage) -> ApiName | None:
    """Return the API of a message; if its data cannot be read, by the name of its event."""
    body = read_body(message) or parse(message.data.partition("\n")[0])  # without empty lines, the events are lines of one
    if is_object(body):
        return find_api(body) or ("responses" if message.event.startswith("response.") else None)
    if message.event == "message":  # the default of an event without a name
        return None
    api = find_api({"type": message.event})
    return None if api == "responses" and not message.event.startswith("response.") else api


def _first(apis: Iterable[ApiName | None]) -> ApiName | None:
    return next((api for api in apis if api is not None), None)


class AnyJudge:
    """Validates the bytes of a stream of any API, which the first event shows unless `api` names it.

    `dialect`, `permissive`, `first` and `whole` are for the Responses API; see `Judge`.

    Raises:
        ValueError: There is no such API.
    """

    def __init__(
        self,
        *,
        api: ApiName | None = None,
        dialect: DialectName = "openai",
        permissive: bool = False,
        first: int = 0,
        whole: Body | None = None,
    ) -> None:
        if api not in (None, *APIS):
            raise ValueError(f"api is {api!r} instead of {', '.join(APIS[:-1])} or {APIS[-1]}")
        self._responses: Callable[[], Judge] = lambda: Judge(dialect=dialect, permissive=permissive, first=first, whole=whole)
        self._judge: Judge | DialectJudge | None = None if api is None else self._make(api)
        self._content_type: str | None = None
        self._request: Body = EMPTY
        self._given: ApiName | None = api
        self._shown: ApiName | None = None
        """The API that an event has shown, or the given one if there is an event. A judge may be chosen without one: for a long
        beginning, or a whole answer."""
        self._beginning = StreamDecoder()
        """Decodes the beginning, which shows the API."""
        self._unread = b""

    def _make(self, api: ApiName) -> Judge | DialectJudge:
        return self._responses() if api == "responses" else DIALECT_JUDGES[api]()

    def content_type(self, value: str) -> None:
        """Check the value of the `Content-Type` header."""
        self._content_type = value

    def request(self, body: Body) -> None:
        """Take the request that the stream answers, on which some rules of Messages and Chat Completions depend."""
        self._request = body

    @property
    def api(self) -> ApiName | None:
        """The API of the stream; None until it is known."""
        return None if self._judge is None else self._judge.api

    @property
    def unreadable(self) -> str:
        """Why the bytes are no stream; empty if an event has the shape or the name of one of an API, or if the API was given."""
        if self._shown is not None:
            return ""
        cause = ", and no line begins with `data:`" if self._beginning.without_data else ""
        return f"this is not a stream: it has no event of Responses, Messages or Chat Completions{cause}"

    def feed(self, chunk: bytes) -> None:
        """Validate the next bytes of the stream, which may be split anywhere."""
        judge = self._read(chunk)
        if judge is not None:
            judge.feed(self._take_unread())

    def follow(self, chunk: bytes) -> Iterator[JudgedMessage]:
        """Validate the next bytes, and yield each message that they complete; `Judge` has its findings, too."""
        judge = self._read(chunk)
        return iter(()) if judge is None else judge.follow(self._take_unread())

    def follow_end(self) -> Iterator[JudgedMessage]:
        """Validate and yield the last message if its final empty line or line feed is missing."""
        judge = self._choose(self._find_at_end())
        yield from judge.follow(self._take_unread())
        yield from judge.follow_end()

    def end(self) -> Verdict:
        """Validate the end of the stream, and return the verdict."""
        judge = self._choose(self._find_at_end())
        judge.feed(self._take_unread())
        return judge.end()

    def _read(self, chunk: bytes) -> Judge | DialectJudge | None:
        """Return the judge of the stream, if its beginning shows the API."""
        self._unread += chunk
        self._shown = self._shown or self._find_api(self._beginning.feed(chunk))
        api = self.api or self._shown
        if api is None and len(self._unread) > UNDECIDED:
            api = "responses"
        return None if api is None else self._choose(api)

    def _find_at_end(self) -> ApiName:
        """Return the API of a stream that ends; it may be a whole answer, or a list of events."""
        self._shown = self._shown or self._find_api(self._beginning.end())
        if self.api is not None:
            return self.api
        value = parse(self._unread)
        bodies = [members(each) for each in elements(value) or [value]]
        return self._shown or _first(map(find_api, bodies)) or "responses"

    def _find_api(self, messages: Iterable[SseMessage]) -> ApiName | None:
        """Return the API of the first event that shows one, or the given API."""
        return _first(self._given if self._given and message.is_event else _api_of(message) for message in messages)

    def _choose(self, api: ApiName) -> Judge | DialectJudge:
        """Return the judge of the stream, after creating the judge of an API if there is none yet."""
        if self._judge is None:
            self._judge = self._make(api)
        if self._content_type is not None:
            self._judge.content_type(self._content_type)
            self._content_type = None
        if isinstance(self._judge, DialectJudge):
            self._judge.request = self._request
        return self._judge

    def _take_unread(self) -> bytes:
        unread, self._unread = self._unread, b""
        return unread
