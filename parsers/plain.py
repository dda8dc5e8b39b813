"""The format `text`: everything that a model writes is its answer.

It knows text and nothing else: no reasoning, no calls.
"""

from __future__ import annotations

from attrs import define, evolve, field

from interlock.fsm.deltas import Close, Delta, EndTurn, FinishReason, Open, Text, Usage
from interlock.parsers.chunk import Chunk
from interlock.parsers.routing import ANSWER
from interlock.parsers.vocabulary import Entry


@define(eq=False)
class PlainParser:
    """Parses plain text; see `Parser`. A message is opened when its first text comes."""

    _tokens: int = 0
    _entries: list[Entry] = field(factory=list[Entry])
    _opened: tuple[Open, ...] = ()

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Pass the text on; log probabilities of tokens without text wait for the text that they are a part of."""
        self._tokens += len(chunk.token_ids)
        self._entries.extend(chunk.logprobs or ())
        return self._take(chunk.text) if chunk.text else []

    def end(self, reason: FinishReason, usage: Usage) -> list[Delta]:
        """End the turn; what there is of a character that was cut came as text, if at all."""
        deltas = self._take("") if self._entries else []
        if self._opened and reason == "stop":
            deltas.append(Close())
        counted = evolve(usage, output_tokens=usage.output_tokens or self._tokens)
        self._tokens, self._opened = 0, ()
        return [*deltas, EndTurn(reason, counted)]

    def _take(self, text: str) -> list[Delta]:
        opening = [] if self._opened else [Open(ANSWER.kind, ANSWER.fields)]
        self._opened = self._opened or tuple(opening)
        entries, self._entries = self._entries, []
        return [*opening, Text(text, entries) if entries else text]
