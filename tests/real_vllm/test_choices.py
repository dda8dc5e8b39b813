"""The choice of tools on a real gpt-oss: calls that a request requires or names, parallel calls, and labels of tool servers."""

import json
from itertools import pairwise

import httpx
import pytest
from playing import body, judged, stream, summary, text
from turns import CLOCK, DONE, FUNCTION, NEXT, PYTHON, RUN, WEATHER, Turn

pytestmark = pytest.mark.parametrize("server", ["harmony"], indirect=True)

ROME = '{"city": "Rome"}'
NAMED = {"type": "function", "name": "get_weather"}
REQUIRED = "<|channel|>commentary to=functions."
"""The beginning of a call, with which the prompt of a request that requires one ends."""


def ask(server, *rounds, **fields):
    """Return the response to a request whose model writes these rounds."""
    return judged(stream(server.url, body("gpt_oss", Turn("", rounds, body=fields))))[-1]["response"]


@pytest.mark.parametrize(
    ("choice", "beginning", "rest"),
    [
        ("required", REQUIRED, f"get_weather <|constrain|>json<|message|>{ROME}<|call|>"),
        (NAMED, f"{REQUIRED}get_weather <|constrain|>json", f"<|message|>{ROME}<|call|>"),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [NAMED]},
            REQUIRED,
            f"get_weather <|constrain|>json<|message|>{ROME}<|call|>",
        ),
    ],
    ids=["required", "named", "allowed"],
)
def test_a_call_that_is_required_or_named_continues_the_prompt(server, tmp_path, choice, beginning, rest):
    recording = tmp_path / "kept.jsonl"
    request = body("gpt_oss", Turn("", [rest], body={"tools": [FUNCTION, CLOCK], "tool_choice": choice}))
    request["vllm_xargs"]["kept"] = str(recording)
    response = judged(stream(server.url, request))[-1]["response"]
    assert [(item["type"], item["name"], item["arguments"]) for item in response["output"]] == [
        ("function_call", "get_weather", ROME)
    ]
    ((prompt, _),) = map(json.loads, recording.read_text(encoding="utf-8").splitlines())
    assert text("gpt_oss", prompt).endswith(f"<|start|>assistant{beginning}")
    assert response["tool_choice"] == choice


@pytest.mark.parametrize(
    "choice", ["required", {"type": "mcp", "server_label": "own", "name": "search"}], ids=["required", "named"]
)
def test_only_the_first_turn_has_to_call_a_tool_of_an_mcp_server(server, tmp_path, choice):
    recording = tmp_path / "kept.jsonl"
    own = {"type": "mcp", "server_label": "own", "server_url": server.tool_url("browser"), "require_approval": "never"}
    call = '<|message|>{"query": "rome"}<|call|>'
    first = f"own__search <|constrain|>json{call}" if choice == "required" else call
    request = body("gpt_oss", Turn("", [first, DONE], body={"tools": [own], "tool_choice": choice}))
    request["vllm_xargs"]["kept"] = str(recording)
    response = judged(stream(server.url, request))[-1]["response"]
    assert summary(response) == ["mcp_list_tools", "mcp_call", "message"]
    assert response["output"][1]["output"] == "found: rome"
    prompts = [text("gpt_oss", prompt) for prompt, _ in map(json.loads, recording.read_text(encoding="utf-8").splitlines())]
    assert [prompt.rpartition("<|start|>assistant")[2].startswith(REQUIRED) for prompt in prompts] == [True, False]


def test_gpt_oss_may_make_two_calls_without_parallel_tool_calls(server):
    both = f"{WEATHER}{ROME}<|end|>{NEXT}<|channel|>commentary to=functions.now <|constrain|>json<|message|>{{}}<|call|>"
    response = ask(server, both, tools=[FUNCTION, CLOCK], parallel_tool_calls=False)
    assert [(item["type"], item["name"]) for item in response["output"]] == [
        ("function_call", "get_weather"),
        ("function_call", "now"),
    ]
    assert response["parallel_tool_calls"] is False


LABELLED = pytest.mark.parametrize(
    ("label", "call", "name", "arguments", "result"),
    [
        (
            "container",
            '<|channel|>commentary to=container.exec <|constrain|>json<|message|>{"cmd": ["ls"]}<|call|>',
            "exec",
            {"cmd": ["ls"]},
            "ran: ls",
        ),
        ("code_interpreter", f"{RUN}print(1)<|call|>", "python", {"code": "print(1)"}, "ran: print(1)"),
    ],
    ids=["container", "code_interpreter"],
)


def labelled(label, **rules):
    return {"tools": [{"type": "mcp", "server_label": label, "server_url": "http://unused", **rules}]}


@LABELLED
def test_a_tool_server_named_by_its_label_asks_for_approval(server, label, call, name, arguments, result):
    first = ask(server, call, DONE, **labelled(label))
    (question,) = first["output"]
    assert (question["type"], question["server_label"], question["name"]) == ("mcp_approval_request", label, name)
    assert json.loads(question["arguments"]) == arguments
    for approve, items in ((True, [("mcp_call", result), ("message", None)]), (False, [("message", None)])):
        answer = {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": approve}
        second = ask(server, DONE, DONE, **labelled(label), previous_response_id=first["id"], input=[answer])
        assert [(item["type"], item.get("output")) for item in second["output"]] == items


@LABELLED
@pytest.mark.parametrize("allowed", [True, False])
def test_a_tool_server_named_by_its_label_runs_only_allowed_tools(server, label, call, name, arguments, result, allowed):
    del arguments
    rules = {"require_approval": "never", "allowed_tools": [name if allowed else "other"]}
    response = ask(server, call, DONE, **labelled(label, **rules), include=["code_interpreter_call.outputs"])
    item = response["output"][0]
    message = f"The MCP server '{label}' has no tool '{name}' that may be called."
    outputs = [part["logs"] for part in item.get("outputs") or ()] or [item.get("output") or item["error"]["content"][0]["text"]]
    assert outputs == [result if allowed else message]
    assert summary(response)[1:] == ["message"]


def test_a_tool_that_the_request_also_offers_by_its_type_needs_no_approval(server):
    tools = [*labelled("code_interpreter", allowed_tools=["other"])["tools"], PYTHON]
    response = ask(server, f"{RUN}print(1)<|call|>", DONE, tools=tools, include=["code_interpreter_call.outputs"])
    assert response["output"][0]["outputs"] == [{"type": "logs", "logs": "ran: print(1)"}]


def test_the_tools_of_mcp_servers_are_counted_as_a_response_reads_them(server):
    own = {"type": "mcp", "server_label": "own", "server_url": server.tool_url("browser")}
    request = body("gpt_oss", Turn("", [DONE], body={"tools": [own]}))
    response = judged(stream(server.url, request))[-1]["response"]
    assert summary(response) == ["mcp_list_tools", "message"]
    counted = httpx.post(f"{server.url}/v1/responses/input_tokens", json=request, timeout=60).json()
    assert counted == {"object": "response.input_tokens", "input_tokens": response["usage"]["input_tokens"]}


def test_the_model_goes_on_after_an_async_call_and_reads_its_late_output(server, tmp_path):
    recording = tmp_path / "kept.jsonl"

    def ask(*rounds, **fields):
        request = body("gpt_oss", Turn("", rounds, body={"tools": [{**FUNCTION, "async": True}], **fields}))
        request["vllm_xargs"]["kept"] = str(recording)
        return judged(stream(server.url, request))[-1]["response"]

    first = ask(f"{WEATHER}{ROME}<|call|>", DONE)
    call = first["output"][0]
    asked = ask("", DONE, previous_response_id=first["id"], input="And now?")
    late = {"type": "function_call_output", "call_id": call["call_id"], "output": "18 degrees"}
    last = ask("", "", DONE, previous_response_id=asked["id"], input=[late])
    assert [summary(response) for response in (first, asked, last)] == [["function_call", "message"], ["message"], ["message"]]
    assert call["async"] is True
    prompts = [prompt for prompt, _ in map(json.loads, recording.read_text(encoding="utf-8").splitlines())]
    texts = [text("gpt_oss", prompt) for prompt in prompts]
    assert [(each.count("The tool still runs."), each.count("18 degrees")) for each in texts] == [(0, 0), (1, 0), (1, 0), (1, 1)]
    assert [later[: len(earlier)] == earlier for earlier, later in pairwise(prompts)] == [True] * 3
