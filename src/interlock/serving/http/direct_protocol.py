"""uvicorn's HTTP protocol, which gives answers the socket of their client, and sends no chunks to clients that know none."""

from __future__ import annotations

from functools import partial

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from interlock.serving.engines.shortcut import client_socket
from interlock.serving.http.answers import BODY


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
