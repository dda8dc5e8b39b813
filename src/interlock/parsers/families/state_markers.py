"""The markers that count in a state of the framing, as one regular expression.

They are compiled from the framing and a family: the family's markers whose rows in the state differ from the row of `text` and,
in JSON, the brackets and quotes. The expression finds the first marker, or the beginning of one at the end of the text, so the
parser holds back no more than that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache, lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Final, TypeAlias

from attrs import frozen

from interlock.fsm.table import State
from interlock.parsers.families.family import CALLING, Family
from interlock.parsers.families.framing import Effect, Framing, Trigger
from interlock.parsers.families.parameter_values import ESCAPED
from interlock.parsers.families.patterns import SPACE, SearchFunction, alternatives, beginning, proper_prefixes, wild

MarkerRole: TypeAlias = Trigger | None
"""The role of a marker; None for a bracket of JSON, perhaps after a trailing comma, whose role depends on the nesting."""

_BRACKETS: Final = "{}[]"
_CONTROLS: Final = "".join(map(chr, range(32))).replace("\n", "")
_BROKEN: Final = r"\\\x00-\x1f"
"""Characters in JSON that the fast path does not handle."""
_ESCAPE: Final = r"\\(?:\Z|(?s:.))"


class Reading(Enum):
    """The kinds of text between two markers."""

    TEXT = "text"
    NAME = "name"
    ENVELOPE = "envelope"
    """An envelope, up to its name."""
    KEY = "key"
    HELD = "held"
    """Any text, which waits."""
    MEMBER = "member"
    """An envelope, after its name."""
    LITERAL = "literal"
    """A literal, which has its own table."""


@frozen(eq=False)
class StateMarkers:
    """The markers of one state.

    Args:
        roles: The role of each marker.
        lookahead: The markers that end the current text and are read again in the next state.
        wild: The markers that contain a wildcard, with their patterns.
        search: Finds the next marker, or the beginning of one at the end of the text.
        text_end: Finds the end of text that passes through: what `search` finds or, in a value, which becomes a JSON
            string, any character that is escaped there or begins a marker.
        only_as_token: The markers that a model may not spell out even if a call is forced: those of reasoning, and of calls
            inside it.
        ambiguous_prefixes: The markers that begin another marker; at the end of a text they are undecided.
        structure: Finds the characters of JSON, other than quotes and brackets, that need the slow path; None elsewhere.
        reading: How text is read.
        passes: Whether text passes through.
        in_value: Whether text is in a value, which becomes a JSON string.
        in_string: Whether text is in a JSON string.
        blank: Whether white space differs from other text.
        bare: Whether a name or key counts only if the request declares it.
        partial: Whether the beginning of a marker at the end of the turn differs from other text.
        literal_stops: In a literal, the markers that end it, up to their first wildcards.
    """

    roles: Mapping[str, MarkerRole]
    lookahead: frozenset[str]
    wild: Mapping[str, re.Pattern[str]]
    search: SearchFunction
    text_end: SearchFunction
    only_as_token: frozenset[str]
    ambiguous_prefixes: frozenset[str]
    structure: SearchFunction | None
    reading: Reading
    passes: bool
    in_value: bool
    in_string: bool
    blank: bool
    bare: bool
    partial: bool
    literal_stops: frozenset[str]

    def marker(self, text: str) -> str | None:
        """Return the marker that matches a text; None if none does."""
        return text if text in self.roles else _wild_marker(self, text) if self.wild else None

    def longest(self, text: str) -> str:
        """Return the longest prefix of a text that is a marker, or else the text."""
        return next((text[:end] for end in range(len(text), 0, -1) if self.marker(text[:end]) is not None), text)


@lru_cache(maxsize=4096)
def _wild_marker(markers: StateMarkers, text: str) -> str | None:
    """Return the marker with a wildcard that matches a text; None if none does."""
    return next((marker for marker, pattern in markers.wild.items() if pattern.fullmatch(text)), None)


@cache
def _search(texts: frozenset[str], *, escapes: bool) -> SearchFunction:
    """Compile the search for the next of some markers; with `escapes`, a backslash hides the next character."""
    patterns = [*([_ESCAPE] if escapes else []), *alternatives(texts)]
    return re.compile("|".join(patterns)).search if patterns else _find_nothing


@cache
def _escape_search(firsts: frozenset[str]) -> SearchFunction:
    """Compile the search for a character that is escaped in a JSON string, or that a marker begins with."""
    return re.compile(f"[{ESCAPED}{re.escape(''.join(sorted(firsts)))}]").search


def _find_nothing(_text: str, _start: int = 0, /) -> None:
    """Find no marker."""


@cache
def markers_by_state(family: Family, framing: Framing, *, calls: bool) -> Mapping[str, StateMarkers]:
    """Return the markers of each state; without `calls`, the markers that begin calls are text."""
    return MappingProxyType({name: _compile(state, family, calls=calls) for name, state in framing.states.items()})


def _compile(state: State[Trigger, Effect], family: Family, *, calls: bool) -> StateMarkers:
    roles: dict[str, MarkerRole] = dict(chain(_markers(state, family, calls=calls), _json_markers(state, family)))
    following = {text for role in _FOLLOWING for text in family.markers.get(role, ())} | {"{"}
    dest, effects = state.rows[Trigger.TEXT]
    reading = _READINGS.get(state.name, Reading.TEXT)
    in_string, in_value = state.name in _STRINGS, state.name in VALUES
    search = _search(frozenset(roles), escapes=in_string)
    return StateMarkers(
        roles,
        frozenset(text for text, role in roles.items() if role is Trigger.LITERAL or (role in _ENDING and text in following)),
        wild(roles),
        search,
        _escape_search(frozenset(text[0] for text in roles)) if in_value else search,
        frozenset(text for text, role in roles.items() if role in _OF_REASONING or _is_thought(state, role)),
        proper_prefixes(roles),
        _structure(state, family),
        Reading.ENVELOPE if reading is Reading.NAME and family.style == "envelope" else reading,
        dest is state and len(effects) == 1 and effects[0] in _PASSED,
        in_value,
        in_string,
        _has_meaning(state, Trigger.BLANK),
        _has_meaning(state, Trigger.DECLARED),
        _has_meaning(state, Trigger.PARTIAL),
        _literal_stops(roles, family) if state.name == _LITERAL else frozenset(),
    )


def _literal_stops(roles: Iterable[str], family: Family) -> frozenset[str]:
    return frozenset(stop for stop in map(beginning, roles) if not family.has_only_signs(stop))


_OF_REASONING: Final = frozenset({Trigger.THINK, Trigger.UNTHINK})
_PASSED: Final = frozenset({Effect.REASON, Effect.SPEAK, Effect.WRITE})
_NAME_ENDS: Final = frozenset({Trigger.KEYS, Trigger.JSON, Trigger.LITERAL})
_VALUE_ENDS: Final = (Trigger.UNVALUE, Trigger.MISSPELLED)
_NOTHING: Final = frozenset[Trigger]()
_ENDING_OF: Final = {Reading.NAME: _NAME_ENDS, Reading.KEY: frozenset({Trigger.UNKEY, Trigger.VALUE})}
"""The roles of markers that end a name or key that the request must declare."""
_ENDING: Final = _NAME_ENDS | {Trigger.UNVALUE}
_FOLLOWING: Final = (Trigger.KEY, Trigger.INVOKE, Trigger.UNCALL, Trigger.UNSECTION)
"""The roles of markers that may follow a name or value directly."""
_JSON: Final = "json"
_LITERAL: Final = "literal"
VALUES: Final = frozenset({"value_start", "value"})
"""The states of a value."""
_STRINGS: Final = frozenset({"quoted", "torn_string", "encoded"})
_READINGS: Final = {
    **dict.fromkeys(("name", "thought_name", "aside_name", "bare", "thought_bare", "rehearsed_bare", "value_call"), Reading.NAME),
    **dict.fromkeys(("key", "value_key"), Reading.KEY),
    **dict.fromkeys(("value_end", "value_tail", "rehearsed_rest"), Reading.HELD),
    "member": Reading.MEMBER,
    "literal": Reading.LITERAL,
}
LITERAL: Final = frozenset({"literal", "broken_arguments"})
"""The states of a literal, where its own signs are not markers."""


def _has_meaning(state: State[Trigger, Effect], trigger: Trigger) -> bool:
    """Return whether a trigger differs from text in a state."""
    return state.rows[trigger] != state.rows[Trigger.TEXT]


def _markers(state: State[Trigger, Effect], family: Family, *, calls: bool) -> Iterator[tuple[str, MarkerRole]]:
    """Yield the markers of a family that count in a state, with their roles."""
    in_value = state.name in VALUES
    ending = (
        _ENDING_OF.get(_READINGS.get(state.name, Reading.TEXT), _NOTHING) if _has_meaning(state, Trigger.DECLARED) else _NOTHING
    )
    # A marker that ends a value because something follows has both roles; it ends the value there, and nowhere else.
    for role, texts in sorted(family.markers.items(), key=lambda each: (each[0] in _VALUE_ENDS) == in_value):
        if (_has_meaning(state, role) or role in ending) and (role not in CALLING or calls):
            found = _after_value(role, texts, state, family) if in_value else texts
            yield from ((text, role) for text in found if state.name not in LITERAL or not family.has_only_signs(text))


def _after_value(role: Trigger, texts: Iterable[str], state: State[Trigger, Effect], family: Family) -> Iterator[str]:
    """Yield the texts of a marker in a value: those that follow a value are on lines of their own, except in some families."""
    is_start = state.name == "value_start"  # the line break before it is already read
    if role in _VALUE_ENDS:
        for text in texts:
            yield text
            if is_start:
                yield text.removeprefix("\n")
        return
    ends = {text for end in _VALUE_ENDS for text in family.markers.get(end, ())}
    texts = [text for text in texts if text not in ends]
    sections = family.markers.get(Trigger.SECTION, ()) if texts and role is Trigger.INVOKE else ()
    wholes = [*texts, *(f"{section}{blank}{text}" for section in sections for blank in ("", "\n") for text in texts)]
    for text in wholes:
        yield f"\n{text}"
        if is_start or (family.syntax is not None and not family.syntax.own_lines):
            yield text


def _is_thought(state: State[Trigger, Effect], role: MarkerRole) -> bool:
    """Return whether a marker begins a call in reasoning, so that its text stays reasoning if no call follows."""
    if role is None or role not in CALLING:
        return False
    dest, effects = state.rows[role][0].rows[Trigger.TEXT]
    return dest.name == "reasoning" and Effect.AGAIN in effects


_TEXTS: Final[Mapping[Trigger, Iterable[str]]] = {
    Trigger.QUOTE: '"',
    Trigger.BREAK: "\n",
    Trigger.CONTROL: _CONTROLS,
    Trigger.ENCODED: ('"{', '" {', '"\\n{'),
    Trigger.PYTHON: (f"{{{SPACE}'",),
}
"""The markers that JSON has in every family."""


def _json_markers(state: State[Trigger, Effect], family: Family) -> Iterator[tuple[str, MarkerRole]]:
    """Yield the characters that structure JSON in a state."""
    for role, texts in _TEXTS.items():
        if _has_meaning(state, role):
            yield from ((text, role) for text in texts)
    if state.name in _STRINGS:
        yield '"', Trigger.QUOTE
    if family.is_name_marked and _has_meaning(state, Trigger.BRACE):
        yield "{", Trigger.BRACE
    if state.name == _JSON:
        yield from ((bracket, None) for bracket in _BRACKETS)
        yield from ((f",{SPACE}{bracket}", None) for bracket in "}]")


def _structure(state: State[Trigger, Effect], family: Family) -> SearchFunction | None:
    """Return the search for the characters of JSON, other than quotes and brackets, that need the slow path.

    None outside of JSON and in a string with a line break, where text does not pass through by counting brackets.
    """
    if not _has_meaning(state, Trigger.QUOTE) or state.name == "torn_string":
        return None
    json = state if state.name == _JSON else state.rows[Trigger.QUOTE][0]
    firsts = {text[0] for text, _ in _markers(json, family, calls=True) if text not in _BRACKETS}
    return re.compile(f"[{re.escape(''.join(sorted(firsts)))}{_BROKEN}]").search
