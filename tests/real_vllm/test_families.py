"""The families on real engines: a model's output gives the expected items, with and without streaming.

`make nightly` starts a server for each family, and one for each syntax in steps of five tokens, which also plays automatic,
forced and forbidden calls, and log probabilities; `test_gateway` plays the turns of all on one server.
"""

import json
import warnings

import pytest
from playing import body, both, check, judged, stream, summary
from servers import EVERY, FAMILIES
from turns import FUNCTION, LOOK, Turn, family_turns

from interlock.parsers.families.reference_encoders import WrittenItem, encode

pytest.importorskip("vllm.version", reason="vLLM is not installed")
pytestmark = pytest.mark.long

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from vllm.tool_parsers import ToolParserManager
SERVERS = pytest.mark.parametrize("server", [f"family-{name}" for name in FAMILIES], indirect=True)

TURNS = [
    pytest.param(f"family-{name}", turn, id=turn.name)
    for name, reasoning in FAMILIES.items()
    for turn in family_turns(name, reasoning)
]


@pytest.mark.parametrize(("server", "turn"), TURNS, indirect=["server"])
def test_a_turn_is_a_legal_stream_and_the_same_without_streaming(server, turn):
    check(server.url, server.setup.model, turn)


@SERVERS
def test_the_client_receives_the_encoded_items(server):
    name = server.name.removeprefix("family-")
    turn, *_ = family_turns(name, FAMILIES[name])
    response = judged(stream(server.url, body(server.setup.model, turn)))[-1]["response"]
    texts = [item.get("arguments") or item["content"][0]["text"] for item in response["output"]]
    assert texts == [each.text for each in LOOK if each.kind != "reasoning" or FAMILIES[name]]
    reasoned = response["usage"]["output_tokens_details"]["reasoning_tokens"]
    assert bool(reasoned) is bool(FAMILIES[name])


@pytest.mark.parametrize("server", ["family-qwen3_coder"], indirect=True)
def test_arguments_have_the_types_of_the_schemas_that_a_server_has_listed(server):
    schema = {"type": "object", "properties": {"sides": {"type": "integer"}, "loud": {"type": "boolean"}}}
    listed = {
        "type": "mcp_list_tools",
        "id": "mcpl_1",
        "server_label": "dice",
        "tools": [{"name": "roll", "input_schema": schema}],
    }
    tool = {"type": "mcp", "server_label": "dice", "server_url": "http://127.0.0.1:1/mcp"}  # it need not answer: the call waits
    written = encode([WrittenItem("call", '{"sides":6,"loud":true}', "dice__roll")], "qwen3_coder")
    items = [listed, {"role": "user", "content": "Roll!"}]
    request = body(server.setup.model, Turn("", (f"</think>{written}<|im_end|>",), body={"tools": [tool], "input": items}))
    response = judged(stream(server.url, request))[-1]["response"]
    (approval,) = [item for item in response["output"] if item["type"] == "mcp_approval_request"]
    assert json.loads(approval["arguments"]) == {"sides": 6, "loud": True}


@SERVERS
def test_the_log_names_the_parsers(server):
    assert "with its own parsers for " + server.name.removeprefix("family-") in server.process.log


EVERY_SERVER = pytest.mark.parametrize("server", [f"every-{name}" for name in EVERY], indirect=True)
SCORED = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
NAMED = {"type": "function", "name": "get_weather"}
CALLED = '{"city":"Rome"}'
PREFIXES = ("", "\n", "\n\n", "<|open|>response<|sep|><|close|>response<|sep|>")
THOUGHTFUL = {"reasoning": {"effort": "high"}}
"""Lets models reason that do so only on request: vLLM's grammars then allow reasoning before a call."""


def written_json(name, choice):
    """Return a forced call as bare JSON if vLLM makes the model write that; None if the model writes its own format."""
    if not ToolParserManager.get_tool_parser(name).supports_required_and_named:
        return None
    return CALLED if choice == NAMED else json.dumps([{"name": "get_weather", "parameters": json.loads(CALLED)}])


@EVERY_SERVER
def test_turns_with_automatic_calls_have_the_expected_items(server):
    name = server.name.removeprefix("every-")
    for turn in family_turns(name, EVERY[name]):
        response = both(server.url, body(server.setup.model, turn))
        assert (turn.name, summary(response), response["status"]) == (turn.name, list(turn.items), turn.status)


@EVERY_SERVER
@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_a_forced_call_is_read_as_a_function_call(server, choice):
    name = server.name.removeprefix("every-")
    turn, *_ = family_turns(name, EVERY[name])
    thought = encode(LOOK[:1], "hermes", EVERY[name], thinking=False).rstrip() if EVERY[name] else ""
    written = written_json(name, choice) or encode([WrittenItem("call", CALLED, "get_weather")], name)
    read = []
    for call in (*(f"{prefix}{written}" for prefix in PREFIXES), written.replace("\n", "")):  # the grammars differ in this
        forced = turn.__class__("forced", [f"{thought}{call}<|im_end|>"], [], body={"tools": [FUNCTION], **THOUGHTFUL})
        response = both(server.url, body(server.setup.model, forced, tool_choice=choice, max_output_tokens=300))
        read.append(called(response))
    assert [("get_weather", {"city": "Rome"})] in read


def called(response):
    """Return the name and the arguments of each call, decoded if they are JSON."""
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    return [(call["name"], _object(call["arguments"])) for call in calls]


def _object(arguments):
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


@EVERY_SERVER
def test_a_forbidden_call_is_text(server):
    name = server.name.removeprefix("every-")
    turn, *_ = family_turns(name, EVERY[name])
    response = both(server.url, body(server.setup.model, turn, tool_choice="none"))
    assert {item["type"] for item in response["output"]} == {"message", *(["reasoning"] if EVERY[name] else [])}


@EVERY_SERVER
def test_the_log_probabilities_of_a_message_spell_it(server):
    name = server.name.removeprefix("every-")
    turn, *_ = family_turns(name, EVERY[name])
    response = both(server.url, body(server.setup.model, turn, **SCORED))
    (part,) = [item["content"][0] for item in response["output"] if item["type"] == "message"]
    spelled = bytes(byte for entry in part["logprobs"] for byte in entry["bytes"]).decode()
    assert spelled == part["text"] == "I look."
