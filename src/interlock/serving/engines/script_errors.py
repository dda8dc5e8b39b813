"""Explains why a script is invalid: where, and what it may say there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Final

import msgspec
from msgspec import inspect

_PLACE: Final = re.compile(r" - at `\$(.*)`$", re.DOTALL)
_PATH: Final = re.compile(r"\.(\w+)|\[(\d+)\]")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_NO_OBJECT: Final = re.compile(r"Expected `.*object|Object missing")
_NO_CHOICE: Final = re.compile(r"Invalid enum value '(.*)'", re.DOTALL)


def explain(error: msgspec.ValidationError, kind: type[msgspec.Struct]) -> str:
    """Return the place and the reason of an error in a value of this kind, with the names or values that are allowed there."""
    reason, path, _ = [*_PLACE.split(str(error)), "", ""][:3]
    place: list[str] = []
    found: list[inspect.Type] = [inspect.type_info(kind)]
    for name, index in _PATH.findall(path):
        if name:
            place.append(name)
            found = [*_choices(*(field.type for field in _fields(found) if field.encode_name == name))]
        else:
            place[-1] = f"{place[-1].removesuffix('s')} {int(index) + 1}"
            found = [*_choices(*(each.item_type for each in found if isinstance(each, inspect.ListType)))]
    fields = [field.encode_name for field in _fields(found)]
    values = [str(value) for each in found if isinstance(each, inspect.LiteralType) for value in each.values]
    if (unknown := _UNKNOWN.fullmatch(reason)) is not None:
        reason = f"unknown field {unknown[1]!r}{_near(unknown[1], fields)}; the fields are {', '.join(fields)}"
    elif (wrong := _NO_CHOICE.fullmatch(reason)) is not None:
        reason = f"unknown value {wrong[1]!r}{_near(wrong[1], values)}; the values are {', '.join(values)}"
    elif fields and _NO_OBJECT.match(reason) is not None:
        reason = f"{reason}; its fields are {', '.join(fields)}"
    return ": ".join(filter(None, [", ".join(place), reason]))


def _choices(*kinds: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the alternatives of types, without their descriptions."""
    for kind in kinds:
        if isinstance(kind, inspect.Metadata):
            yield from _choices(kind.type)
        elif isinstance(kind, inspect.UnionType):
            yield from _choices(*kind.types)
        else:
            yield kind


def _fields(kinds: Sequence[inspect.Type]) -> list[inspect.Field]:
    """Return the fields of an object that has one of the types."""
    return [field for kind in kinds if isinstance(kind, inspect.StructType) for field in kind.fields]


def _near(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""
