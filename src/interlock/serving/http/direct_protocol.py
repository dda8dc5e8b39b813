"""uvicorn's HTTP protocol, with limits for the head of a request.

It also gives answers the socket of their client, and sends no chunks to clients that know none.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Final

from httptools import HttpParserError
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from interlock.events.json import dumps
from interlock.serving.engines.shortcut import client_socket
from interlock.serving.http.answers import BODY
from interlock.serving.requests.api_errors import ApiError


class PlainCycle(RequestResponseCycle):
    """Answers a client of HTTP/1.0, which knows no chunks: the end of the connection is that of the body."""

    async def send(self, message: ASGISendEvent) -> None:
        self.chunked_encoding = False
        if message["type"] == "http.response.body":
            self.expected_content_length = len(message.get("body", b""))  # all that may come is what comes now
        await super().send(message)


MAX_HEAD_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 200
PARSED_BYTES: Final = 16 * 1024  # bytes to parse in one step: the parser copies an unfinished header at each
LARGE_HEAD: Final = f"The request line and headers may have {MAX_HEAD_BYTES:,} bytes and {MAX_HEADERS} headers."
TWO_HOSTS: Final = "The request has two Host headers."
_TOO_LARGE: Final = ApiError(431, LARGE_HEAD, code="headers_too_large")


class HttpProtocol(HttpToolsProtocol):
    """Refuses requests with large heads or two hosts, and serves clients of HTTP/1.0 too."""

    _head_bytes = 0
    """The bytes since the request began or a part of its body came, in steps of at most `PARSED_BYTES`."""
    _refusal: ApiError | None = None
    """Why the request is refused, if it is."""

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), PARSED_BYTES):
            part = data[start : start + PARSED_BYTES]
            self._head_bytes += len(part)
            super().data_received(part)
            if self.transport.is_closing() or self not in self.connections:  # refused, or a WebSocket from now on
                return
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refusal = _TOO_LARGE
                self.send_400_response(LARGE_HEAD)
                return

    def send_400_response(self, msg: str) -> None:
        """Refuse the request with the status of the refusal, and close the connection."""
        if self._refusal is None:
            super().send_400_response(msg)
            return
        status, body = HTTPStatus(self._refusal.status), dumps(self._refusal.body())
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        super().on_message_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            self._refuse(_TOO_LARGE)

    def _refuse(self, error: ApiError) -> None:
        """End the parsing of the request, so that uvicorn calls `send_400_response`."""
        self._refusal = error
        raise HttpParserError(error.message)

    def on_headers_complete(self) -> None:
        if sum(name == b"host" for name, _ in self.headers) > 1:
            self._refuse(ApiError(400, TWO_HOSTS, code="invalid_header"))
        super().on_headers_complete()
        if self.cycle and self.scope["http_version"] == "1.0":  # there is none for the handshake of a WebSocket
            self.cycle.__class__ = PlainCycle  # its task has not begun


class DirectProtocol(HttpProtocol):
    """Adds the extension to the scope of each request."""

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.cycle:
            self.scope["extensions"] = {BODY: {"socket": partial(client_socket, self.cycle)}}
