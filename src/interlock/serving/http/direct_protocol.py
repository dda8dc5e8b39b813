"""uvicorn's HTTP protocol, which gives answers the socket of their client, and sends no chunks to clients that know none."""

from __future__ import annotations

from functools import partial

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from interlock.serving.engines.shortcut import client_socket
from interlock.serving.http.answers import BODY


class PlainCycle(RequestResponseCycle):
    """Answers a client of HTTP/1.0, which knows no chunks: the end of the connection is that of the body."""

    async def send(self, message: ASGISendEvent) -> None:
        self.chunked_encoding = False
        if message["type"] == "http.response.body":
            self.expected_content_length = len(message.get("body", b""))  # all that may come is what comes now
        await super().send(message)


class HttpProtocol(HttpToolsProtocol):
    """Serves clients of HTTP/1.0 too."""

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.cycle and self.scope["http_version"] == "1.0":  # there is none for the handshake of a WebSocket
            self.cycle.__class__ = PlainCycle  # its task has not begun


class DirectProtocol(HttpProtocol):
    """Adds the extension to the scope of each request."""

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.cycle:
            self.scope["extensions"] = {BODY: {"socket": partial(client_socket, self.cycle)}}
