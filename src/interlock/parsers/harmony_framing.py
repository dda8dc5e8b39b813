"""The framing of harmony, as a declared machine: messages made of a header and a content, one after another.

It knows which tokens may come in which order and what each of them asks for. It knows nothing of token ids, of what the words
of a header mean, or of deltas. Every trigger has a row in every state: whatever a model writes, there is an edge for it (rule
R17).

Three triggers stand for a token of text. In a content it is `text`. Outside of a content it is `word` if it may still be a part
of a header, and `prose` if it makes certain that the header is over although no `<|message|>` came: the header of that message
is malformed. `interlock.parsers.harmony_header` tells the two apart.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, Table


class Trigger(StrEnum):
    """What can come next: a token by its meaning, or the end of the turn."""

    START = "start"
    CHANNEL = "channel"
    CONSTRAIN = "constrain"
    MESSAGE = "message"
    END = "end"
    CALL = "call"
    RETURN = "return"
    STRAY = "stray"
    """A control token without a meaning here: reserved, or an id that no vocabulary has."""
    TEXT = "text"
    """A token of text inside a content."""
    WORD = "word"
    """A token of text after which the header may still be well-formed."""
    PROSE = "prose"
    """A token of text, or its absence, that makes certain that no header is left to be read."""
    FINISH = "finish"
    """The turn ends because the model stopped."""
    CUT = "cut"
    """The turn ends for any other reason: the budget, a filter, an abort, an error, or inside the content of a call."""


class Effect(StrEnum):
    """What an edge does."""

    NOTE = "note"
    """Add the text to the header."""
    SECTION = "section"
    """Begin the header's next section, which the token names."""
    SEAL = "seal"
    """Read the header as one that `<|message|>` ended."""
    BREAK = "break"
    """Read the header as one that was broken off."""
    OPEN = "open"
    """Open the item that the header asks for."""
    SPILL = "spill"
    """Give that item the words that turned out not to be header."""
    APPEND = "append"
    """Give the item the text."""
    SKIP = "skip"
    """Pass over a control token, which is no part of the content."""
    CLOSE = "close"
    """Close the item."""
    LEAVE = "leave"
    """Leave the item for the driver to cut."""
    DROP = "drop"
    """Forget the header, which was cut before it said anything whole."""


_OUTSIDE: Final = tuple(trigger for trigger in Trigger if trigger is not Trigger.TEXT)
_INSIDE: Final = tuple(trigger for trigger in Trigger if trigger not in {Trigger.WORD, Trigger.PROSE})

_T, _E = Trigger, Effect

HARMONY: Final[Table[Trigger, Effect]] = Table(
    name="harmony",
    initial="expect_start",
    total={"expect_start": _OUTSIDE, "header": _OUTSIDE, "content": _INSIDE},
    edges=(
        # Between two messages. A turn starts here too: its prompt ended in `<|start|>assistant`, and models repeat that.
        Edge("expect_start", _T.START, "header", (_E.SECTION,)),
        Edge("expect_start", _T.CHANNEL, "header", (_E.SECTION,)),
        Edge("expect_start", _T.CONSTRAIN, "header", (_E.SECTION,)),
        Edge("expect_start", _T.MESSAGE, "content", (_E.SEAL, _E.OPEN, _E.SKIP)),
        Edge("expect_start", _T.WORD, "header", (_E.NOTE,)),
        Edge("expect_start", _T.PROSE, "content", (_E.NOTE, _E.BREAK, _E.OPEN, _E.SPILL)),
        Edge("expect_start", _T.END, "expect_start"),
        Edge("expect_start", _T.CALL, "expect_start"),
        Edge("expect_start", _T.RETURN, "expect_start"),
        Edge("expect_start", _T.STRAY, "expect_start"),
        Edge("expect_start", _T.FINISH, "expect_start"),
        Edge("expect_start", _T.CUT, "expect_start"),
        # A header. Whatever ends it, what was read of it decides where the text goes.
        Edge("header", _T.WORD, "header", (_E.NOTE,)),
        Edge("header", _T.PROSE, "content", (_E.NOTE, _E.BREAK, _E.OPEN, _E.SPILL)),
        Edge("header", _T.CHANNEL, "header", (_E.SECTION,)),
        Edge("header", _T.CONSTRAIN, "header", (_E.SECTION,)),
        Edge("header", _T.MESSAGE, "content", (_E.SEAL, _E.OPEN, _E.SKIP)),
        Edge("header", _T.START, "header", (_E.BREAK, _E.OPEN, _E.CLOSE, _E.SECTION)),
        Edge("header", _T.END, "expect_start", (_E.BREAK, _E.OPEN, _E.CLOSE)),
        Edge("header", _T.CALL, "expect_start", (_E.BREAK, _E.OPEN, _E.CLOSE)),
        Edge("header", _T.RETURN, "expect_start", (_E.BREAK, _E.OPEN, _E.CLOSE)),
        Edge("header", _T.STRAY, "header"),
        Edge("header", _T.FINISH, "expect_start", (_E.BREAK, _E.OPEN, _E.LEAVE)),
        Edge("header", _T.CUT, "expect_start", (_E.DROP,)),
        # A content. `<|start|>` and `<|channel|>` end it as `<|end|>` does.
        Edge("content", _T.TEXT, "content", (_E.APPEND,)),
        Edge("content", _T.END, "expect_start", (_E.CLOSE,)),
        Edge("content", _T.CALL, "expect_start", (_E.CLOSE,)),
        Edge("content", _T.RETURN, "expect_start", (_E.CLOSE,)),
        Edge("content", _T.START, "header", (_E.CLOSE, _E.SECTION)),
        Edge("content", _T.CHANNEL, "header", (_E.CLOSE, _E.SECTION)),
        Edge("content", _T.CONSTRAIN, "content", (_E.SKIP,)),
        Edge("content", _T.MESSAGE, "content", (_E.SKIP,)),
        Edge("content", _T.STRAY, "content", (_E.SKIP,)),
        Edge("content", _T.FINISH, "expect_start", (_E.CLOSE,)),
        Edge("content", _T.CUT, "expect_start", (_E.LEAVE,)),
    ),
)
