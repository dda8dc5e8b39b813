"""The server and its WebSockets, declared as tables, whose effects `server` and `websocket` carry out.

Apart from these, because the proof and the pictures need no package of a server.
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


_ServerT, _ServerE = ServerTrigger, ServerEffect

SERVER: Final[Table[ServerTrigger, ServerEffect]] = Table(
    "server",
    initial="starting",
    final={"ended"},
    regions={"running": ["starting", "serving"], "stopping": ["draining", "ending"]},
    edges=[
        #    in          on                goes to     effects
        Edge("starting", _ServerT.READY,  "serving",  [_ServerE.ANNOUNCE]),
        Edge("starting", _ServerT.FAIL,   "ended",    [_ServerE.GIVE_UP]),

        Edge("running",  _ServerT.STOP,   "draining", [_ServerE.DRAIN]),

        # The signal came before the server was ready.
        Edge("draining", _ServerT.READY,  "draining"),
        Edge("draining", _ServerT.FAIL,   "ended",    [_ServerE.GIVE_UP]),

        Edge("draining", _ServerT.IDLE,   "ending",   [_ServerE.END]),
        Edge("draining", _ServerT.EXPIRE, "ending",   [_ServerE.END]),
        Edge("ending",   _ServerT.CLOSE,  "ended"),

        Edge("stopping", _ServerT.STOP,   "ended",    [_ServerE.KILL]),
    ],
)  # fmt: skip
"""A server. It drains: it refuses requests, and the others go on for a limited time. A second signal ends it at once."""


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


_SocketT, _SocketE = ConnectionTrigger, ConnectionEffect

CONNECTION: Final[Table[ConnectionTrigger, ConnectionEffect]] = Table(
    "connection",
    initial="open",
    final={"closed"},
    regions={"serving": ["open", "expired", "finishing"]},
    edges=[
        #    in               on                  goes to          effects
        Edge("open",          _SocketT.REQUEST,   "open",          [_SocketE.DISPATCH]),
        Edge("open",          _SocketT.STEER,     "open",          [_SocketE.STEER]),
        Edge("open",          _SocketT.DRAIN,     "open"),
        Edge("open",          _SocketT.EXPIRE,    "expired"),

        Edge("expired",       _SocketT.REQUEST,   "finishing",     [_SocketE.REFUSE, _SocketE.SETTLE]),
        Edge("expired",       _SocketT.STEER,     "expired",       [_SocketE.REFUSE_STEER]),
        Edge("expired",       _SocketT.DRAIN,     "expired"),

        Edge("finishing",     _SocketT.REQUEST,   "finishing",     [_SocketE.REFUSE]),
        Edge("finishing",     _SocketT.STEER,     "finishing",     [_SocketE.REFUSE_STEER]),
        Edge("finishing",     _SocketT.DRAIN,     "closed",        [_SocketE.CLOSE]),

        Edge("serving",       _SocketT.SHUT_DOWN, "shutting_down", [_SocketE.SETTLE]),
        Edge("serving",       _SocketT.LEAVE,     "left",          [_SocketE.LEAVE_LANES, _SocketE.SETTLE]),

        Edge("shutting_down", _SocketT.REQUEST,   "shutting_down", [_SocketE.DISPATCH]),
        Edge("shutting_down", _SocketT.STEER,     "shutting_down", [_SocketE.STEER]),
        Edge("shutting_down", _SocketT.DRAIN,     "closed",        [_SocketE.CLOSE_RESTARTING]),
        Edge("shutting_down", _SocketT.SHUT_DOWN, "shutting_down"),
        Edge("shutting_down", _SocketT.LEAVE,     "left",          [_SocketE.LEAVE_LANES, _SocketE.SETTLE]),

        Edge("left",          _SocketT.DRAIN,     "closed"),
        Edge("left",          _SocketT.SHUT_DOWN, "left"),
    ],
    total={
        "open": [_SocketT.REQUEST, _SocketT.STEER, _SocketT.DRAIN, _SocketT.EXPIRE, _SocketT.SHUT_DOWN, _SocketT.LEAVE],
        "expired": [_SocketT.REQUEST, _SocketT.STEER, _SocketT.DRAIN, _SocketT.SHUT_DOWN, _SocketT.LEAVE],
        "finishing": [_SocketT.REQUEST, _SocketT.STEER, _SocketT.DRAIN, _SocketT.SHUT_DOWN, _SocketT.LEAVE],
        "shutting_down": [_SocketT.REQUEST, _SocketT.STEER, _SocketT.DRAIN, _SocketT.SHUT_DOWN, _SocketT.LEAVE],
        "left": [_SocketT.DRAIN, _SocketT.SHUT_DOWN],
    },
)  # fmt: skip
"""A connection, whose lanes run concurrently.

After its lifetime it rejects the next request, then closes once no request is in flight.
"""


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


_LaneT, _LaneE = LaneTrigger, LaneEffect

LANE: Final[Table[LaneTrigger, LaneEffect]] = Table(
    "lane",
    initial="idle",
    final={"closed"},
    edges=[
        #    in         on              goes to    effects
        Edge("idle",    _LaneT.ASK,     "running", [_LaneE.BEGIN]),
        Edge("idle",    _LaneT.CANCEL,  "idle"),
        Edge("idle",    _LaneT.LEAVE,   "closed"),

        Edge("running", _LaneT.ASK,     "running", [_LaneE.QUEUE]),
        Edge("running", _LaneT.CANCEL,  "running", [_LaneE.INTERRUPT]),
        Edge("running", _LaneT.SUCCEED, "running", [_LaneE.BEGIN]),
        Edge("running", _LaneT.LEAVE,   "leaving", [_LaneE.CLEAR, _LaneE.INTERRUPT]),
        Edge("running", _LaneT.END,     "idle",    [_LaneE.ADVANCE]),

        Edge("leaving", _LaneT.END,     "closed"),
    ],
    total={"idle": [_LaneT.ASK, _LaneT.CANCEL, _LaneT.LEAVE], "running": list(_LaneT), "leaving": [_LaneT.END]},
)  # fmt: skip
"""A lane. It runs one response at a time and queues the other requests."""


class SteeringTrigger(StrEnum):
    """The triggers of the steering of a response."""

    STEER = "steer"
    """The client sends valid input for the response."""
    COMPLETE = "complete"
    """The response is completed, or has ended at a boundary because of the input, and needs nothing from the client."""
    REQUIRE = "require"
    """The response is completed, and waits for results or approvals from the client."""
    FAIL = "fail"
    """The response failed, was cancelled or was cut."""
    CONTINUE = "continue"
    """The next request of the lane continues the response."""
    DIVERGE = "diverge"
    """The next request of the lane does not continue the response."""
    CREATE = "create"
    """The successor has begun: its `response.created` is the next event of the lane."""
    REFUSE = "refuse"
    """The successor cannot begin."""
    LEAVE = "leave"
    """The client has disconnected."""


class SteeringEffect(StrEnum):
    """The effects of the steering of a response."""

    ACCEPT = "accept"
    """Queue the input, and send `response.steer.accepted`."""
    SUCCEED = "succeed"
    """Start a successor with the settings of the response and the queued input."""
    ANNOUNCE = "announce"
    """Send `response.steer.pending` for each queued input."""
    PREPEND = "prepend"
    """Put the queued input before the input of the request."""
    RETURN = "return"
    """Send `response.steer.failed` with each queued input."""


_SteerT, _SteerE = SteeringTrigger, SteeringEffect

STEERING: Final[Table[SteeringTrigger, SteeringEffect]] = Table(
    "steering",
    initial="open",
    final={"ended"},
    regions={"steered": ["queued", "pending", "committing"]},
    edges=[
        #    in            on                goes to       effects
        Edge("open",       _SteerT.STEER,    "queued",     [_SteerE.ACCEPT]),
        Edge("open",       _SteerT.COMPLETE, "ended"),
        Edge("open",       _SteerT.REQUIRE,  "ended"),
        Edge("open",       _SteerT.FAIL,     "ended"),
        Edge("open",       _SteerT.LEAVE,    "ended"),

        Edge("queued",     _SteerT.STEER,    "queued",     [_SteerE.ACCEPT]),
        Edge("queued",     _SteerT.COMPLETE, "committing", [_SteerE.SUCCEED]),
        Edge("queued",     _SteerT.REQUIRE,  "pending",    [_SteerE.ANNOUNCE]),
        Edge("queued",     _SteerT.FAIL,     "ended",      [_SteerE.RETURN]),

        Edge("pending",    _SteerT.CONTINUE, "committing", [_SteerE.PREPEND]),
        Edge("pending",    _SteerT.DIVERGE,  "ended",      [_SteerE.RETURN]),

        Edge("committing", _SteerT.CREATE,   "ended"),
        Edge("committing", _SteerT.REFUSE,   "ended",      [_SteerE.RETURN]),

        Edge("steered",    _SteerT.LEAVE,    "ended"),
    ],
)  # fmt: skip
"""The steering of one response: what becomes of the input that its client sends meanwhile.

The response ends at the next boundary of its output, or by itself. A successor continues it with the input: one that the lane
starts, or the client's next request, if the response waits for the client. Accepted input becomes part of a successor or goes
back to the client; it is never lost.
"""
