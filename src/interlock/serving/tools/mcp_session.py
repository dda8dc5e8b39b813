"""A session with one MCP server, opened on first use in a task of its own, as the `mcp` package requires.

A call waits for its result or for the end of the session's task, and every wait has a limit. A fault of the session (a broken
connection, a malformed answer) ends the task, and is raised where a call is awaited.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar, copy_context
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from attrs import define, field
from mcp.client.sse import sse_client
from pydantic import ValidationError

from interlock.serving.requests.api_errors import ToolError
from interlock.serving.requests.containment import is_fault
from interlock.serving.requests.limits import MAX_TOOLS
from interlock.serving.tools.address import Endpoint
from interlock.serving.tools.mcp_transport import explained, http_client, httpx2

if TYPE_CHECKING or not version("mcp").startswith("1."):
    from mcp import Client, MCPError
    from mcp.client.streamable_http import streamable_http_client
    from mcp_types import CONNECTION_CLOSED, CallToolResult, Tool
else:
    from interlock.serving.tools.mcp_v1 import CONNECTION_CLOSED, Client, MCPError, streamable_http_client

__all__ = ["Session"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

OPENING_SECONDS: Final = 10.0
CLOSING_SECONDS: Final = 1.0
"""Seconds that the end of a call or a session may take before it is abandoned."""
PAGES: Final = 10
MAX_MESSAGE: Final = 500

IN_SESSION: Final = ContextVar("IN_SESSION", default=False)
"""Whether a session runs. Its faults are raised, so `mcp` need not log them as well."""

for _name in ("client", "mcp.client.client", "mcp.client.sse", "mcp.client.streamable_http", "mcp.shared.jsonrpc_dispatcher"):
    logging.getLogger(_name).addFilter(lambda _record: not IN_SESSION.get())


@define(eq=False)
class Session:
    """One session, whose calls may take `seconds`."""

    endpoint: Endpoint
    seconds: float
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _opened: asyncio.Future[Client] = field(init=False)
    _closing: asyncio.Event = field(factory=asyncio.Event, init=False)
    _faults: list[str] = field(factory=list[str], init=False)

    @property
    def ended(self) -> bool:
        """Whether the session was opened and has ended."""
        return self._task is not None and self._task.done()

    async def list_tools(self) -> list[Tool]:
        """List the server's tools, or raise `ToolError` if the server fails or lists too many."""
        client = await self._client()
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await self._within(OPENING_SECONDS, client.list_tools(cursor=cursor))
            tools += page.tools
            if len(tools) > MAX_TOOLS:
                raise ToolError(f"The server lists more than {MAX_TOOLS} tools.")
            cursor = page.next_cursor
            if cursor is None:
                break
        return tools

    async def call(self, name: str, arguments: Mapping[str, object]) -> CallToolResult:
        """Call a tool, or raise `ToolError` if the server fails; a failing tool returns a result. Cancelling cancels the call."""
        client = await self._client()
        return await self._within(self.seconds, client.call_tool(name, dict(arguments)))

    async def close(self) -> None:
        """End the session, at the latest after twice `CLOSING_SECONDS`."""
        if self._task is None:
            return
        self._closing.set()
        try:
            if self._opened.done():
                await asyncio.wait([self._task], timeout=CLOSING_SECONDS)
        finally:
            if not self._task.done():
                self._task.cancel()
                await asyncio.wait([self._task], timeout=CLOSING_SECONDS)

    async def _client(self) -> Client:
        if self._task is None:
            self._opened = asyncio.get_running_loop().create_future()
            name = f"MCP session with {urlsplit(self.endpoint.url).hostname}"
            self._task = asyncio.create_task(self._run(), name=name, context=_session_context())
        return await self._within(OPENING_SECONDS, _result(self._opened))

    async def _run(self) -> None:
        try:
            async with Client(_transport(self.endpoint, self._faults), cache=None) as client:
                self._opened.set_result(client)
                await self._closing.wait()
        except BaseException as error:
            if not is_fault(error):
                raise
            self._faults.append(_explained(error))
            logger.debug("%s", self._faults[-1])  # not the error itself, which may repeat the request's headers

    async def _within(self, seconds: float, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work, context=_session_context())
        session = self._task or task
        try:
            await asyncio.wait({task, session}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        except MCPError as error:
            data = getattr(error, "error", error)  # where version 1 of the package has code and message
            raise ToolError(self._lost() if data.code == CONNECTION_CLOSED else _truncated(data.message)) from error
        except BaseException as error:
            if not is_fault(error):
                raise
            raise ToolError(_explained(error)) from error
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=CLOSING_SECONDS)
                task.add_done_callback(_forget)
        raise ToolError(self._lost() if session.done() else f"The server did not answer within {seconds:g} seconds.")

    def _lost(self) -> str:
        return self._faults[-1] if self._faults else "The connection was lost."


def _session_context() -> Context:
    context = copy_context()
    context.run(IN_SESSION.set, True)  # noqa: FBT003 - the value of a context variable
    return context


def _forget(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of an abandoned task, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()


async def _result(future: asyncio.Future[T]) -> T:
    """Await a shared future, which is not cancelled with its waiter."""
    return await asyncio.shield(future)


@asynccontextmanager
async def _transport(endpoint: Endpoint, faults: list[str]) -> AsyncGenerator[Any]:
    headers = dict(endpoint.headers)
    client = partial(http_client, policy=endpoint.policy, faults=faults)
    if urlsplit(endpoint.url).path.rstrip("/").endswith("/sse"):
        async with sse_client(endpoint.url, headers=headers, httpx_client_factory=client) as streams:
            yield streams
    else:
        async with client(headers) as http, streamable_http_client(endpoint.url, http_client=http) as streams:
            yield streams


def _explained(error: BaseException) -> str:
    match error:
        case BaseExceptionGroup():
            return _explained(error.exceptions[0])
        case ValidationError():
            return "The server's answer does not follow MCP."  # the error's own text has a line for each flaw
        case ToolError() | httpx2.HTTPError() | httpx2.InvalidURL() | ValueError():
            return _truncated(explained(error))
        case MCPError():
            return _truncated(getattr(error, "error", error).message)
        case _:
            return "Communication with the server failed."


def _truncated(text: str) -> str:
    text = text.partition("\n")[0]
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}\N{HORIZONTAL ELLIPSIS}"
