"""An MCP tool server as vLLM's `--tool-server` expects it, with predictable answers.

    python tool_server.py python|browser PORT

The code decides what `python` does: `raise` fails, `silence` returns no text, `sleep` takes too long, `meet` waits for another
`meet`, and `die` ends the server; other code is repeated in the answer.
"""

from __future__ import annotations

import asyncio
import os
import sys

try:
    from mcp.server.mcpserver import MCPServer
except ImportError:  # before mcp 2
    from mcp.server.fastmcp import FastMCP as MCPServer

name, port = sys.argv[1], int(sys.argv[2])
server = MCPServer(name, instructions=f"The tool {name}.")

MEETING = asyncio.Barrier(2)


async def python(code: str) -> str | list[str]:
    """Run python code."""
    match code.strip():
        case "raise":
            raise ValueError("the code is wrong")
        case "silence":
            return []
        case "sleep":
            await asyncio.sleep(20)  # without blocking the server
        case "meet":
            await MEETING.wait()
        case "die":
            os._exit(1)
    return f"ran: {code}"


def search(query: str) -> str:
    """Search the web."""
    return f"found: {query}"


def open(id: str = "", cursor: int = 0) -> str:  # noqa: A001, A002 - the tool's own names
    """Open a page."""
    return f"opened: {id or cursor}"


def find(pattern: str, cursor: int = 0) -> str:
    """Find text in a page."""
    return f"found: {pattern} in {cursor}"


for tool in (python,) if name == "python" else (search, open, find):
    server.add_tool(tool)
if hasattr(server.settings, "port"):  # before mcp 2
    server.settings.port = port
    server.run("sse")
else:
    server.run("sse", host="127.0.0.1", port=port)
