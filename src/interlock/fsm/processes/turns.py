"""The loop over turns, declared as a table: how one response is made, whoever makes it.

A conversation that has become too long is compacted first: the model writes a summary, which takes its place. The model
generates, the server runs the tools that it called, the model generates again, until it is the client's turn.
`interlock.serving.responses.response_run` does each of these, with whatever engine. When it does what, and how a response ends wherever it is
broken off, stands here and nowhere else.

A run does the work that an edge asks for and feeds the driver with it. When the work is done, everything of it has been fed, so
the run can look at the driver (are calls waiting for their tools?) and fires the next edge by what it sees.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table

__all__ = ["TURNS", "TurnEffect", "TurnTrigger"]


class TurnTrigger(StrEnum):
    """What can happen while a response is made."""

    BEGIN = "begin"
    """The response is to be made."""
    COMPACT = "compact"
    """The conversation is longer than its client wants it to be, or is to be compacted and nothing else."""
    PREPARE = "prepare"
    """The conversation is as it is to be, and the model is to answer."""
    CALL = "call"
    """There are calls, and their tools are to be run."""
    GO_ON = "go_on"
    """The model is to generate: for the first time, or because it has been told what its calls gave."""
    ANSWER = "answer"
    """It is the client's turn: the model called nothing that runs here, or asks the client, or no call could be run; or a summary
    was all that it wanted."""
    EXHAUST = "exhaust"
    """The request's tokens are spent, and the model would go on."""
    END = "end"
    """What was fed has ended the response: its end, a turn that was cut, the last call that it may make."""
    FAIL = "fail"
    """Something broke, or the response was cancelled."""
    SETTLE = "settle"
    """The response was stored and logged, or could not be."""
    LEAVE = "leave"
    """Nobody waits for the run any more: the task that made the response was cancelled."""


class TurnEffect(StrEnum):
    """What an edge asks for."""

    OPEN = "open"
    """Begin the response, and see whether its conversation is to be compacted."""
    COMPACT = "compact"
    """Have the model write a summary, which takes the place of the conversation."""
    PREPARE = "prepare"
    """Reach the tool servers, and put the calls that the client has approved."""
    GENERATE = "generate"
    """Have the model generate one turn."""
    RUN = "run"
    """Run the tools of the calls that wait."""
    FINISH = "finish"
    """Complete the response (`Finish`)."""
    CUT = "cut"
    """Cut the response for its length."""
    BREAK_OFF = "break_off"
    """End the response in the middle of its turn: feed what the parser held back, and then what broke."""
    STORE = "store"
    """Store and log the response, before its client knows that it has ended."""


_T, _E = TurnTrigger, TurnEffect

TURNS: Final[Table[TurnTrigger, TurnEffect]] = Table(
    "turns",
    initial="absent",
    final={"ended"},
    edges=[
        #    in            on          goes to       effects
        Edge("absent",     _T.BEGIN,   "opening",    [_E.OPEN]),
        Edge("absent",     _T.LEAVE,   "ended",      [_E.BREAK_OFF]),

        Edge("opening",    _T.PREPARE, "preparing",  [_E.PREPARE]),
        Edge("opening",    _T.COMPACT, "compacting", [_E.COMPACT]),
        Edge("opening",    _T.FAIL,    "settling",   [_E.BREAK_OFF, _E.STORE]),
        Edge("opening",    _T.LEAVE,   "ended",      [_E.BREAK_OFF]),

        Edge("compacting", _T.PREPARE, "preparing",  [_E.PREPARE]),
        Edge("compacting", _T.ANSWER,  "ending",     [_E.FINISH]),
        Edge("compacting", _T.FAIL,    "settling",   [_E.BREAK_OFF, _E.STORE]),
        Edge("compacting", _T.LEAVE,   "ended",      [_E.BREAK_OFF]),

        Edge("preparing",  _T.GO_ON,   "generating", [_E.GENERATE]),
        Edge("preparing",  _T.CALL,    "running",    [_E.RUN]),
        Edge("preparing",  _T.END,     "settling",   [_E.STORE]),
        Edge("preparing",  _T.FAIL,    "settling",   [_E.BREAK_OFF, _E.STORE]),
        Edge("preparing",  _T.LEAVE,   "ended",      [_E.BREAK_OFF]),

        Edge("generating", _T.ANSWER,  "ending",     [_E.FINISH]),
        Edge("generating", _T.CALL,    "running",    [_E.RUN]),
        Edge("generating", _T.END,     "settling",   [_E.STORE]),
        Edge("generating", _T.FAIL,    "settling",   [_E.BREAK_OFF, _E.STORE]),
        Edge("generating", _T.LEAVE,   "ended",      [_E.BREAK_OFF]),

        Edge("running",    _T.GO_ON,   "generating", [_E.GENERATE]),
        Edge("running",    _T.ANSWER,  "ending",     [_E.FINISH]),
        Edge("running",    _T.EXHAUST, "ending",     [_E.CUT]),
        Edge("running",    _T.END,     "settling",   [_E.STORE]),
        Edge("running",    _T.FAIL,    "settling",   [_E.BREAK_OFF, _E.STORE]),
        Edge("running",    _T.LEAVE,   "ended",      [_E.BREAK_OFF]),

        Edge("ending",     _T.END,     "settling",   [_E.STORE]),
        Edge("ending",     _T.FAIL,    "settling",   [_E.BREAK_OFF, _E.STORE]),
        Edge("ending",     _T.LEAVE,   "ended",      [_E.BREAK_OFF]),

        Edge("settling",   _T.SETTLE,  "ended"),
        Edge("settling",   _T.LEAVE,   "ended"),
    ],
)  # fmt: skip
"""How one response is made."""
