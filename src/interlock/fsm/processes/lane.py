"""The life of a lane in WebSocket mode, declared as a table: the requests of one `stream_id`, first in, first out.

`interlock.serving.http.websocket.socket_connection` carries out the effects.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table

__all__ = ["LANE", "LaneEffect", "LaneTrigger"]


class LaneTrigger(StrEnum):
    """What can happen to a lane."""

    ASK = "ask"
    """A request comes in, or its turn in the queue has come."""
    BEGUN = "begun"
    """The request was read, and its run is about to start."""
    CANCEL = "cancel"
    """The client cancels what the lane generates."""
    END = "end"
    """The terminal event of the response was sent, or the error that took its place."""
    LEAVE = "leave"
    """The client has gone."""


class LaneEffect(StrEnum):
    """What an edge of a lane asks for."""

    BEGIN = "begin"
    """Read the request, and start its run."""
    QUEUE = "queue"
    """Put the request at the end of the queue."""
    INTERRUPT = "interrupt"
    """Cancel the run."""
    ADVANCE = "advance"
    """Ask for the next request of the queue, if there is one."""
    CLEAR = "clear"
    """Empty the queue."""


_T, _E = LaneTrigger, LaneEffect

LANE: Final[Table[LaneTrigger, LaneEffect]] = Table(
    "lane",
    initial="idle",
    final={"closed"},
    edges=[
        #    in           on         goes to      effects
        Edge("idle",      _T.ASK,    "beginning", [_E.BEGIN]),
        Edge("idle",      _T.CANCEL, "idle"),
        Edge("idle",      _T.LEAVE,  "closed"),

        Edge("beginning", _T.ASK,    "beginning", [_E.QUEUE]),
        Edge("beginning", _T.BEGUN,  "running"),
        Edge("beginning", _T.CANCEL, "cancelled"),
        Edge("beginning", _T.END,    "idle",      [_E.ADVANCE]),
        Edge("beginning", _T.LEAVE,  "leaving",   [_E.CLEAR]),

        Edge("cancelled", _T.ASK,    "cancelled", [_E.QUEUE]),
        Edge("cancelled", _T.BEGUN,  "running",   [_E.INTERRUPT]),
        Edge("cancelled", _T.CANCEL, "cancelled"),
        Edge("cancelled", _T.END,    "idle",      [_E.ADVANCE]),
        Edge("cancelled", _T.LEAVE,  "leaving",   [_E.CLEAR]),

        Edge("running",   _T.ASK,    "running",   [_E.QUEUE]),
        Edge("running",   _T.CANCEL, "running",   [_E.INTERRUPT]),
        Edge("running",   _T.END,    "idle",      [_E.ADVANCE]),
        Edge("running",   _T.LEAVE,  "leaving",   [_E.CLEAR, _E.INTERRUPT]),

        Edge("leaving",   _T.BEGUN,  "leaving",   [_E.INTERRUPT]),
        Edge("leaving",   _T.END,    "closed"),
    ],
    total={
        "idle": [_T.ASK, _T.CANCEL, _T.LEAVE],
        "beginning": list(_T),
        "cancelled": list(_T),
        "running": [_T.ASK, _T.CANCEL, _T.END, _T.LEAVE],
        "leaving": [_T.BEGUN, _T.END],
    },
)  # fmt: skip
"""A lane. It runs one response at a time; a request that comes meanwhile waits in its queue."""
