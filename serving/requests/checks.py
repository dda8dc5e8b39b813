"""Checks: small functions that refuse a wrong value, and what builds larger ones of them.

A check takes the path of a parameter and its value, and raises an `ApiError` of status 400 that names the parameter.
Tables of checks are how a request's shape is written down; this module knows none of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias, TypeGuard

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for

from interlock.serving.errors import ApiError

__all__ = [
    "Check",
    "anything",
    "array",
    "by_type",
    "elements",
    "flag",
    "integer",
    "invalid",
    "is_array",
    "is_object",
    "json_schema",
    "members",
    "missing",
    "number",
    "one_of",
    "optional",
    "record",
    "text",
    "text_or",
    "under",
]

Check: TypeAlias = Callable[[str, object], None]
Table: TypeAlias = Mapping[str, Check]

NOTHING: Final[Table] = MappingProxyType({})
QUOTED: Final = 200
"""Characters of somebody else's message that an error repeats at most."""


def invalid(param: str | None, message: str, code: str = "invalid_value") -> ApiError:
    """Make the error for a parameter that is not as it must be."""
    return ApiError(400, message, param=param, code=code)


def missing(param: str) -> ApiError:
    """Make the error for a parameter that must be there and is not."""
    return invalid(param, f"Missing required parameter: '{param}'.", "missing_required_parameter")


def under(param: str, name: str) -> str:
    """Give the path of a member of an object; the body itself has the empty path."""
    return f"{param}.{name}" if param else name


def is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    """Tell whether a value is a JSON object."""
    return isinstance(value, Mapping)


def is_array(value: object) -> TypeGuard[list[object]]:
    """Tell whether a value is a JSON array."""
    return isinstance(value, list)


def members(value: object) -> Mapping[str, object]:
    """Give the members of an object; any other value has none."""
    return value if is_object(value) else NOTHING


def elements(value: object) -> list[object]:
    """Give the elements of an array; any other value has none."""
    return value if is_array(value) else []


def anything(_param: str, _value: object) -> None:
    """Accept every value."""


def flag(param: str, value: object) -> None:
    """Accept a boolean."""
    if not isinstance(value, bool):
        raise _wrong_type(param, "a boolean", value)


def text(at_least: int = 0, at_most: int | None = None, pattern: str | None = None) -> Check:
    """Accept a string whose length in characters is within the bounds, and that matches the whole pattern."""

    def check(param: str, value: object) -> None:
        if not isinstance(value, str):
            raise _wrong_type(param, "a string", value)
        if len(value) < at_least:
            raise invalid(param, f"Invalid '{param}': the string is too short.", "string_below_min_length")
        if at_most is not None and len(value) > at_most:
            message = f"Invalid '{param}': the string has {len(value)} characters, and {at_most} are the most."
            raise invalid(param, message, "string_above_max_length")
        if pattern is not None and re.fullmatch(pattern, value) is None:
            raise invalid(param, f"Invalid '{param}': the string does not match '{pattern}'.")

    return check


def integer(at_least: int, at_most: int | None = None) -> Check:
    """Accept an integer within the bounds; a boolean is none, nor is 1.0."""

    def check(param: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong_type(param, "an integer", value)
        _within(param, value, at_least, at_most)

    return check


def number(at_least: float, at_most: float) -> Check:
    """Accept a finite number within the bounds; a boolean is none."""

    def check(param: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise _wrong_type(param, "a number", value)
        _within(param, value, at_least, at_most)

    return check


def _within(param: str, value: float, at_least: float, at_most: float | None) -> None:
    if value < at_least:
        raise invalid(param, f"Invalid '{param}': {value} is below the minimum of {at_least}.", "below_min_value")
    if at_most is not None and value > at_most:
        raise invalid(param, f"Invalid '{param}': {value} is above the maximum of {at_most}.", "above_max_value")


def one_of(*values: str) -> Check:
    """Accept one of a few strings."""

    def check(param: str, value: object) -> None:
        if not isinstance(value, str):
            raise _wrong_type(param, "a string", value)
        if value not in values:
            raise _unsupported(param, value, values)

    return check


def optional(check: Check) -> Check:
    """Accept null, and what the check accepts."""

    def check_unless_null(param: str, value: object) -> None:
        if value is not None:
            check(param, value)

    return check_unless_null


def array(element: Check) -> Check:
    """Accept an array of elements that the check accepts."""

    def check(param: str, value: object) -> None:
        if not is_array(value):
            raise _wrong_type(param, "an array", value)
        for index, inner in enumerate(value):
            element(f"{param}[{index}]", inner)

    return check


def text_or(check: Check) -> Check:
    """Accept a string, and what the check accepts."""

    def check_unless_text(param: str, value: object) -> None:
        if not isinstance(value, str):
            check(param, value)

    return check_unless_text


def record(required: Table = NOTHING, others: Table = NOTHING) -> Check:
    """Accept an object that has what is required; the others may be missing or null, and unnamed members are free."""

    def check(param: str, value: object) -> None:
        if not is_object(value):
            raise _wrong_type(param, "an object", value)
        for name, member in required.items():
            if name not in value:
                raise missing(under(param, name))
            member(under(param, name), value[name])
        for name, member in others.items():
            if value.get(name) is not None:
                member(under(param, name), value[name])

    return check


def by_type(table: Table, otherwise: Check | None = None) -> Check:
    """Accept an object that the check of its `type` accepts.

    Args:
        table: The check for each known type.
        otherwise: The check for other types, or None if there may be no others.
    """

    def check(param: str, value: object) -> None:
        record({"type": text(at_least=1)})(param, value)
        kind = str(members(value)["type"])
        member = table.get(kind, otherwise)
        if member is None:
            raise _unsupported(under(param, "type"), kind, tuple(table))
        member(param, value)

    return check


def json_schema(param: str, value: object) -> None:
    """Accept a JSON schema, by the draft that it names (2020-12 if none)."""
    record()(param, value)
    schema = dict(members(value))
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        message = f"Invalid schema for '{param}': {error.message[:QUOTED]} (at {error.json_path})."
        raise invalid(param, message, "invalid_json_schema") from None
    except (RecursionError, TypeError):
        # The validator's own limits: a schema nested too deeply for it, and a `$schema` that is no string.
        raise invalid(param, f"Invalid schema for '{param}'.", "invalid_json_schema") from None


def _unsupported(param: str, value: str, values: tuple[str, ...]) -> ApiError:
    choices = ", ".join(f"'{choice}'" for choice in values)
    return invalid(param, f"Invalid value: '{value[:QUOTED]}'. Supported values are: {choices}.")


def _wrong_type(param: str, wanted: str, value: object) -> ApiError:
    got = _kind_of(value)
    return invalid(param or None, f"Invalid type for '{param}': expected {wanted}, but got {got}.", "invalid_type")


KINDS: Final[Mapping[type, str]] = MappingProxyType(
    {
        type(None): "null",
        bool: "a boolean",
        int: "an integer",
        float: "a decimal number",
        str: "a string",
        list: "an array",
    }
)


def _kind_of(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "a number that is not finite"
    return KINDS.get(type(value), "an object")
