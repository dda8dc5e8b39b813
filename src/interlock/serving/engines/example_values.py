"""Writes example values for JSON schemas: the arguments of calls, and structured output.

An example of a strict schema is validated, so it fits or is refused. Any other is a guess, in which the schema's restrictions
count only as far as they name a simple value. The work for one schema is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sized
from importlib import import_module
from math import inf
from typing import Final, TypeAlias

from attrs import define, field

from interlock.events.json import elements, is_array, is_object, members
from interlock.serving.requests.api_errors import PromptError

SchemaObject: TypeAlias = Mapping[str, object]

MOST_WORK: Final = 50_000
"""The most work for one schema, and again for its validation, in keywords and alternatives."""
VALUE_COST: Final = 50
"""The work for a value, besides that for its keywords."""
DEEPEST: Final = 40
"""The deepest level of a value; references and alternatives count as levels."""
SHALLOW: Final = 4
"""The deepest level whose optional values are written."""
LONGEST: Final = 2_000
"""The largest `minLength` of a string."""

FORMATS: Final[Mapping[object, str]] = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "hostname": "host.example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000001",
}

IMPLIED_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("properties", "required", "additionalProperties"), "object"),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems"), "array"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
}
"""The type of a schema without `type`, by its first keyword; else it is a string."""

REFUSED: Final = frozenset({"pattern", "patternProperties", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef"})
"""Keywords whose validation runs the client's regular expressions, or takes time without a bound."""


def example(schema: SchemaObject, text: str | None = None, *, strict: bool = True) -> object:
    """Return a value for a schema, with `text` in free strings; it is validated if `strict`.

    Raises:
        PromptError: The schema has no value that this function finds, or is too large.
    """
    value = _Example(schema, text or "text").write(schema)
    if strict and (keyword := _broken_keyword(schema, value)) is not None:
        raise _unfillable(f"`{keyword}`")
    return value


def arguments_for(function: Mapping[str, object], text: str | None = None) -> Mapping[str, object]:
    """Return the arguments for a call of a declared function, with `text` in free strings.

    Raises:
        PromptError: As for `example`.
    """
    arguments = example({"type": "object", **members(function.get("parameters"))}, text, strict=function.get("strict") is True)
    if not is_object(arguments):
        raise _unfillable("a `type` that is not `object`")
    return arguments


def _unfillable(problem: str) -> PromptError:
    return PromptError(f"The embedded engine cannot fill a JSON schema with {problem}.")


@define
class _Example:
    """Writes the example of one schema; `root` resolves its references."""

    root: SchemaObject
    text: str
    work: int = field(default=0, init=False)

    def write(self, schema: object, depth: int = 0) -> object:
        alternatives = elements(members(schema).get("anyOf", members(schema).get("oneOf")))
        self.work += VALUE_COST + len(members(schema)) + len(alternatives)
        if self.work > MOST_WORK:
            raise _unfillable("so many values")
        if depth > DEEPEST:
            raise _unfillable("so many levels")
        if schema is not True and not is_object(schema):
            raise _unfillable("a subschema that is neither an object nor `true`")
        schema = members(schema)
        if "const" in schema or "enum" in schema:
            return next((value for value in elements(schema.get("enum")) if value is not None), schema.get("const"))
        for keyword in ("$ref", "allOf", "anyOf", "oneOf"):
            if keyword in schema:
                rest = {name: value for name, value in schema.items() if name != keyword}
                return self.write({**rest, **self.branch(keyword, schema[keyword], depth)}, depth + 1)
        return self.write_type(_type_of(schema), schema, depth)

    def write_type(self, kind: str, schema: SchemaObject, depth: int) -> object:
        match kind:
            case "object":
                return self.write_object(schema, depth)
            case "array":
                return self.write_array(schema, depth)
            case "string":
                return self.write_string(schema)
            case "integer" | "number":
                return _number(schema, is_integer=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
            case _:
                raise _unfillable("an unknown `type`")

    def branch(self, keyword: str, value: object, depth: int) -> SchemaObject:
        """Return what a keyword adds to its schema: the target of a reference, all schemas of a list, or one of them.

        The one is the first, but any rather than null, and at deep levels rather than a reference.
        """
        if keyword == "$ref":
            target: object = self.root
            for step in str(value).split("/")[1:]:
                target = members(target).get(step.replace("~1", "/").replace("~0", "~"))
            if not str(value).startswith("#") or not is_object(target):
                raise _unfillable("a `$ref` that leads nowhere")
            return target
        schemas = [each for each in elements(value) if is_object(each)]
        if not schemas:
            raise _unfillable(f"an `{keyword}` that lists no object")
        if keyword == "allOf":
            return {name: value for schema in schemas for name, value in schema.items()}
        return min(schemas, key=lambda schema: (depth > SHALLOW and "$ref" in schema, schema.get("type") == "null"))

    def write_object(self, schema: SchemaObject, depth: int) -> dict[str, object]:
        properties = members(schema.get("properties"))
        names = elements(schema.get("required")) or (list(properties) if depth <= SHALLOW else [])
        additional = schema.get("additionalProperties", True)
        return {name: self.write(properties.get(name, additional), depth + 1) for name in map(str, names)}

    def write_array(self, schema: SchemaObject, depth: int) -> list[object]:
        first, rest = elements(schema.get("prefixItems")), schema.get("items", True)
        usual = len(first) or int(is_object(rest) and depth <= SHALLOW)
        count = int(min(max(_limit(schema, "minItems", 0), usual), _limit(schema, "maxItems", MOST_WORK)))
        return [self.write(first[index] if index < len(first) else rest, depth + 1) for index in range(count)]

    def write_string(self, schema: SchemaObject) -> str:
        least, default = _limit(schema, "minLength", 0), schema.get("default")
        if least > LONGEST:
            raise _unfillable("this `minLength`")
        text = FORMATS.get(str(schema.get("format"))) or (default if isinstance(default, str) else self.text)
        return text.ljust(int(least), ".")[: int(_limit(schema, "maxLength", MOST_WORK))]


def _type_of(schema: SchemaObject) -> str:
    kind = schema.get("type")
    if kind is None:
        return next((IMPLIED_TYPES[keyword] for keyword in schema if keyword in IMPLIED_TYPES), "string")
    return next((each for each in map(str, elements(kind) if is_array(kind) else [kind]) if each != "null"), "null")


def _number(schema: SchemaObject, *, is_integer: bool) -> float:
    least, most = _limit(schema, "minimum", -inf), _limit(schema, "maximum", inf)
    above, below = _limit(schema, "exclusiveMinimum", -inf), _limit(schema, "exclusiveMaximum", inf)
    start, end = max(least, above), min(most, below)
    step = _limit(schema, "multipleOf", 0) or 1.0
    first, last = -(-start // step) * step, end // step * step
    for value in (_limit(schema, "default", 1.0), 1.0, 0.0, first, first + step, last, last - step, (start + end) / 2):
        fits = least <= value <= most and above < value < below
        if fits and (value.is_integer() or not is_integer) and ("multipleOf" not in schema or (value / step).is_integer()):
            return int(value) if value.is_integer() else value
    raise _unfillable("these limits of a number")


def _limit(schema: SchemaObject, keyword: str, default: float) -> float:
    """Return the number that a keyword has, or the default if it has none that a double can hold exactly."""
    value = schema.get(keyword)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 2**53 else default


def _broken_keyword(schema: SchemaObject, value: object) -> str | None:
    """Return the first keyword of a schema that a value does not meet, or None."""
    validators = import_module("jsonschema.validators")  # which has no types, and which most requests do not need
    registry = import_module("referencing").Registry()  # without entries, it fetches no reference
    work = 0

    def bound(check: Callable[..., Iterator[object]]) -> Callable[..., Iterator[object]]:
        def checked(validator: object, expected: object, instance: object, part: SchemaObject) -> Iterator[object]:
            nonlocal work
            work += 1 + (len(expected) if isinstance(expected, Sized) else 0)
            if work > MOST_WORK:
                raise _unfillable("so many values")
            if refused := REFUSED & part.keys():
                raise _unfillable(f"`{min(refused)}`")
            return check(validator, expected, instance, part)

        return checked

    checks = {keyword: bound(check) for keyword, check in validators.Draft202012Validator.VALIDATORS.items()}
    validator = validators.extend(validators.Draft202012Validator, checks)(schema, registry=registry)
    try:
        error = next(validator.iter_errors(value), None)
    except PromptError:
        raise
    except Exception:  # noqa: BLE001 - whatever an invalid schema raises there
        raise _unfillable("invalid keywords") from None
    return None if error is None else str(error.validator or "false")
