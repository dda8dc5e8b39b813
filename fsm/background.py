"""The life of a response in the background, declared as a table.

Its events are kept, so that any number of readers can read them. `interlock.serving.runs.background` carries out the effects.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table

__all__ = ["BACKGROUND", "BackgroundEffect", "BackgroundTrigger"]


class BackgroundTrigger(StrEnum):
    """What can happen to a response in the background."""

    START = "start"
    """Its task has begun to make it."""
    GROW = "grow"
    """Events were made."""
    CANCEL = "cancel"
    """A client, or the server on its behalf, cancels it."""
    END = "end"
    """No more events come."""
    EVICT = "evict"
    """Its events are kept no longer: it was deleted, or is the oldest of too many."""


class BackgroundEffect(StrEnum):
    """What an edge asks for."""

    KEEP = "keep"
    """Keep the new events."""
    WAKE = "wake"
    """Wake the readers, who wait for events."""
    INTERRUPT = "interrupt"
    """Have the run end the response, legally and soon."""
    CONCLUDE = "conclude"
    """Keep the end of the stream, also if the run was left before it."""
    RELEASE = "release"
    """Let those go on who wait for the end."""


_T, _E = BackgroundTrigger, BackgroundEffect

BACKGROUND: Final[Table[BackgroundTrigger, BackgroundEffect]] = Table(
    "background",
    initial="queued",
    final={"evicted"},
    edges=[
        #    in         on         goes to    effects
        Edge("queued",  _T.START,  "running"),
        Edge("queued",  _T.CANCEL, "queued",  [_E.INTERRUPT]),
        Edge("queued",  _T.END,    "ended",   [_E.CONCLUDE, _E.RELEASE, _E.WAKE]),

        Edge("running", _T.GROW,   "running", [_E.KEEP, _E.WAKE]),
        Edge("running", _T.CANCEL, "running", [_E.INTERRUPT]),
        Edge("running", _T.END,    "ended",   [_E.CONCLUDE, _E.RELEASE, _E.WAKE]),

        Edge("ended",   _T.CANCEL, "ended"),
        Edge("ended",   _T.EVICT,  "evicted"),
    ],
)  # fmt: skip
"""A response in the background. It can be evicted only when it has ended, so every reader has its end."""
