"""JSON that never fails: any text a model or a tool wrote can be written on the wire."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

import msgspec

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


def _as_dict(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


encode: Final = msgspec.json.Encoder(enc_hook=_as_dict).encode
"""Write a value as JSON, as `dumps` does but for surrogates, which raise `UnicodeEncodeError`."""


def dumps(value: object) -> bytes:
    """Write a value as JSON.

    Args:
        value: Anything made of Structs, mappings, lists, tuples, strings, numbers, booleans and None. Surrogates become U+FFFD,
            infinite and undefined floats null; integers may be of any size.

    Returns:
        UTF-8, without white space and without a line break.
    """
    try:
        return encode(value)
    except UnicodeEncodeError:
        return encode(_clean(msgspec.to_builtins(value, enc_hook=_as_dict)))


def as_json(value: object) -> object:
    """Return a value as plain JSON values that share nothing with it."""
    return msgspec.json.decode(dumps(value))


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


def _clean(value: object) -> object:
    match value:
        case str():
            return clean(value)
        case dict():
            entries = cast("Mapping[object, object]", value)
            return {clean(str(key)): _clean(entry) for key, entry in entries.items()}
        case list() | tuple():
            return [_clean(entry) for entry in cast("Sequence[object]", value)]
        case _:
            return value
