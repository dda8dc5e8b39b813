"""The bytes of a request's body, read as a JSON object.

It knows JSON's limits and nothing of what the object says. Lone surrogates, which JSON's escapes can write and clients
that cut strings in the middle do send, become U+FFFD.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import chain
from typing import Final, cast

import orjson
from attrs import define, field

from interlock.serving.requests.api_errors import ApiError, invalid
from interlock.serving.requests.json_values import is_object
from interlock.serving.requests.yielder import Yielder

__all__ = ["JsonBudget", "read_object", "read_object_in_turns", "require_shallow"]

DEPTH: Final = 100
"""Levels of arrays and objects that a body may have: more than any request needs, fewer than any recursion bears."""

MOST_VALUES: Final = 50_000
"""Values that a body may have: each takes time to read, in which a server does nothing else, and a hundred bytes."""


PATIENT: Final = 4 * 2**20
"""Bytes of a body with lone surrogates, which is read a second time."""

PIECE: Final = re.compile(rb"(?:[^\\]|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.){1,16384}+", re.DOTALL)
"""A piece of a body that ends between two characters, pairs of surrogates among them."""
SURROGATES: Final = re.compile(
    rb"\\(?:(u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|[^u])|u[dD][89a-fA-F][\da-fA-F]{2})", re.DOTALL
)
"""A pair of surrogates or any other escape, which is a group, or a lone surrogate."""


@define
class JsonBudget:
    """Counts the values of a body while it comes, so that one of too many is refused before it is read.

    It looks at commas and brackets outside of strings; what is no JSON is counted somehow.
    """

    values: int = field(default=1, init=False)
    _in_string: bool = field(default=False, init=False)
    _escape: bytes = field(default=b"", init=False)
    """The backslash that ended the piece before, if the character that it escapes is in the next one."""

    def count(self, piece: bytes) -> None:
        """Count the values of the next piece.

        Args:
            piece: Any number of bytes.
        """
        text = (self._escape + piece).replace(rb"\\", b"")
        self._escape = text[-1:] if text.endswith(b"\\") else b""
        strings = text.replace(rb"\"", b"").split(b'"')
        outside = b"".join(strings[self._in_string :: 2])
        self._in_string ^= len(strings) % 2 == 0
        self.values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")

    def require_few(self) -> None:
        """Refuse a body of too many values.

        Raises:
            ApiError: 413.
        """
        if self.too_many:
            raise ApiError(413, f"The body of the request holds more than {MOST_VALUES} JSON values.", code="request_too_large")

    @property
    def too_many(self) -> bool:
        """Whether there are more values than a body may have."""
        return self.values > MOST_VALUES


def read_object(body: bytes) -> dict[str, object]:
    """Return the object that a body says, read in one go.

    Args:
        body: JSON in UTF-8.

    Raises:
        ApiError: 400; it is no JSON, no object, or nested too deeply.
    """
    try:
        return _object(orjson.loads(body))
    except orjson.JSONDecodeError as error:
        return _object(_again(b"".join(_mended(body, error))))


async def read_object_in_turns(body: bytes, yielder: Yielder) -> dict[str, object]:
    """Return the object that a body says; while lone surrogates in it are mended, others have their turns.

    Args:
        body: JSON in UTF-8.
        yielder: Of the work that this is a part of.

    Raises:
        ApiError: 400; it is no JSON, no object, or nested too deeply.
    """
    try:
        return _object(orjson.loads(body))
    except orjson.JSONDecodeError as error:
        pieces: list[bytes] = []
        for piece in _mended(body, error):
            pieces.append(piece)
            await yielder.rest()
        return _object(_again(b"".join(pieces)))


def _mended(body: bytes, error: orjson.JSONDecodeError) -> Iterator[bytes]:
    """Yield a body that could not be read in pieces, each with U+FFFD in the place of its lone surrogates."""
    body = body.removeprefix(BOM_UTF8)
    if len(body) > PATIENT:
        raise _unreadable(f"{_place(error)}; if that is a lone surrogate, it may have {PATIENT} bytes")
    at = 0
    while piece := PIECE.match(body, at):
        yield SURROGATES.sub(lambda escape: escape[0] if escape[1] else rb"\ufffd", piece[0])
        at = piece.end()
    yield body[at:]


def _again(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _unreadable(_place(error)) from None


def _place(error: orjson.JSONDecodeError) -> str:
    return f"{error.msg} (line {error.lineno}, column {error.colno})"


def _object(value: object) -> dict[str, object]:
    if not is_object(value):
        raise _unreadable("it must be an object")
    require_shallow(value)
    return cast("dict[str, object]", value)


def require_shallow(value: object) -> None:
    """Refuse a body of too many levels.

    Args:
        value: What it says.

    Raises:
        ApiError: 400.
    """
    if _deeper_than(value, DEPTH):
        raise _unreadable(f"it is nested deeper than {DEPTH} levels")


def _unreadable(why: str) -> ApiError:
    return invalid(None, f"The body of the request could not be read as JSON: {why}.", "invalid_json")


def _deeper_than(value: object, levels: int) -> bool:
    level = [value]
    for _ in range(levels + 1):
        objects = [cast("dict[str, object]", outer) for outer in level if type(outer) is dict]
        arrays = [cast("list[object]", outer) for outer in level if type(outer) is list]
        level = [*chain.from_iterable(outer.values() for outer in objects), *chain.from_iterable(arrays)]
        if not level:
            return False
    return True
