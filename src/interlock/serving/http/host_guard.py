"""Refuses requests for foreign hosts. In a browser, a page whose name leads to this machine (DNS rebinding) sends them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from attrs import frozen
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from interlock.serving.http.answers import error_response, speaks_messages
from interlock.serving.requests.api_errors import ApiError

HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]*))(?::\d+)?")
"""Matches a `Host` header; its groups are an IPv6 address, and any other host."""

OPEN_PATHS: Final = frozenset({"/health", "/ready"})
"""The paths of the probes, which need neither a key nor a host."""

SHOWN: Final = 200
"""The most characters of a host that an error shows."""


@frozen
class HostGuard:
    """ASGI middleware that requires a `Host` among `allowed`, names or patterns with `*`; `OPEN_PATHS` need none."""

    app: ASGIApp
    allowed: Sequence[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] != "lifespan" and scope["path"] not in OPEN_PATHS:
            sent = Headers(scope=scope).get("host", "")
            match = HOST.fullmatch(sent)
            host = "" if match is None else (match[1] or match[2]).lower().rstrip(".")
            if not any(fnmatchcase(host, pattern.lower()) for pattern in self.allowed):
                message = (
                    f"The host '{sent[:SHOWN]}' is not allowed. The operator of the server can allow it with --allowed-host."
                )
                error = ApiError(403, message, code="host_not_allowed")
                app = error_response(error, in_messages=speaks_messages(HTTPConnection(scope)))
        await app(scope, receive, send)
