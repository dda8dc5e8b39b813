"""The input with which a client steers a response that runs on its WebSocket, until a successor continues with it.

The table `STEERING` in `steering_table` defines the states. `interlock.serving.http.websocket` sends the events and
starts the successors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import define, field, frozen

from interlock.embedding import random_id
from interlock.events.items import ITEMS
from interlock.events.json import elements, is_array, members
from interlock.events.steering import AcceptedSteer, FailedSteer, SteerAccepted, SteerError, SteerEvent, SteerFailed, SteerPending
from interlock.fsm.table import Machine
from interlock.serving.http.socket_memory import ConnectionMemory
from interlock.serving.http.steering_table import STEERING, SteeringEffect, SteeringTrigger
from interlock.serving.requests.api_errors import ApiError, invalid, missing
from interlock.serving.requests.input_items import JsonItem, read_input, waits_for_client
from interlock.serving.requests.limits import ITEMS as INPUT_ITEMS
from interlock.serving.requests.limits import Kinds

MOST: Final = 16
"""The most inputs that wait for the successor of one response."""

_MESSAGE: Final[Kinds] = {"message": INPUT_ITEMS["message"]}
_FIELDS: Final = frozenset({"type", "role", "content"})

_ENDED: Final = "The response has ended; send the input with the next request."
_NOT_STEERABLE: Final = "A response in a conversation, or with 'context_management', cannot be steered."
_TOO_MANY: Final = f"{MOST} inputs wait for the successor of the response, the maximum."
_FAILED: Final = "The response did not complete, so nothing continues it."
_DIVERGED: Final = "The next request of the lane does not continue the response."
_NOT_CREATED: Final = "The successor of the response could not be created."


@frozen
class SteerFrame:
    """Valid input to steer a response."""

    response_id: str
    input: str | Sequence[object]  # as the client sent it
    messages: tuple[JsonItem, ...]  # the same, each with its type
    size: int  # an estimate of its memory, in bytes
    id: str = field(factory=lambda: random_id("steer"))


@frozen
class SteerRefusedError(Exception):
    """A refused steering frame; `event` says why."""

    event: SteerFailed

    @classmethod
    def of(cls, code: str, message: str, response_id: object, steer_input: object) -> SteerRefusedError:
        """Return the error for an input; what the client sent with a wrong type is left out."""
        unused = steer_input if isinstance(steer_input, str) or is_array(steer_input) else ""
        target = response_id if isinstance(response_id, str) else ""
        steer = FailedSteer(previous_response_id=target, input=unused)
        return cls(SteerFailed(sequence_number=0, error=SteerError(code=code, message=message), steer=steer))


def read_steer(body: Mapping[str, object], size: int) -> SteerFrame:
    """Read a steering frame without its `type`.

    Raises:
        SteerRefusedError: It is invalid.
    """
    response_id, steer_input = body.get("previous_response_id"), body.get("input")
    try:
        for name in body.keys() - {"previous_response_id", "input"}:
            raise invalid(name, f"Unknown parameter: '{name}'.", "unknown_parameter")
        if not isinstance(response_id, str):
            raise missing("previous_response_id")
        if steer_input is None or steer_input in ("", []):
            raise missing("input")
        messages = read_input(steer_input, _MESSAGE)
        for index, message in enumerate(messages):
            if message.get("role") != "user":
                raise invalid(f"input[{index}].role", f"Invalid value for 'input[{index}].role': it must be 'user'.")
            for name in message.keys() - _FIELDS:
                raise invalid(f"input[{index}].{name}", f"Unknown parameter: 'input[{index}].{name}'.", "unknown_parameter")
    except ApiError as error:
        raise SteerRefusedError.of("invalid_input", error.message, response_id, steer_input) from None
    assert isinstance(steer_input, str) or is_array(steer_input)  # noqa: S101 - `read_input` refuses others
    return SteerFrame(response_id, steer_input, messages, size)


@define(eq=False)
class Steering:
    """The steering of one response: the input that waits for its successor."""

    body: Mapping[str, object] = field(repr=False)
    """The request of the response, whose settings the successor inherits."""
    _memory: ConnectionMemory
    response_id: str | None = field(default=None, init=False)
    """None until the response has begun."""
    successor: Mapping[str, object] | None = field(default=None, init=False)
    """The body of the request to start next, once the response has ended."""
    _due: list[SteerEvent] = field(factory=list[SteerEvent], init=False)
    """The events to send after the last one of the response."""
    _inputs: list[SteerFrame] = field(factory=list[SteerFrame], init=False)
    _machine: Machine[SteeringTrigger, SteeringEffect] = field(factory=lambda: Machine.at_start(STEERING), init=False)

    @property
    def waits(self) -> bool:
        """Whether the response should end, because input waits."""
        return SteeringTrigger.STEER in self._machine.state.rows and bool(self._inputs)

    @property
    def size(self) -> int:
        """The memory of the input, in bytes."""
        return sum(each.size for each in self._inputs)

    def accept(self, frame: SteerFrame) -> SteerEvent:
        """Queue an input, and return the event that says so.

        Raises:
            SteerRefusedError: The response has ended or cannot be steered, or too many inputs wait.
        """
        if SteeringTrigger.STEER not in self._machine.state.rows:
            raise SteerRefusedError.of("response_already_completed", _ENDED, frame.response_id, frame.input)
        if self.body.get("conversation") is not None or self.body.get("context_management"):
            raise SteerRefusedError.of("steering_not_supported", _NOT_STEERABLE, frame.response_id, frame.input)
        if len(self._inputs) >= MOST:
            raise SteerRefusedError.of("too_many_pending_steers", _TOO_MANY, frame.response_id, frame.input)
        try:
            self._memory.reserve(frame.size)
        except ApiError as error:
            raise SteerRefusedError.of("too_many_pending_steers", error.message, frame.response_id, frame.input) from None
        self._inputs.append(frame)
        (event,) = self._fire(SteeringTrigger.STEER)
        return event

    def note_end(self, response: Mapping[str, object]) -> None:
        """Note that the response has ended, before the client sees its end: it accepts no more input. Set `successor`."""
        required = [_stub(item) for item in map(members, elements(response.get("output"))) if waits_for_client(item)]
        if response.get("status") == "completed":
            self._due += self._fire(SteeringTrigger.REQUIRE if required else SteeringTrigger.COMPLETE, required)
            return
        steered = members(response.get("incomplete_details")).get("reason") == "steered"
        self._due += self._fire(SteeringTrigger.COMPLETE if steered else SteeringTrigger.FAIL)

    def end(self) -> list[SteerEvent]:
        """Return the events to send after the last one of the response; one without an end has failed."""
        return [*self._due, *self._fire(SteeringTrigger.FAIL)]

    def precede(self, body: Mapping[str, object]) -> tuple[Mapping[str, object] | None, list[SteerEvent]]:
        """Return the body of the lane's next request with the input before its own, or None if no input belongs there."""
        if body.get("previous_response_id") != self.response_id:
            return None, self._fire(SteeringTrigger.DIVERGE)
        if SteeringTrigger.CONTINUE not in self._machine.state.rows:
            return None, []
        self._fire(SteeringTrigger.CONTINUE)
        own = body.get("input")
        if own is None or isinstance(own, str):
            own = [] if own is None else [{"role": "user", "content": own}]  # validated with the request
        return ({**body, "input": [*self._messages, *own]} if is_array(own) else body), []

    def commit(self) -> None:
        """Note that the successor has begun."""
        self._fire(SteeringTrigger.CREATE)

    def refuse(self) -> list[SteerEvent]:
        """Return the events of a successor that has not begun; none if it has."""
        return self._fire(SteeringTrigger.REFUSE)

    def leave(self) -> None:
        """Note that the client has disconnected."""
        self._fire(SteeringTrigger.LEAVE)

    @property
    def _messages(self) -> list[JsonItem]:
        return [message for each in self._inputs for message in each.messages]

    def _fire(self, trigger: SteeringTrigger, required: Sequence[Mapping[str, object]] = ()) -> list[SteerEvent]:
        events: list[SteerEvent] = []
        for effect in self._machine.fire(trigger) if trigger in self._machine.state.rows else ():
            match effect:
                case SteeringEffect.ACCEPT:
                    events.append(SteerAccepted(sequence_number=0, steer=_accepted(self._inputs[-1])))
                case SteeringEffect.ANNOUNCE:
                    events += [
                        SteerPending(sequence_number=0, steer=_accepted(each), required_input=required) for each in self._inputs
                    ]
                case SteeringEffect.SUCCEED:
                    self.successor = {**self.body, "previous_response_id": self.response_id, "input": self._messages}
                case SteeringEffect.RETURN:
                    if trigger is not SteeringTrigger.REFUSE:  # a successor has its memory
                        self._memory.release(self.size)
                    events += [_returned(each, trigger) for each in self._inputs]
                case SteeringEffect.PREPEND:
                    pass  # see `precede`
        return events


_REASONS: Final[Mapping[SteeringTrigger, SteerError]] = {
    SteeringTrigger.FAIL: SteerError(code="response_not_active", message=_FAILED),
    SteeringTrigger.DIVERGE: SteerError(code="response_not_active", message=_DIVERGED),
    SteeringTrigger.REFUSE: SteerError(code="successor_creation_failed", message=_NOT_CREATED),
}
"""Why accepted input goes back to the client."""


def _accepted(frame: SteerFrame) -> AcceptedSteer:
    return AcceptedSteer(id=frame.id, previous_response_id=frame.response_id)


def _returned(frame: SteerFrame, why: SteeringTrigger) -> SteerFailed:
    steer = FailedSteer(id=frame.id, previous_response_id=frame.response_id, input=frame.input)
    return SteerFailed(sequence_number=0, error=_REASONS[why], steer=steer)


def _stub(item: Mapping[str, object]) -> Mapping[str, object]:
    """Return the answer to an item, without its result."""
    kind = ITEMS[str(item["type"])].answer
    match kind:
        case "mcp_approval_response":
            return {"type": kind, "approval_request_id": item["id"]}
        case "function_call_output":
            return {"type": kind, "call_id": item["call_id"], "name": item["name"]}
        case "tool_search_output":
            return {"type": kind, "call_id": item["call_id"], "execution": "client"}
        case _:
            return {"type": kind, "call_id": item["call_id"]}
