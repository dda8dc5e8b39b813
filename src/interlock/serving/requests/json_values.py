"""JSON values of unknown shape, looked at without surprises.

What a request says beyond what its shapes name stays as it came; whoever looks into it asks here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeGuard

__all__ = ["elements", "is_array", "is_object", "members", "text_of"]

NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


def is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    """Return whether a value is a JSON object."""
    return isinstance(value, Mapping)


def is_array(value: object) -> TypeGuard[list[object]]:
    """Return whether a value is a JSON array."""
    return isinstance(value, list)


def members(value: object) -> Mapping[str, object]:
    """Return the members of an object; any other value has none."""
    return value if is_object(value) else NOTHING


def elements(value: object) -> list[object]:
    """Return the elements of an array; any other value has none."""
    return value if is_array(value) else []


def text_of(content: object) -> str:
    """Return the text of a string or of parts; other parts are named in square brackets."""
    if is_array(content):
        return "\n".join(_text_of_part(members(part)) for part in elements(content))
    return content if isinstance(content, str) else ""


def _text_of_part(part: Mapping[str, object]) -> str:
    said = part.get("text", part.get("refusal"))
    return said if isinstance(said, str) else f"[{part.get('type')}]"
