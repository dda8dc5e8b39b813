"""Third-party clients, each in its own process, against real servers: a client calls a tool and uses its answer."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from clients.hosts import HERE, OURS, ROOT, SETTINGS, run, slow_server

from interlock.parsers.families.reference_encoders import WrittenItem
from interlock.serving.build import build
from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
from interlock.serving.http.server import ServerThread

NODE = ["node", "node_clients.mjs"]
COMPLY = str(ROOT / ".venv-clients" / "bin" / "llm-comply")
PYTHON, ADK, AGENTS, CREWAI, OPENHANDS = (
    [str(ROOT / f".venv-{name}" / "bin" / "python"), "python_clients.py"]
    for name in ("clients", "adk", "agents", "crewai", "openhands")
)

SCRIPTS = {
    "openai-node": [*NODE, "openai"],
    "the Agents SDK for JavaScript": [*NODE, "agents"],
    "the AI SDK, @ai-sdk/openai": [*NODE, "aiSdk", "openai"],
    "the AI SDK, @ai-sdk/open-responses": [*NODE, "aiSdk", "open-responses"],
    "the Agents SDK for Python": [*PYTHON, "agents_sdk"],
    "LangChain": [*PYTHON, "langchain_agent"],
    "Pydantic AI": [*PYTHON, "pydantic_ai"],
    "LiteLLM": [*ADK, "litellm_responses"],
}
MESSAGES = {
    "anthropic for Python": [*PYTHON, "anthropic_messages"],
    "@anthropic-ai/sdk": [*NODE, "anthropic"],
    "the AI SDK, @ai-sdk/anthropic": [*NODE, "aiSdk", "anthropic"],
    "LangChain, anthropic": [*PYTHON, "langchain_agent", "anthropic"],
    "LiteLLM, anthropic": [*ADK, "litellm_messages"],
}
CHAT = {
    "openai for Python, chat": [*PYTHON, "openai_chat"],
    "openai-node, chat": [*NODE, "openaiChat"],
    "LangChain, chat": [*PYTHON, "langchain_agent", "chat"],
}
OTHERS = {
    "the tool runner of anthropic for Python": [*PYTHON, "anthropic_runner"],
    "the tool runner of @anthropic-ai/sdk": [*NODE, "anthropicRunner"],
    **{
        f"the AI SDK {version}, {api}": [*NODE, "aiSdk", api, version]
        for version in ("5", "6")
        for api in ("openai", "chat", "anthropic")
    },
    "CrewAI": [*CREWAI, "crewai"],
    "instructor": [*AGENTS, "instructor_chat"],
    "LlamaIndex": [*AGENTS, "llama_index"],
    "smolagents": [*AGENTS, "smolagents"],
    "Google's ADK": [*ADK, "google_adk"],
    "OpenHands": [*OPENHANDS, "openhands"],
    "Strands, chat": [*AGENTS, "strands"],
    "Strands, anthropic": [*AGENTS, "strands", "anthropic"],
}
"""Clients that use the packages above, and older versions of them."""
FORGETFUL = ("openai-node, chat", "LangChain, chat")
"""Clients that do not send all reasoning back: of an unknown field, they keep only the last delta, or none."""
EVERY_CLIENT = pytest.mark.parametrize("command", SCRIPTS.values(), ids=SCRIPTS)


def output_text(ran):
    assert (ran.returncode, ran.stderr if ran.returncode else "") == (0, "")
    result = json.loads(ran.stdout.splitlines()[-1])
    return {**result, "answer": result["answer"].strip()}  # vLLM's own parsers leave line breaks after reasoning


ALL = {**SCRIPTS, **MESSAGES, **CHAT, **OTHERS}


@pytest.mark.parametrize("command", ALL.values(), ids=ALL)
def test_a_client_calls_a_tool_and_uses_its_answer(command):
    if command[:1] == OPENHANDS[:1] and not Path(command[0]).exists():
        pytest.skip("no Python 3.12")
    with ServerThread(build(SETTINGS, EmbeddedEngine())) as url:
        ran = run(command, HERE, BASE_URL=f"{url}/v1", MODEL=MODEL)
    assert output_text(ran) == {"calls": [{"city": "Berlin"}], "answer": "get_weather says: 18 °C and sunny"}


@pytest.mark.parametrize("command", [*SCRIPTS.values(), *MESSAGES.values(), *CHAT.values()], ids=[*SCRIPTS, *MESSAGES, *CHAT])
def test_a_client_ignores_a_keep_alive_before_every_token(command):
    with slow_server() as (url, count_breaks):
        ran = run(command, HERE, BASE_URL=f"{url}/v1", MODEL=MODEL)
    assert output_text(ran) == {"calls": [{"city": "Berlin"}], "answer": "get_weather says: 18 °C and sunny"}
    assert (count_breaks() > 10) is (command != SCRIPTS["LiteLLM"])  # which streams the whole answer of an unknown model itself


def test_the_example_agent_calls_its_tool_and_prints_the_answer(tmp_path):
    (tmp_path / "node_modules").symlink_to(HERE / "node_modules")
    shutil.copy(ROOT / "examples" / "agent.mjs", tmp_path)
    with ServerThread(build(SETTINGS, EmbeddedEngine())) as url:
        variables = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none", "MODEL": MODEL}
        ran = run(["node", "agent.mjs"], tmp_path, **variables)
    assert (ran.stdout, ran.stderr) == (
        'I\'ll call get_weather.\nget_weather {"city": "Berlin"}\nget_weather says: 18 °C and sunny in Berlin\n',
        "",
    )


def test_the_example_of_tests_passes(tmp_path):
    (tmp_path / "node_modules").symlink_to(HERE / "node_modules")
    for name in ("agent.mjs", "mock.mjs", "agent.test.mjs"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    interlock = str(Path(sys.executable).with_name("interlock"))
    ran = run(["node", "--test", "--test-reporter=tap", "agent.test.mjs"], tmp_path, INTERLOCK=interlock)
    assert (ran.returncode, "# tests 3\n" in ran.stdout) == (0, True), ran.stdout


TURNS = [
    [WrittenItem("reasoning", "I look."), WrittenItem("call", '{"city": "Berlin"}', "get_weather")],
    [WrittenItem("reasoning", "I know."), WrittenItem("message", "It is warm.")],
]


@EVERY_CLIENT
def test_the_next_prompt_has_the_call_and_the_output_that_a_client_sends_back(command, host):
    with host(TURNS) as played:
        ran = run(command, HERE, BASE_URL=f"{played.url}/v1", MODEL=played.model)
        assert output_text(ran) == {"calls": [{"city": "Berlin"}], "answer": "It is warm."}
        _, last = played.prompts()
    question, call, answer = (last.rindex(text) for text in ("Get the weather of: Berlin", "get_weather", "18 °C and sunny"))
    assert question < answer
    assert call < answer


@pytest.mark.parametrize("name", ["the AI SDK, @ai-sdk/openai", "the Agents SDK for Python"])
def test_the_next_prompt_has_the_reasoning_of_an_unstored_response(name, host):
    with host(TURNS) as played:
        ran = run(SCRIPTS[name], HERE, BASE_URL=f"{played.url}/v1", MODEL="gpt-5.5", STORE="no")
        assert output_text(ran) == {"calls": [{"city": "Berlin"}], "answer": "It is warm."}
        _, last = played.prompts()
    recalled = [] if played.recalls == "none" else ["I look."]
    assert last.count("I look.") == len(recalled)
    places = [last.rindex(text) for text in ("Get the weather of: Berlin", *recalled, "get_weather", "18 °C and sunny")]
    assert places == sorted(places)


@pytest.mark.parametrize("host", OURS, indirect=True)
@pytest.mark.parametrize("name", [*MESSAGES, *CHAT])
def test_the_next_prompt_has_the_items_that_a_client_of_another_api_sends_back(name, host):
    with host(TURNS) as played:
        ran = run({**MESSAGES, **CHAT}[name], HERE, BASE_URL=f"{played.url}/v1", MODEL=played.model)
        assert output_text(ran) == {"calls": [{"city": "Berlin"}], "answer": "It is warm."}
        _, last = played.prompts()
    recalled = [] if name in FORGETFUL else ["I look."]
    assert last.count("I look.") == len(recalled)
    places = [last.rindex(text) for text in ("Get the weather of: Berlin", *recalled, "get_weather", "18 °C and sunny")]
    assert places == sorted(places)


DROPPED = {"id", "signature", "created", "index", "parsed", "parsed_arguments"}
"""Fields that differ between two answers, or that the helpers of `openai` add."""


def comparable(value, dropped):
    """Return an answer without these fields, nulls and empty lists, which a stream lacks."""
    if isinstance(value, list):
        return [comparable(each, dropped) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: comparable(each, dropped) for name, each in value.items() if name not in dropped and each not in (None, [])}


@pytest.mark.parametrize(
    ("command", "dropped"),
    [
        ([*PYTHON, "whole_answers"], DROPPED),
        ([*NODE, "wholeAnswers"], DROPPED | {"reasoning", "reasoning_content"}),
    ],
    ids=["Python", "Node"],
)
def test_the_accumulated_stream_of_an_sdk_equals_the_complete_answer(command, dropped):
    with ServerThread(build(SETTINGS, EmbeddedEngine())) as url:
        ran = run(command, HERE, BASE_URL=f"{url}/v1", MODEL=MODEL)
    assert ran.returncode == 0, ran.stderr
    pairs = [[comparable(each, dropped) for each in pair] for pair in json.loads(ran.stdout)["answer"]]
    assert [whole for _, whole in pairs] == [streamed for streamed, _ in pairs]
    assert [whole.get("stop_reason") for _, whole in pairs] == ["end_turn", "tool_use", None, None]


SUITES = {
    "open-responses": ("gpt-5", 13, 0),
    "openai-chat": ("gpt-5", 9, 0),
    "anthropic": ("claude-opus-4", 4, 5),
}
"""The formats of llm-comply, with a model name for which it skips no test, and how many of its tests pass and fail."""
WITHOUT_CITATIONS = re.compile(
    r"content\.1: \{'type': 'text', 'text': .*\} is not valid under any of the given schemas", re.DOTALL
)
"""The error for a text without `citations`, like most of Anthropic's; AI SDK 5 and 6 refuse the null that the suite expects."""


@pytest.mark.parametrize("suite", SUITES)
def test_the_tests_of_llm_comply_pass_except_for_missing_citations(suite):
    model, passed, failed = SUITES[suite]
    command = [COMPLY, "run", "-k", "none", "-m", model, "--format", suite, "--json"]
    with ServerThread(build(SETTINGS, EmbeddedEngine((model,)))) as url:
        ran = run([*command, "-u", f"{url}/v1", "-H", "OpenResponses-Version:2026-04-24"], HERE)
    comply = json.loads(ran.stdout)
    assert comply["summary"] == {"total": passed + failed, "passed": passed, "failed": failed, "skipped": 0}, ran.stdout
    errors = [error for each in comply["results"] for error in each.get("errors", ())]
    assert [error for error in errors if not WITHOUT_CITATIONS.fullmatch(error)] == []
