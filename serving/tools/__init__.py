"""Hosted tools: calls that the server runs itself, on MCP servers. Here are their names, without anything heavy.

protocol   the interface of tools to the server, and tools that run nothing: none, and recorded ones
hosting    the tools of one response: lists, approved calls, the calls of a turn
calling    which tool of which server a call means, and how its result is shown
declared   the MCP servers that a request declares, and their rules
filters    changes to the parser's deltas: approval requests, and citations
address    which hosts and addresses a request may make the server reach
session    a session with one server, in a task of its own
transport  the HTTP under a session: guarded requests, bounded responses
first_mcp  the `mcp` package before its version 2
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

__all__ = ["CALL_SECONDS", "CONTAINER", "HOSTED_TOOLS", "LABELS", "HostedTool"]

HostedTool: TypeAlias = Literal["code_interpreter", "web_search", "container"]
"""A tool that requests name and whose MCP server the operator configures."""

HOSTED_TOOLS: Final[tuple[HostedTool, ...]] = ("code_interpreter", "web_search", "container")
"""All of them."""

LABELS: Final[Mapping[object, HostedTool]] = {
    "code_interpreter": "code_interpreter",
    "web_search_preview": "web_search",
    "container": "container",
}
"""The hosted tools by the labels of MCP servers that mean them where they are configured, whatever URL is given, as in vLLM."""

CONTAINER: Final = "container"
"""The namespace of the tools that gpt-oss calls in a container; the items of its calls are those of MCP."""

CALL_SECONDS: Final = 60.0
"""Seconds that a call may take if the operator sets no limit."""
