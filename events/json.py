"""JSON that never fails: any text a model or a tool wrote can be written on the wire."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Final, cast

import orjson

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Replace what UTF-8 cannot carry (surrogates, one by one) with U+FFFD; other text is given back as it is."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def dumps(value: object) -> bytes:
    """Write a value as JSON.

    Args:
        value: Anything made of mappings, lists, tuples, strings, numbers, booleans and None. Surrogates become U+FFFD,
            infinite and undefined floats null; integers may be of any size.

    Returns:
        UTF-8, without white space and without a line break.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # Rare, so plain: surrogates, integers over 64 bits, mappings that are not dicts, over 254 levels of nesting.
        return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def kept(value: object) -> bytes:
    """Write a value as JSON that is to be kept: what `dumps` returns may take a page of memory, however short it is.

    Args:
        value: As for `dumps`.
    """
    return b"%b" % dumps(value)


def members(value: Mapping[str, object]) -> bytes:
    """Write the members of an object, each with a comma before it, to be put into a larger one.

    Args:
        value: As for `dumps`.
    """
    return b"," + dumps(dict(value))[1:-1] if value else b""


def parsed(data: bytes) -> object:
    """Return what JSON says that `dumps` has written, integers of any size included.

    Args:
        data: What `dumps` has returned, or what was joined of such.
    """
    try:
        value = orjson.loads(data)
        if orjson.dumps(value) == data:  # an integer over 64 bits has become a float
            return value
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):  # over 254 levels of nesting
        pass
    return json.loads(data)


def loads(data: str | bytes) -> object:
    """Parse JSON, and nothing beyond it: `NaN` and `Infinity` are none.

    Args:
        data: The text, or its bytes in UTF-8, UTF-16 or UTF-32. Integers may be of any size; half a character may be escaped.

    Raises:
        ValueError: It is not JSON.
        RecursionError: It is nested too deep.
    """
    return json.loads(data, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _plain(value: object) -> object:
    match value:
        case str():
            return clean(value)
        case float():
            return value if isfinite(value) else None
        case Mapping():
            entries = cast("Mapping[object, object]", value)
            return {clean(str(key)): _plain(entry) for key, entry in entries.items()}
        case list() | tuple():
            return [_plain(entry) for entry in cast("Sequence[object]", value)]
        case None | bool() | int():
            return value
        case _:
            raise TypeError(f"{type(value).__name__} cannot be written as JSON")
