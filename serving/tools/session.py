"""A session with one MCP server: opened when it is first used, and lived in a task of its own.

The `mcp` package binds a session to the task that opened it, and a response's calls run in tasks of theirs; so the session
has a task, and the calls wait for either. Whatever happens to the session (the connection breaks, the server talks nonsense)
ends that task and is raised where the call is awaited. Every wait has a limit. It knows the protocol and nothing of items.
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

from interlock.serving.errors import ToolError
from interlock.serving.faults import is_fault
from interlock.serving.requests.limits import MOST_TOOLS
from interlock.serving.tools.endpoint import Endpoint
from interlock.serving.tools.transport import explained, http_client, httpx2

if TYPE_CHECKING or not version("mcp").startswith("1."):
    from mcp import Client, MCPError
    from mcp.client.streamable_http import streamable_http_client
    from mcp_types import CONNECTION_CLOSED, CallToolResult, Tool
else:
    from interlock.serving.tools.first_mcp import CONNECTION_CLOSED, Client, MCPError, streamable_http_client

__all__ = ["Session"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

OPENING_SECONDS: Final = 10.0
"""Seconds that a server may take to open a session, and to list its tools."""
CLOSING_SECONDS: Final = 1.0
"""Seconds that the end of a call or a session may take before it is no longer waited for."""
PAGES: Final = 10
"""Pages of a server's list that are read at most."""
QUOTED: Final = 500
"""Characters of somebody's error that are repeated at most."""

OURS: Final = ContextVar("OURS", default=False)
"""Whether a session of this module is at work. What went wrong there is raised, and needs no line of `mcp`'s in the log."""

for _name in ("client", "mcp.client.client", "mcp.client.sse", "mcp.client.streamable_http", "mcp.shared.jsonrpc_dispatcher"):
    logging.getLogger(_name).addFilter(lambda _record: not OURS.get())

SSE_PATH: Final = "/sse"
"""What the path of a URL ends with that is meant for the older transport."""


@define(eq=False)
class Session:
    """One session.

    Args:
        endpoint: Where it goes to.
        seconds: How long a call may take.
    """

    endpoint: Endpoint
    seconds: float
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _opened: asyncio.Future[Client] = field(init=False)
    _closing: asyncio.Event = field(factory=asyncio.Event, init=False)
    _faults: list[str] = field(factory=list[str], init=False)
    """What went wrong below."""

    @property
    def ended(self) -> bool:
        """Whether it was open, and is so no more."""
        return self._task is not None and self._task.done()

    async def list_tools(self) -> list[Tool]:
        """List the server's tools.

        Raises:
            ToolError: That was not possible; the message says why.
        """
        client = await self._client()
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await self._within(OPENING_SECONDS, client.list_tools(cursor=cursor))
            tools += page.tools
            if len(tools) > MOST_TOOLS:
                raise ToolError(f"The server lists more than {MOST_TOOLS} tools.")
            cursor = page.next_cursor
            if cursor is None:
                break
        return tools

    async def call(self, name: str, arguments: Mapping[str, object]) -> CallToolResult:
        """Call a tool; to cancel this is to cancel the call on the server.

        Args:
            name: The tool's name.
            arguments: What it is given.

        Raises:
            ToolError: That was not possible; the message says why. An error of the tool itself is a result.
        """
        client = await self._client()
        return await self._within(self.seconds, client.call_tool(name, dict(arguments)))

    async def close(self) -> None:
        """End the session; at the latest after some seconds, whatever the server does."""
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
        """Return the open session; the first who asks opens it."""
        if self._task is None:
            self._opened = asyncio.get_running_loop().create_future()
            name = f"MCP session with {urlsplit(self.endpoint.url).hostname}"
            self._task = asyncio.create_task(self._live(), name=name, context=_ours())
        return await self._within(OPENING_SECONDS, _result(self._opened))

    async def _live(self) -> None:
        try:
            async with Client(_transport(self.endpoint, self._faults), cache=None) as client:
                self._opened.set_result(client)
                await self._closing.wait()
        except BaseException as error:
            if not is_fault(error):
                raise
            self._faults.append(_explained(error))
            logger.debug("%s", self._faults[-1])  # and no more: the error may repeat the request's headers

    async def _within(self, seconds: float, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something as long as the session lives, and not longer than some time."""
        doing = asyncio.create_task(work, context=_ours())
        session = self._task or doing
        try:
            await asyncio.wait({doing, session}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
        except MCPError as error:
            said = getattr(error, "error", error)  # as the first version of the package has it
            raise ToolError(self._lost() if said.code == CONNECTION_CLOSED else _cut(said.message)) from error
        except BaseException as error:
            if not is_fault(error):
                raise
            raise ToolError(_explained(error)) from error
        finally:
            if not doing.done():
                doing.cancel()
                await asyncio.wait({doing}, timeout=CLOSING_SECONDS)
                doing.add_done_callback(_forget)
        raise ToolError(self._lost() if session.done() else f"The server did not answer within {seconds:g} seconds.")

    def _lost(self) -> str:
        """Return why the connection is gone, as far as that is known."""
        return self._faults[-1] if self._faults else "The connection was lost."


def _ours() -> Context:
    context = copy_context()
    context.run(OURS.set, True)  # noqa: FBT003 - the value of a context variable
    return context


def _forget(task: asyncio.Task[Any]) -> None:
    """Retrieve the outcome of a task that nobody awaits any more, so that asyncio does not report it as lost."""
    if not task.cancelled():
        task.exception()


async def _result(future: asyncio.Future[T]) -> T:
    """Wait for a future of others, which is not cancelled with whoever waits."""
    return await asyncio.shield(future)


@asynccontextmanager
async def _transport(endpoint: Endpoint, faults: list[str]) -> AsyncGenerator[Any]:
    """Open the transport that the URL is meant for."""
    headers = dict(endpoint.headers)
    client = partial(http_client, reach=endpoint.reach, faults=faults)
    if urlsplit(endpoint.url).path.rstrip("/").endswith(SSE_PATH):
        async with sse_client(endpoint.url, headers=headers, httpx_client_factory=client) as streams:
            yield streams
    else:
        async with client(headers) as http, streamable_http_client(endpoint.url, http_client=http) as streams:
            yield streams


def _explained(error: BaseException) -> str:
    """Return what went wrong in words that are for whoever reads the stream."""
    match error:
        case BaseExceptionGroup():
            return _explained(error.exceptions[0])
        case ValidationError():
            return "The server's answer is not what MCP has for it."  # the error's own text has a line for each flaw
        case ToolError() | httpx2.HTTPError() | httpx2.InvalidURL() | ValueError():
            return _cut(explained(error))
        case MCPError():
            return _cut(getattr(error, "error", error).message)
        case _:
            return "The server cannot be talked to."


def _cut(text: str) -> str:
    text = text.partition("\n")[0]
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}\N{HORIZONTAL ELLIPSIS}"
