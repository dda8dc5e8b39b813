"""The bytes of a request's body, read as a JSON object.

It knows JSON's limits and nothing of what the object says. Lone surrogates, which JSON's escapes can write and clients
that cut strings in the middle do send, become U+FFFD.
"""

from __future__ import annotations

import json
from typing import Final, NoReturn, cast

import orjson

from interlock.serving.errors import ApiError
from interlock.serving.requests.checks import invalid, is_array, is_object

__all__ = ["read_object"]

DEPTH: Final = 100
"""Levels of arrays and objects that a body may have: more than any request needs, fewer than any recursion bears."""


def read_object(body: bytes) -> dict[str, object]:
    """Read a body.

    Args:
        body: JSON in UTF-8.

    Returns:
        The object that it says.

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
        level = [inner for outer in level if is_object(outer) for inner in outer.values()] + [
            inner for outer in level if is_array(outer) for inner in outer
        ]
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
