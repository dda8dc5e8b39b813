"""The container of a code interpreter, declared as a table: a process that keeps the variables of one call for the next.

The calls of a container run one after another. `interlock.serving.tools.code_interpreter` carries out the effects.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table


class ContainerTrigger(StrEnum):
    """The triggers of a container."""

    RUN = "run"
    """The next call has its turn."""
    END = "end"
    """The code has ended, with or without an exception."""
    BREAK = "break"
    """The code exceeded a limit, the process crashed or did not start, or the call was cancelled."""
    DROP = "drop"
    """The container was not used for too long, has to make room for another, or the server ends."""


class ContainerEffect(StrEnum):
    """The effects of a container."""

    START = "start"
    """Start a process."""
    FEED = "feed"
    """Run the code in the process."""
    STOP = "stop"
    """End the process, and forget the container."""


_T, _E = ContainerTrigger, ContainerEffect

CONTAINER: Final[Table[ContainerTrigger, ContainerEffect]] = Table(
    "container",
    initial="new",
    final={"expired"},
    edges=[
        #    in         on        goes to    effects
        Edge("new",     _T.RUN,   "running", [_E.START, _E.FEED]),
        Edge("running", _T.END,   "idle"),
        Edge("idle",    _T.RUN,   "running", [_E.FEED]),

        Edge("running", _T.BREAK, "expired", [_E.STOP]),
        Edge("idle",    _T.DROP,  "expired", [_E.STOP]),
    ],
)  # fmt: skip
"""A container. `running` has no row for `run` or `drop`, so calls take turns and a container in use is never dropped."""
