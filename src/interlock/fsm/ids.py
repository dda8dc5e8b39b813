"""Sources of ids and time. A driver takes them as arguments so that its output is reproducible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from attrs import field, frozen

Ids: TypeAlias = Callable[[str], str]
"""Makes ids that are unique in a response, each from its prefix without the underscore, such as `msg`, `call` or `resp`."""

Clock: TypeAlias = Callable[[], int]
"""Returns the time, in whole seconds since the epoch."""


@frozen
class SequentialIds:
    """Numbers the ids of each prefix from 1, for reproducible output."""

    _counted: Counter[str] = field(factory=Counter[str], init=False)

    def __call__(self, prefix: str) -> str:
        """Return `<prefix>_1`, then `<prefix>_2`, and so on."""
        self._counted[prefix] += 1
        return f"{prefix}_{self._counted[prefix]}"
