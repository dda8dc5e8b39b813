"""uvicorn's WebSockets with bounds: what a client sends is read in slices, and never more than is used.

It knows frames and their compression, and nothing of what they say. uvicorn's own protocol parses all that came in at once,
inflates a message in one piece, joins as many frames to a message as come, and answers pings that nobody lets it send.
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
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import CTRL_OPCODES, CloseCode, Frame, Opcode
from websockets.http11 import Request

from interlock.serving.http.decoding import SLICE as PART
from interlock.serving.http.decoding import Coding, Decoder, Inflater
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.yielder import STRETCH

__all__ = ["BoundedProtocol", "install"]

SLICE: Final = 1024
"""Bytes that are parsed at once: they may be hundreds of frames."""

SMALL: Final = 1024
"""Bytes of a frame that is worth no look at the clock if it does not even end a message."""

MOST_SMALL: Final = 1000
"""How many of those a client may send in `SECOND`."""

SECOND: Final = 1.0

END: Final = b"\x00\x00\xff\xff"
"""What a sender leaves out at the end of a compressed message."""

ABORT: Final = 10.0
"""Seconds that a client has to take what is left, once the connection is closed."""


def install() -> None:
    """Make this what uvicorn takes by itself, in a process whose server is not ours, if there is a uvicorn that it fits to."""
    if hasattr(WebSocketsSansIOProtocol, "keepalive_timeout"):
        WS_PROTOCOLS["auto"] = f"{__name__}:{BoundedProtocol.__name__}"


class Packed(Frame):
    """A frame whose message is compressed."""


class Deflate(Extension):
    """permessage-deflate, but that frames come in as they are.

    Args:
        inner: What compresses.
    """

    def __init__(self, inner: PerMessageDeflate) -> None:
        self.name = inner.name
        self.inner = inner
        self._decoder = self._begin()

    def encode(self, frame: Frame) -> Frame:
        """Compress a frame."""
        return self.inner.encode(frame)

    def decode(self, frame: Frame, *, max_size: int | None = None) -> Frame:
        """Return a frame as it is, and remember of the first one of a message that it is compressed."""
        del max_size
        if not frame.rsv1 or frame.opcode not in {Opcode.TEXT, Opcode.BINARY}:
            return frame
        return Packed(frame.opcode, frame.data, frame.fin, rsv2=frame.rsv2, rsv3=frame.rsv3)

    def inflated(self, message: bytes) -> Iterator[bytes]:
        """Yield a message as it was before it was compressed, in slices."""
        if self.inner.remote_no_context_takeover:
            self._decoder = self._begin()
        return chain(self._decoder.parts(message), self._decoder.parts(END))

    def _begin(self) -> Decoder:
        bits = self.inner.remote_max_window_bits
        return Decoder(Coding("permessage-deflate", lambda: Inflater(-bits), zlib.error))


class BoundedProtocol(WebSocketsSansIOProtocol):
    """uvicorn's protocol, but that what comes in is read in slices, with others in between, and only while there is use for it.

    While a message waits for the application, or output for the client to read, nothing is received. Frames that end no message
    are counted: a client that sends too many of them is sent away.
    """

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - what uvicorn gives
        super().__init__(*args, **options)
        self._unparsed = bytearray()
        self._deflate: Sequence[Deflate] = ()
        """How messages are compressed, if they may be."""
        self._first = Frame(Opcode.TEXT, b"")
        """The first frame of the message that comes in."""
        self._message = bytearray()
        self._messages: deque[tuple[Frame, bytes]] = deque()
        """The messages that have come in, each with its first frame."""
        self._steps = self._work()
        self._turn: asyncio.Handle | None = None
        self._abort: asyncio.Handle | None = None
        self._small = 0
        self._second = 0.0

    def data_received(self, data: bytes) -> None:
        """Read what came in, or begin to."""
        if not self.transport.is_closing():
            self._unparsed += data
            self._go_on()

    def resume_writing(self) -> None:
        """Go on: the client has read what was sent."""
        super().resume_writing()
        self._go_on()

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next message, and go on with what follows it."""
        message = await super().receive()
        self._go_on()
        return message

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what was not read, and end what would be held by itself until Python's collector comes."""
        super().connection_lost(exc)
        for timer in (self._turn, self._abort):
            if timer is not None:
                timer.cancel()
        self._forget()
        self._steps.close()
        self.conn.parser.close()
        self.conn.parser_exc = None

    def keepalive_timeout(self) -> None:
        """Close the connection of a client that answers no ping."""
        super().keepalive_timeout()
        self._abort_later()

    def handle_parser_exception(self) -> None:
        """Close the connection of a client that breaks the protocol."""
        super().handle_parser_exception()
        self._forget()
        self._abort_later()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """Close the connection, with which the application has nothing to do any more."""
        super().on_task_complete(task)
        if self in self.connections:
            self._abort_later()

    def handle_connect(self, event: Request) -> None:
        """Open the connection; what is compressed comes in as it is."""
        super().handle_connect(event)
        self._deflate = [Deflate(each) for each in self.conn.extensions if isinstance(each, PerMessageDeflate)]
        self.conn.extensions = [*self._deflate]

    def handle_events(self) -> None:
        """Take what was parsed."""
        for event in self.conn.events_received():
            if isinstance(event, Request):
                self.handle_connect(event)
            elif isinstance(event, Frame):
                if self._is_too_much(event):
                    self._fail(CloseCode.POLICY_VIOLATION, f"more than {MOST_SMALL} frames in a second end no message")
                    return
                self._take(event)

    def _take(self, frame: Frame) -> None:
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

    def _is_too_much(self, frame: Frame) -> bool:
        """Count a frame that ends no message and says little; return whether it is one too many."""
        if len(frame.data) >= SMALL or (frame.fin and frame.opcode not in CTRL_OPCODES):
            return False
        now = self.loop.time()
        if now >= self._second + SECOND:
            self._second, self._small = now, 0
        self._small += 1
        return self._small > MOST_SMALL

    def _go_on(self) -> None:
        """Read for some milliseconds; what is left then has another turn."""
        began = perf_counter()
        while (more := next(self._steps, False)) and perf_counter() - began < STRETCH:
            pass
        if more and self._turn is None:
            self._turn = self.loop.call_soon(self._take_turn)
        waits = not (self.close_sent or self.queue.empty())
        if self.read_paused != (more or waits or bool(self._unparsed)) and not self.transport.is_closing():
            self.read_paused = not self.read_paused
            (self.transport.pause_reading if self.read_paused else self.transport.resume_reading)()

    def _take_turn(self) -> None:
        self._turn = None
        self._go_on()

    def _work(self) -> Generator[bool]:
        """Do a little of what is to be done, and yield whether there was anything; again and again."""
        while True:
            if self._messages:
                yield from self._read(*self._messages.popleft())
            elif self._unparsed and self.writable.is_set() and (self.close_sent or self.queue.empty()):
                part = bytes(self._unparsed[:SLICE])
                del self._unparsed[:SLICE]
                super().data_received(part)
                yield True
            else:
                yield False

    def _read(self, first: Frame, message: bytes) -> Generator[bool]:
        """Give a message to the application, inflated and decoded in slices."""
        decoder, text, binary = getincrementaldecoder("utf-8")(), list[str](), bytearray()
        is_text, size, most = first.opcode is Opcode.TEXT, 0, self.config.ws_max_size
        try:
            for part in self._deflate[0].inflated(message) if isinstance(first, Packed) else _slices(message):
                size += len(part)
                if size > most:
                    self._fail(CloseCode.MESSAGE_TOO_BIG, f"over size limit ({most} bytes)")
                    return
                if is_text:
                    text.append(decoder.decode(part))
                else:
                    binary += part
                yield True
            text.append(decoder.decode(b"", final=True))
        except ApiError:
            self._fail(CloseCode.INVALID_DATA, "it could not be decompressed")
        except UnicodeDecodeError as error:
            self._fail(CloseCode.INVALID_DATA, f"{error.reason} at position {error.start}")
        else:
            if is_text:
                self._receive({"type": "websocket.receive", "text": "".join(text)})
            else:
                self._receive({"type": "websocket.receive", "bytes": bytes(binary)})

    def _receive(self, message: ASGIReceiveEvent) -> None:
        """Have the application receive a message, unless it has closed the connection."""
        if not self.close_sent:
            self.queue.put_nowait(message)

    def _fail(self, code: CloseCode, reason: str) -> None:
        self.conn.fail(code, reason)
        self.handle_parser_exception()

    def _abort_later(self) -> None:
        """Have the connection aborted if its client does not read that it is closed."""
        self._abort = self._abort or self.loop.call_later(ABORT, self.transport.abort)

    def _forget(self) -> None:
        self._unparsed.clear()
        self._message = bytearray()
        self._messages.clear()


def _slices(message: bytes) -> Iterator[bytes]:
    return (message[start : start + PART] for start in range(0, len(message), PART))
