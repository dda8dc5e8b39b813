"""Edits: writes about a response or a conversation. Each fires an edge of the table `stored` or `conversation` in every store."""

# ruff: noqa: D102 - ResponseStore documents these methods

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, TypeAlias

from attrs import field, frozen

from interlock.fsm.processes.conversation import CONVERSATION, ConversationEffect, ConversationTrigger
from interlock.fsm.processes.stored import STORED, StoredEffect, StoredTrigger
from interlock.fsm.table import State
from interlock.serving.store.interface import LEASE, Addition, Conflict, Lease, LeaseLost, StoredResponse

__all__ = [
    "UNFINISHED",
    "Edit",
    "EditResult",
    "ResponseEdits",
    "conversation_effects",
    "current_state",
    "has_lapsed",
    "refuse",
]

_T: Final = StoredTrigger

UNFINISHED: Final = [name for name, state in STORED.states.items() if _T.APPEND in state.rows]
"""The states of responses that have an owner, or have lost it."""

StoredState: TypeAlias = State[StoredTrigger, StoredEffect]


@frozen
class Edit:
    """A write about one response, in one commit.

    Args:
        trigger: The trigger that it fires.
        stored: The response to store.
        addition: The items to add to a conversation.
        owner: The owner of the lease.
        epoch: The epoch of the lease; None for an edit that needs no lease.
        first: The number of the first event.
        frames: The events to append.
    """

    trigger: StoredTrigger
    stored: StoredResponse | None = None
    addition: Addition | None = None
    owner: str = ""
    epoch: int | None = None
    first: int = 0
    frames: Sequence[bytes] = field(default=(), repr=False)


@frozen
class EditResult:
    """A response after an edit: the epoch of its lease, and whether a client has asked to cancel it."""

    epoch: int
    cancelled: bool


class ResponseEdits(ABC):
    """The writing methods of `ResponseStore`, as edits."""

    @abstractmethod
    async def _write(self, tenant: str, response_id: str, edit: Edit) -> EditResult | None:
        """Carry out all effects of an edit in one commit; return None if the table has no edge for it, because it comes too late.

        Raises:
            StoreError: The edit is refused.
        """

    async def put(self, tenant: str, stored: StoredResponse, addition: Addition | None = None) -> None:
        await self._write(tenant, stored.id, Edit(_T.PUT, stored, addition))

    async def delete(self, tenant: str, response_id: str) -> bool:
        return await self._write(tenant, response_id, Edit(_T.DELETE)) is not None

    async def enqueue(self, tenant: str, stored: StoredResponse, owner: str) -> Lease:
        await self._write(tenant, stored.id, Edit(_T.ENQUEUE, stored, owner=owner))
        return Lease(tenant, stored.id, owner, epoch=1)

    async def append(self, lease: Lease, first: int, frames: Sequence[bytes]) -> bool:
        return await self._write_as_owner(lease, Edit(_T.APPEND, None, None, lease.owner, lease.epoch, first, frames))

    async def renew(self, lease: Lease) -> bool:
        return await self._write_as_owner(lease, Edit(_T.RENEW, None, None, lease.owner, lease.epoch))

    async def finish(
        self, lease: Lease, first: int, frames: Sequence[bytes], stored: StoredResponse, addition: Addition | None = None
    ) -> None:
        await self._write_as_owner(lease, Edit(_T.FINISH, stored, addition, lease.owner, lease.epoch, first, frames))

    async def cancel(self, tenant: str, response_id: str) -> bool:
        return await self._write(tenant, response_id, Edit(_T.CANCEL)) is not None

    async def adopt(self, tenant: str, response_id: str, owner: str) -> Lease | None:
        result = await self._write(tenant, response_id, Edit(_T.ADOPT, owner=owner))
        return None if result is None else Lease(tenant, response_id, owner, result.epoch)

    async def _write_as_owner(self, lease: Lease, edit: Edit) -> bool:
        result = await self._write(lease.tenant, lease.response_id, edit)
        return result is not None and result.cancelled


def has_lapsed(until: float, now: float) -> bool:
    """Return whether a lease is over.

    A lease that ends more than two lease times from now dates from before the clock was set back far, as by a restart of the
    machine. It is over as well, because nobody would wait for its end. A clock that is set back a little ends no lease.
    """
    return not now < until <= now + 2 * LEASE


def current_state(name: str, *, lapsed: bool, expired: bool) -> StoredState:
    """Return the state of a response after what time alone has done to it since the state `name` was written."""
    state = STORED.states[name]
    for trigger, is_due in ((_T.LAPSE, lapsed), (_T.EXPIRE, expired)):
        if is_due and trigger in state.rows:
            state, _ = state.rows[trigger]
    return state


def refuse(edit: Edit, state: str) -> None:
    """Raise the error for an edit that is illegal in a state; return if it merely comes too late.

    Raises:
        LeaseLost: The edit needs the lease.
        Conflict: The edit stores a response.
    """
    if edit.epoch is not None:
        raise LeaseLost(f"The lease of {edit.owner!r} is over: the response is {state}.")
    if edit.stored is not None:
        raise Conflict(f"There is a response with that id already; it is {state}.")


def conversation_effects(
    name: str, owner: str, until: float, now: float, trigger: ConversationTrigger, by: str = ""
) -> tuple[ConversationEffect, ...]:
    """Fire an edge of an existing conversation, and return its effects.

    Args:
        name: The id of the conversation.
        owner: The last owner; empty for none.
        until: The end of the owner's lease, by the clock of the store.
        now: The time of that clock.
        trigger: The trigger. `hold` by the owner renews the lease; `release` by another has no effect.
        by: The owner that fires it.

    Raises:
        Conflict: Another owner holds the conversation.
    """
    state = CONVERSATION.states["held" if owner else "free"]
    if owner and has_lapsed(until, now):
        state, _ = state.rows[ConversationTrigger.LAPSE]
    if trigger is ConversationTrigger.RELEASE and by != owner:
        return ()
    if (trigger, by) == (ConversationTrigger.HOLD, owner) and ConversationTrigger.RENEW in state.rows:
        trigger = ConversationTrigger.RENEW
    if trigger not in state.rows:
        raise Conflict(f"A response is being made that adds to the conversation '{name}'.")
    _, effects = state.rows[trigger]
    return effects
