"""uvicorn's WebSocket protocol with limits: it parses input in slices, as the application reads it.

uvicorn's own protocol parses all input at once, accepts any number of frames for a message, and answers the pings of a client
that does not read. Messages are never compressed: deltas of a hundred bytes gain nothing.
"""

from __future__ import annotations

import asyncio
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Generator
from time import perf_counter
from typing import Any, Final

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.config import WS_PROTOCOLS
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CTRL_OPCODES, CloseCode, Frame, Opcode
from websockets.http11 import Request

from interlock.serving.requests.body import DECODED_BYTES
from interlock.serving.requests.runtime import STRETCH

PARSED_BYTES: Final = 1024  # bytes to parse in one step; they can hold hundreds of frames
SMALL: Final = 1024  # bytes: fragments below this size are counted, like control frames
MAX_SMALL: Final = 1000  # how many counted frames a client may send in one `PERIOD`
PERIOD: Final = 1.0  # seconds
ABORT_SECONDS: Final = 10.0  # from the close to the abort, for the client to read the rest


def install() -> None:
    """Make this uvicorn's default protocol, which vLLM's server uses, if the installed uvicorn supports it."""
    if hasattr(WebSocketsSansIOProtocol, "keepalive_timeout"):
        WS_PROTOCOLS["auto"] = f"{__name__}:{BoundedProtocol.__name__}"


class BoundedProtocol(WebSocketsSansIOProtocol):
    """Parses input in slices, lets other tasks run in between, and does not read ahead of the application.

    It reads nothing while a message waits for the application, or output waits for the client. It counts small frames that do not
    end a message, and closes the connection of a client that sends too many.
    """

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's arguments
        super().__init__(*args, **options)
        self.conn.available_extensions = []
        self._unparsed = bytearray()
        self._opcode = Opcode.TEXT  # of the incomplete message
        self._message = bytearray()
        self._messages: deque[tuple[Opcode, bytes]] = deque()  # complete messages
        self._steps = self._work()
        self._next_turn: asyncio.Handle | None = None
        self._abort: asyncio.Handle | None = None
        self._small_frames = 0
        self._period_start = 0.0

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self._unparsed += data
            self._continue()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._continue()

    async def receive(self) -> ASGIReceiveEvent:
        message = await super().receive()
        self._continue()
        return message

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True  # uvicorn 0.54 logs an error for a handshake that was refused

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop unread input, and break the reference cycles that would keep the connection in memory."""
        super().connection_lost(exc)
        for timer in (self._next_turn, self._abort):
            if timer is not None:
                timer.cancel()
        self._discard_input()
        self._steps.close()
        self.conn.parser.close()
        self.conn.parser_exc = None

    def keepalive_timeout(self) -> None:
        """Close the connection of a client that does not answer pings."""
        super().keepalive_timeout()
        self._abort_later()

    def handle_parser_exception(self) -> None:
        """Close the connection of a client that violates the protocol."""
        super().handle_parser_exception()
        self._discard_input()
        self._abort_later()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """Close the connection, because the application has returned."""
        super().on_task_complete(task)
        if self in self.connections:
            self._abort_later()

    def handle_events(self) -> None:
        for event in self.conn.events_received():
            if isinstance(event, Request):
                self.handle_connect(event)
            elif isinstance(event, Frame):
                if self._is_excessive(event):
                    self._fail(CloseCode.POLICY_VIOLATION, f"more than {MAX_SMALL} control frames and small fragments per second")
                    return
                self._handle_frame(event)

    def _handle_frame(self, frame: Frame) -> None:
        match frame.opcode:
            case Opcode.PING:
                self.handle_ping()
            case Opcode.PONG:
                self.handle_pong(frame)
            case Opcode.CLOSE:
                self.handle_close(frame)
            case _ if frame.fin and frame.opcode is not Opcode.CONT:
                self._messages.append((frame.opcode, bytes(frame.data)))
            case _:
                self._message += frame.data
                if frame.opcode is not Opcode.CONT:
                    self._opcode = frame.opcode
                if frame.fin:
                    self._messages.append((self._opcode, bytes(self._message)))
                    self._message = bytearray()

    def _is_excessive(self, frame: Frame) -> bool:
        """Count a small frame that does not end a message; return whether there are too many."""
        if len(frame.data) >= SMALL or (frame.fin and frame.opcode not in CTRL_OPCODES):
            return False
        now = self.loop.time()
        if now >= self._period_start + PERIOD:
            self._period_start, self._small_frames = now, 0
        self._small_frames += 1
        return self._small_frames > MAX_SMALL

    def _continue(self) -> None:
        """Work for about `STRETCH` seconds, and schedule another turn for the rest."""
        start = perf_counter()
        while (more := next(self._steps, False)) and perf_counter() - start < STRETCH:
            pass
        if more and self._next_turn is None:
            self._next_turn = self.loop.call_soon(self._take_turn)
        is_app_busy = not (self.close_sent or self.queue.empty())
        if self.read_paused != (more or is_app_busy or bool(self._unparsed)) and not self.transport.is_closing():
            self.read_paused = not self.read_paused
            (self.transport.pause_reading if self.read_paused else self.transport.resume_reading)()

    def _take_turn(self) -> None:
        self._next_turn = None
        self._continue()

    def _work(self) -> Generator[bool]:
        """Yield True after each small step, and False while there is nothing to do."""
        while True:
            if self._messages:
                yield from self._deliver(*self._messages.popleft())
            elif self._unparsed and self.writable.is_set() and (self.close_sent or self.queue.empty()):
                part = bytes(self._unparsed[:PARSED_BYTES])
                del self._unparsed[:PARSED_BYTES]
                super().data_received(part)
                yield True
            else:
                yield False

    def _deliver(self, opcode: Opcode, message: bytes) -> Generator[bool]:
        """Decode a message in slices, and queue it for the application."""
        if opcode is Opcode.BINARY:
            if not self.close_sent:
                self.queue.put_nowait({"type": "websocket.receive", "bytes": message})
            return
        decoder, text = getincrementaldecoder("utf-8")(), list[str]()
        try:
            for start in range(0, len(message), DECODED_BYTES):
                text.append(decoder.decode(message[start : start + DECODED_BYTES]))
                yield True
            text.append(decoder.decode(b"", final=True))
        except UnicodeDecodeError as error:
            self._fail(CloseCode.INVALID_DATA, f"{error.reason} at position {error.start}")
        else:
            if not self.close_sent:
                self.queue.put_nowait({"type": "websocket.receive", "text": "".join(text)})

    def _fail(self, code: CloseCode, reason: str) -> None:
        self.conn.fail(code, reason)
        self.handle_parser_exception()

    def _abort_later(self) -> None:
        """Abort the connection after `ABORT_SECONDS` if its client has not closed it."""
        self._abort = self._abort or self.loop.call_later(ABORT_SECONDS, self.transport.abort)

    def _discard_input(self) -> None:
        self._unparsed.clear()
        self._message = bytearray()
        self._messages.clear()
