"""The life of a stored response, declared as a table: what a store lets happen to it, and what that does to what is stored.

A response that was made in the foreground is put into the store once, at its end. One in the background is enqueued; from then
on one owner at a time writes its events, under a lease that ends by itself, so that another can take over when the owner has
died. Nothing is written when a lease lapses: whoever looks at the response fires `lapse` first, if the lease is over by the clock
of the store; `expire` likewise.

Every store of `interlock.serving.store` fires these edges and carries out their effects, each within one commit.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table

__all__ = ["STORED", "StoredEffect", "StoredTrigger"]


class StoredTrigger(StrEnum):
    """What can happen to a stored response."""

    PUT = "put"
    """A response that has ended is stored as a whole."""
    ENQUEUE = "enqueue"
    """A response is to be made in the background."""
    APPEND = "append"
    """The owner has made events."""
    RENEW = "renew"
    """The owner says that it is alive."""
    CANCEL = "cancel"
    """A client asks for it to be cancelled."""
    FINISH = "finish"
    """The owner has made the last events."""
    LAPSE = "lapse"
    """The owner was not heard of until its lease was over."""
    ADOPT = "adopt"
    """Another takes over, to end the response."""
    TRIM = "trim"
    """The log of a response that has ended is kept no longer."""
    DELETE = "delete"
    """A client deletes it."""
    EXPIRE = "expire"
    """Nothing was written about it for as long as responses are stored."""


class StoredEffect(StrEnum):
    """What an edge asks for."""

    KEEP = "keep"
    """Keep the response and its conversation as they are now."""
    TAKE = "take"
    """Give the lease to an owner, with the next epoch."""
    EXTEND = "extend"
    """Let the lease begin again."""
    LOG = "log"
    """Append events to the log."""
    FLAG = "flag"
    """Note that cancelling was asked for."""
    JOIN = "join"
    """Add to a conversation what the response adds to it."""
    RELEASE = "release"
    """End the lease: nobody owns the response any more."""
    TRIM = "trim"
    """Remove the events of the log."""
    REMOVE = "remove"
    """Remove all of it, with the items that nothing else refers to."""
    WAKE = "wake"
    """Wake all who watch the response: its readers and its owner."""


_T, _E = StoredTrigger, StoredEffect
_FINISHED: Final = [_E.LOG, _E.KEEP, _E.JOIN, _E.RELEASE, _E.WAKE]

STORED: Final[Table[StoredTrigger, StoredEffect]] = Table(
    "stored",
    initial="absent",
    final={"expired"},
    edges=[
        #    in         on          goes to    effects
        Edge("absent",  _T.PUT,     "ended",   [_E.KEEP, _E.JOIN]),
        Edge("absent",  _T.ENQUEUE, "queued",  [_E.KEEP, _E.TAKE]),

        Edge("queued",  _T.APPEND,  "running", [_E.LOG, _E.EXTEND, _E.WAKE]),
        Edge("queued",  _T.RENEW,   "queued",  [_E.EXTEND]),
        Edge("queued",  _T.CANCEL,  "queued",  [_E.FLAG, _E.WAKE]),
        Edge("queued",  _T.FINISH,  "ended",   _FINISHED),
        Edge("queued",  _T.LAPSE,   "lost"),
        Edge("queued",  _T.DELETE,  "expired", [_E.REMOVE, _E.WAKE]),

        Edge("running", _T.APPEND,  "running", [_E.LOG, _E.EXTEND, _E.WAKE]),
        Edge("running", _T.RENEW,   "running", [_E.EXTEND]),
        Edge("running", _T.CANCEL,  "running", [_E.FLAG, _E.WAKE]),
        Edge("running", _T.FINISH,  "ended",   _FINISHED),
        Edge("running", _T.LAPSE,   "lost"),
        Edge("running", _T.DELETE,  "expired", [_E.REMOVE, _E.WAKE]),

        # An owner that comes back before anybody has taken over goes on: its epoch is still the last.
        Edge("lost",    _T.APPEND,  "running", [_E.LOG, _E.EXTEND, _E.WAKE]),
        Edge("lost",    _T.RENEW,   "running", [_E.EXTEND]),
        Edge("lost",    _T.CANCEL,  "lost",    [_E.FLAG, _E.WAKE]),
        Edge("lost",    _T.FINISH,  "ended",   _FINISHED),
        Edge("lost",    _T.ADOPT,   "running", [_E.TAKE, _E.WAKE]),
        Edge("lost",    _T.DELETE,  "expired", [_E.REMOVE, _E.WAKE]),
        Edge("lost",    _T.EXPIRE,  "expired", [_E.REMOVE, _E.WAKE]),

        Edge("ended",   _T.PUT,     "ended",   [_E.KEEP, _E.JOIN]),
        Edge("ended",   _T.CANCEL,  "ended"),
        Edge("ended",   _T.TRIM,    "ended",   [_E.TRIM]),
        Edge("ended",   _T.DELETE,  "expired", [_E.REMOVE, _E.WAKE]),
        Edge("ended",   _T.EXPIRE,  "expired", [_E.REMOVE, _E.WAKE]),
    ],
)  # fmt: skip
"""The life of a stored response. The first commit that ends it wins: from `ended`, no edge appends or finishes."""
