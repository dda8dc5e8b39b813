"""The first version of the `mcp` package has the face of the second one: sessions do not tell them apart."""

import asyncio
import importlib
import sys
from contextlib import asynccontextmanager
from types import ModuleType, SimpleNamespace

import pytest


class Session:
    """`ClientSession` of the first version, whose names are in camel case."""

    def __init__(self, read, write):
        self.streams, self.calls = (read, write), []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.calls.append("closed")

    async def initialize(self):
        self.calls.append("initialized")

    async def list_tools(self, cursor):
        tool = SimpleNamespace(name="f", description="It is f.", inputSchema={"type": "object"}, annotations=None)
        return SimpleNamespace(tools=[tool], nextCursor=None if cursor else "2")

    async def call_tool(self, name, arguments):
        self.calls.append((name, arguments))
        blocks = [SimpleNamespace(type="text", text="a"), SimpleNamespace(type="image", mimeType="image/png")]
        return SimpleNamespace(content=blocks, isError=True, structuredContent={"a": 1})


@pytest.fixture
def first(monkeypatch):
    """The module, with an imitated package below it."""
    package, http = ModuleType("mcp"), ModuleType("mcp.client.streamable_http")
    package.McpError, package.ClientSession = RuntimeError, Session
    http.streamablehttp_client = lambda url, httpx_client_factory: (url, httpx_client_factory(headers={}))
    monkeypatch.setitem(sys.modules, "mcp", package)
    monkeypatch.setitem(sys.modules, "mcp.client.streamable_http", http)
    monkeypatch.delitem(sys.modules, "interlock.serving.tools.mcp_v1", raising=False)
    yield importlib.import_module("interlock.serving.tools.mcp_v1")
    sys.modules.pop("interlock.serving.tools.mcp_v1", None)


@asynccontextmanager
async def transport():
    yield "read", "write", "how to ask for the session's id"


def test_a_session_has_the_names_of_the_second_version(first) -> None:
    async def use():
        async with first.Client(transport(), cache=None) as client:
            pages = [await client.list_tools(cursor=cursor) for cursor in (None, "2")]
            result, session = await client.call_tool("f", {"a": 1}), client._session
        return pages, result, session

    pages, result, session = asyncio.run(use())
    assert [page.next_cursor for page in pages] == ["2", None]
    tool = SimpleNamespace(name="f", description="It is f.", input_schema={"type": "object"}, annotations=None)
    assert pages[0].tools == [tool]
    assert (result.is_error, result.structured_content) == (True, {"a": 1})
    assert [vars(block) for block in result.content] == [
        {"type": "text", "text": "a", "mime_type": None},
        {"type": "image", "text": "", "mime_type": "image/png"},
    ]
    assert (session.streams, session.calls) == (("read", "write"), ["initialized", ("f", {"a": 1}), "closed"])


def test_its_transport_uses_the_guarded_client(first) -> None:
    assert first.streamable_http_client("http://a", http_client="guarded") == ("http://a", "guarded")
    sys.modules["mcp.client.streamable_http"].streamable_http_client = lambda url, http_client: (http_client, url)
    assert first.streamable_http_client("http://a", http_client="guarded") == ("guarded", "http://a")
