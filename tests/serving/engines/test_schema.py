"""JSON from JSON schemas: whatever is made validates, and what cannot be made is said to be impossible."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from interlock.serving.engines.embedded.pattern import Unreadable, example
from interlock.serving.engines.embedded.schema import Impossible, arguments_for, value_for

NAMES = st.sampled_from(["a", "b", "c"])
SMALL = st.integers(0, 3)


def optional(**members):
    return st.fixed_dictionaries({}, optional=members)


def joined(*parts):
    return st.tuples(*parts).map(lambda dicts: {key: value for one in dicts for key, value in one.items()})


BOUNDS = st.tuples(st.integers(-5, 5), st.integers(3, 9)).map(lambda pair: {"minimum": pair[0], "maximum": sum(pair)})
LENGTHS = st.tuples(SMALL, SMALL).map(lambda pair: {"minLength": pair[0], "maxLength": sum(pair) + 1})
COUNTS = st.tuples(SMALL, SMALL).map(lambda pair: {"minItems": pair[0], "maxItems": sum(pair) + 1})
PATTERNS = st.sampled_from([r"^[A-Z]{3}$", r"^\d+-\d+$", r"^(foo|bar)+$", r"^[^\s@]+@\w+\.[a-z]{2,}$", r"^([a-z]+-)*[a-z]+$"])
FORMATS = st.sampled_from(["date", "date-time", "email", "uuid", "uri", "ipv4"])
LEAVES = st.one_of(
    joined(st.just({"type": "integer"}), st.one_of(st.just({}), BOUNDS), optional(multipleOf=st.sampled_from([1, 2, 3]))),
    joined(st.just({"type": "number"}), st.one_of(st.just({}), BOUNDS), optional(multipleOf=st.sampled_from([0.5, 2]))),
    joined(st.just({"type": "string"}), st.one_of(st.just({}), LENGTHS)),
    joined(st.just({"type": "string"}), st.one_of(optional(pattern=PATTERNS), optional(format=FORMATS))),
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
        inner.map(lambda one: {"oneOf": [one, {"const": "never this"}]}),
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
def test_a_value_for_an_ordinary_schema_validates(schema, text):
    Draft202012Validator(schema).validate(value_for(schema, text))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}, {"city": "Paris"}),
        ({"properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}}}, {"city": "Paris", "unit": "c"}),
        ({"type": "string", "maxLength": 3}, "Par"),
        ({"type": "string", "minLength": 7}, "ParisPa"),
        ({"type": "string", "pattern": "^[A-Z]{3}$"}, "AAA"),
        ({"type": "string", "format": "date"}, "2026-01-01"),
        ({"type": "array", "items": {"type": "string"}}, ["Paris"]),
        ({"type": "array", "items": {"type": "string"}, "minItems": 3, "uniqueItems": True}, ["Paris", "text1", "text2"]),
        ({"type": "array", "prefixItems": [{"const": 1}, {"type": "boolean"}], "items": False}, [1, True]),
        ({"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 2, "uniqueItems": True}, [1, 2]),
        ({"type": "integer", "minimum": 10, "maximum": 20, "multipleOf": 7}, 14),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "integer", "default": 42}, 42),
        ({"minimum": 3}, 3),
        ({"type": ["null", "boolean"]}, True),
        ({"type": "null"}, None),
        ({}, "Paris"),
        ({"allOf": [{"type": "integer", "minimum": 3}, {"minimum": 5, "maximum": 9}]}, 5),
        ({"allOf": [{"type": "number"}, {"type": "integer"}]}, 1),
        ({"anyOf": [False, {"type": "integer", "minimum": 2, "maximum": 1}, {"const": "b"}]}, "b"),
        ({"oneOf": [{"type": "integer"}, {"type": "integer", "minimum": 0}, {"type": "null"}]}, None),
        ({"$ref": "#/definitions/a~1b", "definitions": {"a/b": {"const": 3}}}, 3),
        ({"$ref": "#/anyOf/1", "anyOf": [{"type": "string"}, {"type": "boolean"}]}, True),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": {"const": 1}, "type": "array"}, [1]),
        ({"type": "string", "pattern": "^(a+)+$"}, "a"),
        ({"type": "string", "pattern": "(?=x)x"}, "Paris"),
        ({"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/$defs/n"}}, "$defs": {"n": {}}}, None),
    ],
)
def test_a_value_is_plain_and_says_the_text_where_it_may(schema, value):
    made = value_for(schema, "Paris")
    assert made == ({"next": "Paris"} if value is None and "$defs" in schema else value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 2, "maximum": 1},
        {"type": "object", "required": ["a"], "properties": {"a": False}},
        {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}},
        {"type": "array", "minItems": 3, "uniqueItems": True, "items": {"type": "boolean"}},
        {"type": "array", "minItems": 1, "items": False},
        {"$ref": "#"},
        {"$ref": "#/nowhere"},
        {"$ref": "http://127.0.0.1:9/schema", "type": "string"},
        {"enum": []},
        {"enum": [1], "type": "string"},
        {"anyOf": []},
        {"oneOf": [{"type": "string"}, {"type": "string"}]},
        {"if": {}, "then": False},
        {"allOf": [False]},
        {"type": "thing"},
        {"type": 5},
        {"minimum": "x", "type": "integer"},
        {"not": {}},
        {"type": "string", "minLength": 10**12},
        {"type": "string", "minLength": 10**12, "pattern": "a+"},
        {"type": "array", "minItems": 10**12},
        {"type": "array", "contains": {}, "minContains": 10**12, "maxItems": 10**13},
        {"type": "object", "minProperties": 10**12},
    ],
)
def test_an_impossible_schema_is_said_to_be_so_and_makes_empty_arguments(schema):
    with pytest.raises(Impossible):
        value_for(schema, "Paris")
    assert arguments_for(schema) == {}


DOUBLING = {
    keyword: {
        "$ref": "#/$defs/s0",
        "$defs": {f"s{n}": {keyword: [{"$ref": f"#/$defs/s{n + 1}"}] * 2} for n in range(40)} | {"s40": {"type": "object"}},
    }
    for keyword in ("allOf", "anyOf", "oneOf")
}
ENDLESS = "((((a{64}){64}){64}){64}){64}"


@pytest.mark.parametrize(
    "schema",
    [
        *DOUBLING.values(),
        {"required": ["a"], "properties": {"a": {"type": "string", "pattern": "^a*a*a*a*a*a*a*a*a*a*b$"}}},
        {"required": ["a"], "properties": {"a": {"type": "string", "pattern": ENDLESS}}},
        {"required": ["a"], "properties": {"a": {"type": "string", "pattern": "(" * 200_000}}},
        {"required": ["a"], "properties": {"a": {"enum": ["a" * 50 + "b"], "pattern": "^(a+)+$"}}},
        {"properties": {f"p{n}": {"type": "string"} for n in range(20_000)}},
        {"required": ["a"], "properties": {"a": {"type": "array", "minItems": 100_000, "items": {}}}},
        {"required": ["a"], "properties": {"a": {"type": "array", "minItems": 999, "uniqueItems": True, "items": {}}}},
        {"required": ["a"], "properties": {"a": {"type": "array", "minItems": 900, "items": {"enum": [*range(3_000)]}}}},
        {"required": ["a"], "properties": {"a": {"type": "string", "minLength": 100_000}}},
        {"patternProperties": {"^(a+)+$": {}}, "required": ["a" * 50 + "b"], "additionalProperties": False},
        {"required": [f"p{n}" for n in range(3_000)]},
        {"unevaluatedProperties": False, "patternProperties": {"^(a+)+$": {}}, "required": ["a" * 50 + "b"]},
    ],
)
def test_whatever_a_schema_wants_it_is_soon_done(schema):
    began = time.thread_time()
    assert isinstance(arguments_for(schema, "x"), dict)
    assert time.thread_time() - began < 10  # milliseconds, in truth; the machine may be busy, and the point is that it ends


WORDS = st.sampled_from(
    [
        "type",
        "properties",
        "required",
        "items",
        "enum",
        "const",
        "anyOf",
        "allOf",
        "$ref",
        "not",
        "if",
        "then",
        "pattern",
        "format",
        "minimum",
        "minItems",
    ]
)
GARBAGE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), WORDS, st.just("#")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=4)),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(WORDS, GARBAGE, max_size=4))
def test_parameters_that_are_no_schema_break_nothing(parameters):
    assert isinstance(arguments_for(parameters, "x"), dict)


def test_arguments_are_an_object_whatever_the_parameters_are():
    assert arguments_for(None) == {}
    assert arguments_for({}) == {}
    assert arguments_for({"type": "string"}) == {}
    assert arguments_for({"properties": {"a": {"type": "string"}}}, "x") == {"a": "x"}


def test_optional_members_deep_down_and_members_that_cannot_be_are_left_out():
    tree = {"properties": {"v": {"type": "integer"}, "child": {"$ref": "#"}, "no": False}, "type": "object"}
    assert value_for(tree) == {"v": 1, "child": {"v": 1, "child": {"v": 1, "child": {}}}}


@pytest.mark.parametrize(
    "source",
    [
        r"^[A-Z]{3}$",
        r"a{2,}|b",
        r"^\+[1-9]\d{1,14}$",
        r"^#?([a-f0-9]{6}|[a-f0-9]{3})$",
        r"[]x]+",
        r"^\u0041\x42$",
        "^\\U0001F600\\N{BULLET}$",
        r"\bx\b",
        r"^(?P<n>a+)?$",
        r"a{,3}b",
        "x{",
        "",
        r"^[^\W\d]\w*$",
        r"^[^a]$",
        r"a.c",
        r"\.\*",
        r"(?:a|b)+?c",
        r"[\]a-]{2}",
        r"^[\S]\D\s$",
        "^[\u0400-\u04ff]+[\u4e16]$",
        "^(a+)+$",
        "[[a]",
    ],
)
def test_an_example_matches_its_pattern(source):
    for at_least in (0, 5):
        assert re.search(source.replace("[[", "[\\["), example(source, at_least))


def test_an_example_is_as_long_as_it_can_be_asked_to_be():
    assert example("^a+$", 5) == "aaaaaa"
    assert example("^a{1,3}$", 5) == "aaa"


@pytest.mark.parametrize(
    "source", ["(", r"(?=a)b", r"(a)\1", r"a{1000}", r"[^\s\S]", r"^\p{L}$", ENDLESS, "(){1000000}", "a" * 501]
)
def test_a_pattern_beyond_us_is_unreadable(source):
    with pytest.raises(Unreadable):
        example(source)
