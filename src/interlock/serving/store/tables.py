"""The lives of a stored response and of a conversation, declared as tables.

A foreground response is stored when it ends. A background response is enqueued first, and one owner at a time writes its
events. The owner's lease expires, so another owner can take over if it dies. When a client deletes it, its readers get a lease on
its log, so that they can read the end.

A response in a conversation holds a lease on it, so only that response can change its items. The response whose lease has lapsed
stays the owner until another response takes the lease or a client changes the items. A response that is no longer the owner
changes nothing.

A store writes nothing at the moment when a lease lapses, or a response or conversation expires: the next operation consults the
store's clock, and fires `lapse` or `expire` first. It carries out the effects of an edge in one commit.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table


class StoredTrigger(StrEnum):
    """The triggers of a stored response."""

    PUT = "put"
    """A response that has ended is stored. It may replace one with the same id."""
    ENQUEUE = "enqueue"
    """A background response is accepted."""
    APPEND = "append"
    """The owner writes events."""
    RENEW = "renew"
    """The owner renews its lease."""
    CANCEL = "cancel"
    """A client asks to cancel the response."""
    FINISH = "finish"
    """The owner writes the last events. This ends the response."""
    LAPSE = "lapse"
    """The lease is over: its owner has not renewed it, or it was that of the readers."""
    ADOPT = "adopt"
    """Another owner takes over to end the response."""
    TRIM = "trim"
    """The retention time of the log is over."""
    HIDE = "hide"
    """A client deletes a background response, whose readers may not have read its end."""
    DELETE = "delete"
    """A client deletes any other response, or the store removes one."""
    EXPIRE = "expire"
    """The retention time of the response is over, counted from its last write."""


class StoredEffect(StrEnum):
    """The effects of a stored response."""

    KEEP = "keep"
    """Store the response and its conversation as they are now."""
    TAKE = "take"
    """Give an owner the lease, with the next epoch (the number of the owner)."""
    EXTEND = "extend"
    """Renew the lease."""
    LOG = "log"
    """Append events to the log."""
    FLAG = "flag"
    """Record the request to cancel."""
    JOIN = "join"
    """Add the items of the response to its conversation."""
    RELEASE = "release"
    """End the lease; the response has no owner."""
    TRIM = "trim"
    """Remove the events from the log."""
    ERASE = "erase"
    """Remove the body of the response and every item that nothing else refers to, and lease the log to its readers."""
    REMOVE = "remove"
    """Remove the response and every item that nothing else refers to."""
    WAKE = "wake"
    """Wake the readers and the owner of the response."""


_T, _E = StoredTrigger, StoredEffect

STORED: Final[Table[StoredTrigger, StoredEffect]] = Table(
    "stored",
    initial="absent",
    final={"expired"},
    regions={"open": ["queued", "running", "lost"]},
    owned={_T.APPEND, _T.RENEW, _T.FINISH},
    edges=[
        #    in         on          goes to    effects
        Edge("absent",  _T.PUT,     "ended",   [_E.KEEP, _E.JOIN]),
        Edge("absent",  _T.ENQUEUE, "queued",  [_E.KEEP, _E.TAKE]),

        Edge("open",    _T.APPEND,  "running", [_E.LOG, _E.EXTEND, _E.WAKE]),
        Edge("open",    _T.CANCEL,  "open",    [_E.FLAG, _E.WAKE]),
        Edge("open",    _T.FINISH,  "ended",   [_E.LOG, _E.KEEP, _E.JOIN, _E.RELEASE, _E.WAKE]),
        Edge("open",    _T.HIDE,    "expired", [_E.REMOVE, _E.WAKE]),
        Edge("open",    _T.DELETE,  "expired", [_E.REMOVE, _E.WAKE]),

        Edge("queued",  _T.RENEW,   "queued",  [_E.EXTEND]),
        Edge("queued",  _T.LAPSE,   "lost"),

        Edge("running", _T.RENEW,   "running", [_E.EXTEND]),
        Edge("running", _T.LAPSE,   "lost"),

        # An owner that returns before another takes over continues, because its epoch is still the latest.
        Edge("lost",    _T.RENEW,   "running", [_E.EXTEND]),
        Edge("lost",    _T.ADOPT,   "running", [_E.TAKE, _E.WAKE]),
        Edge("lost",    _T.EXPIRE,  "expired", [_E.REMOVE, _E.WAKE]),

        Edge("ended",   _T.PUT,     "ended",   [_E.KEEP, _E.JOIN]),
        Edge("ended",   _T.CANCEL,  "ended"),
        Edge("ended",   _T.TRIM,    "ended",   [_E.TRIM]),
        Edge("ended",   _T.HIDE,    "hidden",  [_E.ERASE, _E.WAKE]),
        Edge("ended",   _T.DELETE,  "expired", [_E.REMOVE, _E.WAKE]),
        Edge("ended",   _T.EXPIRE,  "expired", [_E.REMOVE, _E.WAKE]),

        # No other response gets the id meanwhile, because its events would continue the events that the readers have.
        Edge("hidden",  _T.DELETE,  "expired", [_E.REMOVE, _E.WAKE]),
        Edge("hidden",  _T.LAPSE,   "expired", [_E.REMOVE, _E.WAKE]),
    ],
)  # fmt: skip
"""The life of a stored response. `ended` has no row for `append` or `finish`, so the first commit that ends a run wins."""


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
    EXPIRE = "expire"
    """The retention time of the conversation is over, counted from its last write."""


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


_CT, _CE = ConversationTrigger, ConversationEffect

CONVERSATION: Final[Table[ConversationTrigger, ConversationEffect]] = Table(
    "conversation",
    initial="absent",
    final={"deleted"},
    regions={"present": ["free", "leased", "lapsed"]},
    owned={_CT.RENEW, _CT.JOIN, _CT.RELEASE},
    edges=[
        #    in         on            goes to    effects
        Edge("absent",  _CT.CREATE,   "free",    [_CE.KEEP]),

        Edge("present", _CT.DESCRIBE, "present", [_CE.DESCRIBE]),
        Edge("present", _CT.DELETE,   "deleted", [_CE.REMOVE]),

        Edge("free",    _CT.CHANGE,   "free",    [_CE.WRITE]),
        Edge("free",    _CT.HOLD,     "leased",  [_CE.TAKE]),
        Edge("free",    _CT.EXPIRE,   "deleted", [_CE.REMOVE]),

        Edge("leased",  _CT.RENEW,    "leased",  [_CE.TAKE]),
        Edge("leased",  _CT.JOIN,     "free",    [_CE.WRITE, _CE.FREE]),
        Edge("leased",  _CT.RELEASE,  "free",    [_CE.FREE]),
        Edge("leased",  _CT.LAPSE,    "lapsed"),

        # An owner that returns before anybody else comes continues, because nothing has changed.
        Edge("lapsed",  _CT.RENEW,    "leased",  [_CE.TAKE]),
        Edge("lapsed",  _CT.JOIN,     "free",    [_CE.WRITE, _CE.FREE]),
        Edge("lapsed",  _CT.RELEASE,  "free",    [_CE.FREE]),
        Edge("lapsed",  _CT.CHANGE,   "free",    [_CE.WRITE, _CE.FREE]),
        Edge("lapsed",  _CT.HOLD,     "leased",  [_CE.TAKE]),
        Edge("lapsed",  _CT.EXPIRE,   "deleted", [_CE.REMOVE]),
    ],
)  # fmt: skip
"""The life of a conversation. `leased` has no row for `change` or `hold`, so only the owner adds items."""
