"""The life of a server's process, declared as a table.

A signal asks the server to stop. It first *drains*: it refuses requests, and the responses in progress go on for a limited time.

`interlock.serving.http.server` carries out the effects.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table


class ServerTrigger(StrEnum):
    """The triggers of a server."""

    READY = "ready"
    """Connections are accepted."""
    FAIL = "fail"
    """The application cannot start."""
    STOP = "stop"
    """A signal asks the server to stop."""
    IDLE = "idle"
    """No response is in progress."""
    EXPIRE = "expire"
    """The time to drain is over."""
    CLOSE = "close"
    """All connections are closed."""


class ServerEffect(StrEnum):
    """The effects of a server."""

    ANNOUNCE = "announce"
    """Tell the user, or the supervisor, that the server is ready."""
    DRAIN = "drain"
    """Refuse new requests, and start the timer, which fires `expire`."""
    END = "end"
    """End the responses in progress and close all connections."""
    GIVE_UP = "give_up"
    """Exit with the status of a failed start."""
    KILL = "kill"
    """Exit at once."""


_T, _E = ServerTrigger, ServerEffect

SERVER: Final[Table[ServerTrigger, ServerEffect]] = Table(
    "server",
    initial="starting",
    final={"ended"},
    regions={"running": ["starting", "serving"], "stopping": ["draining", "ending"]},
    edges=[
        #    in          on          goes to     effects
        Edge("starting", _T.READY,  "serving",  [_E.ANNOUNCE]),
        Edge("starting", _T.FAIL,   "ended",    [_E.GIVE_UP]),

        Edge("running",  _T.STOP,   "draining", [_E.DRAIN]),

        # The signal came before the server was ready.
        Edge("draining", _T.READY,  "draining"),
        Edge("draining", _T.FAIL,   "ended",    [_E.GIVE_UP]),

        Edge("draining", _T.IDLE,   "ending",   [_E.END]),
        Edge("draining", _T.EXPIRE, "ending",   [_E.END]),
        Edge("ending",   _T.CLOSE,  "ended"),

        Edge("stopping", _T.STOP,   "ended",    [_E.KILL]),
    ],
)  # fmt: skip
"""A server. A second signal ends it at once."""
