"""Citations: marks in the model's text that name a page which a search or an opened page has shown.

A page that a tool shows begins with a line of its own, `[3] Title (https://…)`, whose number the model gives in its marks:
`【3†L5-L7】`. The mark stays in the text as the model wrote it, and an annotation says where it stands and what it means. A
mark whose number no page of this response has means nothing here, and gets none.

It stands between parser and driver, hears deltas and gives deltas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from attrs import define, field, frozen

from interlock.fsm.deltas import Annotate, Close, Delta, EndPart, Open, Refusal, Text

__all__ = ["Citations", "Page", "pages_of"]

HEADING: Final = re.compile(r"^\[(\d{1,6})\] (.*) \((https?://[^\s()]+(?:\([^\s()]*\)[^\s()]*)*)\)\s*$", re.MULTILINE)
MARK: Final = re.compile(r"【(\d{1,6})†[^【】]*】")
OPENING: Final = "【"
LONGEST: Final = 80
"""Characters that a mark may have; what is longer is no mark."""


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
    """Give the pages that a tool's text shows, in order."""
    return [Page(int(found[1]), found[2], found[3]) for found in HEADING.finditer(shown)]


@define(eq=False)
class Citations:
    """Finds the marks in messages."""

    _pages: dict[int, Page] = field(factory=dict[int, Page], init=False)
    _in_message: bool = field(default=False, init=False)
    _length: int = field(default=0, init=False)
    """Characters of the part that is open."""
    _tail: str = field(default="", init=False)
    """The end of its text, as far as a mark may have begun in it."""

    def learn(self, pages: Iterable[Page]) -> None:
        """Take pages that marks may name from now on."""
        self._pages.update((page.number, page) for page in pages)

    def feed(self, deltas: Iterable[Delta]) -> list[Delta]:
        """Give what the driver is to be told: the same, and an annotation after each mark.

        Args:
            deltas: What the parser said. Pages are learnt between two turns, when no message is open.
        """
        if not self._pages:
            return [*deltas]
        told: list[Delta] = []
        for delta in deltas:
            told.append(delta)
            match delta:
                case str(text) | Text(text):
                    if self._in_message:
                        told += self._marks(text)
                case Open(kind):
                    self._begin(in_message=kind == "message")
                case EndPart() | Refusal():
                    self._begin(in_message=self._in_message)
                case Close():
                    self._begin(in_message=False)
                case _:
                    pass
        return told

    def _begin(self, *, in_message: bool) -> None:
        self._in_message, self._length, self._tail = in_message, 0, ""

    def _marks(self, text: str) -> Iterator[Annotate]:
        seen = self._tail + text
        start = self._length - len(self._tail)
        self._length += len(text)
        end = 0
        for mark in MARK.finditer(seen):
            end = mark.end()
            page = self._pages.get(int(mark[1]))
            if page is not None and end - mark.start() <= LONGEST:
                yield Annotate(_citation(page, start + mark.start(), start + end))
        begun = seen.rfind(OPENING, end)
        self._tail = seen[begun:] if begun >= 0 and len(seen) - begun < LONGEST else ""


def _citation(page: Page, start: int, end: int) -> dict[str, object]:
    return {"type": "url_citation", "url": page.url, "title": page.title, "start_index": start, "end_index": end}
