"""The bytes of a request's body, read as a JSON object.

It knows JSON's limits and nothing of what the object says. Lone surrogates, which JSON's escapes can write and clients
that cut strings in the middle do send, become U+FFFD.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import Final, NoReturn, cast

import orjson
from attrs import define, field

from interlock.serving.errors import ApiError, invalid
from interlock.serving.requests.values import is_object

__all__ = ["Census", "read_object"]

DEPTH: Final = 100
"""Levels of arrays and objects that a body may have: more than any request needs, fewer than any recursion bears."""

MOST_VALUES: Final = 50_000
"""Values that a body may have: each takes time to read, in which a server does nothing else, and a hundred bytes."""


PATIENT: Final = 4 * 2**20
"""Bytes of a body that is read a second time, for which the server does nothing else."""


@define
class Census:
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
    """Return the object that a body says.

    Args:
        body: JSON in UTF-8.

    Raises:
        ApiError: 400; it is no JSON, no object, or nested too deeply.
    """
    value = _read(body)
    if not is_object(value):
        raise _unreadable("it must be an object")
    if _deeper_than(value, DEPTH):
        raise _unreadable(f"it is nested deeper than {DEPTH} levels")
    return cast("dict[str, object]", value)


def _read(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return _read_patiently(body)


def _read_patiently(body: bytes) -> object:
    """Read what the fast reader refused: for the lone surrogates in it, or to say what is wrong with it."""
    if len(body) > PATIENT:
        raise _unreadable("it is not valid JSON in UTF-8, or has lone surrogates in it, which only a smaller body may have")
    try:
        value = json.loads(body.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise _unreadable("it is not encoded in UTF-8") from None
    except json.JSONDecodeError as error:
        raise _unreadable(f"{error.msg} (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise _unreadable(f"it is nested deeper than {DEPTH} levels") from None
    except ValueError:
        raise _unreadable("a number in it is too long") from None
    return value if _deeper_than(value, DEPTH) else _legible(value)


def _refuse_constant(name: str) -> NoReturn:
    raise _unreadable(f"{name} is no JSON value")


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


def _legible(value: object) -> object:
    """Pair the surrogates that belong together, in names and values, and put U+FFFD for the others."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            members = cast("dict[str, object]", value)
            return {str(_legible(name)): _legible(inner) for name, inner in members.items()}
        case list():
            return [_legible(inner) for inner in cast("list[object]", value)]
        case _:
            return value
