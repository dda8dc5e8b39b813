"""The values of parameters, by the types that schemas give."""

import orjson
from each import each
from hypothesis import given
from hypothesis import strategies as st

from interlock.parsers.families import Schemas
from interlock.parsers.families.parameter_values import STRING, convert, escape_json, quote_json

BODY = {
    "tools": [
        {
            "type": "function",
            "name": "f",
            "parameters": {
                "$defs": {"count": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}, "a/b": {"type": "null"}},
                "properties": {
                    "string": {"type": "string"},
                    "number": {"type": "number"},
                    "either": {"type": ["string", "null"]},
                    "nullable": {"type": "integer", "nullable": True},
                    "any_of": {"anyOf": [{"type": "integer"}, {"anyOf": [{"type": "boolean"}]}]},
                    "reference": {"$ref": "#/$defs/count", "description": "how many"},
                    "escaped": {"$ref": "#/$defs/a~1b"},
                    "loop": {"$ref": "#/$defs/loop"},
                    "nowhere": {"$ref": "#/$defs/none"},
                    "enum": {"enum": ["a", 1, 1.5, True, None, [], {}]},
                    "const": {"const": 3},
                    "open": {},
                    "odd": True,
                },
                "allOf": [{"properties": {"part": {"type": "array"}}}],
            },
        },
        {"type": "function", "function": {"name": "chat", "parameters": {"properties": {"x": {"type": "object"}}}}},
        {
            "type": "namespace",
            "name": "crm",
            "tools": [{"type": "function", "name": "get", "parameters": {"properties": {"id": {"type": "integer"}}}}],
        },
        "no tool",
    ]
}


@each(
    ("key", "types"),
    [
        ("string", {"string"}),
        ("number", {"number"}),
        ("either", {"string", "null"}),
        ("nullable", {"integer", "null"}),
        ("any_of", {"integer", "boolean"}),
        ("reference", {"integer"}),
        ("escaped", {"null"}),
        ("loop", None),
        ("nowhere", None),
        ("enum", {"string", "integer", "number", "boolean", "null", "array", "object"}),
        ("const", {"integer"}),
        ("open", None),
        ("odd", None),
        ("part", {"array"}),
        ("unknown", None),
    ],
)
def test_types_come_from_the_schema(key, types):
    assert Schemas.from_request(BODY).types("f", key) == types
    assert Schemas.from_request(BODY).types("functions.f", key) == types


def test_types_are_found_by_every_name_of_a_tool():
    schemas = Schemas.from_request(BODY)
    assert schemas.types("chat", "x") == {"object"}
    assert schemas.types("crm__get", "id") == schemas.types("crm.get", "id") == {"integer"}
    assert schemas.types("nobody", "x") is None
    assert Schemas.from_request({}).types("f", "string") is None


def test_a_tool_without_a_name_has_no_schema():
    tools = [{"type": "function", "parameters": {}}, {"type": "function", "function": {"name": None}}, {"type": "web_search"}]
    assert Schemas.from_request({"tools": [*tools, {"type": "namespace", "tools": tools}]}) == Schemas()


def test_a_schema_without_a_bottom_says_nothing():
    deep: dict[str, object] = {"type": "integer"}
    for _ in range(100):
        deep = {"anyOf": [deep], "allOf": [{"properties": {"x": deep}}]}
    body = {"tools": [{"type": "function", "name": "f", "parameters": {"properties": {"x": deep}, **deep}}]}
    assert Schemas.from_request(body).types("f", "x") is None


@each(
    ("text", "types", "value"),
    [
        ("a", {"string"}, '"a"'),
        ("5", {"string"}, '"5"'),
        (" 5\n", {"integer"}, "5"),
        ("-007", {"integer"}, "-7"),
        ("5.0", {"integer"}, "5"),
        ("5.5", {"integer"}, "5.5"),
        ("5,0", {"integer"}, '"5,0"'),
        ("9" * 5000, {"integer"}, f'"{"9" * 5000}"'),
        ("1_0", {"integer", "number"}, '"1_0"'),
        ("5", {"number"}, "5"),
        ("3.10", {"number"}, "3.10"),
        ("1e3", {"number"}, "1e3"),
        (".5", {"number"}, "0.5"),
        ("+2.", {"number"}, "2.0"),
        ("+1e999", {"number"}, '"+1e999"'),
        ("NaN", {"number"}, '"NaN"'),
        ("true", {"number"}, "true"),
        ("True", {"boolean"}, "true"),
        ("0", {"boolean"}, "false"),
        ("yes", {"boolean"}, '"yes"'),
        ("null", {"string", "null"}, "null"),
        ("NULL", {"null"}, "null"),
        ("None", {"object", "null"}, "null"),
        ("None", {"string"}, '"None"'),
        ("None", {"object"}, '"None"'),
        ("nil", {"null"}, '"nil"'),
        ('{"a": 1.0}', {"object"}, '{"a": 1.0}'),
        ("[1, 2]", {"object"}, "[1, 2]"),
        ("[1, 2]", {"string", "object"}, '"[1, 2]"'),
        ("[1, 2]", {"array"}, "[1, 2]"),
        ("{'a': 1}", {"object"}, '{"a":1}'),
        ("{'a': {'b': None}, 'a': -1.5}", {"object"}, '{"a":{"b":null},"a":-1.5}'),
        ("['a', \"it's\", True, false, (-2,), '\\d\\n']", {"array"}, '["a","it\'s",true,false,[-2],"\\\\d\\n"]'),
        ("(1, 2)", {"array"}, "[1,2]"),
        ("{'a'}", {"object"}, "\"{'a'}\""),
        ("{1: 2}", {"object"}, '"{1: 2}"'),
        ("{**a}", {"object"}, '"{**a}"'),
        ("[x]", {"array"}, '"[x]"'),
        ("[1e999]", {"array"}, '"[1e999]"'),
        ("['a'", {"array"}, "\"['a'\""),
        ("5", {"string", "integer"}, "5"),
        ("five", {"string", "integer"}, '"five"'),
        ('{"a"', {"object", "array"}, '"{\\"a\\""'),
        ("x", {"unheard of"}, '"x"'),
        ("[null]", {"any"}, "[null]"),
        ("x y", {"any"}, '"x y"'),
    ],
)
def test_a_value_is_of_the_first_type_that_fits(text, types, value):
    assert convert(text, frozenset(types)) == value


@given(st.text(), st.sets(st.sampled_from(["null", "integer", "number", "boolean", "object", "array", "any", "string"])))
def test_whatever_a_value_says_it_is_json(text, types):
    orjson.loads(convert(text, frozenset(types)))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_a_string_can_be_escaped_in_pieces(chunks):
    assert orjson.loads(f'"{"".join(map(escape_json, chunks))}"') == "".join(chunks)
    assert quote_json("".join(chunks)) == convert("".join(chunks), STRING)


def test_half_a_character_is_replaced():
    assert quote_json("a\ud800") == '"a\ufffd"'


def test_types_may_have_the_names_of_python():
    properties = {name: {"type": name} for name in ("int", "Float", "bool", "LIST", "tuple", "dict", "str", "None")}
    schemas = Schemas.from_request({"tools": [{"type": "function", "name": "f", "parameters": {"properties": properties}}]})
    types = ["integer", "number", "boolean", "array", "array", "object", "string", "null"]
    assert [schemas.types("f", name) for name in properties] == [{name} for name in types]
