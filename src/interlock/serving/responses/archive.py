"""Reads, cancels and deletes stored responses, and ends background responses whose owner is lost.

The owner is the process that generates the response. Every process that shares the store can do all this, and can read the events
of a background response. A reader asks the store for the committed events after its last one, so it misses none and repeats none;
a notification only makes it ask sooner. If the owner is lost, a reader takes over and ends the response.

A response in a conversation holds a lease on it, which keeps other responses out until this one has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from socket import gethostname
from threading import Lock
from typing import Final, Self, TypeAlias, cast

from attrs import define, field, frozen

from interlock.embedding import now, random_id
from interlock.events.dialects import OPEN_RESPONSES, OPENAI, Dialect
from interlock.events.json import dumps
from interlock.events.sse import SseWriter
from interlock.fsm.deltas import Cancel, Fault
from interlock.fsm.driver import ResponseDriver
from interlock.serving import metrics
from interlock.serving.requests.api_errors import ApiError, invalid
from interlock.serving.requests.input_items import JsonItem
from interlock.serving.requests.logs import FIELDS
from interlock.serving.requests.runtime import alongside, is_fault
from interlock.serving.settings import Times
from interlock.serving.store.response_store import ResponseStore
from interlock.serving.store.values import (
    RENEW,
    SHARED,
    Addition,
    Conflict,
    Lease,
    LeaseLost,
    Log,
    ResponseKey,
    StoreDown,
    StoredResponse,
    StoreFull,
)

logger = logging.getLogger(__name__)

Frames: TypeAlias = AsyncGenerator[Sequence[bytes], None]
"""The committed events of a response."""

ADOPTED_AT_ONCE: Final = 16  # the most responses with a lost owner that a server ends at the same time
SWEEP_EVERY: Final = 120  # rounds

EVENTS_PER_READ: Final = 256

SERVER_LOST: Final = Fault("server_error", "The server that made the response was lost.", usage=None)  # the owner alone counted
EVENTS_LOST: Final = Fault("server_error", "The store has lost events of the response.", usage=None)
CONVERSATION_CHANGED: Final = Fault(
    "server_error", "The conversation was changed or deleted by another request while the response was made."
)
_OPEN_RESPONSES: Final = tuple(f"event: {name}\n".encode() for name in OPEN_RESPONSES.event_names.values())
"""The first lines of the events whose names differ from OpenAI's."""

_RESUMING: Final = Lock()
"""Held while a thread resumes a driver: msgspec 0.22 crashes if two threads first convert to a type at once."""

PROBE: Final = "x" * 2**18
"""The text that a probe writes to a store that was down. It is large because even a full disk accepts a few bytes."""


def store_error(error: BaseException) -> BaseException:
    """Return the API error for an error of the store; any other error as it is."""
    match error:
        case StoreDown():
            message = "The store of responses cannot be used at the moment. Nothing was generated."
            return ApiError(503, message, "server_error", code="store_unavailable")
        case StoreFull():
            message = "Too many background responses are in progress; try again when some have ended."
            return ApiError(429, message, "rate_limit_exceeded", code="rate_limit_exceeded")
        case _:
            return error


def _process_name() -> str:
    """Return the host and id of this process, by which an operator finds it, and random digits, because both recur."""
    return f"{gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"


@define(eq=False)
class Archive:
    """The stored responses of a server.

    While the store is down, its methods raise `StoreDown`, but readers of events wait, and `maintain` tries again.
    """

    store: ResponseStore
    times: Times = field(factory=Times)
    name: str = field(factory=_process_name)  # in leases and log lines
    _outage: str | None = field(default=None, init=False)
    """Why the store is down."""
    _blocked: set[ResponseKey] = field(factory=set[ResponseKey], init=False)
    """The responses with a lost owner that the last round could not end, so that the log has each once."""

    def require_store(self) -> None:
        """Raise `StoreDown` if the store is known to be down."""
        if self._outage is not None:
            raise StoreDown(self._outage)

    async def put(self, tenant: str, stored: StoredResponse, addition: Addition | None = None) -> None:
        """Store a finished response, and add to its conversation. A `StoreDown` is remembered for `require_store`."""
        with self._outages():
            await self.store.put(tenant, stored, addition)

    async def enqueue(self, tenant: str, stored: StoredResponse) -> Lease:
        """Store a background response, and return this process' lease. A `StoreDown` is remembered for `require_store`."""
        with self._outages():
            return await self.store.enqueue(tenant, stored, self.name)

    @contextmanager
    def _outages(self) -> Generator[None]:
        """Remember a `StoreDown`, and log the beginning of the outage."""
        try:
            yield
        except StoreDown as error:
            if self._outage is None:
                logger.warning("the store cannot be used: %s", error)
            self._outage = str(error)
            metrics.count("interlock_store_errors_total", type(error).__name__)
            raise

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response as it is now: a background response in progress has everything up to its last committed event."""
        stored = await self.store.get(tenant, response_id)
        if stored is None or _is_ended(stored):
            return stored
        frames, log = await _read_log(self.store, tenant, response_id)
        if log is None or log.ended:
            return await self.store.get(tenant, response_id)
        if not frames:
            return stored
        driver = await asyncio.to_thread(_resume_driver, stored, frames, log.following)
        return StoredResponse(driver.response, stored.items)

    async def previous(self, tenant: str, response_id: str) -> StoredResponse:
        """Return the response that a request continues; raise a 400 if it does not exist or has not ended."""
        stored = await self.store.get(tenant, response_id)
        if stored is None or not _is_ended(stored):
            message = f"Previous response with id '{response_id[:100]}' not found."
            raise invalid("previous_response_id", message, "previous_response_not_found")
        return stored

    async def tail(self, tenant: str, stored: StoredResponse, start: int = 0) -> Frames:
        """Return the events from `start` on, see `follow`; raise a 400 for foreground responses and expired events."""
        if stored.response["background"] is not True:
            raise invalid("stream", "Only a background response can be streamed again.", "unsupported_parameter")
        log = await self.store.read(tenant, stored.id, start, 1)
        if log is not None and start < log.oldest:
            message = f"The events before number {log.oldest} have expired."
            raise ApiError(400, message, param="starting_after", code="events_expired")
        return self._follow(tenant, stored.id, start)

    def _follow(self, tenant: str, response_id: str, start: int) -> Frames:
        return follow(self.store, tenant, response_id, start, owner=self.name, poll=self.times.poll)

    async def cancel(self, tenant: str, response_id: str) -> None:
        """Ask the owner of a response, in any process, to cancel it, and wait for its end; an ended response is unchanged."""
        await self.store.cancel(tenant, response_id)
        log = await self.store.read(tenant, response_id, 0, 1)
        if log is not None:
            async for _ in self._follow(tenant, response_id, log.following):
                pass

    async def delete(self, tenant: str, stored: StoredResponse) -> None:
        """Delete a response. A response in progress is cancelled first. Readers receive the last events."""
        if not _is_ended(stored):
            await self.cancel(tenant, stored.id)
        if stored.response["background"] is True:
            await self.store.hide(tenant, stored.id)
        else:
            await self.store.delete(tenant, stored.id)

    @asynccontextmanager
    async def maintained(self) -> AsyncGenerator[None]:
        """Maintain the store for the duration of the context, then close it."""
        try:
            async with alongside(self.maintain()):
                yield
        finally:
            await self.store.close()

    async def maintain(self) -> None:
        """End responses whose owner is lost, and sweep expired responses, periodically until cancelled."""
        rounds = 0
        while True:
            try:
                with suppress(StoreDown), self._outages():
                    await self._end_outage()
                    await self._end_lost()
                    if rounds % SWEEP_EVERY == 0:
                        await self.store.sweep()
            except BaseException as error:
                if not is_fault(error):
                    raise
                logger.exception("the store could not be maintained")
            rounds += 1
            await asyncio.sleep(self.times.maintenance)

    async def _end_outage(self) -> None:
        """If the store was down, try to write to it; expired responses may have filled it."""
        if self._outage is None:
            return
        with suppress(StoreDown):
            await self.store.sweep()
        await self._probe()
        self._outage = None
        logger.warning("the store can be used again")

    async def _end_lost(self) -> None:
        """End all responses whose owner is lost; one that cannot be ended keeps no other from its end."""
        blocked: set[ResponseKey] = set()
        is_down = False
        while keys := [key for key in await self.store.lost(ADOPTED_AT_ONCE + len(blocked)) if key not in blocked]:
            results = await asyncio.gather(*(adopt(self.store, *key, self.name) for key in keys), return_exceptions=True)
            for key, result in zip(keys, results, strict=True):
                if result is not True:
                    blocked.add(key)
                if not isinstance(result, BaseException):
                    continue
                if not is_fault(result):
                    raise result
                is_down |= isinstance(result, StoreDown)
                if key not in self._blocked:
                    logger.warning("%s: the server that made it was lost, and it could not be ended", key[1], exc_info=result)
        self._blocked = blocked
        if is_down:  # perhaps only the row of one response is locked
            await self._probe()

    async def _probe(self) -> None:
        """Store and delete a large response, and first delete what an earlier probe may have left."""
        response_id = f"resp_{self.name}"
        await self.store.delete(SHARED, response_id)
        probe: JsonItem = {"id": f"msg_{self.name}", "type": "message", "content": PROBE}
        await self.store.put(SHARED, StoredResponse({"id": response_id, "output": []}, (probe,)))
        await self.store.delete(SHARED, response_id)


def _is_ended(stored: StoredResponse) -> bool:
    return stored.response["status"] not in {"queued", "in_progress"}


async def follow(store: ResponseStore, tenant: str, response_id: str, start: int = 0, *, owner: str, poll: float) -> Frames:
    """Yield all committed events of a response from `start` on until it has ended; if some were removed unread, last an `error`.

    Each read begins with the last event that was yielded. If another event has its number, then the store has lost events, and
    those that it has instead do not continue what was yielded. Without a notification, it reads again after `poll` seconds. If
    the owner of the response is lost, `owner` takes over.
    """
    following, dialect = start, OPENAI
    last: tuple[bytes, ...] = ()
    with store.subscribe(tenant, response_id) as subscription:
        while True:
            try:
                log = await store.read(tenant, response_id, following - len(last), EVENTS_PER_READ)
            except StoreDown:  # it still has the committed events
                await asyncio.sleep(poll)
                continue
            if log is None or not _continues(log, following, last):
                yield [_expired_event(following, dialect)]
                return
            if frames := log.frames[len(last) :]:
                following += len(frames)
                last = frames[-1:]
                dialect = _dialect_of(frames) if dialect is OPENAI else dialect
                yield frames
            elif log.ended:
                return
            elif log.state != "lost" or not await _take_over(store, tenant, response_id, owner):
                await subscription.wait(poll)


async def _take_over(store: ResponseStore, tenant: str, response_id: str, owner: str) -> bool:
    with suppress(StoreDown):
        return await adopt(store, tenant, response_id, owner)
    return False


def _continues(log: Log, following: int, last: Sequence[bytes]) -> bool:
    """Return whether a log, read from the event `last` before the number `following`, has that and all that follow."""
    if last and (following > log.oldest or following < log.following):
        return log.frames[:1] == last
    return log.oldest <= following and (following <= log.following or not log.ended)


async def adopt(store: ResponseStore, tenant: str, response_id: str, owner: str) -> bool:
    """Take over a response whose owner is lost, and end it as failed or cancelled; return whether that succeeded."""
    lease = await store.adopt(tenant, response_id, owner)
    if lease is None or not await end_from_log(store, lease, SERVER_LOST):
        return False
    fields = {"response_id": response_id, "tenant": tenant}
    logger.warning("%s: ended, because the server that made it was lost", response_id, extra={FIELDS: fields})
    metrics.count("interlock_adoptions_total")
    return True


async def end_from_log(store: ResponseStore, lease: Lease, fault: Fault) -> bool:
    """End a response after the events that the store has, as failed or cancelled; return whether the lease was still valid."""
    stored = await store.get(lease.tenant, lease.response_id)
    frames, log = await _read_log(store, lease.tenant, lease.response_id)
    if stored is None or log is None:  # the store has lost its body, so no client can fetch it either
        return await store.delete(lease.tenant, lease.response_id)
    driver = await asyncio.to_thread(_resume_driver, stored, frames, log.following)
    last = driver.feed([Cancel(usage=None) if log.cancelled else fault])
    with suppress(LeaseLost):
        await store.finish(lease, log.following, last, StoredResponse(driver.response, stored.items))
        return True
    return False


async def _read_log(store: ResponseStore, tenant: str, response_id: str) -> tuple[list[bytes], Log | None]:
    """Return the events of a log from the oldest on, and the last page that was read, which is None for an unknown response."""
    frames: list[bytes] = []
    first = 0
    while True:
        log = await store.read(tenant, response_id, first + len(frames), EVENTS_PER_READ)
        if log is not None and first < log.oldest:
            first, frames = log.oldest, []
        elif log is None or not log.frames:
            return frames, log
        else:
            frames += log.frames


def _resume_driver(stored: StoredResponse, frames: Sequence[bytes], following: int) -> ResponseDriver[bytes]:
    """Return a driver that continues with the event `following` after the last events of a log, in their dialect."""
    response = stored.response
    driver = ResponseDriver(
        response,
        writer=SseWriter(_dialect_of(frames)),
        ids=random_id,
        clock=now,
        response_id=stored.id,
        created_at=cast("int | None", response.get("created_at")),
    )
    with _RESUMING:
        driver.resume(frames, following - len(frames))
    return driver


def _dialect_of(frames: Sequence[bytes]) -> Dialect:
    """Return the dialect of events; if both dialects share all of them, return OpenAI's."""
    return OPEN_RESPONSES if any(frame.startswith(_OPEN_RESPONSES) for frame in frames) else OPENAI


def _expired_event(number: int, dialect: Dialect) -> bytes:
    message = "The response was deleted, or its events have expired."
    body = {"type": "error", "sequence_number": number, "code": "events_expired", "message": message, "param": None}
    return b"event: error\ndata: %b\n\n" % dumps(dialect.convert(body))


@frozen(eq=False)
class ConversationLease:
    """The lease of a response on a conversation, and the items that the response continues."""

    store: ResponseStore
    tenant: str
    conversation_id: str
    response_id: str
    """The owner of the conversation, and the id of the response unless its engine sets another."""
    items: tuple[JsonItem, ...] = field(repr=False)

    @classmethod
    async def acquire(cls, store: ResponseStore, tenant: str, conversation_id: str) -> Self:
        """Acquire the lease for a new response; raise a 404 for an unknown conversation, or a 409 for a locked one."""
        response_id = random_id("resp")
        try:
            exists = await store.hold(tenant, conversation_id, response_id)
        except Conflict:
            raise lock_error(conversation_id) from None
        items = await store.conversation_items(tenant, conversation_id) if exists else None
        if items is None:
            raise no_such_conversation(conversation_id)
        return cls(store, tenant, conversation_id, response_id, items)

    @asynccontextmanager
    async def keep_alive(self, interrupt: Callable[[Fault], None]) -> AsyncGenerator[None]:
        """Renew the lease until the end of the context, then release it; interrupt the response if the lease is lost."""
        try:
            async with alongside(self._renew(interrupt)):
                yield
        finally:
            await self.release()

    async def release(self) -> None:
        """Release the lease, so that other requests can change the conversation."""
        with suppress(StoreDown):  # then the lease expires by itself
            await self.store.release(self.tenant, self.conversation_id, self.response_id)

    def addition(self, stored: StoredResponse) -> Addition | None:
        """Return the input and output of a finished response, or None if it failed or was cancelled."""
        if stored.response["status"] not in {"completed", "incomplete"}:
            return None  # so that a retry does not add the input twice
        return Addition(self.conversation_id, self.response_id, stored.conversation[len(self.items) :])

    async def _renew(self, interrupt: Callable[[Fault], None]) -> None:
        while True:
            await asyncio.sleep(RENEW)
            try:
                owned = await self.store.renew_hold(self.tenant, self.conversation_id, self.response_id)
            except StoreDown as error:
                logger.warning("%s: the lease of its conversation could not be renewed: %s", self.response_id, error)
                continue  # the commit of the addition finds out whether the conversation has another owner
            except Conflict:
                owned = False
            if not owned:
                interrupt(CONVERSATION_CHANGED)
                return


async def commit_end(
    lease: ConversationLease | None, stored: StoredResponse, write: Callable[[Addition | None], Awaitable[None]]
) -> None:
    """Store a finished response with `write`; if it still owns its conversation, add it there in the same commit."""
    try:
        await write(None if lease is None else lease.addition(stored))
    except Conflict as conflict:
        logger.warning("%s: could not be added to its conversation: %s", stored.id, conflict)
        await write(None)


def lock_error(conversation_id: str) -> ApiError:
    """Return the error for a conversation that another response holds."""
    message = f"Another response is being made in the conversation '{conversation_id[:100]}'; try again when it has ended."
    return ApiError(409, message, param="conversation", code="conversation_locked")


def no_such_conversation(conversation_id: str) -> ApiError:
    """Return the error for an unknown conversation."""
    return ApiError(404, f"Conversation with id '{conversation_id[:100]}' not found.", param="conversation")
