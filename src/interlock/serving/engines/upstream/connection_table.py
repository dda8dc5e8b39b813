"""A connection of a gateway to its upstream, declared as a table: a request is sent over it after the whole answer to the last.

`interlock.serving.engines.upstream.http_client` carries out the effects.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table


class UpstreamConnectionTrigger(StrEnum):
    """The triggers of a connection to an upstream."""

    SEND = "send"
    """The gateway sends a request."""
    HEAD = "head"
    """The head of the answer has arrived, and is not informational."""
    END = "end"
    """The answer is complete, and another one can follow it."""
    CLOSE = "close"
    """The connection is lost, abandoned or idle for too long, its last answer is complete, or the server violates HTTP."""


class UpstreamConnectionEffect(StrEnum):
    """The effects of a connection to an upstream."""

    KEEP = "keep"
    """Offer the connection to the next request, and start the timer, which fires `close`."""
    TAKE = "take"
    """Offer the connection to no other request, and stop the timer."""
    TELL = "tell"
    """Continue the task that waits for the head of the answer, or for its end."""
    ABORT = "abort"
    """Close the socket."""


_T, _E = UpstreamConnectionTrigger, UpstreamConnectionEffect

UPSTREAM_CONNECTION: Final[Table[UpstreamConnectionTrigger, UpstreamConnectionEffect]] = Table(
    "upstream_connection",
    initial="connected",
    final={"closed"},
    regions={"busy": ["waiting", "reading"]},
    edges=[
        #    in           on         goes to    effects
        Edge("connected", _T.SEND,  "waiting"),
        Edge("waiting",   _T.HEAD,  "reading", [_E.TELL]),
        Edge("reading",   _T.END,   "idle",    [_E.TELL, _E.KEEP]),
        Edge("idle",      _T.SEND,  "waiting", [_E.TAKE]),

        Edge("connected", _T.CLOSE, "closed",  [_E.ABORT]),
        Edge("busy",      _T.CLOSE, "closed",  [_E.TELL, _E.ABORT]),
        Edge("idle",      _T.CLOSE, "closed",  [_E.TAKE, _E.ABORT]),
    ],
)  # fmt: skip
"""A connection to an upstream. Its answers end one after another; whatever arrives while it is idle closes it."""
