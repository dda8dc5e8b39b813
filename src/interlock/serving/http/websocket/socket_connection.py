"""A connection: its lanes side by side, its limits, and its end.

It knows frames, lanes and the socket. What a request means and who makes the response is for the `Host`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Protocol

from attrs import define, evolve, field, frozen
from starlette.websockets import WebSocket, WebSocketState

from interlock.events import SseWriter, response_settings
from interlock.events.dialects import Dialect
from interlock.fsm.deltas import Cancel, Fault, Start
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.processes.connection import CONNECTION, ConnectionEffect, ConnectionTrigger
from interlock.fsm.table import Machine
from interlock.serving.http.websocket.frames import (
    Ask,
    CancelAsked,
    FrameError,
    Steer,
    error_frame,
    event_frame,
    read_frame,
    steer_frame,
)
from interlock.serving.http.websocket.request_lane import Lane
from interlock.serving.http.websocket.socket_memory import NO_ROOM, Share
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.containment import is_fault
from interlock.serving.requests.identity import now, random_id
from interlock.serving.requests.yielder import Yielder
from interlock.serving.responses.active_runs import SHUTDOWN, ActiveRuns
from interlock.serving.responses.archive import store_error
from interlock.serving.responses.run import Run
from interlock.serving.store import StoredResponse

__all__ = ["Begun", "Connection", "Host", "Limits"]

logger = logging.getLogger(__name__)

NORMAL: Final = 1000
RESTARTING: Final = 1012

BINARY: Final = ApiError(400, "Frames must be text, not binary.", code="invalid_value")
TOO_OLD: Final = ApiError(
    400, "This connection has reached its longest lifetime. Open another one.", code="websocket_connection_limit_reached"
)
LET_GO: Final = "It was not kept, to hold no more bytes than WebSockets may hold. Send the whole input again."
OUR_FAULT: Final = ApiError(500, "The server had an error while processing your request.", "server_error")


@frozen
class Limits:
    """What one connection may use.

    Args:
        lifetime: Seconds after which it takes no more requests.
        in_flight: Requests that run or wait, over all lanes.
        lanes: Lanes with a name.
        held_bytes: Bytes of its requests and of the responses that its lanes may go on from.
    """

    lifetime: float = 3600
    in_flight: int = 16
    lanes: int = 32
    held_bytes: int = 128 * 2**20


@frozen
class Begun:
    """A request that has become a run.

    Args:
        run: Makes the response; its events are server-sent events.
        keep: Returns what a later request of the same lane can continue, once the run has ended.
    """

    run: Run[bytes]
    keep: Callable[[], StoredResponse]


class Host(Protocol):
    """What a server does for its connections."""

    @property
    def dialect(self) -> Dialect:
        """What the client speaks."""
        ...

    async def begin(self, body: Mapping[str, object], *, generate: bool, latest: StoredResponse | None) -> Begun:
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


@frozen(eq=False)
class Beginning:
    """A request that becomes a run, which a shutdown does not wait for.

    Args:
        patience: How long it may take.
    """

    patience: asyncio.Timeout

    def interrupt(self, ending: Fault | Cancel) -> None:
        """End it as soon as possible."""
        del ending
        self.patience.reschedule(0)


@define(eq=False)
class Connection:
    """One connection, from the accepted socket to its end.

    Args:
        socket: The socket, accepted.
        host: Makes the responses.
        active_runs: Holds the runs while they go on, and ends them at a shutdown.
        share: What the connection holds.
        limits: What the connection may use.
    """

    _socket: WebSocket
    _host: Host
    _active_runs: ActiveRuns
    _share: Share
    _limits: Limits = Limits()
    _lanes: dict[str | None, Lane] = field(factory=dict[str | None, Lane], init=False)
    _tasks: set[asyncio.Task[None]] = field(factory=set[asyncio.Task[None]], init=False)
    _beginnings: ActiveRuns = field(factory=ActiveRuns, init=False)
    _machine: Machine[ConnectionTrigger, ConnectionEffect] = field(factory=_start_of_connection, init=False)

    async def serve(self) -> None:
        """Serve the connection until it is closed, and everything that it ran has ended."""
        timer = asyncio.get_running_loop().call_later(self._limits.lifetime, self._expire)
        yielder = Yielder()
        try:
            while (message := await self._socket.receive())["type"] != "websocket.disconnect":
                await self._take(message, yielder)
                await yielder.checkpoint()
        finally:
            timer.cancel()
            await self._try(ConnectionTrigger.LEAVE)
            if self._tasks:
                await asyncio.wait(self._tasks)
            self._share.close()

    def interrupt(self, ending: Fault | Cancel) -> None:
        """Close the connection as soon as its requests have ended; those that have not begun fail.

        Args:
            ending: How runs end; they are interrupted by themselves, so a connection has no use for it.
        """
        del ending
        self._beginnings.end()
        self._spawn(self._try(ConnectionTrigger.SHUT_DOWN))

    def _expire(self) -> None:
        if ConnectionTrigger.EXPIRE in self._machine.state.rows:
            self._machine.fire(ConnectionTrigger.EXPIRE)

    async def _take(self, message: Mapping[str, object], yielder: Yielder) -> None:
        """Carry out what a frame asks for."""
        text = message.get("text")
        if not isinstance(text, str):
            await self._send(error_frame(BINARY))
            return
        try:
            match await read_frame(text, yielder):
                case Ask() as ask:
                    await self._try(ConnectionTrigger.REQUEST, ask)
                case Steer() as steer:
                    await self._send(steer_frame(steer))
                case CancelAsked(stream_id) if stream_id in self._lanes:
                    self._lanes[stream_id].cancel()
                case _:
                    pass
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
                    lane = self._lane(ask)
                    self._start(lane, lane.ask(ask))
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

    def _lane(self, ask: Ask) -> Lane:
        """Return the lane of a request, which must be within the limits."""
        lane = self._lanes.get(ask.stream_id)
        named = sum(name is not None for name in self._lanes)
        try:
            if self._in_flight >= self._limits.in_flight:
                raise _too_many(f"{self._limits.in_flight} requests in flight")
            if lane is None and ask.stream_id is not None and named >= self._limits.lanes:
                raise _too_many(f"{self._limits.lanes} streams")
            self._share.hold(ask.size)
        except ApiError as error:
            raise FrameError(error, ask.stream_id) from None
        return self._lanes.setdefault(ask.stream_id, lane or Lane(ask.stream_id))

    def _start(self, lane: Lane, ask: Ask | None) -> None:
        if ask is not None:
            self._spawn(self._answer(lane, ask))

    async def _answer(self, lane: Lane, ask: Ask) -> None:
        """Answer a request by its events or by one error, and then let the lane go on."""
        latest, size = self._share.recall(lane.stream_id, ask.body.get("previous_response_id"))
        lane.size = ask.size + size
        try:
            await self._respond(lane, ask, latest)
        except BaseException as error:
            if not is_fault(error):
                raise
            said = store_error(error)
            if not isinstance(said, ApiError):
                logger.exception("a request over a WebSocket could not be answered")
            await self._send(error_frame(said if isinstance(said, ApiError) else OUR_FAULT, lane.stream_id))
        finally:
            self._free(lane)
            self._start(lane, lane.end())
            if not self._in_flight:
                await self._try(ConnectionTrigger.DRAIN)

    async def _respond(self, lane: Lane, ask: Ask, latest: StoredResponse | None) -> None:
        begun = await self._begun(ask, latest)
        if begun is None:
            settings = response_settings({**ask.body, "conversation": None})
            never = ResponseDriver(settings, writer=SseWriter(self._host.dialect), ids=random_id, clock=now)
            await self._send_all(never.feed([Start(), SHUTDOWN]), lane)
            return
        lane.begin(begun.run)
        with self._active_runs.track(begun.run):
            await self._pass_on(begun, lane)

    async def _begun(self, ask: Ask, latest: StoredResponse | None) -> Begun | None:
        """Return the run of a request, or None if it cannot begin any more because the server shuts down."""
        patience = asyncio.timeout(None)
        try:
            async with patience:
                with self._beginnings.track(Beginning(patience)):
                    return await self._host.begin(ask.body, generate=ask.generate, latest=latest)
        except BaseException as error:
            if is_fault(error) and patience.when() is not None:
                return None
            if not isinstance(error, ApiError) or error.code != "previous_response_not_found":
                raise
            let_go = self._share.has_let_go(ask.stream_id, ask.body.get("previous_response_id"))
            raise evolve(error, message=f"{error.message} {LET_GO}") if let_go else error from None

    async def _pass_on(self, begun: Begun, lane: Lane) -> None:
        """Send the events of a run; what can be continued is kept before the client sees the end."""
        try:
            async with aclosing(begun.run.events()) as steps:
                async for events in steps:
                    if begun.run.driver.ended and begun.run.driver.status != "failed":
                        self._free(lane)
                        self._share.keep(lane.stream_id, begun.keep())
                    await self._send_all(events, lane)
        finally:
            await self._send_all(begun.run.conclude(), lane)

    def _free(self, lane: Lane) -> None:
        """Count what a lane has made its response of no longer."""
        self._share.free(lane.size)
        lane.size = 0

    async def _send_all(self, events: Sequence[bytes], lane: Lane) -> None:
        for event in events:
            await self._send(event_frame(event, lane.stream_id))

    async def _send(self, text: str) -> None:
        """Send a frame; where the client has gone, nothing happens, for `serve` learns of that itself."""
        await self._while_open(lambda: self._socket.send_text(text))

    async def _close(self, code: int) -> None:
        await self._while_open(lambda: self._socket.close(code))

    async def _while_open(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do something with the socket; that the client has gone, each server says by an exception of its own."""
        if self._socket.application_state is WebSocketState.CONNECTED:
            try:
                await act()
            except Exception:
                logger.debug("the client of a WebSocket has gone", exc_info=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _too_many(what: str) -> ApiError:
    return ApiError(400, f"This connection has {what}, which is as many as it may have.", param="stream_id", code=NO_ROOM)
