"""A WebSocket connection, declared as a table.

Its lanes (`interlock.serving.http.lane_table`) run concurrently.

`interlock.serving.http.websocket` executes the effects.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table


class ConnectionTrigger(StrEnum):
    """The triggers of a connection."""

    REQUEST = "request"
    """A frame asks for a response."""
    STEER = "steer"
    """A frame steers a response."""
    EXPIRE = "expire"
    """The connection reaches its maximum lifetime."""
    SHUT_DOWN = "shut_down"
    """The server shuts down; every run ends with `response.failed`."""
    LEAVE = "leave"
    """The client has disconnected."""
    DRAIN = "drain"
    """The last request in flight has ended."""


class ConnectionEffect(StrEnum):
    """The effects of a connection."""

    DISPATCH = "dispatch"
    """Submit the request to its lane."""
    REFUSE = "refuse"
    """Reject the request: the connection has reached its maximum lifetime."""
    STEER = "steer"
    """Queue the input for the successor of the response."""
    REFUSE_STEER = "refuse_steer"
    """Reject the input: the connection has reached its maximum lifetime."""
    LEAVE_LANES = "leave_lanes"
    """Cancel every run and empty every queue."""
    SETTLE = "settle"
    """Fire `drain` at once if nothing is in flight."""
    CLOSE = "close"
    """Close the socket normally (code 1000)."""
    CLOSE_RESTARTING = "close_restarting"
    """Close the socket because the server restarts (code 1012)."""


_T, _E = ConnectionTrigger, ConnectionEffect

CONNECTION: Final[Table[ConnectionTrigger, ConnectionEffect]] = Table(
    "connection",
    initial="open",
    final={"closed"},
    regions={"serving": ["open", "expired", "finishing"]},
    edges=[
        #    in               on            goes to          effects
        Edge("open",          _T.REQUEST,   "open",          [_E.DISPATCH]),
        Edge("open",          _T.STEER,     "open",          [_E.STEER]),
        Edge("open",          _T.DRAIN,     "open"),
        Edge("open",          _T.EXPIRE,    "expired"),

        Edge("expired",       _T.REQUEST,   "finishing",     [_E.REFUSE, _E.SETTLE]),
        Edge("expired",       _T.STEER,     "expired",       [_E.REFUSE_STEER]),
        Edge("expired",       _T.DRAIN,     "expired"),

        Edge("finishing",     _T.REQUEST,   "finishing",     [_E.REFUSE]),
        Edge("finishing",     _T.STEER,     "finishing",     [_E.REFUSE_STEER]),
        Edge("finishing",     _T.DRAIN,     "closed",        [_E.CLOSE]),

        Edge("serving",       _T.SHUT_DOWN, "shutting_down", [_E.SETTLE]),
        Edge("serving",       _T.LEAVE,     "left",          [_E.LEAVE_LANES, _E.SETTLE]),

        Edge("shutting_down", _T.REQUEST,   "shutting_down", [_E.DISPATCH]),
        Edge("shutting_down", _T.STEER,     "shutting_down", [_E.STEER]),
        Edge("shutting_down", _T.DRAIN,     "closed",        [_E.CLOSE_RESTARTING]),
        Edge("shutting_down", _T.SHUT_DOWN, "shutting_down"),
        Edge("shutting_down", _T.LEAVE,     "left",          [_E.LEAVE_LANES, _E.SETTLE]),

        Edge("left",          _T.DRAIN,     "closed"),
        Edge("left",          _T.SHUT_DOWN, "left"),
    ],
    total={
        "open": [_T.REQUEST, _T.STEER, _T.DRAIN, _T.EXPIRE, _T.SHUT_DOWN, _T.LEAVE],
        "expired": [_T.REQUEST, _T.STEER, _T.DRAIN, _T.SHUT_DOWN, _T.LEAVE],
        "finishing": [_T.REQUEST, _T.STEER, _T.DRAIN, _T.SHUT_DOWN, _T.LEAVE],
        "shutting_down": [_T.REQUEST, _T.STEER, _T.DRAIN, _T.SHUT_DOWN, _T.LEAVE],
        "left": [_T.DRAIN, _T.SHUT_DOWN],
    },
)  # fmt: skip
"""A connection. After its lifetime it rejects the next request, then closes once no request is in flight."""
