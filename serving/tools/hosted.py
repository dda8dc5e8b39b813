"""The hosted tools that an operator can configure: their names, and how long a call may take by default.

It imports nothing heavy, so that the command can list its options without loading the tools themselves.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

__all__ = ["CALL_SECONDS", "HOSTED_TOOLS", "HostedTool"]

HostedTool: TypeAlias = Literal["code_interpreter", "web_search"]
"""A tool that requests name and whose MCP server the operator configures."""

HOSTED_TOOLS: Final[tuple[HostedTool, ...]] = ("code_interpreter", "web_search")
"""All of them."""

CALL_SECONDS: Final = 60.0
"""How many seconds a call may take if the operator does not set a limit."""
