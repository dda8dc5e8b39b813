"""An unmodified Codex with its multi-agent tools: it reads, patches, runs commands and continues a session, in every host."""

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from clients import hosts
from clients.hosts import HERE, ROOT, run
from live.ports import free_port

from interlock.parsers.families.reference_encoders import WrittenItem
from interlock.serving.engines.embedded import MODEL
from interlock.serving.engines.harmony_tokens import encoding
from interlock.serving.settings import ModelFacts

PAGE = (ROOT / "docs" / "guides" / "agents.md").read_text()
CODEX = [str(HERE / "node_modules" / ".bin" / "codex"), "exec"]
FREELY = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]

PATCH = """*** Begin Patch
*** Update File: notes.txt
@@
-helo
+hello
*** End Patch
"""
IN_A_SHELL = f"apply_patch <<'PATCH'\n{PATCH}PATCH\n"


def call(name, **arguments):
    """Return a turn of the model: a thought, and a call."""
    return [WrittenItem("reasoning", "I go on."), WrittenItem("call", json.dumps(arguments), name)]


def answer(text):
    """Return the last turn of the model: a thought, and an answer."""
    return [WrittenItem("reasoning", "I am done."), WrittenItem("message", text)]


TURNS = [
    call("exec_command", cmd="cat notes.txt"),
    call("exec_command", cmd=IN_A_SHELL),
    call("multi_agent_v1__close_agent", target="nobody"),
    call("exec_command", cmd="wc -c notes.txt"),
    answer("The greeting is spelled right now."),
    call("exec_command", cmd="tr a-z A-Z < notes.txt"),
    answer("It is louder now."),
]


@pytest.fixture
def folder(tmp_path):
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "work" / "notes.txt").write_text("helo\n")
    return tmp_path


def configure(folder, played, more=""):
    catalog = fetch_catalog(folder, played.url)
    (folder / "home" / "config.toml").write_text(
        f'model = "{played.model}"\nmodel_provider = "interlock"\nmodel_catalog_json = "{catalog}"\n{more}\n{provider(played)}'
    )


def provider(played):
    return f'[model_providers.interlock]\nname = "Interlock"\nbase_url = "{played.url}/v1"\nwire_api = "responses"\n'


def fetch_catalog(folder, url):
    path = folder / "home" / "interlock.json"
    path.write_bytes(httpx.get(f"{url}/v1/models").content)
    return path


def codex(folder, *arguments):
    """Run Codex, and return the last line that it prints."""
    ran = run([*CODEX, *arguments], folder / "work", CODEX_HOME=str(folder / "home"))
    assert ran.returncode == 0, ran.stderr
    assert "warning" not in ran.stderr
    return ran.stdout.strip().splitlines()[-1]


def test_codex_reads_patches_runs_uses_its_agents_and_continues_a_session(folder, host):
    with host(TURNS) as played:
        configure(folder, played)
        assert codex(folder, *FREELY, "Mend the greeting.") == "The greeting is spelled right now."
        assert (folder / "work" / "notes.txt").read_text() == "hello\n"
        assert codex(folder, "resume", "--last", *FREELY, "Shout it.") == "It is louder now."
        prompts = played.prompts()
    assert len(prompts) == len(TURNS)
    phrases = ["Mend the greeting.", "helo\n", "Success. Updated", "nobody", "6 notes.txt", "spelled right", "Shout it.", "HELLO"]
    places = [prompts[-1].rindex(text) for text in phrases]
    assert places == sorted(places)
    recalled = {"all": [0, 1, 2, 3, 4, 4, 5], "question": [0, 1, 2, 3, 4, 0, 1], "none": [0] * len(TURNS)}
    assert [prompt.count("I go on.") for prompt in prompts] == recalled[played.recalls]


def test_codex_ignores_a_keep_alive_before_every_token(folder):
    with hosts.slow_server() as (url, count_breaks):
        config = block("toml", "model_provider").replace("http://127.0.0.1:8000", url)
        (folder / "home" / "config.toml").write_text(config)
        fetch_catalog(folder, url)
        assert codex(folder, *FREELY, "--model", MODEL, prompt_of_page()) == "notes.txt"
    assert count_breaks() > 10


FULL = 6_000
"""The tokens at which Codex compacts: more than its first prompt has, fewer than a prompt with a long output has."""
LONG = [
    call("exec_command", cmd="seq 1 8000"),
    answer("We count. The numbers end with 8000."),  # what Codex asks for when its context is full
    call("exec_command", cmd="echo $((8000 + 1))"),
    answer("The next number is 8001."),
]


def test_codex_compacts_a_long_session_and_continues_from_the_summary(folder, host):
    with host(LONG) as played:
        configure(folder, played, more=f"model_auto_compact_token_limit = {FULL}")
        assert codex(folder, *FREELY, "Count on.") == "The next number is 8001."
        prompts = played.prompts()
    assert len(prompts) == len(LONG)
    assert ["7999" in prompt for prompt in prompts] == [False, True, False, False]
    places = [prompts[-1].rindex(text) for text in ("Count on.", "The numbers end with 8000.", "8001\n")]
    assert places == sorted(places)


WINDOW = 20_000
SUMMARY = "We counted to 8000 again and again."


def count_on(prompt):
    """Return the next turn of the model: it counts until its context is full, and then writes a summary."""
    if SUMMARY in prompt:
        return answer("That is enough.")
    if "CONTEXT CHECKPOINT COMPACTION" in prompt:
        return answer(SUMMARY)
    return call("exec_command", cmd="seq 1 8000")


@pytest.mark.parametrize("front", [hosts.standalone, hosts.over_chat])
def test_codex_compacts_at_three_quarters_of_the_listed_window(folder, front):
    with front(count_on, ModelFacts(window=WINDOW)) as played:
        configure(folder, played)
        assert codex(folder, *FREELY, "Count on.") == "That is enough."
        prompts = played.prompts()
    sizes = [len(encoding().encode(prompt, allowed_special="all")) for prompt in prompts]
    *counting, full, compacting, last = sizes
    assert (len(counting) > 2, SUMMARY in prompts[-1]) == (True, True)
    assert max(*counting, last) < WINDOW * 3 / 4 < min(full, compacting) < WINDOW


KNOWN = [
    call("tool_search", query="close agent"),
    call("multi_agent_v1__close_agent", target="nobody"),
    call("apply_patch", input=PATCH),
    answer("It is right now."),
]


def test_codex_uses_tool_search_and_free_text_patches_with_a_known_model_name(folder, host):
    with host(KNOWN) as played:
        known = f'model = "gpt-5.5"\nmodel_provider = "interlock"\n{provider(played)}'
        (folder / "home" / "config.toml").write_text(known)
        assert codex(folder, *FREELY, "Mend the greeting.") == "It is right now."
        assert (folder / "work" / "notes.txt").read_text() == "hello\n"
        last = played.prompts()[-1]
    assert len(played.prompts()) == len(KNOWN)
    places = [last.rindex(text) for text in ("multi_agent_v1", "invalid agent id nobody", "Success. Updated")]
    assert places == sorted(places)


def block(language, holding):
    (example,) = (text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if holding in text)
    return example


def prompt_of_page():
    """Return the prompt for Codex on the page."""
    (prompt,) = re.findall(r'codex exec --skip-git-repo-check "(.*)"', block("sh", "codex exec"))
    return prompt


def test_codex_works_with_the_configuration_on_the_page(folder, host):
    with host([call("exec_command", cmd="ls"), answer("It has notes.")]) as played:
        config = block("toml", "model_provider").replace("http://127.0.0.1:8000", played.url)
        (folder / "home" / "config.toml").write_text(config)
        fetch_catalog(folder, played.url)
        assert codex(folder, *FREELY, prompt_of_page()) == "It has notes."
        assert "notes.txt" in played.prompts()[-1]


@pytest.fixture
def served():
    """Run the command on the page at a free port, and return the URL of the server."""
    (command,) = re.findall(r"^interlock (serve .*--model .*)$", block("sh", "--model openai/gpt-oss-20b"), re.MULTILINE)
    port = free_port()
    interlock = str(Path(sys.executable).with_name("interlock"))
    with subprocess.Popen([interlock, *command.split(), "--port", str(port), "--keep-alive", str(hosts.KEEP_ALIVE)]) as process:  # noqa: S603 - our own text
        url = f"http://127.0.0.1:{port}"
        try:
            _wait(process, url)
            yield url
        finally:
            process.terminate()


def _wait(process, url):
    while process.poll() is None:
        try:
            httpx.get(f"{url}/health").raise_for_status()
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("interlock serve ended")


def test_codex_works_with_the_commands_on_the_page_without_a_model(folder, served):
    config = block("toml", "model_provider").replace("http://127.0.0.1:8000", served)
    (folder / "home" / "config.toml").write_text(config)
    download = re.search(r"^curl .*$", block("sh", "/v1/models"), re.MULTILINE)[0].replace("http://127.0.0.1:8000", served)
    subprocess.run(shlex.split(download.replace("~/.codex", str(folder / "home"))), check=True)  # noqa: S603 - our own text
    assert codex(folder, *FREELY, prompt_of_page()) == "notes.txt"
