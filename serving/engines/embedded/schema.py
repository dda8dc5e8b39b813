"""JSON for a JSON schema: plain, short values, as a demonstration needs them.

It follows `type`, `enum`, `const`, `default`, `properties`, `required`, `items`, `prefixItems`, `minItems`, `uniqueItems`,
`allOf`, `anyOf`, `oneOf`, local `$ref`s (recursive ones too), `format`, `pattern`, lengths, bounds and `multipleOf`.
`jsonschema` judges what was made, so that a value is right or not given; patterns alone are not judged, because to match a
stranger's may take for ever. Whatever a schema asks for, the work that is done for it is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias, cast

from attrs import define, field

from interlock.serving.engines.embedded.judging import BROKEN, Impossible, Judge
from interlock.serving.engines.embedded.scalars import numbers, strings
from interlock.serving.requests.values import elements, is_array, is_object, members

__all__ = ["Impossible", "arguments_for", "value_for"]

Schema: TypeAlias = Mapping[str, object]

STEPS: Final = 1_000
"""Parts of a schema that are looked at, and so the values that are made at most."""

DEEPEST: Final = 14
SHALLOW: Final = 2
"""Levels below which nothing is added that is not asked for, and the alternatives that end a recursion are tried first."""


def value_for(schema: Schema, text: str | None = None) -> object:
    """Return a value that fits a schema.

    Args:
        schema: A JSON schema.
        text: What strings say where they may.

    Raises:
        Impossible: None was found.
    """
    for words in dict.fromkeys((text, None)):
        try:
            judge = Judge.of(schema)
            value = _Maker(judge, words).make(judge.root)
            if judge.fits(value, judge.root):
                return value
        except BROKEN:
            continue
    raise Impossible("nothing that comes to mind fits")


def arguments_for(parameters: object, text: str | None = None) -> dict[str, object]:
    """Return the arguments of a function.

    Args:
        parameters: The schema of the function's parameters, or None if it declares none.
        text: What strings say where they may.

    Returns:
        An object that fits; `{}` if none was found.
    """
    try:
        value = value_for({"type": "object", **members(parameters)}, text)
    except Impossible:
        return {}
    return dict(members(value))


@define
class _Maker:
    """The making of one value.

    Args:
        judge: Knows the whole schema, which references point into.
        text: What strings say where they may.
    """

    judge: Judge
    text: str | None
    steps: int = field(default=0, init=False)

    def make(self, schema: object, depth: int = 0, nth: int = 0) -> object:
        """Create a value for a part of the whole: the `nth` that comes to mind, counted from 0."""
        self.steps += 1
        if schema is False or self.steps > STEPS or depth > DEEPEST:
            raise Impossible("too deep, too long, or nothing fits")
        whole = self.judge.resolved(members(schema))
        for name in ("anyOf", "oneOf"):
            if name in whole:
                return self.chosen(whole, name, depth, nth)
        if "const" in whole or "enum" in whole:
            values = [whole["const"]] if "const" in whole else elements(whole["enum"])
            return self.first_fitting(iter(values[nth:] + values[:nth]), whole)
        return self.typed(whole, depth, nth)

    def chosen(self, schema: Schema, name: str, depth: int, nth: int) -> object:
        """Create a value by the first branch that has one; those without a reference come first deep down."""
        branches = elements(schema[name])
        rest = {key: inner for key, inner in schema.items() if key != name}
        if depth > SHALLOW:
            branches = sorted(branches, key=lambda branch: "$ref" in json.dumps(branch))
        for branch in branches[nth:] + branches[:nth]:
            try:
                value = self.make({**rest, **members(branch)} if branch is not False else False, depth + 1, nth)
            except BROKEN:
                continue
            if self.judge.fits(value, schema):
                return value
        raise Impossible(f"none of {name} fits")

    def typed(self, schema: Schema, depth: int, nth: int) -> object:
        """Create a value of the first type that has one."""
        for kind in _types(schema):
            try:
                return self.of_type(kind, schema, depth, nth)
            except BROKEN:
                continue
        raise Impossible("no type has a value")

    def of_type(self, kind: str, schema: Schema, depth: int, nth: int) -> object:
        match kind:
            case "object":
                return self.an_object(schema, depth)
            case "array":
                return self.an_array(schema, depth)
            case "string":
                return self.first_fitting(strings(schema, self.text, nth), {**schema, "type": "string"})
            case "integer" | "number":
                return self.first_fitting(numbers(schema, kind, nth), {**schema, "type": kind})
            case "boolean":
                return nth % 2 == 0
            case _:
                return None

    def first_fitting(self, values: Iterator[object], schema: Schema) -> object:
        for value in values:
            if self.judge.fits(value, schema):
                return value
        raise Impossible("nothing that comes to mind fits")

    def an_object(self, schema: Schema, depth: int) -> dict[str, object]:
        """Create what is required, or all that is named if nothing is and the object is near the top."""
        properties = members(schema.get("properties"))
        required = [str(name) for name in elements(schema.get("required"))]
        others = schema.get("additionalProperties", True)
        made = {name: self.make(properties.get(name, others), depth + 1) for name in required}
        for name in properties if not required and depth <= SHALLOW else ():
            try:
                made[name] = self.make(properties[name], depth + 1)
            except BROKEN:
                continue
        return made

    def an_array(self, schema: Schema, depth: int) -> list[object]:
        """Create as many elements as must be, and one if there is no harm in it."""
        prefix = elements(schema.get("prefixItems"))
        others = schema.get("items", True)
        least = _count(schema, "minItems")
        usual = len(prefix) or (1 if depth <= SHALLOW and is_object(others) else 0)
        count = min(max(least, usual), cast("int", schema.get("maxItems", STEPS)))
        distinct = schema.get("uniqueItems") is True
        made: list[object] = []
        for index in range(count):
            inner = prefix[index] if index < len(prefix) else others
            value = self.make(inner, depth + 1, index if distinct else 0)
            if not distinct or value not in made:
                made.append(value)
        return made


TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""What a schema without a type is probably about, by the words it uses."""


def _types(schema: Schema) -> list[str]:
    """Return the types that a value may have, null last."""
    given = schema.get("type")
    if given is None:
        likely = [kind for kind, words in TYPES.items() if any(word in schema for word in words)]
        return list(dict.fromkeys([*likely, "string", "number", "object", "array", "boolean", "null"]))
    kinds = [str(kind) for kind in elements(given)] if is_array(given) else [str(given)]
    return sorted(kinds, key=lambda kind: kind == "null")


def _count(schema: Schema, name: str) -> int:
    """Return how many there must be."""
    count = cast("int", schema.get(name) or 0)
    if count > STEPS:
        raise Impossible("too many are wanted")
    return int(count)
