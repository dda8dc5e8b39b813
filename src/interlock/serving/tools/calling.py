"""The translation of hosted calls into calls of an MCP server, and of results into fields of items.

The tools are those of gpt-oss's reference servers: `python(code)`, `search(query)`, `open(id, cursor)`, `find(pattern, cursor)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

import orjson

from interlock.events.items import result_fields
from interlock.fsm.driver import ReadyCall
from interlock.serving.requests.api_errors import ToolError
from interlock.serving.requests.hosted_tools import CONTAINER, HostedTool
from interlock.serving.requests.json_values import members
from interlock.serving.tools.filters import pages_of

if TYPE_CHECKING:
    from mcp_types import CallToolResult

__all__ = ["hosted_tool", "result_item_fields", "result_text", "server_call"]

HOSTED: Final[Mapping[str, HostedTool]] = {"code_interpreter_call": "code_interpreter", "web_search_call": "web_search"}

CURSOR: Final = re.compile(r"cursor:(-?\d{1,6})(?:#(\d{1,6}))?")
"""The URL that a parser makes of a page number, and of the number of a link on that page."""


def hosted_tool(call: ReadyCall) -> HostedTool | None:
    """Return the hosted tool of a call; None if the call is for an MCP server that the request declares."""
    if call.kind == "mcp_call":
        return "container" if call.fields.get("server_label") == CONTAINER else None
    if call.kind not in HOSTED:
        raise ToolError(f"This server does not run calls of the kind '{call.kind}'.")
    return HOSTED[call.kind]


def server_call(call: ReadyCall) -> tuple[str, Mapping[str, object]]:
    """Return the name and the arguments of the MCP server's tool for a call of the model."""
    match call.kind:
        case "code_interpreter_call":
            return "python", {"code": call.text}
        case "web_search_call":
            action = members(call.fields["action"])
        case _:
            return str(call.fields["name"]), _arguments(call.text)
    match action.get("type"):
        case "open_page":
            return "open", _page(str(action.get("url")))
        case "find_in_page":
            return "find", {"pattern": action.get("pattern"), **_page(str(action.get("url")))}
        case _:
            return "search", {"query": action.get("query")}


def _arguments(text: str) -> Mapping[str, object]:
    try:
        arguments: object = orjson.loads(text) if text.strip() else {}
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise ToolError("The arguments are not a JSON object.")
    return cast("dict[str, object]", arguments)


def _page(url: str) -> dict[str, object]:
    """Return the arguments for a page: its number, its number and that of a link on it, or its URL."""
    match = CURSOR.fullmatch(url)
    if match is None:
        return {"id": url}
    cursor, link = match.groups()
    return {"cursor": int(cursor)} if link is None else {"cursor": int(cursor), "id": int(link)}


def result_text(result: CallToolResult) -> str:
    """Return the result of a tool as text: structured content as JSON, and only the types of images and sounds."""
    texts = [block.text if block.type == "text" else _placeholder(block) for block in result.content]
    if not texts and result.structured_content is not None:
        return orjson.dumps(result.structured_content).decode()
    return "\n".join(texts)


def _placeholder(block: object) -> str:
    kind, media = getattr(block, "type", "content"), getattr(block, "mime_type", None)
    return f"[{kind}: {media}]" if media else f"[{kind}]"


def result_item_fields(call: ReadyCall, text: str, include: Sequence[str]) -> dict[str, object]:
    """Return the fields of a call's item that show its result, as the parameter `include` of the request selects them."""
    if call.kind == "code_interpreter_call" and "code_interpreter_call.outputs" not in include:
        return {}
    action = members(call.fields.get("action"))
    if action.get("type") == "search" and "web_search_call.action.sources" in include:
        sources = [{"type": "url", "url": page.url} for page in pages_of(text)]
        return {"action": {**action, "sources": sources}}
    return result_fields(call.kind, text)
