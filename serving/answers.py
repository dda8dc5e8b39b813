"""The two answers that a response can be: a stream of its events, or the response in one piece once it has ended.

Both are ASGI applications over the same run (rule R19). They know HTTP and when a client has gone, not how a response is
made; `OpenRuns` holds the runs for whoever has to end them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Final, Generic, Protocol, TypeVar

from attrs import define, field, frozen
from starlette.types import Receive, Scope, Send

from interlock.events.dialects import Dialect
from interlock.events.json import dumps
from interlock.events.sse import CONTENT_TYPE, DONE_FRAME
from interlock.fsm.deltas import Cancel, Fault
from interlock.serving.conversation import Item
from interlock.serving.identity import random_id
from interlock.serving.store import ResponseStore, StoredResponse
from interlock.serving.turns import ResponseRun

__all__ = ["Exchange", "OpenRuns", "StreamedAnswer", "WholeAnswer"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

STREAM_HEADERS: Final = (
    (b"content-type", CONTENT_TYPE.encode()),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # read by nginx: every event is passed on at once
)

ID_PREFIXES: Final = {"message": "msg", "reasoning": "rs"}
"""What the ids of input items begin with; those of calls and their results follow the API as `fc`."""

SHUTDOWN: Final = Fault("server_error", "The server is shutting down.")
"""How the responses end that a shutdown meets: failed and not cancelled, because it is not what their clients asked for."""


class Interruptible(Protocol):
    """A run, as far as it can be ended from outside."""

    def interrupt(self, ending: Fault | Cancel) -> None:
        """End it as soon as possible, and legally."""
        ...


@define(eq=False)
class OpenRuns:
    """The runs that are going on in one server."""

    _runs: set[Interruptible] = field(factory=set[Interruptible], init=False)
    _ending: Fault | None = field(default=None, init=False)

    @contextmanager
    def holding(self, run: Interruptible) -> Generator[None]:
        """Hold a run while it goes on; after `end` it ends at once."""
        if self._ending is not None:
            run.interrupt(self._ending)
        self._runs.add(run)
        try:
            yield
        finally:
            self._runs.remove(run)

    def end(self, ending: Fault = SHUTDOWN) -> None:
        """End all runs, and those that are still to come."""
        self._ending = ending
        for run in self._runs:
            run.interrupt(ending)

    def __len__(self) -> int:
        """Give how many there are."""
        return len(self._runs)


@frozen
class Exchange(Generic[T]):
    """A run, and those who have to do with it.

    Args:
        run: What makes the response.
        open_runs: Holds it while it goes on.
        store: Holds the response when it has ended; None if that is not wanted.
    """

    run: ResponseRun[T]
    open_runs: OpenRuns
    store: ResponseStore | None

    @asynccontextmanager
    async def events(self, receive: Receive) -> AsyncGenerator[AsyncGenerator[list[T], None]]:
        """Give the run's events; while they are read, a client that goes away cancels the run (rule R4)."""
        watch = asyncio.create_task(self._watch(receive))
        try:
            with self.open_runs.holding(self.run):
                async with aclosing(self.run.events()) as events:
                    yield events
        finally:
            watch.cancel()
            await asyncio.wait([watch])

    async def keep(self) -> None:
        """Store the response that has ended, if it is wanted; before its client knows that it has, so that it may go on."""
        response = self.run.driver.response
        if self.store is None or response["status"] == "cancelled":
            return
        items = tuple(item if item.get("id") else {**item, "id": _item_id(item)} for item in self.run.items)
        try:
            await self.store.put(StoredResponse(response, items))
        except Exception:
            logger.exception("%s: it could not be stored", response["id"])

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.run.interrupt(Cancel())


def _item_id(item: Item) -> str:
    return random_id(ID_PREFIXES.get(str(item["type"]), "fc"))


@frozen
class StreamedAnswer:
    """Answers with the stream: one write for each step of the run, and never a part of an event (rule R5)."""

    exchange: Exchange[bytes]

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head at once, then each step's frames when they come; the last with the end marker (rule R3)."""
        await send({"type": "http.response.start", "status": 200, "headers": list(STREAM_HEADERS)})
        driver = self.exchange.run.driver
        async with self.exchange.events(receive) as events:
            async for frames in events:
                ended = driver.ended
                if ended:
                    await self.exchange.keep()
                    frames.append(DONE_FRAME)
                await send({"type": "http.response.body", "body": b"".join(frames), "more_body": not ended})


@frozen
class WholeAnswer:
    """Answers with the response object of the terminal event that a stream would have had (rule R19).

    That is so for a failed response too: its status is 200, for the request was well, and its `status` is `failed`.
    """

    exchange: Exchange[None]
    dialect: Dialect

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for the end of the run, then send the response."""
        async with self.exchange.events(receive) as events:
            async for _ in events:
                pass
            await self.exchange.keep()
            body = dumps(self.dialect.spoken(self.exchange.run.driver.response))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
