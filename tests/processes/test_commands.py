"""Commands in their own processes: signals, and outputs that are closed or full."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
from live.wire import bodies

ROOT = Path(__file__).parents[2]
TEXT = ROOT / "tests" / "corpus" / "recordings" / "text.jsonl"
LONG = ROOT / "tests" / "corpus" / "recordings" / "logprobs.jsonl"
INTERLOCK = [sys.executable, "-m", "interlock"]
SECONDS = 120
STREAM = {"model": "interlock-embedded", "input": "Say something long about the rivers of Europe", "stream": True}


@contextmanager
def running(*arguments, **options):
    """Run a command until the block ends, and close its pipes."""
    with subprocess.Popen([*INTERLOCK, *map(str, arguments)], stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def interrupt(process, times=1):
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)


def test_a_server_serves_until_a_signal_and_fails_its_open_streams() -> None:
    with running("serve", "--port", "0", "--rate", "20") as server:
        url = re.search(r"http://\S+(?=/v1)", server.stderr.readline())[0]
        with httpx.stream("POST", f"{url}/v1/responses", json=STREAM) as answer:
            pieces = answer.iter_bytes()
            first = next(pieces)
            server.send_signal(signal.SIGTERM)
            events = bodies(first + b"".join(pieces))
        rest, status = server.stderr.read(), server.wait(SECONDS)
    assert events[-1]["type"] == "response.failed"
    assert status == -signal.SIGTERM
    assert "Traceback" not in rest


def test_a_server_ends_without_a_message_after_repeated_interrupts() -> None:
    with running("serve", "--port", "0", stdout=subprocess.PIPE) as server:
        banner = [server.stderr.readline() for _ in range(5)]
        assert (banner[0][:8], banner[-1]) == ("Serving ", "  API keys: none\n")
        interrupt(server, 3)
        assert server.communicate(timeout=SECONDS) == ("", "")


def test_a_view_serves_its_page_until_a_signal() -> None:
    with running("view", "--no-open", TEXT) as view:
        _, address, *_ = view.stderr.readline().split()
        page = httpx.get(address)
        interrupt(view)
        assert (view.wait(SECONDS), view.stderr.read()) == (0, "")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")


def test_an_interrupted_command_ends_without_a_traceback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with running("check", url, stdout=subprocess.PIPE) as check:
            connection, _ = silent.accept()
            interrupt(check)
            output, errors = check.communicate(timeout=SECONDS)
            connection.close()
    assert check.returncode != 0
    assert (output, errors.strip()) in {("", ""), ("", "Aborted!")}


def test_a_full_device_ends_the_command_with_its_error() -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run([*INTERLOCK, "replay", TEXT, "--stream"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (2, b"interlock: No space left on device\n")


def test_a_closed_pipe_is_not_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*INTERLOCK, "replay", LONG], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.stderr == b""
