"""The life of a conversation that a client has created, declared as a table: who may change its items, and when.

A response that is made in a conversation holds it, so that nobody changes what the response goes on from. The hold is a lease.
Nothing is written when it lapses: whoever looks at the conversation fires `lapse` first, if the lease is over by the clock of
the store.

Every store of `interlock.serving.store` fires these edges and carries out their effects, each within one commit.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table

__all__ = ["CONVERSATION", "ConversationEffect", "ConversationTrigger"]


class ConversationTrigger(StrEnum):
    """What can happen to a conversation."""

    CREATE = "create"
    """A client creates it."""
    DESCRIBE = "describe"
    """A client gives it other metadata."""
    CHANGE = "change"
    """A client adds items to it, or removes one."""
    HOLD = "hold"
    """A response is to be made in it."""
    RENEW = "renew"
    """The response that is made in it goes on."""
    JOIN = "join"
    """A response has ended and is added to it, in the commit of its end."""
    RELEASE = "release"
    """A response has ended and adds nothing."""
    LAPSE = "lapse"
    """Nothing was heard of who holds it until the lease was over."""
    DELETE = "delete"
    """A client deletes it."""


class ConversationEffect(StrEnum):
    """What an edge asks for."""

    KEEP = "keep"
    """Keep it with the items that it begins with."""
    TAKE = "take"
    """Note who holds it, and let the lease begin."""
    WRITE = "write"
    """Change its items, which makes another version of it."""
    DESCRIBE = "describe"
    """Write its metadata."""
    FREE = "free"
    """Nobody holds it any more."""
    REMOVE = "remove"
    """Remove it, with the items that nothing else refers to."""


_T, _E = ConversationTrigger, ConversationEffect

CONVERSATION: Final[Table[ConversationTrigger, ConversationEffect]] = Table(
    "conversation",
    initial="absent",
    final={"deleted"},
    edges=[
        #    in        on           goes to    effects
        Edge("absent", _T.CREATE,   "free",    [_E.KEEP]),

        Edge("free",   _T.DESCRIBE, "free",    [_E.DESCRIBE]),
        Edge("free",   _T.CHANGE,   "free",    [_E.WRITE]),
        Edge("free",   _T.HOLD,     "held",    [_E.TAKE]),
        # A response whose lease has lapsed is added all the same, if the version says that nobody came between.
        Edge("free",   _T.JOIN,     "free",    [_E.WRITE]),
        Edge("free",   _T.RELEASE,  "free"),
        Edge("free",   _T.DELETE,   "deleted", [_E.REMOVE]),

        Edge("held",   _T.DESCRIBE, "held",    [_E.DESCRIBE]),
        Edge("held",   _T.RENEW,    "held",    [_E.TAKE]),
        Edge("held",   _T.JOIN,     "free",    [_E.WRITE, _E.FREE]),
        Edge("held",   _T.RELEASE,  "free",    [_E.FREE]),
        Edge("held",   _T.LAPSE,    "free",    [_E.FREE]),
        Edge("held",   _T.DELETE,   "deleted", [_E.REMOVE]),
    ],
)  # fmt: skip
"""The life of a conversation. In `held` there is no row for `change` and none for `hold`: the items stay as they are."""
