"""The hosted tools that an operator can configure: their names, and how long a call may take by default."""

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
