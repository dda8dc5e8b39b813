"""A command ends with a message if it reads from a slow server, or from what is no stream."""

import json
import socketserver
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from interlock.serving.cli.commands import app

ROOT = Path(__file__).parents[3]
LEGAL = ROOT / "tests" / "corpus" / "legal" / "message.sse"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def run(*arguments, **options):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False, **options)


@contextmanager
def serving(answer):
    """Run a server that calls `answer` with each connection, and yield its URL and an event for the first connection."""
    connected, over = threading.Event(), threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            connected.set()
            with suppress(OSError):  # the command has disconnected
                answer(self.request, over)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", connected
        over.set()
        server.shutdown()


def silent(_connection, over):
    over.wait()


def silent_after_its_head(connection, over):
    connection.sendall(HEAD + LEGAL.read_bytes()[:400])
    over.wait()


def dripping(connection, over):
    """Send bytes often, without an end."""
    connection.sendall(HEAD)
    while not over.wait(0.02):
        connection.sendall(b":\n")


def dripping_head(connection, over):
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while not over.wait(0.02):
        connection.sendall(b"x")


@pytest.mark.parametrize("answer", [silent, silent_after_its_head, dripping, dripping_head], ids=lambda answer: answer.__name__)
def test_reading_a_url_ends_at_the_timeout(answer) -> None:
    with serving(answer) as (url, _):
        began = time.monotonic()
        result = run("check", url, "--timeout", "0.3")
        took = time.monotonic() - began
    assert (result.exit_code, result.stderr) == (2, f"interlock: {url}: not read within 0.3 seconds\n")
    assert took < 30


def test_a_url_that_is_read_in_time_is_judged() -> None:
    def whole(connection, _over):
        connection.sendall(HEAD + LEGAL.read_bytes())

    with serving(whole) as (url, _):
        result = run("check", url, "--timeout", "30", "--json")
    assert (result.exit_code, json.loads(result.stdout)["verdict"]) == (0, "legal")


@pytest.mark.parametrize(
    "source",
    ["http://[", "https://[::1", "http://127.0.0.1:port/", "http://127.0.0.1:99999/", "http://a\u2100b/", "http://\ud800/"],
)
def test_an_invalid_url_is_refused(source) -> None:
    result = run("check", source)
    assert result.exit_code == 2
    assert result.stderr.startswith("interlock: http")


def test_a_name_that_is_too_long_is_refused() -> None:
    result = run("check", "a" * 5000)
    assert (result.exit_code, result.stderr) == (2, f"interlock: {'a' * 5000}: File name too long\n")


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_a_constant_that_json_lacks_is_not_an_event(constant, tmp_path) -> None:
    path = tmp_path / "stream.sse"
    path.write_text(LEGAL.read_text().replace('"total_tokens": 18', f'"total_tokens": {constant}', 1))
    assert constant in path.read_text()
    result = run("check", path, "--json")
    findings = json.loads(result.stdout)["sources"][0]["findings"]
    assert (result.exit_code, findings[0]["rule"]) == (1, "R5")


def test_a_recording_with_such_a_constant_is_refused(tmp_path) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_text('{"interlock_recording": NaN}\n')
    result = run("replay", path)
    assert (result.exit_code, result.stderr) == (2, f"interlock: {path}:1: not JSON: NaN is not valid JSON\n")
