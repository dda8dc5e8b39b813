"""Ids and time, which a driver is handed so that a run can be repeated to the byte."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from attrs import field, frozen


class Ids(Protocol):
    """Makes ids that are unique in a response."""

    def __call__(self, prefix: str) -> str:
        """Create an id.

        Args:
            prefix: What it begins with, without the underscore: `msg`, `call`, `resp`.
        """
        ...


class Clock(Protocol):
    """Tells the time."""

    def __call__(self) -> int:
        """Return the time, in whole seconds since the epoch."""
        ...


@frozen
class SequentialIds:
    """Counts each prefix from 1, so that the same run gives the same ids."""

    _counted: Counter[str] = field(factory=Counter[str], init=False)

    def __call__(self, prefix: str) -> str:
        """Return `<prefix>_1`, then `<prefix>_2`, and so on."""
        self._counted[prefix] += 1
        return f"{prefix}_{self._counted[prefix]}"
