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
    START = "start"
    """The request is read, and its run starts."""
    CANCEL = "cancel"
    """The client cancels the current response."""
    END = "end"
    """The terminal event of the response was sent, or an error instead of it."""
    LEAVE = "leave"
    """The client has disconnected."""


class LaneEffect(StrEnum):
    """The effects of a lane."""

    BEGIN = "begin"
    """Read the request and start its run."""
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
    regions={"busy": ["beginning", "cancelled", "running"]},
    edges=[
        #    in           on         goes to      effects
        Edge("idle",      _T.ASK,    "beginning", [_E.BEGIN]),
        Edge("idle",      _T.CANCEL, "idle"),
        Edge("idle",      _T.LEAVE,  "closed"),

        Edge("busy",      _T.ASK,    "busy",      [_E.QUEUE]),
        Edge("busy",      _T.END,    "idle",      [_E.ADVANCE]),

        Edge("beginning", _T.START,  "running"),
        Edge("beginning", _T.CANCEL, "cancelled"),
        Edge("beginning", _T.LEAVE,  "leaving",   [_E.CLEAR]),

        Edge("cancelled", _T.START,  "running",   [_E.INTERRUPT]),
        Edge("cancelled", _T.CANCEL, "cancelled"),
        Edge("cancelled", _T.LEAVE,  "leaving",   [_E.CLEAR]),

        Edge("running",   _T.CANCEL, "running",   [_E.INTERRUPT]),
        Edge("running",   _T.LEAVE,  "leaving",   [_E.CLEAR, _E.INTERRUPT]),

        Edge("leaving",   _T.START,  "leaving",   [_E.INTERRUPT]),
        Edge("leaving",   _T.END,    "closed"),
    ],
    total={
        "idle": [_T.ASK, _T.CANCEL, _T.LEAVE],
        "beginning": list(_T),
        "cancelled": list(_T),
        "running": [_T.ASK, _T.CANCEL, _T.END, _T.LEAVE],
        "leaving": [_T.START, _T.END],
    },
)  # fmt: skip
"""A lane. It runs one response at a time and queues the other requests."""
