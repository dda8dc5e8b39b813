"""A call of an async tool in a conversation, declared as a table: which of the items after it the model reads next to it.

Engines and templates require an output next to each call, but the output of this one may come any number of requests later, or
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
    """Next to the call, the model reads that the tool still runs."""
    REPEAT = "repeat"
    """Before the output, the model reads the call again."""


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
