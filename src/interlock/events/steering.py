"""The server's events about the steering of a response over a WebSocket.

They are not part of the response's stream: each connection numbers its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import UNSET, Struct

from interlock.events.parts import Maybe


class AcceptedSteer(Struct, kw_only=True):
    """The id of a steering input, and the response that it steers."""

    id: str
    previous_response_id: str


class FailedSteer(Struct, kw_only=True):
    """A steering input that no response took; it has no id if it was not accepted."""

    id: Maybe[str] = UNSET
    previous_response_id: str
    input: str | Sequence[object]


class SteerError(Struct, kw_only=True):
    """Why a steering input failed."""

    type: Literal["invalid_request_error"] = "invalid_request_error"
    code: str
    message: str


class SteerEvent(Struct, tag_field="type", kw_only=True):
    """An event about a steering input."""

    sequence_number: int
    stream_id: Maybe[str] = UNSET


class SteerAccepted(SteerEvent, tag="response.steer.accepted"):
    """The server has queued the input."""

    steer: AcceptedSteer


class SteerPending(SteerEvent, tag="response.steer.pending"):
    """The response is completed, and the input waits for what the client still has to send."""

    steer: AcceptedSteer
    required_input: Sequence[Mapping[str, object]]
    reason: Literal["waiting_for_required_input"] = "waiting_for_required_input"


class SteerFailed(SteerEvent, tag="response.steer.failed"):
    """The input is no part of any response."""

    error: SteerError
    steer: FailedSteer
