"""An unmodified Claude Code without a terminal: it reads, edits, runs commands, thinks between calls and continues a session."""

import json
import sys
from pathlib import Path

import pytest
from clients import hosts
from clients.hosts import HERE, run
from clients.test_codex import answer, call
from live.chunk_shapes import chunk
from live.upstream import Reply, ScriptedUpstream, failure, serve_upstream, stream

from interlock.serving.build import build
from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
from interlock.serving.http.server import ServerThread

CLAUDE = HERE / "node_modules" / ".bin" / "claude"
TOOLS = ["--output-format", "stream-json", "--verbose", "--allowedTools", "Bash,Read,Edit"]
INTERLOCK = str(Path(sys.executable).with_name("interlock"))


@pytest.fixture
def folder(tmp_path):
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "work" / "notes.txt").write_text("helo\n")
    return tmp_path


def turns(folder):
    """Return the turns of the model: five calls, one of which fails, and an answer; then another call and answer."""
    notes = str(folder / "work" / "notes.txt")
    return [
        call("Bash", command="cat notes.txt", description="Show the notes"),
        call("Read", file_path=f"{notes}.missing"),
        call("Read", file_path=notes),
        call("Edit", file_path=notes, old_string="helo", new_string="hello"),
        call("Bash", command="wc -c notes.txt"),
        answer("The greeting is spelled right now."),
        call("Bash", command="tr a-z A-Z < notes.txt"),
        answer("It is louder now."),
    ]


def claude(folder, *arguments, command=(str(CLAUDE),), **variables):
    """Run Claude Code, and return what it prints."""
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1"}
    ran = run([*command, *arguments, *TOOLS], folder / "work", HOME=str(folder / "home"), **quiet, **variables)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def served(played):
    return {"ANTHROPIC_BASE_URL": played.url, "ANTHROPIC_API_KEY": "none", "ANTHROPIC_MODEL": played.model}


def transcript(events):
    """Return the blocks of the messages of the model and the tools, as type and content."""
    kept = {"thinking": ("thinking",), "text": ("text",), "tool_use": ("name", "input"), "tool_result": ("content", "is_error")}
    blocks = [block for event in events if event["type"] in ("assistant", "user") for block in event["message"]["content"]]
    return [(block["type"], *(block.get(name) for name in kept[block["type"]])) for block in blocks]


@pytest.mark.parametrize("host", hosts.OF_ALL_APIS, indirect=True)
def test_claude_code_reads_edits_runs_and_continues_a_session(folder, host):
    with host(turns(folder)) as played:
        events = claude(folder, "-p", "Mend the greeting.", **served(played))
        assert (folder / "work" / "notes.txt").read_text() == "hello\n"
        last = claude(folder, "--continue", "-p", "Shout it.", **served(played))
        prompts = played.prompts()
    notes = str(folder / "work" / "notes.txt")
    missing = f"File does not exist. Note: your current working directory is {folder / 'work'}."
    edited = f"The file {notes} has been updated successfully. (file state is current in your context — no need to Read it back)"
    thought = ("thinking", "I go on.")
    edit = {"replace_all": False, "file_path": notes, "old_string": "helo", "new_string": "hello"}
    assert transcript(events) == [
        thought,
        ("tool_use", "Bash", {"command": "cat notes.txt", "description": "Show the notes"}),
        ("tool_result", "helo", False),
        thought,
        ("tool_use", "Read", {"file_path": f"{notes}.missing"}),
        ("tool_result", missing, True),
        thought,
        ("tool_use", "Read", {"file_path": notes}),
        ("tool_result", "1\thelo\n2\t", None),
        thought,
        ("tool_use", "Edit", edit),
        ("tool_result", edited, None),
        thought,
        ("tool_use", "Bash", {"command": "wc -c notes.txt"}),
        ("tool_result", "6 notes.txt", False),
        ("thinking", "I am done."),
        ("text", "The greeting is spelled right now."),
    ]
    assert (events[-1]["subtype"], events[-1]["stop_reason"], last[-1]["result"]) == ("success", "end_turn", "It is louder now.")
    assert len(prompts) == len(turns(folder))
    recalled = {"all": [0, 1, 2, 3, 4, 5, 5, 6], "question": [0, 1, 2, 3, 4, 5, 0, 1], "none": [0] * 8}
    assert [prompt.count("I go on.") for prompt in prompts] == recalled[played.recalls]
    assert not any("x-anthropic-billing-header" in prompt for prompt in prompts)
    phrases = [
        "Mend the greeting.",
        f"The tool failed: {missing}",
        edited,
        "6 notes.txt",
        "spelled right",
        "Shout it.",
        "HELLO",
    ]
    places = [prompts[-1].rindex(text) for text in phrases]
    assert places == sorted(places)


def test_claude_code_searches_tools(folder):
    found = [call("ToolSearch", query="select:CronCreate"), answer("I can schedule it.")]
    with hosts.standalone(found) as played:
        events = claude(folder, "-p", "Schedule it.", ENABLE_TOOL_SEARCH="true", **served(played))
        prompt = played.prompts()[-1]
    assert events[-1]["result"] == "I can schedule it."
    assert prompt.endswith("The tool CronCreate is available.<|end|><|start|>assistant")


@pytest.mark.parametrize("host", hosts.OURS, indirect=True)
def test_claude_code_receives_the_reason_why_its_web_search_is_refused(folder, host):
    script = [call("WebSearch", query="llamas"), answer("I cannot search here.")]
    with host(script) as played:
        events = claude(folder, "-p", "Search for llamas.", "--allowedTools", "WebSearch", **served(played))
        prompts = played.prompts()
    assert (events[-1]["result"], len(prompts)) == ("I cannot search here.", 2)
    assert "This server does not run 'web_search_20250305'. Start it with --web-search or --tool-server" in prompts[-1]


LISTING = Reply((b'{"data": [{"id": "tiny", "max_model_len": 40000}]}',), headers={"content-type": "application/json"})
TOO_LONG = {"message": "This model's maximum context length is 40000 tokens. However, you requested 50000.", "code": 400}


def test_claude_code_compacts_a_session_that_the_upstream_refuses_as_too_long(folder):
    function = {"name": "Bash", "arguments": json.dumps({"command": "seq 1 3000"})}
    replies = [
        stream(
            chunk({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}]}), chunk({}, "tool_calls")
        ),
        failure(400, {"error": TOO_LONG}),
        stream(chunk({"content": "<summary>We counted to 3000.</summary>"}), chunk({}, "stop")),
        stream(chunk({"content": "The next number is 3001."}), chunk({}, "stop")),
    ]
    upstream = ScriptedUpstream(replies, listing=LISTING)
    with serve_upstream(upstream) as url:
        command = [INTERLOCK, "run", str(CLAUDE), "--upstream", url, "--upstream-retries", "0", "--"]
        events = claude(folder, "-p", "Count on.", command=command)
    assert events[-1]["result"] == "The next number is 3001."
    assert events[-1]["modelUsage"]["tiny"]["contextWindow"] == 40_000
    assert [body["max_completion_tokens"] for body in upstream.bodies] == [10_000] * 4
    sent = [json.dumps(body["messages"]) for body in upstream.bodies]
    assert ["2999" in text for text in sent] == [False, True, True, False]
    assert "We counted to 3000." in sent[-1]


def test_claude_code_continues_a_session_on_another_server(folder):
    script = turns(folder)
    with hosts.standalone(script[:6]) as played:
        claude(folder, "-p", "Mend the greeting.", **served(played))
    with hosts.standalone(script[6:]) as played:
        last = claude(folder, "--continue", "-p", "Shout it.", **served(played))
        prompt = played.prompts()[-1]
    assert last[-1]["result"] == "It is louder now."
    assert [prompt.count(text) for text in ("I go on.", "6 notes.txt", "HELLO")] == [6, 1, 1]


def test_interlock_run_runs_claude_code(folder):
    with hosts.standalone(turns(folder)) as played:
        command = [INTERLOCK, "run", str(CLAUDE), "--upstream", played.url, "--"]
        events = claude(folder, "-p", "Mend the greeting.", command=command, CLAUDE_CODE_MAX_CONTEXT_TOKENS="50000")
        assert (folder / "work" / "notes.txt").read_text() == "hello\n"
    usage = events[-1]["modelUsage"]
    assert {name: usage[name]["contextWindow"] for name in usage} == {"tiny": 50_000}


def test_claude_code_calls_a_tool_with_the_embedded_engine(folder):
    with ServerThread(build(hosts.SETTINGS, EmbeddedEngine())) as url:
        variables = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": "none", "ANTHROPIC_MODEL": MODEL}
        events = claude(folder, "-p", "Run Bash: cat notes.txt", **variables)
    assert ("tool_result", "helo", False) in transcript(events)
    assert "helo" in events[-1]["result"]
