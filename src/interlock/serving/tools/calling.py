"""The translation of hosted calls: to a tool of an MCP server with arguments, and from its result to the fields of the item.

The hosted tools have the signatures of gpt-oss's reference servers: `python(code)`, `search(query)`, `open(id, cursor)` and
`find(pattern, cursor)`. This module opens no session.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

import orjson
from attrs import frozen

from interlock.events.items import result_fields
from interlock.fsm.driver import ReadyCall
from interlock.serving.requests.api_errors import ToolError
from interlock.serving.requests.hosted_tools import CONTAINER, HostedTool
from interlock.serving.requests.json_values import members
from interlock.serving.tools.filters import pages_of

if TYPE_CHECKING:
    from mcp_types import CallToolResult

__all__ = ["ServerCall", "hosted_tool", "result_text", "server_call", "shown_result"]

HOSTED: Final[Mapping[str, HostedTool]] = {"code_interpreter_call": "code_interpreter", "web_search_call": "web_search"}
"""The tools that the operator configures, by the kind of their calls."""

CURSOR: Final = re.compile(r"cursor:(-?\d{1,6})(?:#(\d{1,6}))?")
"""The name that a parser gives to a page that the model named by a number, and to a link on it."""


@frozen
class ServerCall:
    """A call as its server understands it: the name of a tool, and its arguments."""

    name: str
    arguments: Mapping[str, object]


def hosted_tool(call: ReadyCall) -> HostedTool | None:
    """Return the hosted tool of a call; None if the call is for an MCP server that the request declares.

    Raises:
        ToolError: This server does not run calls of that kind.
    """
    if call.kind == "mcp_call":
        return "container" if call.fields.get("server_label") == CONTAINER else None
    if call.kind not in HOSTED:
        raise ToolError(f"This server does not run calls of the kind '{call.kind}'.")
    return HOSTED[call.kind]


def server_call(call: ReadyCall) -> ServerCall:
    """Translate a call of the model for its server.

    Raises:
        ToolError: Its arguments are not a JSON object.
    """
    match call.kind:
        case "code_interpreter_call":
            return ServerCall("python", {"code": call.text})
        case "web_search_call":
            return _browsing(members(call.fields["action"]))
        case _:
            return ServerCall(str(call.fields["name"]), _arguments(call.text))


def _arguments(text: str) -> Mapping[str, object]:
    try:
        arguments: object = orjson.loads(text) if text.strip() else {}
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise ToolError("The arguments are not a JSON object.")
    return cast("dict[str, object]", arguments)


def _browsing(action: Mapping[str, object]) -> ServerCall:
    match action.get("type"):
        case "open_page":
            return ServerCall("open", _page(str(action.get("url"))))
        case "find_in_page":
            return ServerCall("find", {"pattern": action.get("pattern"), **_page(str(action.get("url")))})
        case _:
            return ServerCall("search", {"query": action.get("query")})


def _page(url: str) -> dict[str, object]:
    """Name a page as the tools do: by the number of a page that was shown, the number of a link on it, or its URL."""
    match = CURSOR.fullmatch(url)
    if match is None:
        return {"id": url}
    cursor, link = match.groups()
    return {"cursor": int(cursor)} if link is None else {"cursor": int(cursor), "id": int(link)}


def result_text(result: CallToolResult) -> str:
    """Return the result of a tool as text: structured content as JSON, images and sounds by their types alone."""
    texts = [block.text if block.type == "text" else _placeholder(block) for block in result.content]
    if not texts and result.structured_content is not None:
        return orjson.dumps(result.structured_content).decode()
    return "\n".join(texts)


def _placeholder(block: object) -> str:
    kind, media = getattr(block, "type", "content"), getattr(block, "mime_type", None)
    return f"[{kind}: {media}]" if media else f"[{kind}]"


def shown_result(call: ReadyCall, text: str, include: Sequence[str]) -> dict[str, object]:
    """Return the fields by which a call's item shows its result; `include` is the parameter of the request."""
    if call.kind == "code_interpreter_call" and "code_interpreter_call.outputs" not in include:
        return {}
    action = members(call.fields.get("action"))
    if action.get("type") == "search" and "web_search_call.action.sources" in include:
        sources = [{"type": "url", "url": page.url} for page in pages_of(text)]
        return {"action": {**action, "sources": sources}}
    return result_fields(call.kind, text)
