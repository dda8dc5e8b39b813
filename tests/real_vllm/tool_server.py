"""An MCP tool server as vLLM's `--tool-server` expects it, with predictable answers.

    python tool_server.py python|browser|container PORT

The code decides what `python` does: `raise` fails, `silence` returns no text, `sleep` takes too long, `meet` waits for another
`meet`, and `die` ends the server; other code is repeated in the answer.
"""

from __future__ import annotations

import asyncio
import os
import sys

from mcp.server.mcpserver import MCPServer

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


async def exec(cmd: list[str]) -> str:  # noqa: A001 - the tool's own name
    """Run a command."""
    return f"ran: {' '.join(cmd)}"


TOOLS = {"python": (python,), "browser": (search, open, find), "container": (exec,)}

for tool in TOOLS[name]:
    server.add_tool(tool)
server.run("sse", host="127.0.0.1", port=port)
