"""Faults during a response on real servers: the engine fails or aborts, a parser raises an error, or the server ends."""

import contextlib
import json
import os
import signal
import threading

import httpx
import psutil
import pytest
from playing import body, get, judged, stream, without_chance
from servers import HEADERS
from turns import ANSWER, Turn
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from interlock.serving.responses.run import GENERATION_ERROR

WORDS = "One two three four five six seven eight nine ten."
TEXT = " ".join([WORDS] * 40)  # more than a busy machine delivers at once
OUTPUT = {"gpt_oss": f"{ANSWER}{TEXT}<|return|>", "qwen3": f"<think></think>{TEXT}<|im_end|>"}
EACH = pytest.mark.parametrize("server", ["harmony", "operated"], indirect=True)


def request_body(server, fault, **fields):
    model = server.setup.model
    request = body(model, Turn("", [OUTPUT[model]]), **fields)
    request["vllm_xargs"]["fault"] = fault
    return request


def stream_response(server, request):
    """Return the response of a legal stream."""
    return judged(stream(server.url, request, **HEADERS))[-1]["response"]


def whole(server, request):
    """Return the response without streaming."""
    answer = httpx.post(f"{server.url}/v1/responses", json=request, headers=HEADERS, timeout=60)
    assert answer.status_code == 200
    return answer.json()


def end(response):
    return response["status"], response["error"]


@EACH
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("raises", GENERATION_ERROR),
        ("cannot generate", "The engine cannot generate this."),
        ("is dead", "EngineCore encountered an issue. See stack trace (above) for the root cause."),
        ("error", "The engine failed while it generated the response."),
    ],
)
def test_an_engine_failure_fails_the_response_and_keeps_its_text(server, fault, text):
    request = request_body(server, fault)
    for response in (stream_response(server, request), whole(server, request)):
        assert end(response) == ("failed", {"code": "server_error", "message": text, "type": "server_error"})
        (message,) = response["output"]
        assert message["status"] == "incomplete"
        assert message["content"][0]["text"].startswith("One")
        assert TEXT.startswith(message["content"][0]["text"])
        assert response["usage"]["output_tokens"] > 0


@EACH
@pytest.mark.parametrize("fault", ["abort", "aborts"])
def test_an_engine_abort_cancels_the_response(server, fault):
    for response in (stream_response(server, request_body(server, fault)), whole(server, request_body(server, fault))):
        assert end(response) == ("cancelled", None)
        assert [item["status"] for item in response["output"]] == ["incomplete"]
        assert response["usage"]["output_tokens"] > 0


@EACH
def test_the_server_works_after_a_fault(server):
    stream_response(server, request_body(server, "raises"))
    request = request_body(server, "")
    response = stream_response(server, request)
    assert (response["status"], response["output"][0]["content"][0]["text"]) == ("completed", TEXT)
    assert without_chance(whole(server, request)) == without_chance(response)


@pytest.mark.parametrize("server", ["operated"], indirect=True)
def test_a_parser_error_fails_the_response(server):
    written = OUTPUT["qwen3"].replace("<|im_end|>", " Eleven, twelve, thirteen.<|im_end|>")  # see failing_parser.py
    turn = Turn("", [written], body={"tools": [{"type": "function", "name": "f"}]})
    request = body("qwen3", turn)
    response = stream_response(server, request)
    assert (
        end(response)
        == end(whole(server, request))
        == ("failed", {"code": "server_error", "message": GENERATION_ERROR, "type": "server_error"})
    )
    assert response["output"][0]["content"][0]["text"].startswith(WORDS)


@pytest.mark.parametrize("server", ["harmony"], indirect=True)
def test_a_fault_of_a_background_response_ends_all_its_streams(server):
    background = httpx.post(f"{server.url}/v1/responses", json=request_body(server, "raises", background=True), timeout=60).json()
    url = f"{server.url}/v1/responses/{background['id']}"
    readings = [judged(get(url, params={"stream": "true"}).content) for _ in range(2)]
    assert readings[0] == readings[1]
    assert readings[0][-1]["response"]["error"]["message"] == GENERATION_ERROR
    assert get(url).json() == readings[0][-1]["response"]


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
