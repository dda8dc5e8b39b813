"""The shared framing of the families as a table: reasoning, messages, and calls with keys and values or with JSON.

A *section* is a group of calls between two markers. An *envelope* is a JSON object with the name and the arguments of a call. A
*literal* is arguments in another notation than JSON. *Stray text* is text between the keys and values of a call.

Most triggers are roles of markers; a family (`interlock.parsers.families.family`) gives each role its texts. Every state has a
row for every trigger, so there is an edge for any model output (rule R20). A trigger without a row in a state has the row of
`text`: it is text there. The scanner looks only for markers whose rows differ (`interlock.parsers.families.state_markers`).

There are three kinds of states. In a *channel*, text passes through: reasoning, or a message, outside of a section of calls
(`content`) or inside one (`aside`). A *tentative* state follows a marker that begins a call if a name follows; the text since
that marker waits, and goes back to the channel if there is no name. In a *committed* state a call is open, and remains a call.

A value is free text, which may quote any marker, and models forget or misspell its end. So an end in a value, or a marker that
can only follow the value, is tentative too: the text since that marker waits until what follows proves that the value has ended.
Then the value ends, and what follows it is read between the keys; otherwise all of that text goes back to the value.

If a turn ends in an open call, its arguments lack what may be framing: the beginning of a marker, or a key without its value. In
a value, such text may be content, but framing is far more likely, and in either case the arguments begin as the model meant them.
What is certainly content stays: text in a JSON string, and characters that spell out a part of a special token.

`Framing` checks at import that effects fit the open item, that each turn ends with every item closed or left to the driver, and
that no text is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, StrEnum
from typing import Final, NamedTuple

from attrs import evolve, frozen

from interlock.fsm.table import Edge, State, Table


class Trigger(StrEnum):
    """The input of the framing: a marker by its role, other text, or the end of the turn."""

    THINK = "think"
    """Reasoning begins."""
    UNTHINK = "unthink"
    """Reasoning ends."""
    ANSWER = "answer"
    """A message begins, in a family that marks messages."""
    UNANSWER = "unanswer"
    """A message ends."""
    SECTION = "section"
    """A section of calls begins."""
    UNSECTION = "unsection"
    """A section of calls ends."""
    CALL = "call"
    """A call begins, in a family whose calls stand alone."""
    INVOKE = "invoke"
    """A call begins inside of a section."""
    UNCALL = "uncall"
    """A call ends: its end marker or, in a family without one, the end of its arguments or envelope."""
    EARLY_UNCALL = "early uncall"
    """A call ends unless a key follows, in a family whose models write keys after the end."""
    LIST = "list"
    """A JSON list of envelopes begins inside of a section."""
    NEXT = "next"
    """Another envelope follows in a list."""
    UNLIST = "unlist"
    """A list of envelopes ends, and its section with it."""
    OBJECT = "object"
    """An envelope begins, in a family whose envelopes need no marker before them; its own brace is the marker."""
    BARE = "bare"
    """A call begins where no section is open; it counts only if the request declares its tool."""
    LONE = "lone"
    """A call begins without its section inside of reasoning, in a family whose models write such calls."""
    REHEARSED = "rehearsed"
    """The same, in a family whose models also think about such calls; it counts only with its end."""
    DECLARED = "declared"
    """The name of such a call, or a key in a value, ends, and the request declares it; it has no text."""
    KEYS = "keys"
    """The name ends, and keys with values follow."""
    JSON = "json"
    """The name ends, and the arguments follow as JSON."""
    LITERAL = "literal"
    """The name ends, and the arguments follow as a literal."""
    MEMBER = "member"
    """The name in an envelope ends, and other members follow."""
    KEY = "key"
    """A key begins."""
    UNKEY = "unkey"
    """A key ends, and the marker of its value follows."""
    VALUE = "value"
    """A value begins."""
    UNVALUE = "unvalue"
    """A value ends."""
    MISSPELLED = "misspelled"
    """A value may end: its end marker misspelled, or another end that a model writes for it."""
    QUOTE = "quote"
    """A quote that begins or ends a string in JSON."""
    BREAK = "break"
    """A line break inside of a string in JSON, which JSON does not allow."""
    WHOLE = "whole"
    """The JSON or literal is complete."""
    CONTROL = "control"
    """Another control character inside of a string in JSON, which JSON does not allow."""
    ENCODED = "encoded"
    """A quote and a brace that begin an object in a string of JSON."""
    PYTHON = "python"
    """A brace and a single quote that begin a dictionary of Python in place of JSON."""
    BRACE = "brace"
    """A brace that begins JSON in place of keys and values."""
    SHUT = "shut"
    """The text that ends an envelope or a fence around the JSON."""
    ORPHAN = "orphan"
    """A repeated beginning or unmatched end, in a family whose models write such markers."""
    WORD = "word"
    """Text that may belong to a name, a key or an envelope."""
    BLANK = "blank"
    """White space."""
    TEXT = "text"
    """Any other text."""
    LONG = "long"
    """More text than may wait."""
    PARTIAL = "partial"
    """The turn ends inside of a marker that cannot be that of a key; the text is the beginning of that marker."""
    FINISH = "finish"
    """The turn ends because the model stopped."""
    CUT = "cut"
    """The turn ends for any other reason: the budget, a filter, an abort, an error."""


class Effect(StrEnum):
    """An edge's action."""

    HOLD = "hold"
    """Hold the text until it is decided whether it is framing."""
    AGAIN = "again"
    """Read the text again in the new state, after the waiting text: its first marker is text, and the rest is read again too."""
    RECALL = "recall"
    """Let `again` read all of the waiting text again, its first marker too."""
    DROP = "drop"
    """Drop the text and the waiting text, which are framing."""
    SPACE = "space"
    """Keep the white space after the last line break for text that may follow."""
    REASON = "reason"
    """Write the text to the reasoning, in a new item if none is open."""
    SPEAK = "speak"
    """Write the text to the message, in a new item if none is open."""
    OPEN = "open"
    """Close the open item, and open the call of this name."""
    WRITE = "write"
    """Write the text to the arguments or, where a value is open, to the value."""
    ESCAPE = "escape"
    """Write the text to the arguments, escaped for a string in JSON."""
    DECODE = "decode"
    """Write what the text of a string in JSON stands for to the arguments."""
    CONVERT = "convert"
    """Begin a literal in Python's notation."""
    ENTER = "enter"
    """Begin the value of the key."""
    SET = "set"
    """End the value; the waiting text is what follows it."""
    BREAK = "break"
    """Give up keys and values: what follows is written to the arguments unchanged, and is JSON only if it is all of them."""
    STRAY = "stray"
    """Keep the text for a message after the call."""
    CLOSE = "close"
    """Close the open item, if any, and drop the waiting text; after a call, write the message of stray text."""
    LEAVE = "leave"
    """Leave the open item, if any, for the driver to end as incomplete."""


_T, _E = Trigger, Effect


class OpenItem(Enum):
    """What is open: an item, the value of a key in a call, or nothing."""

    NOTHING = "nothing"
    REASONING = "reasoning"
    MESSAGE = "a message"
    JSON = "a call with JSON"
    KEYS = "a call with keys"
    VALUE = "a value"


class Held(NamedTuple):
    """What is open, and whether text is pending because it may be framing."""

    item: OpenItem
    pending: bool


@frozen
class _EffectContract:
    """The condition that an effect requires, and the condition after it.

    If `pending` is None, it does not matter before the effect; `result` and `leaves_pending` of None change nothing.
    """

    places: frozenset[OpenItem]
    result: OpenItem | None = None
    pending: bool | None = None
    leaves_pending: bool | None = None

    def after(self, before: Held) -> Held | None:
        """Return the condition after the effect; None if the effect is not allowed there."""
        if before.item not in self.places or self.pending not in {None, before.pending}:
            return None
        return Held(self.result or before.item, before.pending if self.leaves_pending is None else self.leaves_pending)


_P: Final = OpenItem
_ANYWHERE: Final = frozenset(OpenItem)
_CALLS: Final = frozenset({_P.JSON, _P.KEYS})
_OUTSIDE: Final = frozenset({_P.NOTHING, _P.REASONING, _P.MESSAGE})
_RESTING: Final = frozenset({_P.NOTHING, _P.KEYS})
_THINKING: Final = frozenset({_P.NOTHING, _P.REASONING})
_SPEAKING: Final = frozenset({_P.NOTHING, _P.MESSAGE})
_JSON: Final = frozenset({_P.JSON})
_KEYS: Final = frozenset({_P.KEYS})
_VALUE: Final = frozenset({_P.VALUE})

_RULES: Final = {
    _E.HOLD: _EffectContract(_ANYWHERE, leaves_pending=True),
    _E.AGAIN: _EffectContract(_ANYWHERE, leaves_pending=False),
    _E.RECALL: _EffectContract(_OUTSIDE, pending=True),
    _E.DROP: _EffectContract(_ANYWHERE, leaves_pending=False),
    _E.SPACE: _EffectContract(_RESTING, pending=False),
    _E.REASON: _EffectContract(_THINKING, _P.REASONING, pending=False),
    _E.SPEAK: _EffectContract(_SPEAKING, _P.MESSAGE, pending=False),
    _E.OPEN: _EffectContract(_OUTSIDE, _P.JSON, pending=True, leaves_pending=False),
    _E.WRITE: _EffectContract(_JSON | _VALUE, pending=False),
    _E.ESCAPE: _EffectContract(_JSON, pending=False),
    _E.DECODE: _EffectContract(_JSON, pending=False),
    _E.CONVERT: _EffectContract(_JSON, pending=False),
    _E.ENTER: _EffectContract(_KEYS, _P.VALUE, pending=True, leaves_pending=False),
    _E.SET: _EffectContract(_VALUE, _P.KEYS, pending=True),
    _E.BREAK: _EffectContract(_KEYS, _P.JSON),
    _E.STRAY: _EffectContract(_KEYS, pending=False),
    _E.CLOSE: _EffectContract(_OUTSIDE | _CALLS, _P.NOTHING, leaves_pending=False),
    _E.LEAVE: _EffectContract(_ANYWHERE, _P.NOTHING, leaves_pending=False),
}
_OPEN_WITH_KEYS: Final = _EffectContract(_OUTSIDE, _P.KEYS, pending=True, leaves_pending=False)
_ENDS: Final = (Trigger.FINISH, Trigger.CUT)
_WITHOUT_TEXT: Final = (*_ENDS, Trigger.DECLARED)
_TAKING: Final = frozenset({_E.HOLD, _E.AGAIN, _E.SPACE, _E.REASON, _E.SPEAK, _E.WRITE, _E.ESCAPE, _E.DECODE, _E.STRAY})
"""Effects that use the text of a trigger, or read it again."""
_FRAMING: Final = frozenset({_E.DROP, _E.OPEN, _E.ENTER, _E.SET, _E.CLOSE})
"""Effects that treat a marker as framing; they may drop its text."""


class Framing(Table[Trigger, Effect]):
    """The state table of a framing; a trigger without a row has the row of `text`.

    Raises:
        DeclarationError: A check fails.
    """

    def _expand(self) -> Iterator[Edge[Trigger, Effect]]:
        edges = [*super()._expand()]
        yield from edges
        rows = {(edge.source, edge.trigger) for edge in edges}
        texts = [edge for edge in edges if edge.trigger is Trigger.TEXT]
        yield from (evolve(edge, trigger=each) for edge in texts for each in Trigger if (edge.source, each) not in rows)

    def __attrs_post_init__(self) -> None:
        """Compile and check the edges."""
        super().__attrs_post_init__()
        _check_order(self)
        _check_texts(self)
        _check_ends(self)
        _check_conditions(self)


def _check_order(framing: Framing) -> None:
    """Refuse an effect that an edge has twice, effects after `again`, and endless loops."""
    for state in framing.states.values():
        for trigger, (_, effects) in state.rows.items():
            if len(set(effects)) < len(effects):
                raise framing.refusal(f"{trigger!s} in state {state.name!r} has an effect twice")
            if Effect.AGAIN in effects[:-1]:
                raise framing.refusal(f"{trigger!s} in state {state.name!r} has effects after 'again'")
            if any(later is state for later in _reread(state, trigger)):
                raise framing.refusal(f"{trigger!s} in state {state.name!r} is read again forever")


def _check_texts(framing: Framing) -> None:
    """Refuse an edge that loses the text of its trigger (rule R20); only markers and white space may be framing."""
    for state in framing.states.values():
        for trigger, (_, effects) in state.rows.items():
            framed = trigger not in {Trigger.TEXT, Trigger.WORD} and not _FRAMING.isdisjoint(effects)
            if trigger not in _WITHOUT_TEXT and not framed and _TAKING.isdisjoint(effects):
                raise framing.refusal(f"{trigger!s} in state {state.name!r} loses its text")


def _reread(state: State[Trigger, Effect], trigger: Trigger) -> Iterator[State[Trigger, Effect]]:
    """Yield each further state in which a trigger is read again, until one repeats."""
    seen: list[State[Trigger, Effect]] = []
    while Effect.AGAIN in state.rows[trigger][1]:
        state, _ = state.rows[trigger]
        if state in seen:
            return
        seen.append(state)
        yield state


def _check_conditions(framing: Framing) -> None:
    """Refuse an effect where a reachable condition rules it out, and a state where different items may be open.

    Only what is open around pending text may differ. A turn begins with nothing open and nothing pending.
    """
    start = Held(OpenItem.NOTHING, pending=False)
    conditions = framing.conditions(start, lambda state, before: _steps(framing, state, before))
    for name, found in conditions.items():
        if len(items := {item.value for item, pending in found if not pending}) > 1:
            raise framing.refusal(f"state {name!r} is entered with {' and with '.join(sorted(items))} open")
    if len(conditions[framing.initial]) > 1:
        raise framing.refusal(f"state {framing.initial!r} is entered with an open item or pending text")


def _steps(framing: Framing, state: State[Trigger, Effect], before: Held) -> Iterable[tuple[str, Held]]:
    """Yield the state and condition after each edge of a state."""
    steps: dict[tuple[str, tuple[Effect, ...], bool], Held] = {}
    for trigger, (dest, effects) in state.rows.items():
        step = dest.name, effects, trigger is Trigger.KEYS
        if step not in steps:
            after = _apply(framing, state, trigger, before)
            if Effect.RECALL in effects:  # the waiting text comes first, so whatever is open is still around it
                after = Held(after.item, pending=True)
            released = Effect.AGAIN in effects and not after.pending and Effect.SET not in effects and before.pending
            steps[step] = _apply(framing, dest, Trigger.TEXT, after) if released else after
    return ((dest, condition) for (dest, _, _), condition in steps.items())


def _apply(framing: Framing, state: State[Trigger, Effect], trigger: Trigger, before: Held) -> Held:
    for effect in state.rows[trigger][1]:
        rule = _OPEN_WITH_KEYS if effect is Effect.OPEN and trigger is Trigger.KEYS else _RULES[effect]
        after = rule.after(before)
        if after is None:
            amount = "some" if before.pending else "no"
            where = f"{before.item.value} is open and {amount} text is pending"
            raise framing.refusal(f"{trigger!s} in state {state.name!r} has the effect {effect.value!r} where {where}")
        before = after
    return before


def _check_ends(framing: Framing) -> None:
    """Refuse an end of the turn that neither leads back to the initial state nor is read again."""
    for state in framing.states.values():
        for trigger in _ENDS:
            dest, effects = state.rows[trigger]
            if Effect.AGAIN not in effects and dest.name != framing.initial:
                raise framing.refusal(f"{trigger!s} in state {state.name!r} does not lead to {framing.initial!r}")


_CHANNELS: Final = ["content", "reasoning", "aside"]
_IDLE: Final = ["between", "thinking", "inside"]
_UNFINISHED: Final = ["body", "stray_text", "json", "torn_string", "literal", "broken_arguments"]
_VALUES: Final = ["value_start", "value"]
_WAITING: Final = ["key", "keyed", "member", "value_key", "value_call"]
_COMPLETE: Final = ["json_complete", "envelope_closed"]

FRAMING: Final = Framing(
    "framing of the families",
    initial="between",
    total=_T,
    regions={
        "message": ["between", "content"],
        "thought": ["thinking", "reasoning"],
        "after": ["inside", "aside"],
        "sections": ["section", "thought_section", "aside_section"],
        "names": ["name", "thought_name", "aside_name"],
        "between_keys": ["body", "stray_text"],
        "partial_key": ["key", "keyed"],
        "values": _VALUES,
        "value_ends": ["value_end", "value_tail"],
        "missing_ends": ["value_key", "value_call", "value_uncall"],
        "arguments": ["json", "torn_string", "literal", "broken_arguments"],
        "complete": _COMPLETE,
        # What these share is not drawn in a frame.
        "recoveries": [
            "rehearsed_call",
            "stray_text",
            "unended_value",
            "encoded",
            "dictionary",
            "torn_string",
            "broken_arguments",
        ],
        "outside": [*_CHANNELS, *_IDLE],
        "channels": _CHANNELS,
        "idle": _IDLE,
        "before_framing": [*_UNFINISHED, *_VALUES, "argument", *_COMPLETE],
        "unfinished": [*_UNFINISHED, *_VALUES, *_WAITING, "quoted", "encoded"],
        "calls": [*_UNFINISHED, *_COMPLETE],
        "open": [*_CHANNELS, *_UNFINISHED, *_VALUES, *_WAITING, "value_uncall", "quoted", "encoded", *_COMPLETE],
    },
    edges=(
        # Outside of calls. At rest, no item is open, and white space is framing.
        Edge("outside", _T.ANSWER, "between", (_E.CLOSE,)),
        Edge("idle", _T.THINK, "thinking", (_E.DROP,)),
        Edge("idle", _T.BLANK, "idle", (_E.SPACE,)),
        Edge("idle", _T.FINISH, "between"),
        Edge("idle", _T.CUT, "between"),
        Edge("channels", _T.FINISH, "between", (_E.CLOSE,)),
        # Outside of reasoning, sections and calls: between items, or in a message.
        Edge("message", _T.UNANSWER, "between", (_E.CLOSE,)),
        Edge("message", _T.ORPHAN, "between", (_E.CLOSE,)),
        Edge("message", _T.SECTION, "section", (_E.HOLD,)),
        Edge("message", _T.CALL, "name", (_E.HOLD,)),
        Edge("message", _T.BARE, "bare", (_E.HOLD,)),
        Edge("message", _T.OBJECT, "bare", (_E.HOLD,)),
        Edge("message", _T.TEXT, "content", (_E.SPEAK,)),
        Edge("between", _T.UNTHINK, "between", (_E.DROP,)),
        # In reasoning, before and after its first text.
        Edge("thought", _T.UNTHINK, "between", (_E.CLOSE,)),
        Edge("thought", _T.ORPHAN, "thinking", (_E.CLOSE,)),
        Edge("thought", _T.SECTION, "thought_section", (_E.HOLD,)),
        Edge("thought", _T.CALL, "thought_name", (_E.HOLD,)),
        Edge("thought", _T.LONE, "thought_bare", (_E.HOLD,)),
        Edge("thought", _T.REHEARSED, "rehearsed_bare", (_E.HOLD,)),
        Edge("thought", _T.TEXT, "reasoning", (_E.REASON,)),
        # After a call, where its section is still open if the family has sections.
        Edge("after", _T.UNANSWER, "inside", (_E.CLOSE,)),
        Edge("after", _T.ORPHAN, "inside", (_E.CLOSE,)),
        Edge("after", _T.UNSECTION, "between", (_E.CLOSE,)),
        Edge("after", _T.SECTION, "aside_section", (_E.HOLD,)),
        Edge("after", _T.CALL, "aside_name", (_E.HOLD,)),
        Edge("after", _T.INVOKE, "aside_name", (_E.HOLD,)),
        Edge("after", _T.OBJECT, "bare", (_E.HOLD,)),
        Edge("after", _T.TEXT, "aside", (_E.SPEAK,)),
        Edge("inside", _T.UNTHINK, "inside", (_E.DROP,)),
        Edge("inside", _T.UNCALL, "inside", (_E.DROP,)),
        Edge("inside", _T.UNLIST, "between", (_E.DROP,)),
        Edge("inside", _T.NEXT, "aside_name", (_E.HOLD,)),
        # Tentative: in a section before its first call. Anything without a row here refutes the call.
        Edge("sections", _T.BLANK, "sections", (_E.HOLD,)),
        Edge("sections", _T.ORPHAN, "sections", (_E.HOLD,)),
        Edge("section", _T.INVOKE, "name", (_E.HOLD,)),
        Edge("section", _T.LIST, "name", (_E.HOLD,)),
        Edge("section", _T.OBJECT, "name", (_E.HOLD,)),
        Edge("section", _T.TEXT, "content", (_E.AGAIN,)),
        Edge("thought_section", _T.INVOKE, "thought_name", (_E.HOLD,)),
        Edge("thought_section", _T.LIST, "thought_name", (_E.HOLD,)),
        Edge("thought_section", _T.OBJECT, "thought_name", (_E.HOLD,)),
        Edge("thought_section", _T.TEXT, "reasoning", (_E.AGAIN,)),
        Edge("aside_section", _T.INVOKE, "aside_name", (_E.HOLD,)),
        Edge("aside_section", _T.LIST, "aside_name", (_E.HOLD,)),
        Edge("aside_section", _T.OBJECT, "aside_name", (_E.HOLD,)),
        Edge("aside_section", _T.TEXT, "aside", (_E.AGAIN,)),
        # Tentative: in a name. Its end commits the call.
        Edge("names", _T.WORD, "names", (_E.HOLD,)),
        Edge("names", _T.KEYS, "body", (_E.OPEN,)),
        Edge("names", _T.JSON, "argument", (_E.OPEN,)),
        Edge("names", _T.LITERAL, "literal", (_E.OPEN,)),
        Edge("names", _T.MEMBER, "member", (_E.OPEN,)),
        Edge("name", _T.TEXT, "content", (_E.AGAIN,)),
        Edge("thought_name", _T.TEXT, "reasoning", (_E.AGAIN,)),
        Edge("aside_name", _T.TEXT, "aside", (_E.AGAIN,)),
        Edge("bare", _T.WORD, "bare", (_E.HOLD,)),
        Edge("bare", _T.DECLARED, "name"),
        Edge("bare", _T.TEXT, "content", (_E.AGAIN,)),
        Edge("thought_bare", _T.WORD, "thought_bare", (_E.HOLD,)),
        Edge("thought_bare", _T.DECLARED, "thought_name"),
        Edge("thought_bare", _T.TEXT, "reasoning", (_E.AGAIN,)),
        # In reasoning, a call without its section waits for its end. Then all of it is read again.
        Edge("rehearsed_bare", _T.WORD, "rehearsed_bare", (_E.HOLD,)),
        Edge("rehearsed_bare", _T.DECLARED, "rehearsed_rest"),
        Edge("rehearsed_bare", _T.TEXT, "reasoning", (_E.AGAIN,)),
        *(Edge("rehearsed_rest", trigger, "reasoning", (_E.AGAIN,)) for trigger in (_T.LONG, _T.UNTHINK, _T.FINISH, _T.CUT)),
        Edge("rehearsed_rest", _T.UNCALL, "rehearsed_call", (_E.RECALL, _E.AGAIN)),
        Edge("rehearsed_rest", _T.TEXT, "rehearsed_rest", (_E.HOLD,)),
        Edge("rehearsed_call", _T.REHEARSED, "thought_name", (_E.HOLD,)),
        Edge("rehearsed_call", _T.TEXT, "reasoning", (_E.AGAIN,)),
        # The end of an item. A marker that can only follow a call ends it, as its end marker does.
        Edge("calls", _T.UNCALL, "inside", (_E.CLOSE,)),
        Edge("calls", _T.UNSECTION, "between", (_E.CLOSE,)),
        Edge("calls", _T.SECTION, "aside_section", (_E.CLOSE, _E.HOLD)),
        Edge("calls", _T.CALL, "aside_name", (_E.CLOSE, _E.HOLD)),
        Edge("calls", _T.INVOKE, "aside_name", (_E.CLOSE, _E.HOLD)),
        Edge("unfinished", _T.FINISH, "between", (_E.LEAVE,)),
        Edge("open", _T.CUT, "between", (_E.LEAVE,)),
        # The beginning of a marker at the end of the turn is framing in a call, and text elsewhere.
        Edge("before_framing", _T.PARTIAL, "before_framing", (_E.DROP,)),
        Edge("partial_key", _T.PARTIAL, "partial_key", (_E.HOLD,)),
        Edge("missing_ends", _T.PARTIAL, "missing_ends", (_E.HOLD,)),
        # Keys and values, and stray text between them.
        Edge("between_keys", _T.KEY, "key", (_E.HOLD,)),
        Edge("between_keys", _T.ORPHAN, "between_keys", (_E.DROP,)),
        Edge("between_keys", _T.TEXT, "stray_text", (_E.STRAY,)),
        Edge("body", _T.BLANK, "body", (_E.SPACE,)),
        Edge("body", _T.JSON, "argument", (_E.BREAK, _E.DROP)),
        Edge("body", _T.BRACE, "argument", (_E.BREAK, _E.AGAIN)),
        Edge("key", _T.WORD, "key", (_E.HOLD,)),
        Edge("key", _T.UNKEY, "keyed", (_E.HOLD,)),
        Edge("keyed", _T.BLANK, "keyed", (_E.HOLD,)),
        Edge("partial_key", _T.VALUE, "value_start", (_E.ENTER,)),
        Edge("partial_key", _T.TEXT, "broken_arguments", (_E.BREAK, _E.AGAIN)),
        # Between keys, the end of a value is a repetition, which is dropped.
        Edge("body", _T.UNVALUE, "body", (_E.DROP,)),
        Edge("body", _T.MISSPELLED, "body", (_E.DROP,)),
        Edge("stray_text", _T.UNVALUE, "broken_arguments", (_E.BREAK, _E.AGAIN)),
        Edge("stray_text", _T.MISSPELLED, "broken_arguments", (_E.BREAK, _E.AGAIN)),
        # A value, before and after its first text. A marker that may end it waits for what follows.
        Edge("values", _T.UNVALUE, "value_end", (_E.HOLD,)),
        Edge("values", _T.MISSPELLED, "value_tail", (_E.HOLD,)),
        Edge("values", _T.KEY, "value_key", (_E.HOLD,)),
        Edge("values", _T.CALL, "value_call", (_E.HOLD,)),
        Edge("values", _T.INVOKE, "value_call", (_E.HOLD,)),
        Edge("values", _T.UNCALL, "value_uncall", (_E.HOLD,)),
        Edge("values", _T.UNSECTION, "value_uncall", (_E.HOLD,)),
        Edge("values", _T.TEXT, "value", (_E.WRITE,)),
        # The end of a value counts if a key, a call, or the end of the call follows, perhaps after other text. If another end
        # comes first, it is text of the value; without text between the two, either may be the end.
        Edge("value_end", _T.BLANK, "value_end", (_E.HOLD,)),
        Edge("value_end", _T.UNVALUE, "broken_arguments", (_E.SET, _E.BREAK, _E.AGAIN)),
        Edge("value_end", _T.TEXT, "value_tail", (_E.HOLD,)),
        Edge("value_tail", _T.UNVALUE, "value", (_E.AGAIN,)),
        Edge("value_tail", _T.TEXT, "value_tail", (_E.HOLD,)),
        Edge("value_ends", _T.LONG, "value", (_E.AGAIN,)),
        Edge("value_end", _T.KEY, "key", (_E.SET, _E.DROP, _E.HOLD)),
        Edge("value_end", _T.UNCALL, "inside", (_E.SET, _E.CLOSE)),
        Edge("value_end", _T.EARLY_UNCALL, "call_end", (_E.SET, _E.DROP)),
        *(Edge("value_tail", trigger, "body", (_E.SET, _E.AGAIN)) for trigger in (_T.KEY, _T.UNCALL)),
        *(
            Edge("value_ends", trigger, "body", (_E.SET, _E.AGAIN))
            for trigger in (*(_T.CALL, _T.INVOKE, _T.SECTION), *(_T.UNSECTION, _T.ORPHAN, _T.FINISH, _T.CUT))
        ),
        # Without its end, a value ends where a declared key or call follows, or an end of the call at which nothing else follows.
        Edge("value_key", _T.WORD, "value_key", (_E.HOLD,)),
        Edge("value_key", _T.DECLARED, "unended_value", (_E.SET, _E.AGAIN)),
        Edge("value_call", _T.WORD, "value_call", (_E.HOLD,)),
        Edge("value_call", _T.DECLARED, "unended_value", (_E.SET, _E.AGAIN)),
        Edge("value_uncall", _T.BLANK, "value_uncall", (_E.HOLD,)),
        Edge("value_uncall", _T.UNCALL, "value_uncall", (_E.HOLD,)),
        *(
            Edge("value_uncall", trigger, "unended_value", (_E.SET, _E.AGAIN))
            for trigger in (_T.CALL, _T.INVOKE, _T.SECTION, _T.UNSECTION, _T.FINISH)
        ),
        Edge("missing_ends", _T.TEXT, "value", (_E.AGAIN,)),
        Edge("unended_value", _T.TEXT, "body", (_E.AGAIN,)),
        # A key after the end of a call belongs to that call in some families. Anything else shows that the call has ended.
        Edge("between_keys", _T.EARLY_UNCALL, "call_end", (_E.DROP,)),
        Edge("call_end", _T.BLANK, "call_end", (_E.SPACE,)),
        Edge("call_end", _T.KEY, "key", (_E.HOLD,)),
        Edge("call_end", _T.TEXT, "inside", (_E.CLOSE, _E.AGAIN)),
        # JSON arguments, which pass through unchanged, and a literal, which has its own table. Text after a broken literal
        # or complete JSON that does not end the call is written unchanged too (`broken_arguments`).
        Edge("member", _T.WORD, "member", (_E.HOLD,)),
        Edge("member", _T.JSON, "argument", (_E.DROP,)),
        Edge("member", _T.WHOLE, "json_complete", (_E.DROP,)),
        Edge("member", _T.SHUT, "envelope_closed", (_E.DROP,)),
        Edge("member", _T.TEXT, "broken_arguments", (_E.AGAIN,)),
        Edge("argument", _T.BLANK, "argument", (_E.DROP,)),
        Edge("argument", _T.ENCODED, "encoded", (_E.DECODE,)),
        Edge("argument", _T.PYTHON, "dictionary", (_E.CONVERT, _E.AGAIN)),
        Edge("argument", _T.TEXT, "json", (_E.AGAIN,)),
        Edge("json", _T.QUOTE, "quoted", (_E.WRITE,)),
        Edge("json", _T.WHOLE, "json_complete", (_E.WRITE,)),
        Edge("json", _T.SHUT, "envelope_closed", (_E.DROP,)),
        Edge("json", _T.TEXT, "json", (_E.WRITE,)),
        Edge("quoted", _T.QUOTE, "json", (_E.WRITE,)),
        Edge("quoted", _T.BREAK, "torn_string", (_E.ESCAPE,)),
        Edge("quoted", _T.CONTROL, "quoted", (_E.ESCAPE,)),
        Edge("quoted", _T.WHOLE, "json_complete", (_E.WRITE,)),
        Edge("quoted", _T.TEXT, "quoted", (_E.WRITE,)),
        # A string with a line break may be invalid, so the markers that end a call count in it.
        Edge("torn_string", _T.QUOTE, "json", (_E.WRITE,)),
        Edge("torn_string", _T.WHOLE, "json_complete", (_E.WRITE,)),
        Edge("torn_string", _T.BREAK, "torn_string", (_E.ESCAPE,)),
        Edge("torn_string", _T.CONTROL, "torn_string", (_E.ESCAPE,)),
        Edge("torn_string", _T.TEXT, "torn_string", (_E.WRITE,)),
        # An object in a string, which some models write in place of the object.
        Edge("encoded", _T.WHOLE, "json_complete", (_E.DROP,)),
        Edge("encoded", _T.TEXT, "encoded", (_E.DECODE,)),
        Edge("dictionary", _T.TEXT, "literal", (_E.AGAIN,)),
        Edge("literal", _T.WHOLE, "json_complete", (_E.DROP,)),
        Edge("literal", _T.TEXT, "broken_arguments", (_E.AGAIN,)),
        Edge("broken_arguments", _T.TEXT, "broken_arguments", (_E.WRITE,)),
        Edge("json_complete", _T.SHUT, "envelope_closed", (_E.DROP,)),
        Edge("json_complete", _T.UNLIST, "between", (_E.CLOSE,)),
        Edge("json_complete", _T.NEXT, "json", (_E.AGAIN,)),
        Edge("complete", _T.BLANK, "complete", (_E.HOLD,)),
        Edge("complete", _T.TEXT, "broken_arguments", (_E.AGAIN,)),
        Edge("complete", _T.FINISH, "between", (_E.CLOSE,)),
    ),
)
