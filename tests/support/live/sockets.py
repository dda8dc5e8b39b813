"""Clients of WebSocket mode: one that speaks JSON, and one that sends whatever it wants, frame by frame."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

from websockets.frames import Frame, Opcode
from websockets.sync.client import connect

PATIENCE = 60
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


class SocketClient:
    """A connection, with all frames that it has received; `request` has what its requests share."""

    def __init__(self, socket, request):
        self.socket, self.request, self.frames = socket, {"type": "response.create", **request}, []

    def send(self, frame, **fields):
        self.socket.send(frame if isinstance(frame, str | bytes) else json.dumps({**frame, **fields}))

    def receive(self):
        self.frames.append(json.loads(self.socket.recv(timeout=PATIENCE)))
        return self.frames[-1]

    def until(self, *kinds):
        """Receive frames up to one of these types, and return it."""
        while self.receive()["type"] not in kinds:
            pass
        return self.frames[-1]

    def turn(self):
        """The frames up to the end of a response, or the one frame that is an error."""
        start = len(self.frames)
        self.until(*ENDS)
        return self.frames[start:]

    def ends(self, count):
        """The terminal frames of the next responses."""
        return [self.until(*ENDS) for _ in range(count)]

    def ask(self, frame=None, **fields):
        """Send a request, and return the frames of its turn."""
        self.send(self.request if frame is None else frame, **fields)
        return self.turn()


@contextmanager
def socket_client(url, request=(), kind=SocketClient, **options):
    """Connect to a server, to its version of the API or to its root."""
    url = url.replace("http", "ws", 1).removesuffix("/v1")
    with connect(f"{url}/v1/responses", open_timeout=PATIENCE, **options) as socket:
        yield kind(socket, dict(request))


HEAD: Final = (
    "GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{more}\r\n"
)
DEFLATE: Final = "sec-websocket-extensions: permessage-deflate\r\n"
RAW_ENDS: Final = {"response.completed", "response.incomplete", "response.failed", "response.steer.failed", "error"}
RAW_PATIENCE: Final = 300
MIB: Final = 2**20


class RawSocket:
    """One connection, opened.

    Args:
        connection: The socket below it.
        head: What the server has answered to the request to open it.
        received: What it has sent since.
    """

    def __init__(self, connection: socket.socket, head: str, received: bytes) -> None:
        self.connection, self.head, self.received = connection, head, received

    def send(self, opcode: int, data: bytes = b"", *, fin: bool = True, rsv1: bool = False) -> None:
        """Send a frame."""
        self.connection.sendall(framed(opcode, data, fin=fin, rsv1=rsv1))

    def send_all(self, data: bytes) -> None:
        """Send frames, as far as the server takes them before it closes the connection."""
        with suppress(ConnectionError):
            self.connection.sendall(data)

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Yield the frames that come until the server closes the connection, each as its opcode and its data."""
        while True:
            while (frame := self._next()) is not None:
                yield frame
            try:
                piece = self.connection.recv(MIB)
            except ConnectionResetError:
                return
            if not piece:
                return
            self.received += piece

    def _next(self) -> tuple[int, bytes] | None:
        """Return the next frame, if it is there."""
        if len(self.received) < 2:
            return None
        first, length = self.received[:2]
        head = {126: 4, 127: 10}.get(length, 2)
        end = head + (length if head == 2 else int.from_bytes(self.received[2:head], "big"))
        if len(self.received) < max(head, end):
            return None
        data, self.received = self.received[head:end], self.received[end:]
        return first & 15, data

    def closed(self) -> int | None:
        """Return the code with which the server closes the connection; None if it sends none."""
        *_, (opcode, data) = self.frames()
        return int.from_bytes(data[:2], "big") if opcode == Opcode.CLOSE else None

    def end_of_turn(self) -> dict[str, object]:
        """Return the event that ends the next turn; of a closed connection, the code in the place of its status."""
        return self.turn()[-1]

    def turn(self) -> list[dict[str, object]]:
        """Return the events of the next turn."""
        events: list[dict[str, object]] = []
        for opcode, data in self.frames():
            if opcode == Opcode.CLOSE:
                return [{"type": "closed", "status": int.from_bytes(data[:2], "big")}]
            if opcode == Opcode.TEXT:
                events.append(json.loads(data))
                if events[-1]["type"] in RAW_ENDS:
                    return events
        return [{"type": "closed"}]


def framed(opcode: int, data: bytes = b"", *, fin: bool = True, rsv1: bool = False) -> bytes:
    """Return a frame as a client sends it."""
    sent = Frame(Opcode(opcode), data, fin).serialize(mask=True)
    return bytes([sent[0] | 64 * rsv1]) + sent[1:]


@contextmanager
def raw_socket(url: str, more: str = "", path: str = "/v1/responses") -> Generator[RawSocket]:
    """Open a connection."""
    place = urlsplit(url)
    with socket.create_connection((str(place.hostname), place.port or 80), timeout=RAW_PATIENCE) as connection:
        connection.sendall(HEAD.format(path=path, more=more).encode())
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(4096)
        head, _, received = received.partition(b"\r\n\r\n")
        yield RawSocket(connection, head.decode(), received)
