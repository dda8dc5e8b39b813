"""Scripts are read from files, refused with the place of an error, recorded from an upstream, and replayed by an engine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from attrs import evolve
from for_each import for_each
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from live.chunk_shapes import call, chunk
from live.upstream import ScriptedUpstream, failure, serve_upstream, stream

from interlock.parsers import Chunk
from interlock.serving.build import build
from interlock.serving.engines import script
from interlock.serving.engines.embedded import arguments_for, example
from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.engines.recordings import RecordedTurn, Recording
from interlock.serving.engines.script import (
    Conversation,
    Failure,
    ScriptedEngine,
    ScriptError,
    ScriptRule,
    ScriptStep,
    read_rules,
    recorded_rule,
)
from interlock.serving.engines.upstream.script_recorder import RecordingGateway, ScriptRecorder, recorded_step
from interlock.serving.engines.upstream.upstreams import upstream_of
from interlock.serving.http.server import ServerThread
from interlock.serving.requests.api_errors import ApiError, EngineError, PromptError
from interlock.serving.requests.create import read_request
from interlock.serving.settings import Settings, UpstreamSettings

DOCS = Path(__file__).parents[3] / "docs"
TOML = """
[[rules]]
when = "weather"
steps = [
  { fails = { status = 429, retry_after = 2 } },
  { calls = [{ name = "get_weather", arguments = { city = "Berlin" } }] },
  { thinks = "Warm.", says = "18 °C", waits = 0.5 },
]
"""
SCRIPT = {
    "rules": [
        {
            "when": "weather",
            "steps": [
                {"fails": {"status": 429, "retry_after": 2.0}},
                {"calls": [{"name": "get_weather", "arguments": {"city": "Berlin"}}]},
                {"waits": 0.5, "thinks": "Warm.", "says": "18 °C"},
            ],
        }
    ]
}


def test_a_script_is_the_same_in_toml_and_in_json(tmp_path) -> None:
    for name, text in (("a.toml", TOML), ("a.json", json.dumps(SCRIPT))):
        (tmp_path / name).write_text(text, "utf-8")
    assert read_rules(tmp_path / "a.toml") == read_rules(tmp_path / "a.json")
    schema = json.loads((DOCS / "guides" / "script.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate({"$schema": "script.schema.json", **SCRIPT})


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({}, "rule 1: Object missing required field `steps`; its fields are when, family, per, steps"),
        (
            {"steps": [{"says": "a"}, {"say": "Hi"}]},
            "rule 1, step 2: unknown field 'say' (did you mean 'says'?); the fields are waits, between, thinks, says, refuses, ",
        ),
        (
            {"steps": [{"says": "a", "ends": "lenght"}]},
            "rule 1, step 1, ends: unknown value 'lenght' (did you mean 'length'?); the values are abort, content_filter, error",
        ),
        ({"steps": [], "per": "test"}, "rule 1, per: unknown value 'test'; the values are conversation, server"),
        (
            {"steps": [], "when": {"text": "a", "patern": "b"}},
            "rule 1, when: unknown field 'patern' (did you mean 'pattern'?); the fields are text, pattern, instructions, ",
        ),
        ({"steps": [], "when": {"tools": ["a", ""]}}, "rule 1, when, tool 2: Expected `str` of length >= 1"),
        (
            {"steps": [{"fails": "429"}]},
            "rule 1, step 1, fails: Expected `int | object | null`, got `str`; its fields are status, message, retry_after",
        ),
        ({"steps": [{"fails": 200}]}, "rule 1, step 1, fails: Expected `int` >= 400"),
        (
            {"steps": [{"breaks": "R99"}]},
            "rule 1, step 1: breaks: 'R99' is not one of R1, R2, R3, R4, R4a, R6, R7, R8, R9, R10, R11, R12, R13, R14, R15, R18",
        ),
        (
            {"steps": [{"stops": 1, "disconnects": 1}]},
            "rule 1, step 1: disconnects and stops exclude each other: a step has one fault",
        ),
        ({"steps": [{"stops": 1, "disconnects": True}]}, "rule 1, step 1: disconnects and stops exclude each other"),
        ({"steps": [{"disconnects": -1}]}, "rule 1, step 1, disconnects: Expected `int` >= 0"),
        ({"steps": [{"fails": {"status": 200}}]}, "rule 1, step 1, fails, status: Expected `int` >= 400"),
        ({"steps": [{"writes": "<tool_call>"}]}, "rule 1: writes needs a family, whose format it is in"),
        (
            {"steps": [{"refuses": "a"}], "family": "hermes"},
            "rule 1: refuses has no place in the format of a family: a refusal is a field of the API",
        ),
        (
            {"steps": [{"writes": "a", "refuses": "b"}], "family": "hermes"},
            "rule 1, step 1: writes and refuses exclude each other: writes is the whole output",
        ),
        ({"steps": [{"says": "a"}, {"uses": {"input_tokens": 0}}]}, "rule 1, step 2: it does nothing"),
        (
            {"steps": [{"says": "a", "usage": {}}]},
            "rule 1, step 1: unknown field 'usage' (did you mean 'uses'?); the fields are waits, ",
        ),
        (
            {"steps": [{"says": "a", "uses": {"prompt_tokens": 1}}]},
            "rule 1, step 1, uses: unknown field 'prompt_tokens' (did you mean 'output_tokens'?); the fields are input_tokens, ",
        ),
        (
            {"steps": [{"writes": "a", "says": "b"}], "family": "hermes"},
            "rule 1, step 1: writes and says exclude each other: writes is the whole output",
        ),
        (
            {"steps": [], "family": "esperanto"},
            "rule 1: unknown family 'esperanto'; choose one of gpt_oss, harmony, ",
        ),
        ({"steps": [], "when": {"pattern": "("}}, "rule 1, when: pattern: missing ), unterminated subpattern at position 0"),
        (
            {"steps": [], "when": {"pattern": r"in (?<city>\w+)"}},
            "rule 1, when: pattern: unknown extension ?<c at position 4; write (?P<city>…) for JavaScript's (?<city>…)",
        ),
        ({"steps": []}, "rule 1: it has no steps"),
        ({"steps": [{"says": "a"}, {}]}, "rule 1, step 2: it does nothing"),
        ({"steps": [{"disconnects": False}]}, "rule 1, step 1: it does nothing"),
        ({"steps": [{"between": 1}]}, "rule 1, step 1: it does nothing"),
        (
            {"steps": [{"disconnects": True, "waits": 1}]},
            "rule 1, step 1: disconnects before the first event and waits exclude each other: the stream ends at once",
        ),
        (
            {"steps": [{"stops": 0, "waits": 1}]},
            "rule 1, step 1: stops before the first event and waits exclude each other: the stream ends at once",
        ),
        ({"steps": [{"stops": 5}]}, "rule 1, step 1: stops belongs to a step with an answer, such as says"),
    ],
)
def test_an_invalid_script_is_refused_with_the_place_and_the_allowed_values(tmp_path, rule, message) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"rules": [rule]}))
    with pytest.raises(ScriptError) as failure:
        read_rules(path)
    assert str(failure.value)[: len(message)] == message


SENT = {
    "thinks": "a",
    "says": [],
    "calls": [{"name": "f"}],
    "refuses": "a",
    "writes": "a",
    "uses": {"input_tokens": 1},
    "between": 1,
    "ends": "length",
}


@pytest.mark.parametrize("field", SENT)
@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ({"fails": {"status": 500}}, "fails"),
        ({"disconnects": True}, "disconnects before the first event"),
        ({"stops": 0}, "stops before the first event"),
    ],
)
def test_a_fault_in_place_of_an_answer_excludes_each_field_of_one(tmp_path, fault, name, field) -> None:
    path = tmp_path / "a.json"
    late = {"waits": 1, "fails": {"status": 500}}
    path.write_text(json.dumps({"rules": [{"family": "hermes", "steps": [late, {**fault, field: SENT[field]}]}]}))
    with pytest.raises(ScriptError) as failure:
        read_rules(path)
    assert str(failure.value) == f"rule 1, step 2: {name} and {field} exclude each other: the client receives no answer"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "Expected `object`, got `array`; its fields are rules, $schema"),
        ('{"rulez": []}', "unknown field 'rulez' (did you mean 'rules'?); the fields are rules, $schema"),
    ],
)
def test_a_file_that_is_not_a_script_is_refused(tmp_path, text, message) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ScriptError) as failure:
        read_rules(tmp_path / "a.json")
    assert str(failure.value) == message


@pytest.mark.parametrize("field", ["disconnects", "stops"])
def test_true_places_a_fault_before_the_first_event(tmp_path, field) -> None:
    for name, text in (("a.toml", f"[[rules]]\nsteps = [{{ {field} = true }}]"), ("a.json", "")):
        (tmp_path / name).write_text(text or json.dumps({"rules": [{"steps": [{field: True}]}]}))
        assert read_rules(tmp_path / name) == [ScriptRule(steps=[ScriptStep(**{field: 0})])]


@pytest.mark.parametrize(("name", "form"), [("a.toml", "TOML"), ("a.json", "JSON")])
def test_a_file_of_another_format_is_refused(tmp_path, name, form) -> None:
    (tmp_path / name).write_text("<xml>")
    with pytest.raises(ScriptError, match=f"not {form}: "):
        read_rules(tmp_path / name)


F = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}


def converse(url, *, headers=None):
    """Ask for a call of a tool, answer it, and say something else; return what the model wrote."""

    def post(**body):
        answer = httpx.post(f"{url}/v1/responses", json={"model": "m", "tools": [F], **body}, headers=headers)
        return (answer.status_code, answer.json().get("id"), answer.json().get("output") or answer.json()["error"]["message"])

    def written(output):
        return (
            output
            if isinstance(output, str)
            else [(item["type"], item.get("arguments") or text(item), item.get("status")) for item in output]
        )

    def text(item):
        return "".join(part["text"] for part in item["content"])

    refused = post(input="Call f")
    first = post(input="Call f")
    result = {"type": "function_call_output", "call_id": first[2][-1]["call_id"], "output": "ok"}
    second = post(previous_response_id=first[1], input=[result])
    third = post(previous_response_id=second[1], input="And?")
    return [(status, written(output)) for status, _, output in (refused, first, second, third)]


def test_answers_of_an_upstream_are_recorded_without_keys_and_replayed(tmp_path) -> None:
    replies = [
        failure(429, {"error": {"message": "Slow down, sk-upstream.", "type": "rate_limit_error"}}),
        stream(chunk({"reasoning": "So."}), chunk(call(0, '{"n":1}', "f", "call_1")), chunk({}, "tool_calls")),
        stream(chunk({"content": "Done."}), chunk({}, "stop")),
        stream(chunk({"content": "More and"}), chunk({}, "length")),
    ]
    path = tmp_path / "script.json"
    with serve_upstream(ScriptedUpstream(replies, ("m",), None)) as upstream_url:
        settings = UpstreamSettings(url=upstream_url, key="sk-upstream", retries=0)
        gateway = RecordingGateway([upstream_of(settings)], recorder=ScriptRecorder(path))
        with ServerThread(build(Settings(), gateway)) as url:
            recorded = converse(url, headers={"authorization": "Bearer sk-client"})
    script = json.loads(path.read_text())
    Draft202012Validator(json.loads((DOCS / "guides" / "script.schema.json").read_text())).validate(script)
    assert "sk-" not in path.read_text()
    with ServerThread(build(Settings(), ScriptedEngine(read_rules(path)))) as url:
        assert converse(url) == recorded
    assert [status for status, _ in recorded] == [429, 200, 200, 200]
    assert [(rule["when"], [sorted(step) for step in rule["steps"]]) for rule in script["rules"]] == [
        ({"text": "And?", "turn": 3}, [["ends", "says"]]),
        ({"text": "Call f"}, [["fails"], ["calls", "thinks"], ["says"]]),
    ]


def test_a_recorder_writes_concurrent_answers_and_logs_an_unwritable_file(tmp_path, caplog) -> None:
    async def record(path):
        recorder = ScriptRecorder(path)
        for text in ("One", "Two", "Three"):
            recorder.note(Conversation("m", (), [text]), ScriptStep(says=text))
            await asyncio.sleep(0)
        await recorder.close()
        return recorder.script.rules

    path = tmp_path / "script.json"
    assert asyncio.run(record(path)) == read_rules(path)
    assert [rule.conditions.text for rule in read_rules(path)] == ["One", "Two", "Three"]
    asyncio.run(record(tmp_path / "missing" / "script.json"))
    assert {record.getMessage() for record in caplog.records} == {f"{tmp_path}/missing/script.json cannot be written"}


def test_items_that_a_script_cannot_record_are_omitted_with_a_warning(caplog) -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    custom = {"type": "custom_tool_call", "name": "g", "input": "x"}
    broken = {"type": "function_call", "name": "f", "arguments": '{"n'}
    step = recorded_step({"status": "failed", "output": [search, custom, broken]})
    assert ([(each.name, each.arguments) for each in step.calls], step.ends) == ([("g", {"input": "x"}), ("f", '{"n')], "error")
    assert caplog.messages == ["a script cannot record an item of the type web_search_call"]


def test_a_refusal_is_recorded_as_one() -> None:
    parts = [
        {"type": "output_text", "text": "Hm."},
        {"type": "output_text", "text": "No:"},
        {"type": "refusal", "refusal": "Never."},
    ]
    step = recorded_step({"status": "completed", "output": [{"type": "message", "content": parts}]})
    assert step == ScriptStep(says="Hm.\nNo:", refuses="Never.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"rules": [{"steps": [{"says": "a", "says": "b"}]}]}', "not JSON: the name 'says' is repeated in an object"),
        (
            '{"rules": [{"steps": [{"says": "a"}]}, {"when": "b", "steps": [{"says": "b"}]}]}',
            "rule 2 is never used: rule 1 answers all of its requests",
        ),
        ('{"rules": [{"steps": [{"says": "a", "waits": 1e999}]}]}', "Expected `float`"),
        ("[[rules]]\nsteps = [{ says = 'a', waits = inf }]", "Expected `float`"),
    ],
)
def test_a_script_with_empty_repeated_or_unreachable_parts_is_refused(tmp_path, text, message) -> None:
    path = tmp_path / f"a.{'json' if text.startswith('{') else 'toml'}"
    path.write_text(text)
    with pytest.raises(ScriptError) as failure:
        read_rules(path)
    assert message in str(failure.value)


# Examples fit plain JSON schemas, strict schemas without a fitting example are refused, and the work is bounded


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
def test_an_example_of_a_plain_schema_is_valid(schema, text):
    Draft202012Validator(schema).validate(example(schema, text))


@for_each(
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
def test_an_example_has_the_text_where_the_schema_allows_it(schema, value):
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


# An engine follows a script: a recording turn by turn, within its limit of tokens and at its rate


CALLED = [
    {"role": "user", "content": "Hi"},
    *({"type": "function_call", "call_id": f"call_{n}", "name": "f", "arguments": "{}"} for n in range(2)),
    *({"type": "function_call_output", "call_id": f"call_{n}", "output": "x"} for n in range(2)),
]


def engine_of(turns, **settings):
    return ScriptedEngine(
        [recorded_rule(Recording("harmony", {}, tuple(RecordedTurn(tuple(turn)) for turn in turns)))], **settings
    )


def turn_for(*, budget=None, index=0, items="Hi"):
    request = read_request({"model": "m", "input": items})
    return Turn(request, request.input, budget, index=index)


def outputs(turn, engine):
    async def collect():
        generation = await engine.begin(turn.request, turn.items)
        await generation.prepare(evolve(turn, index=0))
        for index in range(turn.index + 1):
            collected = [output async for output in generation.generate(evolve(turn, index=index))]
        return collected

    return asyncio.run(collect())


OUTPUTS = [
    [EngineOutput(Chunk([1, 2], logprobs=[{"token": "a"}, {"token": "b"}])), EngineOutput(Chunk([3]), "stop")],
    [EngineOutput(Chunk([4]))],
    [],
]


def test_a_script_is_replayed_turn_by_turn():
    engine = engine_of(OUTPUTS)
    assert outputs(turn_for(), engine) == OUTPUTS[0]
    assert outputs(turn_for(index=1), engine) == [EngineOutput(Chunk([4]), "stop")]
    answered = CALLED
    assert outputs(turn_for(items=answered), engine) == [EngineOutput(Chunk([4]), "stop")]
    assert outputs(turn_for(items=[*answered, {"role": "user", "content": "again"}]), engine) == OUTPUTS[0]
    assert outputs(turn_for(index=2), engine) == [EngineOutput(Chunk(), "stop")]


def test_a_missing_turn_of_a_script_refuses_a_request_or_fails_a_response():
    with pytest.raises(EngineError, match=r"^Rule 1 of the script \(any request\) has no step for its turn 4, counted "):
        outputs(turn_for(index=3), engine_of(OUTPUTS))
    with pytest.raises(ApiError, match="has no step for its turn 1"):
        outputs(turn_for(), engine_of([]))


def test_a_script_is_truncated_to_its_budget_and_keeps_its_rate(monkeypatch):
    slept = []

    async def note(seconds):
        slept.append(seconds)

    monkeypatch.setattr(script, "asyncio", SimpleNamespace(sleep=note))  # servers of other tests may sleep too
    truncated = [EngineOutput(Chunk([1], logprobs=[{"token": "a"}]), "length")]
    assert outputs(turn_for(budget=1), engine_of(OUTPUTS)) == truncated
    assert outputs(turn_for(budget=3), engine_of(OUTPUTS, rate=10)) == OUTPUTS[0]
    assert slept == [0, 0.2, 0.1]


LOGPROBS = [{"token": "Hello"}, {"token": "!"}]
DELTA = {"content": "Hello!"}


@pytest.mark.parametrize(
    ("chunk", "one", "none"),
    [
        (Chunk([1, 2], "Hello!", LOGPROBS), Chunk([1], "Hello", LOGPROBS[:1]), Chunk([], "", [])),
        (Chunk([1, 2], "Hello!"), Chunk([1], "Hel"), Chunk([], "")),
        (Chunk([1, 2], delta=DELTA), Chunk([1], delta=DELTA), Chunk([])),
    ],
)
def test_a_budget_truncates_the_text_of_a_script_with_its_tokens(chunk, one, none):
    engine = engine_of([[EngineOutput(Chunk([0])), EngineOutput(chunk)]])
    assert outputs(turn_for(budget=2), engine) == [EngineOutput(Chunk([0])), EngineOutput(one, "length")]
    assert outputs(turn_for(budget=1), engine) == [EngineOutput(Chunk([0])), EngineOutput(none, "length")]


def test_the_least_recent_conversations_that_met_a_fault_are_forgotten(monkeypatch) -> None:
    monkeypatch.setattr(script, "_REMEMBERED", 2)
    engine = ScriptedEngine([ScriptRule(steps=[ScriptStep(fails=Failure(500)), ScriptStep(says="Hi")])])
    progress = engine.progress()
    took = [progress.take(0, 0, [{"content": text}]) for text in ("a", "b", "a", "c", "a", "b")]
    assert took == [0, 0, 1, 0, 1, 0]
