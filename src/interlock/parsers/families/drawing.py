"""Draws the framing that the families share, one picture for each place in a text, and the table of literals.

A picture merges the states of each other place into one; the picture of a call merges those of all other places into `outside`.
It omits the edges between them and the effects of edges from them, which the pictures of those places show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from attrs import evolve

from interlock.fsm.diagram import Graph, graph_of, key_of
from interlock.fsm.table import Edge, Table
from interlock.parsers.families.alphabet import STRANGE, Effect, Trigger
from interlock.parsers.families.family import Family, Style
from interlock.parsers.families.framing import FRAMING
from interlock.parsers.families.lexicon import LITERAL
from interlock.parsers.families.literals import LITERALS, Part, Step

_T: Final = Trigger
_ALWAYS: Final = frozenset({_T.WORD, _T.BLANK, _T.TEXT, _T.FINISH, _T.CUT})
_JSON: Final = frozenset({_T.QUOTE, _T.NEST, _T.UNNEST, _T.BREAK})
_OF_STYLE: Final[dict[Style | None, frozenset[Trigger]]] = {
    None: frozenset(),
    "keys": frozenset(),
    "json": _JSON,
    "envelope": _JSON | {_T.MEMBER, _T.SETTLED, _T.JSON},
    "literal": frozenset(),
}

PLACES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = MappingProxyType(
    {
        "messages": {"channel": ("between", "content"), "tentative": ("section", "name", "bare name")},
        "reasoning": {
            "channel": ("thinking", "reasoning"),
            "tentative": ("thought section", "thought name", "thought bare name"),
        },
        "after a call": {"channel": ("inside", "aside"), "tentative": ("aside section", "aside name")},
        "a call": {
            "between keys": ("body", "astray"),
            "partial key": ("key", "keyed"),
            "arguments": ("argument", "json", "torn", "loose"),
            "complete": ("whole", "shut"),
        },
    }
)
"""The regions of each place in a text; a state without a region is in a call."""

_CALL: Final = ("outside", "body", "astray", "value", "argument", "json", "literal", "loose", "torn")
"""The main column of a picture of calls."""


_REREAD: Final = {
    dest.name for dest, effects in (state.rows[_T.FINISH] for state in FRAMING.states.values()) if Effect.AGAIN in effects
}
"""The states in which the end of a turn is read again."""


def triggers_of(family: Family) -> frozenset[Trigger]:
    """Return the triggers that texts of a family can cause."""
    markers = frozenset(family.markers)
    ends = family.style in {"json", "envelope"} or (family.style == "literal" and not family.dialect.namespace)
    ended = {_T.ENDED if markers.isdisjoint({_T.UNCALL, _T.SEALED}) else _T.WHOLE} if ends else set[Trigger]()
    strange = {strange for role, strange in STRANGE.items() if role in markers}
    return markers | _ALWAYS | _OF_STYLE[family.style] | ended | strange


def part_for(family: Family, name: str) -> Table[Trigger, Effect]:
    """Return the part of the framing that a family uses, as a table with this name."""
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
        # In an envelope, `json` comes only after `member`, so a state where `member` is more than text has no edge for `json`.
        # A bare call has no `member`.
        enveloped = {_T.JSON} if family.style == "envelope" and rows[_T.MEMBER] != rows[_T.TEXT] else set[Trigger]()
        signs = {role for role, texts in family.markers.items() if state in LITERAL and family.signs.issuperset(texts)}
        # If the models of a family omit ends, the parser fires `uncall` before `finish`, so a state in which `uncall` ends the
        # call receives no `finish`, unless the end is read again there.
        is_ended = family.omits_ends and Effect.END in rows[_T.UNCALL][1] and state not in _REREAD
        ended = {_T.FINISH} if is_ended else set[Trigger]()
        for trigger in Trigger:
            dest, effects = rows[trigger]
            if trigger in triggers - enveloped - signs - ended and (trigger is _T.TEXT or rows[trigger] != rows[_T.TEXT]):
                edges.append(Edge(state, trigger, dest.name, effects))
                waiting.append(dest.name)
    return Table(name, FRAMING.initial, edges)


def picture_of(families: Iterable[Family], place: str) -> Graph:
    """Return the picture of one of the `PLACES`, with the edges that any of the families uses."""
    used = {(edge.source, edge.trigger) for family in families for edge in part_for(family, family.name).edges}
    rows = [
        (_drawn(source, place), str(trigger), _drawn(dest.name, place), tuple(map(str, effects)) if inside else ())
        for source, state in FRAMING.states.items()
        for inside in [_place_of(source) == place]
        for trigger, (dest, effects) in state.rows.items()
        if (source, trigger) in used and (inside or _place_of(dest.name) == place)
    ]
    sources = dict.fromkeys(source for source, *_ in rows)
    regions = {name: states for name, states in PLACES[place].items() if sources.keys() >= {*states}}
    main = _CALL if place == "a call" else regions["channel"]
    way = [state for state in main if state in sources]
    graph = graph_of(place, way[0], dict.fromkeys(rows), way=way, regions=regions)
    return evolve(graph, triggers=key_of(Trigger), key=key_of(Effect))


def picture_of_literals() -> Graph:
    """Return the picture of the table of literals, without the edges to `broken`."""
    rows = [
        (edge.source, str(edge.trigger), edge.dest, tuple(map(str, edge.effects)))
        for edge in LITERALS.edges
        if edge.dest != "broken"
    ]
    regions = {"before a value": ["value", "item"], "in a string": ["string", "torn"]}
    graph = graph_of(LITERALS.name, LITERALS.initial, dict.fromkeys(rows), {"end"}, regions=regions)
    column = ("start", "member", "key", "keyed", "value", "item", "after", "end")
    return evolve(graph, column=column, triggers=key_of(Part), key=key_of(Step))


def _place_of(state: str) -> str:
    return next((place for place, regions in PLACES.items() if any(state in states for states in regions.values())), "a call")


def _drawn(state: str, place: str) -> str:
    """Return the name of a state in the picture of a place."""
    if _place_of(state) == place:
        return state
    return "outside" if place == "a call" else f"({_place_of(state)})"
