"""Where an edge fires: what it emits is numbered, made and written, all of it or nothing.

It owns the sequence number and the events that were not given yet. It knows no deltas, and not which edge is to fire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

from interlock.events.dialects import OPENAI
from interlock.events.sse import Event, SseWriter, Writer
from interlock.fsm.item import Item
from interlock.fsm.lifecycle import Given
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

    def _emit(self, subject: Item | Response, trigger: str, given: Given) -> Event | None:
        """Fire an edge: number and write what it emits.

        Whatever is raised in that (the writer and the clock are not ours), nothing has changed then, so that another edge can end
        what this one could not.

        Args:
            subject: What goes through the lifecycle.
            trigger: What makes the edge fire.
            given: The arguments of the trigger.

        Returns:
            The last event that it emitted; None if it emits none.

        Raises:
            IllegalTransition: The state has no such edge.
        """
        self._stream = None
        about = cast("Item", subject)  # the emissions of the response's edges are about it, as those of an item's are about that
        state, saved = about.state, about.save()
        number, made = self._sequence_number, len(self._events)
        frame, name = b"", ""
        try:
            for emission in about.fire(trigger):
                emission.note(about, given)
                name = emission.spec.name
                frame = emission.frame % (*emission.values(about), self._sequence_number)
                if self._passes:
                    self._events.append(cast("T", frame))
                else:
                    self._events.append(self._writer.write(self._event(name, self._sequence_number, frame)))
                self._sequence_number += 1
            return self._event(name, self._sequence_number - 1, frame) if name else None
        except BaseException:
            about.restore(saved)
            about.state = state
            self._sequence_number = number
            del self._events[made:]
            raise

    @staticmethod
    def _event(name: str, number: int, frame: bytes) -> Event:
        """Return the event of a frame; nobody else can make one without naming what is private."""
        return Event._made(name, number, frame)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
