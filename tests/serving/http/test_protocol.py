"""What a client may send over a WebSocket, frame by frame: how often, how large, and without reading."""

import json
import logging
from itertools import count, islice

import httpx
import pytest
from live.raw_socket import DEFLATE, framed, raw_socket
from websockets.frames import CloseCode, Opcode

from interlock.serving.build import build
from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
from interlock.serving.http import bounded_protocol as protocol
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings

ASK = {"type": "response.create", "model": MODEL, "input": "Hi", "store": False, "generate": False}
MIB = 2**20
OPEN = framed(Opcode.TEXT, fin=False)


def request_bytes(**fields):
    return json.dumps({**ASK, **fields}, ensure_ascii=False).encode()


def test_a_message_may_be_fragmented_with_pings_in_between(url) -> None:
    content = request_bytes(input="\u4e16\U0001f600" * 50_000)
    with raw_socket(url) as client:
        client.send(Opcode.TEXT, content[:1], fin=False)
        for start in range(1, len(content), 1001):
            client.send(Opcode.CONT, content[start : start + 1001], fin=False)
        client.send(Opcode.PING, b"a")
        client.send(Opcode.CONT)
        assert next(client.frames()) == (Opcode.PONG, b"a")
        assert client.end_of_turn()["type"] == "response.completed"


def test_a_client_that_offers_compression_is_accepted_without(url) -> None:
    with raw_socket(url, DEFLATE) as client:
        assert "sec-websocket-extensions" not in client.head.lower()
        client.send(Opcode.TEXT, request_bytes())
        assert client.end_of_turn()["type"] == "response.completed"


def test_a_binary_message_is_refused_and_the_connection_goes_on(url) -> None:
    with raw_socket(url) as client:
        client.send(Opcode.BINARY, b"a" * MIB)
        assert client.end_of_turn()["error"]["message"] == "Frames must be text, not binary."
        client.send(Opcode.TEXT, request_bytes())
        assert client.end_of_turn()["type"] == "response.completed"


@pytest.fixture(scope="module")
def small():
    """The URL of a server that takes small messages."""
    with ServerThread(build(Settings(max_body_bytes=MIB), EmbeddedEngine())) as url:
        yield url


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (framed(Opcode.PING) * 2000, CloseCode.POLICY_VIOLATION),
        (framed(Opcode.PONG, b"a" * 125) * 2000, CloseCode.POLICY_VIOLATION),
        (OPEN + framed(Opcode.CONT, fin=False) * 2000, CloseCode.POLICY_VIOLATION),
        (OPEN + framed(Opcode.CONT, b"ab", fin=False) * 2000, CloseCode.POLICY_VIOLATION),
        (framed(Opcode.TEXT, b"\xff"), CloseCode.INVALID_DATA),
        (framed(Opcode.TEXT, b"\xe2\x82"), CloseCode.INVALID_DATA),
        (framed(Opcode.TEXT, b"a" * 20, rsv1=True), CloseCode.PROTOCOL_ERROR),
        (framed(Opcode.TEXT, b"x" * (MIB + 1)), CloseCode.MESSAGE_TOO_BIG),
        (OPEN + framed(Opcode.CONT, b"x" * (MIB + 1)), CloseCode.MESSAGE_TOO_BIG),
        (framed(Opcode.CONT), CloseCode.PROTOCOL_ERROR),
        (OPEN + framed(Opcode.CONT, rsv1=True), CloseCode.PROTOCOL_ERROR),
        (OPEN + framed(Opcode.CLOSE), CloseCode.PROTOCOL_ERROR),
    ],
    ids=count(),  # a frame is masked by chance
)
def test_excessive_or_invalid_frames_close_the_connection_without_a_warning(small, caplog, sent, code) -> None:
    with raw_socket(small, DEFLATE) as client:
        client.connection.sendall(sent)
        assert client.closed() == code
    assert httpx.get(f"{small}/health").status_code == 200
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_small_frames_are_counted_for_a_second(small, monkeypatch) -> None:
    monkeypatch.setattr(protocol, "PERIOD", 0.0)
    with raw_socket(small) as client:
        client.connection.sendall(framed(Opcode.PING) * 2000)
        assert [opcode for opcode, _ in islice(client.frames(), 2000)] == [Opcode.PONG] * 2000


def test_a_client_that_pings_and_never_reads_is_paused_and_then_aborted(monkeypatch) -> None:
    monkeypatch.setattr(protocol, "MAX_SMALL", 10**9)
    monkeypatch.setattr(protocol, "ABORT_SECONDS", 0)
    running, pings, sent = ServerThread(build(Settings(), EmbeddedEngine())), framed(Opcode.PING, b"a" * 125) * 1000, 0
    with running as url, raw_socket(url) as client, httpx.Client() as other_clients:
        client.connection.settimeout(0)
        patience = 20
        while patience:
            try:
                sent += client.connection.send(pings)
                patience = 20
            except BlockingIOError:
                patience -= 1
                assert other_clients.get(f"{url}/health").status_code == 200
        (connection,) = [each for each in running._server.server_state.connections if isinstance(each, protocol.BoundedProtocol)]
        assert connection.transport.get_write_buffer_size() < MIB
        connection.loop.call_soon_threadsafe(connection.keepalive_timeout)
        while connection in running._server.server_state.connections:
            other_clients.get(f"{url}/health")
    assert sent < 100 * MIB


def test_messages_that_come_at_once_are_answered_one_by_one(url) -> None:
    with raw_socket(url) as client:
        client.connection.sendall(framed(Opcode.TEXT, b"[]") * 3000 + framed(Opcode.TEXT, request_bytes()))
        assert [client.end_of_turn()["type"] for _ in range(3001)] == [*["error"] * 3000, "response.completed"]
