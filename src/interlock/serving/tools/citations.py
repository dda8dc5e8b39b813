"""Citations: the pages in the text of a search have numbers, by which marks in the text of the model cite them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from attrs import define, field, frozen

from interlock.fsm.deltas import Annotate, Delta, Text

HEADING: Final = re.compile(r"^\[(\d{1,6})\] (.*) \((https?://[^\s()]+(?:\([^\s()]*\)[^\s()]*)*)\)\s*$", re.MULTILINE)
"""The first line of a page in a tool's text: `[3] Title (https://…)`."""
MARK: Final = re.compile(r"【(\d{1,6})†[^【】]*】")
"""A citation of a page by its number: `【3†L5-L7】`."""
MAX_MARK: Final = 80


@frozen
class Page:
    """A page in a tool's text; marks cite it by its number."""

    number: int
    title: str
    url: str


def pages_of(text: str) -> list[Page]:
    """Return the pages in a tool's text, in order."""
    return [Page(int(heading[1]), heading[2], heading[3]) for heading in HEADING.finditer(text)]


def cited_numbers(text: str) -> Iterator[int]:
    """Yield the numbers of the pages that the marks in a text cite."""
    for mark in MARK.finditer(text):
        yield int(mark[1])


@define(eq=False)
class Citations:
    """Adds an annotation for each mark that cites a known page. The driver computes the position of the mark."""

    pages: dict[int, Page] = field(factory=dict[int, Page], init=False)
    _tail: str = field(default="", init=False)
    """The end of the text so far, from a `【` that may begin a mark."""

    def add_pages(self, pages: Iterable[Page]) -> None:
        self.pages.update((page.number, page) for page in pages)

    def feed(self, deltas: Iterable[Delta]) -> list[Delta]:
        result: list[Delta] = []
        for delta in deltas:
            result.append(delta)
            match delta:
                case str(text) | Text(text):
                    result += self._marks(text)
                case _:
                    self._tail = ""
        return result

    def _marks(self, text: str) -> Iterator[Annotate]:
        text = self._tail + text
        end = 0
        for mark in MARK.finditer(text):
            end = mark.end()
            page = self.pages.get(int(mark[1]))
            if page is not None and len(mark[0]) <= MAX_MARK:
                yield Annotate({"type": "url_citation", "url": page.url, "title": page.title}, mark[0])
        start = text.rfind("【", end)
        self._tail = text[start:] if start >= 0 and len(text) - start < MAX_MARK else ""
