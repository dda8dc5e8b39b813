"""A call of an async tool in a conversation, declared as a table: what the model reads as its output.

Engines and templates require an output next to each call, but the output of an async call may come many requests later, or
never. `interlock.serving.requests.normalize` fires a trigger for each later item, and carries out the effects.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table


class AsyncCallTrigger(StrEnum):
    """The triggers of an async call: what comes after it in the conversation."""

    ANSWER = "answer"
    """An output of the call."""
    CONTINUE = "continue"
    """An item that is neither a call nor an output, such as a message."""
    END = "end"
    """The conversation ends, and the model goes on."""


class AsyncCallEffect(StrEnum):
    """The effects of an async call."""

    KEEP = "keep"
    """The model reads the output where it is: only other calls and outputs separate it from the call."""
    WAIT = "wait"
    """The model reads next to the call that the tool still runs."""
    REPEAT = "repeat"
    """The model reads the call again before the output."""


_T, _E = AsyncCallTrigger, AsyncCallEffect

ASYNC_CALL: Final[Table[AsyncCallTrigger, AsyncCallEffect]] = Table(
    "async_call",
    initial="called",
    final={"ended"},
    regions={"settled": ["pending", "answered"]},
    edges=[
        #    in         on            goes to     effects
        Edge("called",  _T.ANSWER,    "answered", [_E.KEEP]),
        Edge("called",  _T.CONTINUE,  "pending",  [_E.WAIT]),
        Edge("called",  _T.END,       "ended",    [_E.WAIT]),

        Edge("settled", _T.ANSWER,    "answered", [_E.REPEAT]),
        Edge("settled", _T.CONTINUE,  "settled"),
        Edge("settled", _T.END,       "ended"),
    ],
)  # fmt: skip
"""A call of an async tool. Every state before `ended` has all triggers, because a client may send any items."""
