"""The steering of a response over a WebSocket, declared as a table: what becomes of the input that its client sends meanwhile.

The response ends at the next boundary of its output, or by itself. A successor continues it with the input: one that the lane
starts (`interlock.serving.http.lane_table`), or the client's next request, if the response waits for the client. Accepted input
becomes part of a successor or goes back to the client; it is never lost.

`interlock.serving.http.steering` executes the effects.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table


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


_T, _E = SteeringTrigger, SteeringEffect

STEERING: Final[Table[SteeringTrigger, SteeringEffect]] = Table(
    "steering",
    initial="open",
    final={"ended"},
    regions={"steered": ["queued", "pending", "committing"]},
    edges=[
        #    in            on           goes to       effects
        Edge("open",       _T.STEER,    "queued",     [_E.ACCEPT]),
        Edge("open",       _T.COMPLETE, "ended"),
        Edge("open",       _T.REQUIRE,  "ended"),
        Edge("open",       _T.FAIL,     "ended"),
        Edge("open",       _T.LEAVE,    "ended"),

        Edge("queued",     _T.STEER,    "queued",     [_E.ACCEPT]),
        Edge("queued",     _T.COMPLETE, "committing", [_E.SUCCEED]),
        Edge("queued",     _T.REQUIRE,  "pending",    [_E.ANNOUNCE]),
        Edge("queued",     _T.FAIL,     "ended",      [_E.RETURN]),

        Edge("pending",    _T.CONTINUE, "committing", [_E.PREPEND]),
        Edge("pending",    _T.DIVERGE,  "ended",      [_E.RETURN]),

        Edge("committing", _T.CREATE,   "ended"),
        Edge("committing", _T.REFUSE,   "ended",      [_E.RETURN]),

        Edge("steered",    _T.LEAVE,    "ended"),
    ],
)  # fmt: skip
"""The steering of one response. A response that has ended accepts no input."""
