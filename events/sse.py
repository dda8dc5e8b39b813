"""Events, and how they are written: as the bytes of a server-sent event, or as objects.

A writer knows the form of events and nothing of their order. It cannot make an event: it is given those that
`interlock.fsm.driver` makes where an edge fires.

The hot path is `repeat`: everything of a delta event but its text and its number is rendered once, when an edge has fired that
leads back to its state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, cached_property
from json import JSONDecoder
from json.encoder import encode_basestring_ascii
from typing import Final, Protocol, TypeAlias, TypeVar, cast

from attrs import frozen

from interlock.events.dialects import OPENAI, Dialect
from interlock.events.json import clean, dumps, parsed

T_co = TypeVar("T_co", covariant=True)

Keep: TypeAlias = Callable[[bytes], object]
"""Keeps a piece of text, in UTF-8."""

DONE_FRAME: Final = b"data: [DONE]\n\n"
"""What follows the terminal event on the wire (rule R3)."""

CONTENT_TYPE: Final = "text/event-stream"
"""The media type of a stream (rule R5)."""


_TAIL: Final = b"\n\n"


@cache
def _head(name: str) -> bytes:
    """Return what a frame of an event begins with: `event`, and one line of `data` (rule R5)."""
    return f"event: {name}\ndata: ".encode()


def frame_of(name: str, values: str) -> bytes:
    """Return the frame of an event, with a gap for each value.

    Args:
        name: The wire name.
        values: The members of its JSON object between `type` and `sequence_number`, each with a comma before it; `%b` stands for
            a value.

    Returns:
        What `%` makes a frame of, with the bytes of the values, and with the number.
    """
    return _head(name) + f'{{"type":"{name}"{values},"sequence_number":%d}}'.encode() + _TAIL


@frozen
class Event:
    """One event of a stream.

    There is no way to make one but by firing an edge of a lifecycle: the constructor refuses.

    Args:
        name: The wire name.
        sequence_number: Its place in the stream, from 0.
        frame: It as a frame, in OpenAI's dialect.
    """

    name: str
    sequence_number: int
    frame: bytes

    def __attrs_pre_init__(self) -> None:
        """Refuse.

        Raises:
            TypeError: Always.
        """
        raise TypeError("an Event is made by firing an edge of a lifecycle, not by calling its class")

    @cached_property
    def body(self) -> Mapping[str, object]:
        """The JSON object, parsed; nobody else has a part of it."""
        return cast("Mapping[str, object]", parsed(self.frame[len(_head(self.name)) : -len(_TAIL)]))

    @classmethod
    def _made(cls, name: str, sequence_number: int, frame: bytes) -> Event:
        """Return a new event; called by the driver where an edge fires, and by a writer for one that repeats another."""
        event = object.__new__(cls)
        put = object.__setattr__
        put(event, "name", name)
        put(event, "sequence_number", sequence_number)
        put(event, "frame", frame)
        return event


class Writer(Protocol[T_co]):
    """The form in which a driver gives its events; `SseWriter` and `EventWriter` are the two that come with the package.

    A writer is given events that were made, and so it cannot change their order, only how each is written.
    """

    def write(self, event: Event) -> T_co:
        """Return one event in this form.

        Args:
            event: What an edge has emitted.
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


def _repeater(frame: bytes, keep: Keep) -> Callable[[str, int], bytes]:
    """Return a function that makes frames which differ from one of a delta event in its text and number alone."""
    head, _, rest = frame.decode().partition(_DELTA)
    _, end = _read_text(rest)
    before = f"{head}{rest[end:].rpartition(_NUMBER)[0]}{_DELTA}"
    # What is not ASCII is escaped too: a string of ASCII is its own UTF-8, any other would be encoded letter by letter. So a
    # reader that decodes what the network gives it piece by piece never meets half a character in a delta either.

    def write_delta(text: str, sequence_number: int) -> bytes:
        try:
            kept = text.encode()
        except UnicodeEncodeError:
            text = clean(text)
            kept = text.encode()
        frame = f'{before}{encode_basestring_ascii(text)},"sequence_number":{sequence_number}}}\n\n'.encode()
        keep(kept)  # last, so that nothing is kept that was not written
        return frame

    return write_delta


_DELTA: Final = ',"delta":'
"""Comes in a frame before the text; it is in no other string, where its quotes would be escaped."""
_NUMBER: Final = ',"sequence_number":'
_read_text: Final = JSONDecoder().raw_decode


@frozen
class SseWriter:
    """Writes whole frames: `event`, one line of `data`, an empty line; line feeds only, no id (rule R5).

    Args:
        dialect: What is spoken.
    """

    dialect: Dialect = OPENAI

    def write(self, event: Event) -> bytes:
        """Return one event as a frame."""
        if self.dialect is OPENAI:
            return event.frame
        return _head(self.dialect.event_name(event.name)) + dumps(self.dialect.spoken(event.body)) + _TAIL

    def repeat(self, event: Event, keep: Keep) -> Callable[[str, int], bytes]:
        """Return a function that adds the text and the number to what is the same in each frame."""
        return _repeater(self.write(event), keep)


@frozen
class EventWriter:
    """Returns `Event` objects, for code that reads a stream in the same process."""

    def write(self, event: Event) -> Event:
        """Return the event."""
        return event

    def repeat(self, event: Event, keep: Keep) -> Callable[[str, int], Event]:
        """Return a function that makes delta events of the same body up to the text."""
        name, frame = event.name, _repeater(event.frame, keep)
        return lambda text, number: Event._made(name, number, frame(text, number))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
