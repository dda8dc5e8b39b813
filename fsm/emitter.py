"""Where an edge fires: what it emits is numbered, made and written, all of it or nothing.

It owns the sequence number and the events that were not given yet. It knows no deltas, and not which edge is to fire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from interlock.events.dialects import OPENAI
from interlock.events.sse import Event, SseWriter, Writer
from interlock.fsm.item import Item
from interlock.fsm.lifecycle import Emission, Given
from interlock.fsm.response import Response

__all__ = ["Emitter"]

T = TypeVar("T")
"""What an event is written as: bytes, or `Event`."""


class Emitter(Generic[T]):
    """Fires edges, and writes the events.

    Args:
        writer: The form in which events are given.
    """

    __slots__ = ("_events", "_passes", "_sequence_number", "_stream", "_writer")

    def __init__(self, writer: Writer[T]) -> None:
        self._writer = writer
        self._passes = isinstance(writer, SseWriter) and writer.dialect is OPENAI
        """Whether the frames of the edges are what the writer would write, so that it need not be asked."""
        self._sequence_number = 0
        self._events: list[T] = []
        self._stream: Callable[[str, int], T] | None = None
        """Writes a delta of the active item where its text only streams."""

    def _emit(self, subject: Item | Response, trigger: str, given: Given) -> None:
        """Fire an edge: number and write what it emits.

        Whatever is raised in that (the writer and the clock are not ours), nothing has changed then, so that another edge can end
        what this one could not.

        Args:
            subject: What goes through the lifecycle.
            trigger: What makes the edge fire.
            given: The arguments of the trigger.

        Raises:
            IllegalTransition: The state has no such edge.
        """
        self._stream = None
        about: Any = subject  # the emissions of the response's edges are about it, as those of an item's are about that
        row = about.state.rows.get(trigger)
        if row is None or not row[1]:
            about.fire(trigger)  # which is refused, or emits nothing
            return
        events: list[Any] = self._events
        saved, made, number = about.save(), len(events), self._sequence_number
        try:
            for emission in about.fire(trigger):
                frame = emission.emit(about, given, number)
                events.append(frame if self._passes else self._writer.write(_event(emission.name, number, frame)))
                number += 1
            self._sequence_number = number
        except BaseException:
            about.restore(saved)
            del events[made:]
            raise

    def _repeat(self, item: Item, emission: Emission[Item]) -> None:
        """Have further text written as the delta was that has just been emitted: that edge leads back to its state."""
        number = self._sequence_number - 1
        frame = emission.frame % (*emission.values(item), number)
        self._stream = self._writer.repeat(_event(emission.name, number, frame), item.sent.write)


def _event(name: str, number: int, frame: bytes) -> Event:
    """Return the event of a frame; nobody else can make one without naming what is private."""
    return Event._made(name, number, frame)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
