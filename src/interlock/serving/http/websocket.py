"""WebSocket mode: several requests over one connection to `/v1/responses`, one after another or concurrently.

The tables `CONNECTION` and `LANE` (`connection_table`, `lane_table`) define the states. This module executes their effects, and
reads and writes the frames.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from itertools import count
from typing import Final

from attrs import define, evolve, field, frozen
from msgspec import UNSET
from msgspec.structs import replace
from starlette.websockets import WebSocket, WebSocketState

from interlock.embedding import now, random_id
from interlock.events import SseWriter, response_settings
from interlock.events.dialects import OPENAI, Dialect
from interlock.events.json import dumps
from interlock.events.steering import SteerEvent
from interlock.fsm.deltas import Cancel, Fault, Start
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.table import Machine
from interlock.serving import metrics
from interlock.serving.http.answers import INTERNAL_ERROR, count_refusal, stream_writer
from interlock.serving.http.connection_table import CONNECTION, ConnectionEffect, ConnectionTrigger
from interlock.serving.http.lane_table import LANE, LaneEffect, LaneTrigger
from interlock.serving.http.socket_memory import NO_ROOM, ConnectionMemory
from interlock.serving.http.steering import SteerFrame, Steering, SteerRefusedError, read_steer
from interlock.serving.requests.api_errors import ApiError, invalid
from interlock.serving.requests.api_keys import tenant_of
from interlock.serving.requests.body import JsonBudget, read_object, too_many_values
from interlock.serving.requests.runtime import Outcome, Yielder, is_fault
from interlock.serving.responses.active_runs import Interrupt, NotBegunError
from interlock.serving.responses.archive import store_error
from interlock.serving.responses.run import ResponseRun
from interlock.serving.responses.service import PendingRun, ResponseService
from interlock.serving.settings import SocketLimits
from interlock.serving.store import StoredResponse

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
    _queue: deque[CreateFrame] = field(factory=deque[CreateFrame], init=False)
    _interrupt: Interrupt | None = field(default=None, init=False)
    _machine: Machine[LaneTrigger, LaneEffect] = field(factory=lambda: Machine.at_start(LANE), init=False)

    @property
    def in_flight(self) -> int:
        """The number of running and waiting requests."""
        return len(self._queue) + (LaneTrigger.END in self._machine.state.rows)

    def submit(self, request: CreateFrame) -> CreateFrame | None:
        """Return a request, for the caller to start, if the lane is idle; otherwise queue it."""
        return self._fire(LaneTrigger.ASK, request)

    def begin(self, interrupt: Interrupt) -> None:
        """Set the function that ends the run of the current request."""
        self._interrupt = interrupt

    def end(self) -> CreateFrame | None:
        """End the current request, and return the next one to start."""
        self._interrupt = None
        return self._fire(LaneTrigger.END)

    def succeed(self, request: CreateFrame) -> CreateFrame | None:
        """End the current request, and return its successor to start, unless the client has disconnected."""
        self._interrupt = None
        return self._fire(LaneTrigger.SUCCEED, request) if LaneTrigger.SUCCEED in self._machine.state.rows else self.end()

    def cancel(self) -> None:
        """Cancel the current request, if there is one."""
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
                case LaneEffect.INTERRUPT if self._interrupt is not None:
                    self._interrupt(Cancel())
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
        lane.begin(pending.control.interrupt)
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
        """Release the memory reserved for the current request of a lane."""
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
    count_refusal(error)
    lane = {} if stream_id is None else {"stream_id": stream_id}
    return dumps({"type": "error", "status": error.status, **error.body(), **lane}).decode()
