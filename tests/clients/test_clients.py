"""Real clients of other people, each in a process of its own, against real servers: a tool is called and its answer used."""

import json

import pytest
from clients.running import HERE, ROOT, run

from interlock.parsers.families.reference_encoders import WrittenItem
from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
from interlock.serving.http.app import create_app
from interlock.serving.http.server import ServerThread

NODE = ["node"]
PYTHON = [str(ROOT / ".venv-clients" / "bin" / "python")]
LITELLM = [str(ROOT / ".venv-litellm" / "bin" / "python")]

SCRIPTS = {
    "openai-node": [*NODE, "openai.mjs"],
    "the Agents SDK for JavaScript": [*NODE, "agents.mjs"],
    "the AI SDK, @ai-sdk/openai": [*NODE, "ai_sdk.mjs", "openai"],
    "the AI SDK, @ai-sdk/open-responses": [*NODE, "ai_sdk.mjs", "open-responses"],
    "the Agents SDK for Python": [*PYTHON, "agents_sdk.py"],
    "LangChain": [*PYTHON, "langchain_agent.py"],
    "Pydantic AI": [*PYTHON, "pydantic_agent.py"],
    "LiteLLM": [*LITELLM, "litellm_responses.py"],
}
EVERY_CLIENT = pytest.mark.parametrize("command", SCRIPTS.values(), ids=SCRIPTS)


def output_text(ran):
    assert (ran.returncode, ran.stderr if ran.returncode else "") == (0, "")
    result = json.loads(ran.stdout.splitlines()[-1])
    return {**result, "text": result["text"].strip()}  # vLLM's own parsers leave line breaks after reasoning


@EVERY_CLIENT
def test_a_client_calls_a_tool_and_uses_its_answer(command):
    with ServerThread(create_app(EmbeddedEngine())) as url:
        ran = run(command, HERE, BASE_URL=f"{url}/v1", MODEL=MODEL)
    assert output_text(ran) == {"calls": [{"city": "Berlin"}], "text": "get_weather says: 18 °C and sunny"}


TURNS = [
    [WrittenItem("reasoning", "I look."), WrittenItem("call", '{"city": "Berlin"}', "get_weather")],
    [WrittenItem("reasoning", "I know."), WrittenItem("message", "It is warm.")],
]


@EVERY_CLIENT
def test_what_a_client_sends_back_is_what_the_model_is_given(command, host):
    with host(TURNS) as played:
        ran = run(command, HERE, BASE_URL=f"{played.url}/v1", MODEL=played.model)
        assert output_text(ran) == {"calls": [{"city": "Berlin"}], "text": "It is warm."}
        _, last = played.prompts()
    question, call, answer = (last.rindex(text) for text in ("Get the weather of: Berlin", "get_weather", "18 °C and sunny"))
    assert question < answer
    assert call < answer


@pytest.mark.parametrize("name", ["the AI SDK, @ai-sdk/openai", "the Agents SDK for Python"])
def test_where_nothing_is_stored_the_model_is_given_its_reasoning_again(name, host):
    with host(TURNS) as played:
        ran = run(SCRIPTS[name], HERE, BASE_URL=f"{played.url}/v1", MODEL="gpt-5.5", STORE="no")
        assert output_text(ran) == {"calls": [{"city": "Berlin"}], "text": "It is warm."}
        _, last = played.prompts()
    recalled = [] if played.recalls == "none" else ["I look."]
    assert last.count("I look.") == len(recalled)
    places = [last.rindex(text) for text in ("Get the weather of: Berlin", *recalled, "get_weather", "18 °C and sunny")]
    assert places == sorted(places)
