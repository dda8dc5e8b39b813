"""The graph between a table and its pictures: what is drawn, and nothing of how.

It knows states, lines and labels. Rows that would be drawn over one another are merged: between two states there is one
line for each style, and triggers that emit the same share a label.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from attrs import frozen

from interlock.fsm.table import Table

T = TypeVar("T")
E = TypeVar("E")


class Role(Enum):
    """What a state is in its lifecycle."""

    INITIAL = "initial"
    NORMAL = "normal"
    FINAL = "final"
    DROPPED = "dropped"
    """Final, and on the way to it nothing was ever emitted: no reader of a stream can tell that it was there."""


class Style(Enum):
    """Why a line is taken, which its pattern tells."""

    NORMAL = "normal"
    CUT = "cut"
    """Something from outside ends it early: the token budget, a cancellation, the end of the response."""
    FAIL = "fail"
    """What it does went wrong."""


STYLES: Final = {"cut": Style.CUT, "cancel": Style.CUT, "leave": Style.CUT, "fail": Style.FAIL}
"""The style of a trigger's line; any other trigger's is normal."""

_NO_KEY: Final[Mapping[str, str]] = MappingProxyType({})

Row: TypeAlias = tuple[str, str, str, tuple[str, ...]]
"""One edge of a table: the state it leaves, its trigger, the state it enters, and what it emits or does."""


@frozen
class Node:
    """A state.

    Args:
        name: As declared.
        role: What it is.
    """

    name: str
    role: Role


@frozen
class Label:
    """What is written on a line: triggers that do the same.

    Args:
        triggers: At least one.
        events: The wire names of what each of them emits, whole and in order.
    """

    triggers: tuple[str, ...]
    events: tuple[str, ...] = ()


@frozen(cache_hash=True)  # the layout looks things up by it
class DrawnEdge:
    """A line between two states.

    Args:
        source: The name of the state it leaves.
        dest: The name of the state it enters, which may be the same.
        style: Its pattern.
        labels: What is written on it, at least one.
    """

    source: str
    dest: str
    style: Style
    labels: tuple[Label, ...]


@frozen
class Graph:
    """A table, ready to be drawn.

    Args:
        name: Of the lifecycle.
        nodes: Its states, in the order of the declaration.
        edges: Its lines, in the order of the states they leave.
        way: The names of the states on the way to the good end, which a picture draws as one straight path.
        key: What its effects mean, by their names, if the names alone do not tell.
    """

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[DrawnEdge, ...]
    way: tuple[str, ...]
    key: tuple[tuple[str, str], ...] = ()

    def short(self, event: str) -> str:
        """Return an event's name as a label writes it.

        The prefix `response.` is left out, and `output_item.` with it, as in the rules; a leading dot stands for the
        name of the lifecycle.

        Args:
            event: The wire name.
        """
        name = event.removeprefix("response.").removeprefix("output_item.")
        return name.removeprefix(self.name) if name.startswith(f"{self.name}.") else name

    def lines(self, label: Label, width: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return a label in several lines.

        Args:
            label: One of the graph's.
            width: The characters that a line may have, where no single word is longer.

        Returns:
            The lines of its triggers, and those of its events.
        """
        return tuple(_wrap(label.triggers, ", ", width)), tuple(_wrap(map(self.short, label.events), " · ", width))

    def written(self, label: Label) -> str:
        """Return a label in one line: `trigger, trigger / event · event`."""
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


def draw(table: Table[T, E], *, way: Sequence[str] = (), key: Mapping[str, str] = _NO_KEY) -> Graph:
    """Return the graph of a table.

    Args:
        table: Any; `str` of its triggers and effects is what the lines are labelled with.
        way: The states on the way to the good end; by default the shortest way to it.
        key: What the effects mean, by their names.
    """
    rows: list[Row] = [
        (state.name, str(trigger), dest.name, tuple(map(str, effects)))
        for state in table.states.values()
        for trigger, (dest, effects) in state.rows.items()
    ]
    return graph_of(table.name, table.initial, rows, table.final, way=way, key=key)


def graph_of(
    name: str,
    initial: str,
    rows: Iterable[Row],
    final: Collection[str] = (),
    *,
    way: Sequence[str] = (),
    key: Mapping[str, str] = _NO_KEY,
) -> Graph:
    """Return the graph of rows.

    Args:
        name: What the table is called.
        initial: The state it starts in.
        rows: Its edges, in the order of the declaration.
        final: The states in which nothing more can happen.
        way: The states on the way to the good end; by default the shortest way to it, or all states if there is no such end.
        key: What the effects mean, by their names.
    """
    table = list(rows)
    states = dict.fromkeys([initial, *(state for source, _, dest, _ in table for state in (source, dest))])
    heard = _heard(table)
    nodes = tuple(Node(state, _role(state, initial, final, heard)) for state in states)
    edges = tuple(_merge(table))
    return Graph(name, nodes, edges, tuple(way) or _good_way(nodes, edges), tuple(key.items()))


def _good_way(nodes: Sequence[Node], edges: Sequence[DrawnEdge]) -> tuple[str, ...]:
    """Return the shortest way to the good end: to the first final state that a line enters which is neither cut nor fails."""
    normal = [edge for edge in edges if edge.style is Style.NORMAL]
    entered = {edge.dest for edge in normal}
    end = next((node.name for node in nodes if node.role is Role.FINAL and node.name in entered), None)
    ways: list[tuple[str, ...]] = [(nodes[0].name,)]
    for way in ways:
        if way[-1] == end:
            return way
        reached = {name for other in ways for name in other}
        ways += [(*way, edge.dest) for edge in normal if edge.source == way[-1] and edge.dest not in reached]
    return tuple(node.name for node in nodes if node.role in {Role.INITIAL, Role.NORMAL})


def _heard(rows: Sequence[Row]) -> set[str]:
    """Return the states on a way to which something is emitted or done."""
    heard = {dest for _, _, dest, events in rows if events}
    for _ in rows:
        heard |= {dest for source, _, dest, _ in rows if source in heard}
    return heard


def _role(state: str, initial: str, final: Collection[str], heard: Collection[str]) -> Role:
    if state == initial:
        return Role.INITIAL
    if state not in final:
        return Role.NORMAL
    return Role.FINAL if state in heard else Role.DROPPED


def _merge(rows: Iterable[Row]) -> Iterable[DrawnEdge]:
    lines: dict[tuple[str, str, Style], dict[tuple[str, ...], list[str]]] = {}
    for source, trigger, dest, events in rows:
        line = lines.setdefault((source, dest, STYLES.get(trigger, Style.NORMAL)), {})
        line.setdefault(events, []).append(trigger)
    for (source, dest, style), labels in lines.items():
        yield DrawnEdge(source, dest, style, tuple(Label(tuple(triggers), events) for events, triggers in labels.items()))
