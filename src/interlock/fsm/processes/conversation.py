"""The life of a conversation, declared as a table: who may change its items, and when.

A response in a conversation holds a lease on it, so only that response can change its items. A store writes nothing at the
moment when the lease lapses: the next operation consults the store's clock, and fires `lapse` first.

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
    """The response renews its lease."""
    JOIN = "join"
    """A response has ended; the commit that stores it adds its items."""
    RELEASE = "release"
    """A response has ended and adds nothing."""
    LAPSE = "lapse"
    """The lease is over and the response has not renewed it."""
    DELETE = "delete"
    """A client deletes the conversation."""


class ConversationEffect(StrEnum):
    """The effects of a conversation."""

    KEEP = "keep"
    """Store the conversation with its first items."""
    TAKE = "take"
    """Give the response the lease, or renew it."""
    WRITE = "write"
    """Change the items and increment the version."""
    DESCRIBE = "describe"
    """Store the metadata."""
    FREE = "free"
    """End the lease."""
    REMOVE = "remove"
    """Remove the conversation and every item that nothing else refers to."""


_T, _E = ConversationTrigger, ConversationEffect

CONVERSATION: Final[Table[ConversationTrigger, ConversationEffect]] = Table(
    "conversation",
    initial="absent",
    final={"deleted"},
    regions={"present": ["free", "leased"]},
    edges=[
        #    in         on           goes to    effects
        Edge("absent",  _T.CREATE,   "free",    [_E.KEEP]),

        Edge("present", _T.DESCRIBE, "present", [_E.DESCRIBE]),
        Edge("present", _T.DELETE,   "deleted", [_E.REMOVE]),

        Edge("free",    _T.CHANGE,   "free",    [_E.WRITE]),
        Edge("free",    _T.HOLD,     "leased",  [_E.TAKE]),
        # A response whose lease has lapsed can still add its items, if the version has not changed since.
        Edge("free",    _T.JOIN,     "free",    [_E.WRITE]),
        Edge("free",    _T.RELEASE,  "free"),

        Edge("leased",  _T.RENEW,    "leased",  [_E.TAKE]),
        Edge("leased",  _T.JOIN,     "free",    [_E.WRITE, _E.FREE]),
        Edge("leased",  _T.RELEASE,  "free",    [_E.FREE]),
        Edge("leased",  _T.LAPSE,    "free",    [_E.FREE]),
    ],
)  # fmt: skip
"""The life of a conversation. `leased` has no row for `change` or `hold`, so only the response with the lease adds items."""
