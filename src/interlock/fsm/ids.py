"""Sources of ids and time. A driver takes them as arguments so that its output is reproducible."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from attrs import field, frozen


class Ids(Protocol):
    """Makes ids that are unique in a response."""

    def __call__(self, prefix: str) -> str:
        """Create an id.

        Args:
            prefix: Its prefix without the underscore, such as `msg`, `call` or `resp`.
        """
        ...


class Clock(Protocol):
    """Returns the time."""

    def __call__(self) -> int:
        """Return the time, in whole seconds since the epoch."""
        ...


@frozen
class SequentialIds:
    """Numbers the ids of each prefix from 1, for reproducible output."""

    _counted: Counter[str] = field(factory=Counter[str], init=False)

    def __call__(self, prefix: str) -> str:
        """Return `<prefix>_1`, then `<prefix>_2`, and so on."""
        self._counted[prefix] += 1
        return f"{prefix}_{self._counted[prefix]}"
