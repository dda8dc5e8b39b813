"""The server of `interlock view`: pages and their lines, for whoever knows the address, which nobody can guess.

It listens on this machine alone. Another page in the same browser cannot read from it: it does not know the path.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from attrs import define, field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from interlock.serving.view.feed import Feed
from interlock.serving.view.page import HEADERS, served

NDJSON = "application/x-ndjson"


@define(eq=False)
class Site:
    """One page, and those that it links to.

    Args:
        title: Of the page.
        feed: Its lines.
        others: Makes the title and the lines of another page by its number, and returns None if there is none.
    """

    title: str
    feed: Feed
    others: Callable[[int], tuple[str, Feed] | None] = lambda _number: None
    path: str = field(factory=lambda: f"/{secrets.token_urlsafe(16)}/", init=False)
    """Where the page is."""

    def app(self) -> Starlette:
        """Return the server as an ASGI application."""
        return Starlette(
            routes=[
                Route(self.path, self._page),
                Route(f"{self.path}lines", self._lines),
                Route(f"{self.path}{{number:int}}/", self._page),
                Route(f"{self.path}{{number:int}}/lines", self._lines),
            ]
        )

    def _asked(self, request: Request) -> tuple[str, Feed] | None:
        number = request.path_params.get("number")
        return (self.title, self.feed) if number is None else self.others(number)

    async def _page(self, request: Request) -> Response:
        asked = self._asked(request)
        return HTMLResponse(served(asked[0]), headers=HEADERS) if asked else Response(status_code=404)

    async def _lines(self, request: Request) -> Response:
        asked = self._asked(request)
        if asked is None:
            return Response(status_code=404)
        return StreamingResponse(asked[1].read(), media_type=NDJSON, headers=HEADERS)
