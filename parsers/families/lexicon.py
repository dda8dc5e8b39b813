"""The lexicon of a state: which markers can be read there, as one regular expression.

It knows texts and roles. A lexicon is compiled from the framing and the data of a family: it holds the markers whose rows in
the state differ from that of text, and in JSON the characters that shape it. The expression finds the first place where a marker
stands, or where the text ends inside of what may become one, so that a scanner holds back no more than that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, Protocol, TypeAlias

from attrs import define, evolve, field, frozen

from interlock.fsm.table import State
from interlock.parsers.families.family import CALLING, Family
from interlock.parsers.families.framing import FRAMING, Effect, Trigger

__all__ = ["JSON_STATES", "Lexicon", "Search", "Shape", "lexica"]


class Search(Protocol):
    """What `re.Pattern.search` is."""

    def __call__(self, text: str, start: int = 0, /) -> re.Match[str] | None:
        """Find the first match from a place on."""
        ...


Shape: TypeAlias = Trigger | None
"""What a marker does: its role, or None for a bracket of JSON, whose role depends on those before."""

JSON_STATES: Final = frozenset({"json", "quoted", "torn"})
"""The states in which the structure of JSON counts."""

_BRACKETS: Final = "{}[]"
_ESCAPE: Final = r"\\(?:\Z|(?s:.))"


@define
class _Node:
    """A node of a trie of markers."""

    ends: bool = False
    following: dict[str, _Node] = field(factory=dict[str, "_Node"])


@frozen(eq=False)
class Lexicon:
    """The markers of one state.

    Args:
        roles: What each marker is; only these texts are markers.
        search: Finds the next marker from a place on, or the beginning of one that the text ends inside of; None where there is
            nothing to find.
        longer: The markers that others begin with: at the end of a text it is not known yet which one it is.
        structure: Where JSON is whole or broken, or a marker may begin in it; None for the states outside of JSON.
    """

    roles: Mapping[str, Shape]
    search: Search | None
    longer: frozenset[str]
    structure: Search | None = None

    @classmethod
    def of(cls, roles: Mapping[str, Shape], *, escapes: bool) -> Lexicon:
        """Compile the lexicon of some markers.

        Args:
            roles: What each marker is.
            escapes: Whether a backslash takes away the meaning of the character that follows it.
        """
        trie = _Node()
        for text in roles:
            node = trie
            for letter in text:
                node = node.following.setdefault(letter, _Node())
            node.ends = True
        alternatives = [*_alternatives(trie), *([_ESCAPE] if escapes else [])]
        longer = frozenset(text for text in roles if any(other != text and other.startswith(text) for other in roles))
        return cls(roles, re.compile("|".join(alternatives)).search if alternatives else None, longer)


def _alternatives(node: _Node) -> Iterator[str]:
    return (re.escape(letter) + _pattern(child) for letter, child in node.following.items())


def _pattern(node: _Node) -> str:
    """Return the expression of what may follow: the text's end, a next letter, or nothing if a marker ends here."""
    if not node.following:
        return ""
    alternatives = [r"\Z", *_alternatives(node), *([""] if node.ends else [])]
    return f"(?:{'|'.join(alternatives)})"


@cache
def lexica(family: Family, *, calls: bool) -> Mapping[str, Lexicon]:
    """Return the lexicon of each state.

    Args:
        family: Whose markers are read.
        calls: Whether calls may begin; else the markers that begin one are text.
    """
    return {name: _lexicon(state, family, calls=calls) for name, state in FRAMING.states.items()}


def _lexicon(state: State[Trigger, Effect], family: Family, *, calls: bool) -> Lexicon:
    thinks = state.name in {"thinking", "reasoning"}
    yields = family.reasoning is None or family.reasoning.yields
    closed = CALLING if not calls or (thinks and not yields) else frozenset[Trigger]()
    plain = state.rows[Trigger.TEXT]
    roles: dict[str, Shape] = {}
    for role, texts in family.markers.items():
        if role not in closed and state.rows[role] != plain:
            roles.update(dict.fromkeys(texts, role))
    if state.name not in JSON_STATES:
        return Lexicon.of(roles, escapes=False)
    lexicon = Lexicon.of(_json(state.name, roles), escapes=state.name != "json")
    return lexicon if state.name == "torn" else evolve(lexicon, structure=_structure(family))


def _structure(family: Family) -> Search:
    """Return what finds the letters of JSON that are not just quotes and brackets: those with which a marker may begin, too."""
    rows = FRAMING.states["json"].rows
    live = (texts for role, texts in family.markers.items() if rows[role] != rows[Trigger.TEXT])
    firsts = {text[0] for texts in live for text in texts if text not in _BRACKETS}
    letters = "".join(sorted({*firsts, "\\", "\n"}))
    return re.compile(f"[{re.escape(letters)}]").search


def _json(name: str, roles: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the markers of a state of JSON: a brace closes an envelope only where all others are closed."""
    shaping: dict[str, Shape] = {'"': Trigger.QUOTE}
    match name:
        case "json":
            shaping |= dict.fromkeys(_BRACKETS)
        case "quoted":
            shaping["\n"] = Trigger.BREAK
        case _:
            pass
    return {**roles, **shaping}
