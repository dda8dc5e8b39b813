"""Patterns that find the next of some texts, or the beginning of one at the end of what has arrived."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, Protocol

from attrs import define, field

__all__ = ["ANY", "Search", "alternatives", "example", "longer_texts", "wild"]

ANY: Final = "\0"
"""Stands for any word, or none, in the text of a marker."""

_WORD: Final = r"[\w\s-]{0,32}"


class Search(Protocol):
    """The signature of `re.Pattern.search`."""

    def __call__(self, text: str, start: int = 0, /) -> re.Match[str] | None:
        """Find the first match from a position on."""
        ...


@define
class _Node:
    """A node of a trie of texts."""

    ends: bool = False
    children: dict[str, _Node] = field(factory=dict[str, "_Node"])


def alternatives(texts: Collection[str]) -> Iterator[str]:
    """Yield patterns that together match the longest of some texts, or the beginning of one at the end."""
    trie = _Node()
    for text in sorted(texts):
        node = trie
        for letter in text:
            node = node.children.setdefault(letter, _Node())
        node.ends = True
    return _alternatives(trie)


def longer_texts(texts: Collection[str]) -> frozenset[str]:
    """Return the texts that are the beginning of another."""
    return frozenset(text for text in texts if any(other != text and other.startswith(text) for other in texts))


def wild(texts: Collection[str]) -> Mapping[str, re.Pattern[str]]:
    """Return the texts with any word in them, each as a pattern, the longest first."""
    wilds = sorted((text for text in texts if ANY in text), key=len, reverse=True)
    return {text: re.compile(_WORD.join(map(re.escape, text.split(ANY)))) for text in wilds}


def example(text: str) -> str:
    """Return a text with one word in the place of any."""
    return text.replace(ANY, "calls")


def _alternatives(node: _Node) -> Iterator[str]:
    letters = sorted(node.children, key=lambda letter: letter == ANY)
    return ((_WORD if letter == ANY else re.escape(letter)) + _pattern(node.children[letter]) for letter in letters)


def _pattern(node: _Node) -> str:
    """Return the pattern of the next input: the end of the text, a next letter, or nothing if a text ends here."""
    if not node.children:
        return ""
    patterns = [r"\Z", *_alternatives(node), *([""] if node.ends else [])]
    return f"(?:{'|'.join(patterns)})"
