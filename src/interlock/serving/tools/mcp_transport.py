"""The HTTP of MCP sessions, below the `mcp` package: requests reach only allowed addresses, and responses have limits."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, cast

from interlock.serving.requests.api_errors import ToolError
from interlock.serving.requests.body import JsonBudget
from interlock.serving.tools.address import AddressPolicy

if TYPE_CHECKING or not version("mcp").startswith("1."):
    import httpx2
else:  # version 1 of `mcp` is written for it
    import httpx as httpx2

__all__ = ["LIMIT", "http_client", "httpx2"]

LIMIT: Final = 1_000_000
"""The most bytes of a response or event; a little less than the limit of the `mcp` package."""

MAX_VALUES: Final = 20_000
"""The most JSON values of a response or event, because `mcp` blocks the event loop while it parses and validates them."""

CONNECT_SECONDS: Final = 10.0

REFUSALS: Final[Mapping[int, str]] = {
    401: "The server refuses the authorization (HTTP 401).",
    403: "The server refuses access (HTTP 403).",
    407: "The server refuses the authorization (HTTP 407).",
}
"""The messages for statuses that `mcp` reports without their meaning."""

BLANK_LINE: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class TooLarge(httpx2.StreamError):
    """A response has too many bytes or values."""


def explained(error: Exception) -> str:
    """Return the client-facing message of an error of HTTP or of this module."""
    match error:
        case ToolError() | TooLarge():
            return str(error)
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return "The server cannot be reached."
        case httpx2.LocalProtocolError():
            return "The headers for the server cannot be sent."  # the error's own text repeats them
        case httpx2.HTTPStatusError():
            return f"The server answers HTTP {error.response.status_code}."  # the error's own text has the URL, secrets and all
        case _:
            return f"Communication with the server failed: {error}"


class BoundedStream(httpx2.AsyncByteStream):
    """The bytes of a response, up to the limits, which apply to each event if there are `events`.

    `faults` collects the messages of errors, because `mcp` may only report that the connection is closed.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, faults: list[str], *, events: bool) -> None:
        self._stream = stream
        self._faults = faults
        self._events = events
        self._size, self._budget = 0, JsonBudget()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        last = b""
        try:
            async for chunk in self._stream:
                start = 0
                for end in BLANK_LINE.finditer(last + chunk) if self._events else ():
                    after = max(start, end.end() - len(last))
                    self._count(chunk[start:after])
                    self._size, self._budget, start = 0, JsonBudget(), after
                self._count(chunk[start:])
                last = (last + chunk)[-3:]
                yield chunk
        except (TooLarge, httpx2.HTTPError) as error:
            self._faults.append(explained(error))
            raise

    def _count(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._budget.count(chunk)
        if self._size > LIMIT:
            raise TooLarge(f"The answer is larger than {LIMIT} bytes.")
        if self._budget.values > MAX_VALUES:
            raise TooLarge(f"The answer holds more than {MAX_VALUES} JSON values.")

    async def aclose(self) -> None:
        await self._stream.aclose()


class GuardedTransport(httpx2.AsyncBaseTransport):
    """A transport that checks the destination of every request against the policy, if any, and limits responses."""

    def __init__(self, policy: AddressPolicy | None, faults: list[str]) -> None:
        self._policy = policy
        self._faults = faults
        self._inner = httpx2.AsyncHTTPTransport(verify=_certificates())

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await self._bounded(await self._send(request))
        except (ToolError, httpx2.HTTPError) as error:
            self._faults.append(explained(error))
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
        """Send a request to the first reachable address of its host, after all of them were checked."""
        if self._policy is None:
            return await self._inner.handle_async_request(request)
        url = request.url
        addresses = await self._policy.resolve(url.host, url.port or (443 if url.scheme == "https" else 80))
        for address in addresses[:-1]:
            with suppress(httpx2.ConnectError, httpx2.ConnectTimeout):
                return await self._inner.handle_async_request(_addressed(request, address))
        return await self._inner.handle_async_request(_addressed(request, addresses[-1]))

    async def aclose(self) -> None:
        await self._inner.aclose()


def _addressed(request: httpx2.Request, address: str) -> httpx2.Request:
    """Return a request to an address of its host; TLS still verifies the host's name."""
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": request.url.host},
    )


@cache
def _certificates() -> ssl.SSLContext:
    """Return the trusted certificates, which are slow to load."""
    return httpx2.create_ssl_context()


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
