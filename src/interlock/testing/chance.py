"""Where a generator's choices come from, so that Hypothesis or a seed can make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Chance(Protocol):
    """Makes choices."""

    def choice(self, options: Sequence[T]) -> T:
        """Choose one of some options; the first is the simplest."""
        ...

    def randint(self, low: int, high: int) -> int:
        """Choose a whole number, both bounds included; the lowest is the simplest."""
        ...

    def text(self) -> str:
        """Choose a piece of text, which may be empty, blank, or of any characters."""
        ...


def some(chance: Chance, low: int, high: int) -> range:
    """Choose how often something happens.

    Args:
        chance: Makes the choice.
        low: At least so often.
        high: At most so often.
    """
    return range(chance.randint(low, high))


def perhaps(chance: Chance) -> bool:
    """Choose whether something happens; that it does not is the simpler choice."""
    return chance.randint(0, 1) == 1
