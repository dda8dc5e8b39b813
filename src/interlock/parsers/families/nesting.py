"""The brackets of JSON: how many are open, and so what the next quote or bracket triggers.

It knows the structure of JSON, and nothing of states or items.
"""

from __future__ import annotations

from attrs import define

from interlock.parsers.families.alphabet import Trigger
from interlock.parsers.families.family import Family

__all__ = ["Nesting"]


@define(eq=False)
class Nesting:
    """Counts the brackets of the arguments of a call.

    Args:
        whole: What the end of a whole value triggers.
        shutting: The brackets that close around the arguments.
        depth: How many brackets are open.
    """

    _whole: Trigger
    _shutting: tuple[str, ...] = ()
    depth: int = 0

    @classmethod
    def of(cls, family: Family) -> Nesting:
        """Return that of a call of a family."""
        whole = Trigger.WHOLE if Trigger.UNCALL in family.markers else Trigger.ENDED
        return cls(whole, family.markers.get(Trigger.SHUT, ()))

    def bracket(self, bracket: str) -> Trigger:
        """Return what a bracket triggers."""
        if bracket in "{[":
            return Trigger.NEST
        if self.depth:
            return Trigger.UNNEST if self.depth > 1 else self._whole
        return Trigger.SHUT if bracket in self._shutting else Trigger.TEXT

    def quote(self, *, ends: bool) -> Trigger:
        """Return what a quote triggers.

        Args:
            ends: Whether it ends a string; one that no bracket is around is a whole value.
        """
        return self._whole if ends and not self.depth else Trigger.QUOTE

    def passes(self, parts: list[str], *, quoted: bool) -> bool:
        """Count the brackets of a text at once, if none of them is the last to close; returns whether that is so.

        Args:
            parts: What stands between its quotes.
            quoted: Whether it begins inside of a string.
        """
        shape = "".join(parts[quoted::2])
        closing = shape.count("}") + shape.count("]")
        if closing >= self.depth:
            return False
        self.depth += shape.count("{") + shape.count("[") - closing
        return True
