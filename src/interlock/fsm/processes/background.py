"""Who writes the events of a response in the background, declared as a table: the owner of its lease, from the first to the last.

The run makes events and the owner writes them to a store, a batch at a time. At most one write is on its way; what is made
meanwhile waits. The last write is one commit with the end of the response. `interlock.serving.responses.background_response` carries out the
effects; the other side, what a store accepts, is the table of `interlock.fsm.processes.stored`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table

__all__ = ["BACKGROUND", "BackgroundEffect", "BackgroundTrigger"]


class BackgroundTrigger(StrEnum):
    """What can happen to the owner of a response in the background."""

    GROW = "grow"
    """The run has made events."""
    DUE = "due"
    """A batch is large or old enough, or the lease is to be renewed."""
    WRITTEN = "written"
    """The store has taken what was on its way."""
    RETRY = "retry"
    """The store could not be used; whether it has taken what was on its way is not known."""
    CANCEL = "cancel"
    """Somebody has asked for the response to be cancelled."""
    LOSE = "lose"
    """The lease is over: it could not be renewed, somebody else has it, or the response was deleted."""
    END = "end"
    """The run has made its last event."""


class BackgroundEffect(StrEnum):
    """What an edge asks for."""

    ARM = "arm"
    """Let the batch be due in a moment."""
    WRITE = "write"
    """Append the events that wait to the log, which renews the lease; also without any."""
    FINISH = "finish"
    """Write the last events, the status and the body in one commit, which ends the lease."""
    INTERRUPT = "interrupt"
    """Have the run cancel the response, legally and soon."""
    STOP = "stop"
    """Have the run end at once: nothing of what it makes from here on is there for anybody."""
    RELEASE = "release"
    """Let those go on who wait for the owner."""


_T, _E = BackgroundTrigger, BackgroundEffect

BACKGROUND: Final[Table[BackgroundTrigger, BackgroundEffect]] = Table(
    "background",
    initial="idle",
    final={"ended", "left"},
    edges=[
        #    in         on          goes to    effects
        Edge("idle",    _T.GROW,    "holding", [_E.ARM]),
        Edge("idle",    _T.DUE,     "writing", [_E.WRITE]),
        Edge("idle",    _T.CANCEL,  "idle",    [_E.INTERRUPT]),
        Edge("idle",    _T.END,     "ending",  [_E.FINISH]),

        Edge("holding", _T.GROW,    "holding"),
        Edge("holding", _T.DUE,     "writing", [_E.WRITE]),
        Edge("holding", _T.CANCEL,  "holding", [_E.INTERRUPT]),
        Edge("holding", _T.END,     "ending",  [_E.FINISH]),

        Edge("writing", _T.GROW,    "behind"),
        Edge("writing", _T.WRITTEN, "idle"),
        Edge("writing", _T.RETRY,   "holding", [_E.ARM]),
        Edge("writing", _T.CANCEL,  "writing", [_E.INTERRUPT]),
        Edge("writing", _T.LOSE,    "lost",    [_E.STOP]),
        Edge("writing", _T.END,     "closing"),

        Edge("behind",  _T.GROW,    "behind"),
        Edge("behind",  _T.WRITTEN, "holding", [_E.ARM]),
        Edge("behind",  _T.RETRY,   "holding", [_E.ARM]),
        Edge("behind",  _T.CANCEL,  "behind",  [_E.INTERRUPT]),
        Edge("behind",  _T.LOSE,    "lost",    [_E.STOP]),
        Edge("behind",  _T.END,     "closing"),

        # The run is over: what is on its way is waited for, and the rest goes with the last commit.
        Edge("closing", _T.WRITTEN, "ending",  [_E.FINISH]),
        Edge("closing", _T.RETRY,   "ending",  [_E.FINISH]),
        Edge("closing", _T.LOSE,    "left",    [_E.RELEASE]),

        Edge("ending",  _T.WRITTEN, "ended",   [_E.RELEASE]),
        Edge("ending",  _T.RETRY,   "ending",  [_E.FINISH]),
        Edge("ending",  _T.LOSE,    "left",    [_E.RELEASE]),

        # Whoever adopts the response ends it; this run is only waited for.
        Edge("lost",    _T.GROW,    "lost"),
        Edge("lost",    _T.END,     "left",    [_E.RELEASE]),
    ],
)  # fmt: skip
"""The owner of a response in the background. Every way ends: with the last commit, or because the lease is somebody else's."""
