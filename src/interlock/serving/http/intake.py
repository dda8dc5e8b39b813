"""What stands before a request's meaning: its content type, the size of its body, and the key of whoever sends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from typing import Final

from attrs import define, frozen
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from interlock.events.json import dumps
from interlock.serving.http.decoding import decoder_for
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.api_keys import TENANT, Keys
from interlock.serving.requests.body import JsonBudget
from interlock.serving.requests.containment import panics_as_errors
from interlock.serving.requests.yielder import Yielder

__all__ = ["MAX_BODY_BYTES", "FaultBarrier", "KeyGate", "decompressed", "error_response", "is_foreign_page", "read_body"]

JSON: Final = "application/json"

MAX_BODY_BYTES: Final = 32 * 2**20

DISCARDED: Final = 64 * 2**20
"""Bytes of a body that is too large which are still read, so that its sender gets to read the answer."""


def error_response(error: ApiError, headers: dict[str, str] | None = None) -> Response:
    """Return the answer that an error is.

    Args:
        error: What went wrong.
        headers: Further headers.
    """
    return Response(dumps(error.body()), error.status, headers, JSON)


async def read_body(request: Request, max_bytes: int, yielder: Yielder | None = None) -> bytes:
    """Read the body of a request that is said to be JSON.

    Args:
        request: The request.
        max_bytes: How many bytes it may have.
        yielder: Of the work that this is a part of.

    Raises:
        ApiError: 415 if it is not said to be JSON (nothing said included, for that is what a browser sends for a foreign
            page without asking) or nobody knows how it is compressed, 413 if it is too large, or holds too many values, 400
            if it cannot be decompressed.
        ClientDisconnect: The client went away.
    """
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != JSON:
        message = f"Unsupported content type: '{given[:100]}'. This method only accepts '{JSON}'."
        raise ApiError(415, message, code="unsupported_content_type")
    body, budget = bytearray(), JsonBudget()
    async with aclosing(decompressed(request, max_bytes, yielder)) as parts:
        async for part in parts:
            if not budget.too_many:
                budget.count(part)
                body += part
    budget.require_few()
    return bytes(body)


async def decompressed(request: Request, max_bytes: int, yielder: Yielder | None = None) -> AsyncGenerator[bytes, None]:
    """Yield the body of a request as it was before its client compressed it, in slices, with others in between.

    A body that is refused is read to its end all the same, so that its sender gets to read the answer.

    Args:
        request: The request.
        max_bytes: How many bytes the body may have, compressed and decompressed.
        yielder: Of the work that this is a part of.

    Raises:
        ApiError: 415 if nobody knows how it is compressed, 413 if it is too large, 400 if it cannot be decompressed.
        ClientDisconnect: The client went away.
    """
    decoder = decoder_for(request.headers.get("content-encoding", ""))
    refusal: ApiError | None = None
    yielder = yielder or Yielder()
    received = size = 0
    async for piece in request.stream():
        received += len(piece)
        if received > max_bytes + DISCARDED:
            break
        try:
            for part in () if refusal else (piece,) if decoder is None else decoder.parts(piece):
                size += len(part)
                _require_room(max(size, received), max_bytes)
                yield part
                await (yielder.checkpoint() if decoder is None else asyncio.sleep(0))
        except ApiError as error:
            refusal = error
    if refusal is not None:
        raise refusal
    _require_room(received, max_bytes)
    if decoder is not None:
        decoder.end()


def _require_room(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ApiError(413, f"The body of the request is larger than {max_bytes} bytes.", code="request_too_large")


def is_foreign_page(connection: HTTPConnection, origins: AbstractSet[str]) -> bool:
    """Return whether a page of another origin asks, which a browser lets every page do over a WebSocket.

    Args:
        connection: What is asked.
        origins: The origins that may ask; `*` for all.
    """
    origin = connection.headers.get("origin")
    if origin is None or origin in origins or "*" in origins:
        return False
    _, _, place = origin.partition("://")
    return place != connection.headers.get("host")


@frozen
class FaultBarrier:
    """An ASGI middleware that turns every fault into an `Exception`, which is answered with an error body.

    Args:
        app: What is behind it.
    """

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on.

        Raises:
            PanicError: Its cause was raised, and is no `Exception`.
        """
        with panics_as_errors():
            await self.app(scope, receive, send)


@define(eq=False)
class KeyGate:
    """An ASGI middleware that lets nobody in without a key, but for the paths that are open; it notes whose the key is.

    Args:
        app: What is behind it.
        keys: The API keys.
        open_paths: The paths that need no key.
    """

    app: ASGIApp
    keys: Keys
    open_paths: frozenset[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request or a WebSocket on, or refuse it before anything is read; the server's own life passes."""
        app: ASGIApp = self.app
        if scope["type"] in {"http", "websocket"} and scope["path"] not in self.open_paths:
            authorization = Headers(scope=scope).get("authorization", "")
            tenant = self.keys.tenant(authorization)
            if tenant is None:
                app = _refusal(authorization)
            else:
                scope[TENANT] = tenant
        await app(scope, receive, send)


def _refusal(authorization: str) -> Response:
    message = "Incorrect API key provided." if authorization else "You didn't provide an API key (Authorization: Bearer KEY)."
    return error_response(ApiError(401, message, code="invalid_api_key"), {"www-authenticate": "Bearer"})
