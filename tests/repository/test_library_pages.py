"""The code on the pages of the library runs, and prints the output on the pages."""

import ast
import asyncio
import json
import re
import runpy
import shutil
import subprocess
import sys
from contextvars import ContextVar
from pathlib import Path

import httpx
import pytest
from openai import OpenAI, RateLimitError
from starlette.applications import Starlette
from starlette.testclient import TestClient

import interlock
import interlock.fsm
from interlock.serve import ApiError
from interlock.serving.build import build
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http.app import NO_LIFESPAN
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings
from interlock.testing import assert_legal

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "docs" / "library"
ENGINE_PAGE = (LIBRARY / "engine.md").read_text("utf-8")
SOURCE = ROOT / "src" / "interlock"
FOLDERS = re.findall(r"^\| \[`(\w+)/`\]", ENGINE_PAGE, re.MULTILINE)
MODULES = ["__init__.py", "embedding.py", "lazy.py"]


def test_the_code_of_the_engine_page_runs_with_only_the_named_files(tmp_path) -> None:
    package = tmp_path / "interlock"
    for folder in FOLDERS:
        shutil.copytree(SOURCE / folder, package / folder)
    for module in MODULES:
        shutil.copy(SOURCE / module, package / module)
    code = "\n".join(each for each in re.findall(r"```python\n(.*?)```", ENGINE_PAGE, re.DOTALL) if "\ndef test_" not in each)
    shown = "".join(re.findall(r"```text\n(Open\(.*?|    function.*?)```", ENGINE_PAGE, re.DOTALL))
    done = subprocess.run(  # noqa: S603 - our own text
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (shown, "")


def test_the_test_of_the_engine_page_passes_if_the_server_sends_legal_streams() -> None:
    (code,) = (each for each in re.findall(r"```python\n(.*?)```", ENGINE_PAGE, re.DOTALL) if "\ndef test_" in each)
    names = {}
    exec(code.replace("openai/gpt-oss-20b", "interlock-embedded"), names)  # noqa: S102 - our own text
    with ServerThread(build(Settings(), EmbeddedEngine())) as url:
        names["test_a_stream_is_legal"](url)
        with pytest.raises(AssertionError, match="this is an error of the server, not a stream: "):
            names["test_a_stream_is_legal"](f"{url}/nowhere")


def test_the_named_files_import_only_the_named_packages() -> None:
    paths = [SOURCE / module for module in MODULES] + [path for folder in FOLDERS for path in (SOURCE / folder).rglob("*.py")]
    imported = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else names
            imported |= {name.partition(".")[0] for name in names}
    optional = {"openai", "transitions", "openai_harmony"}  # imported by a conversion or a format, when it is asked for
    assert imported - {*sys.stdlib_module_names, "interlock"} - optional == {"attrs", "msgspec", "orjson"}


LINES = """
import sys
from interlock import ChatParser, EventWriter, SseWriter, driver_for
loaded = {name: module.__file__ for name, module in sys.modules.items() if name.startswith("interlock")}
assert not {"interlock.parsers.families", "interlock.parsers.harmony"} & {*loaded}
print(sum(len(open(path, encoding="utf-8").readlines()) for path in loaded.values()))
"""


def test_the_engine_page_counts_the_lines_of_the_whole_and_of_the_first_step() -> None:
    paths = [SOURCE / module for module in MODULES] + [path for folder in FOLDERS for path in (SOURCE / folder).rglob("*.py")]
    whole = sum(len(path.read_text("utf-8").splitlines()) for path in paths)
    first_step = int(subprocess.run([sys.executable, "-c", LINES], capture_output=True, text=True, check=True).stdout)  # noqa: S603
    counts = round(whole, -3), round(first_step, -3)
    stated = [int(each.replace(",", "")) for each in re.findall(r"some (\d+,\d+) lines", ENGINE_PAGE)]
    assert stated == [counts[0], counts[1], counts[0]], "correct the lines that docs/library/engine.md names"


def test_semantic_versions_cover_the_names_that_the_example_imports() -> None:
    tree = ast.parse((ROOT / "examples" / "vllm_events.py").read_text("utf-8"))
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module.startswith("interlock")]
    promise = " ".join((ROOT / "CHANGELOG.md").read_text("utf-8").partition("\n## Versions\n")[2].split())
    covered = {
        module: set(re.findall(r"`(\w+)`", names))
        for names, module in re.findall(r"for ((?:`\w+`|, | and )+) of `([\w.]+)`", promise)
    }
    assert covered == {node.module: {alias.name for alias in node.names} for node in froms}


EMBEDDING_PAGE = (LIBRARY / "embedding.md").read_text("utf-8")


def test_the_code_blocks_of_the_embedding_page_run_in_order() -> None:
    known = {}
    for code in re.findall(r"```python\n(.*?)```", EMBEDDING_PAGE, re.DOTALL):
        exec(code, known)  # noqa: S102 - our own text
    assert known["driver"].response["status"] == "completed"
    assert known["driver"].response["output"][0]["content"][0]["text"] == "It rains."
    assert_legal(known["body"], strict=True)
    assert [known["body"].count(each) for each in (b"It rains.", b"[DONE]", b'"usage":{')] == [1, 1, 1]
    assert (known["status"], json.loads(known["answer"])["choices"][0]["message"]["content"]) == (200, "It rains.")


def test_the_family_of_a_server_of_ones_own_reads_a_call() -> None:
    page = (ROOT / "docs" / "library" / "families.md").read_text("utf-8")
    (code,) = (each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "FamilyParser(" in each)
    exec(code, {})  # noqa: S102 - our own page


def test_a_malformed_search_fails_its_call_and_leaves_a_turn_to_the_model() -> None:
    request = {"model": "m", "input": "Does it rain?", "tools": [{"type": "web_search"}]}
    driver, parser = interlock.driver_for(request), interlock.parser_for(interlock.Tagged("hermes"), request)
    driver.feed([interlock.Start()])
    turns = ['<tool_call>{"name": "web_search", "arguments": {"q": "rain"}}</tool_call>', "It rains."]
    seen = []
    for text in turns:
        driver.feed([*parser.feed(interlock.Chunk(text=text)), *parser.end("stop", interlock.Usage())])
        seen.append((len(driver.ready), len(driver.rejected)))
    driver.feed([interlock.Finish()])
    assert seen == [(0, 1), (0, 1)]
    assert [(item["type"], item["status"]) for item in driver.response["output"]] == [
        ("web_search_call", "failed"),
        ("message", "completed"),
    ]


@pytest.mark.parametrize(("reason", "status"), [("error", "failed"), ("abort", "cancelled"), ("length", "incomplete")])
def test_a_response_that_is_cut_keeps_what_its_parser_held_back(reason, status) -> None:
    driver, plain = interlock.driver_for({}), interlock.parser_for(interlock.Tagged("hermes", "qwen3"), {})
    parser = interlock.StopParser(plain, ["STOP HERE"])
    driver.feed([interlock.Start(), *parser.feed(interlock.Chunk([1, 2, 3], "It rains. STOP HE"))])
    driver.feed(parser.end(reason, interlock.Usage(output_tokens=3)))
    response = driver.response
    assert (response["status"], response["usage"]["output_tokens_details"]) == (status, {"reasoning_tokens": 3})
    assert response["output"][0]["content"][0]["text"] == "It rains. STOP HE"


def test_the_deltas_of_the_embedding_page_are_exported() -> None:
    table = EMBEDDING_PAGE.partition("<!-- generated: all deltas -->")[2].partition("<!-- end -->")[0]
    names = {*re.findall(r"^\| `([A-Z]\w+)`", table, re.MULTILINE)}
    assert (names - {*interlock.__all__}, names - {*interlock.fsm.__all__}) == (set(), set())


ENGINES_PAGE = (LIBRARY / "engines.md").read_text("utf-8")
ASK = {"model": "parrot", "input": "Polly wants a cracker."}


@pytest.fixture
def names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = {}
    for code in re.findall(r"```python\n(.*?)```", ENGINES_PAGE, re.DOTALL):
        exec(code, known)  # noqa: S102 - our own text
    return known


def client_of(url):
    return OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)


def test_the_code_of_the_page_of_engines_prints_the_output_on_the_page(capsys, names):
    assert capsys.readouterr().out == "".join(re.findall(r"```text\n(.*?)```", ENGINES_PAGE, re.DOTALL))
    assert names["guarded"].state.keys.tenants


def test_the_test_on_the_page_of_engines_passes(names):
    (cases,) = names["test_streams_are_legal"].pytestmark
    for case in cases.args[1]:
        names["test_streams_are_legal"](*case)


def test_an_application_that_mounts_the_engine_runs_its_lifespan(names, caplog):
    closed = []

    async def close():
        closed.append(True)

    names["mounted"].api.service.engine.close = close
    with TestClient(names["site"]) as client:
        request = {"model": "parrot", "input": "Ahoy!"}
        refused = client.post("/ai/v1/messages", json=request)
        answer = client.post("/ai/v1/responses", json=request, headers={"authorization": "Bearer one"})
        assert (client.get("/ai/health").status_code, closed) == (200, [])
    assert (refused.status_code, refused.json()["type"], "request-id" in refused.headers) == (401, "error", True)
    assert answer.json()["output"][0]["content"][0]["text"] == "Ahoy! "
    assert (closed, caplog.records) == ([True], [])


@pytest.mark.parametrize(("settings", "status"), [(Settings(), 404), (Settings(api_key=["one"]), 200)])
def test_middleware_around_a_mounted_application_names_the_tenant_unless_a_key_does(names, settings, status):
    user, seen = ContextVar("user"), []

    class Observer(names["Parrot"]):
        async def admit(self, turn):
            del turn
            seen.append(user.get())

        async def generate(self, turn):
            seen.append(user.get())
            async for output in super().generate(turn):
                yield output

    site = Starlette()
    site.mount("/ai", build(settings, Observer()))

    async def with_user(scope, receive, send):
        if scope["type"] == "http":
            scope["interlock.tenant"] = dict(scope["headers"])[b"x-user"].decode()
            user.set(scope["interlock.tenant"])
        await site(scope, receive, send)

    client = TestClient(with_user, headers={"authorization": "Bearer one"})
    created = client.post("/ai/v1/responses", json=ASK, headers={"x-user": "ann"}).json()
    path = f"/ai/v1/responses/{created['id']}"
    assert [client.get(path, headers={"x-user": name}).status_code for name in ("ann", "bob")] == [200, status]
    assert seen == ["ann", "ann"]


def test_the_log_warns_of_a_mounted_application_without_its_lifespan(names, caplog):
    client = TestClient(names["mounted"])
    for _ in range(2):
        assert client.get("/health").status_code == 200
    assert [record.getMessage() for record in caplog.records] == [NO_LIFESPAN]


def test_a_refusal_keeps_its_status_with_and_without_streaming(names):
    with ServerThread(build(Settings(), names["BusyParrot"]())) as url, client_of(url) as client:
        for stream in (False, True):
            with pytest.raises(RateLimitError, match=r"The parrot is asleep\.") as refused:
                client.responses.create(**ASK, stream=stream)
            assert refused.value.status_code == 429
            assert refused.value.response.headers["Retry-After"] == "5"


def test_an_engine_that_is_not_busy_generates_its_turn(names):
    engine = names["BusyParrot"]()
    engine.busy = False
    with ServerThread(build(Settings(), engine)) as url, client_of(url) as client:
        assert client.responses.create(**ASK).output_text == "Polly wants a cracker. "


def test_a_refusal_during_a_response_fails_it_with_the_message(names):
    class Late(names["Parrot"]):
        async def generate(self, turn):
            async for output in super().generate(turn):
                yield output
                raise ApiError(429, "The parrot fell asleep.")

    with ServerThread(build(Settings(), Late())) as url, client_of(url) as client:
        failed = client.responses.create(**ASK)
        assert (failed.status, failed.output_text) == ("failed", "Polly ")
        assert failed.error.to_dict() == {
            "code": "rate_limit_exceeded",
            "message": "The parrot fell asleep.",
            "type": "rate_limit_exceeded",
        }
        with client.responses.create(**ASK, stream=True) as stream:
            assert_legal([event.to_dict(mode="json") for event in stream])


def test_a_refusal_fails_a_background_response(names):
    with ServerThread(build(Settings(), names["BusyParrot"]())) as url, client_of(url) as client:
        with client.responses.create(**ASK, background=True, stream=True) as stream:
            *_, last = stream
        assert (last.type, last.response.error.message) == ("response.failed", "The parrot is asleep.")


EXAMPLE = runpy.run_path(str(ROOT / "examples" / "engine_server.py"))
WEATHER = {"type": "mcp", "server_label": "weather", "require_approval": "never"}
UMBRELLA = {"name": "umbrella", "description": "Opens an umbrella.", "parameters": EXAMPLE["CITY"]}


def ask(path, text, **fields):
    """Return what the example answers without and with streaming, if the stream is legal."""
    asking = {"input": text} if path == "responses" else {"messages": [{"role": "user", "content": text}]}
    body = {"model": "forecaster", **asking, **fields}
    app = build(Settings(), EXAMPLE["Forecaster"](), functions={"weather": [EXAMPLE["FORECAST"]]})

    async def post():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            assert_legal((await client.post(f"/v1/{path}", json={**body, "stream": True})).content)
            return (await client.post(f"/v1/{path}", json=body)).json()

    return asyncio.run(post())


def test_the_example_engine_reasons_and_calls_a_function_of_the_server() -> None:
    answer = ask("responses", "A forecast for Rome", tools=[WEATHER])
    assert [item["type"] for item in answer["output"]] == ["mcp_list_tools", "reasoning", "mcp_call", "reasoning", "message"]
    assert answer["output"][2]["output"] == answer["output"][4]["content"][0]["text"] == "It rains in Rome."
    assert answer["usage"]["output_tokens_details"] == {"reasoning_tokens": 8}


@pytest.mark.parametrize("stop", ["up", "</think>", "\n\n", "city", "</tool_call>"])
def test_a_stop_string_outside_of_the_answer_does_not_end_a_turn_of_the_example(stop) -> None:
    tool = {"type": "function", "function": UMBRELLA}
    (choice,) = ask("chat/completions", "An umbrella for Rome", tools=[tool], stop=[stop])["choices"]
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "umbrella", "arguments": '{"city": "Rome"}'}
    assert choice["finish_reason"] == "tool_calls"


def test_a_stop_string_ends_an_answer_of_the_example() -> None:
    (choice,) = ask("chat/completions", "It rains. END of it", stop=["\n\n", "END"])["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("It rains. ", "stop")


def test_the_model_of_the_example_reads_why_a_function_failed() -> None:
    answer = ask("responses", "A forecast for Paris", tools=[WEATHER], reasoning={"effort": "none"})
    _, call, message = answer["output"]
    assert call["error"]["content"][0]["text"] == "There is no forecast for Paris."
    assert message["content"][0]["text"] == "There is no forecast for Paris."


def test_the_functions_of_the_example_run_for_chat_completions_and_messages() -> None:
    (choice,) = ask("chat/completions", "A forecast for Rome", tools=[WEATHER])["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", "It rains in Rome.")
    servers = [{"type": "url", "name": "weather", "url": "https://unused.example"}]
    tools = [{"type": "mcp_toolset", "mcp_server_name": "weather"}]
    answer = ask("messages", "A forecast for Rome", max_tokens=32, mcp_servers=servers, tools=tools)
    kinds = ["thinking", "mcp_tool_use", "mcp_tool_result", "thinking", "text"]
    assert (answer["stop_reason"], [block["type"] for block in answer["content"]]) == ("end_turn", kinds)


def test_a_function_of_the_client_ends_the_response_of_the_example() -> None:
    (choice,) = ask("chat/completions", "An umbrella in Rome", tools=[{"type": "function", "function": UMBRELLA}])["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], call["function"]) == ("tool_calls", {"name": "umbrella", "arguments": '{"city": "Rome"}'})


def test_the_example_ends_at_stop_strings_and_at_the_limit() -> None:
    answer = ask("messages", "one two END three", max_tokens=32, stop_sequences=["two END"])
    assert (answer["stop_reason"], answer["stop_sequence"], answer["content"][-1]["text"]) == ("stop_sequence", "two END", "one ")
    answer = ask("messages", "one two END three", max_tokens=6)
    assert (answer["stop_reason"], answer["content"][-1]["text"]) == ("max_tokens", "one two ")
    assert answer["usage"]["output_tokens"] == 6


def test_the_example_fails_after_the_text_so_far() -> None:
    answer = ask("responses", "one two fail", reasoning={"effort": "none"})
    (message,) = answer["output"]
    assert (answer["status"], answer["error"]["message"]) == ("failed", "The model was asked to fail.")
    assert (message["status"], message["content"][0]["text"]) == ("incomplete", "one two ")
    for path, fields in (("chat/completions", {}), ("messages", {"max_tokens": 32})):
        assert ask(path, "one two fail", **fields)["error"]["message"] == "The model was asked to fail."
