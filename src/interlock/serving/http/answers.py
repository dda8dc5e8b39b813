"""The answers that a response can be: its stream, the whole of it once it has ended, or the stream of one in the background.

They are ASGI applications over the same runs (rule R19). They know HTTP and when a client has gone, not how a response is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, Generic, TypeVar

from attrs import frozen
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from interlock.events.dialects import Dialect
from interlock.events.json import dumps
from interlock.events.sse import CONTENT_TYPE, DONE_FRAME
from interlock.fsm.deltas import Cancel
from interlock.serving.responses.active_runs import ActiveRuns
from interlock.serving.responses.log import Tail
from interlock.serving.responses.run import Run

__all__ = ["Exchange", "KeptAnswer", "StreamedAnswer", "WholeAnswer", "unless_gone"]

T = TypeVar("T")

STREAM_HEADERS: Final = (
    (b"content-type", CONTENT_TYPE.encode()),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # read by nginx: every event is passed on at once
)


@frozen
class Exchange(Generic[T]):
    """A run, and those who have to do with it.

    Args:
        run: What makes the response.
        active_runs: Holds it while it goes on.
    """

    run: Run[T]
    active_runs: ActiveRuns

    @asynccontextmanager
    async def events(self, receive: Receive) -> AsyncGenerator[AsyncGenerator[list[T], None]]:
        """Yield the run's events; while they are read, a client that goes away cancels the run (rule R4)."""
        watch = asyncio.create_task(self._watch(receive))
        try:
            with self.active_runs.track(self.run):
                async with aclosing(self.run.events()) as events:
                    yield events
        finally:
            watch.cancel()
            await asyncio.wait([watch])

    async def _watch(self, receive: Receive) -> None:
        await _gone(receive)
        self.run.interrupt(Cancel())


@frozen
class StreamedAnswer:
    """Answers with the stream: one write for each step of the run, and never a part of an event (rule R5)."""

    exchange: Exchange[bytes]

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head at once, then each step's frames when they come; the last with the end marker (rule R3).

        The end is sent even if this task is cancelled (rule R4); a client that has gone does not read it.
        """
        await send({"type": "http.response.start", "status": 200, "headers": list(STREAM_HEADERS)})
        unsent: Sequence[bytes] = ()
        try:
            async with self.exchange.events(receive) as events:
                async for frames in events:
                    unsent = frames
                    message = self._message(frames)
                    unsent = ()
                    await send(message)
        finally:
            if rest := [*unsent, *self.exchange.run.conclude()]:
                await send(self._message(rest))

    def _message(self, frames: Sequence[bytes]) -> Message:
        """Return what sends frames; apart from `send`, so that no coroutine of ours stands between a run and the server."""
        ended = self.exchange.run.driver.ended
        body = b"".join([*frames, DONE_FRAME] if ended else frames)
        return {"type": "http.response.body", "body": body, "more_body": not ended}


@frozen
class WholeAnswer(Generic[T]):
    """Answers with the response object of the terminal event that a stream would have had (rule R19).

    That is so for a failed response too: its status is 200, for the request was well, and its `status` is `failed`.
    """

    exchange: Exchange[T]
    dialect: Dialect

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for the end of the run, then send the response; it does not wait for the engine and the tools to be closed."""
        async with self.exchange.events(receive) as events:
            async for _ in events:
                pass
            body = dumps(self.dialect.spoken(self.exchange.run.driver.response))
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})


@frozen
class KeptAnswer:
    """Answers with the stream of a response in the background; a reader that goes away does not end it.

    Args:
        tail: Reads its events.
    """

    tail: Tail

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head at once, then what is there, and then what comes, until the response or the reader ends."""
        await send({"type": "http.response.start", "status": 200, "headers": list(STREAM_HEADERS)})
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            sending.cancel()
            await asyncio.wait([sending, leaving])

    async def _send(self, send: Send) -> None:
        async with aclosing(self.tail.frames()) as kept:
            async for frames in kept:
                await send({"type": "http.response.body", "body": b"".join(frames), "more_body": True})
        await send({"type": "http.response.body", "body": DONE_FRAME, "more_body": False})


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do the work of a request whose body was read; a client that goes away stops it.

    Args:
        receive: The request's.
        work: What is done before the answer begins.

    Raises:
        ClientDisconnect: The client went away.
    """
    doing, leaving = asyncio.create_task(work), asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait([doing, leaving], return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise ClientDisconnect
    finally:
        for task in (doing, leaving):
            task.cancel()
        await asyncio.wait([doing, leaving])


async def _gone(receive: Receive) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
