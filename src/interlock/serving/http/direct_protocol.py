"""uvicorn's HTTP protocol, with a shortcut for the chunks of an answer's body."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from interlock.serving.engines.shortcut import Shortcut
from interlock.serving.http.answers import BODY

T = TypeVar("T")


class DirectProtocol(HttpToolsProtocol):
    """Adds the extension to the scope of each request."""

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.cycle:  # there is none for the handshake of a WebSocket
            self.scope["extensions"] = {BODY: {"shortcut": partial(_shortcut, self.cycle)}}


def _shortcut(cycle: RequestResponseCycle, encode: Callable[[T], bytes]) -> Shortcut[T]:
    """Return a shortcut that writes each value, once encoded, as a chunk of the body."""
    flow, write = cycle.flow, cycle.transport.write

    def is_open() -> bool:
        return bool(cycle.chunked_encoding) and not (flow.write_paused or cycle.disconnected or cycle.response_complete)

    def take(value: T) -> bool:
        if data := encode(value):  # an empty chunk would end the body
            write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    return Shortcut(is_open, take)
