"""Hosted tools on real MCP servers, with gpt-oss and with a model that calls them as functions; the choice of tools; the sandbox.

The events show when each call starts and ends, even if it fails.
"""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from threading import Thread

import httpx
import pytest
from playing import body, both, ended, judged, stream, summary, text, tokens
from servers import HEADERS, SEARCH_PORT
from turns import BROWSER, CLOCK, DONE, END, FUNCTION, NEXT, PYTHON, RUN, SEARCH, THINK, WEATHER, Turn

HARMONY_SERVER = pytest.mark.parametrize("server", ["harmony"], indirect=True)


def play(server, *rounds, **fields):
    return judged(stream(server.url, body("gpt_oss", Turn("", rounds, body=fields))))


OUTPUTS = {"include": ["code_interpreter_call.outputs"]}


def response_of(bodies):
    return bodies[-1]["response"]


def names(bodies, item_type):
    return [event["type"] for event in bodies if event["type"].startswith(f"response.{item_type}")]


def run(code):
    return f"{RUN}{code}<|call|>"


@HARMONY_SERVER
def test_the_output_of_a_tool_is_in_the_item_before_the_next_round(server):
    bodies = play(server, run("print(1)"), DONE, tools=[PYTHON], **OUTPUTS)
    assert response_of(bodies)["output"][0]["outputs"] == [{"type": "logs", "logs": "ran: print(1)"}]
    types = [event["type"] for event in bodies]
    assert types.index("response.code_interpreter_call.completed") < types.index("response.content_part.added")


@HARMONY_SERVER
def test_the_output_of_a_tool_reaches_the_model(server):
    request = body("gpt_oss", Turn("", [run("print(1)"), DONE], body={"tools": [PYTHON]}))
    usage = httpx.post(f"{server.url}/v1/responses", json=request, timeout=60).json()["usage"]
    alone = body("gpt_oss", Turn("", [DONE], body={"tools": [PYTHON]}))
    first = httpx.post(f"{server.url}/v1/responses", json=alone, timeout=60).json()["usage"]
    assert usage["input_tokens"] > 2 * first["input_tokens"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


@HARMONY_SERVER
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


@HARMONY_SERVER
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


@HARMONY_SERVER
def test_a_dead_tool_server_fails_only_its_call(server):
    response = response_of(play(server, run("die"), f'{SEARCH}{{"query": "x"}}<|call|>', DONE, tools=[PYTHON, BROWSER]))
    assert summary(response) == ["code_interpreter_call failed", "web_search_call", "message"]
    rounds = run("print(1)"), f'{SEARCH}{{"query": "x"}}<|call|>', DONE
    response = response_of(play(server, *rounds, tools=[PYTHON, BROWSER]))  # it is down when the response begins
    assert summary(response) == ["code_interpreter_call failed", "web_search_call", "message"]
    server.start_tool("python")
    response = response_of(play(server, run("print(1)"), DONE, tools=[PYTHON]))
    assert summary(response) == ["code_interpreter_call", "message"]


@HARMONY_SERVER
def test_a_malformed_search_does_not_run_and_the_stream_continues(server):
    bodies = play(server, f"{SEARCH}rome<|call|>", DONE, tools=[BROWSER])
    assert summary(response_of(bodies)) == ["web_search_call failed", "message"]
    assert "response.web_search_call.searching" not in [event["type"] for event in bodies]


@HARMONY_SERVER
def test_a_call_of_an_undeclared_tool_does_not_run(server):
    bodies = play(server, run("print(1)"), DONE, tools=[BROWSER])
    assert summary(response_of(bodies)) == ["code_interpreter_call failed", "message"]
    assert names(bodies, "code_interpreter_call.") == ["response.code_interpreter_call.in_progress"]


@HARMONY_SERVER
def test_at_most_max_tool_calls_run(server):
    response = response_of(play(server, run("one"), run("two"), DONE, tools=[PYTHON], max_tool_calls=1))
    assert summary(response) == ["code_interpreter_call", "code_interpreter_call failed"]


@HARMONY_SERVER
def test_max_output_tokens_apply_to_all_rounds(server):
    response = response_of(play(server, run("print(1)"), run("print(2)"), DONE, tools=[PYTHON], max_output_tokens=16))
    assert response["status"] == "incomplete"
    assert response["usage"]["output_tokens"] == 16


@HARMONY_SERVER
def test_usage_counts_all_rounds(server):
    usage = response_of(play(server, run("print(1)"), DONE, tools=[PYTHON]))["usage"]
    assert usage["output_tokens"] == sum(len(tokens("gpt_oss", text)) for text in (run("print(1)"), DONE))


@HARMONY_SERVER
def test_several_calls_of_one_turn_run_concurrently(server):
    both = f"{RUN}meet<|end|>{NEXT}{run('meet')}"  # each waits for the other
    response = response_of(play(server, both, DONE, tools=[PYTHON], **OUTPUTS))
    assert summary(response) == ["code_interpreter_call", "code_interpreter_call", "message"]
    assert [item["outputs"][0]["logs"] for item in response["output"][:2]] == ["ran: meet"] * 2


@HARMONY_SERVER
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


@HARMONY_SERVER
def test_an_mcp_server_at_a_host_that_is_not_allowed_is_not_reached(server):
    tool = {"type": "mcp", "server_label": "own", "server_url": "http://192.0.2.1/mcp"}
    response = response_of(play(server, DONE, tools=[tool]))
    assert summary(response) == ["mcp_list_tools", "message"]
    assert response["output"][0]["error"] is not None


@HARMONY_SERVER
def test_a_function_call_after_a_tool_ends_the_response(server):
    call = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome"}<|call|>'
    response = response_of(play(server, run("print(1)"), call, tools=[PYTHON, FUNCTION]))
    assert summary(response) == ["code_interpreter_call", "function_call"]


ROME = '{"city": "Rome"}'
NAMED = {"type": "function", "name": "get_weather"}
REQUIRED = "<|channel|>commentary to=functions."
"""The beginning of a call, with which the prompt of a request that requires one ends."""


def ask(server, *rounds, **fields):
    """Return the response to a request whose model writes these rounds."""
    return ended(stream(server.url, body("gpt_oss", Turn("", rounds, body=fields))))


@HARMONY_SERVER
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
    response = ended(stream(server.url, request))
    assert [(item["type"], item["name"], item["arguments"]) for item in response["output"]] == [
        ("function_call", "get_weather", ROME)
    ]
    ((prompt, _),) = map(json.loads, recording.read_text(encoding="utf-8").splitlines())
    assert text("gpt_oss", prompt).endswith(f"<|start|>assistant{beginning}")
    assert response["tool_choice"] == choice


@HARMONY_SERVER
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
    response = ended(stream(server.url, request))
    assert summary(response) == ["mcp_list_tools", "mcp_call", "message"]
    assert response["output"][1]["output"] == "found: rome"
    prompts = [text("gpt_oss", prompt) for prompt, _ in map(json.loads, recording.read_text(encoding="utf-8").splitlines())]
    assert [prompt.rpartition("<|start|>assistant")[2].startswith(REQUIRED) for prompt in prompts] == [True, False]


@HARMONY_SERVER
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


@HARMONY_SERVER
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


@HARMONY_SERVER
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


@HARMONY_SERVER
def test_a_tool_that_the_request_also_offers_by_its_type_needs_no_approval(server):
    tools = [*labelled("code_interpreter", allowed_tools=["other"])["tools"], PYTHON]
    response = ask(server, f"{RUN}print(1)<|call|>", DONE, tools=tools, include=["code_interpreter_call.outputs"])
    assert response["output"][0]["outputs"] == [{"type": "logs", "logs": "ran: print(1)"}]


@HARMONY_SERVER
def test_the_count_of_input_tokens_includes_the_tools_of_mcp_servers(server):
    own = {"type": "mcp", "server_label": "own", "server_url": server.tool_url("browser")}
    request = body("gpt_oss", Turn("", [DONE], body={"tools": [own]}))
    response = ended(stream(server.url, request))
    assert summary(response) == ["mcp_list_tools", "message"]
    counted = httpx.post(f"{server.url}/v1/responses/input_tokens", json=request, timeout=60).json()
    assert counted == {"object": "response.input_tokens", "input_tokens": response["usage"]["input_tokens"]}


@HARMONY_SERVER
def test_the_model_continues_after_an_async_call_and_reads_its_late_output(server, tmp_path):
    recording = tmp_path / "kept.jsonl"

    def ask(*rounds, **fields):
        request = body("gpt_oss", Turn("", rounds, body={"tools": [{**FUNCTION, "async": True}], **fields}))
        request["vllm_xargs"]["kept"] = str(recording)
        return ended(stream(server.url, request))

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


PARSED_SERVER = pytest.mark.parametrize("server", ["parsed"], indirect=True)

THINKING = "<think>\nHm.\n</think>\n\n"
ANSWER = f"{THINKING}It is done.{END}"


def function(name):
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}


def call(name, arguments):
    return f'{THINKING}<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>{END}'


def plays(server, *rounds, **fields):
    fields["include"] = ["code_interpreter_call.outputs"]
    return both(server.url, body("qwen3", Turn("", rounds, body=fields)))


@PARSED_SERVER
def test_an_answer_needs_no_tool(server):
    assert summary(plays(server, ANSWER)) == ["reasoning", "message"]


@PARSED_SERVER
def test_python_runs_and_the_model_continues(server):
    tools = [PYTHON, function("code_interpreter")]
    response = plays(server, call("code_interpreter", '{"code": "print(1)"}'), ANSWER, tools=tools)
    assert summary(response) == ["reasoning", "code_interpreter_call", "reasoning", "message"]
    code = response["output"][1]
    assert (code["code"], code["outputs"]) == ("print(1)", [{"type": "logs", "logs": "ran: print(1)"}])


@PARSED_SERVER
def test_a_search_runs_and_the_model_continues(server):
    tools = [BROWSER, function("web_search_preview")]
    response = plays(server, call("web_search_preview", '{"query": "rome"}'), ANSWER, tools=tools)
    assert summary(response) == ["reasoning", "web_search_call", "reasoning", "message"]
    assert response["output"][1]["action"]["query"] == "rome"


@PARSED_SERVER
def test_a_failed_tool_is_a_failed_item_and_the_model_continues(server):
    tools = [PYTHON, function("code_interpreter")]
    response = plays(server, call("code_interpreter", '{"code": "raise"}'), ANSWER, tools=tools)
    assert summary(response) == ["reasoning", "code_interpreter_call failed", "reasoning", "message"]


@PARSED_SERVER
def test_a_client_function_is_left_to_the_client(server):
    assert summary(plays(server, call("get_weather", "{}"), tools=[PYTHON, function("get_weather")])) == [
        "reasoning",
        "function_call",
    ]


SANDBOX_SERVER = pytest.mark.parametrize("server", ["open-responses"], indirect=True)


@SANDBOX_SERVER
def test_code_runs_in_the_sandbox_of_the_plugin(server):
    rounds = [f"{RUN}x = 6<|call|>", f"{RUN}x * 7<|call|>", DONE]
    fields = {"tools": [PYTHON], "include": ["code_interpreter_call.outputs"]}
    response = ended(stream(server.url, body("gpt_oss", Turn("", rounds, body=fields)), **HEADERS), "open_responses")
    first, second, _ = response["output"]
    assert (first["container_id"], first["outputs"]) == (second["container_id"], [{"type": "logs", "logs": ""}])
    assert second["outputs"] == [{"type": "logs", "logs": "42\n"}]


@SANDBOX_SERVER
def test_a_search_of_the_plugin_has_the_results_of_its_provider(server):
    class SearXng(BaseHTTPRequestHandler):
        def do_GET(self):
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()
            found = {"title": "Rome", "url": "https://rome.example/", "content": "A city."}
            self.wfile.write(json.dumps({"results": [found]}).encode())

        def log_message(self, *_):
            pass

    paths = []
    fields = {"tools": [BROWSER], "include": ["web_search_call.action.sources"]}
    rounds = [f'{SEARCH}{{"query": "rome"}}<|call|>', DONE]
    with HTTPServer(("127.0.0.1", SEARCH_PORT), SearXng) as provider:
        Thread(target=provider.serve_forever).start()
        data = stream(server.url, body("gpt_oss", Turn("", rounds, body=fields)), **HEADERS)
        provider.shutdown()
    search, message = ended(data, "open_responses")["output"]
    assert (search["status"], search["action"]["sources"], message["type"]) == (
        "completed",
        [{"type": "url", "url": "https://rome.example/"}],
        "message",
    )
    assert [path.partition("?")[0] for path in paths] == ["/search"]


@SANDBOX_SERVER
def test_the_prompt_of_gpt_oss_describes_the_sandbox(server):
    def prompt_tokens(**fields):
        request = body("gpt_oss", Turn("", [DONE], body=fields))
        return httpx.post(f"{server.url}/v1/responses", json=request, headers=HEADERS, timeout=60).json()["usage"]["input_tokens"]

    assert prompt_tokens(tools=[PYTHON]) > prompt_tokens() + 100
