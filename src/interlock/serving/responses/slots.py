"""The slots of a server for responses in progress, which its processes share.

Each process counts its own in a row of shared memory. There is no lock that a stopped or killed process could hold: it has only
its own slots, and the supervisor clears the row of a process that has exited.
"""

from __future__ import annotations

from mmap import mmap
from typing import Final

from attrs import field, frozen

_ROW: Final = "q"
_ROW_BYTES: Final = 8


@frozen(eq=False)
class Slots:
    """The slots of one process. `limit` is the most that all processes may take together, or None."""

    limit: int | None = None
    _counts: memoryview[int] = field(factory=lambda: memoryview(bytearray(_ROW_BYTES)).cast(_ROW))
    """The number of slots that each process has taken."""
    _row: int = 0

    @classmethod
    def shared(cls, limit: int | None, processes: int) -> list[Slots]:
        """Return the slots for each of several processes, which are forked later."""
        counts = memoryview(mmap(-1, processes * _ROW_BYTES)).cast(_ROW)
        return [cls(limit, counts, row) for row in range(processes)]

    def take(self) -> bool:
        """Take a slot; return whether one was free."""
        # Count first: of two processes that take the last slot at the same time, none overlooks the other. Both may be refused.
        self._counts[self._row] += 1
        if self.limit is None or sum(self._counts) <= self.limit:
            return True
        self.free()
        return False

    def free(self) -> None:
        """Give a slot back."""
        self._counts[self._row] -= 1

    def clear(self) -> None:
        """Give back all slots of the process, which has exited."""
        self._counts[self._row] = 0
