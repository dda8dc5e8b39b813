"""How an event is written: as the bytes of a server-sent event, or as an `Event` object.

A writer knows the form of events and nothing of their order. It is not a way to make one: the only caller is
`interlock.fsm.driver`, which calls it when an edge fires.

The hot path is `stamp`: everything of a delta event but its text and its number is rendered once, when the part opens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii
from typing import Final, Protocol, TypeAlias, TypeVar

from attrs import frozen

from interlock.events.dialects import OPENAI, Dialect
from interlock.events.json import clean, dumps
from interlock.events.spec import EventSpec

T_co = TypeVar("T_co", covariant=True)

Keep: TypeAlias = Callable[[bytes], object]
"""Keeps a piece of text, in UTF-8."""

DONE_FRAME: Final = b"data: [DONE]\n\n"
"""What follows the terminal event on the wire (rule R3)."""

CONTENT_TYPE: Final = "text/event-stream"
"""The media type of a stream (rule R5)."""


@frozen(eq=True)
class Event:
    """One event of a stream.

    There is no way to make one but by firing an edge of a lifecycle: the constructor refuses.

    Args:
        name: The wire name.
        sequence_number: Its place in the stream, from 0.
        body: The JSON object, `type` and `sequence_number` included.
    """

    name: str
    sequence_number: int
    body: Mapping[str, object]

    def __attrs_pre_init__(self) -> None:
        """Refuse.

        Raises:
            TypeError: Always.
        """
        raise TypeError("an Event is made by firing an edge of a lifecycle, not by calling its class")


class Writer(Protocol[T_co]):
    """The form in which a driver gives its events.

    Its methods are private although others implement them: the driver calls them where an edge fires, and nobody else does.
    """

    def _write(self, spec: EventSpec, values: Mapping[str, object], sequence_number: int) -> T_co:
        """Write one event.

        Args:
            spec: Which.
            values: The fields that address it, and its own.
            sequence_number: Its place in the stream.
        """
        ...

    def _stamp(self, spec: EventSpec, values: Mapping[str, object], keep: Keep) -> Callable[[str, int], T_co]:
        """Prepare a delta event that will be written many times.

        Args:
            spec: Which; it has a field `delta`.
            values: All its fields but `delta`.
            keep: Is told the text of each as it is written.

        Returns:
            A function of the delta's text, any text, and the sequence number.
        """
        ...


def _frame(name: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


@frozen
class SseWriter:
    """Writes whole frames: `event`, one line of `data`, an empty line; line feeds only, no id (rule R5).

    Args:
        dialect: What is spoken.
    """

    dialect: Dialect = OPENAI

    def _write(self, spec: EventSpec, values: Mapping[str, object], sequence_number: int) -> bytes:
        """Write one event as a frame."""
        body = self.dialect.spoken({"type": spec.name, **values, "sequence_number": sequence_number})
        return _frame(self.dialect.event_name(spec.name), dumps(body))

    def _stamp(self, spec: EventSpec, values: Mapping[str, object], keep: Keep) -> Callable[[str, int], bytes]:
        """Render a delta event's frame up to its text."""
        head = dumps(self.dialect.spoken({"type": spec.name, **values}))
        # `delta` and `sequence_number` take the place of the closing brace.
        before = _frame(self.dialect.event_name(spec.name), head[:-1]).rstrip().decode() + ',"delta":'
        # What is not ASCII is escaped too: a string of ASCII is its own UTF-8, any other would be encoded letter by letter. So a
        # reader that decodes what the network gives it piece by piece never meets half a character in a delta either.
        escape = encode_basestring_ascii

        def write_delta(text: str, sequence_number: int) -> bytes:
            try:
                keep(text.encode())
            except UnicodeEncodeError:
                text = clean(text)
                keep(text.encode())
            return f'{before}{escape(text)},"sequence_number":{sequence_number}}}\n\n'.encode()

        return write_delta


@frozen
class EventWriter:
    """Gives `Event` objects, for those who read a stream in the same process."""

    def _write(self, spec: EventSpec, values: Mapping[str, object], sequence_number: int) -> Event:
        """Give one event."""
        return _event(spec.name, sequence_number, {"type": spec.name, **values, "sequence_number": sequence_number})

    def _stamp(self, spec: EventSpec, values: Mapping[str, object], keep: Keep) -> Callable[[str, int], Event]:
        """Prepare a delta event."""

        def write_delta(text: str, sequence_number: int) -> Event:
            said = clean(text)
            keep(said.encode())
            return self._write(spec, {**values, "delta": said}, sequence_number)

        return write_delta


def _event(name: str, sequence_number: int, body: Mapping[str, object]) -> Event:
    event = object.__new__(Event)
    for attribute, value in (("name", name), ("sequence_number", sequence_number), ("body", body)):
        object.__setattr__(event, attribute, value)
    return event
