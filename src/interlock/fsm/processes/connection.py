"""The life of a connection in WebSocket mode, declared as a table: it holds lanes, which run side by side.

`interlock.serving.http.websocket.socket_connection` carries out the effects.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table

__all__ = ["CONNECTION", "ConnectionEffect", "ConnectionTrigger"]


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


_T, _E = ConnectionTrigger, ConnectionEffect

CONNECTION: Final[Table[ConnectionTrigger, ConnectionEffect]] = Table(
    "connection",
    initial="open",
    final={"closed"},
    edges=[
        #    in               on            goes to          effects
        Edge("open",          _T.REQUEST,   "open",          [_E.DISPATCH]),
        Edge("open",          _T.DRAIN,     "open"),
        Edge("open",          _T.EXPIRE,    "expired"),
        Edge("open",          _T.SHUT_DOWN, "shutting_down", [_E.SETTLE]),
        Edge("open",          _T.LEAVE,     "left",          [_E.LEAVE_LANES, _E.SETTLE]),

        Edge("expired",       _T.REQUEST,   "finishing",     [_E.REFUSE, _E.SETTLE]),
        Edge("expired",       _T.DRAIN,     "expired"),
        Edge("expired",       _T.SHUT_DOWN, "shutting_down", [_E.SETTLE]),
        Edge("expired",       _T.LEAVE,     "left",          [_E.LEAVE_LANES, _E.SETTLE]),

        Edge("finishing",     _T.REQUEST,   "finishing",     [_E.REFUSE]),
        Edge("finishing",     _T.DRAIN,     "closed",        [_E.CLOSE]),
        Edge("finishing",     _T.SHUT_DOWN, "shutting_down", [_E.SETTLE]),
        Edge("finishing",     _T.LEAVE,     "left",          [_E.LEAVE_LANES, _E.SETTLE]),

        Edge("shutting_down", _T.REQUEST,   "shutting_down", [_E.DISPATCH]),
        Edge("shutting_down", _T.DRAIN,     "closed",        [_E.CLOSE_RESTARTING]),
        Edge("shutting_down", _T.SHUT_DOWN, "shutting_down"),
        Edge("shutting_down", _T.LEAVE,     "left",          [_E.LEAVE_LANES, _E.SETTLE]),

        Edge("left",          _T.DRAIN,     "closed"),
        Edge("left",          _T.SHUT_DOWN, "left"),
    ],
    total={
        "open": [_T.REQUEST, _T.DRAIN, _T.EXPIRE, _T.SHUT_DOWN, _T.LEAVE],
        "expired": [_T.REQUEST, _T.DRAIN, _T.SHUT_DOWN, _T.LEAVE],
        "finishing": [_T.REQUEST, _T.DRAIN, _T.SHUT_DOWN, _T.LEAVE],
        "shutting_down": [_T.REQUEST, _T.DRAIN, _T.SHUT_DOWN, _T.LEAVE],
        "left": [_T.DRAIN, _T.SHUT_DOWN],
    },
)  # fmt: skip
"""A connection. After its lifetime what runs is finished; the next request is refused, and then the socket is closed."""
