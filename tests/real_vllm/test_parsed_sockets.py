"""WebSocket mode with a model that does not write harmony: a lane keeps the calls that vLLM's own continuation forgets."""

import json

import pytest
from playing import body
from turns import END, FUNCTION, TOOL_CALL, Turn
from websockets.sync.client import connect

pytestmark = pytest.mark.parametrize("server", ["parsed"], indirect=True)

ENDS = {"response.completed", "response.incomplete", "response.failed", "error"}
CALL = f"<think>\n\n</think>\n\n{TOOL_CALL}{END}"


def turn(socket, *rounds, **fields):
    request = body("qwen3", Turn("", rounds, body={"tools": [FUNCTION], "store": False, **fields}))
    socket.send(json.dumps({"type": "response.create", **request}))
    while (frame := json.loads(socket.recv(timeout=60)))["type"] not in ENDS:
        pass
    return frame["response"]


def test_a_lane_continues_after_a_call(server):
    with connect(server.url.replace("http", "ws", 1) + "/v1/responses", open_timeout=60) as socket:
        first = turn(socket, CALL)
        call = first["output"][-1]
        answer = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        second = turn(socket, "", f"<think>\n\n</think>\n\nIt is sunny.{END}", previous_response_id=first["id"], input=[answer])
        third = turn(socket, "", f"<think>\n\n</think>\n\nGood.{END}", previous_response_id=second["id"], input="Thanks.")
    assert (call["type"], call["name"], json.loads(call["arguments"])) == ("function_call", "get_weather", {"city": "Rome"})
    assert [response["status"] for response in (first, second, third)] == ["completed"] * 3
    prompts = [response["usage"]["input_tokens"] for response in (first, second, third)]
    assert prompts == sorted({*prompts})


def test_a_lane_goes_on_after_an_async_call_and_reads_its_late_output(server):
    tools = [{**FUNCTION, "async": True}]
    with connect(server.url.replace("http", "ws", 1) + "/v1/responses", open_timeout=60) as socket:
        first = turn(socket, CALL, f"<think>\n\n</think>\n\nI wait.{END}", tools=tools)
        call, message = first["output"]
        late = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        written = "", "", f"<think>\n\n</think>\n\nIt is sunny.{END}"
        second = turn(socket, *written, tools=tools, previous_response_id=first["id"], input=[late])
    assert (call["type"], call["async"], message["content"][0]["text"]) == ("function_call", True, "I wait.")
    assert [item["content"][0]["text"] for item in second["output"]] == ["It is sunny."]
