"""Reads JSON values of unknown type, and never raises."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeGuard

EMPTY: Final[Mapping[str, object]] = MappingProxyType({})


def is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    """Return whether a value is a JSON object."""
    return isinstance(value, (dict, Mapping))  # a dict is found faster by its own type


def is_array(value: object) -> TypeGuard[list[object]]:
    """Return whether a value is a JSON array."""
    return isinstance(value, list)


def members(value: object) -> Mapping[str, object]:
    """Return an object, or an empty one instead of any other value."""
    return value if is_object(value) else EMPTY


def elements(value: object) -> list[object]:
    """Return an array, or an empty one instead of any other value."""
    return value if is_array(value) else []


def text_of(content: object) -> str:
    """Return a string, or the text of content parts; a part without text becomes its type in square brackets."""
    if is_array(content):
        return "\n".join(_text_of_part(members(part)) for part in elements(content))
    return content if isinstance(content, str) else ""


def _text_of_part(part: Mapping[str, object]) -> str:
    text = part.get("text", part.get("refusal"))
    return text if isinstance(text, str) else f"[{part.get('type')}]"
