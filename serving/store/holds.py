"""Holds on conversations: what the table `conversation` lets happen, the same for every store."""

from __future__ import annotations

from typing import Final

from interlock.fsm.processes.conversation import CONVERSATION, ConversationEffect, ConversationTrigger
from interlock.fsm.table import Machine
from interlock.serving.store.errors import Conflict
from interlock.serving.store.leases import has_lapsed

__all__ = ["effects_of", "is_held"]

_T: Final = ConversationTrigger


def is_held(owner: str, until: float, now: float) -> bool:
    """Return whether somebody holds a conversation.

    Args:
        owner: Who held it last; an empty text for nobody.
        until: When that lease ends, by the clock of the store.
        now: What that clock shows.
    """
    return _T.RENEW in _life(owner, until, now).state.rows


def effects_of(
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
    life = _life(owner, until, now)
    if trigger is _T.RELEASE and by != owner:
        return ()
    fired = _T.RENEW if (trigger, by) == (_T.HOLD, owner) and _T.RENEW in life.state.rows else trigger
    if fired not in life.state.rows:
        raise Conflict(f"A response is being made that adds to the conversation '{name}'.")
    return life.fire(fired)


def _life(owner: str, until: float, now: float) -> Machine[ConversationTrigger, ConversationEffect]:
    """Return the life of a conversation where it is now; what time alone does to it is fired."""
    machine = Machine[ConversationTrigger, ConversationEffect](CONVERSATION.states["held" if owner else "free"])
    if owner and has_lapsed(until, now):
        machine.fire(_T.LAPSE)
    return machine
