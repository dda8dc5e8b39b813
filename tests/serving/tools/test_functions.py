"""Functions of the server are tools of an MCP server without a URL: listed, approved and called as those of any other."""

import asyncio
import json

import httpx
import pytest
from for_each import for_each
from live.agents import WatchedServers, ask, calling

from interlock.fsm.table import DeclarationError
from interlock.parsers import Chunk, Tagged
from interlock.serving.build import build
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.engines.engine import Engine, EngineOutput
from interlock.serving.requests.api_errors import ToolFailedError
from interlock.serving.settings import Settings, SettingsError
from interlock.serving.tools.hosting import TOOL_ERROR, LocalFunction, ToolServers
from interlock.testing import assert_legal

SIDES = {"type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]}
DICE = {"type": "mcp", "server_label": "dice", "require_approval": "never"}
HI = {"type": "message", "role": "user", "content": "Hi"}


async def roll(sides):
    """Roll a die that always shows its highest number."""
    if sides < 1:
        raise ToolFailedError("A die has a side.")
    return str(sides)


ROLL = LocalFunction("roll", "Rolls a die.", SIDES, roll)


def dice(function=roll, seconds=5.0):
    return WatchedServers(seconds=seconds, functions={"dice": [LocalFunction("roll", "Rolls a die.", SIDES, function)]})


def rolled(arguments='{"sides": 6}', **settings):
    function, seconds = settings.pop("function", roll), settings.pop("seconds", 5.0)
    call = calling(f"mcp.dice.{settings.pop('name', 'roll')}", arguments)
    return ask(call, tools=[{**DICE, **settings.pop("tool", {})}], runner=dice(function, seconds), **settings)


def error_of(outcome):
    (call,) = outcome.of("mcp_call")
    return call["status"], call["error"]["content"][0]["text"]


def test_a_function_is_listed_and_called_and_the_model_reads_its_result() -> None:
    outcome = rolled()
    listed, call, message = outcome.output
    tool = {"name": "roll", "description": "Rolls a die.", "input_schema": SIDES, "annotations": None}
    assert (listed["type"], listed["server_label"], listed["tools"]) == ("mcp_list_tools", "dice", [tool])
    assert (call["type"], call["name"], call["status"], call["output"]) == ("mcp_call", "roll", "completed", "6")
    assert message["content"][0]["text"] == "Done."
    assert outcome.engine.turns[1].items[-1]["output"] == "6"


def test_a_function_that_is_not_allowed_is_neither_listed_nor_called() -> None:
    outcome = rolled(tool={"allowed_tools": ["flip"]})
    assert outcome.of("mcp_list_tools")[0]["tools"] == []
    assert error_of(outcome) == ("failed", "The MCP server 'dice' has no tool 'roll' that may be called.")


def test_a_function_needs_approval_unless_the_request_says_never() -> None:
    (asked,) = rolled(tool={"require_approval": "always"}).of("mcp_approval_request")
    assert (asked["name"], asked["arguments"]) == ("roll", '{"sides": 6}')
    answer = {"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": True}
    outcome = ask(tools=[DICE], runner=dice(), items=[HI, asked, answer])
    assert outcome.of("mcp_call")[0]["output"] == "6"


async def sleep(sides):
    await asyncio.sleep(sides)


async def wait(sides):
    raise TimeoutError(sides)


async def leak(sides):
    raise RuntimeError(f"a secret {sides}")


FAILURES = [
    (roll, '{"sides": 0}', "A die has a side."),
    (roll, "{}", "The arguments are wrong: missing a required argument: 'sides'."),
    (roll, '{"sides": 6, "color": "red"}', "The arguments are wrong: got an unexpected keyword argument 'color'."),
    (roll, "[]", "The arguments are not a JSON object."),
    (sleep, '{"sides": 60}', "The tool did not answer within 0.01 seconds."),
    (wait, '{"sides": 6}', TOOL_ERROR),
    (leak, '{"sides": 6}', TOOL_ERROR),
]


@for_each(("function", "arguments", "error"), FAILURES)
def test_a_failure_of_a_function_fails_its_call_and_the_response_goes_on(function, arguments, error) -> None:
    outcome = rolled(arguments, function=function, seconds=0.01)
    assert error_of(outcome) == ("failed", error)
    assert outcome.engine.turns[1].items[-1]["output"] == f"Error: {error}"
    assert outcome.response["status"] == "completed"


async def detail(sides):
    return {"sides": sides, "shown": [sides]}


async def forget(sides):
    del sides


async def wrap(sides):
    return [object(), sides]


@for_each(
    ("function", "status", "output"),
    [
        (detail, "completed", '{"sides":6,"shown":[6]}'),
        (forget, "completed", "null"),
        (wrap, "failed", None),
    ],
)
def test_a_result_that_is_no_text_becomes_json(function, status, output) -> None:
    (call,) = rolled(function=function).of("mcp_call")
    assert (call["status"], call.get("output")) == (status, output)


def test_a_list_that_the_client_sends_cannot_add_a_function() -> None:
    listed = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "dice", "tools": [{"name": "x", "input_schema": {}}]}
    outcome = ask(calling("mcp.dice.x", "{}"), tools=[DICE], runner=dice(), items=[listed, HI])
    assert error_of(outcome) == ("failed", "This server has no tool 'x'.")


class Gambler(Engine):
    models = ("gambler",)
    format = Tagged("hermes")

    async def generate(self, turn):
        results = [item for item in turn.items if item["type"] == "mcp_call"]
        names = [each["function"]["name"] for each in turn.functions()]
        text = f"You rolled {results[-1]['output']}." if results else json.dumps({"name": names[0], "arguments": {"sides": 6}})
        yield EngineOutput(Chunk(text=text if results else f"<tool_call>{text}</tool_call>"), "stop")


def post(path, **fields):
    app = build(Settings(), Gambler(), functions={"dice": [ROLL]})

    async def sent():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            return await client.post(f"/v1/{path}", json={"model": "gambler", **fields})

    return asyncio.run(sent())


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("responses", {"input": "Roll!", "tools": [DICE]}),
        (
            "messages",
            {
                "messages": [{"role": "user", "content": "Roll!"}],
                "max_tokens": 16,
                "mcp_servers": [{"type": "url", "url": "https://dice.example", "name": "dice"}],
                "tools": [{"type": "mcp_toolset", "mcp_server_name": "dice"}],
            },
        ),
    ],
)
def test_a_server_that_is_built_with_functions_runs_them_for_both_apis(path, fields) -> None:
    answer = post(path, stream=True, **fields)
    assert_legal(answer.content)
    assert b"You rolled 6." in answer.content


DIE = {"type": "mcp", "server_label": "die"}


@for_each("fields", [{"tools": [DIE]}, {"tools": [DICE, DIE], "background": True}])
def test_a_request_with_a_label_without_functions_is_refused_with_those_that_have_some(fields) -> None:
    refusal = post("responses", input="Roll!", **fields)
    message = "This server has no functions with the label 'die'; it has: dice."
    assert (refusal.status_code, refusal.json()["error"]["message"]) == (400, message)


@for_each("tool", [{**DIE, "server_url": "https://dice.example/mcp"}, {**DIE, "server_label": "container"}])
def test_a_request_may_have_other_servers_beside_those_with_functions(tool) -> None:
    assert post("responses", input="Roll!", tools=[DICE, tool]).json()["output"][-1]["content"][0]["text"] == "You rolled 6."


REFUSED = [
    (lambda: LocalFunction("roll it", "", SIDES, roll), "'roll it' is not the name of a tool or server: 1 to 64 letters, "),
    (lambda: LocalFunction("roll", "", SIDES, print), "the function of the tool 'roll' is declared with 'async def'"),
    (lambda: LocalFunction("roll", "", None, roll), "the parameters of the tool 'roll' are a JSON Schema, not None"),
    (
        lambda: LocalFunction("roll", "", {"properties": {"faces": {}}}, roll),
        "the function of the tool 'roll' does not fit its parameters: it got an unexpected keyword argument 'faces'",
    ),
    (lambda: ToolServers(functions=[ROLL]), "functions are a mapping of labels to lists, not [LocalFunction("),
    (lambda: ToolServers(functions={"dice": ROLL}), "the server 'dice' has a list of LocalFunction, not LocalF"),
    (lambda: ToolServers(functions={"dice": [roll]}), "the server 'dice' has a list of LocalFunction, not [<f"),
    (lambda: ToolServers(functions={"": []}), "'' is not the name of a tool or server"),
    (lambda: ToolServers(functions={"container": []}), "the label 'container' is the one of a hosted tool"),
    (lambda: ToolServers(functions={"dice": [ROLL, ROLL]}), "two functions of the server 'dice' have the same name"),
    (
        lambda: build(Settings(), EmbeddedEngine(), tools=ToolServers(), functions={"dice": [ROLL]}),
        "build got 'tools' and 'functions': give the functions to ToolServers",
    ),
]


@for_each(("make", "message"), REFUSED)
def test_a_function_that_no_model_could_call_is_refused(make, message) -> None:
    with pytest.raises(DeclarationError) as refused:
        make()
    assert str(refused.value).startswith(message)


SETTINGS = [
    {"tool_server": ("web_search=http://127.0.0.1:8001/mcp",)},
    {"tool_timeout": 5},
    {"code_interpreter": True},
    {"web_search": "brave"},
    {"allow_mcp_host": ("*",)},
]


@for_each("settings", SETTINGS)
def test_settings_of_the_tools_that_are_replaced_are_refused(settings) -> None:
    with pytest.raises(SettingsError) as refused:
        build(Settings(**settings), EmbeddedEngine(), tools=ToolServers())
    (name,) = settings
    assert str(refused.value) == f"{name}: build got 'tools', which it does not change: give it to ToolServers instead"
