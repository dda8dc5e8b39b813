"""The log of a response in the background, as any process reads it: committed events alone, from any number to the end.

A reader misses nothing and repeats nothing, because it asks the store for what follows on the last event that it has, and a
wake-up only tells it to ask again. It never waits for an owner that is lost: it takes over and ends the response itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Final, cast

from attrs import frozen

from interlock.events.dialects import OPEN_RESPONSES, OPENAI, Dialect
from interlock.events.json import dumps
from interlock.events.sse import SseWriter
from interlock.fsm.deltas import Cancel, Fault
from interlock.fsm.driver import ResponseDriver
from interlock.serving.requests.identity import now, random_id
from interlock.serving.store.interface import ResponseStore
from interlock.serving.store.records import Lease, Log, StoredResponse
from interlock.serving.store.store_errors import LeaseLost, StoreDown

__all__ = ["LOOK", "Tail", "adopt", "taken_up", "whole_log"]

logger = logging.getLogger(__name__)

LIMIT: Final = 256
"""Events that are read at once."""

LOOK: Final = 1.0
"""Seconds after which a reader looks again, woken or not."""

LOST: Final = Fault("server_error", "The server that made the response was lost.")
"""How a response ends whose owner is gone."""

_OPEN_RESPONSES: Final = tuple(f"event: {name}\n".encode() for name in OPEN_RESPONSES.event_names.values())
"""How the events begin that OpenAI's dialect calls otherwise."""


@frozen(eq=False)
class Tail:
    """A reader of one response's log.

    Args:
        store: Where the log is.
        tenant: To whom the response belongs.
        response_id: Its id.
        reader: Who takes over if the owner is lost: a name for this process.
        start: The number of the first event that is wanted.
    """

    store: ResponseStore
    tenant: str
    response_id: str
    reader: str
    start: int = 0

    async def frames(self) -> AsyncGenerator[Sequence[bytes], None]:
        """Yield the events, those that are there at once, the others when they are committed, until the response has ended.

        If they are removed before they were read, an `error` event is the last one: it has the number that follows.
        """
        following, dialect = self.start, OPENAI
        with self.store.watching(self.tenant, self.response_id) as watch:
            while True:
                log = await self._read(following)
                if log is None or following < log.oldest:
                    yield [_gone(following, dialect)]
                    return
                if log.frames:
                    following += len(log.frames)
                    dialect = _dialect_of(log.frames) if dialect is OPENAI else dialect
                    yield log.frames
                elif log.state == "ended":
                    return
                elif log.state != "lost" or not await self._take_over():
                    await watch.wait(LOOK)

    async def _read(self, first: int) -> Log | None:
        """Read on; a store that is down is waited for, because what it has committed is still there."""
        while True:
            try:
                return await self.store.read(self.tenant, self.response_id, first, LIMIT)
            except StoreDown:
                await asyncio.sleep(LOOK)

    async def _take_over(self) -> bool:
        try:
            return await adopt(self.store, self.tenant, self.response_id, self.reader)
        except StoreDown:
            return False


async def adopt(store: ResponseStore, tenant: str, response_id: str, owner: str) -> bool:
    """Take over a response whose owner is lost, and end it by its failure edges: nothing is generated again.

    Args:
        store: Where it is.
        tenant: To whom it belongs.
        response_id: Its id.
        owner: A name for this process.

    Returns:
        Whether it was there to be taken, and has ended now.

    Raises:
        StoreDown: The store cannot be used now.
    """
    lease = await store.adopt(tenant, response_id, owner)
    stored = None if lease is None else await store.get(tenant, response_id)
    if lease is None or stored is None:
        return False
    frames, log = await whole_log(store, tenant, response_id)
    ending = Cancel() if log is not None and log.cancelled else LOST
    try:
        await _end(store, lease, stored, frames, ending)
    except LeaseLost:
        return False
    logger.warning("%s: its server was lost, and it was ended here", response_id)
    return True


async def _end(
    store: ResponseStore, lease: Lease, stored: StoredResponse, frames: Sequence[bytes], ending: Fault | Cancel
) -> None:
    driver = await asyncio.to_thread(taken_up, stored, frames)
    last = driver.feed([ending])
    await store.finish(lease, len(frames), last, StoredResponse(driver.response, stored.items))


async def whole_log(store: ResponseStore, tenant: str, response_id: str) -> tuple[list[bytes], Log | None]:
    """Return all events of a log, and its last part; None if there is no such response.

    Args:
        store: Where it is.
        tenant: To whom the response belongs.
        response_id: Its id.

    Raises:
        StoreDown: The store cannot be used now.
    """
    frames: list[bytes] = []
    while True:
        log = await store.read(tenant, response_id, len(frames), LIMIT)
        if log is None or not log.frames:
            return frames, log
        frames += log.frames


def taken_up(stored: StoredResponse, frames: Sequence[bytes]) -> ResponseDriver[bytes]:
    """Return a driver that goes on where a log ends, in the log's dialect.

    Args:
        stored: The response as it was enqueued.
        frames: All events of its log.

    Raises:
        ValueError: The log is none that a driver has made.
    """
    response = stored.response
    driver = ResponseDriver(
        response,
        writer=SseWriter(_dialect_of(frames)),
        ids=random_id,
        clock=now,
        response_id=stored.id,
        created_at=cast("int", response["created_at"]),
    )
    driver.take_up(frames)
    return driver


def _dialect_of(frames: Sequence[bytes]) -> Dialect:
    """Return the dialect of a log; where nothing in it tells, both would write the same end."""
    return OPEN_RESPONSES if any(frame.startswith(_OPEN_RESPONSES) for frame in frames) else OPENAI


def _gone(number: int, dialect: Dialect) -> bytes:
    """Return what ends the stream of a reader whose response was deleted, or has expired, before he had read its end."""
    message = "The events of the response are stored no longer: it was deleted, or has expired."
    said = {"type": "error", "sequence_number": number, "code": "events_expired", "message": message, "param": None}
    return b"event: error\ndata: %b\n\n" % dumps(dialect.spoken(said))
