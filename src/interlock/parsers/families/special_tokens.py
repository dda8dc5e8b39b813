"""The tokens behind the text: which of them are special, and how many of them were reasoning.

It knows ids and counts, and nothing of what a text means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from attrs import define, evolve, field

from interlock.fsm.deltas import Usage

__all__ = ["Count", "Specials", "TokenCount"]

Count = Callable[[list[int]], int]
"""Counts the reasoning tokens of a turn."""


@define(eq=False)
class Specials:
    """The special tokens of a turn.

    Args:
        texts: The markers that the vocabulary has as special tokens, by their ids.
    """

    texts: Mapping[int, str]
    _arrived: Counter[str] = field(factory=Counter[str])
    """The special tokens whose text was not read yet."""
    _held: list[str] = field(factory=list[str])
    """Those whose text is held."""

    def arrive(self, ids: Sequence[int]) -> None:
        """Note the tokens of a chunk."""
        for token in ids:
            if token in self.texts:
                self._arrived[self.texts[token]] += 1

    def confirm(self, marker: str) -> bool:
        """Return whether a marker is the special token that it has to be, if it has to be one.

        Args:
            marker: Its text, which may begin with a line break.
        """
        special = self._in(marker)
        return special is None or self._arrived[special] > 0

    def read(self, marker: str, *, held: bool) -> None:
        """Note that the text of a marker was read.

        Args:
            marker: Its text.
            held: Whether it may have to be read again.
        """
        special = self._in(marker)
        if special is not None and self._arrived[special]:
            self._arrived[special] -= 1
            if held:
                self._held.append(special)

    def give_back(self) -> None:
        """Note that what is held will be read again, the first marker in it excepted."""
        self._arrived.update(self._held[1:])
        self._held.clear()

    def settle(self) -> None:
        """Note that what is held will not be read again."""
        self._held.clear()

    def _in(self, marker: str) -> str | None:
        return next((text for text in self.texts.values() if marker.endswith(text)), None)


@define(eq=False)
class TokenCount:
    """The tokens of a turn.

    Args:
        count: Counts those of reasoning; without it, they are estimated from the place in its chunk where reasoning ends.
    """

    _count: Count | None
    tokens: int = 0
    _ids: list[int] = field(factory=list[int])
    _arriving: int = 0
    """How many tokens the chunk has that is being read."""
    _place: float = 0.0
    """How many tokens came before what is being read, if all of a chunk's are as long."""
    _since: float | None = None
    """At which token the reasoning began."""
    _reasoning: float = 0.0

    def add(self, ids: Sequence[int]) -> None:
        """Count the tokens of a chunk."""
        self._arriving = len(ids)
        self.tokens += self._arriving
        if self._count is not None:
            self._ids.extend(ids)

    def reach(self, part: float) -> None:
        """Note how much of the chunk was read.

        Args:
            part: From 0 to 1.
        """
        self._place = self.tokens - self._arriving * (1 - part)

    def begin_reasoning(self) -> None:
        """Note that reasoning begins where the chunk was read to."""
        if self._since is None:
            self._since = self._place

    def end_reasoning(self) -> None:
        """Note that it ends there, if there was any."""
        if self._since is not None:
            self._reasoning += self._place - self._since
            self._since = None

    def usage(self, engine: Usage) -> Usage:
        """Return what a turn cost.

        Args:
            engine: What the engine counted, which is kept.
        """
        count = round(self._reasoning) if self._count is None else self._count(self._ids)
        return evolve(
            engine,
            output_tokens=engine.output_tokens or self.tokens,
            reasoning_tokens=engine.reasoning_tokens or count,
        )
