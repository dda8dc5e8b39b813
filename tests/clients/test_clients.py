"""Real clients of other people, each in a process of its own, against a real server: a tool is called and its answer used."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from attrs import field, frozen
from live.engines import steps

from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
from interlock.serving.engines.script import ScriptedEngine
from interlock.serving.http.app import create_app
from interlock.serving.http.server import ServerThread

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PATIENCE = 300
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


def run(command, cwd, **variables):
    return subprocess.run(  # noqa: S603 - commands of this file
        command,
        cwd=cwd,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize("command", SCRIPTS.values(), ids=SCRIPTS)
def test_a_client_calls_a_tool_and_uses_its_answer(command) -> None:
    with ServerThread(create_app(EmbeddedEngine())) as url:
        ran = run(command, HERE, BASE_URL=f"{url}/v1", MODEL=MODEL)
    assert (ran.returncode, ran.stderr if ran.returncode else "") == (0, "")
    assert json.loads(ran.stdout.splitlines()[-1]) == {
        "calls": [{"city": "Berlin"}],
        "text": "get_weather says: 18 °C and sunny",
    }


def call(function, arguments):
    """A turn of a model that writes harmony: a thought, and a call."""
    thought = "<|channel|>analysis<|message|>I go on.<|end|><|start|>assistant"
    return steps(f"{thought}<|channel|>commentary to=functions.{function} <|constrain|>json<|message|>{json.dumps(arguments)}")


PATCH = """apply_patch <<'PATCH'
*** Begin Patch
*** Update File: notes.txt
@@
-helo
+hello
*** End Patch
PATCH
"""

TURNS = [
    call("exec_command", {"cmd": "cat notes.txt"}),
    call("exec_command", {"cmd": PATCH}),
    call("multi_agent_v1__close_agent", {"target": "nobody"}),
    call("exec_command", {"cmd": "wc -c notes.txt"}),
    steps("<|channel|>final<|message|>The greeting is spelled right now."),
]


@frozen
class Listening(ScriptedEngine):
    """Remembers the conversation that each turn was asked to continue."""

    heard: list = field(factory=list, kw_only=True)

    async def generate(self, turn):
        self.heard.append(turn.items)
        async for output in super().generate(turn):
            yield output


def outputs(items):
    return [item["output"] for item in items if item["type"] == "function_call_output"]


def test_codex_reads_patches_runs_and_uses_its_agents_in_several_turns(tmp_path) -> None:
    home, folder = tmp_path / "home", tmp_path / "folder"
    for each in (home, folder):
        each.mkdir()
    (folder / "notes.txt").write_text("helo\n")
    engine = Listening(TURNS, models=("gpt-oss",))
    with ServerThread(create_app(engine)) as url:
        (home / "config.toml").write_text(
            f'model = "gpt-oss"\nmodel_provider = "interlock"\n'
            f'[model_providers.interlock]\nname = "Interlock"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
        )
        codex = [str(HERE / "node_modules" / ".bin" / "codex"), "exec", "--skip-git-repo-check"]
        ran = run([*codex, "--dangerously-bypass-approvals-and-sandbox", "Mend the greeting."], folder, CODEX_HOME=str(home))
    assert (ran.returncode, ran.stdout.strip().splitlines()[-1:]) == (0, ["The greeting is spelled right now."]), ran.stderr
    assert (folder / "notes.txt").read_text() == "hello\n"
    read, patched, closed, counted = outputs(engine.heard[-1])
    assert "helo" in read
    assert "Success" in patched
    assert "nobody" in closed
    assert "6 notes.txt" in counted
