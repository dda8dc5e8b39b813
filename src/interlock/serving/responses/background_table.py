"""The task that owns a background response, declared as a table: it writes the response's events to a store.

The owner runs the response, holds its lease, and writes batches of events, one write at a time. The last write also ends the
response, in one commit. `interlock.serving.responses.background_response` carries out the effects. The table of
`interlock.serving.store.stored_table` is the store's side.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table


class BackgroundTrigger(StrEnum):
    """The triggers of the owner."""

    GROW = "grow"
    """The run has emitted events."""
    DUE = "due"
    """A batch is large or old enough, or the lease is due for renewal. A finished item also makes a batch due."""
    WRITTEN = "written"
    """The store has committed the pending write."""
    RETRY = "retry"
    """The write failed, and may or may not be committed; or the store already has some of the events."""
    CANCEL = "cancel"
    """A client has asked to cancel the response."""
    LOSE = "lose"
    """The lease is lost: it was not renewed in time, another owner has it, or the response was deleted. Or the store has lost
    events, and the response has ended after the rest."""
    END = "end"
    """The run has emitted its last event."""


class BackgroundEffect(StrEnum):
    """The effects of the owner."""

    ARM = "arm"
    """Start the timer of the batch, which fires `due`."""
    WRITE = "write"
    """Append the waiting events, if any, to the log, and renew the lease."""
    FINISH = "finish"
    """Write the last events, the status and the body in one commit that ends the lease."""
    INTERRUPT = "interrupt"
    """Tell the run to cancel the response, so that its stream ends legally."""
    STOP = "stop"
    """Stop the run at once; its further events are discarded."""


_T, _E = BackgroundTrigger, BackgroundEffect

BACKGROUND: Final[Table[BackgroundTrigger, BackgroundEffect]] = Table(
    "background",
    initial="idle",
    final={"ended", "left"},
    regions={"ready": ["idle", "holding"], "busy": ["writing", "behind"], "over": ["closing", "ending"]},
    edges=[
        #    in         on          goes to    effects
        Edge("idle",    _T.GROW,    "holding", [_E.ARM]),
        Edge("holding", _T.GROW,    "holding"),
        Edge("ready",   _T.DUE,     "writing", [_E.WRITE]),
        Edge("ready",   _T.CANCEL,  "ready",   [_E.INTERRUPT]),
        Edge("ready",   _T.END,     "ending",  [_E.FINISH]),

        Edge("writing", _T.WRITTEN, "idle"),
        Edge("behind",  _T.WRITTEN, "holding", [_E.ARM]),
        Edge("busy",    _T.GROW,    "behind"),
        Edge("busy",    _T.RETRY,   "holding", [_E.ARM]),
        Edge("busy",    _T.CANCEL,  "busy",    [_E.INTERRUPT]),
        Edge("busy",    _T.LOSE,    "lost",    [_E.STOP]),
        Edge("busy",    _T.END,     "closing"),

        # The run is over. The last commit follows the pending write, and writes the rest.
        Edge("closing", _T.WRITTEN, "ending",  [_E.FINISH]),
        Edge("ending",  _T.WRITTEN, "ended"),
        Edge("over",    _T.RETRY,   "ending",  [_E.FINISH]),
        Edge("over",    _T.LOSE,    "left"),

        # The next owner ends the response; this one only waits for its run.
        Edge("lost",    _T.GROW,    "lost"),
        Edge("lost",    _T.END,     "left"),
    ],
)  # fmt: skip
"""The owner of a background response. Every path ends with the last commit or the loss of the lease."""
