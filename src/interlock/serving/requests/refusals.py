"""What is wrong with a request, in the words and codes of OpenAI's API, with the path of the parameter: `input[1].call_id`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from msgspec import ValidationError, convert

from interlock.events.shapes import Fault, Path, faults, param_of
from interlock.serving.requests.api_errors import ApiError, invalid, missing
from interlock.serving.requests.json_values import is_array, is_object

__all__ = ["QUOTED", "refusal", "require", "require_list", "too_long", "unsupported", "wrong_type"]

QUOTED: Final = 200
"""Characters of a client's value that an error repeats at most."""


class HostError(Protocol):
    """What pydantic raises, which this module need not import."""

    def errors(self) -> list[Any]:
        """Return what is wrong, each with `loc`, `type`, `input` and `msg`."""
        ...


DECIMALS: Final = frozenset({"temperature", "top_p", "frequency_penalty", "presence_penalty"})
"""The parameters whose limits are decimals, whatever number is given."""


def require(value: object, type_: Any, *path: str | int) -> Any:  # noqa: ANN401 - any type, and its value
    """Return a value as a type has it.

    Args:
        value: Any JSON.
        type_: The type; members of an object that it does not name are free.
        path: Where the value stands in the body.

    Raises:
        ApiError: 400; it names the first place that is wrong.
    """
    try:
        return convert(value, type_)
    except ValidationError:
        wrong = (fault for fault in faults(value, type_, direction="request") if fault.kind != "unknown")
        raise _refusal(next(wrong), path) from None


def require_list(value: object, most: int, *path: str | int) -> list[object]:
    """Return an array of no more than some elements.

    Args:
        value: Any JSON.
        most: How many it may have.
        path: Where it stands in the body.

    Raises:
        ApiError: 400.
    """
    if not is_array(value):
        raise wrong_type(param_of(path), "an array", value)
    if len(value) > most:
        raise too_long(param_of(path), most, len(value))
    return value


def _refusal(fault: Fault, path: Path) -> ApiError:
    """Return the error for a fault of the value at a path."""
    param = param_of((*path, *fault.path))
    if fault.kind == "missing" or (fault.path[-1:] == ("type",) and fault.value in (None, "")):
        return missing(param)
    if fault.limit is not None:
        name, limit = fault.limit
        return _beyond(param, name, limit, fault.value)
    if isinstance(fault.value, str) and fault.choices:
        return unsupported(param, fault.value, fault.choices)
    return wrong_type(param, "a string" if fault.expected.startswith(("one of", "'")) else fault.expected, fault.value)


def refusal(error: HostError) -> ApiError:
    """Return the error for what a host's own model finds wrong.

    Args:
        error: A `ValidationError` of pydantic.
    """
    found = error.errors()[0]
    param, kind = param_of(found["loc"]), found["type"]
    if kind == "missing":
        return missing(param)
    if kind in PYDANTIC:
        return wrong_type(param, PYDANTIC[kind], found["input"])
    return invalid(param or None, f"Invalid '{param}': {found['msg']}.")


PYDANTIC: Final[Mapping[str, str]] = MappingProxyType(
    {
        "string_type": "a string",
        **dict.fromkeys(("bool_type", "bool_parsing"), "a boolean"),
        **dict.fromkeys(("int_type", "int_parsing"), "an integer"),
        **dict.fromkeys(("float_type", "float_parsing"), "a number"),
        "list_type": "an array",
        **dict.fromkeys(("dict_type", "model_type"), "an object"),
    }
)
"""What a value must be, by the kind of pydantic's error."""


def unsupported(param: str, value: str, choices: Iterable[str]) -> ApiError:
    """Return the error for a text that is none of those that there are.

    Args:
        param: Its path.
        value: The text.
        choices: Those that there are.
    """
    *others, last = (f"'{choice}'" for choice in choices)
    supported = f"{', '.join(others)}, and {last}" if others else last
    return invalid(param, f"Invalid value: '{value[:QUOTED]}'. Supported values are: {supported}.")


def _beyond(param: str, name: str, limit: float | str, value: object) -> ApiError:
    """Return the error for a value that is beyond a limit."""
    if isinstance(value, float) and not math.isfinite(value):
        return wrong_type(param, "a number", value)
    if isinstance(value, int | float):
        return _out_of_bounds(param, name, limit, value)
    if is_array(value):
        return too_long(param, limit, len(value))
    if is_object(value):
        message = f"too many properties. Expected an object with at most {limit} properties, but got {len(value)}."
        return invalid(param, f"Invalid '{param}': {message}", "object_above_max_properties")
    return _wrong_text(param, name, limit, len(str(value)))


def _out_of_bounds(param: str, name: str, limit: object, value: float) -> ApiError:
    kind = "decimal" if param in DECIMALS else "integer"
    which, sign, code = ("below minimum", ">=", "below_min") if name == "ge" else ("above maximum", "<=", "above_max")
    message = f"Invalid '{param}': {kind} {which} value. Expected a value {sign} {limit}, but got {_shown(value)} instead."
    return invalid(param, message, f"{kind}_{code}_value")


def _shown(value: float) -> str:
    text = str(value) if abs(value) < 10**QUOTED else f"{value:.3e}" if isinstance(value, float) else "a longer number"
    return text[:QUOTED]


def _wrong_text(param: str, name: str, limit: object, length: int) -> ApiError:
    match name:
        case "min_length":
            message, code = (
                f"empty string. Expected a string with minimum length {limit}, but got an empty string",
                "empty_string",
            )
        case "max_length":
            message = f"string too long. Expected a string with maximum length {limit}, but got a string with length {length}"
            code = "string_above_max_length"
        case _:
            pattern = str(limit).replace(r"\Z", "$")
            message = f"string does not match pattern. Expected a string that matches the pattern '{pattern}'."
            return invalid(param, f"Invalid '{param}': {message}")
    return invalid(param, f"Invalid '{param}': {message} instead.", code)


def too_long(param: str, most: object, length: int) -> ApiError:
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


def wrong_type(param: str, expected: str, value: object) -> ApiError:
    """Return the error for a value of another JSON type than it must have.

    Args:
        param: Its path; empty for the whole body.
        expected: What it must be, with its article.
        value: What it is.
    """
    message = f"Invalid type for '{param}': expected {expected}, but got {_kind_of(value)} instead."
    return invalid(param or None, message, "invalid_type")


KINDS: Final[Mapping[type, str]] = MappingProxyType(
    {type(None): "null", bool: "a boolean", int: "an integer", float: "a decimal", str: "a string", list: "an array"}
)


def _kind_of(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "a number that is not finite"
    return KINDS.get(type(value), "an object")
