"""The life of a worker, declared as a table: a place in a server that one process after another fills.

`interlock.serving.http.workers` carries out the effects.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table


class WorkerTrigger(StrEnum):
    """The triggers of a worker."""

    DUE = "due"
    """The delay before the next start is over. The first start has none."""
    READY = "ready"
    """The process accepts connections."""
    EXIT = "exit"
    """The process has exited, or was killed."""
    STOP = "stop"
    """The server stops."""


class WorkerEffect(StrEnum):
    """The effects of a worker."""

    START = "start"
    """Start a process."""
    RECLAIM = "reclaim"
    """Give back the slots of the process that has exited."""
    BACK_OFF = "back_off"
    """Start the timer, which fires `due`. The delay grows while processes exit soon after their start."""
    TERMINATE = "terminate"
    """Ask the process to drain and exit."""


_T, _E = WorkerTrigger, WorkerEffect

WORKER: Final[Table[WorkerTrigger, WorkerEffect]] = Table(
    "worker",
    initial="backing_off",
    final={"exited"},
    regions={"running": ["starting", "ready"]},
    edges=[
        #    in             on        goes to        effects
        Edge("backing_off", _T.DUE,   "starting",    [_E.START]),
        Edge("starting",    _T.READY, "ready"),
        Edge("running",     _T.EXIT,  "backing_off", [_E.RECLAIM, _E.BACK_OFF]),

        Edge("running",     _T.STOP,  "draining",    [_E.TERMINATE]),
        Edge("draining",    _T.READY, "draining"),
        Edge("draining",    _T.EXIT,  "exited",      [_E.RECLAIM]),
        Edge("backing_off", _T.STOP,  "exited"),
    ],
)  # fmt: skip
"""A worker. A process that exits is replaced until the server stops."""
