"""Patterns that find the next of some texts, or the beginning of one at the end of what has arrived."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Protocol

from attrs import define, field

__all__ = ["Search", "alternatives", "longer_texts"]


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


def _alternatives(node: _Node) -> Iterator[str]:
    return (re.escape(letter) + _pattern(child) for letter, child in node.children.items())


def _pattern(node: _Node) -> str:
    """Return the pattern of the next input: the end of the text, a next letter, or nothing if a text ends here."""
    if not node.children:
        return ""
    patterns = [r"\Z", *_alternatives(node), *([""] if node.ends else [])]
    return f"(?:{'|'.join(patterns)})"
