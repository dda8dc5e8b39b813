"""The numbers of a stream's events (rule R2). It knows nothing else of them."""

from __future__ import annotations

from attrs import define

from interlock.fsm.acceptor.finding import Fault
from interlock.fsm.acceptor.json_digest import shown


@define
class Numbering:
    """Counts along.

    Args:
        expected: The number of the next event; None if any will do.
    """

    expected: int | None
    _otherwise: int | None = None
    """What the next number may be too: a wrong number may be wrong by itself, or the first after a gap."""
    _last: int | None = None
    """The last number; None while no event had one."""
    _missing: int = 0
    """How many events had none since then."""

    def take(self, number: object) -> list[Fault]:
        """Judge the number of an event, and expect the next."""
        expected, otherwise, missing = self.expected, self._otherwise, self._missing
        self._otherwise = None
        if type(number) is not int:
            self.skip()
            self._missing += 1
            habit = "unnumbered" if not number and self._last is None else ""
            return [Fault("R2", f"sequence_number is {shown(number)}, and not a number", habit=habit)]
        begins, self._last = self._last is None, number
        self._missing = 0
        self.expected = number + 1
        if begins and missing:
            return [Fault("R2", f"sequence_number is {number}, and the {missing} events before have none")]
        if expected is None or number in {expected, otherwise}:
            return []
        self._otherwise = expected + 1
        return [Fault("R2", f"sequence_number is {number} instead of {expected}")]

    def skip(self) -> None:
        """Count an event whose number cannot be read."""
        if self.expected is not None:
            self.expected += 1
