"""Servers that end, or whose engine does, while responses are being made: their streams end legally."""

import contextlib
import os
import signal
import threading

import httpx
import psutil
import pytest
from attrs import evolve
from playing import body, judged
from servers import PARSED, Server
from turns import Turn

ENDLESS = body("qwen3", Turn("", ["<think>\n\n</think>\n\nOne two three"]), stream=True)


@contextlib.contextmanager
def open_stream(server):
    """Give a function that reads the rest of a stream that has begun."""
    with httpx.stream("POST", f"{server.url}/v1/responses", json=ENDLESS, timeout=60) as answer:
        pieces = answer.iter_bytes()
        read = []
        while not read or b"output_text.delta" not in read[-1]:
            read.append(next(pieces))
        yield lambda: b"".join([*read, *pieces])


def engine_of(server):
    below = psutil.Process(server.process.pid).children(recursive=True)
    return next(process.pid for process in below if "EngineCore" in " ".join(process.cmdline()))


@pytest.fixture
def server():
    with Server(evolve(PARSED, context=65536)) as started:  # a minute's worth of tokens
        yield started


def test_a_shutdown_ends_the_open_streams_as_failed(server):
    with open_stream(server) as rest:
        server.process.terminate()
        response = judged(rest())[-1]["response"]
    assert (response["status"], (response["error"] or {}).get("code")) == ("failed", "server_error"), server.process.log


def test_the_death_of_the_engine_ends_the_open_streams_as_failed(server):
    with open_stream(server) as rest:
        killer = threading.Thread(target=os.kill, args=(engine_of(server), signal.SIGKILL))
        killer.start()
        response = judged(rest())[-1]["response"]
        killer.join()
    assert (response["status"], (response["error"] or {}).get("code")) == ("failed", "server_error"), server.process.log
