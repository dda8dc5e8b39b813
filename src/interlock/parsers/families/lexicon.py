"""The lexicon of a state: which markers can be read there, as one regular expression.

It knows texts and roles. A lexicon is compiled from the framing and the data of a family: it holds the markers whose rows in
the state differ from that of text, and in JSON the characters that shape it. The expression finds the first place where a marker
stands, or where the text ends inside of what may become one, so that a scanner holds back no more than that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from attrs import define, field, frozen

from interlock.fsm.table import State
from interlock.parsers.families.alphabet import Effect, Trigger
from interlock.parsers.families.brackets import Framing
from interlock.parsers.families.family import CALLING, Family

__all__ = ["Lexicon", "Reading", "Search", "Shape", "lexica"]


class Search(Protocol):
    """What `re.Pattern.search` is."""

    def __call__(self, text: str, start: int = 0, /) -> re.Match[str] | None:
        """Find the first match from a place on."""
        ...


Shape: TypeAlias = Trigger | None
"""What a marker does: its role, or None for a bracket of JSON, whose role depends on those before."""

_BRACKETS: Final = "{}[]"
_BROKEN: Final = "\\\n"
"""What a piece of JSON is not passed on with."""
_ESCAPE: Final = r"\\(?:\Z|(?s:.))"
_ESCAPED: Final = r'"\\\x00-\x1f\ud800-\udfff'
"""What is written otherwise inside of a JSON string."""


class Reading(Enum):
    """What the text between two markers is, as the rows of its state say."""

    TEXT = "text"
    NAME = "name"
    """Part of a name that commits a call."""
    KEY = "key"
    """Part of a key whose value will be entered."""
    MEMBER = "member"
    """Part of an envelope, after the name."""


@define
class _Node:
    """A node of a trie of markers."""

    ends: bool = False
    children: dict[str, _Node] = field(factory=dict[str, "_Node"])


@frozen(eq=False)
class Lexicon:
    """What can be read in one state.

    Args:
        roles: What each marker is; only these texts are markers.
        search: Finds the next marker from a place on, or the beginning of one that the text ends inside of; None where there is
            nothing to find.
        stops: Finds what stops text from being passed on as it is: all that `search` finds, and in a value, which becomes the
            inside of a JSON string, every letter that is escaped there.
        strict: The markers that even a forced call does not let a model spell: those of reasoning, and what begins a call in it.
        longer: The markers that others begin with: at the end of a text it is not known yet which one it is.
        structure: Where JSON is whole or broken, or a marker may begin in it; None for the states outside of JSON.
        reading: What text is here.
        passed: What is done to text where it is passed on as it comes: `write` or `add`; None where it is not.
        quoted: Whether text is inside of a string of JSON.
        blank: Whether white space is told from other text.
    """

    roles: Mapping[str, Shape]
    search: Search | None
    stops: Search
    strict: frozenset[str]
    longer: frozenset[str]
    structure: Search | None
    reading: Reading
    passed: Effect | None
    quoted: bool
    blank: bool


@cache
def _search(texts: frozenset[str], *, escapes: bool) -> Search | None:
    """Compile what finds the next of some markers.

    Args:
        texts: The markers.
        escapes: Whether a backslash takes away the meaning of the character that follows it.
    """
    trie = _Node()
    for text in sorted(texts):
        node = trie
        for letter in text:
            node = node.children.setdefault(letter, _Node())
        node.ends = True
    alternatives = [*_alternatives(trie), *([_ESCAPE] if escapes else [])]
    return re.compile("|".join(alternatives)).search if alternatives else None


@cache
def _escaped(firsts: frozenset[str]) -> Search:
    """Compile what finds a letter that is escaped in a JSON string, or one of those that markers begin with."""
    return re.compile(f"[{_ESCAPED}{re.escape(''.join(sorted(firsts)))}]").search


def _find_nothing(_text: str, _start: int = 0, /) -> None:
    """Find no marker."""


def _alternatives(node: _Node) -> Iterator[str]:
    return (re.escape(letter) + _pattern(child) for letter, child in node.children.items())


def _pattern(node: _Node) -> str:
    """Return the expression of what may follow: the text's end, a next letter, or nothing if a marker ends here."""
    if not node.children:
        return ""
    alternatives = [r"\Z", *_alternatives(node), *([""] if node.ends else [])]
    return f"(?:{'|'.join(alternatives)})"


@cache
def lexica(family: Family, framing: Framing, *, calls: bool) -> Mapping[str, Lexicon]:
    """Return the lexicon of each state.

    Args:
        family: Whose markers are read.
        framing: The states.
        calls: Whether calls may begin; else the markers that begin one are text.
    """
    return MappingProxyType({name: _lexicon(state, family, calls=calls) for name, state in framing.states.items()})


def _lexicon(state: State[Trigger, Effect], family: Family, *, calls: bool) -> Lexicon:
    roles: dict[str, Shape] = dict(chain(_markers(state, family, calls=calls), _shaping(state)))
    quoted = _counts(state, Trigger.QUOTE) and not _counts(state, Trigger.NEST)
    dest, effects = state.rows[Trigger.TEXT]
    passed = effects[0] if dest is state and effects in _PASSED else None
    search = _search(frozenset(roles), escapes=quoted)
    return Lexicon(
        roles,
        search,
        _escaped(frozenset(text[0] for text in roles)) if passed is Effect.ADD else search or _find_nothing,
        frozenset(text for text, role in roles.items() if role in _OF_REASONING or _is_thought(state, role)),
        frozenset(text for text in roles if any(other != text and other.startswith(text) for other in roles)),
        _structure(state, family),
        _reading(state),
        passed,
        quoted,
        _counts(state, Trigger.BLANK),
    )


_OF_REASONING: Final = frozenset({Trigger.THINK, Trigger.UNTHINK})
_PASSED: Final = ((Effect.WRITE,), (Effect.ADD,))


def _counts(state: State[Trigger, Effect], trigger: Trigger) -> bool:
    """Return whether a trigger means something else than text in a state."""
    return state.rows[trigger] != state.rows[Trigger.TEXT]


def _reading(state: State[Trigger, Effect]) -> Reading:
    if not _counts(state, Trigger.WORD):
        return Reading.TEXT
    done = {effect for _, effects in state.rows.values() for effect in effects}
    return Reading.NAME if Effect.ENLIST in done else Reading.KEY if Effect.ENTER in done else Reading.MEMBER


def _markers(state: State[Trigger, Effect], family: Family, *, calls: bool) -> Iterator[tuple[str, Shape]]:
    """Yield the markers of a family that count in a state, with their roles."""
    for role, texts in family.markers.items():
        if _counts(state, role) and (role not in CALLING or (calls and _yields(state, role, family))):
            yield from ((text, role) for text in texts)


def _yields(state: State[Trigger, Effect], role: Trigger, family: Family) -> bool:
    """Return whether a call may begin in a state: everywhere but in the reasoning of some families."""
    return family.reasoning is None or family.reasoning.yields or not _is_thought(state, role)


def _is_thought(state: State[Trigger, Effect], role: Shape) -> bool:
    """Return whether a marker begins a call in reasoning, to which it goes back if it is refuted."""
    return role is not None and role in CALLING and Effect.RETHINK in state.rows[role][0].rows[Trigger.TEXT][1]


def _shaping(state: State[Trigger, Effect]) -> Iterator[tuple[str, Shape]]:
    """Yield what shapes JSON in a state: a brace closes an envelope only where all others are closed."""
    if _counts(state, Trigger.QUOTE):
        yield '"', Trigger.QUOTE
    if _counts(state, Trigger.BREAK):
        yield "\n", Trigger.BREAK
    if _counts(state, Trigger.NEST):
        yield from ((bracket, None) for bracket in _BRACKETS)


def _structure(state: State[Trigger, Effect], family: Family) -> Search | None:
    """Return what finds the letters of JSON that are not just quotes and brackets: those with which a marker may begin, too.

    None where text is not passed on by counting those: outside of JSON, and in a string that a line break has torn.
    """
    outside = _counts(state, Trigger.NEST)
    if not _counts(state, Trigger.QUOTE) or not (outside or _counts(state, Trigger.BREAK)):
        return None
    json = state if outside else state.rows[Trigger.QUOTE][0]
    firsts = {text[0] for text, _ in _markers(json, family, calls=True) if text not in _BRACKETS}
    return re.compile(f"[{re.escape(''.join(sorted({*firsts, *_BROKEN})))}]").search
