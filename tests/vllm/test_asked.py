"""What vLLM itself would refuse is asked of it in a form that it renders: tools, items, and later turns."""

import pytest
from playing import body, judged, stream
from turns import DONE, FUNCTION, Turn

SKY = {"type": "namespace", "name": "sky", "description": "Above.", "tools": [FUNCTION, {"type": "custom", "name": "write"}]}
TOOLS = [SKY, {"type": "shell"}, {"type": "web_search"}, {"type": "image_generation"}]


def harmony(name, arguments):
    return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>"


SERVER = pytest.mark.parametrize("server", ["harmony"], indirect=True)
CALLS = pytest.mark.parametrize(
    ("name", "arguments", "wanted", "answer"),
    [
        (
            "sky__get_weather",
            '{"city": "Rome"}',
            {"type": "function_call", "name": "get_weather", "namespace": "sky", "arguments": '{"city": "Rome"}'},
            {"type": "function_call_output", "output": "18"},
        ),
        (
            "sky__write",
            '{"input": "a\\nb"}',
            {"type": "custom_tool_call", "name": "write", "namespace": "sky", "input": "a\nb"},
            {"type": "custom_tool_call_output", "output": [{"type": "input_text", "text": "ok"}]},
        ),
        (
            "shell",
            '{"commands": ["ls"]}',
            {"type": "shell_call", "action": {"commands": ["ls"], "max_output_length": None, "timeout_ms": None}},
            {"type": "shell_call_output", "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
        ),
    ],
)


def last(response):
    (*_, item) = response["output"]
    return item


@SERVER
@CALLS
def test_a_call_comes_back_as_the_tool_was_declared_and_is_there_in_the_next_turn(server, name, arguments, wanted, answer):
    first = judged(stream(server.url, body("gpt_oss", Turn("", [harmony(name, arguments)]), tools=TOOLS)))[-1]["response"]
    item = last(first)
    assert {field: item[field] for field in wanted} == wanted
    assert [tool["type"] for tool in first["tools"]] == ["namespace", "shell", "web_search", "image_generation"]
    # The script of a round is chosen by the calls in the prompt, so that only a prompt with this one call gets to the answer.
    turn = Turn("", [harmony("shell", "{}"), DONE, harmony("shell", "{}")])
    answered = {**answer, "call_id": item["call_id"]}
    gone_on = body("gpt_oss", turn, tools=TOOLS, input=[answered], previous_response_id=first["id"])
    sent_back = body("gpt_oss", turn, tools=TOOLS, input=[{"role": "user", "content": "Hi."}, *first["output"], answered])
    for asked in (gone_on, sent_back):
        response = judged(stream(server.url, asked))[-1]["response"]
        assert last(response)["content"][0]["text"] == "It is done."
