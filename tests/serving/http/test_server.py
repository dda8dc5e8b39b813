"""A server starts, says where it is, and ends without cutting a stream."""

import json
import re
import socket
import threading
import time
from functools import partial
from urllib.parse import urlsplit

import httpx
import pytest
from live.engines import ANSWER, Gate, StagedEngine, step
from live.wire import bodies
from openai import DEFAULT_CONNECTION_LIMITS
from starlette.middleware.gzip import GZipMiddleware

from interlock.serving.build import build
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http.server import Server, ServerThread, listen, url_of
from interlock.serving.settings import Settings
from interlock.testing import assert_legal

STREAM = {"model": "staged", "input": "Hi", "stream": True}


def test_a_shutdown_ends_open_streams_as_failed_and_closes_the_engine() -> None:
    gate = Gate()
    engine = StagedEngine([step(ANSWER), gate])
    server = ServerThread(build(Settings(), engine))
    with server as url, httpx.stream("POST", f"{url}/v1/responses", json=STREAM) as answer:
        assert gate.reached.wait(10)
        server.stop()
        events = bodies(answer.read())
    response = events[-1]["response"]
    assert (events[-1]["type"], response["error"]["message"]) == ("response.failed", "The server is shutting down.")
    assert response["output"][0]["status"] == "incomplete"
    assert engine.closed.is_set()


def test_a_server_drains_its_streams_and_sockets_and_refuses_new_requests() -> None:
    gate = Gate()
    server = ServerThread(build(Settings(drain=600), StagedEngine([step(ANSWER), gate, step("", "stop")])))
    with server as url, httpx.stream("POST", f"{url}/v1/responses", json=STREAM) as answer:
        assert gate.reached.wait(10)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        while (ready := httpx.get(f"{url}/ready")).status_code == 200:
            time.sleep(0.01)
        refused = httpx.post(f"{url}/v1/responses", json=STREAM)
        alive = httpx.get(f"{url}/health")
        gate.open()
        assert bodies(answer.read())[-1]["type"] == "response.completed"
        stopping.join(10)
    assert [each.status_code for each in (ready, refused, alive)] == [503, 503, 200]
    assert {each.json()["error"]["message"] for each in (ready, refused)} == {"The server is shutting down."}
    assert {each.headers["retry-after"] for each in (ready, refused)} == {"1"}


def test_a_server_whose_application_cannot_start_raises_an_error(caplog) -> None:
    engine = StagedEngine([])
    engine.format = "unknown"
    with pytest.raises(RuntimeError, match="the server did not start"), ServerThread(build(Settings(), engine)):
        pytest.fail("the server has started")
    assert "unknown" in caplog.text


def test_a_request_that_arrives_during_a_shutdown_is_refused() -> None:
    engine = StagedEngine([step(ANSWER, "stop")])
    app = build(Settings(), engine)
    app.state.active_runs.end()
    with ServerThread(app) as url:
        answer = httpx.post(f"{url}/v1/responses", json=STREAM)
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, "The server is shutting down.")
    assert answer.headers["retry-after"] == "1"
    assert engine.turns == []


def test_an_ended_response_leaves_nothing_in_memory() -> None:
    app = build(Settings(), StagedEngine([step(ANSWER, "stop")]))
    with ServerThread(app) as url:
        bodies(httpx.post(f"{url}/v1/responses", json=STREAM).content)
    assert len(app.state.active_runs) == 0


def test_an_idle_connection_is_closed_by_the_sdk_before_the_server_closes_it() -> None:
    server = Server(build(Settings(), StagedEngine([])), lambda: None)
    assert DEFAULT_CONNECTION_LIMITS.keepalive_expiry is not None
    assert server.config.timeout_keep_alive > 2 * DEFAULT_CONNECTION_LIMITS.keepalive_expiry


@pytest.mark.parametrize(("host", "pattern"), [("127.0.0.1", r"http://127\.0\.0\.1:\d+"), ("localhost", r"http://127.*")])
def test_a_socket_has_a_url(host, pattern) -> None:
    with listen(host, 0) as listening:
        assert re.fullmatch(pattern, url_of(listening))


@pytest.mark.skipif(not socket.has_ipv6, reason="the machine has no IPv6")
def test_an_ipv6_address_stands_in_brackets() -> None:
    with listen("::1", 0) as listening:
        assert re.fullmatch(r"http://\[::1\]:\d+", url_of(listening))


def test_a_port_that_is_taken_is_not_taken_again() -> None:
    with listen("127.0.0.1", 0) as listening, pytest.raises(OSError, match="in use"):
        listen("127.0.0.1", listening.getsockname()[1])


def test_a_connection_sends_each_write_at_once() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/models", "/v1/no"])
@pytest.mark.parametrize("changes_bodies", [False, True])
def test_a_client_of_http_1_0_gets_no_chunks(path, changes_bodies) -> None:
    body = b'{"model": "interlock-embedded", "input": "Hi", "stream": true}' if path == "/v1/responses" else b""
    head = f"{'POST' if body else 'GET'} {path} HTTP/1.0\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\n\r\n"
    application = build(Settings(), EmbeddedEngine())
    if changes_bodies:
        application.add_middleware(GZipMiddleware)
    with ServerThread(application) as url:
        place = urlsplit(url)
        with socket.create_connection((place.hostname, place.port), timeout=30) as connection:
            connection.sendall(head.encode() + body)
            answer = b"".join(iter(partial(connection.recv, 65_536), b""))
    headers, _, content = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in headers.lower()
    if body:
        assert_legal(content)
    else:
        json.loads(content)
