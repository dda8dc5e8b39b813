"""A lane of WebSocket mode, declared as a table: the requests of one `stream_id`, first in, first out.

`interlock.serving.http.websocket` carries out the effects.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table


class LaneTrigger(StrEnum):
    """The triggers of a lane."""

    ASK = "ask"
    """A request arrives, or is next in the queue."""
    CANCEL = "cancel"
    """The client cancels the current response."""
    SUCCEED = "succeed"
    """The response was steered and has ended; its successor is next, before the queue."""
    END = "end"
    """The terminal event of the response was sent, or an error instead of it."""
    LEAVE = "leave"
    """The client has disconnected."""


class LaneEffect(StrEnum):
    """The effects of a lane."""

    BEGIN = "begin"
    """Read the request and begin its run."""
    QUEUE = "queue"
    """Put the request at the end of the queue."""
    INTERRUPT = "interrupt"
    """Cancel the run."""
    ADVANCE = "advance"
    """Take the next request from the queue, if any."""
    CLEAR = "clear"
    """Empty the queue."""


_T, _E = LaneTrigger, LaneEffect

LANE: Final[Table[LaneTrigger, LaneEffect]] = Table(
    "lane",
    initial="idle",
    final={"closed"},
    edges=[
        #    in         on          goes to    effects
        Edge("idle",    _T.ASK,     "running", [_E.BEGIN]),
        Edge("idle",    _T.CANCEL,  "idle"),
        Edge("idle",    _T.LEAVE,   "closed"),

        Edge("running", _T.ASK,     "running", [_E.QUEUE]),
        Edge("running", _T.CANCEL,  "running", [_E.INTERRUPT]),
        Edge("running", _T.SUCCEED, "running", [_E.BEGIN]),
        Edge("running", _T.LEAVE,   "leaving", [_E.CLEAR, _E.INTERRUPT]),
        Edge("running", _T.END,     "idle",    [_E.ADVANCE]),

        Edge("leaving", _T.END,     "closed"),
    ],
    total={"idle": [_T.ASK, _T.CANCEL, _T.LEAVE], "running": list(_T), "leaving": [_T.END]},
)  # fmt: skip
"""A lane. It runs one response at a time and queues the other requests."""
