"""A store in the memory of the process, bounded by a count and by bytes: the response that was not used longest goes first.

What it holds is JSON in bytes and no objects, which would take six times as much. Items that several responses share, as those
of one conversation do, are held once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from sys import getsizeof
from typing import Final, assert_never, cast

from attrs import define, field

from interlock.fsm.processes.stored import StoredEffect, StoredTrigger
from interlock.fsm.table import Machine
from interlock.serving.requests.conversation import Item
from interlock.serving.store.changes import Change, fired, require_following
from interlock.serving.store.errors import StoreFull
from interlock.serving.store.held import PER_EVENT, PER_RESPONSE, Held
from interlock.serving.store.leases import LEASE, Lease, has_lapsed, machine_at
from interlock.serving.store.memory_conversations import Entry, Key, MemoryConversations
from interlock.serving.store.packing import pack
from interlock.serving.store.pieces import body_of
from interlock.serving.store.values import Info, Log, StoredResponse, Swept
from interlock.serving.store.wakes import Wakes, Watch
from interlock.serving.store.writing import Writing, Written

__all__ = ["MAX_BYTES", "MAX_RESPONSES", "MemoryStore"]

MAX_RESPONSES: Final = 10_000
MAX_BYTES: Final = 256 * 2**20

_T, _E = StoredTrigger, StoredEffect


@define(eq=False)
class MemoryStore(MemoryConversations, Writing):
    """Holds responses until the process ends, or until there are too many; see `ResponseStore`.

    Those that are being made stay, and so do the conversations that are held for them; of the others, the one that was not used
    longest goes.

    Args:
        max_responses: How many responses it holds, and how many conversations.
        max_bytes: How many bytes of memory they may take. A response that is larger alone is not held.
        ttl: Seconds for which a response is stored after it was written last; None for as long as there is room.
        clock: Tells the time in seconds; one that is never set back.
    """

    max_responses: int = MAX_RESPONSES
    max_bytes: int = MAX_BYTES
    ttl: float | None = None
    _held: dict[Key, Held] = field(factory=dict[Key, Held], init=False)
    """The responses."""
    _size: int = field(default=0, init=False)
    """Bytes that they take beside their items."""
    _wakes: Wakes = field(factory=Wakes, init=False)
    _leased: dict[Key, Held] = field(factory=dict[Key, Held], init=False)
    """Those that are being made."""

    @property
    def held_bytes(self) -> int:
        """The bytes of memory that everything takes."""
        return self._size + self._shelf.size + self._conversations_size

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """Return a response, which is now the one used last."""
        held = self._find(tenant, response_id)
        if held is None:
            return None
        self._use("response", (tenant, response_id))
        return held.stored()

    async def find(self, tenant: str, item_ids: Iterable[str]) -> Mapping[str, Item]:
        """Return items that are held."""
        found = ((item_id, self._shelf.find(tenant, item_id)) for item_id in item_ids)
        return {item_id: item for item_id, item in found if item is not None}

    async def read(self, tenant: str, response_id: str, first: int, limit: int) -> Log | None:
        """Return events of a response."""
        held = self._find(tenant, response_id)
        if held is None:
            return None
        place = first - held.trimmed
        frames = tuple(held.frames[place : place + limit]) if place >= 0 else ()
        following = held.trimmed + len(held.frames)
        return Log(frames, first, held.trimmed, following, self._machine(held).state.name, held.cancelled)

    def watching(self, tenant: str, response_id: str) -> AbstractContextManager[Watch]:
        """Watch a response."""
        return self._wakes.watching(tenant, response_id)

    async def lost(self, limit: int) -> Sequence[tuple[str, str]]:
        """Return responses whose owner is lost."""
        gone = (held for held in self._leased.values() if _T.ADOPT in self._machine(held).state.rows)
        return [(held.tenant, held.id) for held in sorted(gone, key=lambda held: held.until)[:limit]]

    async def sweep(self) -> Swept:
        """Remove what is expired; logs stay as long as their responses."""
        return Swept(expired=sum(self._find(*key) is None for key in [*self._held]))

    async def info(self) -> Info:
        """Return what is in the store."""
        alive = [held for key in [*self._held] if (held := self._find(*key)) is not None]
        states = {id(held): self._machine(held).state.name for held in alive}
        leases = [
            Lease(held.tenant, held.id, held.owner, held.epoch) for held in alive if states[id(held)] in {"queued", "running"}
        ]
        events = sum(len(held.frames) for held in alive)
        counts = Counter(states.values())
        return Info("memory", 1, counts, len(self._conversations), len(self._shelf), events, self.held_bytes, tuple(leases))

    async def migrate(self) -> int:
        """Do nothing: it has no older layout."""
        return 1

    async def close(self) -> None:
        """Do nothing: what it holds ends with the process."""

    def _machine(self, held: Held) -> Machine[StoredTrigger, StoredEffect]:
        """Return the life of a response where it is now."""
        now = self.clock()
        expired = self.ttl is not None and now >= held.written + self.ttl
        return machine_at(held.state, lapsed=has_lapsed(held.until, now), expired=expired)

    def _find(self, tenant: str, response_id: str) -> Held | None:
        """Return a response, if it is held; one that is expired is removed."""
        held = self._held.get((tenant, response_id))
        if held is not None and not self._machine(held).state.rows:
            self._remove(held)
            return None
        return held

    def _held_or_new(self, tenant: str, response_id: str) -> Held:
        return self._find(tenant, response_id) or Held(tenant, response_id)

    async def _write(self, tenant: str, response_id: str, change: Change) -> Written | None:
        """Fire the edge of a change, and carry out its effects: all of them, or none if it is refused."""
        held = self._find(tenant, response_id) or Held(tenant, response_id)
        machine = self._machine(held)
        effects = fired(machine, held.owner, held.epoch, change)
        if effects is None:
            return None
        if _E.LOG in effects:
            require_following(held.trimmed + len(held.frames), change)
        if _E.JOIN in effects:
            self._require_version(tenant, change.addition)
        needed = self._needed(change)  # what cannot be written as JSON is refused here, before anything is held
        if change.trigger is _T.ENQUEUE:
            self._require_room(needed)
        if change.trigger is _T.PUT and needed > self.max_bytes:
            self._join(tenant, change.addition)
            return None
        held.state = machine.state.name
        self._enter(held)
        for effect in effects:
            self._carry_out(held, effect, change)
        self._make_room()
        return Written(held.epoch, held.cancelled)

    def _require_room(self, needed: int) -> None:
        """Refuse a response that is to be made if there is no room for it beside the others that are.

        Raises:
            StoreFull: There is none.
        """
        taken = sum(each.size for each in self._leased.values()) + needed
        if len(self._leased) >= self.max_responses or (self._leased and taken > self.max_bytes):
            raise StoreFull("Too many responses are being made in the background.")

    def _enter(self, held: Held) -> None:
        """Enter a response that is written where it belongs."""
        key = held.tenant, held.id
        if key not in self._held:
            self._held[key] = held
            self._size += held.size
        if held.leased:
            self._leased[key] = held
        else:
            self._leased.pop(key, None)
        self._use("response", key)

    def _carry_out(self, held: Held, effect: StoredEffect, change: Change) -> None:  # noqa: C901 - a case for each effect
        match effect:
            case _E.KEEP:
                self._keep(held, cast("StoredResponse", change.stored))
            case _E.TAKE:
                held.owner, held.epoch = change.owner, held.epoch + 1
                self._extend(held)
            case _E.EXTEND:
                self._extend(held)
            case _E.LOG:
                held.frames += change.frames
                self._resize(held, sum(PER_EVENT + getsizeof(frame) for frame in change.frames))
            case _E.FLAG:
                held.cancelled = True
            case _E.JOIN:
                self._join(held.tenant, change.addition)
            case _E.RELEASE:
                held.owner = ""
            case _E.TRIM:
                self._trim(held)
            case _E.REMOVE:
                self._remove(held)
            case _E.WAKE:
                self._wakes.wake(held.tenant, held.id)
            case _:
                assert_never(effect)

    def _keep(self, held: Held, stored: StoredResponse) -> None:
        """Hold a response and its items instead of what was held of it."""
        before = held.tip
        held.tip, held.outputs = self._shelf.hold(held.tenant, stored.conversation), len(stored.output)
        self._shelf.let_go(held.tenant, before)
        packed = body_of(stored)
        self._resize(held, len(packed) - len(held.response))
        held.response, held.written = packed, self.clock()

    def _extend(self, held: Held) -> None:
        held.written = self.clock()
        held.until = held.written + LEASE

    def _trim(self, held: Held) -> None:
        self._resize(held, -sum(PER_EVENT + getsizeof(frame) for frame in held.frames))
        held.trimmed += len(held.frames)
        held.frames = []

    def _remove(self, held: Held) -> None:
        key = held.tenant, held.id
        del self._held[key], self._order["response", key]
        self._leased.pop(key, None)
        self._shelf.let_go(held.tenant, held.tip)
        self._size -= held.size

    def _resize(self, held: Held, difference: int) -> None:
        held.size += difference
        self._size += difference

    def _needed(self, change: Change) -> int:
        """Return the bytes that what is to be held takes if it shares nothing."""
        added = () if change.addition is None else change.addition.items
        if change.stored is None:
            return 0
        items = (*change.stored.conversation, *added)
        return PER_RESPONSE + len(body_of(change.stored)) + self._shelf.needed(map(pack, items))

    def _may_go(self, entry: Entry) -> bool:
        kind, key = entry
        return super()._may_go(entry) if kind == "conversation" else key not in self._leased

    def _evict(self, entry: Entry) -> None:
        kind, key = entry
        if kind == "conversation":
            super()._evict(entry)
        else:
            self._remove(self._held[key])

    def _make_room(self) -> None:
        """Evict what was not used longest: a response that is not being made, or a conversation that nobody holds.

        What was used last stays, so that a response is there for whoever has waited for its end.
        """
        while len(self._held) > self.max_responses and self._evict_one("response"):
            pass
        while len(self._conversations) > self.max_responses and self._evict_one("conversation"):
            pass
        while self.held_bytes > self.max_bytes and self._evict_one("response", "conversation"):
            pass
