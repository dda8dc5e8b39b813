"""The graph of a table: its states, regions, lines and labels, without a layout.

A graph merges edges. All edges from one state to another become one line, triggers with the same effects share a label, and an
edge that all states of a region have becomes a line of the region.
"""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum, StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from attrs import evolve, frozen

from interlock.fsm.table import Table, reachable

T = TypeVar("T")
E = TypeVar("E")


class NodeRole(Enum):
    """The role of a state in its table."""

    INITIAL = "initial"
    NORMAL = "normal"
    FINAL = "final"
    DROPPED = "dropped"
    """Final, and reached without any effect, so no reader of a stream notices it."""


class LineStyle(Enum):
    """The kind of transition that a line shows, drawn as its pattern."""

    NORMAL = "normal"
    CUT = "cut"
    """Something outside ends the machine early: the token limit, a cancellation, the end of the response."""
    FAIL = "fail"
    """A failure ends the machine."""


STYLES: Final = {"cut": LineStyle.CUT, "cancel": LineStyle.CUT, "leave": LineStyle.CUT, "fail": LineStyle.FAIL}
"""The style of a trigger's line; other triggers have normal lines."""

Row: TypeAlias = tuple[str, str, str, tuple[str, ...]]
"""An edge of a table: source, trigger, destination and effects."""


@frozen
class GraphNode:
    """A state."""

    name: str
    role: NodeRole


@frozen
class Region:
    """A frame around states that share lines."""

    name: str
    states: tuple[str, ...]


@frozen
class Label:
    """One or more triggers with the same effects."""

    triggers: tuple[str, ...]
    events: tuple[str, ...] = ()
    """The effects in order: the full wire names of a lifecycle's events, or the names of other effects."""


@frozen(cache_hash=True)  # a key of the layout's mappings
class DrawnEdge:
    """A line from a state or region to a state, or a loop, with one or more labels."""

    source: str
    dest: str
    labels: tuple[Label, ...]

    @property
    def style(self) -> LineStyle:
        """The normal style if any trigger has it, else the style of a failure if any trigger has it, else the style of a cut."""
        styles = {STYLES.get(trigger, LineStyle.NORMAL) for label in self.labels for trigger in label.triggers}
        return next(style for style in (LineStyle.NORMAL, LineStyle.FAIL, LineStyle.CUT) if style in styles)


@frozen
class Graph:
    """A table as states and lines, in the order of the table."""

    name: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[DrawnEdge, ...]
    main_path: tuple[str, ...]
    """The names of the states on the main path."""
    key: tuple[tuple[str, str], ...] = ()
    """The name and meaning of each effect with a docstring."""
    triggers: tuple[tuple[str, str], ...] = ()
    """The name and meaning of each trigger with a docstring."""
    regions: tuple[Region, ...] = ()
    column: tuple[str, ...] = ()
    """The names of the states in the main column of a picture; empty if these are the states of `main_path`."""

    @property
    def size(self) -> tuple[int, int]:
        """The number of states and the number of edges in the table."""
        edges = sum(len(self.ends(edge)) * len(label.triggers) for edge in self.edges for label in edge.labels)
        return len(self.nodes), edges

    @property
    def main_edges(self) -> Iterator[DrawnEdge]:
        """The lines between the states of the main path."""
        steps = {*pairwise(self.main_path)}
        return (edge for edge in self.edges if not steps.isdisjoint(self.ends(edge)))

    def ends(self, edge: DrawnEdge) -> tuple[tuple[str, str], ...]:
        """Return the states that a line leaves and enters, as one pair, or as a pair for each state of its region."""
        states = next((region.states for region in self.regions if region.name == edge.source), (edge.source,))
        return tuple((state, state if edge.dest == edge.source else edge.dest) for state in states)

    def short(self, event: str) -> str:
        """Shorten an event name: omit `response.` and `output_item.`, and the lifecycle's name before a dot."""
        name = event.removeprefix("response.").removeprefix("output_item.")
        return name.removeprefix(self.name) if name.startswith(f"{self.name}.") else name

    def lines(self, label: Label, width: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Wrap a label's triggers and its events into lines of about `width` characters; words are not broken."""
        return tuple(_wrap(label.triggers, ", ", width * 4 // 5)), tuple(_wrap(map(self.short, label.events), " · ", width))

    def written(self, label: Label) -> str:
        """Return a label as one line: `trigger, trigger / event · event`."""
        triggers = ", ".join(label.triggers)
        events = " · ".join(map(self.short, label.events))
        return f"{triggers} / {events}" if events else triggers


def _wrap(words: Iterable[str], glue: str, width: int) -> Iterator[str]:
    line = ""
    for word in words:
        if line and len(line) + len(glue) + len(word) > width:
            yield line + glue.rstrip()
            line = word
        else:
            line = f"{line}{glue}{word}" if line else word
    if line:
        yield line


def draw(table: Table[T, E], *, main_path: Sequence[str] = (), column: Sequence[str] = ()) -> Graph:
    """Return the graph of a table.

    Triggers and effects are labelled with their `str`, and explained by their docstrings if they are members of a `StrEnum`.
    `main_path` is as in `graph_of`; `column` names the states in the main column of a picture, by default those of the main path.
    """
    rows: list[Row] = [
        (state.name, str(trigger), dest.name, tuple(map(str, effects)))
        for state in table.states.values()
        for trigger, (dest, effects) in state.rows.items()
    ]
    triggers = _key({type(trigger) for trigger in table.triggers})
    key = _key({type(effect) for edge in table.edges for effect in edge.effects})
    graph = graph_of(table.name, table.initial, rows, table.final, main_path=main_path, regions=table.regions)
    return evolve(graph, column=tuple(column), triggers=triggers, key=key)


def _key(types: Iterable[type[object]]) -> tuple[tuple[str, str], ...]:
    return tuple(meaning for one in types if issubclass(one, StrEnum) for meaning in key_of(one))


def graph_of(
    name: str,
    initial: str,
    rows: Iterable[Row],
    final: Collection[str] = (),
    *,
    main_path: Sequence[str] = (),
    regions: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Graph:
    """Return the graph of a table, given as rows.

    Args:
        name: The name of the table.
        initial: Its initial state.
        rows: Its edges, in the order of the table.
        final: Its final states.
        main_path: The states of the main path; by default, the shortest path of normal lines to a final state, or all states
            that are not final if there is none.
        regions: The states of each region, by its name. One that shares a state with an earlier one has no frame.
    """
    table = list(rows)
    states = dict.fromkeys([initial, *(state for source, _, dest, _ in table for state in (source, dest))])
    visible = _reached_with_effects(table)
    nodes = tuple(GraphNode(state, _role(state, initial, final, visible)) for state in states)
    main = tuple(main_path) or _shortest_path(nodes, _merge(table))
    frames: list[Region] = []
    for region, members in regions.items():
        if not any(state in frame.states for frame in frames for state in members):
            frames.append(Region(region, tuple(members)))
            table = _share(table, region, members)
    return Graph(name, nodes, tuple(_merge(table)), main, regions=tuple(frames))


def _share(rows: Iterable[Row], region: str, members: Collection[str]) -> list[Row]:
    """Replace rows that all states of a region have with one row of the region; a loop of each becomes a loop of the region."""

    def variants(row: Row) -> tuple[Row, ...]:
        source, trigger, dest, events = row
        if source not in members:
            return ()
        return ((region, trigger, dest, events), *([(region, trigger, region, events)] if source == dest else []))

    table = list(rows)
    counts = Counter(variant for row in table for variant in variants(row))
    common = {variant for variant, count in counts.items() if count == len(members)}
    return list(dict.fromkeys(next((one for one in variants(row) if one in common), row) for row in table))


def _shortest_path(nodes: Sequence[GraphNode], edges: Iterable[DrawnEdge]) -> tuple[str, ...]:
    """Return the path to the first final state that a normal line enters."""
    normal = [edge for edge in edges if edge.style is LineStyle.NORMAL]
    entered = {edge.dest for edge in normal}
    end = next((node.name for node in nodes if node.role is NodeRole.FINAL and node.name in entered), None)
    paths: list[tuple[str, ...]] = [(nodes[0].name,)]
    for path in paths:
        if path[-1] == end:
            return path
        reached = {name for other in paths for name in other}
        paths += [(*path, edge.dest) for edge in normal if edge.source == path[-1] and edge.dest not in reached]
    return tuple(node.name for node in nodes if node.role in {NodeRole.INITIAL, NodeRole.NORMAL})


def _reached_with_effects(rows: Sequence[Row]) -> set[str]:
    """Return the states that a path with at least one effect reaches."""
    seen = {dest for _, _, dest, events in rows if events}
    return {*reachable(seen, lambda state: [dest for source, _, dest, _ in rows if source == state])}


def _role(state: str, initial: str, final: Collection[str], visible: Collection[str]) -> NodeRole:
    if state == initial:
        return NodeRole.INITIAL
    if state not in final:
        return NodeRole.NORMAL
    return NodeRole.FINAL if state in visible else NodeRole.DROPPED


def _merge(rows: Iterable[Row]) -> Iterator[DrawnEdge]:
    lines: dict[tuple[str, str], dict[tuple[str, ...], list[str]]] = {}
    for source, trigger, dest, events in rows:
        lines.setdefault((source, dest), {}).setdefault(events, []).append(trigger)
    for (source, dest), labels in lines.items():
        yield DrawnEdge(source, dest, tuple(Label(tuple(triggers), events) for events, triggers in labels.items()))


def key_of(members: type[StrEnum]) -> tuple[tuple[str, str], ...]:
    """Return the value of each enum member with a docstring, and the first sentence of the docstring."""
    (declared,) = ast.parse(inspect.getsource(members)).body
    key: list[tuple[str, str]] = []
    for statement, following in pairwise(declared.body if isinstance(declared, ast.ClassDef) else ()):
        match statement, following:
            case ast.Assign([ast.Name(name)]), ast.Expr(ast.Constant(str(docstring))):
                key.append((members[name].value, " ".join(docstring.split()).partition(". ")[0].removesuffix(".")))
            case _:
                pass
    return tuple(key)
