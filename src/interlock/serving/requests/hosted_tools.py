"""The names of the hosted tools that an operator can configure, and the default time limit of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

__all__ = ["CALL_SECONDS", "CONTAINER", "HOSTED_TOOLS", "LABELS", "HostedTool"]

HostedTool: TypeAlias = Literal["code_interpreter", "web_search", "container"]
"""A tool that requests declare and that runs on an MCP server of the operator."""

HOSTED_TOOLS: Final[tuple[HostedTool, ...]] = ("code_interpreter", "web_search", "container")

LABELS: Final[Mapping[object, HostedTool]] = {
    "code_interpreter": "code_interpreter",
    "web_search_preview": "web_search",
    "container": "container",
}
"""By label, the hosted tool that replaces a request's MCP server if configured, as in vLLM."""

CONTAINER: Final = "container"
"""The namespace of the container tools of gpt-oss; their calls are MCP items."""

CALL_SECONDS: Final = 60.0
