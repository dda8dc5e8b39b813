"""Patterns that find the next marker, or the beginning of one at the end of the text that has arrived."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import Final, Protocol

from attrs import define, field

ANY: Final = "\ufdd0"
"""A wildcard in a marker: up to 32 word characters, spaces, hyphens or square brackets."""

REST: Final = "\ufdd1"
"""A wildcard in a misspelled marker: up to 16 word characters, hyphens or slashes."""

SPACE: Final = "\ufdd2"
"""A wildcard in a marker: up to 16 characters of white space."""

_WILDCARDS: Final = {ANY: r"[\w\s\[\]-]{0,32}", REST: r"[\w/-]{0,16}", SPACE: r"\s{0,16}"}
_WILDCARD: Final = re.compile(f"([{ANY}{REST}{SPACE}])")


class SearchFunction(Protocol):
    """The signature of `re.Pattern.search`."""

    def __call__(self, text: str, start: int = 0, /) -> re.Match[str] | None:
        """Find the first match at or after `start`."""
        ...


@define
class _Node:
    """A node of a trie of texts."""

    ends: bool = False
    children: dict[str, _Node] = field(factory=dict[str, "_Node"])


def alternatives(texts: Collection[str]) -> Iterator[str]:
    """Yield alternatives of a pattern that matches the longest text, or the beginning of one at the end of the input."""
    trie = _Node()
    for text in sorted(texts):
        node = trie
        for letter in text:
            node = node.children.setdefault(letter, _Node())
        node.ends = True
    return _alternatives(trie)


def proper_prefixes(texts: Collection[str]) -> frozenset[str]:
    """Return the texts that begin another of the texts."""
    return frozenset(text for text in texts if any(other != text and other.startswith(text) for other in texts))


def wild(texts: Collection[str]) -> Mapping[str, re.Pattern[str]]:
    """Return the texts that contain a wildcard, each with its pattern, the longest first."""
    wilds = sorted((text for text in texts if is_wild(text)), key=len, reverse=True)
    return {text: re.compile(_pattern_of(text)) for text in wilds}


def is_wild(text: str) -> bool:
    """Return whether a text contains a wildcard."""
    return _WILDCARD.search(text) is not None


def beginning(text: str) -> str:
    """Return a text up to its first wildcard."""
    return _WILDCARD.split(text, maxsplit=1)[0]


@cache
def beginning_matcher(text: str) -> Callable[[str], object]:
    """Return a function whose result is true for the beginnings of a text, which may contain wildcards, and for all of it."""
    return re.compile("|".join(alternatives([text]))).fullmatch


@cache
def matcher(texts: tuple[str, ...]) -> Callable[[str], object]:
    """Return a function whose result is true for texts that match one of these, which may contain wildcards."""
    return re.compile("|".join(map(_pattern_of, texts))).fullmatch


def _pattern_of(text: str) -> str:
    return "".join(_WILDCARDS.get(part) or re.escape(part) for part in _WILDCARD.split(text))


def example(text: str) -> str:
    """Return a text with a word in place of each wildcard, or with nothing in place of white space."""
    return _WILDCARD.sub("other", text.replace(SPACE, ""))


def _alternatives(node: _Node) -> Iterator[str]:
    letters = sorted(node.children, key=lambda letter: letter in _WILDCARDS)
    return ((_WILDCARDS.get(letter) or re.escape(letter)) + _pattern(node.children[letter]) for letter in letters)


def _pattern(node: _Node) -> str:
    """Return the pattern of what follows: the end of the input, a next letter, or nothing if a text ends here."""
    if not node.children:
        return ""
    patterns = [r"\Z", *_alternatives(node), *([""] if node.ends else [])]
    return f"(?:{'|'.join(patterns)})"
