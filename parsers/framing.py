"""The framing of harmony, as a declared machine: messages made of a header and a content, one after another.

It knows which tokens may come in which order and what each of them asks for; it knows nothing of token ids, of what a
header's words mean, or of deltas. The rows below are the declaration. As in `interlock.fsm.lifecycle`, a
`transitions.Machine` is built of them, the effects being its `after` callbacks, and the table that runs is compiled from
that machine. Every trigger has a row in every state: whatever a model writes, there is an edge for it (rule R17).

Two triggers stand for a token of text outside of content. `word` is text that may still be a part of a header, `prose` is
text that makes certain that the header is over although no `<|message|>` came: a message whose header is malformed. The
grammar that tells them apart is `interlock.parsers.header`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias, cast

from attrs import field, frozen
from transitions import EventData, Machine

from interlock.fsm.errors import DeclarationError

FramingState: TypeAlias = Literal["expect_start", "header", "content"]
"""Between two messages, inside a header, inside a content."""


class Trigger(Enum):
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
    """The turn ends for any other reason: the budget, a filter, an abort, an error."""


class Effect(Enum):
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

    def __call__(self, event: EventData) -> None:
        """Take effect on the model of a running `transitions.Machine`; this is the reference, not the hot path."""
        cast("Taker", event.model).take(self)


class Taker(Protocol):
    """The model of a running machine of this framing."""

    def take(self, effect: Effect) -> None:
        """Do what the edge says."""
        ...


@frozen
class FramingEdge:
    """One transition of the framing.

    Args:
        source: The state it leaves.
        trigger: What makes it fire.
        dest: The state it enters.
        effects: What it does, in order.
    """

    source: FramingState
    trigger: Trigger
    dest: FramingState
    effects: tuple[Effect, ...] = ()


Row: TypeAlias = tuple[FramingState, tuple[Effect, ...]]
"""A compiled edge: the state that follows, and the effects."""


@frozen(eq=False)
class Framing:
    """A declared framing.

    Args:
        item: Its name, for diagrams.
        initial: The state in which a turn starts.
        edges: The whole of it.
        machine: The `transitions.Machine` that the edges declare.
        rows: What runs: for each state, a row for each trigger.

    Raises:
        DeclarationError: A state lacks a row for a trigger, or has two.
    """

    item: str
    initial: FramingState
    edges: tuple[FramingEdge, ...]
    machine: Machine = field(init=False, repr=False)
    rows: Mapping[FramingState, Mapping[Trigger, Row]] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Check the edges, build the machine, compile it."""
        self._check()
        object.__setattr__(self, "machine", self._machine())
        object.__setattr__(self, "rows", _compile(self.machine))

    def _check(self) -> None:
        declared = [(edge.source, edge.trigger) for edge in self.edges]
        states: set[FramingState] = {self.initial, *(edge.dest for edge in self.edges)}
        for pair in ((state, trigger) for state in sorted(states) for trigger in _answered(state)):
            if declared.count(pair) != 1:
                raise DeclarationError(f"{self.item}: {declared.count(pair)} edges for {pair[1].value!r} in {pair[0]!r}")

    def _machine(self) -> Machine:
        return Machine(
            model=None,
            states=list(dict.fromkeys([self.initial, *(edge.source for edge in self.edges)])),
            initial=self.initial,
            transitions=[
                {
                    "trigger": edge.trigger.value,
                    "source": edge.source,
                    "dest": edge.dest,
                    "after": list(edge.effects),
                }
                for edge in self.edges
            ],
            auto_transitions=False,
            send_event=True,
        )


def _answered(state: FramingState) -> tuple[Trigger, ...]:
    """Give the triggers that a state must answer: text is `text` inside a content, `word` or `prose` outside."""
    outside = {Trigger.WORD, Trigger.PROSE}
    foreign = outside if state == "content" else {Trigger.TEXT}
    return tuple(trigger for trigger in Trigger if trigger not in foreign)


def _compile(machine: Machine) -> Mapping[FramingState, Mapping[Trigger, Row]]:
    rows: dict[FramingState, dict[Trigger, Row]] = {}
    for event in machine.events.values():
        for source, (transition,) in event.transitions.items():
            row = (cast("FramingState", transition.dest), tuple(cast("list[Effect]", transition.after)))
            rows.setdefault(cast("FramingState", source), {})[Trigger(event.name)] = row
    return MappingProxyType(rows)


_T, _E, _Row = Trigger, Effect, FramingEdge

HARMONY = Framing(
    item="harmony framing",
    initial="expect_start",
    edges=(
        # Between two messages. A turn starts here too: its prompt ended in `<|start|>assistant`, and models repeat that.
        _Row("expect_start", _T.START, "header", (_E.SECTION,)),
        _Row("expect_start", _T.CHANNEL, "header", (_E.SECTION,)),
        _Row("expect_start", _T.CONSTRAIN, "header", (_E.SECTION,)),
        _Row("expect_start", _T.MESSAGE, "content", (_E.SEAL, _E.OPEN, _E.SKIP)),
        _Row("expect_start", _T.WORD, "header", (_E.NOTE,)),
        _Row("expect_start", _T.PROSE, "content", (_E.NOTE, _E.BREAK, _E.OPEN, _E.SPILL)),
        _Row("expect_start", _T.END, "expect_start"),
        _Row("expect_start", _T.CALL, "expect_start"),
        _Row("expect_start", _T.RETURN, "expect_start"),
        _Row("expect_start", _T.STRAY, "expect_start"),
        _Row("expect_start", _T.FINISH, "expect_start"),
        _Row("expect_start", _T.CUT, "expect_start"),
        # A header. Whatever ends it, what was read of it decides where the text goes.
        _Row("header", _T.WORD, "header", (_E.NOTE,)),
        _Row("header", _T.PROSE, "content", (_E.NOTE, _E.BREAK, _E.OPEN, _E.SPILL)),
        _Row("header", _T.CHANNEL, "header", (_E.SECTION,)),
        _Row("header", _T.CONSTRAIN, "header", (_E.SECTION,)),
        _Row("header", _T.MESSAGE, "content", (_E.SEAL, _E.OPEN, _E.SKIP)),
        _Row("header", _T.START, "header", (_E.BREAK, _E.OPEN, _E.CLOSE, _E.SECTION)),
        _Row("header", _T.END, "expect_start", (_E.BREAK, _E.OPEN, _E.CLOSE)),
        _Row("header", _T.CALL, "expect_start", (_E.BREAK, _E.OPEN, _E.CLOSE)),
        _Row("header", _T.RETURN, "expect_start", (_E.BREAK, _E.OPEN, _E.CLOSE)),
        _Row("header", _T.STRAY, "header"),
        _Row("header", _T.FINISH, "expect_start", (_E.BREAK, _E.OPEN, _E.CLOSE)),
        _Row("header", _T.CUT, "expect_start", (_E.DROP,)),
        # A content. `<|start|>` and `<|channel|>` end it as `<|end|>` does.
        _Row("content", _T.TEXT, "content", (_E.APPEND,)),
        _Row("content", _T.END, "expect_start", (_E.CLOSE,)),
        _Row("content", _T.CALL, "expect_start", (_E.CLOSE,)),
        _Row("content", _T.RETURN, "expect_start", (_E.CLOSE,)),
        _Row("content", _T.START, "header", (_E.CLOSE, _E.SECTION)),
        _Row("content", _T.CHANNEL, "header", (_E.CLOSE, _E.SECTION)),
        _Row("content", _T.CONSTRAIN, "content", (_E.SKIP,)),
        _Row("content", _T.MESSAGE, "content", (_E.SKIP,)),
        _Row("content", _T.STRAY, "content", (_E.SKIP,)),
        _Row("content", _T.FINISH, "expect_start", (_E.CLOSE,)),
        _Row("content", _T.CUT, "expect_start", (_E.LEAVE,)),
    ),
)
