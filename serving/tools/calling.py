"""What a hosted call means: which tool of which server, with which arguments; and what its result becomes.

The hosted tools are spoken to as the reference servers of gpt-oss have them: `python(code)`, `search(query)`,
`open(id, cursor)` and `find(pattern, cursor)`. It knows kinds of items and shapes of results, and opens no session.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

import orjson
from attrs import frozen

from interlock.events.items import result_fields
from interlock.fsm.driver import ReadyCall
from interlock.serving.errors import ToolError
from interlock.serving.requests.values import members
from interlock.serving.tools.citation import pages_of
from interlock.serving.tools.hosted import CONTAINER, HostedTool

if TYPE_CHECKING:
    from mcp_types import CallToolResult

__all__ = ["Wanted", "hosted_tool", "result_text", "shown_result", "wanted"]

HOSTED: Final[Mapping[str, HostedTool]] = {"code_interpreter_call": "code_interpreter", "web_search_call": "web_search"}
"""The tools that the operator configures, by the kind of their calls."""

CURSOR: Final = re.compile(r"cursor:(-?\d{1,6})(?:#(\d{1,6}))?")
"""How a parser names a page that the model named by a number, and a link on it."""


@frozen
class Wanted:
    """A tool's call in the words of its server.

    Args:
        name: The tool.
        arguments: What it is given.
    """

    name: str
    arguments: Mapping[str, object]


def hosted_tool(call: ReadyCall) -> HostedTool | None:
    """Return the hosted tool that a call is for; None if it is one of an MCP server that the request declares.

    Raises:
        ToolError: Nobody here runs calls of that kind.
    """
    if call.kind == "mcp_call":
        return "container" if call.fields.get("server_label") == CONTAINER else None
    if call.kind not in HOSTED:
        raise ToolError(f"This server does not run calls of the kind '{call.kind}'.")
    return HOSTED[call.kind]


def wanted(call: ReadyCall) -> Wanted:
    """Return what a call asks its server for.

    Args:
        call: As the model made it.

    Raises:
        ToolError: Its arguments make no sense.
    """
    match call.kind:
        case "code_interpreter_call":
            return Wanted("python", {"code": call.text})
        case "web_search_call":
            return _browsing(members(call.fields["action"]))
        case _:
            return Wanted(str(call.fields["name"]), _arguments(call.text))


def _arguments(text: str) -> Mapping[str, object]:
    try:
        given: object = orjson.loads(text) if text.strip() else {}
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ToolError("The arguments are not a JSON object.")
    return cast("dict[str, object]", given)


def _browsing(action: Mapping[str, object]) -> Wanted:
    match action.get("type"):
        case "open_page":
            return Wanted("open", _page(str(action.get("url"))))
        case "find_in_page":
            return Wanted("find", {"pattern": action.get("pattern"), **_page(str(action.get("url")))})
        case _:
            return Wanted("search", {"query": action.get("query")})


def _page(url: str) -> dict[str, object]:
    """Name a page as the tools do: by the number of a page that was shown, the number of a link on it, or its URL."""
    named = CURSOR.fullmatch(url)
    if named is None:
        return {"id": url}
    cursor, link = named.groups()
    return {"cursor": int(cursor)} if link is None else {"cursor": int(cursor), "id": int(link)}


def result_text(result: CallToolResult) -> str:
    """Return what a tool said as text; what is no text is given as JSON, images and sounds by their type alone."""
    texts = [block.text if block.type == "text" else _named(block) for block in result.content]
    if not texts and result.structured_content is not None:
        return orjson.dumps(result.structured_content).decode()
    return "\n".join(texts)


def _named(block: object) -> str:
    kind, media = getattr(block, "type", "content"), getattr(block, "mime_type", None)
    return f"[{kind}: {media}]" if media else f"[{kind}]"


def shown_result(call: ReadyCall, text: str, include: Sequence[str]) -> dict[str, object]:
    """Return what a call's item shows of its result.

    Args:
        call: The call.
        text: What its tool said.
        include: What the request wants to see beside the usual.
    """
    if call.kind == "code_interpreter_call" and "code_interpreter_call.outputs" not in include:
        return {}
    action = members(call.fields.get("action"))
    if action.get("type") == "search" and "web_search_call.action.sources" in include:
        sources = [{"type": "url", "url": page.url} for page in pages_of(text)]
        return {"action": {**action, "sources": sources}}
    return result_fields(call.kind, text)
