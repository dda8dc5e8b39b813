"""The frame around each request: its id, its trace, and its faults."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping
from typing import Final

from attrs import frozen
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlock.embedding import random_id
from interlock.serving import traces
from interlock.serving.requests.logs import begin_logs
from interlock.serving.requests.runtime import panics_as_errors

HEADER: Final = "x-request-id"
MESSAGES_PATH: Final = "/v1/messages"
MESSAGES_HEADER: Final = "request-id"
"""The header in which Anthropic's SDKs read the id."""
SANE: Final = re.compile(r"[!-~]{1,128}")
"""Matches an id that may be logged and sent back: visible ASCII."""
STARTS: Final = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
"""The ASGI messages that have the headers of an answer."""


def name_request(headers: Mapping[str, str]) -> str:
    """Return the id of a request, the client's own `x-request-id` or a new one, and begin its logs."""
    sent = headers.get(HEADER, "")
    request_id = sent if SANE.fullmatch(sent) else random_id("req")
    begin_logs(request_id)
    return request_id


@frozen
class RequestFrame:
    """ASGI middleware around all other.

    It gives each request an id, which the log and the answer have, and continues the request's trace. A fault that is not an
    `Exception` becomes one, so that the client receives an error body.
    """

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with panics_as_errors():
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
                return
            headers = Headers(scope=scope)
            request_id = name_request(headers)
            send = add_header(send, HEADER, request_id)
            if scope["path"].startswith(MESSAGES_PATH):
                send = add_header(send, MESSAGES_HEADER, request_id)
            with traces.continue_trace(headers):
                await self.app(scope, receive, send)


def add_header(send: Send, name: str, value: str) -> Send:
    """Return a `send` that adds a header to the answer."""
    header = (name.encode(), value.encode())

    def send_with_header(message: Message) -> Awaitable[None]:  # no coroutine of its own, because streams send many messages
        if message["type"] in STARTS:
            message = {**message, "headers": [*message.get("headers", ()), header]}
        return send(message)

    return send_with_header
