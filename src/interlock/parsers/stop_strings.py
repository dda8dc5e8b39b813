"""Ends the text of a turn at a stop string, for engines that cannot do so themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from attrs import define, field


def _strings(stop: object) -> tuple[str, ...]:
    strings = cast("Iterable[object]", stop) if isinstance(stop, Iterable) and not isinstance(stop, str) else (stop,)
    return tuple(each for each in strings if isinstance(each, str) and each)


def _begun(string: str, text: str) -> int:
    """Return how many characters at the end of a text begin a string."""
    return next((size for size in range(min(len(string) - 1, len(text)), 0, -1) if text.endswith(string[:size])), 0)


@define(eq=False)
class StopStrings:
    """Cuts the text of one turn before the stop string that is complete first, however the text is divided.

    Args:
        strings: The `stop` of a request: a string, several, or None.
    """

    strings: tuple[str, ...] = field(converter=_strings)
    found: str | None = field(default=None, init=False)
    """The stop string at which the text ended."""
    _rest: str = field(default="", init=False)
    """The end of the text so far, which may begin a stop string."""

    def feed(self, text: str) -> str:
        """Return the text that belongs to no stop string; nothing once one is `found`."""
        if self.found is not None:
            return ""
        text = self._rest + text
        ends = [(start + len(each), start, each) for each in self.strings if (start := text.find(each)) >= 0]
        if ends:
            _, end, self.found = min(ends)
        else:
            end = len(text) - max((_begun(each, text) for each in self.strings), default=0)
        self._rest = "" if ends else text[end:]
        return text[:end]

    def end(self) -> str:
        """Return the rest of the text, at the end of a turn that has not come to a stop string."""
        rest, self._rest = self._rest, ""
        return rest
