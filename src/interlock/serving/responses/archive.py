"""The stored responses of one server: looked at, read again, cancelled, deleted, and ended where their owner was lost.

Each of these does the same on every process that shares the store. It knows neither HTTP nor how a response is made.
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
from interlock.serving.responses.log import LOOK, Tail, adopt, taken_up, whole_log
from interlock.serving.store import SHARED, Addition, ResponseStore, StoreDown, StoredResponse, StoreFull

__all__ = ["Archive", "is_ended", "said_by_store"]

logger = logging.getLogger(__name__)

NOT_STREAMED: Final = ApiError(
    400, "Only a response that is made in the background can be streamed again.", param="stream", code="unsupported_parameter"
)
"""What is said of a response without a log."""

EVERY: Final = 5.0
"""Seconds between two looks for responses whose owner is lost."""

AT_ONCE: Final = 16
"""How many of them are ended at one look."""

CLEARING: Final = 120
"""Looks between two at which what is expired is cleared away."""

TRIAL: Final = "x" * 2**18
"""Is written to a store that was down, to see that it takes a response: a full disk can be read, and takes a few bytes."""

STORE_DOWN: Final = ApiError(
    503, "The store of responses cannot be used at the moment. Nothing was generated.", "server_error", code="store_unavailable"
)
STORE_FULL: Final = ApiError(
    429,
    "Too many responses are being made in the background; try again when some of them have ended.",
    "rate_limit_exceeded",
    code="rate_limit_exceeded",
)


def said_by_store(error: BaseException) -> BaseException:
    """Return what clients are told of an error of a store, or the error itself if it is none.

    Args:
        error: What was raised.
    """
    match error:
        case StoreDown():
            return STORE_DOWN
        case StoreFull():
            return STORE_FULL
        case _:
            return error


def is_ended(stored: StoredResponse) -> bool:
    """Return whether a stored response has ended, so that another can continue it."""
    return stored.response["status"] not in {"queued", "in_progress"}


@define(eq=False)
class Archive:
    """The stored responses.

    Args:
        store: Where they are.
        name: What the process is called as an owner of leases.
    """

    store: ResponseStore
    name: str = field(factory=lambda: random_id("owner"))
    _why_down: StoreDown | None = field(default=None, init=False)
    """Why the store could not be used when it was written or looked at last."""

    def require_store(self) -> None:
        """Refuse what is to be stored while the store cannot be used, as far as that is known: it is looked at every few seconds.

        Raises:
            StoreDown: The last look failed, or a response could not be stored since.
        """
        if self._why_down is not None:
            raise self._why_down

    async def put(self, tenant: str, stored: StoredResponse, addition: Addition | None = None) -> None:
        """Store a response that has ended; if that fails, others are refused until the store can be written again.

        Args:
            tenant: To whom it belongs.
            stored: The response.
            addition: What it adds to a conversation.

        Raises:
            StoreError: What the store raises.
        """
        try:
            await self.store.put(tenant, stored, addition)
        except StoreDown as error:
            self._why_down = error
            raise

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response as it is now; of one that is being made, as far as its events are committed.

        Args:
            tenant: To whom it belongs.
            response_id: Its id.

        Raises:
            StoreDown: The store cannot be used now.
        """
        stored = await self.store.get(tenant, response_id)
        if stored is None or is_ended(stored):
            return stored
        frames, log = await whole_log(self.store, tenant, response_id)
        if log is None or log.state == "ended":
            return await self.store.get(tenant, response_id)
        if not frames:
            return stored
        driver = await asyncio.to_thread(taken_up, stored, frames)
        return StoredResponse(driver.response, stored.items)

    async def previous(self, tenant: str, response_id: str) -> StoredResponse:
        """Return a response that a request continues.

        Args:
            tenant: Whose request it is.
            response_id: The id of the response.

        Raises:
            ApiError: 400; there is no such response, or it has not ended.
            StoreDown: The store cannot be used now.
        """
        stored = await self.store.get(tenant, response_id)
        if stored is None or not is_ended(stored):
            message = f"Previous response with id '{response_id[:100]}' not found."
            raise invalid("previous_response_id", message, "previous_response_not_found")
        return stored

    async def tail(self, tenant: str, stored: StoredResponse, start: int = 0) -> Tail:
        """Return a reader of a response's events.

        Args:
            tenant: To whom it belongs.
            stored: The response.
            start: The number of the first event that is wanted.

        Raises:
            ApiError: 400; it was not made in the background, or its log does not hold that event any more.
            StoreDown: The store cannot be used now.
        """
        if stored.response["background"] is not True:
            raise NOT_STREAMED
        log = await self.store.read(tenant, stored.id, start, 1)
        if log is not None and start < log.oldest:
            message = f"The events before number {log.oldest} are kept no longer; {log.oldest} is the oldest that can be read."
            raise ApiError(400, message, param="starting_after", code="events_expired")
        return Tail(self.store, tenant, stored.id, self.name, start)

    async def cancel(self, tenant: str, response_id: str) -> None:
        """Have the owner of a response cancel it, wherever that is, and wait for its end; one that has ended stays what it is.

        Args:
            tenant: To whom it belongs.
            response_id: Its id.

        Raises:
            StoreDown: The store cannot be used now.
        """
        await self.store.cancel(tenant, response_id)
        log = await self.store.read(tenant, response_id, 0, 1)
        if log is not None:
            async for _ in Tail(self.store, tenant, response_id, self.name, log.following).frames():
                pass

    async def delete(self, tenant: str, stored: StoredResponse) -> None:
        """Delete a response; one that is being made is cancelled first, and its readers get to read the end.

        Args:
            tenant: To whom it belongs.
            stored: The response.

        Raises:
            StoreDown: The store cannot be used now.
        """
        if not is_ended(stored):
            await self.cancel(tenant, stored.id)
            await asyncio.sleep(LOOK)  # after which every reader has looked again
        await self.store.delete(tenant, stored.id)

    @asynccontextmanager
    async def watched_over(self) -> AsyncGenerator[None]:
        """Watch over the responses for as long as the block runs; then the store is closed."""
        watching = asyncio.create_task(self.watch_over())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching])
            await self.store.close()

    async def watch_over(self) -> None:
        """End the responses whose owner is lost, again and again, and clear away what is expired; until it is cancelled."""
        looks = 0
        while True:
            try:
                if self._why_down is not None:
                    await self._try_to_write()
                    self._why_down = None
                for tenant, response_id in await self.store.lost(AT_ONCE):
                    await adopt(self.store, tenant, response_id, self.name)
                if looks % CLEARING == 0:
                    await self.store.sweep()
            except StoreDown as error:
                self._why_down = error
                logger.warning("the store cannot be used: %s", error)
            except BaseException as error:
                if not is_fault(error):
                    raise
                logger.exception("responses whose server was lost could not be ended")
            looks += 1
            await asyncio.sleep(EVERY)

    async def _try_to_write(self) -> None:
        """Store a response and delete it, with what an earlier try has left."""
        response_id = f"resp_{self.name}"
        await self.store.delete(SHARED, response_id)
        await self.store.put(SHARED, StoredResponse({"id": response_id, "output": [], "metadata": {"trial": TRIAL}}, ()))
        await self.store.delete(SHARED, response_id)
