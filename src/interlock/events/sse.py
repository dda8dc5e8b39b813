"""Writers of a stream's events, as bytes of server-sent events or as objects. docs/evidence/rules.md has the rules by number."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Final, Protocol, TypeVar

from attrs import frozen
from msgspec.structs import replace

from interlock.events.dialects import OPENAI, Dialect
from interlock.events.json import as_json, dumps, encode, members
from interlock.events.stream import (
    EVENTS,
    AnyEvent,
    ErrorEvent,
    ItemBracket,
    PartAdded,
    PartDone,
    ResponseEvent,
    StreamEvent,
    SummaryPartAdded,
    SummaryPartDone,
    wire_name,
)

T_co = TypeVar("T_co", covariant=True)

DONE_FRAME: Final = b"data: [DONE]\n\n"
"""The end marker, which follows the terminal event on the wire (rule R3)."""

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
            try:
                return b"".join((_HEADS[type(event)], encode(event), b"\n\n"))
            except UnicodeEncodeError:
                return b"%b%b\n\n" % (_HEADS[type(event)], dumps(event))
        return _frame(event, self.dialect)

    def repeat(self, event: StreamEvent) -> Callable[[str, int], bytes]:
        """Return a function that inserts a text and a sequence number into the frame of a delta event."""
        frame = self.write(_set_text(event, "", 0))
        head, _, rest = frame.partition(b'"delta":""')
        return _DeltaFrame(head + b'"delta":', rest.removesuffix(b"0}\n\n")).fill


@frozen
class _DeltaFrame:
    """The frame of a delta event: the bytes before its text, and the bytes between its text and its number."""

    start: bytes
    middle: bytes

    def fill(self, text: str, number: int) -> bytes:
        return b"".join((self.start, encode(text), self.middle, encode(number), b"}\n\n"))


def _set_text(event: StreamEvent, text: str, number: int) -> StreamEvent:
    """Return a copy of a delta event with another text and number."""
    return replace(event, delta=text, sequence_number=number)


def _frame(event: StreamEvent, dialect: Dialect) -> bytes:
    """Return an event as a frame, in a dialect."""
    if isinstance(event, _NESTED):
        body = dialect.convert(members(as_json(event)))
        return b"%b%b\n\n" % (_head(str(body["type"])), dumps(body))
    start, length = _renaming(event.__class__, dialect)
    return b"%b%b\n\n" % (start, dumps(event)[length:])


@cache
def _renaming(event: type[StreamEvent], dialect: Dialect) -> tuple[bytes, int]:
    """Return the start of the frame in the dialect, and the length of the start of OpenAI's JSON that it replaces."""
    name = dialect.event_name(wire_name(event))
    return b'%b{"type":"%b"' % (_head(name), name.encode()), len(f'{{"type":"{wire_name(event)}"')


_NESTED: Final = (ResponseEvent, ItemBracket, PartAdded, PartDone, SummaryPartAdded, SummaryPartDone, ErrorEvent)
"""The events that contain objects which can differ between the dialects."""


@frozen
class EventWriter:
    """Returns the event objects, for code that reads a stream in the same process."""

    def write(self, event: StreamEvent) -> AnyEvent:
        """Return the event."""
        return event  # type: ignore[return-value]  # every event is one of `AnyEvent`

    def repeat(self, event: StreamEvent) -> Callable[[str, int], AnyEvent]:
        """Return a function that returns copies of the event."""
        return partial(_set_text, event)  # type: ignore[return-value]  # likewise
