"""An MCP server with the tools for `interlock serve --tool-server`: a small Python, and a search in a small library.

    python examples/tool_server.py --port 8001

Python programs run in `restricted_python.py`, each in its own process. The search only knows the pages below, so agents and
clients can be tried without a network. `departures` is an ordinary MCP tool.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from pathlib import Path
from typing import Final

from attrs import field, frozen
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from restricted_python import SECONDS, refusal

CHILD: Final = Path(__file__).with_name("restricted_python.py")
STOPPED: Final = "The program was stopped: it needed too much time or memory."
GRACE: Final = 4
"""Seconds that a program may take beyond its CPU time."""
MOST_RESULTS: Final = 3
"""The most pages that a search returns."""


@frozen
class Page:
    """A page of the library.

    Args:
        url: Its URL.
        title: Its title.
        text: Its lines.
    """

    url: str
    title: str
    text: str = field(repr=False)

    def fits(self, words: set[str]) -> int:
        """Return how well the page matches some words; words in its title count twice."""
        return 2 * len(words & _words(self.title)) + len(words & _words(self.text))

    def shown(self, number: int) -> str:
        """Return the page as a model reads it: its number, title and URL, then its numbered lines."""
        lines = [f"L{index}: {line}" for index, line in enumerate(self.text.splitlines())]
        return "\n".join([f"[{number}] {self.title} ({self.url})", *lines])


LIBRARY: Final = (
    Page(
        "https://library.example/interlocking",
        "Railway interlocking",
        "An interlocking is signalling apparatus that prevents conflicting movements of trains.\n"
        "A signal cannot be cleared unless the route is proven to be safe.\n"
        "The first ones were mechanical: levers that locked one another.",
    ),
    Page(
        "https://library.example/lever-frame",
        "Lever frame",
        "A lever frame holds the levers that move points and signals.\nJohn Saxby patented one with an interlocking in 1856.",
    ),
    Page(
        "https://library.example/state-machine",
        "Finite-state machine",
        "A finite-state machine is in exactly one of a finite number of states at any time.\n"
        "What may happen next depends on that state alone.",
    ),
    Page(
        "https://library.example/server-sent-events",
        "Server-sent events",
        "Server-sent events are a stream of messages over one HTTP answer.\n"
        "Each has lines of the form name: value, and ends with an empty line.",
    ),
    Page(
        "https://library.example/news",
        "The latest news of the line",
        "The signal box at Severn Bridge Junction is still the largest mechanical one in use.\nIt has 180 levers.",
    ),
)

DEPARTURES: Final = {"london": "10:04 from platform 2", "paris": "10:24 from platform 5", "berlin": "11:40 from platform 1"}

server = MCPServer("tools", log_level="WARNING")


def _words(text: str) -> set[str]:
    return {word.rstrip("s") for word in re.findall(r"\w+", text.lower()) if len(word) > 2}  # noqa: PLR2004 - short words say little


def _page(number: int) -> Page:
    if not 0 <= number < len(LIBRARY):
        raise ToolError(f"There is no page {number}.")
    return LIBRARY[number]


@server.tool()
async def python(code: str) -> str:
    """Run a program in a small part of Python: arithmetic, names, loops and print."""
    reason = refusal(code)
    if reason is not None:
        raise ToolError(f"The program was not run: {reason}.")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", CHILD, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={}
    )
    try:
        printed, _ = await asyncio.wait_for(child.communicate(code.encode()), SECONDS + GRACE)
    except TimeoutError:
        raise ToolError(STOPPED) from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise ToolError(STOPPED)
    return printed.decode()


@server.tool()
def search(query: str) -> str:
    """Search the library; the best pages come first."""
    wanted = _words(query)
    fits = [(page.fits(wanted), number) for number, page in enumerate(LIBRARY)]
    best = sorted((fit for fit in fits if fit[0]), key=lambda fit: -fit[0])[:MOST_RESULTS]
    return "\n\n".join(LIBRARY[number].shown(number) for _, number in best) or f"Nothing was found for {query!r}."


@server.tool(name="open")
def open_page(id: int | str = -1, cursor: int = -1) -> str:  # noqa: A002 - the name that models know
    """Open a page by its URL or its number."""
    for number, page in enumerate(LIBRARY):
        if page.url == id:
            return page.shown(number)
    if isinstance(id, str):
        raise ToolError(f"There is no page {id}.")
    number = id if id >= 0 else cursor
    return _page(number).shown(number)


@server.tool()
def find(pattern: str, cursor: int = -1) -> str:
    """Find the lines of a page that contain some text."""
    lines = _page(cursor).shown(cursor).splitlines()
    matches = [line for line in lines[1:] if pattern.lower() in line.lower()]
    return "\n".join([lines[0], *(matches or [f"{pattern!r} is not on this page."])])


@server.tool()
def departures(city: str) -> str:
    """Return when the next train departs to a city."""
    return f"The next train to {city} departs at {DEPARTURES.get(city.lower(), '12:00 from platform 3')}."


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="An MCP server with tools for Interlock.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8001)
    options = parser.parse_args()
    server.run("streamable-http", host=options.host, port=options.port)


if __name__ == "__main__":
    main()
