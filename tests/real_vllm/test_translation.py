"""Tools, items and later turns that vLLM would refuse reach it in a form that it renders."""

import apis
import httpx
import pytest
from clients import hosts
from playing import TIMEOUT, at_once, body, events, judged, stream, verdict
from turns import DONE, FUNCTION, HARMONY, PARSED, Turn

from interlock.parsers.families.reference_encoders import WrittenItem

SKY = {"type": "namespace", "name": "sky", "description": "Above.", "tools": [FUNCTION, {"type": "custom", "name": "write"}]}
TOOLS = [SKY, {"type": "shell"}, {"type": "web_search"}, {"type": "image_generation"}]


def harmony(name, arguments):
    return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>"


SERVER = pytest.mark.parametrize("server", ["harmony"], indirect=True)
CALLS = pytest.mark.parametrize(
    ("name", "arguments", "expected", "answer"),
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
def test_a_call_has_the_declared_tools_type_and_is_in_the_next_prompt(server, name, arguments, expected, answer):
    first = judged(stream(server.url, body("gpt_oss", Turn("", [harmony(name, arguments)]), tools=TOOLS)))[-1]["response"]
    item = last(first)
    assert {field: item[field] for field in expected} == expected
    assert [tool["type"] for tool in first["tools"]] == ["namespace", "shell", "web_search", "image_generation"]
    # The number of calls in the prompt selects the script, so only a prompt with exactly this call leads to the answer.
    turn = Turn("", [harmony("shell", "{}"), DONE, harmony("shell", "{}")])
    answered = {**answer, "call_id": item["call_id"]}
    gone_on = body("gpt_oss", turn, tools=TOOLS, input=[answered], previous_response_id=first["id"])
    sent_back = body("gpt_oss", turn, tools=TOOLS, input=[{"role": "user", "content": "Hi."}, *first["output"], answered])
    for request in (gone_on, sent_back):
        response = judged(stream(server.url, request))[-1]["response"]
        assert last(response)["content"][0]["text"] == "It is done."


@SERVER
def test_items_of_other_servers_are_read_and_an_unknown_one_is_refused(server):
    items = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "rome"}},
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "rail", "tools": []},
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "c", "outputs": None, "status": "completed"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"role": "user", "content": "Go on."},
    ]
    request = body("gpt_oss", Turn("", ["", DONE]), input=items)
    assert last(judged(stream(server.url, request))[-1]["response"])["content"][0]["text"] == "It is done."
    refused = httpx.post(f"{server.url}/v1/responses", json={**request, "input": [{"type": "teleport"}]}, timeout=60)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input[0].type")
    assert "'teleport'" in refused.json()["error"]["message"]


# Messages and Chat Completions on real engines: a turn is legal, has the output of the model, and equals the answer in one piece


@pytest.mark.parametrize("api", ["messages", "chat"])
@pytest.mark.parametrize(("server", "turns"), [("harmony", HARMONY[::3]), ("parsed", PARSED[::3])], indirect=["server"])
def test_turns_are_legal_streams_and_the_same_without_streaming(server, turns, api):
    def check(turn):
        request, path = apis.request(api, server.setup.model, turn), apis.PATHS[api]
        data = stream(server.url, {**request, **apis.STREAMED[api]}, path)
        bodies = events(data)
        assert [str(finding) for finding in verdict(data, api=api).findings] == []
        output, reason = apis.read_stream(api, bodies)
        assert apis.difference(output, turn.output) == ""
        assert (reason == "error") is (turn.status == "failed")
        assert api == "messages" or reason == "error" or bodies[-1]["usage"]
        answer = httpx.post(f"{server.url}{path}", json=request, timeout=TIMEOUT)
        assert answer.status_code == (500 if reason == "error" else 200)
        assert apis.is_same(api, (output, reason), answer.json())

    at_once(turns, check)


# A vLLM host of the tests of clients starts and writes its turns; `make test-clients`, which is run by hand, has four


def test_a_host_of_the_clients_in_vllm_writes_its_turns(tmp_path):
    turn = [WrittenItem("reasoning", "Hm."), WrittenItem("message", "one two STOPHERE three")]
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "stop": ["STOPHERE"]}
    with hosts.InVllm("gpt_oss-turns", hosts.harmony, "question", tmp_path) as started, started([turn]) as scripted:
        completion = httpx.post(f"{scripted.url}/v1/chat/completions", json=body, timeout=120).json()
        prompts = scripted.prompts()
    message = completion["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "one two ")
    assert len(prompts) == 1
