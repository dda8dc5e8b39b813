"""A whole agent turn: the command, the embedded engine and the example's tools, as a user would start them."""

import asyncio
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from time import monotonic

import httpx
import pytest
from click.testing import CliRunner
from for_each import for_each
from live.mcp_servers import Workshop, running
from live.wire import bodies
from openai import OpenAI

from interlock.serving import build as building
from interlock.serving.build import build
from interlock.serving.cli.commands import app
from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
from interlock.serving.http import server
from interlock.serving.settings import Settings
from interlock.serving.tools.address import AddressPolicy
from interlock.serving.tools.hosting import ToolServers

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def example():
    """The example's module."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        spec = importlib.util.spec_from_file_location("tool_server", EXAMPLES / "tool_server.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(EXAMPLES))


@pytest.fixture(scope="module")
def tools(example):
    """The URL of the example's server."""
    with running(example.server.streamable_http_app()) as base:
        yield f"{base}/mcp"


@pytest.fixture
def url(tools, serve):
    """The URL of a server that uses the example's tools."""
    by = ToolServers({"code_interpreter": tools, "web_search": tools}, AddressPolicy.of(["127.0.0.1"]))
    with serve(EmbeddedEngine(), tools=by) as url:
        yield url


QUESTION = "Search for railway interlocking, calculate 6 * 7, and tell me the next departures to: Paris"
INCLUDE = ["code_interpreter_call.outputs", "web_search_call.action.sources"]


def offered(url, **members):
    rail = {"type": "mcp", "server_label": "rail", "server_url": url, "require_approval": "never"}
    rail["allowed_tools"] = ["departures"]
    return [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}, {**rail, **members}]


def test_one_request_uses_all_its_tools_and_passes_interlock_check(url, tools, tmp_path) -> None:
    body = {"model": MODEL, "input": QUESTION, "include": INCLUDE, "tools": offered(tools), "stream": True}
    stream = httpx.post(f"{url}/v1/responses", json=body, timeout=30).content
    (tmp_path / "turn.sse").write_bytes(stream)
    checked = CliRunner().invoke(app, ["check", str(tmp_path / "turn.sse")])
    assert (checked.exit_code, checked.output.split(":")[0]) == (0, "legal")
    output = bodies(stream)[-1]["response"]["output"]
    kinds = ["mcp_list_tools", "reasoning", "message", "web_search_call", "code_interpreter_call", "mcp_call"]
    assert [item["type"] for item in output] == [*kinds, "reasoning", "message"]
    search, code, call = output[3:6]
    assert search["action"]["sources"][0]["url"] == "https://library.example/interlocking"
    assert (code["code"], code["outputs"][0]["logs"]) == ("print(6 * 7)", "42\n")
    assert call["output"] == "The next train to Paris departs at 10:24 from platform 5."


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_page_about_tools_shows_the_real_stream(url, tools) -> None:
    page = (EXAMPLES.parent / "docs" / "guides" / "tools.md").read_text()
    command, output = re.search(r"```console\n\$ (.*?delta)\n(.*?)```", page, re.DOTALL).groups()
    command = command.replace("http://127.0.0.1:8000", url).replace("http://127.0.0.1:8001/mcp", tools)
    printed = subprocess.run(["bash", "-c", command], capture_output=True, check=True, text=True).stdout  # noqa: S603, S607 - our own text
    assert sorted(printed.splitlines()) == sorted(output.splitlines())
    body = {"model": MODEL, "input": QUESTION, "tools": offered(tools)}
    assert httpx.post(f"{url}/v1/responses", json=body).json()["output"][-1]["content"][0]["text"] in page


def test_each_completed_event_comes_after_its_tool_has_ended(serve) -> None:
    shop = Workshop()
    with running(shop.server().streamable_http_app()) as base:
        tools = f"{base}/mcp"
        by = ToolServers({"code_interpreter": tools, "web_search": tools}, AddressPolicy.of(["127.0.0.1"]))
        body = {"model": MODEL, "stream": True, "input": "Search the news, calculate 6 * 7, and echo the text: Hi"}
        body["tools"] = offered(tools, allowed_tools=["echo"])
        times = {}
        with serve(EmbeddedEngine(), tools=by) as url, httpx.stream("POST", f"{url}/v1/responses", json=body) as stream:
            for line in stream.iter_lines():
                if line.startswith("event: "):
                    times[line.removeprefix("event: response.")] = monotonic()
    assert shop.ended["search"] < times["web_search_call.completed"]
    assert shop.ended["python"] < times["code_interpreter_call.completed"]
    assert shop.ended["echo"] < times["mcp_call.completed"]


def test_only_an_approved_call_runs_in_the_next_response(url, tools) -> None:
    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    tool = offered(tools, require_approval="always")[2:]
    first = client.responses.create(model=MODEL, input="The next departures to: Berlin", tools=tool)
    question = first.output[-1]
    assert (question.type, question.name, question.arguments) == ("mcp_approval_request", "departures", '{"city": "Berlin"}')

    def answer(approve):
        reply = {"type": "mcp_approval_response", "approval_request_id": question.id, "approve": approve}
        return client.responses.create(model=MODEL, input=[reply], tools=tool, previous_response_id=first.id)

    approved = answer(approve=True)
    assert [item.type for item in approved.output] == ["mcp_call", "reasoning", "message"]
    assert approved.output[0].output == "The next train to Berlin departs at 11:40 from platform 1."
    assert "11:40" in approved.output_text
    refused = answer(approve=False)
    assert [item.type for item in refused.output] == ["reasoning", "message"]
    assert refused.output_text.startswith("You said: ")


def test_parallel_tool_calls_can_be_disabled(url, tools) -> None:
    body = {"model": MODEL, "input": QUESTION, "tools": offered(tools), "parallel_tool_calls": False}
    output = httpx.post(f"{url}/v1/responses", json=body, timeout=30).json()["output"]
    assert [item["type"] for item in output if item["type"].endswith("call")] == ["web_search_call"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--tool-server", "nonsense"],
            "--tool-server: nonsense: write NAME=URL, where NAME is one of code_interpreter, web_search",
        ),
        (["--tool-server", "python=http://a"], "--tool-server: python=http://a: write NAME=URL"),
        (["--tool-server", "web_search=a"], "--tool-server: web_search=a: write NAME=URL"),
        (["--allow-mcp-host", "10.0.0.0/99"], "--allow-mcp-host: '10.0.0.0/99' does not appear to be"),
    ],
)
def test_invalid_options_are_refused(arguments, message) -> None:
    ran = CliRunner().invoke(app, ["serve", *arguments])
    assert (ran.exit_code, message in ran.output) == (2, True)


def test_the_command_passes_its_tool_options_to_the_server(monkeypatch) -> None:
    runners, application = [], build(Settings(), EmbeddedEngine())
    monkeypatch.setattr(building, "compose", lambda _settings, _engine, tools: runners.append(tools) or application)
    for name in ("listen", "serve", "url_of"):
        monkeypatch.setattr(server, name, lambda *_, **__: None)
    options = ["--tool-server", "web_search=http://a/mcp", "--allow-mcp-host", "b.example", "--tool-timeout", "3"]
    ran = CliRunner().invoke(app, ["serve", *options])
    assert (ran.exit_code, ran.output) == (0, "")
    assert runners == [ToolServers({"web_search": "http://a/mcp"}, AddressPolicy.of(["b.example"]), 3.0)]


@pytest.fixture
def python(example):
    """Run a program as the example does."""

    def run(code):
        try:
            return asyncio.run(example.python(code))
        except example.ToolError as error:
            return str(error)

    return run


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("print(6 * 7)", "42\n"),
        ("2 ** 10", "1024\n"),
        ("total = 0\nfor n in range(5):\n    total += n\nprint(total, sep='')", "10\n"),
        (r"print('\ud800')", "\\ud800\n"),
        ("1 / 0", "ZeroDivisionError: division by zero\n"),
        ("'a' * 10 ** 9", "MemoryError: \n"),
        ("print('x' * 20_000)", "x" * 10_000 + "ValueError: a program may print 10000 characters\n"),
        ("for n in range(10 ** 12):\n    pass", "The program was stopped: it needed too much time or memory."),
    ],
)
def test_the_examples_python_runs_harmless_code(python, code, printed) -> None:
    assert python(code) == printed


@for_each(
    "code",
    [
        "import os",
        "().__class__",
        "__builtins__",
        "open('/etc/passwd')",
        "eval('1')",
        "(lambda: 1)()",
        "[n for n in (1,)]",
        "'a'[0]",
        "f'{1 .real}'",
        "9 ** 9 ** 9",
        "n = 9\nn **= 9999",
        "9" * 21,
        "def f(): pass",
        "while True: pass",
        "1 +",
        "(" * 300 + ")" * 300,
        "x" * 5_000,
    ],
)
def test_the_examples_python_refuses_other_code(example, code) -> None:
    assert example.refusal(code)


def test_the_examples_library_is_searched_and_read(example) -> None:
    assert example.search("a lever").startswith("[1] Lever frame (https://library.example/lever-frame)\nL0: ")
    assert example.search("xyzzy") == "Nothing was found for 'xyzzy'."
    lever = example.LIBRARY[1].shown(1)
    assert [example.open_page(id=1), example.open_page(cursor=1), example.open_page(id=example.LIBRARY[1].url)] == [lever] * 3
    assert example.find("saxby", 1).splitlines()[1].startswith("L1: John Saxby")
    assert example.find("xyzzy", 1).splitlines()[1] == "'xyzzy' is not on this page."
    for page in (9, "https://elsewhere.example"):
        with pytest.raises(example.ToolError, match="There is no page"):
            example.open_page(id=page)
