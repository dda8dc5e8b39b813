"""Generates example values for JSON schemas: the arguments of calls, and structured output.

A strict schema is filled correctly or refused; otherwise unsupported keywords are ignored. The work for one schema is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final, TypeAlias

from attrs import define, field

from interlock.events.json import elements, is_array, is_object, members
from interlock.serving.requests.api_errors import PromptError

SchemaObject: TypeAlias = Mapping[str, object]

MOST_WORK: Final = 50_000
"""The most work for one schema, in keywords and alternatives."""
VALUE_COST: Final = 50
"""The work for a value, besides that for its keywords."""

DEEPEST: Final = 40
"""The deepest level of a value; references and alternatives count as levels."""
SHALLOW: Final = 4
"""The deepest level whose optional values are filled."""

LONGEST: Final = 2_000
"""The largest `minLength` that is supported."""

LARGEST: Final = 2.0**53

FORMATS: Final[Mapping[str, str]] = {
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

TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("properties", "required", "additionalProperties"), "object"),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems", "uniqueItems"), "array"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
    **dict.fromkeys(("minLength", "maxLength", "format"), "string"),
}
"""The supported keywords of one type, each with that type."""

EXCLUSIVE: Final = ("const", "enum", "$ref", "anyOf", "oneOf", "allOf")
"""The supported keywords that a strict schema may not combine with each other, or with those of `TYPES` and `UNSUPPORTED`."""

UNSUPPORTED: Final = frozenset(
    {
        *("$dynamicRef", "$recursiveRef", "additionalItems", "contains", "dependencies", "dependentRequired", "dependentSchemas"),
        *("else", "if", "maxProperties", "minProperties", "not", "pattern", "patternProperties", "propertyNames", "then"),
        *("unevaluatedItems", "unevaluatedProperties"),
    }
)


def value_for(schema: SchemaObject, text: str | None = None, *, strict: bool = True) -> object:
    """Return a value for a schema, with `text` in free strings; only a strict schema refuses unsupported keywords.

    Raises:
        PromptError: The schema cannot be filled, or is too large.
    """
    return _Filler(schema, text or "text", strict).fill(schema)


def arguments_for(function: Mapping[str, object], text: str | None = None) -> Mapping[str, object]:
    """Return the arguments for a call of a declared function, with `text` in free strings.

    Raises:
        PromptError: The parameters cannot be filled, or are too large.
    """
    parameters = {"type": "object", **members(function.get("parameters"))}
    arguments = value_for(parameters, text, strict=function.get("strict") is True)
    if not is_object(arguments):
        raise _unfillable("a `type` that is not `object`")
    return arguments


def _unfillable(problem: str) -> PromptError:
    return PromptError(f"The embedded engine cannot fill a JSON schema with {problem}.")


@define
class _Filler:
    """Fills one schema; `root` resolves its references."""

    root: SchemaObject
    text: str
    strict: bool
    work: int = field(default=0, init=False)

    def fill(self, schema: object, depth: int = 0) -> object:
        self.spend(VALUE_COST + len(members(schema)))
        if depth > DEEPEST:
            raise _unfillable("so many levels")
        if schema is not True and not is_object(schema):
            raise _unfillable("a subschema that is neither an object nor `true`")
        schema = members(schema)
        exclusive = next((keyword for keyword in EXCLUSIVE if keyword in schema), None)
        ignored = schema.keys() & (UNSUPPORTED.union(TYPES, EXCLUSIVE) - {exclusive} if exclusive else UNSUPPORTED)
        if ignored and self.strict:
            raise _unfillable(f"`{min(ignored)}`" + (f" beside `{exclusive}`" if exclusive else ""))
        match exclusive:
            case None:
                return self.fill_type(schema, depth)
            case "const":
                return schema["const"]
            case "enum":
                if not elements(schema["enum"]):
                    raise _unfillable("an empty `enum`")
                return next((value for value in elements(schema["enum"]) if value is not None), None)
            case _:
                branch = (
                    self.target(str(schema["$ref"])) if exclusive == "$ref" else self.choose(exclusive, schema[exclusive], depth)
                )
                if self.strict and "type" in schema and branch.get("type", schema["type"]) != schema["type"]:
                    raise _unfillable(f"`type` beside `{exclusive}`")
                return self.fill({**{name: value for name, value in schema.items() if name != exclusive}, **branch}, depth + 1)

    def spend(self, work: int) -> None:
        self.work += work
        if self.work > MOST_WORK:
            raise _unfillable("so many values")

    def target(self, reference: str) -> SchemaObject:
        """Return the target of a reference of the form `#/a/b`."""
        target: object = self.root
        for step in reference.split("/")[1:]:
            target = members(target).get(step.replace("~1", "/").replace("~0", "~"))
        if not reference.startswith("#") or not is_object(target):
            raise _unfillable("a `$ref` that leads nowhere")
        return target

    def choose(self, keyword: str, alternatives: object, depth: int) -> SchemaObject:
        """Return the first alternative; prefer any to null, and at deep levels any to a reference."""
        schemas = [each for each in elements(alternatives) if is_object(each)]
        self.spend(len(schemas))
        if not schemas:
            raise _unfillable(f"an `{keyword}` that lists no object")
        if self.strict and len(schemas) > 1 and keyword != "anyOf":
            raise _unfillable(f"several schemas in `{keyword}`")
        return min(schemas, key=lambda schema: (depth > SHALLOW and "$ref" in schema, schema.get("type") == "null"))

    def fill_type(self, schema: SchemaObject, depth: int) -> object:
        kind = _type_of(schema)
        match kind:
            case "object":
                properties = members(schema.get("properties"))
                names = elements(schema.get("required")) or (list(properties) if depth <= SHALLOW else [])
                additional = schema.get("additionalProperties", True)
                return {name: self.fill(properties.get(name, additional), depth + 1) for name in map(str, names)}
            case "array":
                first, rest = elements(schema.get("prefixItems")), schema.get("items", True)
                least, most = _limits(schema, "minItems", "maxItems", 0)
                usual = len(first) or int(is_object(rest) and depth <= SHALLOW)
                count = int(min(max(least, usual), most))
                if self.strict and count > 1 and schema.get("uniqueItems"):
                    raise _unfillable("`uniqueItems`")
                return [self.fill(first[index] if index < len(first) else rest, depth + 1) for index in range(count)]
            case "string":
                return self.fill_string(schema)
            case "integer" | "number":
                return _number(schema, is_integer=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
            case _:
                raise _unfillable("an unknown `type`")

    def fill_string(self, schema: SchemaObject) -> str:
        least, most = _limits(schema, "minLength", "maxLength", 0)
        default, example = schema.get("default"), FORMATS.get(str(schema.get("format")))
        text = example or (default if isinstance(default, str) else self.text)
        if least > LONGEST or (example and not least <= len(example) <= most):
            raise _unfillable("this `minLength` or `maxLength`")
        return text.ljust(int(least), ".")[: int(min(most, LARGEST))]


def _type_of(schema: SchemaObject) -> str:
    kind = schema.get("type")
    if kind is None:
        return next((TYPES[keyword] for keyword in TYPES if keyword in schema), "string")
    kinds = map(str, elements(kind) if is_array(kind) else [kind])
    return next((each for each in kinds if each != "null"), "null")


def _number(schema: SchemaObject, *, is_integer: bool) -> float:
    least, most = _limits(schema, "minimum", "maximum", -inf)
    above, below = _limits(schema, "exclusiveMinimum", "exclusiveMaximum", -inf)
    start, end = max(least, above), min(most, below)
    step = _keyword(schema, "multipleOf", 0)
    size = step or 1.0
    first, last = -(-start // size) * size, end // size * size
    default = [schema.get("default")]
    proposals = [float(each) for each in default if isinstance(each, int | float) and abs(each) <= LARGEST]
    for value in (*proposals, 1.0, 0.0, first, first + size, last, last - size, (start + end) / 2):
        fits = least <= value <= most and above < value < below
        if fits and (value.is_integer() or not is_integer) and (not step or (value / step).is_integer()):
            return int(value) if value.is_integer() else value
    raise _unfillable("these limits of a number")


def _limits(schema: SchemaObject, lower: str, upper: str, least: float) -> tuple[float, float]:
    """Return the values of two keywords, or `least` and infinity."""
    limits = _keyword(schema, lower, least), _keyword(schema, upper, inf)
    if limits[0] > limits[1]:
        raise _unfillable(f"a `{lower}` above its `{upper}`")
    return limits


def _keyword(schema: SchemaObject, keyword: str, default: float) -> float:
    value = schema.get(keyword, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or (keyword in schema and not abs(value) <= LARGEST):
        raise _unfillable(f"this `{keyword}`")
    return float(value)
