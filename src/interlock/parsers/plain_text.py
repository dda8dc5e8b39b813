"""The format `text`: everything that a model writes is its answer."""

from __future__ import annotations

from attrs import define, evolve, field

from interlock.fsm.deltas import Delta, EndTurn, Usage
from interlock.parsers.chunk import Chunk, Entry, unread
from interlock.parsers.item_writers import ItemWriter, text_deltas, writer_for
from interlock.parsers.routing import ANSWER, EndReason, finish_reason_of


@define(eq=False)
class PlainParser:
    """Parses plain text; see `Parser`. The message opens with its first text."""

    _tokens: int = 0
    _entries: list[Entry] = field(factory=list[Entry])
    _writer: ItemWriter | None = None

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Return the text unchanged; log probabilities of tokens without text wait for the next text."""
        self._tokens += len(chunk.token_ids)
        self._entries.extend(chunk.logprobs or ())
        if not chunk.text and chunk.delta is not None:
            raise unread(chunk, "text")
        return self._write(chunk.text) if chunk.text else []

    def end(self, reason: EndReason, usage: Usage) -> list[Delta]:
        """End the turn; the engine decides what an incomplete character becomes."""
        reason = finish_reason_of(reason)
        deltas = self._write("") if self._entries else []
        if self._writer is not None and reason == "stop":
            deltas += self._writer.close()
        total = evolve(usage, output_tokens=usage.output_tokens or self._tokens)
        self._tokens, self._writer = 0, None
        return [*deltas, EndTurn(reason, total)]

    def _write(self, text: str) -> list[Delta]:
        deltas: list[Delta] = []
        if self._writer is None:
            self._writer = writer_for(ANSWER)
            deltas += self._writer.open()
        entries, self._entries = self._entries, []
        return deltas + text_deltas(self._writer, text, entries)
