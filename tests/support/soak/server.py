"""A server to be soaked: `python -m soak.server`, which writes its URL and then serves until it is ended.

It is `interlock serve` with an engine that breaks or chatters when it is told to, small stores, so that they fill within seconds,
and a page that tells what it holds.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from ctypes import CDLL, Structure, c_size_t

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from interlock.events.json import elements, members
from interlock.serving.build import build
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.engines.engine import EngineOutput, Turn
from interlock.serving.http import server
from interlock.serving.requests.api_errors import EngineError
from interlock.serving.settings import Settings
from interlock.serving.store.sqlite import MemoryStore

MIB = 2**20
STORED = 4 * MIB
"""Bytes of stored responses, and of those in the background."""

BREAK = "break"
"""The last word of a user's message that makes the engine fail in the middle of its answer."""

STEPS_BEFORE = 12
"""The steps before the failure."""

CHATTER = "chatter"
"""The last word of a user's message that makes the engine repeat one of its chunks."""

REPEATS = 2_000
"""The repetitions: half a megabyte of events, more than the system buffers for a client that does not read."""


class Mallinfo(Structure):
    """The figures of glibc about its memory (mallinfo2), in bytes or counts."""

    _fields_ = tuple(
        (name, c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    )


class BreakingEngine(EmbeddedEngine):
    """The embedded engine, which fails or repeats itself on request."""

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Yield the output of a turn, or a part of it.

        Raises:
            EngineError: It was told to break.
        """
        words = _last_words(turn)
        breaks, remaining = words.endswith(BREAK), REPEATS if words.endswith(CHATTER) else 0
        count = 0
        async with aclosing(super().generate(turn)) as outputs:
            async for output in outputs:
                yield output
                count += 1
                if remaining and count > STEPS_BEFORE and "content" in (output.chunk.delta or {}):
                    for _ in range(remaining):
                        yield output
                    remaining = 0
                if breaks and count == STEPS_BEFORE:
                    raise EngineError("It was told to break.")


def _last_words(turn: Turn) -> str:
    """Return the text of the last message."""
    content = turn.items[-1].get("content")
    return content if isinstance(content, str) else "".join(str(members(part).get("text")) for part in elements(content))


def _allocated() -> int:
    """Return the bytes that glibc has allocated, except for Python's small objects; 0 without glibc."""
    try:
        ask = CDLL(None).mallinfo2
    except AttributeError:
        return 0
    ask.restype = Mallinfo
    info = ask()
    return int(info.uordblks + info.hblkhd)


def _figures(store: MemoryStore) -> Callable[[Request], Awaitable[JSONResponse]]:
    async def tell(_request: Request) -> JSONResponse:
        return JSONResponse(
            {
                "tasks": len(asyncio.all_tasks()),
                "stored, KiB": store.stored_bytes / 1024,
                "Python's blocks": sys.getallocatedblocks(),
                "allocated by others, KiB": _allocated() / 1024,
            }
        )

    return tell


def main() -> None:
    """Serve on a free port of the loopback."""
    store = MemoryStore(max_bytes=STORED)
    app = build(Settings(), BreakingEngine(), store=store)
    app.router.routes.append(Route("/figures", _figures(store)))
    listening = server.listen("127.0.0.1", 0)
    server.serve(app, listening, on_ready=lambda: print(server.url_of(listening), flush=True))  # noqa: T201 - for who started it


if __name__ == "__main__":
    main()
