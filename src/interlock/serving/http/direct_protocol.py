"""uvicorn's HTTP protocol, which gives answers the socket of their client."""

from __future__ import annotations

from functools import partial

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from interlock.serving.engines.shortcut import client_socket
from interlock.serving.http.answers import BODY


class DirectProtocol(HttpToolsProtocol):
    """Adds the extension to the scope of each request."""

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.cycle:  # there is none for the handshake of a WebSocket
            self.scope["extensions"] = {BODY: {"socket": partial(client_socket, self.cycle)}}
