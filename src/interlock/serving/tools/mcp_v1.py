"""Adapts version 1 of the `mcp` package, which vLLM up to 0.29 requires, to the interface of version 2."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final, Self

from attrs import define, field

CONNECTION_CLOSED: Final = -32000

MCPError: type[Exception] = import_module("mcp").McpError


def streamable_http_client(url: str, *, http_client: Any) -> Any:  # noqa: ANN401 - objects of the package
    """Return the streamable HTTP transport for an open HTTP client."""
    module = import_module("mcp.client.streamable_http")
    if hasattr(module, "streamable_http_client"):
        return module.streamable_http_client(url, http_client=http_client)

    def factory(**_: object) -> Any:  # noqa: ANN401 - objects of the package
        return http_client

    return module.streamablehttp_client(url, httpx_client_factory=factory)


@define(eq=False)
class Client:
    """A session that opens and closes its transport."""

    _transport: Any
    cache: None = None
    _stack: AsyncExitStack = field(factory=AsyncExitStack, init=False)
    _session: Any = field(default=None, init=False)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            read, write, *_ = await opening.enter_async_context(self._transport)
            self._session = await opening.enter_async_context(import_module("mcp").ClientSession(read, write))
            await self._session.initialize()
            self._stack = opening.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def list_tools(self, *, cursor: str | None = None) -> SimpleNamespace:
        page = await self._session.list_tools(cursor)
        tools = [
            SimpleNamespace(
                name=tool.name,
                description=tool.description,
                input_schema=tool.inputSchema,
                annotations=getattr(tool, "annotations", None),
            )
            for tool in page.tools
        ]
        return SimpleNamespace(tools=tools, next_cursor=page.nextCursor)

    async def call_tool(self, name: str, arguments: Mapping[str, object]) -> SimpleNamespace:
        result = await self._session.call_tool(name, arguments)
        content = [
            SimpleNamespace(type=block.type, text=getattr(block, "text", ""), mime_type=getattr(block, "mimeType", None))
            for block in result.content
        ]
        structured = getattr(result, "structuredContent", None)
        return SimpleNamespace(content=content, is_error=result.isError, structured_content=structured)
