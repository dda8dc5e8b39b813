"""A connection: its lanes side by side, its limits, and its end.

It knows frames, lanes and the socket. What a request means and who makes the response is for the `Host`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Final, Generic, Protocol, TypeVar

from attrs import define, field, frozen
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from interlock.fsm.deltas import Cancel, Fault
from interlock.fsm.table import Machine
from interlock.serving.errors import ApiError
from interlock.serving.faults import is_fault
from interlock.serving.runs.archive import said_by_store
from interlock.serving.runs.open_runs import OpenRuns
from interlock.serving.runs.run import Run
from interlock.serving.sockets.frames import Ask, FrameError, error_frame, event_frame, read_frame
from interlock.serving.sockets.lane import Continued, Lane
from interlock.serving.sockets.tables import CONNECTION, ConnectionEffect, ConnectionTrigger

__all__ = ["Begun", "Connection", "Host", "Limits"]

K = TypeVar("K", bound=Continued)
"""What a server keeps of a response, so that it can be continued."""

logger = logging.getLogger(__name__)

NORMAL: Final = 1000
RESTARTING: Final = 1012

BINARY: Final = ApiError(400, "Frames must be text, not binary.", code="invalid_value")
TOO_OLD: Final = ApiError(
    400, "This connection has reached its longest lifetime. Open another one.", code="websocket_connection_limit_reached"
)
TOO_MANY: Final = "websocket_stream_limit_reached"
OUR_FAULT: Final = ApiError(500, "The server had an error while processing your request.", "server_error")


@frozen
class Limits:
    """What one connection may use.

    Args:
        lifetime: Seconds after which it takes no more requests.
        in_flight: Requests that run or wait, over all lanes.
        lanes: Lanes with a name.
        held_bytes: Bytes of requests that wait.
    """

    lifetime: float = 3600
    in_flight: int = 16
    lanes: int = 32
    held_bytes: int = 64 * 2**20


@frozen
class Begun(Generic[K]):
    """A request that has become a run.

    Args:
        run: Makes the response; its events are server-sent events.
        keep: Returns what a later request of the same lane can continue, once the run has ended.
    """

    run: Run[bytes]
    keep: Callable[[], K]


class Host(Protocol[K]):
    """What a server does for its connections."""

    async def begin(self, body: Mapping[str, object], *, generate: bool, latest: K | None) -> Begun[K]:
        """Validate a request and return its run.

        Args:
            body: The body, as a POST would carry it.
            generate: Whether output is wanted; without it the response completes at once, with an id to continue from.
            latest: The response that ended last in the lane; it can be continued even if it was not stored.

        Raises:
            ApiError: The request is wrong.
        """
        ...


def _start_of_connection() -> Machine[ConnectionTrigger, ConnectionEffect]:
    return Machine[ConnectionTrigger, ConnectionEffect].at_start(CONNECTION)


@define(eq=False)
class Connection(Generic[K]):
    """One connection, from the accepted socket to its end.

    Args:
        socket: The socket, accepted.
        host: Makes the responses.
        open_runs: Holds the runs while they go on, and ends them at a shutdown.
        limits: What the connection may use.
    """

    _socket: WebSocket
    _host: Host[K]
    _open_runs: OpenRuns
    _limits: Limits = Limits()
    _lanes: dict[str | None, Lane[K]] = field(factory=dict[str | None, Lane[K]], init=False)
    _tasks: set[asyncio.Task[None]] = field(factory=set[asyncio.Task[None]], init=False)
    _machine: Machine[ConnectionTrigger, ConnectionEffect] = field(factory=_start_of_connection, init=False)

    async def serve(self) -> None:
        """Serve the connection until it is closed, and everything that it ran has ended."""
        timer = asyncio.get_running_loop().call_later(self._limits.lifetime, self._expire)
        try:
            while (message := await self._socket.receive())["type"] != "websocket.disconnect":
                await self._take(message)
        finally:
            timer.cancel()
            await self._try(ConnectionTrigger.LEAVE)
            if self._tasks:
                await asyncio.wait(self._tasks)

    def interrupt(self, ending: Fault | Cancel) -> None:
        """Close the connection as soon as its runs have ended.

        Args:
            ending: How runs end; they are interrupted by themselves, so a connection has no use for it.
        """
        del ending
        self._spawn(self._try(ConnectionTrigger.SHUT_DOWN))

    def _expire(self) -> None:
        if ConnectionTrigger.EXPIRE in self._machine.state.rows:
            self._machine.fire(ConnectionTrigger.EXPIRE)

    async def _take(self, message: Mapping[str, object]) -> None:
        """Carry out what a frame asks for."""
        text = message.get("text")
        if not isinstance(text, str):
            await self._send(error_frame(BINARY))
            return
        try:
            frame = read_frame(text)
            if isinstance(frame, Ask):
                await self._try(ConnectionTrigger.REQUEST, frame)
            elif frame.stream_id in self._lanes:
                self._lanes[frame.stream_id].cancel()
        except FrameError as refused:
            await self._send(error_frame(refused.error, refused.stream_id))

    async def _try(self, trigger: ConnectionTrigger, ask: Ask | None = None) -> None:
        """Fire a trigger where it is legal: the connection may have ended meanwhile, with a frame still under way."""
        if trigger in self._machine.state.rows:
            await self._fire(trigger, ask)

    async def _fire(self, trigger: ConnectionTrigger, ask: Ask | None = None) -> None:
        for effect in self._machine.fire(trigger):
            match effect:
                case ConnectionEffect.DISPATCH if ask is not None:
                    self._lane(ask).ask(ask)
                case ConnectionEffect.REFUSE if ask is not None:
                    await self._send(error_frame(TOO_OLD, ask.stream_id))
                case ConnectionEffect.LEAVE_LANES:
                    for lane in self._lanes.values():
                        lane.leave()
                case ConnectionEffect.SETTLE if not self._in_flight:
                    await self._try(ConnectionTrigger.DRAIN)
                case ConnectionEffect.CLOSE:
                    await self._close(NORMAL)
                case ConnectionEffect.CLOSE_RESTARTING:
                    await self._close(RESTARTING)
                case _:
                    pass

    @property
    def _in_flight(self) -> int:
        """The number of requests that run or wait."""
        return sum(lane.in_flight for lane in self._lanes.values())

    def _lane(self, ask: Ask) -> Lane[K]:
        """Return the lane of a request, which must be within the limits."""
        waiting = sum(held.size for lane in self._lanes.values() for held in lane.waiting)
        lane = self._lanes.get(ask.stream_id)
        named = sum(name is not None for name in self._lanes)
        if self._in_flight >= self._limits.in_flight:
            refusal = f"This connection has {self._limits.in_flight} requests in flight, which is as many as it may have."
        elif waiting + ask.size > self._limits.held_bytes:
            refusal = f"The requests that wait on this connection would be larger than {self._limits.held_bytes} bytes."
        elif lane is None and ask.stream_id is not None and named >= self._limits.lanes:
            refusal = f"This connection has {self._limits.lanes} streams, which is as many as it may have."
        else:
            return self._lanes.setdefault(ask.stream_id, lane or Lane(ask.stream_id, self._start))
        raise FrameError(ApiError(400, refusal, param="stream_id", code=TOO_MANY), ask.stream_id)

    def _start(self, lane: Lane[K], ask: Ask) -> None:
        self._spawn(self._answer(lane, ask))

    async def _answer(self, lane: Lane[K], ask: Ask) -> None:
        """Answer a request by its events or by one error, and then let the lane go on."""
        try:
            await self._respond(lane, ask)
        except BaseException as error:
            if not is_fault(error):
                raise
            said = said_by_store(error)
            if not isinstance(said, ApiError):
                logger.exception("a request over a WebSocket could not be answered")
            await self._send(error_frame(said if isinstance(said, ApiError) else OUR_FAULT, lane.stream_id))
        finally:
            lane.end()
            if not self._in_flight:
                await self._try(ConnectionTrigger.DRAIN)

    async def _respond(self, lane: Lane[K], ask: Ask) -> None:
        latest, lane.latest = lane.latest, None  # a continuation that fails evicts what it went on from
        if latest is not None and ask.body.get("previous_response_id") != latest.id:
            lane.latest, latest = latest, None
        begun = await self._host.begin(ask.body, generate=ask.generate, latest=latest)
        lane.begin(begun.run)
        with self._open_runs.holding(begun.run):
            await self._pass_on(begun, lane)

    async def _pass_on(self, begun: Begun[K], lane: Lane[K]) -> None:
        """Send the events of a run; what can be continued is kept before the client sees the end."""
        try:
            async with aclosing(begun.run.events()) as steps:
                async for events in steps:
                    if begun.run.driver.ended and begun.run.driver.status != "failed":
                        lane.latest = begun.keep()
                    for event in events:
                        await self._send(event_frame(event, lane.stream_id))
        finally:
            for event in begun.run.conclude():
                await self._send(event_frame(event, lane.stream_id))

    async def _send(self, text: str) -> None:
        """Send a frame; where the client has gone, nothing happens, for `serve` learns of that itself."""
        if self._socket.application_state is WebSocketState.CONNECTED:
            with suppress(WebSocketDisconnect):
                await self._socket.send_text(text)

    async def _close(self, code: int) -> None:
        if self._socket.application_state is WebSocketState.CONNECTED:
            with suppress(WebSocketDisconnect):
                await self._socket.close(code)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
