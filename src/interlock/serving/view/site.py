"""The server of `interlock view`: pages and their lines, for those who know the address, which cannot be guessed.

It listens on this machine alone. Another page in the same browser cannot read from it: it does not know the path.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Final

from attrs import define, field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from interlock.serving.view.event_lines import Line, encoded
from interlock.serving.view.page import HEADERS, NDJSON, served

_POLL_SECONDS: Final = 0.05


@define(eq=False)
class _Feed:
    """The lines of one page: read once, in a thread, for any number of readers, who wait in their event loop.

    Args:
        batches: The lines; those of a batch are sent together. Taking one may block.
    """

    batches: Iterable[Iterable[Line]]
    _chunks: list[bytes] = field(factory=list[bytes], init=False)
    _thread: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Start to read."""
        self._thread = threading.Thread(target=self._fill, name="interlock-view", daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        for batch in self.batches:
            self._chunks.append(encoded(batch))

    async def read(self) -> AsyncGenerator[bytes]:
        """Yield all lines from the first, as they come."""
        sent = 0
        while True:
            ended = not self._thread.is_alive()
            chunks = self._chunks[sent:]
            sent += len(chunks)
            for chunk in chunks:
                yield chunk
            if ended:
                return
            if not chunks:
                await asyncio.sleep(_POLL_SECONDS)


@define(eq=False)
class Site:
    """A page, and those that it links to.

    Args:
        title: The title of all pages.
        batches: The lines of the page; taking a batch may block.
        pages: Functions that make the lines of the other pages, which are linked by number.
    """

    title: str
    batches: Iterable[Iterable[Line]]
    pages: Sequence[Callable[[], Iterable[Iterable[Line]]]] = ()
    path: str = field(factory=lambda: f"/{secrets.token_urlsafe(16)}/", init=False)
    """The path of the page."""
    _feed: _Feed = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Start to read the page's lines."""
        self._feed = _Feed(self.batches)

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

    async def _page(self, request: Request) -> Response:
        if _number(request) >= len(self.pages):
            return Response(status_code=404)
        return HTMLResponse(served(self.title), headers=HEADERS)

    async def _lines(self, request: Request) -> Response:
        number = _number(request)
        if number >= len(self.pages):
            return Response(status_code=404)
        feed = self._feed if number < 0 else _Feed(self.pages[number]())
        return StreamingResponse(feed.read(), media_type=NDJSON, headers=HEADERS)


def _number(request: Request) -> int:
    """Return the number of the page that a request is for; -1 for the first page."""
    return int(request.path_params.get("number", -1))
