"""Decodes a request's body from bytes to a JSON object, within limits.

Lone surrogates, which come from clients that truncate strings in the middle of a character, become U+FFFD.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from typing import Final, cast

import orjson
from attrs import define, field

from interlock.serving.requests.api_errors import ApiError, invalid
from interlock.serving.requests.runtime import Yielder

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
    """Decode a body to a JSON object, and yield to the event loop while lone surrogates are replaced.

    Raises:
        ApiError: 400 for a body that is not a JSON object, is nested too deeply, or has lone surrogates and too many bytes.
    """
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
