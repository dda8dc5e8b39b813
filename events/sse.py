"""How the events of a stream are written: as the bytes of server-sent events, or as objects.

A writer knows the form of events and nothing of their order. It makes no events: the driver hands it those of its edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from functools import cache
from typing import Final, Protocol, TypeVar, cast

from attrs import frozen

from interlock.events.dialects import OPENAI, Dialect
from interlock.events.json import as_json, dumps, encode
from interlock.events.stream import (
    EVENTS,
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
"""What follows the terminal event on the wire (rule R3)."""

CONTENT_TYPE: Final = "text/event-stream"
"""The media type of a stream (rule R5)."""


class Writer(Protocol[T_co]):
    """The form in which a driver returns its events; `SseWriter` and `EventWriter` are the two that come with the package."""

    def write(self, event: StreamEvent) -> T_co:
        """Return an event in this form.

        Args:
            event: What an edge has emitted. The driver uses it again for the next delta of a text: keep a copy.
        """
        ...


def _head(name: str) -> bytes:
    return f"event: {name}\ndata: ".encode()


_HEADS: Final = {event: _head(name) for name, event in EVENTS.items()}


@frozen
class SseWriter:
    """Writes whole frames: `event`, one line of `data`, an empty line; line feeds only, no id (rule R5).

    Args:
        dialect: The dialect of the stream.
    """

    dialect: Dialect = OPENAI

    def write(self, event: StreamEvent) -> bytes:
        """Return an event as a frame."""
        if self.dialect is OPENAI:
            try:
                return b"%b%b\n\n" % (_HEADS[event.__class__], encode(event))
            except UnicodeEncodeError:
                return b"%b%b\n\n" % (_HEADS[event.__class__], dumps(event))
        return _frame(event, self.dialect)


def _frame(event: StreamEvent, dialect: Dialect) -> bytes:
    """Return an event as a frame of a dialect."""
    if isinstance(event, _NESTED):
        body = dialect.spoken(cast("Mapping[str, object]", as_json(event)))
        return b"%b%b\n\n" % (_head(str(body["type"])), dumps(body))
    start, length = _renaming(event.__class__, dialect)
    return b"%b%b\n\n" % (start, dumps(event)[length:])


@cache
def _renaming(event: type[StreamEvent], dialect: Dialect) -> tuple[bytes, int]:
    """Return how an event's frame starts in a dialect, and how much of its JSON in OpenAI's that replaces."""
    name = dialect.event_name(wire_name(event))
    return b'%b{"type":"%b"' % (_head(name), name.encode()), len(f'{{"type":"{wire_name(event)}"')


_NESTED: Final = (ResponseEvent, ItemBracket, PartAdded, PartDone, SummaryPartAdded, SummaryPartDone, ErrorEvent)
"""The events that hold objects in which the dialects can differ."""


@frozen
class EventWriter:
    """Returns the events themselves, for code that reads a stream in the same process."""

    def write(self, event: StreamEvent) -> StreamEvent:
        """Return a copy of the event."""
        return copy(event)
