"""The stored responses of one server: reads, cancels and deletes them, and ends those whose owner is lost.

All of this has the same effect on every process that shares the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from attrs import define, field

from interlock.serving.requests.api_errors import ApiError, invalid
from interlock.serving.requests.containment import is_fault
from interlock.serving.requests.identity import random_id
from interlock.serving.responses.log import POLL_SECONDS, Tail, adopt, read_log, resume_driver
from interlock.serving.store import SHARED, Addition, ResponseStore, StoreDown, StoredResponse, StoreFull

__all__ = ["Archive", "store_error"]

logger = logging.getLogger(__name__)

NOT_STREAMED: Final = ApiError(
    400, "Only a response that is made in the background can be streamed again.", param="stream", code="unsupported_parameter"
)

MAINTENANCE_SECONDS: Final = 5.0
"""Seconds between two rounds of maintenance."""

ADOPTED_PER_ROUND: Final = 16
"""Responses with a lost owner that one round ends at most."""

SWEEP_EVERY: Final = 120
"""Rounds of maintenance from one sweep of expired responses to the next."""

PROBE: Final = "x" * 2**18
"""Written to a store that was down: a full disk can be read, and still takes a few bytes."""

STORE_DOWN: Final = ApiError(
    503, "The store of responses cannot be used at the moment. Nothing was generated.", "server_error", code="store_unavailable"
)
STORE_FULL: Final = ApiError(
    429,
    "Too many responses are being made in the background; try again when some of them have ended.",
    "rate_limit_exceeded",
    code="rate_limit_exceeded",
)


def store_error(error: BaseException) -> BaseException:
    """Return the API error for an error of the store; any other error as it is."""
    match error:
        case StoreDown():
            return STORE_DOWN
        case StoreFull():
            return STORE_FULL
        case _:
            return error


@define(eq=False)
class Archive:
    """The stored responses.

    Whatever reads or writes responses raises `StoreDown` while the store is not available.
    """

    store: ResponseStore
    name: str = field(factory=lambda: random_id("owner"))
    """The name of this process, as an owner of leases."""
    _outage: StoreDown | None = field(default=None, init=False)
    """Why the last maintenance or write failed."""

    def require_store(self) -> None:
        """Refuse a response that must be stored while the store is known to be down."""
        if self._outage is not None:
            raise self._outage

    async def put(self, tenant: str, stored: StoredResponse, addition: Addition | None = None) -> None:
        """Store a finished response, with an addition to its conversation; `require_store` knows of a failure."""
        try:
            await self.store.put(tenant, stored, addition)
        except StoreDown as error:
            self._outage = error
            raise

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response as it is now; one in progress up to its last committed event."""
        stored = await self.store.get(tenant, response_id)
        if stored is None or _is_ended(stored):
            return stored
        frames, log = await read_log(self.store, tenant, response_id)
        if log is None or log.state == "ended":
            return await self.store.get(tenant, response_id)
        if not frames:
            return stored
        driver = await asyncio.to_thread(resume_driver, stored, frames)
        return StoredResponse(driver.response, stored.items)

    async def previous(self, tenant: str, response_id: str) -> StoredResponse:
        """Return the response that a request continues; raise a 400 if there is none, or it has not ended."""
        stored = await self.store.get(tenant, response_id)
        if stored is None or not _is_ended(stored):
            message = f"Previous response with id '{response_id[:100]}' not found."
            raise invalid("previous_response_id", message, "previous_response_not_found")
        return stored

    async def tail(self, tenant: str, stored: StoredResponse, start: int = 0) -> Tail:
        """Return a reader of a response's events, from a number on.

        Raises:
            ApiError: 400; it is not a background response, or the log does not have that event any more.
        """
        if stored.response["background"] is not True:
            raise NOT_STREAMED
        log = await self.store.read(tenant, stored.id, start, 1)
        if log is not None and start < log.oldest:
            message = f"The events before number {log.oldest} are kept no longer; {log.oldest} is the oldest that can be read."
            raise ApiError(400, message, param="starting_after", code="events_expired")
        return Tail(self.store, tenant, stored.id, self.name, start)

    async def cancel(self, tenant: str, response_id: str) -> None:
        """Have the owner of a response cancel it, in whatever process, and wait for its end; an ended one stays as it is."""
        await self.store.cancel(tenant, response_id)
        log = await self.store.read(tenant, response_id, 0, 1)
        if log is not None:
            async for _ in Tail(self.store, tenant, response_id, self.name, log.following).frames():
                pass

    async def delete(self, tenant: str, stored: StoredResponse) -> None:
        """Delete a response; one in progress is cancelled first, and its readers receive its end."""
        if not _is_ended(stored):
            await self.cancel(tenant, stored.id)
            await asyncio.sleep(POLL_SECONDS)  # in which every reader reads again
        await self.store.delete(tenant, stored.id)

    @asynccontextmanager
    async def maintained(self) -> AsyncGenerator[None]:
        """Maintain the store for the duration of the context, then close it."""
        maintenance = asyncio.create_task(self.maintain())
        try:
            yield
        finally:
            maintenance.cancel()
            await asyncio.wait([maintenance])
            await self.store.close()

    async def maintain(self) -> None:
        """End responses whose owner is lost and sweep expired ones, again and again until cancelled."""
        rounds = 0
        while True:
            try:
                if self._outage is not None:
                    await self._probe()
                    self._outage = None
                for tenant, response_id in await self.store.lost(ADOPTED_PER_ROUND):
                    await adopt(self.store, tenant, response_id, self.name)
                if rounds % SWEEP_EVERY == 0:
                    await self.store.sweep()
            except StoreDown as error:
                self._outage = error
                logger.warning("the store cannot be used: %s", error)
            except BaseException as error:
                if not is_fault(error):
                    raise
                logger.exception("responses whose server was lost could not be ended")
            rounds += 1
            await asyncio.sleep(MAINTENANCE_SECONDS)

    async def _probe(self) -> None:
        """Store a response and delete it, also the one that an earlier probe left."""
        response_id = f"resp_{self.name}"
        await self.store.delete(SHARED, response_id)
        await self.store.put(SHARED, StoredResponse({"id": response_id, "output": [], "metadata": {"probe": PROBE}}, ()))
        await self.store.delete(SHARED, response_id)


def _is_ended(stored: StoredResponse) -> bool:
    return stored.response["status"] not in {"queued", "in_progress"}
