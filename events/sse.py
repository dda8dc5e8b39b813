"""Events, and how they are written: as the bytes of a server-sent event, or as objects.

A writer knows the form of events and nothing of their order. It cannot make an event: it is given those that
`interlock.fsm.driver` makes where an edge fires.

The hot path is `repeat`: everything of a delta event but its text and its number is rendered once, when the part opens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii
from typing import Final, Protocol, TypeAlias, TypeVar, cast

from attrs import frozen

from interlock.events.dialects import OPENAI, Dialect
from interlock.events.json import clean, copied, dumps

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

    @classmethod
    def _made(cls, name: str, sequence_number: int, body: Mapping[str, object]) -> Event:
        """Return a new event; called by the driver where an edge fires, and by a writer for an event that was made."""
        event = object.__new__(cls)
        put = object.__setattr__
        put(event, "name", name)
        put(event, "sequence_number", sequence_number)
        put(event, "body", body)
        return event


class Writer(Protocol[T_co]):
    """The form in which a driver gives its events; `SseWriter` and `EventWriter` are the two that come with the package.

    A writer is given events that were made, and so it cannot change their order, only how each is written.
    """

    def write(self, event: Event) -> T_co:
        """Return one event in this form.

        Args:
            event: What an edge has emitted. Its body may share values with the driver, so copy what is kept.
        """
        ...

    def repeat(self, event: Event, keep: Keep) -> Callable[[str, int], T_co]:
        """Return a function that writes delta events which differ from a given one in their text and number alone.

        A driver calls this where the same edge can fire again and again, to write the deltas of a text fast.

        Args:
            event: A delta event, without log probabilities.
            keep: Called with the text of each further delta, in UTF-8, surrogates replaced by U+FFFD.

        Returns:
            A function of the text, any text, and of the `sequence_number`; it returns the event in this form.
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

    def write(self, event: Event) -> bytes:
        """Return one event as a frame."""
        return _frame(self.dialect.event_name(event.name), dumps(self.dialect.spoken(event.body)))

    def repeat(self, event: Event, keep: Keep) -> Callable[[str, int], bytes]:
        """Render a delta event's frame up to its text, and return a function that adds the text and the number."""
        head = dumps(self.dialect.spoken(_without_text(event)))
        # `delta` and `sequence_number` take the place of the closing brace.
        before = _frame(self.dialect.event_name(event.name), head[:-1]).rstrip().decode() + ',"delta":'
        # What is not ASCII is escaped too: a string of ASCII is its own UTF-8, any other would be encoded letter by letter. So a
        # reader that decodes what the network gives it piece by piece never meets half a character in a delta either.
        escape = encode_basestring_ascii

        def write_delta(text: str, sequence_number: int) -> bytes:
            try:
                kept = text.encode()
            except UnicodeEncodeError:
                text = clean(text)
                kept = text.encode()
            frame = f'{before}{escape(text)},"sequence_number":{sequence_number}}}\n\n'.encode()
            keep(kept)  # last, so that nothing is kept that was not written
            return frame

        return write_delta


@frozen
class EventWriter:
    """Returns `Event` objects, for code that reads a stream in the same process; their bodies are copies."""

    def write(self, event: Event) -> Event:
        """Return the event with a body of its own."""
        return _with_body(event, event.body)

    def repeat(self, event: Event, keep: Keep) -> Callable[[str, int], Event]:
        """Return a function that makes delta events of the same body up to the text."""
        before = _without_text(event)

        def write_delta(text: str, sequence_number: int) -> Event:
            said = clean(text)
            written = _with_body(event, {**before, "delta": said, "sequence_number": sequence_number})
            keep(said.encode())
            return written

        return write_delta


def _without_text(event: Event) -> dict[str, object]:
    return {name: value for name, value in event.body.items() if name not in {"delta", "sequence_number"}}


def _with_body(event: Event, body: Mapping[str, object]) -> Event:
    number = cast("int", body["sequence_number"])
    return Event._made(event.name, number, cast("Mapping[str, object]", copied(body)))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
