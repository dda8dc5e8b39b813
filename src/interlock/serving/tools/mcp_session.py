"""A session with one MCP server, opened on first use in a task of its own, as the `mcp` package requires.

A call waits for its result or for the end of the session's task, and every wait has a limit. A fault of the session, such as a
broken connection, ends the task, and a waiting call raises a `ToolError`. The session's HTTP transport sends requests only to
allowed addresses, and limits responses.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from contextvars import Context, ContextVar, copy_context
from functools import cache, partial
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlsplit

import httpx2
import orjson
from attrs import define, field
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED, CallToolResult, Tool
from pydantic import ValidationError

from interlock.serving.metrics import measure
from interlock.serving.requests.api_errors import ToolError, ToolFailedError
from interlock.serving.requests.body import JsonBudget
from interlock.serving.requests.limits import MAX_TOOLS
from interlock.serving.requests.runtime import is_fault
from interlock.serving.tools.address import AddressPolicy, Endpoint

T = TypeVar("T")

logger = logging.getLogger(__name__)

DURATION: Final = "mcp_client_operation_duration_seconds"

CONNECT_SECONDS: Final = 10.0
OPENING_SECONDS: Final = 10.0
CLOSING_SECONDS: Final = 1.0
"""The time that a call or a session has to end before it is abandoned."""
PAGES: Final = 10
MAX_MESSAGE: Final = 500

LIMIT: Final = 1_000_000
"""The most bytes of a response or event; a little less than the limit of the `mcp` package."""

MAX_VALUES: Final = 20_000
"""The most JSON values of a response or event, because `mcp` blocks the event loop while it parses and validates them."""

CLOSED: Final = "Connection closed"
"""The message of `mcp` for a lost connection; servers use the same code for errors of their own."""

REFUSALS: Final[Mapping[int, str]] = {
    401: "The server refuses the authorization (HTTP 401).",
    403: "The server refuses access (HTTP 403).",
    407: "The server refuses the authorization (HTTP 407).",
}
"""The messages for statuses that `mcp` reports without their meaning."""

BLANK_LINE: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")

IN_SESSION: Final = ContextVar("IN_SESSION", default=False)
"""True in a session's tasks. They raise their faults, so `mcp` does not need to log them."""

for _name in ("client", "mcp.client.client", "mcp.client.sse", "mcp.client.streamable_http", "mcp.shared.jsonrpc_dispatcher"):
    logging.getLogger(_name).addFilter(lambda _record: not IN_SESSION.get())


@define(eq=False)
class Session:
    """One session. Each call may take `seconds`."""

    endpoint: Endpoint
    seconds: float
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _opened: asyncio.Future[Client] = field(init=False)
    _closing: asyncio.Event = field(factory=asyncio.Event, init=False)
    _faults: list[str] = field(factory=list[str], init=False)
    _is_listed: bool = field(default=False, init=False)

    @property
    def ended(self) -> bool:
        """Whether the session has started and ended."""
        return self._task is not None and self._task.done()

    async def list_tools(self) -> list[Tool]:
        """List the server's tools, or raise `ToolError` if the server fails or lists too many tools or pages."""
        client = await self._client()
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(PAGES):
            with measure(DURATION, "tools/list"):
                page = await self._within(OPENING_SECONDS, client.list_tools(cursor=cursor))
            tools += page.tools
            if len(tools) > MAX_TOOLS:
                raise ToolError(f"The server lists more than {MAX_TOOLS} tools.")
            cursor = page.next_cursor
            if cursor is None:
                self._is_listed = True
                return tools
        raise ToolError(f"The server lists its tools in more than {PAGES} pages.")

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        """Call a tool and return its result as text.

        The tools are listed before the first call, because `mcp` would list them after it, and fail a call that has been made.

        Raises:
            ToolFailedError: The tool reports an error.
            ToolError: The server fails.
        """
        if not self._is_listed:
            await self.list_tools()
        client = await self._client()
        with measure(DURATION, "tools/call"):
            result = await self._within(self.seconds, client.call_tool(name, dict(arguments)))
        text = result_text(result)
        if result.is_error:
            raise ToolFailedError(text or "The tool failed and did not say why.")
        return text

    async def close(self) -> None:
        """End the session, within twice `CLOSING_SECONDS`."""
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
        begins = self._task is None
        if begins:
            self._opened = asyncio.get_running_loop().create_future()
            name = f"MCP session with {urlsplit(self.endpoint.url).hostname}"
            self._task = asyncio.create_task(self._run(), name=name, context=_session_context())
        with measure(DURATION, "initialize") if begins else nullcontext():
            return await self._within(OPENING_SECONDS, _result(self._opened))

    async def _run(self) -> None:
        try:
            async with Client(_transport(self.endpoint, self._faults), cache=None) as client:
                self._opened.set_result(client)
                await self._closing.wait()
        except BaseException as error:
            if not is_fault(error):
                raise
            self._faults.append(_error_message(error))
            logger.debug("%s", self._faults[-1])  # not the error itself, which may repeat the request's headers

    async def _within(self, seconds: float, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work, context=_session_context())
        session = self._task or task
        try:
            await asyncio.wait({task, session}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        except MCPError as error:
            is_lost = error.code == CONNECTION_CLOSED and (self._faults or error.message == CLOSED)
            raise ToolError(self._loss_message() if is_lost else _truncate(error.message)) from error
        except BaseException as error:
            if not is_fault(error):
                raise
            raise ToolError(_error_message(error)) from error
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=CLOSING_SECONDS)
                task.add_done_callback(_forget)
        raise ToolError(self._loss_message() if session.done() else f"The server did not answer within {seconds:g} seconds.")

    def _loss_message(self) -> str:
        return self._faults[-1] if self._faults else "The connection was lost."


def result_text(result: CallToolResult) -> str:
    """Return the result of a tool as text, with only the type of each block that is not text.

    If there are no blocks, return the structured content as JSON.
    """
    texts = [block.text if block.type == "text" else _placeholder(block) for block in result.content]
    if not texts and result.structured_content is not None:
        return orjson.dumps(result.structured_content).decode()
    return "\n".join(texts)


def _placeholder(block: object) -> str:
    kind, media = getattr(block, "type", "content"), getattr(block, "mime_type", None)
    return f"[{kind}: {media}]" if media else f"[{kind}]"


def _session_context() -> Context:
    context = copy_context()
    context.run(IN_SESSION.set, True)  # noqa: FBT003 - the value of a context variable
    return context


def _forget(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of an abandoned task, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()


async def _result(future: asyncio.Future[T]) -> T:
    """Await a shared future. A cancelled waiter does not cancel it."""
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


class TooLarge(httpx2.StreamError):
    """A response has too many bytes or values."""


def _error_message(error: BaseException) -> str:
    """Return the message of an error for the client; it replaces the texts of errors that repeat secrets."""
    text = "Communication with the server failed."
    match error:
        case BaseExceptionGroup():
            text = _error_message(error.exceptions[0])
        case ValidationError():
            text = "The server's answer does not follow MCP."  # the error's own text has a line for each flaw
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            text = "The server cannot be reached."
        case httpx2.LocalProtocolError():
            text = "A header for the server has an invalid name or value."
        case httpx2.HTTPStatusError():
            text = f"The server answers HTTP {error.response.status_code}."
        case ToolError() | TooLarge():
            text = str(error)
        case httpx2.HTTPError() | httpx2.InvalidURL() | ValueError():
            text = f"Communication with the server failed: {error}"
        case MCPError():
            text = error.message
        case _:
            pass
    return _truncate(text)


def _truncate(text: str) -> str:
    text = text.partition("\n")[0]
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}\N{HORIZONTAL ELLIPSIS}"


@define(eq=False)
class BoundedStream(httpx2.AsyncByteStream):
    """Limits the bytes and JSON values of a response or, if it is a stream of `events`, of each event.

    `faults` collects error messages, because `mcp` may report only that the connection is closed.
    """

    _stream: httpx2.AsyncByteStream
    _faults: list[str]
    events: bool = field(kw_only=True)
    _size: int = field(default=0, init=False)
    _budget: JsonBudget = field(factory=JsonBudget, init=False)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        last = b""
        try:
            async for chunk in self._stream:
                start = 0
                for end in BLANK_LINE.finditer(last + chunk) if self.events else ():
                    after = max(start, end.end() - len(last))
                    self._count(chunk[start:after])
                    self._size, self._budget, start = 0, JsonBudget(), after
                self._count(chunk[start:])
                last = (last + chunk)[-3:]
                yield chunk
        except (TooLarge, httpx2.HTTPError) as error:
            self._faults.append(_error_message(error))
            raise

    def _count(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._budget.count(chunk)
        if self._size > LIMIT:
            raise TooLarge(f"The answer is larger than {LIMIT} bytes.")
        if self._budget.values > MAX_VALUES:
            raise TooLarge(f"The answer has more than {MAX_VALUES} JSON values.")

    async def aclose(self) -> None:
        await self._stream.aclose()


@cache
def _certificates() -> ssl.SSLContext:
    """Return an SSL context with the trusted certificates, which are slow to load."""
    return httpx2.create_ssl_context()


@define(eq=False)
class GuardedTransport(httpx2.AsyncBaseTransport):
    """Checks the destination of every request against the policy, if any, and limits responses."""

    _policy: AddressPolicy | None
    _faults: list[str]
    _inner: httpx2.AsyncHTTPTransport = field(factory=lambda: httpx2.AsyncHTTPTransport(verify=_certificates()), init=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and record the message of an error.

        Raises:
            ToolError: The address or the response is refused.
            httpx2.HTTPError: The request fails.
        """
        try:
            return await self._bounded(await self._send(request))
        except (ToolError, httpx2.HTTPError) as error:
            self._faults.append(_error_message(error))
            raise

    async def _bounded(self, response: httpx2.Response) -> httpx2.Response:
        refusal = REFUSALS.get(response.status_code)
        if refusal is None and response.headers.get("content-encoding", "identity") != "identity":
            refusal = "The server compresses its responses, although it was asked not to."  # a few bytes may become gigabytes
        if refusal is not None:
            await response.aclose()
            raise ToolError(refusal)
        events = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = BoundedStream(cast("httpx2.AsyncByteStream", response.stream), self._faults, events=events)
        return response

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        """Check all addresses of a request's host, and send the request to the first reachable one."""
        if self._policy is None:
            return await self._inner.handle_async_request(request)
        url = request.url
        addresses = await self._policy.resolve(url.host, url.port or (443 if url.scheme == "https" else 80))
        for address in addresses[:-1]:
            with suppress(httpx2.ConnectError, httpx2.ConnectTimeout):
                return await self._inner.handle_async_request(_resolve_address(request, address))
        return await self._inner.handle_async_request(_resolve_address(request, addresses[-1]))

    async def aclose(self) -> None:
        await self._inner.aclose()


def _resolve_address(request: httpx2.Request, address: str) -> httpx2.Request:
    """Return a request that goes to an address of its host. TLS still verifies the host's name."""
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": request.url.host},
    )


def http_client(
    headers: Mapping[str, str] | None = None,
    timeout: httpx2.Timeout | None = None,  # noqa: ARG001 - `mcp` passes it; a session has its own time limits
    auth: httpx2.Auth | None = None,
    *,
    policy: AddressPolicy | None,
    faults: list[str],
) -> httpx2.AsyncClient:
    """Create the client of one session; see `GuardedTransport` for `policy` and `faults`."""
    return httpx2.AsyncClient(
        transport=GuardedTransport(policy, faults),
        headers={**(headers or {}), "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
        auth=auth,
        follow_redirects=False,
        trust_env=False,  # no proxy and no .netrc
    )
