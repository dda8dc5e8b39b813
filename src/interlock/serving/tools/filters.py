"""Filters between parser and driver: they replace calls that have to be approved, and add annotations to citations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from attrs import define, field, frozen

from interlock.fsm.deltas import Annotate, Close, Delta, EndTurn, Open, Text

__all__ = ["Approvals", "Citations", "Page", "pages_of"]


@define(eq=False)
class Approvals:
    """Replaces each MCP call that needs approval by an `mcp_approval_request`.

    A call is pending until its arguments are complete, because the request shows them; one that its turn truncates stays a call.
    """

    _needs_approval: Callable[[str, str], bool]
    _pending: Open | None = field(default=None, init=False)
    _arguments: list[str] = field(factory=list[str], init=False)

    def feed(self, deltas: Iterable[Delta]) -> list[Delta]:
        result: list[Delta] = []
        for delta in deltas:
            match delta:
                case str(text) | Text(text) if self._pending is not None:
                    self._arguments.append(text)
                case Open("mcp_call", fields) if self._needs_approval(str(fields["server_label"]), str(fields["name"])):
                    result += self._request()
                    self._pending = delta
                case Close():
                    result += self._request() if self._pending is not None else [delta]
                case EndTurn(reason) if reason != "stop" and self._pending is not None:
                    result += [self._pending, self._take_arguments(), delta]
                case _:
                    result += [*self._request(), delta]
        return result

    def _request(self) -> list[Delta]:
        if self._pending is None:
            return []
        fields = {name: self._pending.fields[name] for name in ("server_label", "name")}
        return [Open("mcp_approval_request", {**fields, "arguments": self._take_arguments()})]

    def _take_arguments(self) -> str:
        arguments = "".join(self._arguments)
        self._pending, self._arguments = None, []
        return arguments


HEADING: Final = re.compile(r"^\[(\d{1,6})\] (.*) \((https?://[^\s()]+(?:\([^\s()]*\)[^\s()]*)*)\)\s*$", re.MULTILINE)
"""The first line of a page in a tool's text: `[3] Title (https://…)`."""
MARK: Final = re.compile(r"【(\d{1,6})†[^【】]*】")
"""A citation of a page by its number: `【3†L5-L7】`."""
OPENING: Final = "【"
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


@define(eq=False)
class Citations:
    """Adds an annotation after each mark that cites a known page; the driver computes the position of the mark."""

    _pages: dict[int, Page] = field(factory=dict[int, Page], init=False)
    _tail: str = field(default="", init=False)
    """The end of the text so far, if a mark may have begun in it."""

    def add_pages(self, pages: Iterable[Page]) -> None:
        self._pages.update((page.number, page) for page in pages)

    def feed(self, deltas: Iterable[Delta]) -> list[Delta]:
        if not self._pages:
            return [*deltas]
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
            page = self._pages.get(int(mark[1]))
            if page is not None and len(mark[0]) <= MAX_MARK:
                yield Annotate({"type": "url_citation", "url": page.url, "title": page.title}, mark[0])
        start = text.rfind(OPENING, end)
        self._tail = text[start:] if start >= 0 and len(text) - start < MAX_MARK else ""
