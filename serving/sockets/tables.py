"""The life of a lane and of a connection in WebSocket mode, declared as tables.

A *lane* holds the requests of one `stream_id`, first in, first out. A *connection* holds lanes, which run side by side. The
code that fires an edge carries out its effects: `interlock.serving.sockets.lane` and `interlock.serving.sockets.connection`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table

__all__ = ["CONNECTION", "LANE", "ConnectionEffect", "ConnectionTrigger", "LaneEffect", "LaneTrigger"]


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


class ConnectionTrigger(StrEnum):
    """What can happen to a connection."""

    REQUEST = "request"
    """A frame asks for a response."""
    EXPIRE = "expire"
    """The longest lifetime of a connection is over."""
    SHUT_DOWN = "shut_down"
    """The server shuts down: every run ends with `response.failed`."""
    LEAVE = "leave"
    """The client has gone."""
    DRAIN = "drain"
    """No request is in flight any more."""


class ConnectionEffect(StrEnum):
    """What an edge of a connection asks for."""

    DISPATCH = "dispatch"
    """Hand the request to its lane."""
    REFUSE = "refuse"
    """Answer the request with the error that the connection is too old."""
    LEAVE_LANES = "leave_lanes"
    """Cancel every run, and empty every queue."""
    SETTLE = "settle"
    """Fire `drain` at once if nothing is in flight."""
    CLOSE = "close"
    """Close the socket as after a good end (code 1000)."""
    CLOSE_RESTARTING = "close_restarting"
    """Close the socket with the code that says that the server restarts (1012)."""


_L, _A = LaneTrigger, LaneEffect

LANE: Final[Table[LaneTrigger, LaneEffect]] = Table(
    "lane",
    initial="idle",
    final={"closed"},
    edges=[
        #    in           on         goes to      effects
        Edge("idle",      _L.ASK,    "beginning", [_A.BEGIN]),
        Edge("idle",      _L.CANCEL, "idle"),
        Edge("idle",      _L.LEAVE,  "closed"),

        Edge("beginning", _L.ASK,    "beginning", [_A.QUEUE]),
        Edge("beginning", _L.BEGUN,  "running"),
        Edge("beginning", _L.CANCEL, "cancelled"),
        Edge("beginning", _L.END,    "idle",      [_A.ADVANCE]),
        Edge("beginning", _L.LEAVE,  "leaving",   [_A.CLEAR]),

        Edge("cancelled", _L.ASK,    "cancelled", [_A.QUEUE]),
        Edge("cancelled", _L.BEGUN,  "running",   [_A.INTERRUPT]),
        Edge("cancelled", _L.CANCEL, "cancelled"),
        Edge("cancelled", _L.END,    "idle",      [_A.ADVANCE]),
        Edge("cancelled", _L.LEAVE,  "leaving",   [_A.CLEAR]),

        Edge("running",   _L.ASK,    "running",   [_A.QUEUE]),
        Edge("running",   _L.CANCEL, "running",   [_A.INTERRUPT]),
        Edge("running",   _L.END,    "idle",      [_A.ADVANCE]),
        Edge("running",   _L.LEAVE,  "leaving",   [_A.CLEAR, _A.INTERRUPT]),

        Edge("leaving",   _L.BEGUN,  "leaving",   [_A.INTERRUPT]),
        Edge("leaving",   _L.END,    "closed"),
    ],
    total={
        "idle": [_L.ASK, _L.CANCEL, _L.LEAVE],
        "beginning": list(_L),
        "cancelled": list(_L),
        "running": [_L.ASK, _L.CANCEL, _L.END, _L.LEAVE],
        "leaving": [_L.BEGUN, _L.END],
    },
)  # fmt: skip
"""A lane. It runs one response at a time; a request that comes meanwhile waits in its queue."""

_C, _E = ConnectionTrigger, ConnectionEffect

CONNECTION: Final[Table[ConnectionTrigger, ConnectionEffect]] = Table(
    "connection",
    initial="open",
    final={"closed"},
    edges=[
        #    in               on            goes to          effects
        Edge("open",          _C.REQUEST,   "open",          [_E.DISPATCH]),
        Edge("open",          _C.DRAIN,     "open"),
        Edge("open",          _C.EXPIRE,    "expired"),
        Edge("open",          _C.SHUT_DOWN, "shutting_down", [_E.SETTLE]),
        Edge("open",          _C.LEAVE,     "left",          [_E.LEAVE_LANES, _E.SETTLE]),

        Edge("expired",       _C.REQUEST,   "finishing",     [_E.REFUSE, _E.SETTLE]),
        Edge("expired",       _C.DRAIN,     "expired"),
        Edge("expired",       _C.SHUT_DOWN, "shutting_down", [_E.SETTLE]),
        Edge("expired",       _C.LEAVE,     "left",          [_E.LEAVE_LANES, _E.SETTLE]),

        Edge("finishing",     _C.REQUEST,   "finishing",     [_E.REFUSE]),
        Edge("finishing",     _C.DRAIN,     "closed",        [_E.CLOSE]),
        Edge("finishing",     _C.SHUT_DOWN, "shutting_down", [_E.SETTLE]),
        Edge("finishing",     _C.LEAVE,     "left",          [_E.LEAVE_LANES, _E.SETTLE]),

        Edge("shutting_down", _C.REQUEST,   "shutting_down", [_E.DISPATCH]),
        Edge("shutting_down", _C.DRAIN,     "closed",        [_E.CLOSE_RESTARTING]),
        Edge("shutting_down", _C.SHUT_DOWN, "shutting_down"),
        Edge("shutting_down", _C.LEAVE,     "left",          [_E.LEAVE_LANES, _E.SETTLE]),

        Edge("left",          _C.DRAIN,     "closed"),
        Edge("left",          _C.SHUT_DOWN, "left"),
    ],
    total={
        "open": [_C.REQUEST, _C.DRAIN, _C.EXPIRE, _C.SHUT_DOWN, _C.LEAVE],
        "expired": [_C.REQUEST, _C.DRAIN, _C.SHUT_DOWN, _C.LEAVE],
        "finishing": [_C.REQUEST, _C.DRAIN, _C.SHUT_DOWN, _C.LEAVE],
        "shutting_down": [_C.REQUEST, _C.DRAIN, _C.SHUT_DOWN, _C.LEAVE],
        "left": [_C.DRAIN, _C.SHUT_DOWN],
    },
)  # fmt: skip
"""A connection. After its lifetime what runs is finished; the next request is refused, and then the socket is closed."""
