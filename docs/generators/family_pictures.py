"""Draws the framing: the text around calls, a call in each style of arguments, and the table of literals.

The picture of the text merges the states of a call into `call`. That of a style merges the states around a call into `outside`,
and the sections, names and bare names in reasoning and messages, which have the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from attrs import evolve

from interlock.diagram import Graph, graph_of, key_of
from interlock.fsm.table import Edge, Table
from interlock.parsers.families.family import Family, Style
from interlock.parsers.families.framing import FRAMING, Effect, Trigger
from interlock.parsers.families.literals import LITERALS, LiteralPart, LiteralStep
from interlock.parsers.families.state_markers import LITERAL, VALUES, Reading, StateMarkers, markers_by_state

_T: Final = Trigger
_ALWAYS: Final = frozenset({_T.WORD, _T.BLANK, _T.TEXT, _T.PARTIAL, _T.FINISH, _T.CUT})
_JSON: Final = frozenset({_T.QUOTE, _T.BREAK, _T.CONTROL, _T.ENCODED, _T.PYTHON, _T.WHOLE})
_STRINGS: Final = frozenset({"quoted", "torn_string"})
_OF_STYLE: Final[dict[Style | None, frozenset[Trigger]]] = {
    None: frozenset(),
    "keys": _JSON | {_T.LONG, _T.DECLARED, _T.BRACE},
    "json": _JSON | {_T.LONG},
    "envelope": _JSON | {_T.MEMBER, _T.JSON},
    "literal": frozenset({_T.WHOLE}),
}
_AROUND: Final = [state for region in ("thought", "message", "after") for state in FRAMING.regions[region]]
"""The states around calls."""
_MERGED: Final[Mapping[str, str]] = {
    **dict.fromkeys(_AROUND, "outside"),
    **dict.fromkeys(FRAMING.regions["sections"], "section"),
    **dict.fromkeys(FRAMING.regions["names"], "name"),
    "thought_bare": "bare",
}
"""The names of states in a picture of calls that differ from their own."""
_OF_CALL: Final = (
    *("member", "body", "stray_text", "key", "keyed", "value_start", "value", "value_end", "value_tail"),
    *("argument", "json", "literal", "broken_arguments", "torn_string"),
)
_COLUMN: Final = ("outside", "section", "name", *_OF_CALL)
"""The main column of a picture of calls."""


def triggers_of(family: Family) -> frozenset[Trigger]:
    """Return the triggers that texts of a family can cause."""
    triggers = frozenset(family.markers) | _ALWAYS | _OF_STYLE[family.style]
    if family.notation.namespace:
        triggers -= {_T.WHOLE}  # elements end only with their call
    if not triggers.isdisjoint({_T.BARE, _T.LONE, _T.OBJECT}):
        triggers |= {_T.DECLARED}
    return triggers | {_T.UNCALL} if family.implicit_end in triggers else triggers


def part_for(family: Family, name: str) -> Table[Trigger, Effect]:
    """Return the part of the framing that a family uses, as a table with this name."""
    reached: list[str] = []
    waiting = [FRAMING.initial]
    edges: list[Edge[Trigger, Effect]] = []
    while waiting:
        state = waiting.pop(0)
        if state not in reached:
            reached.append(state)
            triggers = _triggers_in(state, family)
            rows = [(trigger, *row) for trigger, row in FRAMING.states[state].rows.items() if trigger in triggers]
            edges += [Edge(state, trigger, dest.name, effects) for trigger, dest, effects in rows]
            waiting += [dest.name for _, dest, _ in rows]
    return Table(name, FRAMING.initial, edges)


def _triggers_in(state: str, family: Family) -> frozenset[Trigger]:
    """Return the triggers that texts of a family can cause in a state, without the triggers that are text there."""
    rows, triggers = FRAMING.states[state].rows, triggers_of(family)
    if family.implicit_end in triggers:
        # The parser fires `uncall` as soon as such a trigger leads to `whole` or `shut`, and nowhere else.
        if state == ("envelope_closed" if family.implicit_end is _T.SHUT else "json_complete"):
            return frozenset({_T.UNCALL})
        triggers -= {_T.UNCALL}
    # In an envelope, `json` comes only after `member`.
    if family.style == "envelope" and state != "member":
        triggers -= {_T.JSON}
    # Without a marker before a name, only `declared` leads to `name`, which the complete name leaves at once.
    if state == "name" and triggers.isdisjoint({_T.SECTION, _T.CALL}):
        triggers -= {_T.WORD, _T.TEXT}
    # A marker that begins a call inside and outside of a section has both roles, and the former one where it means something.
    if rows[_T.INVOKE] != rows[_T.TEXT] and frozenset(family.markers.get(_T.INVOKE, ())).issuperset(
        family.markers.get(_T.CALL, ())
    ):
        triggers -= {_T.CALL}
    if family.style == "keys":
        triggers -= _impossible_between_keys(state, family)
    if state in LITERAL:
        triggers -= {role for role, texts in family.markers.items() if all(map(family.has_only_signs, texts))}
    if not _can_begin(state, family):
        triggers -= {_T.PARTIAL}
    if state == "rehearsed_call":  # what waited is read again there, and begins with this marker
        return frozenset({_T.REHEARSED})
    return frozenset(each for each in triggers if each is _T.TEXT or rows[each] != rows[_T.TEXT])


def _can_begin(state: str, family: Family) -> bool:
    """Return whether a turn can end in a state inside of a marker other than a key's, or after a shorter one that begins it."""
    by_state = markers_by_state(family, FRAMING, calls=True)
    roles = by_state[state].roles
    return any(
        role in family.markers and role is not _T.KEY and len(text) > 1 and text[0] not in roles for text, role in roles.items()
    ) or any(
        role in family.markers
        and longer.startswith(text)
        and len(longer) > len(text) + 1
        and state in _after(source, text, markers)
        for source, markers in by_state.items()
        for text in markers.ambiguous_prefixes
        for longer, role in markers.roles.items()
    )


def _after(state: str, marker: str, markers: StateMarkers) -> set[str]:
    """Return the states after a marker, which may be text of a key."""
    rows, role = FRAMING.states[state].rows, markers.roles[marker] or _T.TEXT
    return {rows[role][0].name, *([state] if markers.reading is Reading.KEY else [])}


def _impossible_between_keys(state: str, family: Family) -> frozenset[Trigger]:
    """Return the triggers that no text of a family with keys and values can cause in a state."""
    impossible = frozenset[Trigger]()
    # A marker that ends a value because something follows has both roles: it ends the value there, and nowhere else.
    ends = {role: frozenset(family.markers.get(role, ())) for role in (_T.UNVALUE, _T.MISSPELLED)}
    others = {role: texts for role, texts in family.markers.items() if role not in ends}
    if state in VALUES:
        impossible |= {role for role, texts in others.items() if frozenset().union(*ends.values()).issuperset(texts)}
    else:
        impossible |= {role for role, texts in ends.items() if texts.issubset(chain.from_iterable(others.values()))}
    # If no marker of its own ends a name, stray text comes only after a value that has ended, and no JSON comes.
    if not family.is_name_marked:
        impossible |= {_T.BRACE} | ({_T.TEXT, _T.UNVALUE} if state == "stray_text" else set())
    # In place of keys comes only an object.
    if _T.JSON not in family.markers:
        impossible |= {_T.WHOLE} if state in _STRINGS else {_T.BLANK, _T.ENCODED} if state == "argument" else set()
    # If the models of a family omit ends, the parser fires `uncall` before `finish` between keys. After a value it does not, so
    # there the end of a call is only early.
    if family.omits_ends and state in FRAMING.regions["between_keys"]:
        impossible |= {_T.FINISH}
    if state == "value_end" and _T.EARLY_UNCALL in family.markers:
        impossible |= {_T.UNCALL}
    return impossible


def picture_of_text(families: Iterable[Family]) -> Graph:
    """Return the picture of the text around calls, with the edges that any of the families uses."""
    names = {state: state if state in _AROUND else "call" for state in FRAMING.states}
    return _picture("text", families, names, "call", _AROUND)


def picture_of_call(families: Iterable[Family]) -> Graph:
    """Return the picture of a call, with the edges that any of the families uses."""
    return _picture("call", families, {state: _MERGED.get(state, state) for state in FRAMING.states}, "outside", _COLUMN)


def _picture(name: str, families: Iterable[Family], names: Mapping[str, str], rest: str, column: Sequence[str]) -> Graph:
    """Return a picture of some states: `names` has the name of each in it, and `rest` is the name of all states around it."""
    used = {(edge.source, edge.trigger) for family in families for edge in part_for(family, family.name).edges}
    rows = [
        (names[source], str(trigger), names[dest.name], tuple(map(str, effects)))
        for source, state in FRAMING.states.items()
        for trigger, (dest, effects) in state.rows.items()
        if (source, trigger) in used and {names[source], names[dest.name]} != {rest}
    ]
    sources = dict.fromkeys(source for source, *_ in rows)
    parts = {region: [state for state in states if state in sources] for region, states in FRAMING.regions.items()}
    regions = {region: states for region, states in parts.items() if states[1:]}
    main_path = [state for state in column if state in sources]
    graph = graph_of(name, main_path[0], dict.fromkeys(rows), main_path=main_path, regions=regions)
    return evolve(graph, triggers=key_of(Trigger), key=key_of(Effect))


def picture_of_literals() -> Graph:
    """Return the picture of the table of literals, without the edges to `broken`."""
    rows = [
        (edge.source, str(edge.trigger), edge.dest, tuple(map(str, edge.effects)))
        for edge in LITERALS.edges
        if edge.dest != "broken"
    ]
    regions = {"before a value": ["value", "item"], "in a string": ["string", "torn_string"]}
    graph = graph_of(LITERALS.name, LITERALS.initial, dict.fromkeys(rows), {"end"}, regions=regions)
    column = ("start", "member", "key", "keyed", "value", "item", "after", "end")
    return evolve(graph, column=column, triggers=key_of(LiteralPart), key=key_of(LiteralStep))
