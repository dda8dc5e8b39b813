"""Reads, quotes and hashes untrusted JSON values.

A digest stands for a value that is compared later, because the value may be long.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

import orjson

Digest: TypeAlias = bytes

_MAX_QUOTED = 200
"""The most characters of a value that a message quotes."""


def as_object(value: object) -> Mapping[str, object]:
    """Return the value if it is a JSON object, otherwise an empty object."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def as_list(value: object) -> Sequence[object]:
    """Return the value if it is a JSON array, otherwise an empty sequence."""
    return cast("Sequence[object]", value) if isinstance(value, list) else ()


def as_text(value: object) -> str:
    """Return the value if it is a string, otherwise an empty string."""
    return value if isinstance(value, str) else ""


def quoted(value: object) -> str:
    """Quote a value for a message: truncate a long string, and name the JSON type of any other long value."""
    if isinstance(value, str):
        return repr(value) if len(value) <= _MAX_QUOTED else f"{value[:_MAX_QUOTED]!r}…"
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested deeply, or a number with thousands of digits
        return json_type(value)
    return text if len(text) <= _MAX_QUOTED else json_type(value)


def json_type(value: object) -> str:
    """Name the JSON type of a value, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def value_at(value: Mapping[str, object], path: Iterable[str]) -> object:
    """Return the value at a path of field names, or None."""
    for step in path:
        value = cast("Mapping[str, object]", as_object(value).get(step))
    return value


def digest(value: object) -> Digest:
    """Hash a JSON value, ignoring the order of its fields."""
    try:
        data = _canonical(value)
    except RecursionError:
        data = b""  # too deep to compare: all such values count as equal
    return hashlib.blake2b(data, digest_size=16).digest()


def _canonical(value: object) -> bytes:
    try:
        data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        return orjson.dumps(_numbers(value), option=orjson.OPT_SORT_KEYS) if b".0" in data else data
    except orjson.JSONEncodeError:
        # orjson refuses large integers, surrogates, mappings that are not dicts, and deep nesting.
        return json.dumps(_numbers(value), sort_keys=True, separators=(",", ":")).encode()


def _numbers(value: object) -> object:
    """Write 1.0 as 1, which is the same number in JSON."""
    match value:
        case float():
            return int(value) if value.is_integer() else value
        case Mapping():
            return {name: _numbers(inner) for name, inner in cast("Mapping[str, object]", value).items()}
        case list() | tuple():
            return [_numbers(inner) for inner in cast("Sequence[object]", value)]
        case _:
            return value


def digests(value: Mapping[str, object]) -> Mapping[str, Digest]:
    """Hash each field of an object."""
    return {name: digest(inner) for name, inner in value.items()}


def loose_digests(value: Mapping[str, object]) -> Mapping[str, Digest]:
    """Hash each field of an object, ignoring at any depth the fields that are null, `logprobs` or `encrypted_content`."""
    try:
        return digests(as_object(_loose(value)))
    except RecursionError:
        return digests(value)


def _loose(value: object) -> object:
    match value:
        case Mapping():
            inner = cast("Mapping[str, object]", value)
            return {name: _loose(one) for name, one in inner.items() if one is not None and name not in _UNREAD}
        case list():
            return [_loose(one) for one in cast("list[object]", value)]
        case _:
            return value


_UNREAD = frozenset({"logprobs", "encrypted_content"})
"""The fields that `loose_digests` ignores: several events have them, but a client reads them in only one."""
