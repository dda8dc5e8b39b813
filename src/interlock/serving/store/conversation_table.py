"""The life of a conversation, declared as a table: who may change its items, and when.

A response in a conversation holds a lease on it, so only that response can change its items. A store writes nothing at the
moment when the lease lapses: the next operation consults the store's clock, and fires `lapse` first. The response whose lease has
lapsed stays the owner until another response takes the lease or a client changes the items. A response that is no longer the
owner changes nothing.

Every store of `interlock.serving.store` fires these edges and carries out the effects of each in one commit.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table


class ConversationTrigger(StrEnum):
    """The triggers of a conversation."""

    CREATE = "create"
    """A client creates the conversation."""
    DESCRIBE = "describe"
    """A client changes the metadata."""
    CHANGE = "change"
    """A client adds items or removes one."""
    HOLD = "hold"
    """A response in the conversation starts."""
    RENEW = "renew"
    """The owner renews its lease."""
    JOIN = "join"
    """The owner has ended; the commit that stores it adds its items."""
    RELEASE = "release"
    """The owner has ended and adds nothing."""
    LAPSE = "lapse"
    """The lease is over and the owner has not renewed it."""
    DELETE = "delete"
    """A client deletes the conversation."""


class ConversationEffect(StrEnum):
    """The effects of a conversation."""

    KEEP = "keep"
    """Store the conversation with its first items."""
    TAKE = "take"
    """Make the response the owner, with a new lease."""
    WRITE = "write"
    """Change the items and increment the version."""
    DESCRIBE = "describe"
    """Store the metadata."""
    FREE = "free"
    """End the lease; the conversation has no owner."""
    REMOVE = "remove"
    """Remove the conversation and every item that nothing else refers to."""


_T, _E = ConversationTrigger, ConversationEffect

CONVERSATION: Final[Table[ConversationTrigger, ConversationEffect]] = Table(
    "conversation",
    initial="absent",
    final={"deleted"},
    regions={"present": ["free", "leased", "lapsed"]},
    owned={_T.RENEW, _T.JOIN, _T.RELEASE},
    edges=[
        #    in         on           goes to    effects
        Edge("absent",  _T.CREATE,   "free",    [_E.KEEP]),

        Edge("present", _T.DESCRIBE, "present", [_E.DESCRIBE]),
        Edge("present", _T.DELETE,   "deleted", [_E.REMOVE]),

        Edge("free",    _T.CHANGE,   "free",    [_E.WRITE]),
        Edge("free",    _T.HOLD,     "leased",  [_E.TAKE]),

        Edge("leased",  _T.RENEW,    "leased",  [_E.TAKE]),
        Edge("leased",  _T.JOIN,     "free",    [_E.WRITE, _E.FREE]),
        Edge("leased",  _T.RELEASE,  "free",    [_E.FREE]),
        Edge("leased",  _T.LAPSE,    "lapsed"),

        # An owner that returns before anybody else comes continues, because nothing has changed.
        Edge("lapsed",  _T.RENEW,    "leased",  [_E.TAKE]),
        Edge("lapsed",  _T.JOIN,     "free",    [_E.WRITE, _E.FREE]),
        Edge("lapsed",  _T.RELEASE,  "free",    [_E.FREE]),
        Edge("lapsed",  _T.CHANGE,   "free",    [_E.WRITE, _E.FREE]),
        Edge("lapsed",  _T.HOLD,     "leased",  [_E.TAKE]),
    ],
)  # fmt: skip
"""The life of a conversation. `leased` has no row for `change` or `hold`, so only the owner adds items."""
