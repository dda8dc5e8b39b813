"""JSON that validates against a JSON schema, made from the schema alone.

It makes plain, short values: what is required, the first of what may be chosen, and a text that it is given wherever a
string may be that text. Every value is validated with `jsonschema` before it is given, so that it is right or not given.

It follows `type`, `enum`, `const`, `properties`, `required`, `dependentRequired`, `minProperties`, `additionalProperties`,
`patternProperties`, `items`, `prefixItems`, `contains`, `minItems`, `uniqueItems`, `allOf`, `anyOf`, `oneOf`, `if`, local
`$ref` (recursive ones too), `format`, `pattern`, lengths, bounds and `multipleOf`. It does not look for values that `not`,
`unevaluatedProperties`, `$dynamicRef`, `$anchor` or a schema elsewhere ask for, though it may happen on them. Patterns that
`Pattern` cannot read, or that may be slow to match, are made for as well as may be, and not enforced.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias, cast

from attrs import define, field
from jsonschema.exceptions import UnknownType
from referencing.exceptions import Unresolvable

from interlock.serving.engines.embedded.merging import merged
from interlock.serving.engines.embedded.scalars import numbers, strings
from interlock.serving.engines.embedded.validation import Impossible, Judge
from interlock.serving.requests.values import elements, is_array, is_object, members

__all__ = ["Impossible", "arguments_for", "value_for"]

Schema: TypeAlias = Mapping[str, object]

STEPS: Final = 2_000
"""Schemas that are looked at before the whole counts as impossible."""

DEEPEST: Final = 14
SHALLOW: Final = 2
"""Levels below which nothing is added that is not asked for, and the alternatives that end a recursion are tried first."""


BROKEN: Final = (
    Impossible,
    Unresolvable,
    UnknownType,
    RecursionError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""What a schema raises that has no value, or that is wrong in itself and so breaks a validator in ways of its own."""


def value_for(schema: Schema, text: str | None = None) -> object:
    """Make a value.

    Args:
        schema: A JSON schema.
        text: What strings say where they may.

    Returns:
        JSON that validates.

    Raises:
        Impossible: None was found.
    """
    for words in dict.fromkeys((text, None)):
        try:
            maker = _Maker(Judge.of(schema), words)
            value = maker.make(maker.judge.root)
            if maker.fits(value, maker.judge.root):
                return value
        except BROKEN:
            continue
    raise Impossible(json.dumps(schema)[:200])


def arguments_for(parameters: object, text: str | None = None) -> dict[str, object]:
    """Make the arguments of a function.

    Args:
        parameters: The schema of the function's parameters, or None if it declares none.
        text: What strings say where they may.

    Returns:
        An object that validates; `{}` if none was found.
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

    def fits(self, value: object, schema: object) -> bool:
        return self.judge.fits(value, schema)

    def make(self, schema: object, depth: int = 0, nth: int = 0) -> object:
        """Make a value for a part of the whole: the `nth` that comes to mind, counted from 0."""
        self.steps += 1
        if schema is False or self.steps > STEPS or depth > DEEPEST:
            raise Impossible("too deep, too long, or nothing fits")
        whole = self.resolved(members(schema))
        for name in ("anyOf", "oneOf"):
            if name in whole:
                return self.chosen(whole, name, depth, nth)
        if "if" in whole:
            return self.conditional(whole, depth, nth)
        if "const" in whole or "enum" in whole:
            return self.listed(whole, nth)
        return self.typed(whole, depth, nth)

    def resolved(self, schema: Schema) -> Schema:
        """Put what a schema refers to, and all that it must be at once, into one schema."""
        rest = dict(schema)
        while "$ref" in rest or "allOf" in rest:
            self.steps += 1
            if self.steps > STEPS:
                raise Impossible("its references never end")
            parts = [self.target(str(rest.pop("$ref")))] if "$ref" in rest else elements(rest.pop("allOf"))
            for part in parts:
                if part is False:
                    raise Impossible("nothing fits")
                rest = merged(rest, members(part))
        return rest

    def target(self, reference: str) -> object:
        """Follow a reference into the whole; one to elsewhere says nothing."""
        found: object = self.judge.root
        for step in reference.removeprefix("#").split("/")[1:] if reference.startswith("#") else ():
            name = step.replace("~1", "/").replace("~0", "~")
            found = elements(found)[int(name)] if is_array(found) else members(found)[name]
        return found if reference.startswith("#") else {}

    def chosen(self, schema: Schema, name: str, depth: int, nth: int) -> object:
        """Make a value of the first alternative that has one; the leaves first, deep down."""
        rest = {key: inner for key, inner in schema.items() if key != name}
        branches = [branch for branch in elements(schema[name]) if branch is not False]
        if depth > SHALLOW:
            branches.sort(key=lambda branch: not _is_leaf(branch))
        for branch in branches[nth % len(branches) :] + branches[: nth % len(branches)]:
            try:
                value = self.make(merged(rest, members(branch)), depth + 1, nth)
            except Impossible:
                continue
            if self.fits(value, schema):
                return value
        raise Impossible(f"none of {name} fits")

    def conditional(self, schema: Schema, depth: int, nth: int) -> object:
        """Make a value that meets the condition and what follows of it, or else one that does not."""
        rest = {key: inner for key, inner in schema.items() if key not in ("if", "then", "else")}
        then = merged(merged(rest, members(schema["if"])), members(schema.get("then")))
        for way in (then, merged(rest, members(schema.get("else")))):
            try:
                value = self.make(way, depth + 1, nth)
            except Impossible:
                continue
            if self.fits(value, schema):
                return value
        raise Impossible("neither way fits")

    def listed(self, schema: Schema, nth: int) -> object:
        """Take one of the values that the schema lists."""
        values = [schema["const"]] if "const" in schema else elements(schema["enum"])
        fitting = [value for value in values if self.fits(value, schema)]
        if not fitting:
            raise Impossible("nothing that is listed fits")
        return fitting[nth % len(fitting)]

    def typed(self, schema: Schema, depth: int, nth: int) -> object:
        """Make a value of the first type that has one."""
        for kind in _types(schema):
            try:
                return self.of_type(kind, schema, depth, nth)
            except Impossible:
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
                return self.first_fitting(iter((nth % 2 == 0, nth % 2 == 1)), schema)
            case _:
                return None

    def first_fitting(self, values: Iterator[object], schema: Schema) -> object:
        for value in values:
            if self.fits(value, schema):
                return value
        raise Impossible("nothing that comes to mind fits")

    def an_object(self, schema: Schema, depth: int) -> dict[str, object]:
        """Make what is required, or all that is named if nothing is and the object is near the top."""
        properties = members(schema.get("properties"))
        required = [str(name) for name in elements(schema.get("required"))]
        made = {name: self.make(self.member(schema, name), depth + 1) for name in required}
        for name in properties if not required and depth <= SHALLOW else ():
            self.add(made, schema, name, depth)
        depending = members(schema.get("dependentRequired"))
        for dependent in [inner for present in list(made) for inner in elements(depending.get(present))]:
            self.add(made, schema, str(dependent), depth)
        least = _least(schema, "minProperties")
        spare = [f"key{number}" for number in range(1, least + 1)]
        for other in [*properties, *self.names(schema, least), *spare] if least else ():
            if len(made) < least:
                self.add(made, schema, other, depth)
        return made

    def names(self, schema: Schema, count: int) -> list[str]:
        """Think of names that an object may have though it does not name them."""
        wanted = schema.get("propertyNames")
        patterns = [{"type": "string", "pattern": pattern} for pattern in members(schema.get("patternProperties"))]
        sources = [members(wanted)] if is_object(wanted) else patterns
        return [str(self.make({"type": "string", **source}, 0, nth)) for source in sources for nth in range(count)]

    def add(self, made: dict[str, object], schema: Schema, name: str, depth: int) -> None:
        """Give an object a member that it need not have, if one can be made."""
        try:
            made.setdefault(name, self.make(self.member(schema, name), depth + 1))
        except Impossible:
            return

    def member(self, schema: Schema, name: str) -> object:
        """The schema of a member: all that its name and the patterns that match it say, else what is said of all others."""
        said = [members(schema.get("properties"))[name]] if name in members(schema.get("properties")) else []
        said += [
            inner for pattern, inner in members(schema.get("patternProperties")).items() if self.fits(name, {"pattern": pattern})
        ]
        if not said:
            return schema.get("additionalProperties", True)
        return said[0] if len(said) == 1 else {"allOf": said}

    def an_array(self, schema: Schema, depth: int) -> list[object]:
        """Make as many elements as must be, and one if there is no harm in it."""
        tuples = schema.get("prefixItems", schema.get("items"))
        prefix = elements(tuples)
        others = schema.get("additionalItems" if is_array(schema.get("items")) else "items", True)
        least = _least(schema, "minItems")
        most = cast("int", schema.get("maxItems", max(least, 1, len(prefix))))
        usual = (len(prefix) or 1) if (depth <= SHALLOW and others is not True) or prefix else 0
        count = min(max(least, usual), most)
        distinct = schema.get("uniqueItems") is True
        made: list[object] = []
        if "contains" in schema and least + len(prefix) <= most:
            wanted = _least({"minContains": 1, **schema}, "minContains")
            made = [self.make(schema["contains"], depth + 1, nth) for nth in range(wanted)]
        for index in range(len(made), count):
            inner = prefix[index] if index < len(prefix) else others
            self.extend(made, inner, depth, distinct=distinct, needed=index < least)
        return made

    def extend(self, made: list[object], inner: object, depth: int, *, distinct: bool, needed: bool) -> None:
        """Add an element, another one than before if they must differ."""
        for nth in range(len(made) + 2) if distinct else (0,):
            try:
                value = self.make(inner, depth + 1, nth)
            except Impossible:
                if needed:
                    raise
                return
            if not distinct or value not in made:
                made.append(value)
                return


TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "object": ("properties", "required", "minProperties", "patternProperties", "additionalProperties", "propertyNames"),
    "array": ("items", "prefixItems", "minItems", "contains", "uniqueItems"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": (),
}
"""What a schema without a type is probably about, by the words it uses."""


def _types(schema: Schema) -> list[str]:
    """The types that a value may have, null last."""
    given = schema.get("type")
    if given is None:
        likely = [kind for kind, words in TYPES.items() if any(word in schema for word in words)]
        return list(dict.fromkeys([*likely, "string", "number", "object", "array", "boolean", "null"]))
    kinds = [str(kind) for kind in elements(given)] if is_array(given) else [str(given)]
    return sorted(kinds, key=lambda kind: kind == "null")


def _least(schema: Schema, name: str) -> int:
    """How many there must be."""
    count = cast("int", schema.get(name) or 0)
    if count > STEPS:
        raise Impossible("too many are wanted")
    return count


def _is_leaf(schema: object) -> bool:
    return "$ref" not in json.dumps(schema)
