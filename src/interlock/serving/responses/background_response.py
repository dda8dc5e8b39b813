"""Responses that are made in the background: a run makes the events, and an owner writes them to a store under its lease.

What the owner does when is the table `BACKGROUND`. Nobody reads an event before the store has taken it.
It knows neither HTTP nor what a run makes its events of.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, nullcontext, suppress
from functools import partial
from time import monotonic
from typing import Final, Generic, TypeVar, assert_never

from attrs import define, field

from interlock.fsm.deltas import Cancel, Fault
from interlock.fsm.processes.background import BACKGROUND, BackgroundEffect, BackgroundTrigger
from interlock.fsm.table import Machine
from interlock.serving.requests.containment import is_fault
from interlock.serving.responses.active_runs import ActiveRuns
from interlock.serving.responses.archive import Archive
from interlock.serving.responses.conversation_lease import ConversationLease, commit_end
from interlock.serving.responses.run import Run
from interlock.serving.store import Gap, Lease, LeaseLost, ResponseStore, StoreDown, StoredResponse
from interlock.serving.store.records import LEASE, RENEW

__all__ = ["BackgroundRegistry", "BackgroundResponse"]

R = TypeVar("R", bound=Run[bytes])
"""What makes the responses of a server."""

logger = logging.getLogger(__name__)

BATCH: Final = 0.03
"""Seconds that an event waits for others at most before it is written."""

FULL: Final = 32
"""Events that are not kept waiting."""

ITEM_DONE: Final = b"event: response.output_item.done\n"
"""How the event begins that is not kept waiting."""

GLANCE: Final = 0.1
"""Seconds after a wake-up in which a write of our own tells whether cancelling was asked for."""

PAUSE: Final = 0.25
"""Seconds between two tries of a store that is down."""

PATIENCE: Final = 60.0
"""Seconds for which the last commit is tried again: the lease has lapsed by then, but perhaps nobody has taken over."""

NOT_KEPT: Final = Fault("server_error", "The response could not be stored.")
"""How a run ends whose events nobody can have."""


@define(eq=False)
class BackgroundResponse(Generic[R]):
    """The owner of one response in the background, from its first commit to its last.

    Args:
        run: What makes the response.
        tenant: To whom it belongs.
        ended: Returns what is stored of the response, as it is when it is called.
        store: Where it is written.
        active_runs: Ends the run at a shutdown.
        name: What the process is called as an owner.
        spawn: Begins a task, and holds it.
        conversation_lease: The response's part in a conversation, which is held until the last commit and added to in it.
    """

    run: R
    tenant: str
    _ended: Callable[[], StoredResponse]
    _store: ResponseStore
    _active_runs: ActiveRuns
    _name: str
    _spawn: Callable[[Coroutine[None, None, None]], object]
    _conversation_lease: ConversationLease | None = None
    _life: Machine[BackgroundTrigger, BackgroundEffect] = field(factory=lambda: Machine.at_start(BACKGROUND), init=False)
    _new: list[bytes] = field(factory=list[bytes], init=False)
    """Events that were made and are not known to be written."""
    _first: int = field(default=0, init=False)
    """The number of the first of them."""
    _until: float = field(default=0.0, init=False)
    """When the lease is over, by the clock of this process."""
    _writes: int = field(default=0, init=False)
    """Writes that have begun."""
    _work: asyncio.Queue[BackgroundEffect] = field(factory=asyncio.Queue[BackgroundEffect], init=False)
    _queued: asyncio.Future[StoredResponse] = field(factory=lambda: asyncio.get_running_loop().create_future(), init=False)
    _over: asyncio.Event = field(factory=asyncio.Event, init=False)

    async def queued(self) -> StoredResponse:
        """Wait until the response is stored, and return it as it is shown to who began it, before its first event.

        Raises:
            StoreError: It could not be stored; nothing is generated.
        """
        return await asyncio.shield(self._queued)

    async def wait(self) -> None:
        """Wait until the last commit was made, or somebody else has the response."""
        await self._over.wait()

    async def make(self) -> None:
        """Store the response and make it; its end is written even if this task is cancelled or the run cannot be held."""
        try:
            lease = await self._enqueue()
            self._spawn(self._keep(lease))
        except BaseException as error:
            self._refuse(error)
            if self._conversation_lease is not None:
                await self._conversation_lease.release()
            if not is_fault(error):
                raise
            return
        try:
            with self._active_runs.holding(self.run):
                async with aclosing(self.run.events()) as events:
                    async for frames in events:
                        self._new += frames
                        self._grow(frames)
        finally:
            try:
                self._conclude()
            finally:
                if BackgroundTrigger.END in self._life.state.rows:  # what failed was the call itself
                    self._conclude()

    async def _enqueue(self) -> Lease:
        begun = self._ended()
        queued = StoredResponse({**begun.response, "status": "queued"}, begun.items)
        lease = await self._store.enqueue(self.tenant, queued, self._name)
        self._until = monotonic() + LEASE
        self._queued.set_result(queued)
        return lease

    def _refuse(self, error: BaseException) -> None:
        """Say why nothing is made."""
        if not self._queued.done():
            self._queued.set_exception(error)
        self._over.set()

    def _grow(self, frames: Sequence[bytes]) -> None:
        """Note the events of one step, which stay together, so that a log ends between two edges wherever it ends."""
        self._fire(BackgroundTrigger.GROW)
        if len(self._new) >= FULL or any(frame.startswith(ITEM_DONE) for frame in frames):
            self._try(BackgroundTrigger.DUE)

    def _conclude(self) -> None:
        self._new += self.run.conclude()
        self._fire(BackgroundTrigger.END)

    def _try(self, trigger: BackgroundTrigger) -> None:
        if trigger in self._life.state.rows:
            self._fire(trigger)

    def _fire(self, trigger: BackgroundTrigger) -> None:
        for effect in self._life.fire(trigger):
            match effect:
                case BackgroundEffect.ARM:
                    asyncio.get_running_loop().call_later(BATCH, self._try, BackgroundTrigger.DUE)
                case BackgroundEffect.WRITE | BackgroundEffect.FINISH:
                    self._work.put_nowait(effect)
                case BackgroundEffect.INTERRUPT:
                    self.run.interrupt(Cancel())
                case BackgroundEffect.STOP:
                    self.run.interrupt(NOT_KEPT)
                case BackgroundEffect.RELEASE:
                    self._over.set()
                case _:
                    assert_never(effect)

    async def _keep(self, lease: Lease) -> None:
        """Write what is to be written, one after another, until nothing more can be."""
        listening = asyncio.create_task(self._listen(lease))
        try:
            async with nullcontext() if self._conversation_lease is None else self._conversation_lease.kept(self.run.interrupt):
                await self._write_all(lease)
        finally:
            self._over.set()
            listening.cancel()
            await asyncio.wait([listening])

    async def _write_all(self, lease: Lease) -> None:
        while BackgroundTrigger.WRITTEN in self._life.state.ways:
            try:
                effect = await self._work.get()
                self._writes += 1
                self._fire(await self._write(effect, lease))
            except BaseException as error:
                if not is_fault(error):
                    raise
                logger.exception("%s: it could not be written, and is tried again", lease.response_id)
                self._try_again()

    def _try_again(self) -> None:
        """Write anew what was to be written: where that has been done, the store says so."""
        self._work = asyncio.Queue()
        self._try(BackgroundTrigger.RETRY if BackgroundTrigger.RETRY in self._life.state.rows else BackgroundTrigger.DUE)

    async def _listen(self, lease: Lease) -> None:
        """Have the lease renewed in time, and at once when something has changed that no write of our own will tell."""
        with self._store.watching(lease.tenant, lease.response_id) as watch:
            while True:
                await watch.wait(RENEW)
                writes = self._writes
                await asyncio.sleep(GLANCE)
                if writes == self._writes:
                    self._try(BackgroundTrigger.DUE)

    async def _write(self, effect: BackgroundEffect, lease: Lease) -> BackgroundTrigger:
        """Write to the store, and return what came of it."""
        began, count = monotonic(), len(self._new)
        try:
            asked = await self._commit(effect, lease, self._new[:count])
        except LeaseLost as lost:
            logger.warning("%s: its lease is lost: %s", lease.response_id, lost)
            return BackgroundTrigger.LOSE
        except Gap as gap:  # a write of which we were not told has been made
            del self._new[: max(gap.expected - self._first, 0)]
            self._first = gap.expected
            return BackgroundTrigger.RETRY
        except BaseException as error:
            if not is_fault(error):
                raise
            return await self._failed(effect, lease, error)
        del self._new[:count]
        self._first += count
        self._until = began + LEASE
        if asked:
            self._try(BackgroundTrigger.CANCEL)
        return BackgroundTrigger.WRITTEN

    async def _commit(self, effect: BackgroundEffect, lease: Lease, frames: Sequence[bytes]) -> bool:
        """Return whether cancelling was asked for."""
        if effect is BackgroundEffect.FINISH:
            stored = self._ended()
            await commit_end(self._conversation_lease, stored, partial(self._store.finish, lease, self._first, frames, stored))
            return False
        return await (self._store.append(lease, self._first, frames) if frames else self._store.renew(lease))

    async def _failed(self, effect: BackgroundEffect, lease: Lease, error: BaseException) -> BackgroundTrigger:
        """Wait before the next try, unless the lease is over."""
        known = isinstance(error, StoreDown)
        logger.warning("%s: its events could not be stored: %s", lease.response_id, error, exc_info=None if known else error)
        await asyncio.sleep(PAUSE)
        patience = PATIENCE if effect is BackgroundEffect.FINISH else 0.0
        return BackgroundTrigger.LOSE if monotonic() > self._until + patience else BackgroundTrigger.RETRY


@define(eq=False)
class BackgroundRegistry(Generic[R]):
    """The responses that one process makes in the background.

    Args:
        archive: Where they are written.
        active_runs: Ends them at a shutdown.
    """

    archive: Archive
    active_runs: ActiveRuns
    _tasks: set[asyncio.Task[None]] = field(factory=set[asyncio.Task[None]], init=False)

    def owner(
        self,
        tenant: str,
        run: R,
        ended: Callable[[], StoredResponse],
        lease: ConversationLease | None = None,
    ) -> BackgroundResponse[R]:
        """Return the owner of a response that is to be made; `BackgroundResponse.make` makes it.

        Args:
            tenant: To whom it belongs.
            run: What makes the response.
            ended: Returns what is stored of the response, as it is when it is called.
            lease: Its part in a conversation; None if it belongs to none.
        """
        return BackgroundResponse(run, tenant, ended, self.archive.store, self.active_runs, self.archive.name, self._spawn, lease)

    async def begin(self, owner: BackgroundResponse[R]) -> StoredResponse:
        """Begin to make a response in a task of its own, and return it as it is shown to who began it.

        Args:
            owner: From `owner`.

        Raises:
            StoreError: It could not be stored; nothing is generated.
            Exception: The engine refuses it; nothing of it is left.
        """
        self._spawn(owner.make())
        queued = await owner.queued()
        try:
            await owner.run.admitted()
        except Exception:
            await owner.wait()
            await self.archive.store.delete(owner.tenant, queued.id)
            raise
        return queued

    async def wait(self, seconds: float) -> None:
        """Wait until all responses have ended and are stored, but not for ever.

        Args:
            seconds: The longest time to wait.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._tasks:
                    await asyncio.wait([*self._tasks])

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
