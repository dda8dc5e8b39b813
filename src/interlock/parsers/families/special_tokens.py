"""The tokens behind the text of a family: which are special, and how many are reasoning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from attrs import define, evolve, field

from interlock.fsm.deltas import Usage
from interlock.parsers.chunk import ReasoningCounter

__all__ = ["SpecialTokens", "TokenCounter"]


@define(eq=False)
class SpecialTokens:
    """The special tokens of a turn; `texts` are the markers that are special tokens, by their ids."""

    texts: Mapping[int, str]
    _unread: Counter[str] = field(factory=Counter[str])
    """The special tokens whose text was not read yet."""
    _pending: list[str] = field(factory=list[str])
    """The special tokens in the pending text."""

    def add(self, ids: Sequence[int]) -> None:
        """Add the tokens of a chunk."""
        for token in ids:
            if token in self.texts:
                self._unread[self.texts[token]] += 1

    def confirm(self, marker: str) -> bool:
        """Return whether a marker, which may begin with a line break, is a special token or need not be one."""
        special = self._special_in(marker)
        return special is None or self._unread[special] > 0

    def read(self, marker: str, *, pending: bool) -> None:
        """Record that the text of a marker was read; if `pending`, it may be read again."""
        special = self._special_in(marker)
        if special is not None and self._unread[special]:
            self._unread[special] -= 1
            if pending:
                self._pending.append(special)

    def restore(self) -> None:
        """Expect the pending tokens again, except for the first."""
        self._unread.update(self._pending[1:])
        self._pending.clear()

    def commit(self) -> None:
        """Forget the pending tokens, which are not read again."""
        self._pending.clear()

    def _special_in(self, marker: str) -> str | None:
        return next((text for text in self.texts.values() if marker.endswith(text)), None)


@define(eq=False)
class TokenCounter:
    """Counts the tokens of a turn; without `count`, reasoning tokens are estimated from their place in a chunk's text."""

    _count: ReasoningCounter | None
    tokens: int = 0
    _ids: list[int] = field(factory=list[int])
    _chunk_size: int = 0
    """How many tokens the current chunk has."""
    _position: float = 0.0
    """How many tokens precede the current place, if all tokens of a chunk have the same length."""
    _reasoning_start: float | None = None
    """The token at which reasoning began."""
    _reasoning: float = 0.0

    def add(self, ids: Sequence[int]) -> None:
        """Count the tokens of a chunk."""
        self._chunk_size = len(ids)
        self.tokens += self._chunk_size
        if self._count is not None:
            self._ids.extend(ids)

    def reach(self, part: float) -> None:
        """Set the current place, as a fraction of the chunk."""
        self._position = self.tokens - self._chunk_size * (1 - part)

    def begin_reasoning(self) -> None:
        """Begin reasoning at the current place."""
        if self._reasoning_start is None:
            self._reasoning_start = self._position

    def end_reasoning(self) -> None:
        """End reasoning at the current place, if it has begun."""
        if self._reasoning_start is not None:
            self._reasoning += self._position - self._reasoning_start
            self._reasoning_start = None

    def usage(self, engine: Usage) -> Usage:
        """Return the engine's usage, with this counter's values where it has none."""
        count = round(self._reasoning) if self._count is None else self._count(self._ids)
        return evolve(
            engine,
            output_tokens=engine.output_tokens or self.tokens,
            reasoning_tokens=engine.reasoning_tokens or count,
        )
