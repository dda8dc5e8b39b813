"""Background responses: a run emits events, and its process, which holds a lease on the response, writes them to a store.

The table `BACKGROUND` defines the states: the owner writes batches of events, one write at a time, and the last write also ends
the response, in one commit. The table `STORED` is the store's side. Readers receive only committed events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext, suppress
from enum import StrEnum
from functools import partial
from time import monotonic
from typing import Final, assert_never

from attrs import define, field

from interlock.fsm.deltas import Cancel, Fault
from interlock.fsm.table import Edge, Machine, Table
from interlock.serving import metrics
from interlock.serving.requests.runtime import alongside, is_fault
from interlock.serving.responses.archive import EVENTS_LOST, Archive, ConversationLease, commit_end, end_from_log
from interlock.serving.responses.run import ResponseRun
from interlock.serving.responses.service import PendingRun
from interlock.serving.store.values import LEASE, RENEW, Lease, LeaseLost, SequenceError, StoreDown, StoredResponse

logger = logging.getLogger(__name__)

BATCH_SECONDS: Final = 0.03  # the longest time that an event waits for others before a write
BATCH_SIZE: Final = 32  # events are written at once when this many wait
ITEM_DONE: Final = b"event: response.output_item.done\n"  # such an event is written at once, with all that wait
RETRY_DELAY: Final = 0.25  # seconds between a failed write and the next attempt

WRITE_WAIT: Final = 0.1
"""Seconds to wait for an ordinary write, which renews the lease too. Each renewal tells whether a client has cancelled."""

FINISH_PATIENCE: Final = 60.0
"""Seconds after the end of the lease in which the last commit is retried, in case no other process has taken over."""

NOT_STORED: Final = Fault("server_error", "The response could not be stored.")


class BackgroundTrigger(StrEnum):
    """The triggers of the owner."""

    GROW = "grow"
    """The run has emitted events."""
    DUE = "due"
    """A batch is large or old enough, or the lease is due for renewal. A finished item also makes a batch due."""
    WRITTEN = "written"
    """The store has committed the pending write."""
    RETRY = "retry"
    """The write failed, and may or may not be committed; or the store already has some of the events."""
    CANCEL = "cancel"
    """A client has asked to cancel the response."""
    LOSE = "lose"
    """The lease is lost: it was not renewed in time, another owner has it, or the response was deleted. Or the store has lost
    events, and the response has ended after the rest."""
    END = "end"
    """The run has emitted its last event."""


class BackgroundEffect(StrEnum):
    """The effects of the owner."""

    ARM = "arm"
    """Start the timer of the batch, which fires `due`."""
    WRITE = "write"
    """Append the waiting events, if any, to the log, and renew the lease."""
    FINISH = "finish"
    """Write the last events, the status and the body in one commit that ends the lease."""
    INTERRUPT = "interrupt"
    """Tell the run to cancel the response, so that its stream ends legally."""
    STOP = "stop"
    """Stop the run at once; its further events are discarded."""


_T, _E = BackgroundTrigger, BackgroundEffect

BACKGROUND: Final[Table[BackgroundTrigger, BackgroundEffect]] = Table(
    "background",
    initial="idle",
    final={"ended", "left"},
    regions={"ready": ["idle", "holding"], "busy": ["writing", "behind"], "over": ["closing", "ending"]},
    edges=[
        #    in         on          goes to    effects
        Edge("idle",    _T.GROW,    "holding", [_E.ARM]),
        Edge("holding", _T.GROW,    "holding"),
        Edge("ready",   _T.DUE,     "writing", [_E.WRITE]),
        Edge("ready",   _T.CANCEL,  "ready",   [_E.INTERRUPT]),
        Edge("ready",   _T.END,     "ending",  [_E.FINISH]),

        Edge("writing", _T.WRITTEN, "idle"),
        Edge("behind",  _T.WRITTEN, "holding", [_E.ARM]),
        Edge("busy",    _T.GROW,    "behind"),
        Edge("busy",    _T.RETRY,   "holding", [_E.ARM]),
        Edge("busy",    _T.CANCEL,  "busy",    [_E.INTERRUPT]),
        Edge("busy",    _T.LOSE,    "lost",    [_E.STOP]),
        Edge("busy",    _T.END,     "closing"),

        # The run is over. The last commit follows the pending write, and writes the rest.
        Edge("closing", _T.WRITTEN, "ending",  [_E.FINISH]),
        Edge("ending",  _T.WRITTEN, "ended"),
        Edge("over",    _T.RETRY,   "ending",  [_E.FINISH]),
        Edge("over",    _T.LOSE,    "left"),

        # The next owner ends the response; this one only waits for its run.
        Edge("lost",    _T.GROW,    "lost"),
        Edge("lost",    _T.END,     "left"),
    ],
)  # fmt: skip
"""The owner of a background response. Every path ends with the last commit or the loss of the lease."""


@define(eq=False)
class BackgroundResponse:
    """One background response in the process that generates it, from the first commit to the last."""

    _run: ResponseRun[bytes]
    _archive: Archive
    _lease: Lease
    _pending: list[bytes]
    """Events that the store has not confirmed."""
    _machine: Machine[BackgroundTrigger, BackgroundEffect] = field(factory=lambda: Machine.at_start(BACKGROUND), init=False)
    _first_pending: int = field(default=0, init=False)
    _lease_end: float = field(factory=lambda: monotonic() + LEASE, init=False)  # by the monotonic clock of this process
    _write_count: int = field(default=0, init=False)
    _last_failure: str = field(default="", init=False)  # of the writes since the last success, so that the log has each once
    _effects: asyncio.Queue[BackgroundEffect] = field(factory=asyncio.Queue[BackgroundEffect], init=False)

    async def store_events(self) -> None:
        """Run the response and store its events."""
        self._grow(self._pending)
        async for frames in self._run:
            self._pending += frames
            self._grow(frames)

    def conclude(self) -> None:
        """Store the last events of the response, which has ended; a second call does so only if the first one raised."""
        if BackgroundTrigger.END in self._machine.state.rows:
            self._pending += self._run.conclude()
            self._fire(BackgroundTrigger.END)

    @property
    def _conversation_lease(self) -> ConversationLease | None:
        return self._run.context.lease

    def _grow(self, frames: Sequence[bytes]) -> None:
        """Schedule the write of a step's events; they stay together, so a log always ends between two steps."""
        self._fire(BackgroundTrigger.GROW)
        if len(self._pending) >= BATCH_SIZE or any(frame.startswith(ITEM_DONE) for frame in frames):
            self._fire_if_possible(BackgroundTrigger.DUE)

    def _fire_if_possible(self, trigger: BackgroundTrigger) -> None:
        if trigger in self._machine.state.rows:
            self._fire(trigger)

    def _fire(self, trigger: BackgroundTrigger) -> None:
        for effect in self._machine.fire(trigger):
            match effect:
                case BackgroundEffect.ARM:
                    asyncio.get_running_loop().call_later(BATCH_SECONDS, self._fire_if_possible, BackgroundTrigger.DUE)
                case BackgroundEffect.WRITE | BackgroundEffect.FINISH:
                    self._effects.put_nowait(effect)
                case BackgroundEffect.INTERRUPT:
                    self._run.control.interrupt(Cancel())
                case BackgroundEffect.STOP:
                    self._run.control.interrupt(NOT_STORED)
                case _:
                    assert_never(effect)

    async def write_events(self) -> None:
        """Write the events to the store until the last commit."""
        lease, conversation = self._lease, self._conversation_lease
        keep_alive = nullcontext() if conversation is None else conversation.keep_alive(self._run.control.interrupt)
        async with alongside(self._renew(lease)), keep_alive:
            await self._write_until_done(lease)

    async def _write_until_done(self, lease: Lease) -> None:
        while BackgroundTrigger.WRITTEN in self._machine.state.paths:
            try:
                effect = await self._effects.get()
                self._write_count += 1
                self._fire(await self._write(effect, lease))
            except BaseException as error:
                if not is_fault(error):
                    raise
                logger.exception("%s: could not be written; trying again", lease.response_id)
                self._retry()

    def _retry(self) -> None:
        """Write the pending events again after a fault; if the store has some of them, it raises `SequenceError`."""
        self._effects = asyncio.Queue()
        can_retry = BackgroundTrigger.RETRY in self._machine.state.rows
        self._fire_if_possible(BackgroundTrigger.RETRY if can_retry else BackgroundTrigger.DUE)

    async def _renew(self, lease: Lease) -> None:
        """Renew the lease every `RENEW` seconds and after each notification, unless an ordinary write comes first."""
        with self._archive.store.subscribe(lease.tenant, lease.response_id) as subscription:
            while True:
                await subscription.wait(RENEW)
                write_count = self._write_count
                await asyncio.sleep(WRITE_WAIT)
                if write_count == self._write_count:
                    self._fire_if_possible(BackgroundTrigger.DUE)

    async def _write(self, effect: BackgroundEffect, lease: Lease) -> BackgroundTrigger:
        """Write the pending events, and return the trigger for the outcome."""
        started_at, count = monotonic(), len(self._pending)
        try:
            is_cancelled = await self._commit(effect, lease, self._pending[:count])
        except LeaseLost as error:
            logger.warning("%s: its lease is lost: %s", lease.response_id, error)
            return BackgroundTrigger.LOSE
        except SequenceError as error:
            if not self._first_pending <= error.expected <= self._first_pending + len(self._pending):
                logger.error("%s: the store has lost events: %s", lease.response_id, error)  # noqa: TRY400 - the store is at fault
                await end_from_log(self._archive.store, lease, EVENTS_LOST)
                return BackgroundTrigger.LOSE
            # An earlier write raised, but was committed.
            del self._pending[: max(error.expected - self._first_pending, 0)]
            self._first_pending = error.expected
            return BackgroundTrigger.RETRY
        except BaseException as error:
            if not is_fault(error):
                raise
            return await self._after_failure(effect, lease, error)
        del self._pending[:count]
        self._first_pending += count
        self._lease_end = started_at + LEASE
        self._last_failure = ""
        if is_cancelled:
            self._fire_if_possible(BackgroundTrigger.CANCEL)
        return BackgroundTrigger.WRITTEN

    async def _commit(self, effect: BackgroundEffect, lease: Lease, frames: Sequence[bytes]) -> bool:
        """Write events, or renew the lease if there are none; return whether the response was cancelled."""
        if effect is BackgroundEffect.FINISH:
            stored = self._run.stored
            finish = partial(self._archive.store.finish, lease, self._first_pending, frames, stored)
            await commit_end(self._conversation_lease, stored, finish)
            return False
        if frames:
            return await self._archive.store.append(lease, self._first_pending, frames)
        return await self._archive.store.renew(lease)

    async def _after_failure(self, effect: BackgroundEffect, lease: Lease, error: BaseException) -> BackgroundTrigger:
        """Log a failed write and wait; return `RETRY`, or `LOSE` if the lease is over."""
        metrics.count("interlock_store_errors_total", type(error).__name__)
        if str(error) != self._last_failure:
            traceback = None if isinstance(error, StoreDown) else error
            logger.warning("%s: its events could not be stored: %s", lease.response_id, error, exc_info=traceback)
        self._last_failure = str(error)
        await asyncio.sleep(RETRY_DELAY)
        patience = FINISH_PATIENCE if effect is BackgroundEffect.FINISH else 0.0
        return BackgroundTrigger.LOSE if monotonic() > self._lease_end + patience else BackgroundTrigger.RETRY


@define(eq=False)
class BackgroundRegistry:
    """The background responses of one process, which `archive` stores."""

    archive: Archive
    _tasks: set[asyncio.Task[None]] = field(factory=set[asyncio.Task[None]], init=False)

    async def begin(self, pending: PendingRun[bytes]) -> StoredResponse:
        """Begin a response in a new task, and return it as stored before its first event, without waiting for the engine.

        If the run or the store refuses it, raise the error and leave nothing stored.
        """
        queued = asyncio.get_running_loop().create_future()
        self._spawn(self._make(pending, queued))
        return await asyncio.shield(queued)

    async def _make(self, pending: PendingRun[bytes], queued: asyncio.Future[StoredResponse]) -> None:
        """Make a response and store its events, and its end even if this task is cancelled."""
        response: BackgroundResponse | None = None
        try:
            async with pending.admitted() as run:
                frames = await anext(run)
                stored = StoredResponse({**run.stored.response, "status": "queued"}, run.stored.items)
                lease = await self._enqueue(run, stored)
                response = BackgroundResponse(run, self.archive, lease, frames)
                queued.set_result(stored)
                self._spawn(response.write_events())
                await response.store_events()
        except BaseException as error:
            if queued.done():
                raise
            queued.set_exception(error)
            if not is_fault(error):
                raise
        finally:
            if response is not None:
                try:
                    response.conclude()
                except BaseException:  # even if the task is cancelled, or the call itself raises
                    response.conclude()
                    raise

    async def _enqueue(self, run: ResponseRun[bytes], stored: StoredResponse) -> Lease:
        try:
            return await self.archive.enqueue(run.context.tenant, stored)
        except BaseException:
            if run.context.lease is not None:
                await run.context.lease.release()
            raise

    async def wait(self, seconds: float) -> None:
        """Wait until all responses have ended and are stored, for at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._tasks:
                    await asyncio.wait([*self._tasks])

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
