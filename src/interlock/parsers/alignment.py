"""Finds the log probabilities of the tokens that a text came from.

Parsers that read text, such as vLLM's, do not know which tokens a text came from. `Alignment` finds each text in the joined bytes
of the tokens, after the previous text, and skips the markup between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from attrs import define, field

from interlock.events.json import elements, is_array
from interlock.parsers.chunk import Entry

TokenizedText: TypeAlias = tuple[str, Sequence[Entry]]
"""A text and the log probabilities of all its tokens, or none if they are unknown."""

_LONGEST_UNFOUND: Final = 8192
"""How many bytes of tokens may wait for a text that is not in them."""

CONTINUATION: Final = range(0x80, 0xC0)
"""The bytes of UTF-8 that continue a character."""


@define(eq=False)
class Alignment:
    """The tokens of a turn whose text was not found yet, and the text that ends inside one of them.

    A token is an object of the API's `logprobs`: its `token` and `bytes`, with probabilities.
    """

    _bytes: bytearray = field(factory=bytearray)
    _tokens: list[tuple[int, int, Entry]] = field(factory=list[tuple[int, int, Entry]])
    """Start, end and entry of each token; the start is negative if its first bytes are already used."""
    _pending: bytes = b""

    @property
    def idle(self) -> bool:
        """Whether no token waits for its text."""
        return not self._tokens

    def add(self, entry: Entry) -> None:
        """Add the next token."""
        content = _content(entry)
        if content:
            begin = len(self._bytes)
            self._bytes += content
            self._tokens.append((begin, len(self._bytes), entry))

    def find(self, text: str) -> TokenizedText:
        """Return the part of a text whose tokens are complete, with these tokens, and drop all tokens up to its end.

        Text that ends inside a token waits for the rest of that token, because a text has the log probabilities of all its
        tokens or of none (rule R15). Text that is not in the tokens is returned at once, without tokens.
        """
        if not self._tokens:
            return text, ()
        needle = self._pending + text.encode(errors="replace")
        start = self._bytes.find(needle)
        if start < 0:
            self._pending = b""
            self._forget(len(self._bytes) - _LONGEST_UNFOUND)
            return needle.decode(), ()
        stop = start + len(needle)
        ends = [end for _, end, _ in self._tokens if start < end <= stop and not self._is_inside_character(end)]
        result = self._take(start, ends[-1] if ends else start)
        self._pending = needle[len(result[0].encode()) :]
        return result

    def flush(self) -> TokenizedText:
        """Return the pending text, at the end of an item."""
        pending, self._pending = self._pending, b""
        return self._take(0, len(pending)) if pending else ("", [])

    def _is_inside_character(self, end: int) -> bool:
        return end < len(self._bytes) and self._bytes[end] in CONTINUATION

    def _take(self, start: int, stop: int) -> TokenizedText:
        """Return a text and its tokens, and drop all tokens up to its end; a token is cut to its part in the text."""
        text = bytes(self._bytes[start:stop])
        entries = [
            entry if start <= begin and end <= stop else _part(entry, self._bytes[max(begin, start) : min(end, stop)])
            for begin, end, entry in self._tokens
            if begin < stop and start < end
        ]
        self._drop(stop)
        return text.decode(), entries

    def _forget(self, excess: int) -> None:
        """Drop tokens that no text was found in, many at a time, so that a text costs the same however many there were."""
        if excess > _LONGEST_UNFOUND:
            self._drop(excess)

    def _drop(self, stop: int) -> None:
        """Drop all tokens up to a place."""
        del self._bytes[:stop]
        self._tokens = [(begin - stop, end - stop, entry) for begin, end, entry in self._tokens if end > stop]


def _part(entry: Entry, fragment: bytes | bytearray) -> Entry:
    """Return the entry for a part of a token, without alternatives, because those are for the whole token."""
    return {**entry, "token": fragment.decode(errors="replace"), "bytes": [*fragment], "top_logprobs": []}


def _content(entry: Entry) -> bytes:
    """Return the text of a token: its `bytes` if they are valid, or else its `token`."""
    content, token = entry.get("bytes"), entry.get("token")
    numbers = [number for number in elements(content) if isinstance(number, int) and number in range(256)]
    if is_array(content) and len(numbers) == len(content):
        return bytes(numbers)
    return token.encode(errors="replace") if isinstance(token, str) else b""
