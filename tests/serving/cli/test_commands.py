"""Commands print output for programs, name the faults of their input, and end with the right status."""

import asyncio
import base64
import gc
import json
import os
import re
import signal
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner
from for_each import for_each
from live.command import serve_command
from openai import OpenAI

import interlock
from interlock.diagram import RENDERERS
from interlock.events.items import ITEMS
from interlock.judges import Acceptor
from interlock.parsers.harmony import HARMONY
from interlock.serving import cli, metrics
from interlock.serving.build import build
from interlock.serving.cli import commands
from interlock.serving.cli.commands import COMMANDS, app
from interlock.serving.cli.machines import process_graphs, stream_graphs
from interlock.serving.cli.main import main
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.engines.recordings import read, replay_frames, replay_response
from interlock.serving.http import server
from interlock.serving.settings import Settings, SettingsError
from interlock.serving.store import open_store
from interlock.serving.store.rows import VERSION
from interlock.serving.store.values import StoredConversation, StoredResponse

RECORDINGS = Path(__file__).parents[2] / "corpus" / "recordings"
CORPUS = Path(__file__).parents[2] / "corpus"
TEXT = RECORDINGS / "text.jsonl"


def run(*arguments: object, stdin: bytes | None = None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def test_the_version_is_printed() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"interlock {interlock.__version__}\n")


def test_without_a_command_the_help_lists_the_commands() -> None:
    result = run()
    assert all(command in result.output for command in ("serve", "replay", "check"))


def test_replay_writes_the_stream_and_nothing_else() -> None:
    result = run("replay", TEXT)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout_bytes == b"".join(replay_frames(read(TEXT)))


def test_replay_reads_standard_input() -> None:
    assert run("replay", "-", stdin=TEXT.read_bytes()).stdout_bytes == run("replay", TEXT).stdout_bytes


def test_replay_cuts_the_recording_into_chunks() -> None:
    frames = {size: run("replay", TEXT, "--chunk", size).stdout.count("output_text.delta") for size in (1, 1000)}
    assert frames[1000] == 2  # in `event:` and in the body of one frame
    assert frames[1] > 50


def test_replay_without_streaming_writes_the_response() -> None:
    result = run("replay", TEXT, "--no-stream")
    assert (result.exit_code, json.loads(result.stdout)) == (0, json.loads(json.dumps(replay_response(read(TEXT)))))


def test_a_malformed_recording_is_named_with_its_line(tmp_path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text('{"interlock_recording": 1, "format": "text"}\n{"text": "a"}\n{"text":\n')
    result = run("replay", path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"interlock: {path}:3: not JSON: ")


def test_a_malformed_recording_on_standard_input_is_named_with_its_line() -> None:
    result = run("replay", "-", stdin=b"{}\n")
    message = "interlock: standard input, line 1: not a recording: its first line has no interlock_recording\n"
    assert (result.exit_code, result.stderr) == (2, message)
    recording = b'{"interlock_recording": 1, "format": "text"}\n{"tokens": [1]}\n'
    message = "interlock: standard input, line 2: Object contains unknown field `tokens`\n"
    for command in ("replay", "view"):
        result = run(command, "-", stdin=recording)
        assert (result.exit_code, result.stderr) == (2, message)


@pytest.mark.parametrize("command", ["replay", "check"])
def test_a_file_that_cannot_be_read_is_named(command, tmp_path) -> None:
    result = run(command, tmp_path)
    assert (result.exit_code, result.stderr) == (2, f"interlock: {tmp_path}: Is a directory\n")


def test_a_chunk_size_of_zero_is_refused() -> None:
    assert run("replay", TEXT, "--chunk", 0).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "--rate"], "interlock: --rate: Expected `float` >= 0.0"),
        (["serve", "--tool-timeout"], "interlock: --tool-timeout: Expected `float` >= 0.1"),
        (["check", TEXT, "--timeout"], "Error: Invalid value for '--timeout': 'nan' is not a number."),
    ],
)
def test_nan_is_refused_as_an_option(arguments, message) -> None:
    result = run(*arguments, "nan")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, message)


def test_replay_can_write_the_open_responses_dialect() -> None:
    result = run("replay", RECORDINGS / "answer.jsonl", "--dialect", "open_responses")
    assert "event: response.reasoning.delta\n" in result.stdout
    assert run("check", "-", "--dialect", "open_responses", stdin=result.stdout_bytes).exit_code == 0


def test_check_reports_that_a_stream_is_legal() -> None:
    result = run("check", "-", stdin=run("replay", TEXT, "--chunk", 1000).stdout_bytes)
    assert (result.exit_code, result.stdout) == (0, "legal: standard input: 9 events, 1 item, completed\n")


def test_check_lists_the_errors_of_a_stream() -> None:
    result = run("check", CORPUS / "broken" / "R9-delta-lost.sse")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[3].split()[:2] == ["R9", "output_text.done:"]


def test_check_lists_a_missing_end_marker() -> None:
    data = (CORPUS / "legal" / "nothing.sse").read_bytes().removesuffix(b"data: [DONE]\n\n")
    result = run("check", "-", "--strict", stdin=data)
    assert (result.exit_code, result.stdout.splitlines()[3].split()[0]) == (1, "R3")


def test_check_reports_that_a_file_is_not_a_stream() -> None:
    result = run("check", "-", stdin=b"\x00\xff")
    message = "this is not a stream: it has no event of Responses, Messages or Chat Completions"
    assert (result.exit_code, result.stderr) == (2, f"interlock: standard input: {message}\n")


WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


KEYS = base64.b64encode(bytes(32)).decode()


@contextmanager
def api_of(*options: object, **variables: str) -> Iterator[OpenAI]:
    """Run a server with options and variables, and yield a client of it."""
    with (
        serve_command(*options, INTERLOCK_KEYS=KEYS, **variables) as command,
        OpenAI(base_url=f"{command.url}/v1", api_key="-") as client,
    ):
        yield client


def test_a_repeated_model_option_adds_a_name() -> None:
    with api_of("--model", "tiny", "--model", "gpt-4o") as client:
        assert [model.id for model in client.models.list()] == ["tiny", "gpt-4o"]
        assert client.responses.create(model="gpt-4o", input="Hi").model == "gpt-4o"


EMPTY = "the key is empty; omit it to accept every request"
SPACED = "the key begins or ends with white space, which a header cannot contain"
CONTROL = "the key has control characters, which a header cannot contain"
BEYOND = "the key has characters beyond Latin-1, which a header cannot contain"


@pytest.mark.parametrize("source", ["--api-key", "INTERLOCK_API_KEY"])
@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        *(("", EMPTY), (" ", SPACED), (" k", SPACED), ("k\n", SPACED), ("k\xa0", SPACED)),
        *(("k\x00k", CONTROL), ("k\r\nk", CONTROL), ("k\x7f", CONTROL), ("k\u0142", BEYOND), ("\U0001f511", BEYOND)),
    ],
)
def test_serve_refuses_an_empty_or_invalid_key(monkeypatch, source, key, wrong) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "INTERLOCK_API_KEY": key})
    result = run("serve", "--port", "0", *(["--api-key", key] if source == "--api-key" else []))
    assert (result.exit_code, result.stderr) == (2, f"interlock: {source}: {wrong}\n")


def test_serve_refuses_invalid_sealing_keys(monkeypatch) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "INTERLOCK_KEYS": f"{KEYS},c2Vj"})
    result = run("serve", "--port", "0")
    assert (result.exit_code, result.stderr) == (2, "interlock: INTERLOCK_KEYS: key 2 has 3 bytes instead of 32\n")


def test_the_garbage_collector_waits_until_the_server_is_ready(monkeypatch) -> None:
    enabled = []

    def serve(_, listening, *, on_ready, **__):
        listening.close()
        enabled.append(gc.isenabled())
        asyncio.run(begin(on_ready))
        enabled.append(gc.isenabled())

    async def begin(on_ready):
        on_ready()

    monkeypatch.setattr(server, "serve", serve)
    assert (run("serve", "--port", "0").exit_code, enabled) == (0, [False, True])
    assert (run("serve", "--store", "nonsense:").exit_code, gc.isenabled()) == (2, True)


def test_an_application_refuses_an_empty_key() -> None:
    with pytest.raises(SettingsError, match=r"^api_key: the key is empty"):
        build(Settings(api_key=[""]), EmbeddedEngine())


def test_serve_replays_a_script() -> None:
    with api_of("--script", TEXT) as client:
        assert (
            client.responses.create(model="interlock-script", input="?").output_text
            == (replay_response(read(TEXT))["output"][0]["content"][0]["text"])
        )


def test_serve_writes_the_format_of_a_family() -> None:
    with api_of("--family", "qwen3_coder") as client:
        output = client.responses.create(
            model="interlock-embedded", input="Which weather is it in: Paris", tools=[WEATHER]
        ).output
    assert [item.type for item in output] == ["reasoning", "message", "function_call"]
    assert output[-1].arguments == '{"city":"Paris"}'


def test_serve_writes_the_format_of_a_family_that_does_not_reason() -> None:
    with api_of("--family", "qwen3_coder/none") as client:
        output = client.responses.create(
            model="interlock-embedded", input="Which weather is it in: Paris", tools=[WEATHER]
        ).output
    assert [item.type for item in output] == ["message", "function_call"]


def test_serve_lists_the_known_families_for_an_unknown_one() -> None:
    result = run("serve", "--family", "esperanto")
    assert (result.exit_code, result.stderr.partition(",")[0]) == (
        2,
        "interlock: --family: unknown family 'esperanto'; choose one of gpt_oss",
    )


def test_serve_refuses_a_family_beside_a_script() -> None:
    result = run("serve", "--script", TEXT, "--family", "hermes")
    message = "interlock: --family: it does not apply to a script, which names the families of its rules\n"
    assert (result.exit_code, result.stderr) == (2, message)


@pytest.mark.parametrize(
    "option",
    [
        ("--tool-server", "web_search=http://127.0.0.1:9/mcp"),
        ("--tool-timeout", "3"),
        ("--code-interpreter",),
        ("--web-search", "searxng=http://a"),
        ("--allow-mcp-host", "example.com"),
    ],
)
def test_serve_refuses_tools_beside_a_script(option) -> None:
    result = run("serve", "--script", TEXT, *option)
    message = "it does not apply to a script, whose calls have the results of their tools (`returns`)\n"
    assert (result.exit_code, result.stderr) == (2, f"interlock: {option[0]}: {message}")


def test_serve_refuses_a_script_beside_an_upstream(tmp_path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text('[[upstream]]\nurl = "http://a"\n')
    results = [run("serve", "--script", TEXT, *options) for options in (("--upstream", "http://a"), ("--config", config))]
    message = "interlock: --script: it does not apply to a gateway; leave it out, or --upstream and the upstreams of --config\n"
    assert [(each.exit_code, each.stderr) for each in results] == [(2, message)] * 2


def test_serve_runs_code_if_the_interpreter_is_enabled(tmp_path) -> None:
    config = tmp_path / "interlock.toml"
    config.write_text("[serve]\ncode_interpreter = true\n")
    tool = {"type": "code_interpreter", "container": {"type": "auto"}}
    for options, variable in ((["--code-interpreter"], ""), (["--config", config], ""), ([], "1")):
        with api_of(*options, INTERLOCK_CODE_INTERPRETER=variable) as client:
            response = client.responses.create(model="interlock-embedded", input="calculate 6 * 7", tools=[tool])
        assert response.output_text.endswith("python says: 42\n")


def test_serve_refuses_two_searches_and_an_unknown_one(monkeypatch) -> None:
    monkeypatch.delenv("BRAVE_API_KEY", raising=False)
    both = run("serve", "--web-search", "searxng=http://127.0.0.1:1", "--tool-server", "web_search=http://127.0.0.1:1/mcp")
    message = "--tool-server names another search; leave out one of them"
    assert (both.exit_code, both.stderr) == (2, f"interlock: --web-search: {message}\n")
    without_key = run("serve", "--web-search", "brave")
    message = "brave needs a key in the environment variable BRAVE_API_KEY"
    assert (without_key.exit_code, without_key.stderr) == (2, f"interlock: --web-search: {message}\n")


def test_serve_refuses_two_interpreters_and_one_that_is_not_installed(monkeypatch) -> None:
    both = run("serve", "--code-interpreter", "--tool-server", "code_interpreter=http://127.0.0.1:1/mcp")
    message = "--tool-server names another interpreter; leave out one of them"
    assert (both.exit_code, both.stderr) == (2, f"interlock: --code-interpreter: {message}\n")
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    missing = run("serve", "--code-interpreter")
    message = "pydantic-monty is not installed; in a checkout of Interlock: pip install '.[tools]'"
    assert (missing.exit_code, missing.stderr) == (2, f"interlock: --code-interpreter: {message}\n")


def test_serve_reports_an_unreadable_script(tmp_path) -> None:
    path = tmp_path / "empty.jsonl"
    path.touch()
    result = run("serve", "--script", path)
    assert (result.exit_code, result.stderr) == (
        2,
        f"interlock: {path}:1: not a recording: its first line has no interlock_recording\n",
    )


def test_serve_reports_an_invalid_script(tmp_path) -> None:
    path = tmp_path / "script.toml"
    path.write_text('[[rules]]\nsteps = [{ say = "Hi" }]\n')
    result = run("serve", "--script", path)
    message = f"interlock: {path}: rule 1, step 1: unknown field 'say' (did you mean 'says'?); the fields are waits, "
    assert (result.exit_code, result.stderr[: len(message)]) == (2, message)


def test_record_needs_a_server_and_a_json_file(tmp_path) -> None:
    missing = run("record", "-o", tmp_path / "a.json")
    assert (missing.exit_code, missing.stderr) == (2, "interlock: name a server: --upstream URL, or --config FILE\n")
    wrong = run("record", "--upstream", "http://127.0.0.1:1", "-o", "a.toml")
    assert (wrong.exit_code, wrong.stderr.partition(";")[0]) == (2, "interlock: -o a.toml: a recorded script is JSON")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "each process would have a store of its own in memory; add --store sqlite:PATH or postgresql://HOST/DATABASE"),
        (
            ["--store", "memory:?ttl=1h"],
            "each process would have a store of its own in memory; add --store sqlite:PATH or postgresql://HOST/DATABASE",
        ),
        (["--store", "sqlite:x.db", "--view"], "it shows the streams of one process, not of --workers 2"),
        (
            ["--store", "sqlite:x.db", "--script", "a.json"],
            "each process would have steps and requests of the script of its own; leave it out",
        ),
    ],
)
def test_workers_are_refused_with_options_for_one_process(monkeypatch, tmp_path, options, message) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(metrics, "share", lambda: None)  # or the later tests of this process would share theirs
    (tmp_path / "a.json").write_text('{"rules": []}')
    result = run("serve", "--workers", "2", "--port", "0", *options)
    option = "--view" if "--view" in options else "--workers"
    assert (result.exit_code, result.stderr) == (2, f"interlock: {option}: {message}\n")


def test_serve_reports_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = run("serve", "--port", port)
    assert result.exit_code == 2
    assert result.stderr == f"interlock: 127.0.0.1:{port}: Address already in use; choose another port with --port\n"


@pytest.mark.parametrize("wanted", ["-h", "--help"])
def test_the_help_lists_each_command_with_a_whole_sentence_and_has_no_boxes(wanted) -> None:
    text = run(wanted).output
    listed = {
        line.split()[0]: line
        for line in text.partition("Commands:\n")[2].splitlines()
        if line.startswith("  ") and line[2] != " "
    }
    assert [name for name in listed if name in COMMANDS] == [*COMMANDS]
    assert [line for line in listed.values() if line.endswith("...")] == []
    assert not set(text) & set("╭─│╰")


@for_each("command", sorted(COMMANDS.keys() - {"store"}))
def test_the_help_of_a_command_ends_with_examples_of_it(command) -> None:
    examples = run(command, "-h").output.partition("Examples:\n")[2].splitlines()
    assert examples
    assert [line for line in examples if f"interlock {command}" not in line] == []


def test_shell_completion_completes_a_command(monkeypatch) -> None:
    for name, value in {"_INTERLOCK_COMPLETE": "bash_complete", "COMP_WORDS": "interlock di", "COMP_CWORD": "1"}.items():
        monkeypatch.setenv(name, value)
    assert CliRunner().invoke(app, prog_name="interlock").stdout.split() == ["plain,diagram"]


def test_the_completion_of_a_shell_is_printed() -> None:
    assert "_INTERLOCK_COMPLETE=zsh_complete" in run("--show-completion", "zsh").stdout


def test_shell_completion_defaults_to_the_users_shell(monkeypatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    monkeypatch.setattr(cli, "commands", cli.commands)
    monkeypatch.delitem(sys.modules, "interlock.serving.cli.commands")
    own = import_module("interlock.serving.cli.commands").app
    assert "_INTERLOCK_COMPLETE=fish_complete" in CliRunner().invoke(own, ["--show-completion"]).stdout


# The command names a missing package


LEGAL = Path(__file__).parents[2] / "corpus" / "legal"


def run_main(monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["interlock", *arguments])
    main()


@pytest.mark.parametrize(
    ("package", "name", "extra"),
    [
        ("click", "click", "cli"),
        ("openai_harmony", "oss-harmony", "cli"),
        ("uvicorn", "uvicorn", "serve"),
        ("mcp_types", "mcp", "serve"),
    ],
)
def test_a_missing_package_is_named_with_its_install_command(monkeypatch, package, name, extra) -> None:
    def run_without():
        raise ModuleNotFoundError(name=f"{package}.part")

    monkeypatch.setattr(commands, "run", run_without)
    everything = f"in a checkout of Interlock, pip install '.[{extra}]' installs everything"
    message = re.escape(f"interlock: this command needs {package}: pip install {name} ({everything})")
    with pytest.raises(SystemExit, match=f"^{message}$"):
        run_main(monkeypatch, "serve")


def test_a_missing_module_of_interlock_is_an_internal_error(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "interlock.serving.cli.commands", None)
    with pytest.raises(SystemExit) as ended:
        run_main(monkeypatch, "--help")
    assert ended.value.code == 2
    assert "ModuleNotFoundError: import of interlock.serving.cli.commands halted" in capsys.readouterr().err


def test_an_internal_error_ends_check_with_status_2(monkeypatch, capsys) -> None:
    monkeypatch.setattr(Acceptor, "feed", lambda *_: {}["lost"])
    with pytest.raises(SystemExit) as ended:
        run_main(monkeypatch, "check", str(LEGAL / "message.sse"))
    assert ended.value.code == 2
    assert "KeyError" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_printed_in_every_install(monkeypatch, capsys, option) -> None:
    monkeypatch.setitem(sys.modules, "click", None)
    run_main(monkeypatch, option)
    assert capsys.readouterr().out == f"interlock {interlock.__version__}\n"


def test_an_unwritable_output_ends_a_command_with_status_2(monkeypatch) -> None:
    with Path("/dev/full").open("w") as output, Path("/dev/full").open("w") as errors:
        monkeypatch.setattr(sys, "stdout", output)
        monkeypatch.setattr(sys, "stderr", errors)
        with pytest.raises(SystemExit) as ended:
            run_main(monkeypatch, "check", str(LEGAL / "message.sse"), "--json")
    assert ended.value.code == 2


def test_a_command_with_closed_output_has_its_usual_status(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as ended:
        run_main(monkeypatch, "check", str(LEGAL / "message.sse"))
    assert ended.value.code == 0


def test_an_interrupted_command_ends_and_a_second_interrupt_ends_it_silently(monkeypatch) -> None:
    number = signal.getsignal(signal.SIGINT)

    def interrupt():
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(commands, "run", interrupt)
    try:
        with pytest.raises(SystemExit) as ended:
            run_main(monkeypatch)
        assert (ended.value.code, signal.getsignal(signal.SIGINT)) == (130, signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGINT, number)


# `interlock diagram` draws every lifecycle and the framing of harmony from the tables that run


GRAPHS = {**stream_graphs(), **process_graphs()}


def draw(*arguments: str):
    return CliRunner().invoke(app, ["diagram", *arguments])


def test_every_lifecycle_and_process_can_be_drawn() -> None:
    assert set(GRAPHS) == {"response", "harmony", *ITEMS, *process_graphs()}


def test_the_diagram_of_the_framing_has_every_row_of_its_table() -> None:
    drawn = {
        (source, trigger, dest, label.events)
        for edge in GRAPHS["harmony"].edges
        for source, dest in GRAPHS["harmony"].ends(edge)
        for label in edge.labels
        for trigger in label.triggers
    }
    assert drawn == {(edge.source, edge.trigger, edge.dest, edge.effects) for edge in HARMONY.edges}


@pytest.mark.parametrize("form", RENDERERS)
def test_a_diagram_is_written_in_the_requested_format(form) -> None:
    result = draw("mcp_call", "--format", form)
    assert (result.exit_code, result.stdout) == (0, RENDERERS[form](GRAPHS["mcp_call"]))


def test_the_default_format_is_mermaid() -> None:
    assert draw("response").stdout == RENDERERS["mermaid"](GRAPHS["response"])


def test_without_a_kind_all_diagrams_are_listed() -> None:
    lines = draw().stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == list(GRAPHS)
    assert lines[0] == "response: 7 states, 12 edges"


def test_an_unknown_kind_lists_the_known_ones() -> None:
    result = draw("telepathy")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"interlock: no diagram of 'telepathy'; choose one of {', '.join(GRAPHS)}\n"


# `interlock store` shows the contents of a store, and sweeps it


@pytest.fixture
def url(tmp_path):
    return f"sqlite:{tmp_path / 'store.db'}"


def call(*arguments):
    result = CliRunner().invoke(app, ["store", *arguments])
    return result.exit_code, result.output


def fill(url, scenario):
    async def run():
        store = open_store(url)
        await scenario(store)
        await store.close()

    asyncio.run(run())


def ended(number):
    return StoredResponse({"id": f"resp_{number}", "output": []}, ())


def test_info_counts_the_contents_of_a_store(url) -> None:
    async def scenario(store):
        await store.put("", ended(1))
        lease = await store.enqueue("", ended(2), "server-7")
        await store.append(lease, 0, [b"event"])

    fill(url, scenario)
    code, output = call("info", "--store", url)
    lines = output.splitlines()
    assert code == 0
    assert lines[0].startswith("SQLite 3.")
    assert lines[1:] == [
        "responses: 1 ended, 1 running",
        "conversations: 0, items: 0, events: 1",
        "resp_2 runs on server-7 (lease 1)",
    ]


def test_a_store_that_does_not_exist_is_not_created(url) -> None:
    path = url.partition(":")[2]
    for command in (["info"], ["sweep"]):
        code, output = call(*command, "--store", url)
        assert (code, output.split()) == (2, f"interlock: {path} does not exist.".split())
        assert not Path(path).exists()


def test_info_shows_an_empty_store(url) -> None:
    fill(url, lambda store: store.get("", "resp_1"))
    assert call("info", "--store", url)[1].splitlines()[1:] == ["responses: none", "conversations: 0, items: 0, events: 0"]


def test_a_store_is_swept(url, monkeypatch) -> None:
    async def scenario(store):
        await store.put("", ended(1))
        await store.create_conversation("", StoredConversation("conv_1", 1, {}))

    fill(url, scenario)
    assert call("sweep", "--store", url) == (0, "deleted 0 responses, 0 conversations and 0 event logs\n")
    assert call("sweep", "--store", f"{url}?ttl=0") == (0, "deleted 1 responses, 0 conversations and 0 event logs\n")
    monkeypatch.setenv("INTERLOCK_STORE", f"{url}?conversations=0")
    assert call("sweep") == (0, "deleted 0 responses, 1 conversations and 0 event logs\n")


def test_a_server_starts_if_its_store_is_down_but_not_with_a_wrong_one(url, tmp_path, monkeypatch) -> None:
    def serve(_, listening, **__):
        listening.close()

    monkeypatch.setattr(server, "serve", serve)
    arguments = ["serve", "--port", "0", "--store"]
    down = CliRunner().invoke(app, [*arguments, "postgresql://127.0.0.1:1/interlock"])
    new = CliRunner().invoke(app, [*arguments, f"sqlite:{tmp_path / 'new.db'}"])
    missing, folder, text = tmp_path / "none" / "store.db", tmp_path / "folder", tmp_path / "text"
    folder.mkdir()
    text.write_text("no database at all " * 1000)
    wrong = [CliRunner().invoke(app, [*arguments, f"sqlite:{path}"]) for path in (missing, folder, text)]
    fill(url, lambda store: store.sweep())
    same = CliRunner().invoke(app, [*arguments, url])
    with closing(sqlite3.connect(url.partition(":")[2])) as database, database:
        database.execute("UPDATE layout SET version = version + 1")
    other = CliRunner().invoke(app, [*arguments, url])
    assert [result.exit_code for result in (down, new, same, *wrong, other)] == [0, 0, 0, 2, 2, 2, 2]
    opened = "cannot be opened: {} (unable to open database file)"
    damaged = "is damaged, or is no SQLite database: file is not a database"
    assert [result.output for result in wrong] == [
        f"interlock: {missing} {opened.format('its folder is missing, or belongs to another user')}.\n",
        f"interlock: {folder} {opened.format('it is a folder')}.\n",
        f"interlock: {text} {damaged}.\n",
    ]
    assert (
        other.output == f"interlock: The store has layout {VERSION + 1}, but this release of Interlock needs layout {VERSION}.\n"
    )


def test_an_unusable_store_ends_the_command_with_status_2(tmp_path) -> None:
    code, output = call("info", "--store", "mongodb://db")
    assert (code, output.startswith("interlock: mongodb://db names no store")) == (2, True)
    code, output = call("info", "--store", f"sqlite:{tmp_path / 'none' / 'store.db'}")
    assert (code, output.split()[-3:]) == (2, ["does", "not", "exist."])
