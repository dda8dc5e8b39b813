"""One run, declared as a table: its admission, the loop over the turns of its response, and its end.

A run takes a slot of the server. Its request is resolved, and the engine accepts or refuses it; a refused run makes no response.
Then a conversation that is too long is compacted, the model generates, the server runs the tools that the model called, and the
model generates again, until the response ends. This table alone defines the order, and the end after an interruption.

`interlock.serving.responses.service` admits a run, and `interlock.serving.responses.run` executes the rest of the table. A run
feeds all results of an effect to the driver before it chooses the next trigger.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table


class TurnTrigger(StrEnum):
    """The triggers of the loop."""

    BEGIN = "begin"
    """The run has a slot, and starts."""
    OPEN = "open"
    """The response begins before the engine accepts it: it is in the background, lists tools first, or writes a summary."""
    COMPACT = "compact"
    """The conversation exceeds the request's `compact_threshold`, or the request only asks for compaction."""
    PREPARE = "prepare"
    """The conversation is ready for the model."""
    CALL = "call"
    """There are calls: they wait for tools, have invalid arguments, or are async, so the model goes on without their results."""
    GO_ON = "go_on"
    """The model generates the first turn, or the next one after the results of its calls."""
    ANSWER = "answer"
    """The response is finished: no tool is left for the server to run, a call needs the client, or the request only asked for
    compaction."""
    EXHAUST = "exhaust"
    """The request's token limit is used up before the model has finished."""
    STEER = "steer"
    """The client has sent input to steer the response, and the output is at a boundary: every item and call has ended."""
    END = "end"
    """The driver has ended the response: it is finished, a turn was truncated, or the limit of tool calls is reached."""
    INTERRUPT = "interrupt"
    """A client cancels the response or disconnects, the server shuts down, or a lease is lost."""
    FAIL = "fail"
    """The server or the engine refuses the request, something failed, or the interrupted step has stopped."""
    SETTLE = "settle"
    """The response is stored and logged, or storing it failed; its engine, tools and conversation are free."""
    LEAVE = "leave"
    """The last event was taken, or none will be: the context of the run was left, or its task was cancelled."""


class TurnEffect(StrEnum):
    """The effects of the loop."""

    TAKE = "take"
    """Take one of the server's slots."""
    ADMIT = "admit"
    """Resolve the request and admit its first turn, unless the response opens or is compacted first."""
    REFUSE = "refuse"
    """Raise the error instead of making a response."""
    OPEN = "open"
    """Begin the response, and decide whether to compact its conversation."""
    COMPACT = "compact"
    """Have the model write a summary that replaces the conversation."""
    PREPARE = "prepare"
    """Connect to the tool servers, and add the calls that the client has approved."""
    GENERATE = "generate"
    """Have the model generate one turn."""
    RUN = "run"
    """Run the tools of the waiting calls."""
    FINISH = "finish"
    """Complete the response (`Finish`)."""
    CUT = "cut"
    """End the response as incomplete, at the token limit."""
    YIELD = "yield"
    """End the response as incomplete, because its client steers it."""
    BREAK_OFF = "break_off"
    """End the response in the middle of a turn: feed the text that the parser holds back, then the failure or cancellation."""
    STORE = "store"
    """Store and log the response before the client receives its last event."""
    STOP = "stop"
    """Stop waiting for the current step."""
    FREE = "free"
    """Give the slot back, before the client receives the last event: it may ask again at once."""


_T, _E = TurnTrigger, TurnEffect

TURNS: Final[Table[TurnTrigger, TurnEffect]] = Table(
    "turns",
    initial="absent",
    final={"ended"},
    regions={
        "inside": ["opening", "compacting", "preparing", "generating", "running", "ending"],
        "outside": ["admitting", "withdrawn", "refused"],
    },
    edges=[
        #    in             on            goes to        effects
        Edge("absent",      _T.BEGIN,     "admitting",   [_E.TAKE, _E.ADMIT]),
        Edge("absent",      _T.INTERRUPT, "unwanted"),
        Edge("unwanted",    _T.BEGIN,     "withdrawn",   [_E.TAKE]),

        Edge("admitting",   _T.PREPARE,   "preparing",   [_E.PREPARE]),
        Edge("admitting",   _T.COMPACT,   "compacting",  [_E.COMPACT]),
        Edge("admitting",   _T.OPEN,      "opening",     [_E.OPEN]),
        Edge("admitting",   _T.INTERRUPT, "withdrawn",   [_E.STOP]),
        Edge("admitting",   _T.FAIL,      "refused",     [_E.REFUSE]),
        Edge("withdrawn",   _T.FAIL,      "refused",     [_E.REFUSE]),
        Edge("outside",     _T.LEAVE,     "ended",       [_E.FREE]),

        Edge("opening",     _T.PREPARE,   "preparing",   [_E.PREPARE]),
        Edge("opening",     _T.COMPACT,   "compacting",  [_E.COMPACT]),

        Edge("compacting",  _T.PREPARE,   "preparing",   [_E.PREPARE]),
        Edge("compacting",  _T.ANSWER,    "ending",      [_E.FINISH]),

        Edge("preparing",   _T.GO_ON,     "generating",  [_E.GENERATE]),
        Edge("preparing",   _T.CALL,      "running",     [_E.RUN]),
        Edge("preparing",   _T.END,       "settling",    [_E.STORE]),

        Edge("generating",  _T.ANSWER,    "ending",      [_E.FINISH]),
        Edge("generating",  _T.CALL,      "running",     [_E.RUN]),
        Edge("generating",  _T.STEER,     "ending",      [_E.YIELD]),
        Edge("generating",  _T.END,       "settling",    [_E.STORE]),

        Edge("running",     _T.GO_ON,     "generating",  [_E.GENERATE]),
        Edge("running",     _T.ANSWER,    "ending",      [_E.FINISH]),
        Edge("running",     _T.EXHAUST,   "ending",      [_E.CUT]),
        Edge("running",     _T.STEER,     "ending",      [_E.YIELD]),
        Edge("running",     _T.END,       "settling",    [_E.STORE]),

        Edge("ending",      _T.END,       "settling",    [_E.STORE]),

        Edge("inside",      _T.INTERRUPT, "interrupted", [_E.STOP]),
        Edge("inside",      _T.FAIL,      "settling",    [_E.BREAK_OFF, _E.STORE]),
        Edge("inside",      _T.LEAVE,     "ended",       [_E.BREAK_OFF, _E.FREE]),
        Edge("interrupted", _T.FAIL,      "settling",    [_E.BREAK_OFF, _E.STORE]),
        Edge("interrupted", _T.LEAVE,     "ended",       [_E.BREAK_OFF, _E.FREE]),

        Edge("settling",    _T.SETTLE,    "settled",     [_E.FREE]),
        Edge("settling",    _T.LEAVE,     "ended",       [_E.FREE]),
        Edge("settled",     _T.LEAVE,     "ended"),
    ],
)  # fmt: skip
"""A run: its admission, the turns of its response, and its end."""
