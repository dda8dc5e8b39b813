"""Tracks the token ids of a turn: which markers are special tokens, and how many tokens are reasoning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from attrs import define, evolve, field

from interlock.fsm.deltas import Usage
from interlock.parsers.chunk import ReasoningCounter


@define(eq=False)
class SpecialTokens:
    """The special tokens of a turn; `texts` maps the ids of special tokens to the markers that they stand for."""

    texts: Mapping[int, str]
    _unread: Counter[str] = field(factory=Counter[str])
    """The special tokens whose text has not been read yet."""
    _pending: list[str] = field(factory=list[str])
    """The special tokens in the pending text, which may be read again."""

    def add(self, ids: Sequence[int]) -> None:
        """Add the tokens of a chunk."""
        for token in ids:
            if token in self.texts:
                self._unread[self.texts[token]] += 1

    def confirm(self, marker: str) -> bool:
        """Return whether a marker came as its special token, or has none; it may begin with a line break."""
        special = self._special_in(marker)
        return special is None or self._unread[special] > 0

    def read(self, marker: str, *, pending: bool) -> None:
        """Record that a marker was read; a `pending` one may be read again."""
        special = self._special_in(marker)
        if special is not None and self._unread[special]:
            self._unread[special] -= 1
            if pending:
                self._pending.append(special)

    def restore(self) -> None:
        """Mark the pending tokens, except for the first, as unread."""
        self._unread.update(self._pending[1:])
        self._pending.clear()

    def commit(self) -> None:
        """Forget the pending tokens, which will not be read again."""
        self._pending.clear()

    def _special_in(self, marker: str) -> str | None:
        for text in self.texts.values():
            if marker.endswith(text):
                return text
        return None


@define(eq=False)
class TokenCounter:
    """Counts the tokens of a turn; without `count`, estimates the reasoning tokens from where markers are in a chunk's text."""

    _count: ReasoningCounter | None
    tokens: int = 0
    _ids: list[int] = field(factory=list[int])
    _chunk_size: int = 0
    """How many tokens the current chunk has."""
    place: tuple[int, int] = (0, 0)
    """Where the parser is in the text of the current chunk, and the length of this text."""
    _reasoning_start: float | None = None
    """The token at which reasoning began."""
    _reasoning: float = 0.0

    def add(self, ids: Sequence[int]) -> None:
        """Count the tokens of a chunk."""
        self._chunk_size = len(ids)
        self.tokens += self._chunk_size
        if self._count is not None:
            self._ids.extend(ids)

    @property
    def _position(self) -> float:
        """How many tokens precede the current place, assuming that the tokens of a chunk are equally long."""
        at, length = self.place
        return self.tokens - self._chunk_size * (1 - at / length if length else 0)

    def begin_reasoning(self) -> None:
        """Begin reasoning at the current place."""
        if self._reasoning_start is None:
            self._reasoning_start = self._position

    def end_reasoning(self) -> None:
        """End reasoning at the current place, if any is open."""
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
