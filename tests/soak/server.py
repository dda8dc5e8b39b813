"""A server to be soaked: `python -m soak.server`, which writes its URL and then serves until it is ended.

It is `interlock serve` with an engine that breaks when it is told to, small stores, so that they fill within seconds, and a page
that tells how many tasks there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.errors import EngineError
from interlock.serving.http import server
from interlock.serving.http.app import create_app
from interlock.serving.requests.values import elements, members
from interlock.serving.store import MemoryStore

MIB = 2**20
STORED = 4 * MIB
"""Bytes of stored responses, and of those in the background."""

BREAK = "break"
"""The last word of a user's message after which the engine breaks, in the middle of its answer."""

BEFORE = 12
"""Steps that it yields until then."""


class BreakingEngine(EmbeddedEngine):
    """The embedded engine, which breaks when it is told to."""

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Yield the output of a turn, or a part of it.

        Raises:
            EngineError: It was told to break.
        """
        breaks = _last_words(turn).endswith(BREAK)
        made = 0
        async with aclosing(super().generate(turn)) as outputs:
            async for output in outputs:
                yield output
                made += 1
                if breaks and made == BEFORE:
                    raise EngineError("It was told to break.")


def _last_words(turn: Turn) -> str:
    """Return the text of the last message."""
    content = turn.items[-1].get("content")
    return content if isinstance(content, str) else "".join(str(members(part).get("text")) for part in elements(content))


async def _tasks(_request: Request) -> JSONResponse:
    return JSONResponse({"tasks": len(asyncio.all_tasks())})


def main() -> None:
    """Serve on a free port of the loopback."""
    app = create_app(BreakingEngine(), store=MemoryStore(max_bytes=STORED))
    app.router.routes.append(Route("/tasks", _tasks))
    listening = server.listen("127.0.0.1", 0)
    server.serve(app, listening, on_ready=lambda: print(server.url_of(listening), flush=True))  # noqa: T201 - for who started it


if __name__ == "__main__":
    main()
