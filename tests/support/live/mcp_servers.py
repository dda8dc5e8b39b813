"""MCP servers on loopback, each in its own thread: one that works, and faulty ones."""

import asyncio
import json
import logging
import threading
from contextlib import contextmanager
from time import monotonic

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from interlock.serving.http.server import listen, url_of


@contextmanager
def running(application):
    """Serve an ASGI application in a thread; yield its URL."""
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(application, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
    try:
        yield url_of(listening)
    finally:
        server.should_exit = True  # without a wait, which would take a while; it gets no further requests


class Workshop:
    """A server whose tools record when they begin and end."""

    def __init__(self):
        self.began = []
        self.ended = {}
        self.cancelled = threading.Event()
        self.started = threading.Event()
        self.headers = []

    def server(self):
        root = logging.getLogger()
        handlers, level = list(root.handlers), root.level
        server = MCPServer("workshop", log_level="CRITICAL")
        root.handlers, root.level = handlers, level  # it changes the global logging
        for tool in (self.echo, self.slow, self.hang, self.big, self.broken, self.python, self.search, self.find, self.roll):
            server.add_tool(tool)
        server.add_tool(self.open_page, name="open")
        server.add_tool(self.look, annotations=ToolAnnotations(readOnlyHint=True))
        return server

    def note(self, name):
        self.began.append(name)

    def end(self, name, text):
        self.ended[name] = monotonic()
        return text

    async def echo(self, text: str) -> str:
        """Say it again."""
        self.note("echo")
        return self.end("echo", text)

    async def roll(self, sides: int, *, loud: bool) -> str:
        """Roll a die."""
        return f"{sides!r} {loud!r}"

    async def look(self) -> str:
        """Look, and change nothing."""
        self.note("look")
        return self.end("look", "Nothing to see.")

    async def slow(self, seconds: float = 0.1) -> str:
        """Take some time."""
        self.note("slow")
        await asyncio.sleep(seconds)
        return self.end("slow", "done")

    async def hang(self) -> str:
        """Never end."""
        self.note("hang")
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()

    async def big(self, size: int = 10_000_000) -> str:
        """Say too much."""
        return "x" * size

    async def broken(self) -> str:
        """Fail."""
        raise ToolError("The machine is out of paper.")

    async def python(self, code: str) -> str:
        """Pretend to run a program."""
        self.note("python")
        await asyncio.sleep(0.05)
        if "raise" in code:
            raise ToolError("It raised.")
        return self.end("python", "42\n")

    async def search(self, query: str) -> str:
        """Pretend to search."""
        self.note("search")
        await asyncio.sleep(0.02)
        return self.end(
            "search", f"[0] First of {query} (https://a.example/one)\nL0: One.\n\n[1] Second (https://b.example)\nL0: Two."
        )

    async def open_page(self, id: int | str = -1, cursor: int = -1) -> str:  # noqa: A002
        """Pretend to open a page."""
        return f"[7] Page {id!r} of {cursor} (https://c.example)\nL0: Seven."

    async def find(self, pattern: str, cursor: int = -1) -> str:
        """Pretend to find something."""
        return f"{pattern} is on {cursor}"


async def read(receive):
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return json.loads(body or b"null")


async def answer(send, status, body, content_type="application/json", **headers):
    head = [(b"content-type", content_type.encode()), *((name.encode(), value.encode()) for name, value in headers.items())]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def result(request, text):
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": text}).encode()


TOOL = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "plain", "version": "1"}}
RESULT = {"content": [{"type": "text", "text": "said"}]}


def plain(calling=None, tools=(TOOL,), gate=None):
    """Return a minimal server of the older protocol, as an ASGI application.

    Args:
        calling: Answers `tools/call` instead; is given what was asked, and ASGI's `send`.
        tools: What it lists.
        gate: Judges a request by its scope; gives a status, or None to go on.
    """

    async def application(scope, receive, send):
        if scope["type"] != "http":
            return
        request = await read(receive)
        refused = gate(scope) if gate else None
        if refused is not None:
            await answer(send, refused, b"{}")
            return
        match (request or {}).get("method"):
            case "initialize":
                await answer(send, 200, result(request, HELLO))
            case "tools/list":
                await answer(send, 200, result(request, {"tools": list(tools)}))
            case "tools/call" if calling:
                await calling(request, send)
            case "tools/call":
                await answer(send, 200, result(request, RESULT))
            case "notifications/initialized" | "notifications/cancelled":
                await answer(send, 202, b"")
            case _ if request is None:
                await answer(send, 405, b"")
            case _:
                error = {"code": -32601, "message": "No such method"}
                await answer(send, 200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode())

    return application
