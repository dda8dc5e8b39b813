"""Which tokens a piece of text is made of, when somebody else has made text of them.

A parser that is given text and the log probabilities of tokens finds the one in the other: the tokens' bytes follow one
another, and the text is somewhere in them, after what was found before. Markup that became no text is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, cast

from attrs import define, field

from interlock.parsers.harmony_vocabulary import Entry

__all__ = ["Aligned", "Alignment"]

Aligned: TypeAlias = tuple[str, Sequence[Entry]]
"""A text, and the tokens that say all of it; none if they are not known."""

CONTINUATION: Final = range(0x80, 0xC0)
"""The bytes that do not begin a character."""


@define(eq=False)
class Alignment:
    """The tokens of a turn that have not become text yet, and text that ends inside of one of them."""

    _bytes: bytes = b""
    _tokens: list[tuple[int, int, Entry]] = field(factory=list[tuple[int, int, Entry]])
    """Where each of them begins and ends; one of which a part was forgotten begins before 0."""
    _pending: bytes = b""

    @property
    def idle(self) -> bool:
        """Whether no token waits for its text."""
        return not self._tokens

    def add(self, entry: Entry) -> None:
        """Add the next token.

        Args:
            entry: Its log probability, in the API's shape; its text is its `bytes`, or else its `token`; one without is
                passed over.
        """
        content = _content(entry)
        if content:
            begin = len(self._bytes)
            self._bytes += content
            self._tokens.append((begin, len(self._bytes), entry))

    def find(self, text: str) -> Aligned:
        """Return the text whose tokens are whole, with these tokens, and forget them and those before.

        A text that ends inside of a token is held until the rest of it comes, because a text has the probabilities of all of
        its tokens or of none (rule R15).

        Args:
            text: A piece of what the tokens say. If it is not to be found, it comes back without tokens.
        """
        if not self._tokens:
            return text, ()
        needle = self._pending + text.encode(errors="replace")
        start = self._bytes.find(needle)
        if start < 0:
            self._pending = b""
            return needle.decode(), ()
        stop = start + len(needle)
        ends = [end for _, end, _ in self._tokens if start < end <= stop and not self._cuts(end)]
        whole = self._take(start, ends[-1] if ends else start)
        self._pending = needle[len(whole[0].encode()) :]
        return whole

    def rest(self) -> Aligned:
        """Return the text that is held, at the end of an item."""
        pending, self._pending = self._pending, b""
        return self._take(0, len(pending))

    def _cuts(self, end: int) -> bool:
        """Return whether a place is inside of a character."""
        return end < len(self._bytes) and self._bytes[end] in CONTINUATION

    def _take(self, start: int, stop: int) -> Aligned:
        """Return a text and its tokens, and forget it and what is before; a token that is not all in it stands for its part."""
        matched = self._bytes[start:stop]
        entries = [
            entry if start <= begin and end <= stop else _part(entry, self._bytes[max(begin, start) : min(end, stop)])
            for begin, end, entry in self._tokens
            if begin < stop and start < end
        ]
        self._bytes = self._bytes[stop:]
        self._tokens = [(begin - stop, end - stop, entry) for begin, end, entry in self._tokens if end > stop]
        return matched.decode(), entries


def _part(entry: Entry, fragment: bytes) -> Entry:
    """Return what stands for a token of which a part is said; its alternatives stood for all of it."""
    return {**entry, "token": fragment.decode(errors="replace"), "bytes": [*fragment], "top_logprobs": []}


def _content(entry: Entry) -> bytes:
    content, token = entry.get("bytes"), entry.get("token")
    if isinstance(content, list):
        return bytes(cast("list[int]", content))
    return token.encode(errors="replace") if isinstance(token, str) else b""
