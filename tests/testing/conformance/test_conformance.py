"""The command `interlock conformance`, run against our own server and against faulty ones."""

import json
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from interlock.serving.build import build
from interlock.serving.cli.commands import app
from interlock.serving.cli.options import ServerAnswer, SlowAnswerError, printable
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings
from interlock.testing import frames
from interlock.testing.conformance import player
from interlock.testing.conformance.apis import PATHS, Output, read_whole, translate
from interlock.testing.conformance.player import Player

CORPUS = Path(__file__).parents[2] / "corpus"
KEPT = Path(__file__).parents[3] / "benchmarks" / "turns" / "server_cases.json"
LEGAL = (CORPUS / "legal" / "message.sse").read_bytes()
EVENTS = [json.loads(line[6:]) for line in LEGAL.decode().splitlines() if line.startswith("data: {")]
RESPONSE = EVENTS[-1]["response"]
OTHER = {
    **RESPONSE,
    "output": [{**RESPONSE["output"][0], "content": [{"type": "output_text", "text": "No.", "annotations": []}]}],
}


def run(*arguments):
    return CliRunner().invoke(app, ["conformance", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture(scope="module")
def ours():
    with ServerThread(build(Settings(), EmbeddedEngine(rate=500))) as url:  # a response runs for seconds until it is cancelled
        yield url


@pytest.mark.parametrize("api", ["responses", "messages", "chat"])
def test_the_page_of_servers_has_the_results_of_our_server(ours, api) -> None:
    result = run(ours, "--api", api, "--format", "json")
    kept = json.loads(KEPT.read_text(encoding="utf-8"))["interlock"]["reports"][api]["cases"]
    assert result.exit_code == 0
    assert [outcome(case) for case in json.loads(result.stdout)["cases"]] == [outcome(case) for case in kept]


def outcome(case):
    return case["name"], case["result"], case["note"]


def test_the_table_ends_with_the_totals(ours) -> None:
    result = run(f"{ours}/v1/", "--api", "chat")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "27 cases of chat: 26 passes, 1 not served")


@pytest.mark.parametrize("api", ["responses", "messages", "chat"])
def test_one_request_is_answered_and_judged(ours, api) -> None:
    request = translate(api, {"model": "interlock-embedded", "input": "Hello", "max_output_tokens": 400})
    reply, verdict = Player(ours, api, "interlock-embedded", {}, 60).ask(request)
    assert (verdict.legal, bool(reply.output.text), reply.reason) == (
        True,
        True,
        {"responses": "completed", "messages": "end_turn", "chat": "stop"}[api],
    )


class Answer(BaseHTTPRequestHandler):
    """Answers as the test says, by the path; for a response, by whether a stream is requested."""

    answers: dict = {}  # noqa: RUF012 - the tests' own

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = "stream" if b'"stream":true' in body.replace(b" ", b"") else "whole"
        status, media, data = self.answers.get(self.path if self.path != "/v1/responses" else kind) or (
            404,
            "text/plain",
            b"nothing here",
        )
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer()

    def do_DELETE(self) -> None:
        self.answer()

    def log_message(self, *_arguments) -> None:
        """Log nothing."""


@pytest.fixture
def results():
    """Return a function that runs all cases against a server with these answers; it returns the command and the results."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def play(**answers):
        Answer.answers = {"/v1/models": (200, "application/json", b'{"data": [{"id": "m"}]}'), **answers}
        done = run(f"http://127.0.0.1:{server.server_port}", "--format", "json", "--timeout", 5)
        cases = json.loads(done.stdout)["cases"] if done.exit_code < 2 else []
        return done, {case["name"]: (case["result"], case["note"]) for case in cases}

    yield play
    server.shutdown()
    thread.join()
    server.server_close()


def stream(data=LEGAL):
    return 200, "text/event-stream", data


def whole(body):
    return 200, "application/json", json.dumps(body).encode()


def test_a_case_is_not_seen_if_the_model_ignores_it_and_not_served_if_it_is_refused(results) -> None:
    done, seen = results(stream=stream(), whole=whole(RESPONSE))
    assert done.exit_code == 1  # it accepts malformed JSON
    assert (seen["text"], seen["malformed JSON"]) == (("passes", ""), ("fails", "accepted"))
    assert seen["a call"] == ("not seen", "the model does not call get_weather")
    assert seen["no call"] == ("not seen", "needs: a call")
    assert seen["a required call"] == ("fails", "calls nothing")
    assert seen["retrieve"] == ("not served", "404 nothing here")
    assert seen["do not store"] == ("not served", "needs: retrieve")
    assert seen["background"] == ("not served", "background is null")
    assert seen["log probabilities"] == ("not served", "there are none")


@pytest.mark.parametrize(
    ("code", "result"), [("compaction_failed", "not seen"), ("context_length_exceeded", "not seen"), ("server_error", "fails")]
)
def test_a_summary_that_the_model_does_not_finish_or_has_no_room_for_is_not_seen(results, code, result) -> None:
    error = {"error": {"message": "No.", "type": "server_error", "param": None, "code": code}}
    seen = results(**{"/v1/responses/compact": (500, "application/json", json.dumps(error).encode())})[1]
    assert seen["compact"] == (result, "500 No.")


def test_log_probabilities_of_an_answer_without_a_text_are_not_seen(results) -> None:
    data = (CORPUS / "legal" / "function-call.sse").read_bytes()
    last = json.loads(next(line for line in reversed(data.splitlines()) if line.startswith(b"data: {"))[6:])
    seen = results(stream=stream(data), whole=whole(last["response"]))[1]
    assert seen["log probabilities"] == ("not seen", "there is no text")


@pytest.mark.parametrize("api", ["responses", "messages", "chat"])
def test_each_request_to_a_model_limits_its_tokens(monkeypatch, api) -> None:
    limits = []

    @contextmanager
    def exchange(method, url, _headers, body, _timeout):
        if method == "POST" and url.endswith(PATHS[api]) and body.startswith(b'{"model":"'):
            limits.append([name for name in json.loads(body) if name.startswith("max_")])
        yield ServerAnswer(200, "OK", "application/json", iter([b'{"id": "1", "data": [1], "background": true}']))

    monkeypatch.setattr(player, "exchange", exchange)
    list(Player("http://127.0.0.1:1", api, "m", {}, 60).play())
    assert (len(limits) > 0, all(limits)) == (True, True)


def test_a_timeout_is_not_seen_if_the_case_needs_the_model_and_else_fails(monkeypatch) -> None:
    @contextmanager
    def exchange(method, _url, _headers, body, _timeout):
        if method != "POST" or b"Berlin" in body or body == b'{"model": ':
            raise SlowAnswerError("not read within 60 seconds")
        media, data = (
            ("text/event-stream", LEGAL) if b'"stream":true' in body else ("application/json", json.dumps(RESPONSE).encode())
        )
        yield ServerAnswer(200, "OK", media, iter([data]))

    monkeypatch.setattr(player, "exchange", exchange)
    seen = {case.name: (case.result, case.note) for case in Player("http://127.0.0.1:1", "responses", "m", {}, 60).play()}
    late = "not read within 60 seconds"
    assert [seen[name] for name in ("text", "a call", "retrieve", "malformed JSON")] == [
        ("passes", ""),
        ("not seen", late),
        ("fails", late),
        ("fails", late),
    ]


def test_an_unfinished_background_response_is_not_seen_and_an_uncancelled_one_fails(monkeypatch) -> None:
    running = json.dumps({**RESPONSE, "background": True, "status": "in_progress"}).encode()

    @contextmanager
    def exchange(_method, _url, _headers, _body, _timeout):
        yield ServerAnswer(200, "OK", "application/json", iter([running]))

    monkeypatch.setattr(player, "exchange", exchange)
    seen = {case.name: (case.result, case.note) for case in Player("http://127.0.0.1:1", "responses", "m", {}, 0).play()}
    assert (seen["background"], seen["cancel"]) == (
        ("not seen", 'status is "in_progress"'),
        ("fails", 'status is "in_progress"'),
    )


def test_a_stream_that_breaks_a_rule_fails_with_the_rule(results) -> None:
    broken = (CORPUS / "broken" / "R9-delta-lost.sse").read_bytes()
    done, seen = results(stream=stream(broken), whole=whole(RESPONSE))
    assert (done.exit_code, seen["text"]) == (1, ("fails", "R9: output_text.done: text differs from the deltas at character 5"))


def test_an_answer_that_always_differs_from_its_stream_fails(results) -> None:
    assert results(stream=stream(), whole=whole(OTHER))[1]["text"] == ("fails", "R19: stream and whole answer differ in text")


def test_an_answer_that_ends_with_an_error_fails(results) -> None:
    failed = {**RESPONSE, "status": "failed", "error": {"code": "server_error", "message": "No."}}
    end = {**EVENTS[-1], "type": "response.failed", "response": failed}
    assert results(stream=stream(frames([*EVENTS[:-1], end])), whole=whole(failed))[1]["text"] == (
        "fails",
        "the answer ends with an error: server_error: No.",
    )


def test_an_answer_that_lacks_a_field_fails(results) -> None:
    lacking = {name: value for name, value in RESPONSE.items() if name != "created_at"}
    assert results(stream=stream(), whole=whole(lacking))[1]["text"] == ("fails", "R14: response: created_at is missing")


def test_a_json_answer_is_not_a_stream_and_a_truncated_stream_fails(results) -> None:
    assert results(stream=whole(RESPONSE), whole=whole(RESPONSE))[1]["text"] == (
        "not served",
        "the answer is application/json instead of a stream",
    )
    labelled = (200, "application/json", frames(EVENTS))
    assert results(stream=labelled, whole=whole(RESPONSE))[1]["text"] == (
        "fails",
        "the answer is a stream, and its content type application/json",
    )
    cut = frames(EVENTS[:5]).removesuffix(b"data: [DONE]\n\n")
    assert results(stream=stream(cut), whole=whole(RESPONSE))[1]["text"][0] == "fails"


def test_an_error_of_another_shape_fails(results) -> None:
    refusal = (422, "application/json", b'{"detail": "no"}')
    seen = results(stream=stream(), whole=refusal)[1]
    assert seen["malformed JSON"] == ("fails", '422 without an error of the API: {"detail": "no"}')


@pytest.mark.parametrize("status", [401, 403, 504])
def test_a_server_that_refuses_the_key_or_whose_upstream_hangs_ends_the_command(results, status) -> None:
    done, _ = results(stream=(status, "application/json", b'{"error": {"message": "no"}}'))
    assert (done.exit_code, f": {status} no\n" in done.stderr) == (2, True)


def test_a_control_character_is_escaped_on_a_terminal() -> None:
    assert printable("\x1b[2J\x00 né\n" + "a" * 500) == "\\x1b[2J\\x00 né\\n" + "a" * 191


def test_an_unreachable_server_ends_the_command() -> None:
    assert (
        run("http://127.0.0.1:1").exit_code
        == run("http://127.0.0.1:1", "--model", "m").exit_code
        == run("nowhere").exit_code
        == 2
    )


def test_without_the_package_websockets_the_case_is_not_seen(results, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets.exceptions", None)
    seen = results(stream=stream(), whole=whole(RESPONSE))[1]
    assert seen["a WebSocket"] == ("not seen", "the package websockets is not installed")


def test_a_value_of_a_wrong_type_is_read_as_no_output() -> None:
    for api, field in (("responses", "output"), ("messages", "content"), ("chat", "choices")):
        answer = {field: [{"type": ["message"], "message": [], "finish_reason": {}}], "status": [], "stop_reason": {}}
        assert read_whole(api, answer) == (Output(), "")
