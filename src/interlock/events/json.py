"""Encodes JSON with any text, including lone surrogates; decodes it; and reads values of unknown type, without raising."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeGuard

import msgspec

EMPTY: Final[Mapping[str, object]] = MappingProxyType({})

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    """Return whether a value is a JSON object."""
    # The check of an abstract class takes six times as long, and few values need it.
    return value.__class__ is dict or (value is not None and isinstance(value, Mapping))


def is_array(value: object) -> TypeGuard[Sequence[object]]:
    """Return whether a value is a JSON array, which may be a tuple."""
    return isinstance(value, list | tuple)


def members(value: object) -> Mapping[str, object]:
    """Return an object, or an empty one instead of any other value."""
    # Most values are a dict or None, for which the call of a function would take longer than the rest.
    if value is None:
        return EMPTY
    return value if value.__class__ is dict or is_object(value) else EMPTY  # pyright: ignore[reportReturnType] - see above


def elements(value: object) -> Sequence[object]:
    """Return an array, or an empty one instead of any other value."""
    return value if is_array(value) else ()


def as_text(value: object) -> str:
    """Return a string, or an empty one instead of any other value."""
    return value if isinstance(value, str) else ""


def clean(text: str) -> str:
    """Replace each lone surrogate, which UTF-8 cannot encode, with U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def _as_dict(value: object) -> object:
    if is_object(value):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


encode: Final = msgspec.json.Encoder(enc_hook=_as_dict).encode
"""Encode a value like `dumps`, but raise `UnicodeEncodeError` for lone surrogates."""


def dumps(value: object) -> bytes:
    """Encode a value as JSON, in UTF-8 without white space between tokens.

    Args:
        value: Structs, mappings, lists, tuples, strings, numbers, booleans and None. Lone surrogates become U+FFFD; NaN
            and infinities become null. Integers may exceed 64 bits.
    """
    try:
        return encode(value)
    except UnicodeEncodeError:
        return encode(_clean(msgspec.to_builtins(value, enc_hook=_as_dict)))


def as_json(value: object) -> object:
    """Return a copy of a value as plain JSON values."""
    return msgspec.json.decode(dumps(value))


def loads(data: str | bytes) -> object:
    """Parse strict JSON, without `NaN` and `Infinity`.

    Args:
        data: The text, or its bytes in UTF-8, UTF-16 or UTF-32. Integers may exceed 64 bits, and lone surrogates may be escaped.

    Raises:
        ValueError: The text is not JSON, or an integer has more digits than Python converts.
        RecursionError: The text is nested too deeply.
    """
    return json.loads(data, parse_constant=_refuse_constant)


def parse(data: str | bytes) -> object:
    """Return the value of strict JSON, or None if the text is not JSON or nested too deeply."""
    try:
        return loads(data)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not valid JSON")


def _clean(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if is_object(value):
        return {clean(str(key)): _clean(entry) for key, entry in value.items()}
    return [_clean(entry) for entry in value] if is_array(value) else value
