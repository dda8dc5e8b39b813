"""What is judged of a request where a host validates requests by itself: the items and tools that the host does not know."""

import pytest

from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.create import CreateResponse, read_hosted, read_request


def refusal_of(read, body):
    with pytest.raises(ApiError) as refusal:
        read({"model": "m", **body})
    return refusal.value.status, refusal.value.param, refusal.value.message


@pytest.mark.parametrize("read", [read_hosted, read_request])
def test_an_item_of_a_type_that_nobody_knows_is_refused_by_its_name_in_both_servers(read):
    status, param, message = refusal_of(read, {"input": [{"role": "user", "content": "Hi"}, {"type": "teleport_call"}]})
    assert (status, param) == (400, "input[1].type")
    assert message.startswith("Invalid value: 'teleport_call'. Supported values are: 'message', ")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "n"}]}, "input[0].input"),
        ({"input": [{"type": "custom_tool_call_output", "output": "ok"}]}, "input[0].call_id"),
        ({"input": [{"type": "item_reference"}]}, "input[0].id"),
        ({"input": [{"type": "mcp_approval_response", "approve": True}]}, "input[0].approval_request_id"),
        ({"input": [{"type": "shell_call", "action": "ls"}]}, "input[0].action"),
        ({"input": 5}, "input"),
        ({"input": ["Hi"]}, "input[0]"),
        ({"input": "Hi", "tools": [{"type": "custom"}]}, "tools[0].name"),
        ({"input": "Hi", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom"}]}]}, "tools[0].tools[0].name"),
        ({"input": "Hi", "tools": [{"type": "mcp"}]}, "tools[0].server_label"),
        ({"input": "Hi", "tools": {}}, "tools"),
    ],
)
def test_what_the_host_does_not_know_must_have_its_shape(body, param):
    assert refusal_of(read_hosted, body)[:2] == (400, param)


def test_what_the_host_knows_is_left_to_it():
    body = {
        "input": [
            {"role": "tool", "content": 5},
            {"type": "reasoning", "content": "odd"},
            {"type": "function_call"},
            {"type": "function_call_output", "output": 1},
        ],
        "tools": [{"type": "function"}, {"type": "unheard"}],
    }
    items = ({"role": "tool", "content": 5, "type": "message"}, *body["input"][1:])
    assert read_hosted(body) == CreateResponse(raw=body, model="", input=items, tools=tuple(body["tools"]))


def test_a_text_is_a_users_message_and_nothing_is_nothing():
    assert read_hosted({"input": "Hi"}).input == ({"type": "message", "role": "user", "content": "Hi"},)
    nothing = {"input": None, "tools": None}
    assert read_hosted(nothing) == CreateResponse(raw=nothing, model="")
