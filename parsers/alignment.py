"""Which tokens a piece of text is made of, when somebody else has made text of them.

A parser that is given text and the log probabilities of tokens finds the one in the other: the tokens' bytes follow one
another, and the text is somewhere in them, after what was found before. Markup that became no text is passed over.
"""

from __future__ import annotations

from typing import cast

from attrs import define, field

from interlock.parsers.vocabulary import Entry


@define(eq=False)
class Alignment:
    """The tokens of a turn that have not become text yet."""

    _bytes: bytes = b""
    _ends: list[tuple[int, Entry]] = field(factory=list[tuple[int, Entry]])

    def add(self, entry: Entry) -> None:
        """Take the next token.

        Args:
            entry: Its log probability, in the API's shape; its text is its `bytes`, or else its `token`; one without is
                passed over.
        """
        content = _content(entry)
        if content:
            self._bytes += content
            self._ends.append((len(self._bytes), entry))

    def find(self, text: str) -> list[Entry]:
        """Give the tokens that end in this text, and forget them and those before.

        Args:
            text: A piece of what the tokens say; a token that it ends inside of comes with the next piece. If the text is not
                to be found, it has no tokens.
        """
        if not self._ends:
            return []
        wanted = text.encode(errors="replace")
        start = self._bytes.find(wanted)
        if start < 0:
            return []
        stop = start + len(wanted)
        found = [entry for end, entry in self._ends if start < end <= stop]
        self._bytes = self._bytes[stop:]
        self._ends = [(end - stop, entry) for end, entry in self._ends if end > stop]
        return found


def _content(entry: Entry) -> bytes:
    content, token = entry.get("bytes"), entry.get("token")
    if isinstance(content, list):
        return bytes(cast("list[int]", content))
    return token.encode(errors="replace") if isinstance(token, str) else b""
