"""Examples fit plain JSON schemas, strict schemas without a fitting example are refused, and the work is bounded."""

from __future__ import annotations

import pytest
from each import each
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from interlock.serving.engines.example_values import arguments_for, example
from interlock.serving.requests.api_errors import PromptError

NAMES = st.sampled_from(["a", "b", "c"])
SMALL = st.integers(0, 3)


def optional(**members):
    return st.fixed_dictionaries({}, optional=members)


def joined(*parts):
    return st.tuples(*parts).map(lambda dicts: {key: value for one in dicts for key, value in one.items()})


BOUNDS = st.tuples(st.integers(-5, 5), st.integers(3, 9)).map(lambda pair: {"minimum": pair[0], "maximum": sum(pair)})
LENGTHS = st.tuples(SMALL, SMALL).map(lambda pair: {"minLength": pair[0], "maxLength": sum(pair) + 1})
COUNTS = st.tuples(SMALL, SMALL).map(lambda pair: {"minItems": pair[0], "maxItems": sum(pair) + 1})
FORMATS = st.sampled_from(["date", "date-time", "email", "uuid", "uri", "ipv4", "of-the-future"])
LEAVES = st.one_of(
    joined(st.just({"type": "integer"}), st.one_of(st.just({}), BOUNDS), optional(multipleOf=st.sampled_from([1, 2, 3]))),
    joined(st.just({"type": "number"}), st.one_of(st.just({}), BOUNDS), optional(multipleOf=st.sampled_from([0.5, 2]))),
    joined(st.just({"type": "string"}), st.one_of(LENGTHS, optional(format=FORMATS))),
    st.sampled_from(
        [
            {"type": "boolean"},
            {"type": "null"},
            {"type": ["null", "string"]},
            {"enum": ["x", 1, None]},
            {"const": {"k": [1]}},
            {},
            {"$ref": "#/$defs/node"},
            {"exclusiveMinimum": 0, "exclusiveMaximum": 1, "type": "number"},
        ]
    ),
)


def grown(inner):
    objects = joined(
        st.just({"type": "object"}),
        st.dictionaries(NAMES, inner, max_size=3).flatmap(
            lambda named: optional(
                properties=st.just(named),
                required=st.just(sorted(named)[:1]),
                additionalProperties=st.just({}),
            )
        ),
    )
    arrays = joined(st.just({"type": "array"}), st.one_of(st.just({}), COUNTS), optional(items=inner))
    choices = st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches}),
        inner.map(lambda one: {"allOf": [one]}),
        inner.map(lambda one: {"oneOf": [one]}),
    )
    return st.one_of(objects, arrays, choices)


NODE = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["value", "next"],
    "additionalProperties": False,
}
SCHEMAS = st.recursive(LEAVES, grown, max_leaves=6).map(lambda schema: {**schema, "$defs": {"node": NODE}})


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SCHEMAS, st.sampled_from([None, "Paris", ""]))
def test_a_plain_schema_is_filled_correctly(schema, text):
    Draft202012Validator(schema).validate(example(schema, text))


@each(
    ("schema", "value"),
    [
        ({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}, {"city": "Paris"}),
        ({"properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}}}, {"city": "Paris", "unit": "c"}),
        ({"properties": {"a": {}, "b": {}}, "required": ["b"]}, {"b": "Paris"}),
        ({"type": "string", "maxLength": 3}, "Par"),
        ({"type": "string", "minLength": 7}, "Paris.."),
        ({"type": "string", "default": "Rome"}, "Rome"),
        ({"type": "string", "format": "date"}, "2026-01-01"),
        ({"type": "array", "items": {"type": "string"}}, ["Paris"]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 4}, [1, 1, 1]),
        ({"type": "array", "prefixItems": [{"const": 1}, {"type": "boolean"}], "items": False}, [1, True]),
        ({"type": "array", "uniqueItems": True, "items": {"type": "string"}}, ["Paris"]),
        ({"type": "integer", "minimum": 10, "maximum": 20, "multipleOf": 7}, 14),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"type": "integer", "exclusiveMinimum": 4}, 5),
        ({"type": "integer", "exclusiveMaximum": -4}, -5),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "number", "minimum": 0.5, "maximum": 0.75}, 0.625),
        ({"type": "integer", "default": 42}, 42),
        ({"minimum": 3}, 3),
        ({"type": ["null", "boolean"]}, True),
        ({"type": "null"}, None),
        ({}, "Paris"),
        ({"type": ["string", "null"], "enum": [None, "a"]}, "a"),
        ({"anyOf": [{"type": "null"}, {"const": "b"}]}, "b"),
        ({"description": "d", "allOf": [{"$ref": "#/definitions/a~1b"}], "definitions": {"a/b": {"const": 3}}}, 3),
    ],
)
def test_a_value_is_plain_and_has_the_text_where_it_may(schema, value):
    assert example(schema, "Paris") == value
    Draft202012Validator(schema).validate(value)


def test_deep_optional_members_are_left_out():
    tree = {"properties": {"v": {"type": "integer"}, "child": {"$ref": "#"}}, "type": "object"}
    assert example(tree) == {"v": 1, "child": {"v": 1, "child": {"v": 1, "child": {}}}}


NO_SCHEMA = "a subschema that is neither an object nor `true`"
CHAIN = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(17)}
"""Each schema refers to the next one twice, so validation would visit the last one 131,072 times."""


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "string", "pattern": "^(P+)+$"}, "`pattern`"),
        ({"not": {}}, "`not`"),
        ({"if": {}, "then": False}, "`false`"),
        ({"type": "object", "patternProperties": {"a": {}}}, "`patternProperties`"),
        ({"type": "object", "unevaluatedProperties": False}, "`unevaluatedProperties`"),
        ({"properties": {"a": {"contains": {}, "type": "array"}}}, "`contains`"),
        ({"type": "array", "items": {}, "minItems": 2, "uniqueItems": True}, "`uniqueItems`"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "`oneOf`"),
        ({"allOf": [{"minimum": 3}, {"type": "integer", "maximum": 2}, {"minimum": 1}]}, "`minimum`"),
        ({"enum": ["a"], "minLength": 2}, "`minLength`"),
        ({"enum": []}, "`enum`"),
        ({"type": "string", "format": "date", "maxLength": 3, "const": "2026"}, "`maxLength`"),
        ({"type": "integer", "minimum": "x"}, "invalid keywords"),
        ({"$ref": "#/$defs/a0", "$defs": {**CHAIN, "a17": {}}}, "so many values"),
    ],
)
def test_an_example_that_does_not_fit_is_refused_if_strict_and_returned_otherwise(schema, reason):
    with pytest.raises(PromptError) as error:
        example(schema, "Paris")
    assert str(error.value) == f"The embedded engine cannot fill a JSON schema with {reason}."
    function = {"parameters": {"type": "object", "properties": {"a": schema}, "$defs": schema.get("$defs", {})}}
    assert arguments_for(function, "Paris").keys() == {"a"}
    with pytest.raises(PromptError):
        arguments_for({**function, "strict": True})


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "integer", "minimum": 2, "maximum": 1}, "these limits of a number"),
        ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2}, "these limits of a number"),
        ({"type": "number", "multipleOf": 5e-324, "minimum": 2}, "these limits of a number"),
        ({"type": "object", "required": ["a"], "properties": {"a": False}}, NO_SCHEMA),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, NO_SCHEMA),
        ({"type": "array", "minItems": 1, "items": [{}]}, NO_SCHEMA),
        ({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}, "so many levels"),
        ({"$ref": "#"}, "so many levels"),
        ({"$ref": "#/nowhere"}, "a `$ref` that leads nowhere"),
        ({"$ref": "http://127.0.0.1:9/schema"}, "a `$ref` that leads nowhere"),
        ({"anyOf": []}, "an `anyOf` that lists no object"),
        ({"anyOf": [False]}, "an `anyOf` that lists no object"),
        ({"type": "thing"}, "an unknown `type`"),
        ({"type": "string", "minLength": 10**12}, "this `minLength`"),
        ({"type": "array", "minItems": 10**12}, "so many values"),
        ({"properties": {f"p{n}": {"type": "string"} for n in range(20_000)}}, "so many values"),
        ({"required": [f"p{n}" for n in range(3_000)]}, "so many values"),
        ({"type": "array", "minItems": 900, "items": {"anyOf": [{}] * 3_000}}, "so many values"),
    ],
)
def test_a_schema_without_an_example_is_refused_strict_or_not(schema, reason):
    for strict in (True, False):
        with pytest.raises(PromptError) as error:
            example(schema, "Paris", strict=strict)
        assert str(error.value) == f"The embedded engine cannot fill a JSON schema with {reason}."


WORDS = st.sampled_from(
    [
        *("type", "properties", "required", "items", "enum", "const", "anyOf", "allOf", "$ref", "not", "if", "then", "pattern"),
        *("format", "minimum", "minItems", "multipleOf", "maxLength"),
    ]
)
GARBAGE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), WORDS, st.just("#")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=4)),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(WORDS, GARBAGE, max_size=4), st.booleans())
def test_invalid_parameters_are_filled_or_refused(parameters, strict):
    try:
        arguments = arguments_for({"parameters": parameters, "strict": strict}, "x")
    except PromptError:
        return
    assert isinstance(arguments, dict)


def test_arguments_are_an_object():
    assert arguments_for({}) == {}
    assert arguments_for({"parameters": None}) == {}
    with pytest.raises(PromptError, match="not `object`"):
        arguments_for({"parameters": {"type": "string"}})
    assert arguments_for({"parameters": {"properties": {"a": {"type": "string"}}}}, "x") == {"a": "x"}
