"""The framing of harmony as a table: messages, each a header and a content.

Each state has a row for each trigger possible there, so any model output has an edge (rule R17). An effect without the header or
item that it needs is found at import.

Three triggers stand for a token of text: `text` in a content; outside of a content, `word` if the token may belong to a header,
and `prose` if it shows that the header ends without `<|message|>`. `interlock.parsers.harmony_header` tells `word` from `prose`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Final

from interlock.fsm.table import Edge, State, Table


class HarmonyTrigger(StrEnum):
    """The input of the framing: a token by its meaning, or the end of the turn."""

    START = "start"
    CHANNEL = "channel"
    CONSTRAIN = "constrain"
    MESSAGE = "message"
    END = "end"
    CALL = "call"
    RETURN = "return"
    STRAY = "stray"
    """A control token without a meaning here: a reserved one, or an unknown id."""
    TEXT = "text"
    """A token of text in a content."""
    WORD = "word"
    """A token of text after which the header may still be well-formed."""
    PROSE = "prose"
    """A token of text, or its absence, that shows that the header has ended."""
    FINISH = "finish"
    """The turn ends because the model stopped."""
    CUT = "cut"
    """The turn ends for any other reason: the budget, a filter, an abort, an error, or inside the content of a call."""


class HarmonyEffect(StrEnum):
    """The action of an edge."""

    NOTE = "note"
    """Add the text to the header."""
    SECTION = "section"
    """Begin the section of the header that the token names."""
    SEAL = "seal"
    """Read the header as complete: `<|message|>` ended it."""
    BREAK = "break"
    """Read the header as broken off."""
    OPEN = "open"
    """Open the item that the header describes."""
    SPILL = "spill"
    """Write the words after the header to the item."""
    APPEND = "append"
    """Write the text to the item."""
    SKIP = "skip"
    """Skip a control token, which is no part of the content."""
    CLOSE = "close"
    """Close the item."""
    LEAVE = "leave"
    """Leave the item open; the driver ends it as incomplete."""
    DROP = "drop"
    """Drop the header, which the end of the turn truncated."""


_OUTSIDE: Final = tuple(trigger for trigger in HarmonyTrigger if trigger is not HarmonyTrigger.TEXT)
_INSIDE: Final = tuple(trigger for trigger in HarmonyTrigger if trigger not in {HarmonyTrigger.WORD, HarmonyTrigger.PROSE})

_T, _E = HarmonyTrigger, HarmonyEffect

_EMPTY, _WORDS, _READ, _ITEM = "no header", "words of a header", "a complete header", "an item"
_CONTRACTS: Final[Mapping[HarmonyEffect, tuple[Collection[str], str]]] = {
    _E.NOTE: ((_EMPTY, _WORDS), _WORDS),
    _E.SECTION: ((_EMPTY, _WORDS), _WORDS),
    _E.SEAL: ((_EMPTY, _WORDS), _READ),
    _E.BREAK: ((_EMPTY, _WORDS), _READ),
    _E.OPEN: ((_READ,), _ITEM),
    _E.SPILL: ((_ITEM,), _ITEM),
    _E.APPEND: ((_ITEM,), _ITEM),
    _E.SKIP: ((_ITEM,), _ITEM),
    _E.CLOSE: ((_ITEM,), _EMPTY),
    _E.LEAVE: ((_ITEM,), _EMPTY),
    _E.DROP: ((_WORDS,), _EMPTY),
}
"""What there must be before an effect, and what there is after it."""


class HarmonyFraming(Table[HarmonyTrigger, HarmonyEffect]):
    """A table whose effects always find what they need: a header, or an open item.

    Raises:
        DeclarationError: An edge has an effect where it finds something else, or a state is entered with several things.
    """

    def __attrs_post_init__(self) -> None:
        """Compile the edges, and follow the header and the item through them."""
        super().__attrs_post_init__()
        for name, contents in self.conditions(_EMPTY, self._follow).items():
            if len(contents) > 1:
                raise self.refusal(f"state {name!r} is entered with {' and with '.join(contents)}")

    def _follow(self, state: State[HarmonyTrigger, HarmonyEffect], before: str) -> Iterator[tuple[str, str]]:
        for trigger, (dest, effects) in state.rows.items():
            after = before
            for effect in effects:
                required, result = _CONTRACTS[effect]
                if after not in required:
                    raise self.refusal(f"{trigger!s} in state {state.name!r} has the effect {effect.value!r} with {after}")
                after = result
            yield dest.name, after


HARMONY: Final = HarmonyFraming(
    name="harmony",
    initial="expect_start",
    total={"expect_start": _OUTSIDE, "header": _OUTSIDE, "content": _INSIDE},
    regions={"outside": ["expect_start", "header"]},
    edges=(
        # Outside of a content. A turn also starts in `expect_start`: its prompt ended with `<|start|>assistant`, which models
        # may repeat. However a header ends, its words so far decide where the text goes.
        Edge("outside", _T.CHANNEL, "header", (_E.SECTION,)),
        Edge("outside", _T.CONSTRAIN, "header", (_E.SECTION,)),
        Edge("outside", _T.WORD, "header", (_E.NOTE,)),
        Edge("outside", _T.MESSAGE, "content", (_E.SEAL, _E.OPEN, _E.SKIP)),
        Edge("outside", _T.PROSE, "content", (_E.NOTE, _E.BREAK, _E.OPEN, _E.SPILL)),
        Edge("outside", _T.STRAY, "outside"),
        Edge("expect_start", _T.START, "header", (_E.SECTION,)),
        Edge("expect_start", _T.END, "expect_start"),
        Edge("expect_start", _T.CALL, "expect_start"),
        Edge("expect_start", _T.RETURN, "expect_start"),
        Edge("expect_start", _T.FINISH, "expect_start"),
        Edge("expect_start", _T.CUT, "expect_start"),
        Edge("header", _T.START, "header", (_E.BREAK, _E.OPEN, _E.CLOSE, _E.SECTION)),
        Edge("header", _T.END, "expect_start", (_E.BREAK, _E.OPEN, _E.CLOSE)),
        Edge("header", _T.CALL, "expect_start", (_E.BREAK, _E.OPEN, _E.CLOSE)),
        Edge("header", _T.RETURN, "expect_start", (_E.BREAK, _E.OPEN, _E.CLOSE)),
        Edge("header", _T.FINISH, "expect_start", (_E.BREAK, _E.OPEN, _E.LEAVE)),
        Edge("header", _T.CUT, "expect_start", (_E.DROP,)),
        # Inside a content. `<|start|>` and `<|channel|>` end it, as `<|end|>` does.
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
