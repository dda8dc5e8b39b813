"""WebSocket mode: several requests over one connection to `/v1/responses`, one after another or concurrently.

The tables `CONNECTION`, `LANE` and `STEERING` define the states. This module executes their effects, and reads and writes frames.

The latest response of each lane is kept for the next request, as JSON, which takes a sixth of the memory of Python objects. If
there is no room, the least recently used response is evicted, whichever connection has it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from sys import getsizeof
from typing import Final

from attrs import define, evolve, field, frozen
from msgspec import UNSET
from msgspec.structs import replace
from starlette.websockets import WebSocket, WebSocketState

from interlock.embedding import now, random_id
from interlock.events import SseWriter, response_settings
from interlock.events.dialects import OPENAI, Dialect
from interlock.events.items import ITEMS
from interlock.events.json import dumps, elements, is_array, members
from interlock.events.steering import AcceptedSteer, FailedSteer, SteerAccepted, SteerError, SteerEvent, SteerFailed, SteerPending
from interlock.fsm.deltas import Cancel, Fault, Start
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.table import Machine
from interlock.serving import metrics
from interlock.serving.http.answers import INTERNAL_ERROR, log_refusal, stream_writer
from interlock.serving.http.tables import (
    CONNECTION,
    LANE,
    STEERING,
    ConnectionEffect,
    ConnectionTrigger,
    LaneEffect,
    LaneTrigger,
    SteeringEffect,
    SteeringTrigger,
)
from interlock.serving.requests.api_errors import ApiError, invalid, missing
from interlock.serving.requests.api_keys import tenant_of
from interlock.serving.requests.body import JsonBudget, read_object, too_many_values
from interlock.serving.requests.input_items import JsonItem, read_input, waits_for_client
from interlock.serving.requests.limits import ITEMS as INPUT_ITEMS
from interlock.serving.requests.limits import Kinds
from interlock.serving.requests.logs import log_model
from interlock.serving.requests.runtime import Outcome, Yielder, is_fault
from interlock.serving.responses.active_runs import Interrupt, NotBegunError
from interlock.serving.responses.archive import store_error
from interlock.serving.responses.run import ResponseRun
from interlock.serving.responses.service import PendingRun, ResponseService
from interlock.serving.settings import SocketLimits
from interlock.serving.store.values import StoredResponse, body_of, put_together

logger = logging.getLogger(__name__)

NORMAL: Final = 1000
RESTARTING: Final = 1012

BINARY: Final = ApiError(400, "Frames must be text, not binary.", code="invalid_value")
TOO_OLD: Final = ApiError(
    400, "This connection has reached its maximum lifetime. Open a new one.", code="websocket_connection_limit_reached"
)
NOT_RUNNING: Final = "No response with this id runs on this connection."
EVICTED: Final = "The server evicted it to limit the memory of WebSockets. Send the whole input again."

STREAM_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
ENCODED_CHARACTERS: Final = 2**17  # characters of a frame that are encoded at once
PER_VALUE: Final = 100  # bytes of memory that a JSON value takes in addition to its text
NO_ROOM: Final = "websocket_stream_limit_reached"

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
class CachedResponse:
    """A response without its output, and the items of its conversation, as JSON; the last `outputs` of these are its output."""

    id: str
    chunks: tuple[bytes, ...]
    outputs: int

    @classmethod
    def of(cls, stored: StoredResponse) -> CachedResponse:
        return cls(stored.id, (body_of(stored), *map(dumps, stored.conversation)), len(stored.output))

    @property
    def size(self) -> int:
        return getsizeof(self.chunks) + sum(map(getsizeof, self.chunks))


@define(eq=False)
class SocketMemory:
    """The memory of all WebSockets of a process, at most `limit` bytes."""

    limit: int
    used: int = field(default=0, init=False)
    responses: OrderedDict[tuple[ConnectionMemory, str | None], CachedResponse] = field(
        factory=OrderedDict[tuple["ConnectionMemory", "str | None"], CachedResponse], init=False
    )
    """The latest responses by connection and lane, the least recently used first."""

    def reserve(self, size: int) -> None:
        """Reserve bytes, and evict responses to make room; raise an `ApiError` if there is still not enough."""
        while self.used + size > self.limit:
            if not self.responses:
                message = f"The WebSocket requests of this server would take more than {self.limit} bytes of memory."
                raise ApiError(400, message, param="stream_id", code=NO_ROOM)
            _, evicted = self.responses.popitem(last=False)
            self.used -= evicted.size
        self.used += size


@define(eq=False)
class ConnectionMemory:
    """The part of one connection: the latest responses of its lanes, and the bytes reserved for its requests."""

    _memory: SocketMemory
    _reserved: int = field(default=0, init=False)

    def reserve(self, size: int) -> None:
        self._memory.reserve(size)
        self._reserved += size

    def release(self, size: int) -> None:
        self._memory.used -= size
        self._reserved -= size

    def store(self, lane: str | None, stored: StoredResponse) -> None:
        """Cache the latest response of a lane, if there is room for it."""
        self._discard(lane)
        cached = CachedResponse.of(stored)
        with suppress(ApiError):
            self._memory.reserve(cached.size)
            self._memory.responses[self, lane] = cached

    def take(self, lane: str | None, response_id: object) -> tuple[StoredResponse | None, int]:
        """Remove and return the latest response of a lane, with its bytes, which stay reserved; None if it has another id."""
        cached = self._memory.responses.get((self, lane))
        if cached is None or cached.id != response_id:
            return None, 0
        del self._memory.responses[self, lane]
        self._reserved += cached.size
        body, *items = cached.chunks
        return put_together(body, items, cached.outputs), cached.size

    def close(self, lanes: Iterable[str | None]) -> None:
        """Release all memory of the connection, which has ended, and had these lanes."""
        for lane in lanes:
            self._discard(lane)
        self.release(self._reserved)

    def _discard(self, lane: str | None) -> None:
        cached = self._memory.responses.pop((self, lane), None)
        if cached is not None:
            self._memory.used -= cached.size


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
    """Read a steering frame without its `type`; raise a `SteerRefusedError` if it is invalid."""
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
        return sum(each.size for each in self._inputs)

    def accept(self, frame: SteerFrame) -> SteerEvent:
        """Queue an input, and return the event that says so; raise a `SteerRefusedError` if it cannot be used."""
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
        self._fire(SteeringTrigger.CREATE)

    def refuse(self) -> list[SteerEvent]:
        return self._fire(SteeringTrigger.REFUSE)

    def leave(self) -> None:
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


@frozen
class CreateFrame:
    """A request for a response."""

    stream_id: str | None  # None for the lane without a name
    body: Mapping[str, object] = field(repr=False)  # as in a POST
    generate: bool  # if false, the request is only validated and rendered
    size: int  # an estimate of its memory, in bytes
    parent: Steering | None = None  # whose input it commits
    is_from_client: bool = True


@frozen
class CancelFrame:
    """A request to cancel the current response of a lane."""

    stream_id: str | None


@frozen
class FrameError(Exception):
    """A refused frame; `answer` is the error frame to send."""

    answer: str


@frozen
class UnknownFrameError(FrameError):
    """A frame of an unknown type. It is ignored while a request is in flight, because clients would read an error as its end."""


@define(eq=False)
class Lane:
    """The requests of one `stream_id`, first in, first out."""

    stream_id: str | None
    size: int = field(default=0, init=False)  # bytes reserved for the current request and the response that it continues
    steering: Steering | None = field(default=None, init=False)
    """The steering of the current response, or of the last one."""
    latest: str | None = field(default=None, init=False)
    """The id of the response that was cached last, unless a request has taken it."""
    interrupt: Interrupt | None = field(default=None, init=False)
    """Ends the run of the current request."""
    _queue: deque[CreateFrame] = field(factory=deque[CreateFrame], init=False)
    _machine: Machine[LaneTrigger, LaneEffect] = field(factory=lambda: Machine.at_start(LANE), init=False)

    @property
    def in_flight(self) -> int:
        return len(self._queue) + (LaneTrigger.END in self._machine.state.rows)

    def submit(self, request: CreateFrame) -> CreateFrame | None:
        """Return a request, for the caller to start, if the lane is idle; otherwise queue it."""
        return self._fire(LaneTrigger.ASK, request)

    def end(self) -> CreateFrame | None:
        """End the current request, and return the next one to start."""
        self.interrupt = None
        return self._fire(LaneTrigger.END)

    def succeed(self, request: CreateFrame) -> CreateFrame | None:
        """End the current request, and return its successor to start, unless the client has disconnected."""
        self.interrupt = None
        return self._fire(LaneTrigger.SUCCEED, request) if LaneTrigger.SUCCEED in self._machine.state.rows else self.end()

    def cancel(self) -> None:
        self._fire(LaneTrigger.CANCEL)

    def close(self) -> None:
        """Cancel the current request, and drop the queue, because the client has disconnected."""
        self._fire(LaneTrigger.LEAVE)
        if self.steering is not None:
            self.steering.leave()

    def _fire(self, trigger: LaneTrigger, request: CreateFrame | None = None) -> CreateFrame | None:
        next_request: CreateFrame | None = None
        for effect in self._machine.fire(trigger):
            match effect:
                case LaneEffect.BEGIN:
                    next_request = request
                case LaneEffect.QUEUE if request is not None:
                    self._queue.append(request)
                case LaneEffect.ADVANCE if self._queue:
                    next_request = self._fire(LaneTrigger.ASK, self._queue.popleft())
                case LaneEffect.INTERRUPT if self.interrupt is not None:
                    self.interrupt(Cancel())
                case LaneEffect.CLEAR:
                    self._queue.clear()
                case _:
                    pass
        return next_request


@define(eq=False)
class SocketConnection:
    """One connection, from the accepted socket to its end."""

    _socket: WebSocket
    _service: ResponseService
    _dialect: Dialect
    _memory: ConnectionMemory
    _limits: SocketLimits
    _keep_alive: float  # seconds of silence after which a lane receives an event, or 0
    _lanes: dict[str | None, Lane] = field(factory=dict[str | None, Lane], init=False)
    _steer_numbers: Iterator[int] = field(factory=count, init=False)
    """The numbers of the events about steering."""
    _tasks: set[asyncio.Task[None]] = field(factory=set[asyncio.Task[None]], init=False)
    _machine: Machine[ConnectionTrigger, ConnectionEffect] = field(factory=lambda: Machine.at_start(CONNECTION), init=False)

    async def serve(self) -> None:
        """Serve the connection until it is closed and all of its requests have ended."""
        timer = asyncio.get_running_loop().call_later(self._limits.lifetime, self._expire)
        yielder = Yielder()
        metrics.count("interlock_websocket_connections")
        try:
            while (message := await self._socket.receive())["type"] != "websocket.disconnect":
                await self._handle(message, yielder)
                await yielder.checkpoint()
        finally:
            timer.cancel()
            await self._fire(ConnectionTrigger.LEAVE)
            if self._tasks:
                await asyncio.wait(self._tasks)
            self._memory.close(self._lanes)
            metrics.count("interlock_websocket_connections", amount=-1)
            metrics.count("interlock_websocket_lanes", amount=-len(self._lanes))

    def interrupt(self, ending: Fault | Cancel) -> None:
        """Close the connection once all requests have ended; `ActiveRuns` ends their runs."""
        del ending
        self._spawn(self._fire(ConnectionTrigger.SHUT_DOWN))

    def _expire(self) -> None:
        if ConnectionTrigger.EXPIRE in self._machine.state.rows:
            self._machine.fire(ConnectionTrigger.EXPIRE)

    async def _handle(self, message: Mapping[str, object], yielder: Yielder) -> None:
        text = message.get("text")
        if not isinstance(text, str):
            await self._send(_error_frame(BINARY))
            return
        try:
            match await _read_frame(text, yielder):
                case CreateFrame() as request:
                    await self._fire(ConnectionTrigger.REQUEST, request)
                case SteerFrame() as steer:
                    await self._fire(ConnectionTrigger.STEER, steer)
                case CancelFrame(stream_id) if stream_id in self._lanes:
                    self._lanes[stream_id].cancel()
                case _:
                    pass
        except FrameError as error:
            if isinstance(error, UnknownFrameError) and self._in_flight:
                logger.warning("a WebSocket frame of an unknown type is ignored, because a request is in flight")
            else:
                await self._send(error.answer)
        except SteerRefusedError as refusal:
            await self._send_steering([refusal.event])

    async def _fire(  # noqa: C901 - one case for each effect
        self, trigger: ConnectionTrigger, request: CreateFrame | SteerFrame | None = None
    ) -> None:
        if trigger not in self._machine.state.rows:  # the connection may end while a frame is read
            return
        for effect in self._machine.fire(trigger):
            match effect:
                case ConnectionEffect.STEER if isinstance(request, SteerFrame):
                    await self._steer(request)
                case ConnectionEffect.REFUSE_STEER if isinstance(request, SteerFrame):
                    refusal = SteerRefusedError.of("response_not_active", TOO_OLD.message, request.response_id, request.input)
                    await self._send_steering([refusal.event])
                case ConnectionEffect.DISPATCH if isinstance(request, CreateFrame):
                    lane = self._lane_for(request)
                    self._start(lane, lane.submit(request))
                case ConnectionEffect.REFUSE if isinstance(request, CreateFrame):
                    await self._send(_error_frame(TOO_OLD, request.stream_id))
                case ConnectionEffect.LEAVE_LANES:
                    for lane in self._lanes.values():
                        lane.close()
                case ConnectionEffect.SETTLE if not self._in_flight:
                    await self._fire(ConnectionTrigger.DRAIN)
                case ConnectionEffect.CLOSE:
                    await self._close(NORMAL)
                case ConnectionEffect.CLOSE_RESTARTING:
                    await self._close(RESTARTING)
                case _:
                    pass

    @property
    def _in_flight(self) -> int:
        return sum(lane.in_flight for lane in self._lanes.values())

    def _lane_for(self, request: CreateFrame) -> Lane:
        """Return the lane of a request, and reserve memory for the request; raise a `FrameError` beyond a limit."""
        lane = self._lanes.get(request.stream_id)
        named = sum(name is not None for name in self._lanes)
        try:
            if self._in_flight >= self._limits.in_flight:
                raise _too_many(f"{self._limits.in_flight} requests in flight")
            if lane is None and request.stream_id is not None and named >= self._limits.lanes:
                raise _too_many(f"{self._limits.lanes} streams")
            self._memory.reserve(request.size)
        except ApiError as error:
            raise FrameError(_error_frame(error, request.stream_id)) from None
        if lane is None:
            lane = self._lanes[request.stream_id] = Lane(request.stream_id)
            metrics.count("interlock_websocket_lanes")
        return lane

    async def _steer(self, frame: SteerFrame) -> None:
        """Queue input for the successor of a response; raise a `SteerRefusedError` if that is not possible."""
        lanes = (each for each in self._lanes.values() if each.steering and each.steering.response_id == frame.response_id)
        lane = next(lanes, None)
        if lane is None or lane.steering is None:
            raise SteerRefusedError.of("response_not_found", NOT_RUNNING, frame.response_id, frame.input)
        await self._send_steering([lane.steering.accept(frame)], lane)

    def _start(self, lane: Lane, request: CreateFrame | None) -> None:
        """Begin the run of a request, which can be cancelled from now on, and answer it in a task."""
        if request is None:
            return
        returned: list[SteerEvent] = []
        if request.is_from_client and (parent := lane.steering) is not None:
            body, returned = parent.precede(request.body)
            if body is not None:
                request = evolve(request, body=body, size=request.size + parent.size, parent=parent)
        lane.steering = steering = Steering(request.body, self._memory)
        latest, size = self._memory.take(lane.stream_id, request.body.get("previous_response_id"))
        if latest is not None:
            lane.latest = None
        lane.size = request.size + size
        try:
            pending = Outcome(value=self._begin(lane, request, latest, steering))
        except BaseException as error:
            if not is_fault(error):
                raise
            pending = Outcome[PendingRun[bytes]](error=error)
        self._spawn(self._answer(lane, request, pending, steering, returned))

    def _begin(self, lane: Lane, request: CreateFrame, latest: StoredResponse | None, steering: Steering) -> PendingRun[bytes]:
        parameters = self._service.engine.read(request.body)
        pending = PendingRun(
            self._service,
            parameters,
            tenant_of(self._socket),
            stream_writer(parameters, self._dialect),
            latest=latest,
            generates=request.generate,
            connection=self._socket,
            is_steered=lambda: steering.waits,
        )
        lane.interrupt = pending.control.interrupt
        return pending

    async def _answer(
        self,
        lane: Lane,
        request: CreateFrame,
        pending: Outcome[PendingRun[bytes]],
        steering: Steering,
        returned: Sequence[SteerEvent],
    ) -> None:
        """Answer a request with events or an error, then start its successor or the next request of its lane."""
        log_model(request.body)
        try:
            await self._send_steering(returned, lane)
            await self._stream(pending.result(), lane, request, steering)
        except BaseException as error:
            if not is_fault(error):
                raise
            if request.is_from_client:
                await self._send_error(error, lane, request)
        finally:
            self._release(lane)
            if request.parent is not None:
                await self._send_steering(request.parent.refuse(), lane)
            await self._send_steering(steering.end(), lane)
            successor = self._successor(request, steering)
            if successor is None:
                await self._send_steering(steering.refuse(), lane)
            self._start(lane, lane.end() if successor is None else lane.succeed(successor))
            if not self._in_flight:
                await self._fire(ConnectionTrigger.DRAIN)

    def _successor(self, request: CreateFrame, steering: Steering) -> CreateFrame | None:
        """Return the request that continues a steered response, if any."""
        if steering.successor is None:
            return None
        size = request.size - (0 if request.parent is None else request.parent.size)
        try:
            self._memory.reserve(size)
        except ApiError:
            self._memory.release(steering.size)
            return None
        return evolve(request, body=steering.successor, size=size + steering.size, parent=steering, is_from_client=False)

    async def _send_error(self, error: BaseException, lane: Lane, request: CreateFrame) -> None:
        if isinstance(error, NotBegunError):  # a stream, because the client waits for the end of one
            settings = response_settings({**request.body, "conversation": None})
            driver = ResponseDriver(settings, writer=SseWriter(self._dialect), ids=random_id, clock=now)
            await self._send_events(driver.feed([Start(), error.ending]), lane)
        else:
            await self._send(_error_frame(self._api_error(error, lane, request), lane.stream_id))

    def _api_error(self, error: BaseException, lane: Lane, request: CreateFrame) -> ApiError:
        """Return the error to send in place of a response; log an unexpected one."""
        api_error = store_error(error)
        if not isinstance(api_error, ApiError):
            logger.error("a request over a WebSocket could not be answered", exc_info=error)
            return INTERNAL_ERROR
        is_latest = lane.latest is not None and lane.latest == request.body.get("previous_response_id")
        if api_error.code == "previous_response_not_found" and is_latest:
            return evolve(api_error, message=f"{api_error.message} {EVICTED}")
        return api_error

    async def _stream(self, pending: PendingRun[bytes], lane: Lane, request: CreateFrame, steering: Steering) -> None:
        """Send the events of a run; cache the response before the client sees its end and can continue from it."""
        seconds = self._keep_alive if self._dialect is OPENAI else 0
        run: ResponseRun[bytes] | None = None
        try:
            async with (
                pending.admitted() as run,
                run.kept_alive(seconds, lambda: self._send_events(run.break_silence(), lane)),
            ):
                async for events in run:
                    steering.response_id = run.driver.id
                    if request.parent is not None:
                        request.parent.commit()
                    if run.driver.ended:
                        steering.note_end(run.driver.response)
                    if run.driver.ended and run.driver.status != "failed":
                        self._release(lane)
                        self._memory.store(lane.stream_id, run.stored)
                        lane.latest = run.driver.id
                    await self._send_events(events, lane)
        finally:
            if run is not None:
                await self._send_events(run.conclude(), lane)

    def _release(self, lane: Lane) -> None:
        self._memory.release(lane.size)
        lane.size = 0

    async def _send_events(self, events: Sequence[bytes], lane: Lane) -> None:
        for event in events:
            await self._send(_event_frame(event, lane.stream_id))

    async def _send_steering(self, events: Sequence[SteerEvent], lane: Lane | None = None) -> None:
        stream_id = None if lane is None else lane.stream_id
        for event in events:
            numbered = replace(
                event, sequence_number=next(self._steer_numbers), stream_id=UNSET if stream_id is None else stream_id
            )
            await self._send(dumps(numbered).decode())

    async def _send(self, text: str) -> None:
        await self._if_open(lambda: self._socket.send_text(text))

    async def _close(self, code: int) -> None:
        await self._if_open(lambda: self._socket.close(code))

    async def _if_open(self, action: Callable[[], Awaitable[None]]) -> None:
        """Send or close with `action`, unless the client has disconnected; `serve` notices that itself."""
        if self._socket.application_state is WebSocketState.CONNECTED:
            try:
                await action()
            except Exception:  # each ASGI server has its own exception for this
                logger.debug("the client of a WebSocket disconnected", exc_info=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _too_many(limit: str) -> ApiError:
    return ApiError(400, f"This connection already has {limit}, the maximum.", param="stream_id", code=NO_ROOM)


async def _read_frame(text: str, yielder: Yielder) -> CreateFrame | CancelFrame | SteerFrame | None:
    """Parse a frame within the limits of a POST's body; None for a frame that needs no action. Other tasks run in between."""
    data, budget, is_small = bytearray(), JsonBudget(), True
    for start in range(0, len(text), ENCODED_CHARACTERS):
        part = text[start : start + ENCODED_CHARACTERS].encode("utf-8", "surrogatepass")
        if not (is_small := budget.count(part)):
            break
        data += part
        await yielder.checkpoint()
    stream_id: str | None = None
    try:
        if not is_small:
            raise too_many_values()
        body = await read_object(bytes(data), yielder)
        kind = body.pop("type", None)
        if kind == "response.processed":
            return None
        if kind == "response.steer":
            return read_steer(body, len(data) + PER_VALUE * budget.values)
        stream_id = _stream_id(body)
        match kind:
            case "response.create":
                return CreateFrame(stream_id, body, _generate(body), len(data) + PER_VALUE * budget.values)
            case "response.cancel":
                return CancelFrame(stream_id)
            case _:
                message = f"Unknown frame type: {str(kind)[:100]!r}. It must be 'response.create' or 'response.cancel'."
                raise UnknownFrameError(_error_frame(invalid("type", message), stream_id))
    except ApiError as error:
        raise FrameError(_error_frame(error, stream_id)) from None


def _stream_id(body: dict[str, object]) -> str | None:
    """Remove `stream_id`, the name of the lane, from a body, and return it."""
    stream_id = body.pop("stream_id", None)
    if stream_id is None:
        return None
    if isinstance(stream_id, str) and STREAM_ID.fullmatch(stream_id):
        return stream_id
    message = "Invalid 'stream_id': it must be 1 to 256 of the characters A-Z, a-z, 0-9, '_', '.' and '-'."
    raise invalid("stream_id", message, "invalid_stream_id")


def _generate(body: dict[str, object]) -> bool:
    """Remove `stream` and `generate` from a body, and return whether to generate output; refuse `background`."""
    body.pop("stream", None)  # a socket always streams
    generate = body.pop("generate", None)
    if generate is not None and not isinstance(generate, bool):
        raise invalid("generate", "Invalid type for 'generate': expected a boolean.", "invalid_type")
    if body.get("background"):
        raise invalid("background", "A WebSocket request cannot have 'background' set to true.", "unsupported_parameter")
    return generate is not False


def _event_frame(event: bytes, stream_id: str | None) -> str:
    """Return the frame for a server-sent event, whose data is one line (R5, docs/evidence/rules.md)."""
    data = event[event.index(b"\ndata: ") + len(b"\ndata: ") :].strip()
    if stream_id is not None:
        data = b'{"stream_id":"%b",%b' % (stream_id.encode(), data[1:])
    return data.decode()


def _error_frame(error: ApiError, stream_id: str | None = None) -> str:
    log_refusal(error)
    lane = {} if stream_id is None else {"stream_id": stream_id}
    return dumps({"type": "error", "status": error.status, **error.body(), **lane}).decode()
