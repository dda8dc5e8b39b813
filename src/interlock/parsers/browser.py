"""Converts the arguments of harmony's browser calls to the `action` of a `web_search_call`.

The tool refers to pages by cursor and to links by number, but the API uses URLs. The page at cursor 3 becomes `cursor:3`, and
link 7 on that page becomes `cursor:3#7`.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from attrs import frozen

from interlock.events.json import is_object

_FUNCTIONS = ("search", "open", "find")
LATEST = -1
"""The cursor of the latest page, the tool's default."""


@frozen
class BrowserAction:
    """The `action` of a browser call, in the API's shape, and why the call cannot run (None if it can)."""

    fields: Mapping[str, object]
    fault: str | None = None


def read_action(function: str, arguments: str) -> BrowserAction:
    """Return the action of a call of `browser.<function>`; never raises.

    Invalid arguments become the query of a search, so they are not lost.
    """
    if function not in _FUNCTIONS:
        return _fault(arguments, f"the browser has no function {function!r}")
    try:
        value: object = orjson.loads(arguments)
    except ValueError:
        return _fault(arguments, "the arguments are not JSON")
    if not is_object(value):
        return _fault(arguments, "the arguments are not an object")
    fields = _fields(function, value)
    return (
        BrowserAction(fields) if fields is not None else _fault(arguments, f"the arguments of browser.{function} are incomplete")
    )


def _fault(arguments: str, fault: str) -> BrowserAction:
    return BrowserAction({"type": "search", "query": arguments}, fault)


def _fields(function: str, arguments: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the action, or None if an argument is missing or has the wrong type."""
    query, pattern = arguments.get("query"), arguments.get("pattern")
    match function:
        case "search" if isinstance(query, str):
            return {"type": "search", "query": query}
        case "open":
            return {"type": "open_page", "url": _page(arguments)}
        case "find" if isinstance(pattern, str):
            return {"type": "find_in_page", "pattern": pattern, "url": _page(arguments)}
        case _:
            return None


def _page(arguments: Mapping[str, object]) -> str:
    for name in ("url", "id"):
        url = arguments.get(name)
        if isinstance(url, str):
            return url
    cursor, link = arguments.get("cursor", LATEST), arguments.get("id")
    return f"cursor:{cursor}#{link}" if isinstance(link, int) and link >= 0 else f"cursor:{cursor}"
