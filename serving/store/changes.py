"""What is written about a response in one commit, and what is refused before anything is written; the same for every store."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import field, frozen

from interlock.fsm.processes.stored import StoredEffect, StoredTrigger
from interlock.fsm.table import Machine
from interlock.serving.store.errors import Conflict, Gap, LeaseLost
from interlock.serving.store.values import Addition, StoredResponse

__all__ = ["Change", "fired", "require_following"]


@frozen
class Change:
    """What an edge needs to know beside the response: what its effects write.

    Args:
        trigger: What is fired.
        stored: The response that is kept.
        addition: What it adds to a conversation.
        owner: Who takes the lease, or has it.
        epoch: Of the lease under which is written; 0 for what needs none.
        first: The number of the first event.
        frames: The events that are appended.
    """

    trigger: StoredTrigger
    stored: StoredResponse | None = None
    addition: Addition | None = None
    owner: str = ""
    epoch: int = 0
    first: int = 0
    frames: Sequence[bytes] = field(default=(), repr=False)


def fired(
    machine: Machine[StoredTrigger, StoredEffect], owner: str, epoch: int, change: Change
) -> tuple[StoredEffect, ...] | None:
    """Fire the edge of a change, and return its effects; None if the table has none, for what may come too late.

    Args:
        machine: The life of the response as it is now.
        owner: Who owns it now.
        epoch: The epoch of the last lease.
        change: What is to be written.

    Raises:
        LeaseLost: Another owns the response, or it has ended or is gone.
        Conflict: There is a response with that id that is being made, or has to be new.
    """
    allowed = change.trigger in machine.state.rows
    match change.trigger:
        case StoredTrigger.APPEND | StoredTrigger.RENEW | StoredTrigger.FINISH:
            if not allowed or (change.owner, change.epoch) != (owner, epoch):
                raise LeaseLost(f"The lease of {change.owner!r} is over: the response is {machine.state.name}.")
        case StoredTrigger.PUT | StoredTrigger.ENQUEUE:
            if not allowed:
                raise Conflict(f"There is a response with that id already; it is {machine.state.name}.")
        case _:
            pass
    return machine.fire(change.trigger) if allowed else None


def require_following(following: int, change: Change) -> None:
    """Refuse events that do not follow on the last one.

    Args:
        following: The number of the next event.
        change: What is to be written.

    Raises:
        Gap: They have other numbers.
    """
    if change.first != following:
        raise Gap(following, change.first)
