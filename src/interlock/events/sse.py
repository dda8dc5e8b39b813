"""Server-sent events: writers of a stream's events, as bytes or as objects, and a decoder for chunks of bytes of any size.

docs/evidence/rules.md has the rules by number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from attrs import define, field, frozen
from msgspec.structs import replace

from interlock.events.dialects import OPENAI, Dialect
from interlock.events.json import as_json, dumps, encode, members
from interlock.events.stream import EVENTS, AnyEvent, StreamEvent

T_co = TypeVar("T_co", covariant=True)

DONE_FRAME: Final = b"data: [DONE]\n\n"
"""The end marker, which follows the terminal event on the wire (rule R3)."""

COMMENT: Final = b": keep-alive\n\n"
"""The server-sent comment that breaks a silence where no event may: every client ignores it."""

CONTENT_TYPE: Final = "text/event-stream"
"""The media type of a stream (rule R5)."""


class Writer(Protocol[T_co]):
    """Converts events to the output of a stream: `SseWriter` to bytes, `EventWriter` to objects."""

    def write(self, event: StreamEvent) -> T_co:
        """Convert an event."""
        ...

    def repeat(self, event: StreamEvent) -> Callable[[str, int], T_co]:
        """Return a function that converts a delta event with another text and sequence number.

        This avoids encoding the whole event again for each of many text deltas.

        Args:
            event: A delta event without log probabilities.

        Returns:
            A function of the text, which must not contain lone surrogates, and the sequence number.
        """
        ...


def _head(name: str) -> bytes:
    return f"event: {name}\ndata: ".encode()


_HEADS: Final = {event: _head(name) for name, event in EVENTS.items()}


@frozen
class SseWriter:
    """Encodes events as frames of `event`, one line of `data` and an empty line, with line feeds only and no id (rule R5)."""

    dialect: Dialect = OPENAI

    def write(self, event: StreamEvent) -> bytes:
        """Return an event as a frame."""
        if self.dialect is OPENAI:
            return b"".join((_HEADS[type(event)], dumps(event), b"\n\n"))
        body = self.dialect.convert(members(as_json(event)))
        return b"".join((_head(str(body["type"])), dumps(body), b"\n\n"))

    def repeat(self, event: StreamEvent) -> Callable[[str, int], bytes]:
        """Return a function that inserts a text and a sequence number into the frame of a delta event."""
        head, _, rest = self.write(replace(event, delta="", sequence_number=0)).partition(b'"delta":""')
        start, middle = head + b'"delta":', rest.removesuffix(b"0}\n\n")
        return lambda text, number: b"".join((start, encode(text), middle, encode(number), b"}\n\n"))


@frozen
class EventWriter:
    """Returns the event objects, for code that reads a stream in the same process."""

    def write(self, event: StreamEvent) -> AnyEvent:
        """Return the event."""
        return event  # type: ignore[return-value]  # every event is one of `AnyEvent`

    def repeat(self, event: StreamEvent) -> Callable[[str, int], AnyEvent]:
        """Return a function that returns copies of the event."""
        return lambda text, number: replace(event, delta=text, sequence_number=number)  # type: ignore[return-value]  # likewise


# The decoder interprets streams like section 9.2.6 of the WHATWG HTML standard, and records how each message was framed, to
# check rule R5. It does not parse the data and never raises: invalid UTF-8 becomes U+FFFD, and a message that is too long is
# truncated and marked `overlong`.

_LINE_END: Final = re.compile(rb"\r\n?|\n")
_EMPTY_LINES: Final = re.compile(rb"[\r\n]*")
_PLAIN: Final = re.compile(rb"event: ([^\r\n]+)\ndata: ([^\r\n]*)\n\n")
_PLAIN_LINES: Final = 3
BOM: Final = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, which may begin a stream."""

DEFAULT_LIMIT: Final = 64 * 2**20
"""The default size limit of a message, in bytes."""


@frozen
class SseMessage:
    """One message of a stream.

    Args:
        event: Its type; `message` by default.
        data: Its data lines, joined by line feeds.
        last_event_id: The last id in the stream so far, from this message or an earlier one.
        fields: The field names of its lines, in order; empty for a comment.
        had_cr: Whether one of its lines ended with a carriage return, alone or before a line feed.
        invalid_utf8: Whether invalid bytes were replaced.
        overlong: Whether it was longer than the limit; `data` then has the complete lines up to the limit.
        complete: Whether an empty line ended it; clients discard a message without one.
        line: The line of the stream on which it begins, counted from 1.
    """

    event: str
    data: str
    last_event_id: str = ""
    fields: tuple[str, ...] = ("event", "data")
    had_cr: bool = False
    invalid_utf8: bool = False
    overlong: bool = False
    complete: bool = True
    line: int = field(default=1, eq=False)  # comparisons ignore the line

    @property
    def is_event(self) -> bool:
        """Whether it has data or a name; at the end of a stream, it may have neither."""
        return "data" in self.fields or self.event != "message"


@define
class _PartialMessage:
    """The current message: everything since the last empty line."""

    event: str = ""
    data: list[str] = field(factory=list[str])
    fields: list[str] = field(factory=list[str])
    size: int = 0
    had_cr: bool = False
    invalid_utf8: bool = False
    line: int = 1

    def text(self, value: bytes) -> str:
        """Decode the name or the value of a field; replace invalid bytes and record that there were any."""
        try:
            return value.decode()
        except UnicodeDecodeError:
            self.invalid_utf8 = True
            return value.decode(errors="replace")


@define
class SseDecoder:
    """Decodes the bytes of one stream into messages; it buffers at most one message and a line.

    Args:
        limit: The size limit of a message, in bytes.
    """

    limit: int = DEFAULT_LIMIT
    last_event_id: str = field(default="", init=False)
    without_data: int = field(default=0, init=False)
    """The number of messages with an event but no data, which clients ignore; `feed` does not return them."""
    _block: _PartialMessage = field(factory=_PartialMessage, init=False)
    _line: list[bytes] = field(factory=list[bytes], init=False)
    """The chunks of the current line."""
    _line_size: int = field(default=0, init=False)
    _lines: int = field(default=0, init=False)
    _last: bytes = field(default=b"", init=False)
    """The previous byte. A line feed after a carriage return does not end another line."""

    def feed(self, data: bytes) -> list[SseMessage]:
        """Decode a chunk, and return the messages that it completes."""
        if not data:
            return []
        start = 1 if self._last == b"\r" and data.startswith(b"\n") else 0
        self._last = data[-1:]
        messages: list[SseMessage] = []
        while True:
            if not self._line_size and not self._block.fields and not self._block.size:
                start = self._take_plain(data, start, messages)
            match = _LINE_END.search(data, start)
            if match is None:
                break
            self._keep(data[start : match.start()])
            start = match.end()
            messages += self._end_line(match[0])
        self._keep(data[start:])
        return messages

    def _take_plain(self, data: bytes, start: int, messages: list[SseMessage]) -> int:
        """Skip empty lines, parse complete messages of the most common form at once, and return the position of the rest."""
        while True:
            start = self._skip_empty_lines(data, start)
            match = _PLAIN.match(data, start)
            if match is None or match.end() - start > self.limit:
                break
            try:
                event, text = match[1].decode(), match[2].decode()
            except UnicodeDecodeError:
                break
            messages.append(SseMessage(event, text, self.last_event_id, line=self._block.line))
            start = match.end()
            self._lines += _PLAIN_LINES
            self._block.line += _PLAIN_LINES
        return start

    def _skip_empty_lines(self, data: bytes, start: int) -> int:
        """Skip the empty lines in front of a message, and return the position after them."""
        match = _EMPTY_LINES.match(data, start)
        assert match is not None  # noqa: S101 - it matches nothing, too
        if match[0]:
            self._lines += len(_LINE_END.findall(match[0]))
            self._block.line = self._lines + 1
        return match.end()

    def end(self) -> list[SseMessage]:
        """End the stream, and return its unfinished last message, if any, which is not `complete`."""
        if self._line_size and not self._is_lone_bom():
            self._take_line()
        return [self._dispatch(complete=False)] if self._block.fields or self._block.size else []

    def _keep(self, chunk: bytes) -> None:
        """Add a chunk to the line, unless the message is too long."""
        self._line_size += len(chunk)
        if chunk and self._block.size + self._line_size <= self.limit:
            self._line.append(chunk)

    def _end_line(self, terminator: bytes) -> list[SseMessage]:
        """End the line; an empty line ends the message."""
        if terminator != b"\n":
            self._block.had_cr = True
        if self._line_size and not self._is_lone_bom():
            self._take_line()
            return []
        self._line, self._line_size, self._lines = [], 0, self._lines + 1
        if "data" in self._block.fields or self._block.size > self.limit:
            return [self._dispatch(complete=True)]
        self.without_data += "event" in self._block.fields
        self._block = _PartialMessage(line=self._lines + 1)
        return []

    def _is_lone_bom(self) -> bool:
        """Return whether the line is the stream's first and is only a byte order mark."""
        return not self._lines and self._line_size == len(BOM) and b"".join(self._line) == BOM

    def _take_line(self) -> None:
        """Parse the line as a field of the message."""
        line = b"".join(self._line)
        if not self._lines:
            line = line.removeprefix(BOM)
        self._block.size += self._line_size
        self._line, self._line_size, self._lines = [], 0, self._lines + 1
        if self._block.size <= self.limit:
            name, _, value = line.partition(b":")
            self._take_field(name, value.removeprefix(b" "))

    def _take_field(self, name: bytes, value: bytes) -> None:
        """Set a field; ignore unknown names and invalid values."""
        block = self._block
        block.fields.append(block.text(name))
        match name:
            case b"data":
                block.data.append(block.text(value))
            case b"event":
                block.event = block.text(value)
            case b"id" if b"\0" not in value:
                self.last_event_id = block.text(value)
            case _:
                pass

    def _dispatch(self, *, complete: bool) -> SseMessage:
        """Return the current message, and begin another."""
        block, self._block = self._block, _PartialMessage(line=self._lines + 1)
        return SseMessage(
            event=block.event or "message",
            data="\n".join(block.data),
            last_event_id=self.last_event_id,
            fields=tuple(block.fields),
            had_cr=block.had_cr,
            invalid_utf8=block.invalid_utf8,
            overlong=block.size > self.limit,
            complete=complete,
            line=block.line,
        )
