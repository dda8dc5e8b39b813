"""What a JSON schema has to look like: a strict function's parameters, and the form of an answer.

It is as wide as the drafts from 4 to 2020-12 together, and takes a time that grows with the schema alone: references are not
followed and patterns are not compiled. A pydantic model of as many keywords takes ten times as long, in which a server does
nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from interlock.serving.requests.values import elements, is_array, is_object, members

__all__ = ["flaw"]

KINDS: Final = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_number_or_flag(value: object) -> bool:
    return isinstance(value, int | float)


def _is_positive(value: object) -> bool:
    return _is_number(value) and isinstance(value, int | float) and value > 0


def _is_count(value: object) -> bool:
    return _is_number(value) and isinstance(value, int | float) and value >= 0 and value == value // 1


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _are_texts(value: object) -> bool:
    return is_array(value) and all(isinstance(each, str) for each in value)


def _are_lists_of_texts(value: object) -> bool:
    return is_object(value) and all(_are_texts(each) for each in value.values())


def _are_kinds(value: object) -> bool:
    kinds = value if is_array(value) else [value]
    return all(isinstance(kind, str) and kind in KINDS for kind in kinds)


Fits: TypeAlias = Callable[[object], bool]

PLAIN: Final[Mapping[str, tuple[Fits, str]]] = MappingProxyType(
    {
        **dict.fromkeys(("$schema", "$id", "$ref", "title", "description", "pattern", "format"), (_is_text, "a string")),
        **dict.fromkeys(("minimum", "maximum"), (_is_number, "a number")),
        **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), (_is_number_or_flag, "a number or a boolean")),
        **dict.fromkeys(
            ("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties"),
            (_is_count, "a whole number that is not negative"),
        ),
        "multipleOf": (_is_positive, "a number above 0"),
        "uniqueItems": (_is_flag, "a boolean"),
        "type": (_are_kinds, f"one or some of {', '.join(sorted(KINDS))}"),
        "enum": (is_array, "an array"),
        "required": (_are_texts, "an array of strings"),
        "dependentRequired": (_are_lists_of_texts, "an object of arrays of strings"),
    }
)
"""The keywords that hold no schema: whether a value fits, and what it has to be."""

HOLDERS: Final[Mapping[str, tuple[Fits, str]]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("$defs", "definitions", "properties", "patternProperties", "dependentSchemas"), (is_object, "an object")
        ),
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), (is_array, "an array")),
    }
)
"""The keywords that hold schemas by name or in a row."""

SINGLE: Final = frozenset(
    {"additionalProperties", "additionalItems", "propertyNames", "contains", "items", "not", "if", "then", "else"}
)
"""The keywords that hold a schema; `items` may hold a row of them."""


def flaw(schema: object) -> str | None:
    """Return what is wrong with a JSON schema.

    Args:
        schema: Any value.

    Returns:
        A sentence that names the place, for the first flaw that is found; None for a schema.
    """
    rest = [("$", schema)]
    while rest:
        path, value = rest.pop()
        if isinstance(value, bool):
            continue
        if not is_object(value):
            return f"{path} must be a schema: an object or a boolean"
        for keyword, inner in value.items():
            place = f"{path}.{keyword}"
            fits, wanted = PLAIN.get(keyword) or HOLDERS.get(keyword) or (_fits, "")
            if not fits(inner):
                return f"{place} must be {wanted}"
            if keyword in HOLDERS or (keyword == "items" and is_array(inner)):
                rest += _below(place, inner)
            elif keyword in SINGLE:
                rest.append((place, inner))
    return None


def _fits(_value: object) -> bool:
    return True


def _below(path: str, inner: object) -> Iterator[tuple[str, object]]:
    yield from ((f"{path}.{name}", each) for name, each in members(inner).items())
    yield from ((f"{path}[{index}]", each) for index, each in enumerate(elements(inner)))
