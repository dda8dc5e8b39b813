"""The command `interlock check`: files, pipes and URLs, for terminals and for programs."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from interlock.serving.cli import verdicts
from interlock.serving.cli.commands import app

CORPUS = Path(__file__).parents[2] / "corpus"
LEGAL = CORPUS / "legal" / "message.sse"
STREAM = LEGAL.read_bytes()


def run(*arguments, given=None):
    return CliRunner().invoke(app, ["check", *map(str, arguments)], input=given, catch_exceptions=False)


def test_a_legal_stream_is_called_legal_and_the_status_is_0() -> None:
    result = run(LEGAL)
    assert (result.exit_code, result.stdout) == (0, "legal: 11 events, 1 item, completed\n")


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in sorted((CORPUS / "broken").glob("*.sse"))])
def test_a_broken_stream_is_called_by_its_rule_and_the_status_is_1(path) -> None:
    result = run(path, "--json")
    said = json.loads(result.stdout)
    assert (result.exit_code, said["verdict"]) == (1, "illegal")
    assert path.name.split("-")[0] in said["rules"]


def test_a_finding_says_where_it_is_what_came_and_what_was_legal() -> None:
    said = json.loads(run(CORPUS / "broken" / "R11-never-searched.sse", "--json").stdout)
    assert said["source"].endswith("R11-never-searched.sse")
    assert {name: said[name] for name in ("verdict", "events", "items", "status", "rules", "findings")} == {
        "verdict": "illegal",
        "events": 7,
        "items": ["web_search_call"],
        "status": "completed",
        "rules": {"R11": 1},
        "findings": [
            {
                "rule": "R11",
                "event": 4,
                "sequence_number": 4,
                "item": "ws_0",
                "kind": "web_search_call",
                "state": "in_progress or ready",
                "came": "response.web_search_call.completed",
                "legal": ["response.output_item.done", "response.web_search_call.searching"],
                "message": "says that a tool came to its end that did not run",
                "times": 1,
            }
        ],
    }


def test_the_same_finding_is_listed_once_and_counted() -> None:
    crlf = CORPUS / "broken" / "R5-crlf.sse"
    assert json.loads(run(crlf, "--json").stdout)["rules"] == {"R5": 12}
    assert "(12 times)" in run(crlf).stdout


def test_a_table_says_what_was_legal() -> None:
    line = run(CORPUS / "broken" / "R11-never-searched.sse").stdout.splitlines()[1]
    assert line.rstrip().endswith("; legal: output_item.done, web_search_call.searching")


def test_there_is_colour_on_a_terminal(monkeypatch) -> None:
    def on_a_terminal(**_settings):
        return Console(force_terminal=True, width=200)

    monkeypatch.setattr(verdicts, "Console", on_a_terminal)
    assert "\x1b[" in run(LEGAL).stdout


def test_a_program_is_told_that_there_was_nothing_to_judge() -> None:
    result = run("-", "--json", given=b"\x00\xff")
    said = json.loads(result.stdout)
    assert (result.exit_code, said["source"], said["verdict"]) == (2, "standard input", "unreadable")


def test_a_resumed_stream_begins_where_it_is_said_to() -> None:
    tail = STREAM[STREAM.index(b"event: response.output_text.delta") :]
    assert run("-", "--from", 4, given=tail).exit_code == 0
    assert json.loads(run("-", "--from", 3, "--json", given=tail).stdout)["rules"] == {"R2": 1}
    assert "R1" in json.loads(run("-", "--json", given=tail).stdout)["rules"]


def test_items_that_are_written_at_once_are_legal_if_that_is_permitted() -> None:
    path = CORPUS / "broken" / "R10-two-items-at-once.sse"
    assert (run(path).exit_code, run(path, "--permissive").exit_code) == (1, 0)


class Answer(BaseHTTPRequestHandler):
    """Answers as the path says, and keeps what it was asked."""

    asked: list = []  # noqa: RUF012 - the tests' own

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append((json.loads(body), dict(self.headers)))
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        status, media, data = {
            "/refused": (401, "application/json", b'{"error": {"message": "no key"}}'),
            "/plain": (200, "application/json", STREAM),
            "/broken": (200, "text/event-stream", STREAM[:-400]),
        }.get(self.path, (200, "text/event-stream; charset=utf-8", STREAM))
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(STREAM if status == 200 else data)))  # more than comes, if it breaks
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_is_asked_for_a_stream(url, tmp_path) -> None:
    body = tmp_path / "request.json"
    body.write_text('{"model": "m", "input": "hi"}')
    result = run(f"{url}/v1/responses", "--body", body, "--api-key", "k", "--header", "X-Test: yes")
    asked, headers = Answer.asked.pop()
    assert (result.exit_code, asked) == (0, {"model": "m", "input": "hi", "stream": True})
    assert (headers["Authorization"], headers["X-Test"], headers["Accept"]) == ("Bearer k", "yes", "text/event-stream")


def test_a_stream_that_is_kept_is_got(url) -> None:
    assert run(f"{url}/v1/responses/resp_1?stream=true").exit_code == 0


def test_the_content_type_is_judged(url) -> None:
    said = json.loads(run(f"{url}/plain", "--json").stdout)
    assert [found["message"] for found in said["findings"]] == [
        "the content type is 'application/json' instead of text/event-stream"
    ]


def test_a_connection_that_breaks_is_a_stream_that_does_not_end(url) -> None:
    result = run(f"{url}/broken", "--json")
    assert (result.exit_code, "R3" in json.loads(result.stdout)["rules"]) == (1, True)


def test_a_server_that_refuses_is_quoted(url) -> None:
    result = run(f"{url}/refused")
    assert (result.exit_code, result.stderr) == (
        2,
        f'interlock: {url}/refused: 401 Unauthorized: {{"error": {{"message": "no key"}}}}\n',
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("http://127.0.0.1:1/v1/responses", "interlock: http://127.0.0.1:1/v1/responses: "),
        ("http://127.0.0.1:port/", "interlock: http://127.0.0.1:port/: "),
        ("/no/such/file", "interlock: /no/such/file: No such file or directory"),
    ],
)
def test_what_cannot_be_reached_is_named(source, message) -> None:
    result = run(source)
    assert (result.exit_code, result.stderr.startswith(message)) == (2, True)


@pytest.mark.parametrize(("text", "wrong"), [(None, "No such file"), ("{", "not JSON"), ("[]", "not a JSON object")])
def test_a_request_that_cannot_be_posted_is_named(text, wrong, tmp_path) -> None:
    body = tmp_path / "request.json"
    if text is not None:
        body.write_text(text)
    result = run("http://127.0.0.1:1/", "--body", body)
    assert (result.exit_code, f"request.json: {wrong}" in result.stderr) == (2, True)


def test_a_header_has_a_colon() -> None:
    assert run(LEGAL, "--header", "nonsense").exit_code == 2
