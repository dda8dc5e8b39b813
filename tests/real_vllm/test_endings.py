"""If a server or its engine ends during responses, their streams end legally."""

import contextlib
import json
import os
import signal
import threading

import httpx
import psutil
import pytest
from playing import body, judged
from servers import HEADERS
from turns import Turn
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

ENDLESS = body("qwen3", Turn("", ["<think>\n\n</think>\n\nOne two three"]), stream=True)


@contextlib.contextmanager
def open_stream(server):
    """Begin a stream, and yield a function that returns all its bytes."""
    with httpx.stream("POST", f"{server.url}/v1/responses", json=ENDLESS, headers=HEADERS, timeout=60) as answer:
        pieces = answer.iter_bytes()
        read = []
        while not read or b"output_text.delta" not in read[-1]:
            read.append(next(pieces))
        yield lambda: b"".join([*read, *pieces])


def rest_of(socket):
    """Yield the frames of a connection until it is closed."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            yield json.loads(socket.recv(timeout=60))


def engine_of(server):
    below = psutil.Process(server.process.pid).children(recursive=True)
    return next(process.pid for process in below if "EngineCore" in " ".join(process.cmdline()))


@pytest.mark.ends_server
@pytest.mark.parametrize("server", ["parsed"], indirect=True)
def test_a_shutdown_fails_the_open_responses_and_closes_a_socket_as_for_a_restart(server):
    with (
        open_stream(server) as rest,
        connect(server.url.replace("http", "ws", 1) + "/v1/responses", open_timeout=60) as socket,
    ):
        socket.send(json.dumps({"type": "response.create", **ENDLESS}))
        while "output_text.delta" not in socket.recv(timeout=60):
            pass
        server.process.terminate()
        response = judged(rest())[-1]["response"]
        *_, last = rest_of(socket)
    assert (response["status"], (response["error"] or {}).get("code")) == ("failed", "server_error"), server.process.log
    assert (last["type"], socket.close_code) == ("response.failed", 1012), server.process.log


@pytest.mark.ends_server
@pytest.mark.parametrize("server", ["operated"], indirect=True)
def test_the_death_of_the_engine_ends_the_open_streams_as_failed(server):
    with open_stream(server) as rest:
        killer = threading.Thread(target=os.kill, args=(engine_of(server), signal.SIGKILL))
        killer.start()
        response = judged(rest())[-1]["response"]
        killer.join()
    assert (response["status"], (response["error"] or {}).get("code")) == ("failed", "server_error"), server.process.log
