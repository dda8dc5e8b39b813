"""What pydantic finds wrong with a request, in the words and codes of OpenAI's API.

The first finding is reported, with the path of its parameter from the body's root: `input[1].call_id`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from interlock.serving.errors import ApiError, invalid, missing
from interlock.serving.requests.parameters import NOT_SERVED
from interlock.serving.requests.shapes import UNKNOWN_TYPE
from interlock.serving.requests.values import members

__all__ = ["QUOTED", "path_of", "refusal", "too_long"]

QUOTED: Final = 200
"""Characters of a client's value that an error repeats at most."""


def refusal(error: ValidationError) -> ApiError:
    """Return the error that a request is refused with.

    Args:
        error: What pydantic found.
    """
    found = error.errors(include_url=False)[0]
    param = path_of(found["loc"])
    refuse = REFUSALS.get(found["type"], _wrong)
    return refuse(param, found, found.get("ctx", {}))


def path_of(where: Sequence[int | str]) -> str:
    """Return the path of a parameter.

    Args:
        where: The place as pydantic has it: names, indices, the tags of unions in angle brackets, and `[key]` for a name itself.
    """
    path = ""
    named = where[:-2] if where[-1:] == ("[key]",) else where
    for index, step in enumerate(named):
        if isinstance(step, int):
            path += f"[{step}]"
        elif not (step.startswith("<") and step.endswith(">")) or named[index - 1] == "metadata":
            path += f".{step}" if path else step
    return path


Refuse = Callable[[str, ErrorDetails, Mapping[str, Any]], ApiError]


def _missing(param: str, _found: ErrorDetails, _context: Mapping[str, Any]) -> ApiError:
    return missing(param)


def _unknown_type(param: str, found: ErrorDetails, _context: Mapping[str, Any]) -> ApiError:
    param, given = f"{param}.type", members(found["input"]).get("type")
    if given is None or given == "":
        return missing(param)
    return _unsupported(param, given, found["msg"]) if isinstance(given, str) else _wrong_type(param, "a string", given)


def _not_among(param: str, found: ErrorDetails, context: Mapping[str, Any]) -> ApiError:
    given = found["input"]
    if not isinstance(given, str):
        return _wrong_type(param, "a string", given)
    return _unsupported(param, given, context["expected"].replace(" or ", ", and "))


def _unsupported(param: str, given: str, expected: str) -> ApiError:
    return invalid(param, f"Invalid value: '{given[:QUOTED]}'. Supported values are: {expected}.")


def _not_served(param: str, _found: ErrorDetails, _context: Mapping[str, Any]) -> ApiError:
    return invalid(param, f"'{param}' is not supported by this server.", NOT_SERVED)


def _too_small(param: str, found: ErrorDetails, context: Mapping[str, Any]) -> ApiError:
    return _out_of_bounds(param, found["input"], "below minimum", ">=", context["ge"])


def _too_large(param: str, found: ErrorDetails, context: Mapping[str, Any]) -> ApiError:
    return _out_of_bounds(param, found["input"], "above maximum", "<=", context["le"])


def _out_of_bounds(param: str, given: float, which: str, sign: str, bound: float) -> ApiError:
    kind = "integer" if isinstance(bound, int) else "decimal"
    message = f"Invalid '{param}': {kind} {which} value. Expected a value {sign} {bound:g}, but got {_shown(given)} instead."
    return invalid(param, message, f"{kind}_{which.split(maxsplit=1)[0]}_{which.split()[1][:3]}_value")


def _shown(given: float) -> str:
    text = str(given) if abs(given) < 10**QUOTED else f"{given:.3e}" if isinstance(given, float) else "a longer number"
    return text[:QUOTED]


def _too_short(param: str, _found: ErrorDetails, context: Mapping[str, Any]) -> ApiError:
    least = context["min_length"]
    message = f"Invalid '{param}': empty string. Expected a string with minimum length {least}, but got an empty string instead."
    return invalid(param, message, "empty_string")


def _too_long_text(param: str, found: ErrorDetails, context: Mapping[str, Any]) -> ApiError:
    most, length = context["max_length"], len(found["input"])
    message = (
        f"Invalid '{param}': string too long. Expected a string with maximum length {most}, "
        f"but got a string with length {length} instead."
    )
    return invalid(param, message, "string_above_max_length")


def _too_long(param: str, found: ErrorDetails, context: Mapping[str, Any]) -> ApiError:
    most, length = context["max_length"], len(found["input"])
    if isinstance(found["input"], Mapping):
        message = f"Invalid '{param}': too many properties. Expected an object with at most {most} properties, but got {length}."
        return invalid(param, message, "object_above_max_properties")
    return too_long(param, most, length)


def too_long(param: str, most: int, length: int) -> ApiError:
    """Return the error for an array that is too long.

    Args:
        param: Its path.
        most: How many elements it may have.
        length: How many it has.
    """
    message = (
        f"Invalid '{param}': array too long. Expected an array with maximum length {most}, "
        f"but got an array with length {length} instead."
    )
    return invalid(param, message, "array_above_max_length")


def _no_match(param: str, _found: ErrorDetails, context: Mapping[str, Any]) -> ApiError:
    message = (
        f"Invalid '{param}': string does not match pattern. Expected a string that matches the pattern '{context['pattern']}'."
    )
    return invalid(param, message)


def _wrong(param: str, found: ErrorDetails, _context: Mapping[str, Any]) -> ApiError:
    return _wrong_type(param, WANTED.get(found["type"], "another value"), found["input"])


def _wrong_type(param: str, wanted: str, value: object) -> ApiError:
    message = f"Invalid type for '{param}': expected {wanted}, but got {_kind_of(value)} instead."
    return invalid(param or None, message, "invalid_type")


WANTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "string_type": "a string",
        "bool_type": "a boolean",
        "int_type": "an integer",
        "float_type": "a number",
        "finite_number": "a number",
        "list_type": "an array",
        "dict_type": "an object",
        "model_type": "an object",
    }
)
"""What a value has to be, by the kind of pydantic's error."""

REFUSALS: Final[Mapping[str, Refuse]] = MappingProxyType(
    {
        "missing": _missing,
        UNKNOWN_TYPE: _unknown_type,
        "literal_error": _not_among,
        NOT_SERVED: _not_served,
        "greater_than_equal": _too_small,
        "less_than_equal": _too_large,
        "string_too_short": _too_short,
        "string_too_long": _too_long_text,
        "too_long": _too_long,
        "string_pattern_mismatch": _no_match,
    }
)
"""The words for each kind of pydantic's errors; the others are wrong types."""

KINDS: Final[Mapping[type, str]] = MappingProxyType(
    {type(None): "null", bool: "a boolean", int: "an integer", float: "a decimal", str: "a string", list: "an array"}
)


def _kind_of(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "a number that is not finite"
    return KINDS.get(type(value), "an object")
