"""A script is read from a file, refused with the place of a fault, and written from what an upstream answers."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from jsonschema import Draft202012Validator
from live.chunk_shapes import call, chunk
from live.upstream import ScriptedUpstream, failure, serve_upstream, stream

from interlock.serving.build import build
from interlock.serving.engines.script import Conversation, ScriptError, ScriptStep, read_rules
from interlock.serving.engines.scripted_engine import ScriptedEngine
from interlock.serving.engines.upstream.gateway_config import upstream_of
from interlock.serving.engines.upstream.script_recorder import RecordingGateway, ScriptRecorder, recorded_step
from interlock.serving.http.server import ServerThread
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


def test_toml_and_json_are_the_same(tmp_path) -> None:
    for name, text in (("a.toml", TOML), ("a.json", json.dumps(SCRIPT))):
        (tmp_path / name).write_text(text, "utf-8")
    assert read_rules(tmp_path / "a.toml") == read_rules(tmp_path / "a.json")
    schema = json.loads((DOCS / "script.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate({"$schema": "script.schema.json", **SCRIPT})


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({}, "Object missing required field `steps` - at `$.rules[0]`"),
        ({"steps": [{"say": "Hi"}]}, "Object contains unknown field `say` - at `$.rules[0].steps[0]`"),
        ({"steps": [{"breaks": "R99"}]}, "breaks: 'R99' is not one of R1, "),
        ({"steps": [{"stops": 1, "disconnects": 1}]}, "disconnects and stops exclude each other"),
        ({"steps": [{"fails": {"status": 200}}]}, "Expected `int` >= 400 - at `$.rules[0].steps[0].fails.status`"),
        ({"steps": [{"writes": "<tool_call>"}]}, "writes needs a family"),
        ({"steps": [{"writes": "a", "says": "b"}], "family": "hermes"}, "without thinks, says and calls"),
        ({"steps": [], "family": "esperanto"}, "unknown family 'esperanto'; choose one of gpt_oss, harmony, qwen3_coder, "),
        ({"steps": [], "when": {"pattern": "("}}, "pattern: missing ), unterminated subpattern"),
    ],
)
def test_an_invalid_script_is_refused_with_the_place(tmp_path, rule, message) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"rules": [rule]}))
    with pytest.raises(ScriptError) as failure:
        read_rules(path)
    assert message in str(failure.value)
    assert "$.rules[0]" in str(failure.value)


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


def test_what_an_upstream_answers_is_recorded_and_served_again_without_keys(tmp_path) -> None:
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
    Draft202012Validator(json.loads((DOCS / "script.schema.json").read_text())).validate(script)
    assert "sk-" not in path.read_text()
    with ServerThread(build(Settings(), ScriptedEngine(read_rules(path)))) as url:
        assert converse(url) == recorded
    assert [status for status, _ in recorded] == [429, 200, 200, 200]
    assert [(rule["when"], [sorted(step) for step in rule["steps"]]) for rule in script["rules"]] == [
        ({"text": "And?", "turn": 3}, [["ends", "says"]]),
        ({"text": "Call f"}, [["fails"], ["calls", "thinks"], ["says"]]),
    ]


def test_a_script_has_all_answers_that_end_at_once_and_a_file_that_cannot_be_written_is_logged(tmp_path, caplog) -> None:
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


def test_what_a_script_cannot_say_is_left_out_with_a_warning(caplog) -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    custom = {"type": "custom_tool_call", "name": "g", "input": "x"}
    broken = {"type": "function_call", "name": "f", "arguments": '{"n'}
    step = recorded_step({"status": "failed", "output": [search, custom, broken]})
    assert ([(each.name, each.arguments) for each in step.calls], step.ends) == ([("g", {"input": "x"}), ("f", '{"n')], "error")
    assert caplog.messages == ["a script cannot record an item of the type web_search_call"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"rules": []}', "Expected `array` of length >= 1 - at `$.rules`"),
        ('{"rules": [{"steps": []}]}', "a rule has steps, and each does something - at `$.rules[0].steps`"),
        ('{"rules": [{"steps": [{}]}]}', "a rule has steps, and each does something - at `$.rules[0].steps`"),
        ('{"rules": [{"steps": [{"says": "a", "says": "b"}]}]}', "not JSON: the name 'says' is repeated in an object"),
        (
            '{"rules": [{"steps": [{"says": "a"}]}, {"when": "b", "steps": [{"says": "b"}]}]}',
            "rule 1 answers all of its requests",
        ),
        ('{"rules": [{"steps": [{"says": "a", "waits": 1e999}]}]}', "Expected `float`"),
        ("[[rules]]\nsteps = [{ says = 'a', waits = inf }]", "Expected `float`"),
    ],
)
def test_a_script_that_says_nothing_or_twice_is_refused(tmp_path, text, message) -> None:
    path = tmp_path / f"a.{'json' if text.startswith('{') else 'toml'}"
    path.write_text(text)
    with pytest.raises(ScriptError) as failure:
        read_rules(path)
    assert message in str(failure.value)
