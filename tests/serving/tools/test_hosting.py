"""Hosted calls run on real MCP servers between their events, and the stream reports the real outcome."""

import json

import httpx
import pytest
from live.agents import ask, calling, mcp, servers, several
from live.mcp_servers import RESULT, TOOL, Workshop, answer, plain, result, running

from interlock.fsm.deltas import Close, EndTurn, Open, Text
from interlock.parsers import Chunk, Tagged
from interlock.serving.build import build
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.engines.engine import Engine, EngineOutput
from interlock.serving.engines.script import Call, ScriptedEngine, ScriptRule, ScriptStep
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings
from interlock.serving.tools import hosting


@pytest.fixture
def shop():
    """A workshop, whose calls a test can inspect."""
    return Workshop()


@pytest.fixture(params=["mcp", "sse"])
def url(request, shop):
    """The URL of the workshop, over both transports."""
    server = shop.server()
    with running(server.sse_app() if request.param == "sse" else server.streamable_http_app()) as base:
        yield f"{base}/{request.param}"


ECHO = calling("mcp.shop.echo", '{"text": "a"}')


def test_the_tools_are_listed_first_and_the_result_is_in_the_item(url) -> None:
    outcome = ask(ECHO, tools=[mcp(url, allowed_tools=["echo", "look"])])
    assert [item["type"] for item in outcome.output] == ["mcp_list_tools", "mcp_call", "message"]
    listed, call, _ = outcome.output
    echo = {
        "name": "echo",
        "description": "Say it again.",
        "input_schema": {
            "type": "object",
            "properties": {"text": {"title": "Text", "type": "string"}},
            "required": ["text"],
            "title": "echoArguments",
        },
        "annotations": None,
    }
    assert (listed["server_label"], listed["tools"][0]) == ("shop", echo)
    assert listed["tools"][1]["annotations"] == {"readOnlyHint": True}
    assert (call["status"], call["output"], call["arguments"]) == ("completed", "a", '{"text": "a"}')
    assert [turn.index for turn in outcome.engine.turns] == [0, 1]
    assert [item["type"] for item in outcome.engine.turns[0].items] == ["message", "mcp_list_tools"]
    assert outcome.engine.turns[1].items[-1]["output"] == "a"


def test_a_call_completes_after_its_tool_has_ended(url, shop) -> None:
    outcome = ask(calling("mcp.shop.slow", '{"seconds": 0.05}'), tools=[mcp(url)])
    assert outcome.time("mcp_call_arguments.done") < shop.ended["slow"] < outcome.time("mcp_call.completed")


def test_the_calls_of_a_turn_run_concurrently_and_are_reported_as_they_end(shop) -> None:
    both = several(calling("mcp.shop.slow", '{"seconds": 0.3}', "<|end|>"), calling("mcp.shop.echo", '{"text": "b"}'))
    with running(shop.server().streamable_http_app()) as base:
        outcome = ask(both, tools=[mcp(f"{base}/mcp")])
    assert shop.began == ["slow", "echo"]
    assert shop.ended["echo"] < shop.ended["slow"]
    done = [
        event["item"]["name"] for event in outcome.events if event["type"].endswith("done") and "name" in event.get("item", {})
    ]
    assert done == ["echo", "slow"]
    assert [item["output"] for item in outcome.of("mcp_call")] == ["done", "b"]


def test_tools_that_are_not_allowed_are_neither_listed_nor_called(shop) -> None:
    with running(shop.server().streamable_http_app()) as base:
        outcome = ask(ECHO, tools=[mcp(f"{base}/mcp", allowed_tools={"read_only": True})])
    assert [tool["name"] for tool in outcome.output[0]["tools"]] == ["look"]
    (call,) = outcome.of("mcp_call")
    assert (call["status"], call["error"]["content"][0]["text"]) == (
        "failed",
        "The MCP server 'shop' has no tool 'echo' that may be called.",
    )
    assert outcome.engine.turns[1].items[-1]["output"].startswith("Error: The MCP server 'shop' has no tool")
    assert shop.began == []


@pytest.mark.parametrize(
    ("recipient", "text", "message"),
    [
        ("mcp.other.echo", "{}", "The request has no MCP server 'other'."),
        ("mcp.shop.echo", "no JSON", "The arguments are not a JSON object."),
        ("mcp.shop.echo", "[]", "The arguments are not a JSON object."),
    ],
)
def test_an_invalid_call_fails_and_the_model_reads_the_reason(recipient, text, message) -> None:
    with running(plain()) as base:
        outcome = ask(calling(recipient, text), tools=[mcp(f"{base}/mcp")])
    (call,) = outcome.of("mcp_call")
    assert call["error"] == {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": message}]}
    assert outcome.engine.turns[1].items[-1]["output"] == f"Error: {message}"
    assert outcome.response["status"] == "completed"


def test_a_call_without_arguments_has_an_empty_object() -> None:
    with running(plain()) as base:
        outcome = ask(calling("mcp.shop.echo", ""), tools=[mcp(f"{base}/mcp")])
    assert outcome.of("mcp_call")[0]["output"] == "said"


def test_a_tool_list_in_the_conversation_is_not_listed_again() -> None:
    listed = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "shop", "tools": [{"name": "echo", "input_schema": {}}]}
    with running(plain()) as base:
        outcome = ask(ECHO, tools=[mcp(f"{base}/mcp")], items=[listed, {"role": "user", "content": "Hi"}])
    assert [item["type"] for item in outcome.output] == ["mcp_call", "message"]


def test_a_reused_list_is_fetched_before_a_call_and_never_after() -> None:
    order = []

    class Listed:
        def __iter__(self):
            order.append("list")
            return iter([TOOL])

    async def note(request, send):
        order.append("call")
        await answer(send, 200, result(request, RESULT))

    listed = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "shop", "tools": [{"name": "echo", "input_schema": {}}]}
    with running(plain(note, tools=Listed())) as base:
        outcome = ask(ECHO, tools=[mcp(f"{base}/mcp")], items=[listed, {"role": "user", "content": "Hi"}])
    assert (order, outcome.of("mcp_call")[0]["output"]) == (["list", "call"], "said")


def test_an_error_of_a_server_with_the_code_of_a_lost_connection_keeps_its_message() -> None:
    async def fail(request, send):
        error = {"code": -32000, "message": "The disk is full."}
        await answer(send, 200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode())

    with running(plain(fail)) as base:
        outcome = ask(ECHO, tools=[mcp(f"{base}/mcp")])
    assert outcome.of("mcp_call")[0]["error"]["content"][0]["text"] == "The disk is full."


def test_headers_and_authorization_reach_the_server_and_not_the_stream() -> None:
    seen = []

    def note(scope):
        seen.append(dict(scope["headers"]))

    with running(plain(gate=note)) as base:
        outcome = ask(ECHO, tools=[mcp(f"{base}/mcp", headers={"X-Team": "red"}, authorization="secret-token")])
    assert {(head[b"x-team"], head[b"authorization"]) for head in seen} == {(b"red", b"Bearer secret-token")}
    assert "secret-token" not in json.dumps(outcome.events)
    assert "red" not in json.dumps(outcome.response["tools"])


PYTHON = calling("python", "print(6 * 7)")
SEARCH = calling("browser.search", '{"query": "trains"}')


@pytest.fixture
def hosted(shop):
    """Tool servers at a workshop."""
    with running(shop.server().streamable_http_app()) as base:
        yield servers(code_interpreter=f"{base}/mcp", web_search=f"{base}/mcp")


def test_code_runs_between_interpreting_and_completed(hosted, shop) -> None:
    outcome = ask(PYTHON, tools=[{"type": "code_interpreter"}], runner=hosted, include=["code_interpreter_call.outputs"])
    (call,) = outcome.of("code_interpreter_call")
    assert (call["code"], call["outputs"]) == ("print(6 * 7)", [{"type": "logs", "logs": "42\n"}])
    assert outcome.time("code_interpreter_call.interpreting") < shop.ended["python"]
    assert shop.ended["python"] < outcome.time("code_interpreter_call.completed")


def test_the_model_reads_outputs_that_include_omits(hosted) -> None:
    outcome = ask(PYTHON, tools=[{"type": "code_interpreter"}], runner=hosted)
    assert outcome.of("code_interpreter_call")[0]["outputs"] is None
    assert outcome.engine.turns[1].items[-1]["output"] == "42\n"


def test_failed_code_has_its_error_in_its_outputs(hosted) -> None:
    outcome = ask(calling("python", "raise"), tools=[{"type": "code_interpreter"}], runner=hosted)
    (call,) = outcome.of("code_interpreter_call")
    assert (call["status"], call["outputs"]) == ("failed", [{"type": "logs", "logs": "Error executing tool python: It raised."}])


def test_sources_are_shown_if_included(hosted, shop) -> None:
    outcome = ask(SEARCH, tools=[{"type": "web_search"}], runner=hosted, include=["web_search_call.action.sources"])
    sources = [{"type": "url", "url": "https://a.example/one"}, {"type": "url", "url": "https://b.example"}]
    assert outcome.of("web_search_call")[0]["action"] == {"type": "search", "query": "trains", "sources": sources}
    assert outcome.time("web_search_call.searching") < shop.ended["search"] < outcome.time("web_search_call.completed")
    assert ask(SEARCH, tools=[{"type": "web_search"}], runner=hosted).of("web_search_call")[0]["action"] == {
        "type": "search",
        "query": "trains",
    }


@pytest.mark.parametrize(
    ("function", "arguments", "action", "result"),
    [
        (
            "open",
            {"cursor": 3, "id": 7},
            {"type": "open_page", "url": "https://c.example"},
            "[7] Page 7 of 3 (https://c.example)\nL0: Seven.",
        ),
        (
            "open",
            {"id": "https://d.example"},
            {"type": "open_page", "url": "https://d.example"},
            "[7] Page 'https://d.example' of -1 (https://c.example)\nL0: Seven.",
        ),
        ("find", {"pattern": "x"}, {"type": "find_in_page", "pattern": "x", "url": "cursor:-1"}, "x is on -1"),
    ],
)
def test_pages_are_opened_and_searched_as_the_model_names_them(hosted, function, arguments, action, result) -> None:
    outcome = ask(calling(f"browser.{function}", json.dumps(arguments)), tools=[{"type": "web_search"}], runner=hosted)
    assert outcome.of("web_search_call")[0]["action"] == action
    assert outcome.engine.turns[1].items[-1]["output"] == result


@pytest.mark.parametrize(
    ("function", "arguments", "sent"),
    [
        ("search", {"query": "trains", "topn": 3, "source": "news"}, None),
        ("open", {"cursor": 2, "loc": 40, "num_lines": 20}, None),
        ("open", {"cursor": 2, "id": 7, "view_source": True, "source": "web"}, None),
        ("open", {"id": "https://d.example", "loc": 5}, None),
        ("open", {}, None),
        ("find", {"pattern": "x", "cursor": 4}, None),
        ("open", {"url": "https://d.example", "cursor": 1}, {"id": "https://d.example", "cursor": 1}),
    ],
)
def test_all_arguments_of_the_browser_reach_its_tool(function, arguments, sent) -> None:
    called = []

    async def note(request, send):
        called.append(request["params"])
        await answer(send, 200, result(request, RESULT))

    with running(plain(note)) as base:
        runner = servers(web_search=f"{base}/mcp")
        ask(calling(f"browser.{function}", json.dumps(arguments)), tools=[{"type": "web_search"}], runner=runner)
    assert [(params["name"], params["arguments"]) for params in called] == [(function, sent or arguments)]


INVALID_CALL = calling("browser.search", '{"words": 1}')


def test_an_invalid_browser_call_fails_and_the_model_reads_the_reason(hosted, shop) -> None:
    outcome = ask(INVALID_CALL, tools=[{"type": "web_search"}], runner=hosted)
    assert [(item["type"], item["status"]) for item in outcome.output] == [
        ("web_search_call", "failed"),
        ("message", "completed"),
    ]
    assert (outcome.response["status"], shop.began) == ("completed", [])
    recalled = {**outcome.output[0], "output": "Error: The call was not executed: its arguments make no sense."}
    assert outcome.engine.turns[1].items[-1] == recalled


def test_an_invalid_call_does_not_affect_the_other_calls(hosted, shop) -> None:
    outcome = ask(several(INVALID_CALL.replace("<|call|>", "<|end|>"), SEARCH), tools=[{"type": "web_search"}], runner=hosted)
    assert [item["status"] for item in outcome.output] == ["failed", "completed", "completed"]
    assert [len(turn.items) for turn in outcome.engine.turns] == [1, 3]
    assert shop.began == ["search"]


def test_invalid_calls_count_as_calls(hosted, shop) -> None:
    outcome = ask(INVALID_CALL, SEARCH, tools=[{"type": "web_search"}], runner=hosted, max_tool_calls=1)
    assert [item["status"] for item in outcome.output] == ["failed", "failed"]
    assert (outcome.response["status"], len(outcome.engine.turns), shop.began) == ("completed", 2, [])


def test_a_model_that_makes_only_invalid_calls_is_stopped(monkeypatch, hosted) -> None:
    monkeypatch.setattr(hosting, "MAX_CALLS", 2)
    outcome = ask(*[INVALID_CALL] * 5, tools=[{"type": "web_search"}], runner=hosted)
    assert ([item["status"] for item in outcome.output], outcome.response["status"]) == (["failed"] * 3, "completed")


def test_a_mark_that_names_a_page_is_an_annotation_with_its_place_in_the_text(hosted) -> None:
    text = "Trains run【0†L0】 on rails【1†L0-L1】, not on【9†L1】 roads."
    outcome = ask(SEARCH, f"<|channel|>final<|message|>{text}<|return|>", tools=[{"type": "web_search"}], runner=hosted)
    part = outcome.of("message")[0]["content"][0]
    assert part["text"] == text
    assert [(each["url"], text[each["start_index"] : each["end_index"]]) for each in part["annotations"]] == [
        ("https://a.example/one", "【0†L0】"),
        ("https://b.example", "【1†L0-L1】"),
    ]
    assert part["annotations"][0]["title"] == "First of trains"


def test_a_hosted_tool_without_a_server_fails_with_a_message() -> None:
    outcome = ask(PYTHON, tools=[{"type": "code_interpreter"}], include=["code_interpreter_call.outputs"])
    (call,) = outcome.of("code_interpreter_call")
    message = "This server has no tool server for 'code_interpreter'."
    assert (call["status"], call["outputs"]) == ("failed", [{"type": "logs", "logs": message}])
    assert outcome.response["status"] == "completed"


def test_a_hosted_tool_that_the_request_does_not_offer_is_not_run(hosted, shop) -> None:
    outcome = ask(PYTHON, tools=[{"type": "web_search"}], runner=hosted)
    assert outcome.of("code_interpreter_call")[0]["status"] == "failed"
    assert outcome.engine.turns[1].items[-1]["output"] == "Error: The request does not offer the tool 'code_interpreter'."
    assert shop.began == []


FUNCTION = {"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}}


def test_the_label_container_names_a_hosted_tool_with_any_url(hosted) -> None:
    declared = mcp("http://unused", "container")
    runner = servers(container=hosted.hosted["code_interpreter"])
    outcome = ask(calling("container.echo", '{"text": "a"}'), tools=[declared], runner=runner)
    assert [(item["type"], item.get("output")) for item in outcome.output][:1] == [("mcp_call", "a")]
    outcome = ask(calling("container.echo", '{"text": "a"}'), tools=[{"type": "web_search"}], runner=runner)
    assert outcome.engine.turns[1].items[-1]["output"] == "Error: The request does not offer the tool 'container'."


def test_a_function_call_ends_the_response_after_the_hosted_calls_beside_it() -> None:
    mixed = several(calling("functions.look_up", "{}", "<|end|>"), ECHO)
    with running(plain()) as base:
        outcome = ask(mixed, tools=[mcp(f"{base}/mcp"), FUNCTION])
    assert [(item["type"], item.get("status")) for item in outcome.output[1:]] == [
        ("function_call", "completed"),
        ("mcp_call", "completed"),
    ]
    assert len(outcome.engine.turns) == 1


def test_calls_beyond_the_limit_fail_and_end_the_response() -> None:
    two = several(calling("mcp.shop.echo", "{}", "<|end|>"), calling("mcp.shop.echo", "{}"))
    with running(plain()) as base:
        outcome = ask(two, two, two, tools=[mcp(f"{base}/mcp")], max_tool_calls=3)
    assert [item["status"] for item in outcome.of("mcp_call")] == ["completed", "completed", "completed", "failed"]
    assert outcome.of("mcp_call")[-1]["error"]["content"][0]["text"] == "The response has reached its limit of tool calls."
    assert (outcome.response["status"], len(outcome.engine.turns)) == ("completed", 2)


def test_a_model_that_calls_for_ever_is_stopped(monkeypatch) -> None:
    monkeypatch.setattr(hosting, "MAX_CALLS", 2)
    with running(plain()) as base:
        outcome = ask(*[ECHO] * 5, tools=[mcp(f"{base}/mcp")])
    assert [item["status"] for item in outcome.of("mcp_call")] == ["completed", "completed", "failed"]
    assert outcome.response["status"] == "completed"


def test_the_servers_of_a_request_are_limited(monkeypatch) -> None:
    monkeypatch.setattr(hosting, "MAX_SERVERS", 1)
    with running(plain()) as base:
        outcome = ask(tools=[mcp(f"{base}/mcp", "one"), mcp(f"{base}/mcp", "two")])
    refused = "A request may have at most 1 MCP servers whose tools are not listed yet."
    assert [item.get("error") for item in outcome.of("mcp_list_tools")] == [None, refused]


OPEN_CALL = Open("mcp_call", {"server_label": "s", "name": "t"})
FREE = Open("mcp_call", {"server_label": "s", "name": "free"})
MESSAGE = Open("message", {"phase": "final_answer"})


def approval(arguments):
    return Open("mcp_approval_request", {"server_label": "s", "name": "t", "arguments": arguments})


def approvals():
    return hosting.Approvals(lambda _label, name: name == "t")


@pytest.mark.parametrize(
    ("deltas", "output"),
    [
        ([OPEN_CALL, '{"a"', ":1}", Close()], [approval('{"a":1}')]),
        ([OPEN_CALL, Text("{}", []), MESSAGE, "x"], [approval("{}"), MESSAGE, "x"]),
        ([OPEN_CALL, OPEN_CALL, "{}", EndTurn("stop")], [approval(""), approval("{}"), EndTurn("stop")]),
        ([OPEN_CALL, '{"a', EndTurn("length")], [OPEN_CALL, '{"a', EndTurn("length")]),
        ([FREE, "{}", Close(), EndTurn("length")], [FREE, "{}", Close(), EndTurn("length")]),
    ],
)
def test_a_call_that_needs_approval_becomes_a_request_unless_it_is_truncated(deltas, output) -> None:
    assert approvals().feed(deltas) == output
    one_by_one = approvals()
    assert [delta for each in deltas for delta in one_by_one.feed([each])] == output


APPROVAL = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "shop", "name": "echo", "arguments": '{"text": "a"}'}
ALWAYS = {"require_approval": "always"}


def test_a_call_that_needs_approval_ends_the_response_with_a_request() -> None:
    with running(plain()) as base:
        outcome = ask(ECHO, tools=[mcp(f"{base}/mcp", **ALWAYS)])
    assert [item["type"] for item in outcome.output] == ["mcp_list_tools", "mcp_approval_request"]
    approval = outcome.output[1]
    assert {**approval, "id": "mcpr_1"} == APPROVAL
    assert approval["id"].startswith("mcpr_")
    assert (outcome.response["status"], len(outcome.engine.turns)) == ("completed", 1)


LABELLED = [
    (calling("container.echo", '{"text": "a"}'), "container", "echo", {"text": "a"}, "a"),
    (PYTHON, "code_interpreter", "python", {"code": "print(6 * 7)"}, "42\n"),
    (calling("browser.find", '{"pattern": "x"}'), "web_search_preview", "find", {"pattern": "x"}, "x is on -1"),
]


@pytest.fixture
def labelled(shop):
    """Tool servers for every label, at a workshop."""
    with running(shop.server().streamable_http_app()) as base:
        yield servers(**dict.fromkeys(("code_interpreter", "web_search", "container"), f"{base}/mcp"))


@pytest.mark.parametrize("rule", [{}, ALWAYS, {"require_approval": {"never": {"tool_names": ["other"]}}}])
@pytest.mark.parametrize(("call", "label", "name", "arguments", "result"), LABELLED)
def test_a_tool_server_named_by_its_label_asks_for_approval(labelled, shop, rule, call, label, name, arguments, result) -> None:
    declared = {"type": "mcp", "server_label": label, "server_url": "http://unused", **rule}
    outcome = ask(call, tools=[declared], runner=labelled)
    (request,) = outcome.output
    assert (request["type"], request["server_label"], request["name"]) == ("mcp_approval_request", label, name)
    assert (json.loads(request["arguments"]), shop.began) == (arguments, [])
    approved = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    outcome = ask(tools=[declared], runner=labelled, items=[{"role": "user", "content": "Hi"}, request, approved])
    assert [(item["type"], item.get("output")) for item in outcome.output] == [("mcp_call", result), ("message", None)]


@pytest.mark.parametrize(("call", "label", "name", "arguments", "result"), LABELLED)
def test_a_tool_server_named_by_its_label_runs_only_allowed_tools(labelled, shop, call, label, name, arguments, result) -> None:
    del arguments
    declared = mcp("http://unused", label, allowed_tools=["other"])
    outcome = ask(call, tools=[declared], runner=labelled)
    message = f"Error: The MCP server '{label}' has no tool '{name}' that may be called."
    assert (outcome.output[0]["status"], outcome.engine.turns[1].items[-1]["output"]) == ("failed", message)
    assert shop.began == []
    for tools in ([mcp("http://unused", label)], [declared, {"type": label}]):
        if tools[-1]["type"] != "container":
            assert ask(call, tools=tools, runner=labelled).engine.turns[1].items[-1]["output"] == result


def test_an_invalid_call_of_a_tool_server_named_by_its_label_fails_without_approval(labelled) -> None:
    outcome = ask(INVALID_CALL, tools=[mcp("http://unused", "web_search_preview", **ALWAYS)], runner=labelled)
    assert [(item["type"], item["status"]) for item in outcome.output[:1]] == [("web_search_call", "failed")]


def approval_items(approve):
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": approve}
    return [{"role": "user", "content": "Hi"}, APPROVAL, answer]


def test_an_approved_call_runs_before_the_models_first_turn() -> None:
    with running(plain()) as base:
        outcome = ask(tools=[mcp(f"{base}/mcp", **ALWAYS)], items=approval_items(approve=True))
    assert [item["type"] for item in outcome.output] == ["mcp_list_tools", "mcp_call", "message"]
    call = outcome.output[1]
    assert (call["approval_request_id"], call["arguments"], call["output"]) == ("mcpr_1", '{"text": "a"}', "said")
    assert [turn.items[-1]["type"] for turn in outcome.engine.turns] == ["mcp_call"]


def test_an_approval_runs_its_call_once() -> None:
    call = {"type": "mcp_call", "id": "mcp_1", "approval_request_id": "mcpr_1", "server_label": "shop", "name": "echo"}
    with running(plain()) as base:
        outcome = ask(tools=[mcp(f"{base}/mcp", **ALWAYS)], items=[*approval_items(approve=True), call])
        twice = ask(tools=[mcp(f"{base}/mcp", **ALWAYS)], items=[*approval_items(approve=True), approval_items(approve=True)[-1]])
    assert [item["type"] for item in outcome.output] == ["mcp_list_tools", "message"]
    assert [item["type"] for item in twice.output] == ["mcp_list_tools", "mcp_call", "message"]


def test_a_refused_call_does_not_run_and_the_model_sees_the_refusal() -> None:
    with running(plain()) as base:
        outcome = ask(tools=[mcp(f"{base}/mcp", **ALWAYS)], items=approval_items(approve=False))
    assert [item["type"] for item in outcome.output] == ["mcp_list_tools", "message"]
    assert outcome.engine.turns[0].items[2]["approve"] is False


PARAMETERS = "<parameter=sides>\n6\n</parameter>\n<parameter=loud>\ntrue\n</parameter>\n"
ROLL = f"<tool_call>\n<function=shop__roll>\n{PARAMETERS}</function>\n</tool_call>"


class Roller(Engine):
    """Calls a tool that rolls a die, and does not mention the result."""

    models = ("roller",)
    format = Tagged("qwen3_coder")

    async def generate(self, turn):
        yield EngineOutput(Chunk(text="Done." if turn.index else ROLL), "stop")


ROLLS = [
    ScriptStep(calls=[Call("shop__roll", {"sides": 6, "loud": True})]),
    ScriptStep(says="Done."),
]


@pytest.mark.parametrize(
    "engine",
    [
        Roller(),
        EmbeddedEngine(("roller",), family=Tagged("qwen3_coder", "qwen3")),
        ScriptedEngine([ScriptRule(family="qwen3_coder", steps=ROLLS)], ("roller",)),
    ],
    ids=["own", "embedded", "scripted"],
)
def test_arguments_have_the_types_of_the_schemas_that_the_server_lists(engine, shop):
    settings = Settings(allow_mcp_host=["127.0.0.1"])
    with running(shop.server().streamable_http_app()) as base, ServerThread(build(settings, engine)) as url:
        body = {"model": "roller", "input": "Roll: 6", "tools": [mcp(f"{base}/mcp", allowed_tools=["roll"])]}
        output = httpx.post(f"{url}/v1/responses", json=body).json()["output"]
    (call,) = [item for item in output if item["type"] == "mcp_call"]
    arguments = json.loads(call["arguments"])
    assert {key: type(value) for key, value in arguments.items()} == {"sides": int, "loud": bool}
    assert call["output"] == f"{arguments['sides']} {arguments['loud']}"
