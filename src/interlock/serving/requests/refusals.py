"""Errors for invalid parameters, with OpenAI's messages and codes, and the path of the value, such as `input[1].call_id`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import ValidationError, convert

from interlock.events.json import is_array, is_object
from interlock.events.shapes import WORDS, Hint, Mismatch, Path, mismatches, param_of
from interlock.serving.requests.api_errors import ApiError, invalid, missing
from interlock.serving.requests.limits import JsonSchema

if TYPE_CHECKING:  # only vLLM needs it at run time
    import pydantic

QUOTED: Final = 200
"""The most characters of a client's value that an error repeats."""

DECIMALS: Final = frozenset({"temperature", "top_p", "frequency_penalty", "presence_penalty"})
"""The parameters that are decimals in error messages, even if the value is an integer."""


def require(value: object, type_: Hint, *path: str | int) -> Any:  # noqa: ANN401 - a value of the type
    """Convert the JSON value at `path` in the body to a type; unknown members are allowed.

    Raises:
        ApiError: 400 for a value that does not have the type; it names the first mismatch.
    """
    try:
        return convert(value, type_)
    except ValidationError:
        raise _refusal(_first_mismatch(value, type_), path) from None


def _first_mismatch(value: object, type_: Hint) -> Mismatch:
    return next(mismatch for mismatch in mismatches(value, type_, direction="request") if mismatch.kind != "unknown")


def require_json_schema(param: str, schema: object) -> None:
    """Refuse a value that is not a JSON schema.

    Raises:
        ApiError: 400 for a value that is not a schema.
    """
    try:
        convert(schema, JsonSchema | bool)
    except ValidationError:
        mismatch = _first_mismatch(schema, JsonSchema | bool)
        error = f"{param_of(('$', *mismatch.path))} must be {mismatch.expected}"
        raise invalid(param, f"Invalid schema for '{param}': {error[:QUOTED]}.", "invalid_json_schema") from None


def require_list(value: object, most: int, *path: str | int) -> Sequence[object]:
    """Return the value at `path` in the body if it is an array of at most `most` elements.

    Raises:
        ApiError: 400 for another type, or for more elements.
    """
    if not is_array(value):
        raise wrong_type(param_of(path), "an array", value)
    if len(value) > most:
        raise too_long(param_of(path), most, len(value))
    return value


def _refusal(mismatch: Mismatch, path: Path) -> ApiError:
    param = param_of((*path, *mismatch.path))
    if mismatch.kind == "missing" or (mismatch.path[-1:] == ("type",) and mismatch.value in (None, "")):
        return missing(param)
    if mismatch.limit is not None:
        name, limit = mismatch.limit
        return _beyond(param, name, limit, mismatch.value)
    if isinstance(mismatch.value, str) and mismatch.choices:
        return unsupported_value(param, mismatch.value, mismatch.choices)
    return wrong_type(param, "a string" if mismatch.expected.startswith(("one of", "'")) else mismatch.expected, mismatch.value)


def refusal(error: pydantic.ValidationError) -> ApiError:
    """Convert a pydantic error of a host engine to an `ApiError`."""
    first = error.errors()[0]
    param, kind = param_of(first["loc"]), first["type"]
    if kind == "missing":
        return missing(param)
    if kind in PYDANTIC:
        return wrong_type(param, PYDANTIC[kind], first["input"])
    return invalid(param or None, f"Invalid '{param}': {first['msg']}.")


PYDANTIC: Final[Mapping[str, str]] = {
    "string_type": "a string",
    **dict.fromkeys(("bool_type", "bool_parsing"), "a boolean"),
    **dict.fromkeys(("int_type", "int_parsing"), "an integer"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "list_type": "an array",
    **dict.fromkeys(("dict_type", "model_type"), "an object"),
}
"""The expected JSON type, by the type of pydantic's error."""


def unsupported_value(param: str, value: str, choices: Iterable[str]) -> ApiError:
    """Return the error for a string that is not among the choices."""
    *others, last = (f"'{choice}'" for choice in choices)
    supported = f"{', '.join(others)}, and {last}" if others else last
    return invalid(param, f"Invalid value: '{value[:QUOTED]}'. Supported values are: {supported}.")


def not_run(param: str, kind: str, tool: str) -> ApiError:
    """Return the error for a hosted tool that no server runs: the model would never see it."""
    option = f"--{tool.replace('_', '-')}"
    message = f"This server does not run '{kind[:100]}'. Start it with {option} or --tool-server, or omit the tool."
    return invalid(param, message, "unsupported_value")


def _beyond(param: str, name: str, limit: float | str, value: object) -> ApiError:
    """Return the error for a value beyond a limit; `name` is msgspec's name of the limit, such as `max_length`."""
    if isinstance(value, float) and not math.isfinite(value):
        return wrong_type(param, "a number", value)
    if isinstance(value, int | float):
        return _out_of_bounds(param, name, limit, value)
    if is_array(value) and name == "min_length":
        message = f"empty array. Expected an array with minimum length {limit}, but got an empty array instead."
        return invalid(param, f"Invalid '{param}': {message}", "empty_array")
    if is_array(value):
        return too_long(param, limit, len(value))
    if is_object(value):
        message = f"too many properties. Expected an object with at most {limit} properties, but got {len(value)}."
        return invalid(param, f"Invalid '{param}': {message}", "object_above_max_properties")
    return _wrong_text(param, name, limit, len(str(value)))


def _out_of_bounds(param: str, name: str, limit: object, value: float) -> ApiError:
    kind = "decimal" if param in DECIMALS else "integer"
    which, sign, code = ("below minimum", ">=", "below_min") if name == "ge" else ("above maximum", "<=", "above_max")
    message = f"Invalid '{param}': {kind} {which} value. Expected a value {sign} {limit}, but got {_quote(value)} instead."
    return invalid(param, message, f"{kind}_{code}_value")


def _quote(value: float) -> str:
    text = str(value) if abs(value) < 10**QUOTED else f"{value:.3e}" if isinstance(value, float) else "a longer number"
    return text[:QUOTED]


def _wrong_text(param: str, name: str, limit: object, length: int) -> ApiError:
    match name:
        case "min_length":
            message = f"empty string. Expected a string with minimum length {limit}, but got an empty string"
            code = "empty_string"
        case "max_length":
            message = f"string too long. Expected a string with maximum length {limit}, but got a string with length {length}"
            code = "string_above_max_length"
        case _:
            pattern = str(limit).replace(r"\Z", "$")
            message = f"string does not match pattern. Expected a string that matches the pattern '{pattern}'."
            return invalid(param, f"Invalid '{param}': {message}")
    return invalid(param, f"Invalid '{param}': {message} instead.", code)


def too_long(param: str, most: object, length: int) -> ApiError:
    """Return the error for an array with more than `most` elements."""
    message = (
        f"Invalid '{param}': array too long. Expected an array with maximum length {most}, "
        f"but got an array with length {length} instead."
    )
    return invalid(param, message, "array_above_max_length")


def wrong_type(param: str, expected: str, value: object) -> ApiError:
    """Return the error for a value of the wrong JSON type; `expected` has an article, and an empty `param` is the body."""
    message = f"Invalid type for '{param}': expected {expected}, but got {_kind_of(value)} instead."
    return invalid(param or None, message, "invalid_type")


KINDS: Final[Mapping[type, str]] = {**WORDS, float: "a decimal", list: "an array"}


def _kind_of(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "a number that is not finite"
    return KINDS.get(type(value), "an object")
