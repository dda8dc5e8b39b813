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


def copied(value: object) -> object:
    """Return a deep copy of a value as JSON: what a reader of `dumps(value)` would get, and nothing shared with the value.

    Args:
        value: As for `dumps`.
    """
    try:
        return orjson.loads(orjson.dumps(value))
    except orjson.JSONEncodeError:
        return _plain(value)


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
