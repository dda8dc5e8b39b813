"""The pages in the text of a web search, each under a heading with its number, title and URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from attrs import frozen

from interlock.events.json import as_text
from interlock.parsers.item_writers import PAGE_BY_NUMBER

_HEADING: Final = re.compile(r"^\[(\d{1,6})\] (.*) \((https?://[^\s()]+(?:\([^\s()]*\)[^\s()]*)*)\)\s*$", re.MULTILINE)
"""The first line of a page in a tool's text: `[3] Title (https://…)`."""

_MATCHES: Final = "/find?pattern="
"""What gpt-oss's own browser adds to the URL of a page for the matches on it."""


@frozen
class Page:
    """A page in a tool's text; marks cite it by its number."""

    number: int
    title: str
    url: str


def pages_of(text: str) -> list[Page]:
    """Return the pages in a tool's text, in order."""
    return [Page(int(heading[1]), heading[2], heading[3]) for heading in _HEADING.finditer(text)]


def action_fields(action: Mapping[str, object], text: str) -> dict[str, object]:
    """Return the field `action` with the URL that a tool's text has for the page, if the model named the page by its number."""
    pages = pages_of(text) if as_text(action.get("url")).startswith(PAGE_BY_NUMBER) else []
    return {"action": {**action, "url": pages[0].url.partition(_MATCHES)[0]}} if pages else {}
