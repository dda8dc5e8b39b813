"""The event log of a background response, as any process reads it.

A reader asks the store for the committed events after its last one, so it misses none and repeats none; a notification only makes
it ask sooner. If the owner is lost, the reader takes over and ends the response itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Final, cast

from attrs import frozen

from interlock.events.dialects import OPEN_RESPONSES, OPENAI, Dialect
from interlock.events.json import dumps
from interlock.events.sse import SseWriter
from interlock.fsm.deltas import Cancel, Fault
from interlock.fsm.driver import ResponseDriver
from interlock.serving.requests.identity import now, random_id
from interlock.serving.store import LeaseLost, Log, ResponseStore, StoreDown, StoredResponse

__all__ = ["POLL_SECONDS", "Tail", "adopt", "read_log", "resume_driver"]

logger = logging.getLogger(__name__)

PAGE: Final = 256
"""Events in one read."""

POLL_SECONDS: Final = 1.0
"""Seconds after which a reader reads again without a notification."""

LOST: Final = Fault("server_error", "The server that made the response was lost.")
"""The end of a response whose owner is lost."""

_OPEN_RESPONSES: Final = tuple(f"event: {name}\n".encode() for name in OPEN_RESPONSES.event_names.values())
"""The beginnings of events that have another name in OpenAI's dialect."""


@frozen(eq=False)
class Tail:
    """A reader of one response's log, from the event with the number `start` on."""

    store: ResponseStore
    tenant: str
    response_id: str
    owner: str
    """The name of this process, if it takes over the lease."""
    start: int = 0

    async def frames(self) -> AsyncGenerator[Sequence[bytes], None]:
        """Yield all committed events until the response has ended; if some were removed unread, an `error` event is the last."""
        following, dialect = self.start, OPENAI
        with self.store.subscribe(self.tenant, self.response_id) as subscription:
            while True:
                log = await self._read(following)
                if log is None or following < log.oldest:
                    yield [_expired_event(following, dialect)]
                    return
                if log.frames:
                    following += len(log.frames)
                    dialect = _dialect_of(log.frames) if dialect is OPENAI else dialect
                    yield log.frames
                elif log.state == "ended":
                    return
                elif log.state != "lost" or not await self._take_over():
                    await subscription.wait(POLL_SECONDS)

    async def _read(self, first: int) -> Log | None:
        """Read the log, and wait for a store that is down, because it still has the committed events."""
        while True:
            try:
                return await self.store.read(self.tenant, self.response_id, first, PAGE)
            except StoreDown:
                await asyncio.sleep(POLL_SECONDS)

    async def _take_over(self) -> bool:
        with suppress(StoreDown):
            return await adopt(self.store, self.tenant, self.response_id, self.owner)
        return False


async def adopt(store: ResponseStore, tenant: str, response_id: str, owner: str) -> bool:
    """Take over a response whose owner is lost, and end it by its failure edges; return whether that succeeded."""
    lease = await store.adopt(tenant, response_id, owner)
    stored = None if lease is None else await store.get(tenant, response_id)
    if lease is None or stored is None:
        return False
    frames, log = await read_log(store, tenant, response_id)
    ending = Cancel() if log is not None and log.cancelled else LOST
    try:
        driver = await asyncio.to_thread(resume_driver, stored, frames)
        last = driver.feed([ending])
        await store.finish(lease, len(frames), last, StoredResponse(driver.response, stored.items))
    except LeaseLost:
        return False
    logger.warning("%s: its server was lost, and it was ended here", response_id)
    return True


async def read_log(store: ResponseStore, tenant: str, response_id: str) -> tuple[list[bytes], Log | None]:
    """Return all events of a log, and its last page, which is None for an unknown response."""
    frames: list[bytes] = []
    while True:
        log = await store.read(tenant, response_id, len(frames), PAGE)
        if log is None or not log.frames:
            return frames, log
        frames += log.frames


def resume_driver(stored: StoredResponse, frames: Sequence[bytes]) -> ResponseDriver[bytes]:
    """Return a driver that continues after the events of a whole log, in their dialect."""
    response = stored.response
    driver = ResponseDriver(
        response,
        writer=SseWriter(_dialect_of(frames)),
        ids=random_id,
        clock=now,
        response_id=stored.id,
        created_at=cast("int", response["created_at"]),
    )
    driver.resume(frames)
    return driver


def _dialect_of(frames: Sequence[bytes]) -> Dialect:
    """Return the dialect of events; events that both dialects share continue equally in either."""
    return OPEN_RESPONSES if any(frame.startswith(_OPEN_RESPONSES) for frame in frames) else OPENAI


def _expired_event(number: int, dialect: Dialect) -> bytes:
    message = "The events of the response are stored no longer: it was deleted, or has expired."
    body = {"type": "error", "sequence_number": number, "code": "events_expired", "message": message, "param": None}
    return b"event: error\ndata: %b\n\n" % dumps(dialect.convert(body))
