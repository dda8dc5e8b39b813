"""Citations: marks in the model's text that name a page which a search or an opened page has shown.

A page that a tool shows begins with a line of its own, `[3] Title (https://…)`, whose number the model gives in its marks:
`【3†L5-L7】`. The mark stays in the text as the model wrote it, and an annotation says where it stands and what it means. A
mark whose number no page of this response has means nothing here, and gets none.

It stands between parser and driver. It finds the marks in the text and adds an annotation after each; where in its part a mark
stands is for the driver to say, which alone knows where parts begin.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from attrs import define, field, frozen

from interlock.fsm.deltas import Annotate, Delta, Text

__all__ = ["Citations", "Page", "pages_of"]

HEADING: Final = re.compile(r"^\[(\d{1,6})\] (.*) \((https?://[^\s()]+(?:\([^\s()]*\)[^\s()]*)*)\)\s*$", re.MULTILINE)
MARK: Final = re.compile(r"【(\d{1,6})†[^【】]*】")
OPENING: Final = "【"
LONGEST: Final = 80
"""The most characters that a mark has."""


@frozen
class Page:
    """A page that a tool has shown.

    Args:
        number: What marks call it.
        title: Its title.
        url: Its URL.
    """

    number: int
    title: str
    url: str


def pages_of(shown: str) -> list[Page]:
    """Return the pages that a tool's text shows, in order."""
    return [Page(int(found[1]), found[2], found[3]) for found in HEADING.finditer(shown)]


@define(eq=False)
class Citations:
    """Adds an annotation for each mark in the text."""

    _pages: dict[int, Page] = field(factory=dict[int, Page], init=False)
    _tail: str = field(default="", init=False)
    """The end of the text before, if a mark may have begun in it."""

    def learn(self, pages: Iterable[Page]) -> None:
        """Add pages that later marks may cite."""
        self._pages.update((page.number, page) for page in pages)

    def feed(self, deltas: Iterable[Delta]) -> list[Delta]:
        """Return deltas with an annotation after each mark.

        Args:
            deltas: What the parser found. Anything but text between the two halves of a mark makes it no mark.
        """
        if not self._pages:
            return [*deltas]
        fed: list[Delta] = []
        for delta in deltas:
            fed.append(delta)
            match delta:
                case str(text) | Text(text):
                    fed += self._marks(text)
                case _:
                    self._tail = ""
        return fed

    def _marks(self, text: str) -> Iterator[Annotate]:
        seen = self._tail + text
        end = 0
        for mark in MARK.finditer(seen):
            end = mark.end()
            page = self._pages.get(int(mark[1]))
            if page is not None and len(mark[0]) <= LONGEST:
                yield Annotate({"type": "url_citation", "url": page.url, "title": page.title}, mark[0])
        begun = seen.rfind(OPENING, end)
        self._tail = seen[begun:] if begun >= 0 and len(seen) - begun < LONGEST else ""
