"""Faults of which only later events tell whether they are errors or a habit of the service.

An id that differs once is an error, and so is a number that is missing once. A service all of whose ids differ, or which
numbers nothing, has a habit. So the first such fault waits for the event that shows that the service can do otherwise, or
for the end of the stream. It knows no rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from attrs import define, evolve, field

from interlock.fsm.acceptor.finding import Finding

HABIT_OF: Final[Mapping[str, str]] = {
    "item id": "rotating-ids",
    "response id": "rotating-ids",
    "number": "unnumbered",
    "frame": "unframed-part",
}
"""The habit that a doubt turns out to be when nothing speaks against it; a doubt may go on with `of`, and what it is about."""
_TIMES: Final[Mapping[str, int]] = {"frame": 1}
"""How often a fault must be seen to be a habit, if that is not twice."""


@define
class Doubts:
    """The doubts of one stream."""

    _held: dict[str, Finding] = field(factory=dict[str, Finding], init=False)
    _times: dict[str, int] = field(factory=dict[str, int], init=False)
    _refuted: set[str] = field(factory=set[str], init=False)

    def raised(self, doubt: str, finding: Finding) -> Iterator[Finding]:
        """Record a fault that may be a habit of the service.

        Args:
            doubt: What is doubted, a key of `HABIT_OF`.
            finding: The fault, as the error that it may be.

        Yields:
            The finding, if it is known to be an error.
        """
        if doubt in self._refuted:
            yield finding
            return
        self._held.setdefault(doubt, finding)
        self._times[doubt] = self._times.get(doubt, 0) + 1

    def refuted(self, doubt: str) -> Iterator[Finding]:
        """Record that the service can do otherwise, which makes the faults that were held back errors.

        Args:
            doubt: What is doubted, a key of `HABIT_OF`.

        Yields:
            The error that was held.
        """
        self._refuted.add(doubt)
        held = self._held.pop(doubt, None)
        if held is not None:
            yield held

    def is_habit(self, doubt: str) -> bool:
        """Return whether nothing has spoken against a habit so far."""
        return self._times.get(doubt, 0) >= _TIMES.get(_subject(doubt), 2) and doubt not in self._refuted

    def end(self) -> Iterator[Finding]:
        """End the stream.

        Yields:
            What was held: as a deviation if it is a habit, else as the error that it is.
        """
        for doubt, held in self._held.items():
            habit = HABIT_OF[_subject(doubt)]
            yield evolve(held, severity="deviation", habit=habit) if self.is_habit(doubt) else held
        self._held.clear()


def _subject(doubt: str) -> str:
    return doubt.partition(" of ")[0]
