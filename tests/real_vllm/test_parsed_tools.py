"""Hosted tools with a model that does not write harmony; the model calls them as functions."""

import httpx
import pytest
from playing import body, judged, stream, summary, without_chance
from turns import BROWSER, END, PYTHON, Turn

pytestmark = pytest.mark.parametrize("server", ["parsed"], indirect=True)

THINKING = "<think>\nHm.\n</think>\n\n"
ANSWER = f"{THINKING}It is done.{END}"


def function(name):
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}


def call(name, arguments):
    return f'{THINKING}<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>{END}'


def plays(server, *rounds, **fields):
    fields["include"] = ["code_interpreter_call.outputs"]
    request = body("qwen3", Turn("", rounds, body=fields))
    bodies = judged(stream(server.url, request))
    response = bodies[-1]["response"]
    answer = httpx.post(f"{server.url}/v1/responses", json=request, timeout=60)
    assert without_chance(answer.json()) == without_chance(response)
    return response


def test_an_answer_needs_no_tool(server):
    assert summary(plays(server, ANSWER)) == ["reasoning", "message"]


def test_python_runs_and_the_model_continues(server):
    tools = [PYTHON, function("code_interpreter")]
    response = plays(server, call("code_interpreter", '{"code": "print(1)"}'), ANSWER, tools=tools)
    assert summary(response) == ["reasoning", "code_interpreter_call", "reasoning", "message"]
    code = response["output"][1]
    assert (code["code"], code["outputs"]) == ("print(1)", [{"type": "logs", "logs": "ran: print(1)"}])


def test_a_search_runs_and_the_model_continues(server):
    tools = [BROWSER, function("web_search_preview")]
    response = plays(server, call("web_search_preview", '{"query": "rome"}'), ANSWER, tools=tools)
    assert summary(response) == ["reasoning", "web_search_call", "reasoning", "message"]
    assert response["output"][1]["action"]["query"] == "rome"


def test_a_failed_tool_is_a_failed_item_and_the_model_continues(server):
    tools = [PYTHON, function("code_interpreter")]
    response = plays(server, call("code_interpreter", '{"code": "raise"}'), ANSWER, tools=tools)
    assert summary(response) == ["reasoning", "code_interpreter_call failed", "reasoning", "message"]


def test_a_client_function_is_left_to_the_client(server):
    assert summary(plays(server, call("get_weather", "{}"), tools=[PYTHON, function("get_weather")])) == [
        "reasoning",
        "function_call",
    ]
