"""The framing as one family uses it: the states that its texts can lead to, and the edges that are more than text.

It is what is drawn; what runs is the whole framing.
"""

from __future__ import annotations

from typing import Final

from interlock.fsm.table import Edge, Table
from interlock.parsers.families.alphabet import Effect, Trigger
from interlock.parsers.families.family import Family, Style
from interlock.parsers.families.framing import FRAMING

__all__ = ["part_for", "triggers_of"]

_T: Final = Trigger
_ALWAYS: Final = frozenset({_T.WORD, _T.BLANK, _T.TEXT, _T.FINISH, _T.CUT})
_JSON: Final = frozenset({_T.QUOTE, _T.NEST, _T.UNNEST, _T.BREAK})
_OF_STYLE: Final[dict[Style | None, frozenset[Trigger]]] = {
    None: frozenset(),
    "keys": frozenset({_T.STRANGE}),
    "json": _JSON,
    "envelope": _JSON | {_T.MEMBER, _T.SETTLED, _T.JSON},
}


def triggers_of(family: Family) -> frozenset[Trigger]:
    """Return what can be triggered by the texts of a family."""
    markers = frozenset(family.markers)
    ended = {_T.WHOLE if _T.UNCALL in markers else _T.ENDED} if family.style in {"json", "envelope"} else set[Trigger]()
    return markers | _ALWAYS | _OF_STYLE[family.style] | ended


def part_for(family: Family, name: str) -> Table[Trigger, Effect]:
    """Return the part of the framing that a family uses.

    Args:
        family: Whose markers are read.
        name: What the part is called.
    """
    triggers = triggers_of(family)
    reached: list[str] = []
    waiting = [FRAMING.initial]
    edges: list[Edge[Trigger, Effect]] = []
    while waiting:
        state = waiting.pop(0)
        if state in reached:
            continue
        reached.append(state)
        rows = FRAMING.states[state].rows
        for trigger in Trigger:
            dest, effects = rows[trigger]
            if trigger in triggers and (trigger is _T.TEXT or rows[trigger] != rows[_T.TEXT]):
                edges.append(Edge(state, trigger, dest.name, effects))
                waiting.append(dest.name)
    return Table(name, FRAMING.initial, edges)
