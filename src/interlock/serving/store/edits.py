"""Edits of responses and conversations: what the tables `stored` and `conversation` let happen, the same for every store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from attrs import field, frozen

from interlock.fsm.processes.conversation import CONVERSATION, ConversationEffect, ConversationTrigger
from interlock.fsm.processes.stored import STORED, StoredEffect, StoredTrigger
from interlock.fsm.table import Machine
from interlock.serving.store.records import LEASE, Addition, Lease, StoredResponse
from interlock.serving.store.store_errors import Conflict, Gap, LeaseLost

__all__ = [
    "Edit",
    "EditResult",
    "ResponseEdits",
    "conversation_effects",
    "has_lapsed",
    "require_next",
    "response_machine",
    "stored_effects",
]

_T: Final = StoredTrigger


@frozen
class Edit:
    """What is written about a response in one commit.

    Args:
        trigger: What is fired.
        stored: The response to store.
        addition: What it adds to a conversation.
        owner: Who takes the lease, or has it.
        epoch: Of the lease under which is written; 0 for what needs none.
        first: The number of the first event.
        frames: The events to append.
    """

    trigger: StoredTrigger
    stored: StoredResponse | None = None
    addition: Addition | None = None
    owner: str = ""
    epoch: int = 0
    first: int = 0
    frames: Sequence[bytes] = field(default=(), repr=False)


@frozen
class EditResult:
    """What is known of a response after an edit.

    Args:
        epoch: How many owners it has had.
        cancelled: Whether cancelling was asked for.
    """

    epoch: int
    cancelled: bool


class ResponseEdits(ABC):
    """The methods of `ResponseStore` that write: each fires one edge of the table `stored`."""

    @abstractmethod
    async def _write(self, tenant: str, response_id: str, edit: Edit) -> EditResult | None:
        """Fire the edge of an edit and carry out its effects in one commit, or none of them.

        Returns None if there is no such edge, for what may come too late, and raises `StoreError` if the edit is refused.
        """

    async def put(self, tenant: str, stored: StoredResponse, addition: Addition | None = None) -> None:
        """Store a response that has ended."""
        await self._write(tenant, stored.id, Edit(_T.PUT, stored, addition))

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Delete a response."""
        return await self._write(tenant, response_id, Edit(_T.DELETE)) is not None

    async def enqueue(self, tenant: str, stored: StoredResponse, owner: str) -> Lease:
        """Store a response that is to be made."""
        await self._write(tenant, stored.id, Edit(_T.ENQUEUE, stored, owner=owner))
        return Lease(tenant, stored.id, owner, epoch=1)

    async def append(self, lease: Lease, first: int, frames: Sequence[bytes]) -> bool:
        """Append events to the log of a response."""
        return await self._write_as_owner(lease, Edit(_T.APPEND, None, None, lease.owner, lease.epoch, first, frames))

    async def renew(self, lease: Lease) -> bool:
        """Renew a lease."""
        return await self._write_as_owner(lease, Edit(_T.RENEW, None, None, lease.owner, lease.epoch))

    async def finish(
        self, lease: Lease, first: int, frames: Sequence[bytes], stored: StoredResponse, addition: Addition | None = None
    ) -> None:
        """End a response."""
        await self._write_as_owner(lease, Edit(_T.FINISH, stored, addition, lease.owner, lease.epoch, first, frames))

    async def cancel(self, tenant: str, response_id: str) -> bool:
        """Ask the owner of a response to cancel it."""
        return await self._write(tenant, response_id, Edit(_T.CANCEL)) is not None

    async def adopt(self, tenant: str, response_id: str, owner: str) -> Lease | None:
        """Take over a response whose owner is lost."""
        result = await self._write(tenant, response_id, Edit(_T.ADOPT, owner=owner))
        return None if result is None else Lease(tenant, response_id, owner, result.epoch)

    async def _write_as_owner(self, lease: Lease, edit: Edit) -> bool:
        result = await self._write(lease.tenant, lease.response_id, edit)
        return result is not None and result.cancelled


def has_lapsed(until: float, now: float) -> bool:
    """Return whether a lease is over.

    A lease that ends much later than one that begins now was given before the clock was set back, as by a restart of the machine:
    it is over as well, because nobody would wait for its end. A clock that is set back a little, as clocks are, ends no lease.
    """
    return not now < until <= now + 2 * LEASE


def response_machine(name: str, *, lapsed: bool, expired: bool) -> Machine[StoredTrigger, StoredEffect]:
    """Return the life of a response where it is now; what time alone does to it is fired.

    Args:
        name: The state that was written last.
        lapsed: Whether its lease is over; of no meaning where nobody has one.
        expired: Whether nothing was written about it for as long as responses are stored.
    """
    machine = Machine[StoredTrigger, StoredEffect](STORED.states[name])
    for trigger in [_T.LAPSE] * lapsed + [_T.EXPIRE] * expired:
        if trigger in machine.state.rows:
            machine.fire(trigger)
    return machine


def stored_effects(
    machine: Machine[StoredTrigger, StoredEffect], owner: str, epoch: int, edit: Edit
) -> tuple[StoredEffect, ...] | None:
    """Fire the edge of an edit, and return its effects; None if the table has none, for what may come too late.

    Raises:
        LeaseLost: Another owns the response, or it has ended or is gone.
        Conflict: There is a response with that id that is being made, or has to be new.
    """
    allowed = edit.trigger in machine.state.rows
    match edit.trigger:
        case _T.APPEND | _T.RENEW | _T.FINISH:
            if not allowed or (edit.owner, edit.epoch) != (owner, epoch):
                raise LeaseLost(f"The lease of {edit.owner!r} is over: the response is {machine.state.name}.")
        case _T.PUT | _T.ENQUEUE:
            if not allowed:
                raise Conflict(f"There is a response with that id already; it is {machine.state.name}.")
        case _:
            pass
    return machine.fire(edit.trigger) if allowed else None


def require_next(following: int, edit: Edit) -> None:
    """Refuse events that do not follow on the last one.

    Raises:
        Gap: They have other numbers.
    """
    if edit.first != following:
        raise Gap(following, edit.first)


def conversation_effects(
    name: str, owner: str, until: float, now: float, trigger: ConversationTrigger, by: str = ""
) -> tuple[ConversationEffect, ...]:
    """Fire an edge of a conversation that is there, and return its effects.

    Args:
        name: Its id.
        owner: Who held it last; an empty text for nobody.
        until: When that lease ends, by the clock of the store.
        now: What that clock shows.
        trigger: What is fired. `hold` renews the lease of who holds it already; `release` does nothing to that of another.
        by: Who fires it.

    Raises:
        Conflict: The table has no such edge, because another holds it.
    """
    machine = Machine[ConversationTrigger, ConversationEffect](CONVERSATION.states["held" if owner else "free"])
    if owner and has_lapsed(until, now):
        machine.fire(ConversationTrigger.LAPSE)
    if trigger is ConversationTrigger.RELEASE and by != owner:
        return ()
    if (trigger, by) == (ConversationTrigger.HOLD, owner) and ConversationTrigger.RENEW in machine.state.rows:
        trigger = ConversationTrigger.RENEW
    if trigger not in machine.state.rows:
        raise Conflict(f"A response is being made that adds to the conversation '{name}'.")
    return machine.fire(trigger)
