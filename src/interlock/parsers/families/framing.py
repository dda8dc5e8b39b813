"""The shared framing of the families as a table: reasoning, messages, and calls with keys and values or with JSON.

Most triggers are roles of markers; a family (`interlock.parsers.families.family`) gives each role its texts. Every state has a
row for every trigger, so there is an edge for any model output (rule R20).

There are three kinds of states. In a *channel*, text passes through: reasoning, or a message, outside of a section of calls
(`content`) or inside one (`aside`). A *tentative* state follows a marker that begins a call if a name follows; the text since
that marker is pending, and goes to the channel if there is no name. In a *committed* state a call is open, and remains a call.

A trigger without a meaning in a state has the row of `text`: it is text there. The scanner looks only for markers whose rows
differ (`interlock.parsers.families.lexicon`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from interlock.fsm.table import Edge
from interlock.parsers.families.alphabet import Effect, Trigger
from interlock.parsers.families.brackets import Framing

_T, _E = Trigger, Effect
_Row = Edge[Trigger, Effect]

_ENDS: Final = (_T.FINISH, _T.CUT)


def _others(state: str, rows: Iterable[_Row], dest: str, *effects: Effect, ends: bool = False) -> Iterator[_Row]:
    """Yield the rows, and a default for every other trigger; the default covers the end of the turn only with `ends`."""
    explicit = list(rows)
    triggers = {row.trigger for row in explicit} | set(() if ends else _ENDS)
    yield from explicit
    yield from (_Row(state, trigger, dest, effects) for trigger in _T if trigger not in triggers)


def _resting(state: str, channel: str, opens: Effect, *rows: _Row) -> Iterator[_Row]:
    """Yield the rows between markers, where white space is framing and text opens an item."""
    ends = (_Row(state, end, "between") for end in _ENDS)
    yield from _others(state, [*rows, _Row(state, _T.BLANK, state, (_E.REST,)), *ends], channel, opens)


def _speaking(state: str, *rows: _Row) -> Iterator[_Row]:
    """Yield the rows of a channel with an open item."""
    ends = (_Row(state, _T.FINISH, "between", (_E.CLOSE,)), _Row(state, _T.CUT, "between", (_E.LEAVE,)))
    yield from _others(state, [*rows, *ends], state, _E.WRITE)


def _tentative(state: str, channel: str, *rows: _Row) -> Iterator[_Row]:
    """Yield the rows of a tentative state; any other trigger refutes the call."""
    spill = _E.RETHINK if channel == "reasoning" else _E.SPILL
    yield from _others(state, rows, channel, spill, _E.AGAIN, ends=True)


def _naming(state: str, channel: str) -> Iterator[_Row]:
    """Yield the rows of a partial name; text that cannot belong to it refutes the call."""
    yield from _tentative(
        state,
        channel,
        _Row(state, _T.WORD, state, (_E.NOTE,)),
        _Row(state, _T.KEYS, "body", (_E.ENLIST,)),
        _Row(state, _T.STRANGE, "body", (_E.ENLIST,)),
        _Row(state, _T.GLUED_KEYS, "body", (_E.ENLIST, _E.AGAIN)),
        _Row(state, _T.JSON, "argument", (_E.COMMIT,)),
        _Row(state, _T.GLUED_JSON, "json", (_E.COMMIT, _E.AGAIN)),
        _Row(state, _T.LITERAL, "literal", (_E.EXPRESS, _E.AGAIN)),
        _Row(state, _T.STRANGE_LITERAL, "literal", (_E.EXPRESS, _E.AGAIN)),
        _Row(state, _T.MEMBER, "member", (_E.COMMIT,)),
        _Row(state, _T.SETTLED, "whole", (_E.COMMIT, _E.ARGUE)),
    )


def _sectioned(state: str, channel: str, name: str) -> Iterator[_Row]:
    """Yield the rows of a section before its first call."""
    yield from _tentative(
        state,
        channel,
        _Row(state, _T.BLANK, state, (_E.HOLD,)),
        _Row(state, _T.INVOKE, name, (_E.HOLD,)),
        _Row(state, _T.LIST, name, (_E.HOLD,)),
        _Row(state, _T.OBJECT, name, (_E.NOTE,)),
        _Row(state, _T.ORPHAN, state, (_E.HOLD,)),
    )


def _starting(state: str, prefix: str, *extra: _Row) -> Iterator[_Row]:
    """Yield the rows of the markers that may begin a call in a channel."""
    yield _Row(state, _T.SECTION, f"{prefix}section", (_E.HOLD,))
    yield _Row(state, _T.CALL, f"{prefix}name", (_E.HOLD,))
    yield from extra


def _closing(state: str, *effects: Effect) -> Iterator[_Row]:
    """Yield the rows of markers that end a call: its end marker, or one that can only follow a call."""
    yield _Row(state, _T.UNCALL, "inside", (*effects, _E.END))
    yield _Row(state, _T.UNSECTION, "between", (*effects, _E.END))
    yield _Row(state, _T.SECTION, "aside section", (*effects, _E.END, _E.HOLD))
    yield _Row(state, _T.CALL, "aside name", (*effects, _E.END, _E.HOLD))
    yield _Row(state, _T.INVOKE, "aside name", (*effects, _E.END, _E.HOLD))


def _ending(state: str, *effects: Effect, finish: Effect = _E.QUIT) -> Iterator[_Row]:
    """Yield the rows for the end of the turn in a call; `finish` is `end` where only the call's end marker is missing."""
    yield _Row(state, _T.FINISH, "between", (*effects, finish))
    yield _Row(state, _T.CUT, "between", (*effects, _E.QUIT))


def _bare(state: str) -> Iterator[_Row]:
    """Yield the rows of calls without a section."""
    yield _Row(state, _T.BARE, "bare name", (_E.HOLD,))
    yield _Row(state, _T.OBJECT, "bare name", (_E.NOTE,))


def _invoke(state: str) -> _Row:
    return _Row(state, _T.INVOKE, "aside name", (_E.HOLD,))


def _reasoning() -> Iterator[_Row]:
    """Yield the rows of reasoning, and of the calls that end it."""
    yield from _resting(
        "thinking",
        "reasoning",
        _E.REASON,
        _Row("thinking", _T.THINK, "thinking", (_E.FORGET,)),
        _Row("thinking", _T.UNTHINK, "between", (_E.FORGET,)),
        _Row("thinking", _T.ANSWER, "between", (_E.FORGET,)),
        _Row("thinking", _T.ORPHAN, "thinking", (_E.FORGET,)),
        *_starting("thinking", "thought ", _Row("thinking", _T.LONE, "thought bare name", (_E.HOLD,))),
    )
    yield from _speaking(
        "reasoning",
        _Row("reasoning", _T.UNTHINK, "between", (_E.CLOSE,)),
        _Row("reasoning", _T.ANSWER, "between", (_E.CLOSE,)),
        _Row("reasoning", _T.ORPHAN, "thinking", (_E.CLOSE,)),
        *_starting("reasoning", "thought ", _Row("reasoning", _T.LONE, "thought bare name", (_E.HOLD,))),
    )
    yield from _sectioned("thought section", "reasoning", "thought name")
    yield from _naming("thought name", "reasoning")
    yield from _tentative(
        "thought bare name",
        "reasoning",
        _Row("thought bare name", _T.WORD, "thought bare name", (_E.NOTE,)),
        _Row("thought bare name", _T.KEYS, "body", (_E.ENLIST,)),
    )


def _messages() -> Iterator[_Row]:
    """Yield the rows of text outside of sections, and of the calls that begin there."""
    yield from _resting(
        "between",
        "content",
        _E.SPEAK,
        _Row("between", _T.THINK, "thinking", (_E.FORGET,)),
        _Row("between", _T.UNTHINK, "between", (_E.FORGET,)),
        _Row("between", _T.ANSWER, "between", (_E.FORGET,)),
        _Row("between", _T.UNANSWER, "between", (_E.FORGET,)),
        _Row("between", _T.ORPHAN, "between", (_E.FORGET,)),
        *_starting("between", "", *_bare("between")),
    )
    yield from _speaking(
        "content",
        _Row("content", _T.ANSWER, "between", (_E.CLOSE,)),
        _Row("content", _T.UNANSWER, "between", (_E.CLOSE,)),
        _Row("content", _T.ORPHAN, "between", (_E.CLOSE,)),
        *_starting("content", "", *_bare("content")),
    )
    yield from _sectioned("section", "content", "name")
    yield from _naming("name", "content")
    # A call without its section must name a declared tool.
    yield from _tentative(
        "bare name",
        "content",
        _Row("bare name", _T.WORD, "bare name", (_E.NOTE,)),
        _Row("bare name", _T.KEYS, "body", (_E.ENLIST,)),
        _Row("bare name", _T.LITERAL, "literal", (_E.EXPRESS, _E.AGAIN)),
        _Row("bare name", _T.JSON, "argument", (_E.COMMIT,)),
        _Row("bare name", _T.SETTLED, "whole", (_E.COMMIT, _E.ARGUE)),
    )


def _asides() -> Iterator[_Row]:
    """Yield the rows after a call, where its section is still open if the family has sections."""
    yield from _resting(
        "inside",
        "aside",
        _E.SPEAK,
        _Row("inside", _T.THINK, "thinking", (_E.FORGET,)),
        _Row("inside", _T.UNTHINK, "inside", (_E.FORGET,)),
        _Row("inside", _T.ANSWER, "between", (_E.FORGET,)),
        _Row("inside", _T.UNANSWER, "inside", (_E.FORGET,)),
        _Row("inside", _T.ORPHAN, "inside", (_E.FORGET,)),
        _Row("inside", _T.UNCALL, "inside", (_E.FORGET,)),
        _Row("inside", _T.UNSECTION, "between", (_E.FORGET,)),
        _Row("inside", _T.NEXT, "aside name", (_E.HOLD,)),
        _Row("inside", _T.OBJECT, "bare name", (_E.NOTE,)),
        _Row("inside", _T.UNLIST, "between", (_E.FORGET,)),
        *_starting("inside", "aside ", _invoke("inside")),
    )
    yield from _speaking(
        "aside",
        _Row("aside", _T.ANSWER, "between", (_E.CLOSE,)),
        _Row("aside", _T.UNANSWER, "inside", (_E.CLOSE,)),
        _Row("aside", _T.ORPHAN, "inside", (_E.CLOSE,)),
        _Row("aside", _T.UNSECTION, "between", (_E.CLOSE,)),
        _Row("aside", _T.OBJECT, "bare name", (_E.NOTE,)),
        *_starting("aside", "aside ", _invoke("aside")),
    )
    yield from _sectioned("aside section", "aside", "aside name")
    yield from _naming("aside name", "aside")


def _keys() -> Iterator[_Row]:
    """Yield the rows of keys and values, and of stray text between them."""
    for state, blank, text in (("body", _E.REST, _E.STRAY), ("astray", _E.KEEP, _E.KEEP)):
        rows = [
            _Row(state, _T.BLANK, state, (blank,)),
            _Row(state, _T.KEY, "key", (_E.HOLD,)),
            _Row(state, _T.ORPHAN, state, (_E.FORGET,)),
            *_closing(state),
            *_ending(state),
        ]
        yield from _others(state, rows, "astray", text)
    yield from _tentative_key(
        "key",
        _Row("key", _T.WORD, "key", (_E.NOTE,)),
        _Row("key", _T.UNKEY, "keyed", (_E.HOLD,)),
    )
    yield from _tentative_key("keyed", _Row("keyed", _T.BLANK, "keyed", (_E.HOLD,)))
    rows = [
        _Row("value", _T.UNVALUE, "body", (_E.SET,)),
        _Row("value", _T.OVERRUN, "body", (_E.SET, _E.AGAIN)),
        *_ending("value"),
    ]
    yield from _others("value", rows, "value", _E.ADD)


def _tentative_key(state: str, *rows: _Row) -> Iterator[_Row]:
    """Yield the rows of a partial key; text that cannot belong to it makes it stray text."""
    enter = _Row(state, _T.VALUE, "value", (_E.ENTER, _E.FORGET))
    yield from _others(state, [*rows, enter], "astray", _E.SPOIL, _E.AGAIN, ends=True)


def _json() -> Iterator[_Row]:
    """Yield the rows of JSON arguments, which pass through unchanged."""
    yield from _others(
        "member",
        [
            _Row("member", _T.WORD, "member", (_E.HOLD,)),
            _Row("member", _T.JSON, "argument", (_E.FORGET,)),
            _Row("member", _T.SHUT, "shut", (_E.FORGET,)),
            _Row("member", _T.SEALED, "inside", (_E.FORGET, _E.END)),
            _Row("member", _T.UNCALL, "inside", (_E.ADMIT, _E.END)),
            _Row("member", _T.CALL, "aside name", (_E.ADMIT, _E.END, _E.HOLD)),
            *_ending("member", _E.ADMIT),
        ],
        "loose",
        _E.ADMIT,
        _E.AGAIN,
    )
    blank = _Row("argument", _T.BLANK, "argument", (_E.FORGET,))
    yield from _others("argument", [blank, *_closing("argument"), *_ending("argument")], "json", _E.AGAIN)
    yield from _others(
        "json",
        [
            _Row("json", _T.QUOTE, "quoted", (_E.WRITE,)),
            _Row("json", _T.NEST, "json", (_E.WRITE, _E.DEEPEN)),
            _Row("json", _T.UNNEST, "json", (_E.WRITE, _E.RISE)),
            _Row("json", _T.WHOLE, "whole", (_E.WRITE,)),
            _Row("json", _T.ENDED, "inside", (_E.WRITE, _E.END)),
            _Row("json", _T.SHUT, "shut", (_E.FORGET,)),
            _Row("json", _T.SEALED, "inside", (_E.END,)),
            *_closing("json"),
            *_ending("json"),
        ],
        "json",
        _E.WRITE,
    )
    for state in ("quoted", "torn"):
        # A string with a line break may be invalid, so the markers that end a call count in it.
        rows = [
            _Row(state, _T.QUOTE, "json", (_E.WRITE,)),
            _Row(state, _T.WHOLE, "whole", (_E.WRITE,)),
            _Row(state, _T.ENDED, "inside", (_E.WRITE, _E.END)),
            *_ending(state),
        ]
        torn = [_Row(state, _T.BREAK, "torn", (_E.WRITE,))] if state == "quoted" else _closing(state)
        yield from _others(state, [*rows, *torn], state, _E.WRITE)
    for state in ("whole", "shut"):
        rows = [
            _Row(state, _T.BLANK, state, (_E.HOLD,)),
            *_closing(state, _E.FORGET),
            *_ending(state, _E.FORGET, finish=_E.END),
        ]
        if state == "whole":
            rows.append(_Row(state, _T.SHUT, "shut", (_E.FORGET,)))
            rows.append(_Row(state, _T.SEALED, "inside", (_E.FORGET, _E.END)))
            rows.append(_Row(state, _T.UNLIST, "between", (_E.FORGET, _E.END)))
            rows.append(_Row(state, _T.NEXT, "json", (_E.ADMIT, _E.AGAIN)))
        yield from _others(state, rows, "loose", _E.ADMIT, _E.AGAIN)
    yield from _others("loose", [*_closing("loose"), *_ending("loose")], "loose", _E.WRITE)


def _literal() -> Iterator[_Row]:
    """Yield the rows of a literal, which has its own table; the rest of an invalid one is written unchanged."""
    rows = [
        _Row("literal", _T.WHOLE, "whole", (_E.FORGET,)),
        _Row("literal", _T.ENDED, "inside", (_E.END,)),
        *_closing("literal"),
        *_ending("literal"),
    ]
    yield from _others("literal", rows, "loose", _E.AGAIN)


FRAMING: Final = Framing(
    "framing of the families",
    initial="between",
    edges=[*_messages(), *_reasoning(), *_asides(), *_keys(), *_json(), *_literal()],
    total=_T,
)
