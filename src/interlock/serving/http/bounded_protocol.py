"""uvicorn's WebSocket protocol with limits: it parses input in slices, as the application reads it.

uvicorn's own protocol parses all input at once, inflates a message in one step, accepts any number of frames for a message, and
answers the pings of a client that does not read.
"""

from __future__ import annotations

import asyncio
import zlib
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from itertools import chain
from time import perf_counter
from typing import Any, Final

from uvicorn._types import ASGIReceiveEvent
from uvicorn.config import WS_PROTOCOLS
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.extensions import Extension
from websockets.extensions.permessage_deflate import PerMessageDeflate, ServerPerMessageDeflateFactory
from websockets.frames import CTRL_OPCODES, CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.typing import ExtensionParameter

from interlock.serving.http.request_body import SLICE as DECODED_SLICE
from interlock.serving.http.request_body import Decoder
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.runtime import STRETCH

SLICE: Final = 1024  # bytes to parse in one step; they can hold hundreds of frames
SMALL: Final = 1024  # bytes: fragments below this size are counted, like control frames
MAX_SMALL: Final = 1000  # how many counted frames a client may send in one `PERIOD`
PERIOD: Final = 1.0  # seconds
ABORT_SECONDS: Final = 10.0  # from the close to the abort, for the client to read the rest

DEFLATE_TAIL: Final = b"\x00\x00\xff\xff"
"""The bytes that a sender leaves out at the end of a compressed message (RFC 7692, section 7.2.1)."""


def install() -> None:
    """Make this uvicorn's default protocol, which vLLM's server uses, if the installed uvicorn supports it."""
    if hasattr(WebSocketsSansIOProtocol, "keepalive_timeout"):
        WS_PROTOCOLS["auto"] = f"{__name__}:{BoundedProtocol.__name__}"


class DeflateFactory(ServerPerMessageDeflateFactory):
    """Negotiates permessage-deflate with small windows, to save memory.

    It names `server_max_window_bits` only if the client has offered it. Every client can read a smaller window, but some refuse a
    handshake that names the parameter.
    """

    def __init__(self) -> None:
        super().__init__(server_max_window_bits=12, client_max_window_bits=12, compress_settings={"memLevel": 5})

    def process_request_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> tuple[list[ExtensionParameter], PerMessageDeflate]:
        """Return the parameters of the answer, and the extension."""
        answered, extension = super().process_request_params(params, accepted_extensions)
        offered = {name for name, _ in params}
        return [each for each in answered if each[0] in offered or each[0] != "server_max_window_bits"], extension


class CompressedFrame(Frame):
    """The first frame of a compressed message."""


class LazyDeflate(Extension):
    """permessage-deflate that leaves received frames compressed; `inflate` decompresses a message in slices."""

    def __init__(self, inner: PerMessageDeflate) -> None:
        self.name = inner.name
        self.inner = inner
        self._decoder = self._new_decoder()

    def encode(self, frame: Frame) -> Frame:
        return self.inner.encode(frame)

    def decode(self, frame: Frame, *, max_size: int | None = None) -> Frame:
        """Return a frame unchanged, but mark the first one of a compressed message."""
        del max_size
        if not frame.rsv1 or frame.opcode not in {Opcode.TEXT, Opcode.BINARY}:
            return frame
        return CompressedFrame(frame.opcode, frame.data, frame.fin, rsv2=frame.rsv2, rsv3=frame.rsv3)

    def inflate(self, message: bytes) -> Iterator[bytes]:
        """Yield the slices of a decompressed message."""
        if self.inner.remote_no_context_takeover:
            self._decoder = self._new_decoder()
        return chain(self._decoder.decompress(message), self._decoder.decompress(DEFLATE_TAIL))

    def _new_decoder(self) -> Decoder:
        bits = self.inner.remote_max_window_bits
        return Decoder("permessage-deflate", lambda: zlib.decompressobj(-bits), zlib.error)


class BoundedProtocol(WebSocketsSansIOProtocol):
    """Parses input in slices, lets other tasks run in between, and does not read ahead of the application.

    It reads nothing while a message waits for the application, or output waits for the client. It counts small frames that do not
    end a message, and closes the connection of a client that sends too many.
    """

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's arguments
        super().__init__(*args, **options)
        if self.conn.available_extensions:
            self.conn.available_extensions = [DeflateFactory()]
        self._unparsed = bytearray()
        self._deflate: Sequence[LazyDeflate] = ()
        self._first = Frame(Opcode.TEXT, b"")  # the first frame of the incomplete message
        self._message = bytearray()
        self._messages: deque[tuple[Frame, bytes]] = deque()  # complete messages, each with its first frame
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
        """Continue to read after the client has read the output."""
        super().resume_writing()
        self._continue()

    async def receive(self) -> ASGIReceiveEvent:
        message = await super().receive()
        self._continue()
        return message

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

    def handle_connect(self, event: Request) -> None:
        """Open the connection, and let only `LazyDeflate` decompress its messages."""
        super().handle_connect(event)
        self._deflate = [LazyDeflate(each) for each in self.conn.extensions if isinstance(each, PerMessageDeflate)]
        self.conn.extensions = [*self._deflate]

    def handle_events(self) -> None:
        """Handle the parsed frames."""
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
                self._messages.append((frame, bytes(frame.data)))
            case _:
                self._message += frame.data
                if frame.opcode is not Opcode.CONT:
                    self._first = frame
                if frame.fin:
                    self._messages.append((self._first, bytes(self._message)))
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
                part = bytes(self._unparsed[:SLICE])
                del self._unparsed[:SLICE]
                super().data_received(part)
                yield True
            else:
                yield False

    def _deliver(self, first: Frame, message: bytes) -> Generator[bool]:
        """Inflate and decode a message in slices, and queue it for the application."""
        decoder, text, binary = getincrementaldecoder("utf-8")(), list[str](), bytearray()
        is_text, size, max_size = first.opcode is Opcode.TEXT, 0, self.config.ws_max_size
        try:
            for part in self._deflate[0].inflate(message) if isinstance(first, CompressedFrame) else _slices(message):
                size += len(part)
                if size > max_size:
                    self._fail(CloseCode.MESSAGE_TOO_BIG, f"over size limit ({max_size} bytes)")
                    return
                if is_text:
                    text.append(decoder.decode(part))
                else:
                    binary += part
                yield True
            text.append(decoder.decode(b"", final=True))
        except ApiError:
            self._fail(CloseCode.INVALID_DATA, "the message could not be decompressed")
        except UnicodeDecodeError as error:
            self._fail(CloseCode.INVALID_DATA, f"{error.reason} at position {error.start}")
        else:
            if self.close_sent:
                return
            if is_text:
                self.queue.put_nowait({"type": "websocket.receive", "text": "".join(text)})
            else:
                self.queue.put_nowait({"type": "websocket.receive", "bytes": bytes(binary)})

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


def _slices(message: bytes) -> Iterator[bytes]:
    return (message[start : start + DECODED_SLICE] for start in range(0, len(message), DECODED_SLICE))
