"""JSON values read for what they should be, and remembered by their digest.

A stream is somebody else's, so a value may be anything; and it may be long, so what is only compared later is kept as a
digest. It knows nothing of events.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

import orjson

Digest: TypeAlias = bytes

_SHOWN = 200
"""How many characters of a value are shown."""


def an_object(value: object) -> Mapping[str, object]:
    """Return a JSON object as what it is, and an empty one for anything else."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def a_list(value: object) -> Sequence[object]:
    """Return a JSON array as what it is, and an empty one for anything else."""
    return cast("Sequence[object]", value) if isinstance(value, list) else ()


def a_text(value: object) -> str:
    """Return a JSON string as what it is, and an empty one for anything else."""
    return value if isinstance(value, str) else ""


def shown(value: object) -> str:
    """Return a value for a message, with its quotes; of a long text the beginning, and of what else is long its JSON type."""
    if isinstance(value, str):
        return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}…"
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested deeply, or a number of thousands of digits
        return called(value)
    return text if len(text) <= _SHOWN else called(value)


def called(value: object) -> str:
    """Return the JSON type of a value in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"


def inside(value: Mapping[str, object], path: Iterable[str]) -> object:
    """Return a field of an object, or of an object in it; None if it is not there."""
    for step in path:
        value = cast("Mapping[str, object]", an_object(value).get(step))
    return value


def digest(value: object) -> Digest:
    """Return the digest of a JSON value: of its canonical form, so that the order of an object's fields does not matter."""
    try:
        data = _canonical(value)
    except RecursionError:
        data = b""  # nested too deeply to be compared: taken for equal
    return hashlib.blake2b(data, digest_size=16).digest()


def _canonical(value: object) -> bytes:
    try:
        data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        return orjson.dumps(_numbers(value), option=orjson.OPT_SORT_KEYS) if b".0" in data else data
    except orjson.JSONEncodeError:
        # What orjson has no room for: large integers, surrogates, mappings that are not dicts, deep nesting.
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
    """Return the digest of each field of an object, so that what differs can be named."""
    return {name: digest(inner) for name, inner in value.items()}


def loosened(value: Mapping[str, object]) -> Mapping[str, Digest]:
    """Return the digests of an object's fields without what no client reads twice: nulls, log probabilities, encryptions."""
    try:
        return digests(an_object(_loose(value)))
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
