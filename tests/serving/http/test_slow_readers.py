"""A client that does not read holds little, and then its engine is not asked for more; sockets and their buffers are real.

What the server holds for it is what the engine has yielded, for the client has taken nothing. That the engine waits is seen by
counting: it is not asked once while another client is answered twenty times, each time by several turns of the event loop.
"""

import json
import re
import socket
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
from live.engines import ANSWER, StagedEngine, step
from live.wire import bodies
from websockets.sync.client import connect

from interlock.serving.build import build
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings
from interlock.verify.oracle import check

WORDS = " a word of an answer" * 40
STEPS = 1_500
MIB = 2**20
REQUEST = {"model": "staged", "input": "Hi", "stream": True}


def talkative():
    """An engine that says 1.2 MB as fast as it is asked."""
    return StagedEngine([step(ANSWER), *[step(WORDS)] * STEPS, step("", "stop")])


def reader(url):
    """A connected socket whose system takes as little as may be before it is read."""
    place = urlsplit(url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    connection.connect((place.hostname, place.port))
    return connection


@contextmanager
def unread(url, **fields):
    """A stream that was asked for, of which nothing is read."""
    content = json.dumps({**REQUEST, **fields}).encode()
    with reader(url) as connection:
        head = "POST /v1/responses HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n"
        connection.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        yield connection


def rest(connection, received=b""):
    """The events of the stream, once it is read."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MIB)
    pieces = [received]
    while piece := connection.recv(2**20):
        pieces.append(piece)
    chunks, at, stream = b"".join(pieces).partition(b"\r\n\r\n")[2], 0, bytearray()
    while size := int(chunks[at : (end := chunks.index(b"\r\n", at))], 16):
        stream += chunks[end + 2 : end + 2 + size]
        at = end + 2 + size + 2
    return bodies(bytes(stream))


def is_kept_waiting(engine, url, client):
    """Whether the engine is not asked while others are answered."""
    before = engine.yielded
    for _ in range(20):
        assert client.get(f"{url}/health").status_code == 200
    return engine.yielded == before


def held_when_paused(engine, url):
    """The bytes of text that the engine has yielded when it is asked no more."""
    with httpx.Client() as client:
        while not (engine.yielded > 1 and is_kept_waiting(engine, url, client)):
            pass
    return engine.yielded * len(WORDS)


def test_a_client_that_does_not_read_its_stream_pauses_the_engine_and_gets_all_of_it_later() -> None:
    engine = talkative()
    with ServerThread(build(Settings(), engine)) as url, unread(url, store=False) as connection:
        assert held_when_paused(engine, url) < MIB
        events = rest(connection)
    assert (events[-1]["type"], engine.yielded) == ("response.completed", STEPS + 2)


def test_a_client_that_does_not_read_its_websocket_pauses_the_engine_and_gets_all_of_it_later() -> None:
    engine = talkative()
    options = {"compression": None, "max_size": None, "max_queue": 1, "close_timeout": 60}
    with (
        ServerThread(build(Settings(), engine)) as url,
        connect(url.replace("http", "ws", 1) + "/v1/responses", sock=reader(url), **options) as websocket,
    ):
        websocket.send(json.dumps({"type": "response.create", **REQUEST, "store": False}))
        assert held_when_paused(engine, url) < MIB
        events = [json.loads(websocket.recv())]
        while events[-1]["type"] != "response.completed":
            events.append(json.loads(websocket.recv()))
    assert (check(events), engine.yielded) == ([], STEPS + 2)


def test_a_client_that_leaves_without_having_read_ends_its_run() -> None:
    engine = talkative()
    app = build(Settings(), engine)
    with ServerThread(app) as url:
        with unread(url, store=False):
            assert held_when_paused(engine, url) < MIB
        assert engine.closed.wait(60)
    assert (engine.yielded < STEPS, len(app.state.active_runs)) == (True, 0)


def test_a_reader_of_the_log_that_does_not_read_keeps_no_response_in_the_background_waiting() -> None:
    engine = talkative()
    with ServerThread(build(Settings(), engine)) as url, unread(url, background=True) as connection, httpx.Client() as client:
        received = b""
        while (named := re.search(rb'"id":"(resp_\w+)"', received)) is None:
            received += connection.recv(1024)
        place = f"{url}/v1/responses/{named[1].decode()}"
        while (response := client.get(place).json())["status"] != "completed":
            assert response["status"] in {"queued", "in_progress"}
        events = rest(connection, received)
    assert events[-1]["response"] == response
