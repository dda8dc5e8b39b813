"""Hosted tools of gpt-oss on real MCP servers: the events show when each call starts and ends, even if it fails."""

import json

import httpx
import pytest
from playing import body, judged, stream, summary, tokens
from turns import BROWSER, DONE, FUNCTION, NEXT, PYTHON, RUN, SEARCH, THINK, Turn

pytestmark = pytest.mark.parametrize("server", ["harmony"], indirect=True)


def play(server, *rounds, **fields):
    return judged(stream(server.url, body("gpt_oss", Turn("", rounds, body=fields))))


OUTPUTS = {"include": ["code_interpreter_call.outputs"]}


def response_of(bodies):
    return bodies[-1]["response"]


def names(bodies, item_type):
    return [event["type"] for event in bodies if event["type"].startswith(f"response.{item_type}")]


def run(code):
    return f"{RUN}{code}<|call|>"


def test_the_output_of_a_tool_is_in_the_item_before_the_next_round(server):
    bodies = play(server, run("print(1)"), DONE, tools=[PYTHON], **OUTPUTS)
    assert response_of(bodies)["output"][0]["outputs"] == [{"type": "logs", "logs": "ran: print(1)"}]
    types = [event["type"] for event in bodies]
    assert types.index("response.code_interpreter_call.completed") < types.index("response.content_part.added")


def test_the_output_of_a_tool_reaches_the_model(server):
    request = body("gpt_oss", Turn("", [run("print(1)"), DONE], body={"tools": [PYTHON]}))
    usage = httpx.post(f"{server.url}/v1/responses", json=request, timeout=60).json()["usage"]
    alone = body("gpt_oss", Turn("", [DONE], body={"tools": [PYTHON]}))
    first = httpx.post(f"{server.url}/v1/responses", json=alone, timeout=60).json()["usage"]
    assert usage["input_tokens"] > 2 * first["input_tokens"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_each_turn_continues_the_tokens_of_the_previous_one_in_the_prefix_cache(server, tmp_path):
    recording = tmp_path / "kept.jsonl"
    long = "print(1) " * 40
    rounds = [f"{THINK}I run it.<|end|>{NEXT}{run(long)}", f"{THINK}Again.<|end|>{NEXT}{run('two')}", run("three"), DONE]
    request = body("gpt_oss", Turn("", rounds, body={"tools": [PYTHON]}))
    request["vllm_xargs"]["kept"] = str(recording)
    response = response_of(judged(stream(server.url, request)))
    assert [item["type"] for item in response["output"]].count("code_interpreter_call") == 3
    turns = [json.loads(line) for line in recording.read_text(encoding="utf-8").splitlines()]
    items = [
        f"<|start|>python to=assistant<|channel|>analysis<|message|>ran: {code}<|end|>{NEXT}" for code in (long, "two", "three")
    ]
    for (prompt, output), message, (following, _) in zip(turns, items, turns[1:], strict=False):
        assert following == [*prompt, *output, *tokens("gpt_oss", message)]
    assert len(turns) == 4
    assert response["usage"]["input_tokens"] == sum(len(prompt) for prompt, _ in turns)
    assert response["usage"]["input_tokens_details"]["cached_tokens"] > len(turns[0][0])


@pytest.mark.parametrize(
    ("code", "items"),
    [
        ("raise", "Error executing tool python"),
        ("sleep", "The server did not answer within 8 seconds."),
    ],
)
def test_a_failed_tool_is_a_failed_item_and_the_stream_continues(server, code, items):
    bodies = play(server, run(code), DONE, tools=[PYTHON])
    response = response_of(bodies)
    assert summary(response) == ["code_interpreter_call failed", "message"]
    assert items in response["output"][0]["outputs"][0]["logs"]
    assert names(bodies, "code_interpreter_call.")[-1] == "response.code_interpreter_call.interpreting"


def test_a_dead_tool_server_fails_only_its_call(server):
    response = response_of(play(server, run("die"), f'{SEARCH}{{"query": "x"}}<|call|>', DONE, tools=[PYTHON, BROWSER]))
    assert summary(response) == ["code_interpreter_call failed", "web_search_call", "message"]
    rounds = run("print(1)"), f'{SEARCH}{{"query": "x"}}<|call|>', DONE
    response = response_of(play(server, *rounds, tools=[PYTHON, BROWSER]))  # it is down when the response begins
    assert summary(response) == ["code_interpreter_call failed", "web_search_call", "message"]
    server.start_tool("python")
    response = response_of(play(server, run("print(1)"), DONE, tools=[PYTHON]))
    assert summary(response) == ["code_interpreter_call", "message"]


def test_a_malformed_search_does_not_run_and_the_stream_continues(server):
    bodies = play(server, f"{SEARCH}rome<|call|>", DONE, tools=[BROWSER])
    assert summary(response_of(bodies)) == ["web_search_call failed", "message"]
    assert "response.web_search_call.searching" not in [event["type"] for event in bodies]


def test_a_call_of_an_undeclared_tool_does_not_run(server):
    bodies = play(server, run("print(1)"), DONE, tools=[BROWSER])
    assert summary(response_of(bodies)) == ["code_interpreter_call failed", "message"]
    assert names(bodies, "code_interpreter_call.") == ["response.code_interpreter_call.in_progress"]


def test_at_most_max_tool_calls_run(server):
    response = response_of(play(server, run("one"), run("two"), DONE, tools=[PYTHON], max_tool_calls=1))
    assert summary(response) == ["code_interpreter_call", "code_interpreter_call failed"]


def test_max_output_tokens_apply_to_all_rounds(server):
    response = response_of(play(server, run("print(1)"), run("print(2)"), DONE, tools=[PYTHON], max_output_tokens=16))
    assert response["status"] == "incomplete"
    assert response["usage"]["output_tokens"] == 16


def test_usage_counts_all_rounds(server):
    usage = response_of(play(server, run("print(1)"), DONE, tools=[PYTHON]))["usage"]
    assert usage["output_tokens"] == sum(len(tokens("gpt_oss", text)) for text in (run("print(1)"), DONE))


def test_several_calls_of_one_turn_run_concurrently(server):
    both = f"{RUN}meet<|end|>{NEXT}{run('meet')}"  # each waits for the other
    response = response_of(play(server, both, DONE, tools=[PYTHON], **OUTPUTS))
    assert summary(response) == ["code_interpreter_call", "code_interpreter_call", "message"]
    assert [item["outputs"][0]["logs"] for item in response["output"][:2]] == ["ran: meet"] * 2


def test_an_mcp_server_of_a_request_is_listed_called_and_asked_for_approval(server):
    def call(name, arguments):
        return f"<|channel|>commentary to=functions.own__{name} <|constrain|>json<|message|>{arguments}<|call|>"

    rounds = call("search", '{"query": "rome"}'), call("open", '{"id": "1"}'), DONE
    own = {"type": "mcp", "server_label": "own", "server_url": server.tool_url("browser")}
    request = {"tools": [{**own, "require_approval": {"never": {"tool_names": ["search"]}}}]}
    first = response_of(play(server, *rounds, **request))
    assert summary(first) == ["mcp_list_tools", "mcp_call", "mcp_approval_request"]
    listed, search, question = first["output"]
    assert [tool["name"] for tool in listed["tools"]] == ["search", "open", "find"]
    assert (search["name"], search["output"], question["name"]) == ("search", "found: rome", "open")
    for approve, ran in ((True, ["mcp_call", "message"]), (False, ["message"])):
        answer = {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": approve}
        second = response_of(play(server, *rounds, **request, previous_response_id=first["id"], input=[answer]))
        assert summary(second) == ran


def test_an_mcp_server_at_a_host_that_is_not_allowed_is_not_reached(server):
    tool = {"type": "mcp", "server_label": "own", "server_url": "http://192.0.2.1/mcp"}
    response = response_of(play(server, DONE, tools=[tool]))
    assert summary(response) == ["mcp_list_tools", "message"]
    assert response["output"][0]["error"] is not None


def test_a_function_call_after_a_tool_ends_the_response(server):
    call = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome"}<|call|>'
    response = response_of(play(server, run("print(1)"), call, tools=[PYTHON, FUNCTION]))
    assert summary(response) == ["code_interpreter_call", "function_call"]
