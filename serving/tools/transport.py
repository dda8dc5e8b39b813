"""The HTTP under an MCP session: requests go only where they may, and answers are not larger than they may be.

It stands below the `mcp` package, so that nothing the package does (a redirect, a reconnection) can go around it. It knows
HTTP and nothing of MCP.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, cast

from interlock.serving.errors import ToolError
from interlock.serving.requests.body import Census
from interlock.serving.tools.reach import Reach

if TYPE_CHECKING or not version("mcp").startswith("1."):
    import httpx2
else:  # what the first version of `mcp` is written for
    import httpx as httpx2

__all__ = ["LIMIT", "http_client", "httpx2"]

LIMIT: Final = 1_000_000
"""Bytes that one answer may have, or one event where the answer is a stream; a little less than the `mcp` package's limit."""

MOST_VALUES: Final = 20_000
"""JSON values that one answer or event may have: `mcp` reads and checks them in one go, in which a server does nothing else."""

CONNECT_SECONDS: Final = 10.0

REFUSALS: Final[Mapping[int, str]] = {
    401: "The server refuses the authorization (HTTP 401).",
    403: "The server refuses access (HTTP 403).",
    407: "The server refuses the authorization (HTTP 407).",
}
"""What `mcp` would only report as an error."""

EVENT_STREAM: Final = "text/event-stream"
BLANK_LINE: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
"""What ends an event."""


class TooLarge(httpx2.StreamError):
    """An answer has more bytes or values than it may have."""


def explained(error: Exception) -> str:
    """Return what went wrong below in words that are for whoever reads the stream.

    Args:
        error: From HTTP, or from here.
    """
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
            return f"The server cannot be talked to: {error}"


class Bounded(httpx2.AsyncByteStream):
    """An answer's bytes, which end with an error where there are too many.

    Args:
        stream: The bytes.
        events: Whether they are events, each of which may have as many as another answer has in all.
        faults: Where it is noted what went wrong, for `mcp` may say no more than that the connection is closed.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, faults: list[str], *, events: bool) -> None:
        self._stream = stream
        self._faults = faults
        self._events = events
        self._size, self._census = 0, Census()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Pass the bytes on.

        Raises:
            TooLarge: There are too many.
        """
        last = b""
        try:
            async for piece in self._stream:
                start = 0
                for end in BLANK_LINE.finditer(last + piece) if self._events else ():
                    after = max(start, end.end() - len(last))
                    self._count(piece[start:after])
                    self._size, self._census, start = 0, Census(), after
                self._count(piece[start:])
                last = (last + piece)[-3:]
                yield piece
        except (TooLarge, httpx2.HTTPError) as error:
            self._faults.append(explained(error))
            raise

    def _count(self, piece: bytes) -> None:
        self._size += len(piece)
        self._census.count(piece)
        if self._size > LIMIT:
            raise TooLarge(f"The answer is larger than {LIMIT} bytes.")
        if self._census.values > MOST_VALUES:
            raise TooLarge(f"The answer holds more than {MOST_VALUES} JSON values.")

    async def aclose(self) -> None:
        """Close the stream below."""
        await self._stream.aclose()


class Guarded(httpx2.AsyncBaseTransport):
    """A transport that asks for every request whether and where it may go.

    Args:
        reach: What may be reached; None if the operator chose the URL.
        faults: Where it is noted what went wrong.
    """

    def __init__(self, reach: Reach | None, faults: list[str]) -> None:
        self._reach = reach
        self._faults = faults
        self._inner = httpx2.AsyncHTTPTransport(verify=_certificates())

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request.

        Raises:
            ToolError: It may not go there, or the server refuses it, or the answer is packed.
            HTTPError: The server cannot be reached, or does not speak HTTP.
        """
        try:
            return await self._judged(await self._sent(request))
        except (ToolError, httpx2.HTTPError) as error:
            self._faults.append(explained(error))
            raise

    async def _judged(self, response: httpx2.Response) -> httpx2.Response:
        """Return an answer with its limits, if it is one that is taken.

        Raises:
            ToolError: It is not.
        """
        refusal = REFUSALS.get(response.status_code)
        if refusal is None and response.headers.get("content-encoding", "identity") != "identity":
            refusal = "The server packs its answers, although it was asked not to."  # a small one may unpack to a huge one
        if refusal is not None:
            await response.aclose()
            raise ToolError(refusal)
        events = response.headers.get("content-type", "").startswith(EVENT_STREAM)
        response.stream = Bounded(cast("httpx2.AsyncByteStream", response.stream), self._faults, events=events)
        return response

    async def _sent(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to the first of its host's addresses that can be reached; all of them were judged before."""
        if self._reach is None:
            return await self._inner.handle_async_request(request)
        url = request.url
        addresses = await self._reach.resolve(url.host, url.port or (443 if url.scheme == "https" else 80))
        for address in addresses[:-1]:
            with suppress(httpx2.ConnectError, httpx2.ConnectTimeout):
                return await self._inner.handle_async_request(_addressed(request, address))
        return await self._inner.handle_async_request(_addressed(request, addresses[-1]))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def _addressed(request: httpx2.Request, address: str) -> httpx2.Request:
    """Return a request with an address in place of its host's name, which TLS still asks for."""
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": request.url.host},
    )


@cache
def _certificates() -> ssl.SSLContext:
    """Return the certificates that are trusted, which take long to read."""
    return httpx2.create_ssl_context()


def http_client(
    headers: Mapping[str, str] | None = None,
    timeout: httpx2.Timeout | None = None,  # noqa: ARG001 - of the signature that `mcp` calls; a session times itself
    auth: httpx2.Auth | None = None,
    *,
    reach: Reach | None,
    faults: list[str],
) -> httpx2.AsyncClient:
    """Create the client of one session.

    Args:
        headers: What every request carries.
        timeout: Not used: a session has its own limits of time.
        auth: Signs the requests.
        reach: What may be reached; None if the operator chose the URL.
        faults: Where it is noted what went wrong.
    """
    return httpx2.AsyncClient(
        transport=Guarded(reach, faults),
        headers={**(headers or {}), "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
        auth=auth,
        follow_redirects=False,
        trust_env=False,  # no proxy and no .netrc may lead elsewhere
    )
