"""Changes of a lifecycle, one edge at a time: what a slip of the hand could make of a table.

Each change of a lifecycle is refused when it is declared, or the proof finds what it does wrong; those that survive both change
nothing that anybody could see (the tests list them, each with the reason).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

import attrs
from attrs import frozen

from interlock.events.items import ItemKind
from interlock.fsm.errors import DeclarationError
from interlock.fsm.item_subject import Item
from interlock.fsm.lifecycle import Emission, Lifecycle
from interlock.fsm.lifecycles import DECLARED, Lifecycles
from interlock.fsm.proof import prove
from interlock.fsm.response_subject import Response
from interlock.fsm.table import Edge, Table


class Named(Protocol):
    """What an edge does, which has a name."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...


S = TypeVar("S")
T = TypeVar("T")
N = TypeVar("N", bound=Named)

Fate: TypeAlias = Literal["refused", "caught", "survived"]
"""What becomes of a mutation: its declaration is refused, the proof fails, neither."""

_BESIDE: Final[ItemKind] = "message"
"""The kind of item that is opened beside the one whose lifecycle is changed."""


@frozen
class Mutation(Generic[S]):
    """A lifecycle with one edge changed.

    Args:
        lifecycle: Which.
        change: What was done, to which edge: `ready/run: drop`.
        edges: The edges that are left.
    """

    lifecycle: Lifecycle[S]
    change: str
    edges: Sequence[Edge[str, Emission[S]]]

    def declare(self) -> Lifecycle[S]:
        """Declare it.

        Raises:
            DeclarationError: It is refused.
        """
        return Lifecycle(self.lifecycle.name, self.lifecycle.initial, self.edges, self.lifecycle.final)


def mutations(lifecycle: Lifecycle[S]) -> Iterator[Mutation[S]]:
    """Yield every change of one edge of a lifecycle.

    Args:
        lifecycle: As it is declared.

    Yields:
        The lifecycle without the edge; the edge with one of its emissions dropped or doubled, or two of them swapped; the
        edge leading to every other state; the edge on every other trigger.
    """
    for place, edge in enumerate(lifecycle.edges):
        for change, edges in changes(lifecycle, edge):
            told = f"{edge.source}/{edge.trigger}: {change}"
            yield Mutation(lifecycle, told, (*lifecycle.edges[:place], *edges, *lifecycle.edges[place + 1 :]))


def changes(table: Table[T, N], edge: Edge[T, N]) -> Iterator[tuple[str, Sequence[Edge[T, N]]]]:
    """Yield what one edge of a table can be changed into, each with what was done.

    Args:
        table: Any table.
        edge: One of its edges.
    """
    yield "drop", ()
    for change, effects in _rearranged(edge.effects):
        yield change, [attrs.evolve(edge, effects=effects)]
    for dest in table.states:
        if dest != edge.dest:
            yield f"go to {dest}", [attrs.evolve(edge, dest=dest)]
    for trigger in table.triggers:
        if trigger != edge.trigger:
            yield f"on {trigger}", [attrs.evolve(edge, trigger=trigger)]


def _rearranged(effects: Sequence[N]) -> Iterator[tuple[str, Sequence[N]]]:
    for place, effect in enumerate(effects):
        yield f"drop {effect.name}", (*effects[:place], *effects[place + 1 :])
        yield f"double {effect.name}", (*effects[:place], effect, *effects[place:])
    for first, second in combinations(range(len(effects)), 2):
        swapped = [*effects]
        swapped[first], swapped[second] = effects[second], effects[first]
        yield f"swap {effects[first].name} and {effects[second].name}", swapped


def fate_of_item(mutation: Mutation[Item[Any]], kind: ItemKind) -> Fate:
    """Return what becomes of a change of an item's lifecycle.

    Args:
        mutation: The change.
        kind: Whose lifecycle it is.
    """
    try:
        changed = attrs.evolve(DECLARED, items={**DECLARED.items, kind: mutation.declare()})
    except DeclarationError:
        return "refused"
    return _try(changed, {kind, _BESIDE})


def fate_of_response(mutation: Mutation[Response]) -> Fate:
    """Return what becomes of a change of the response's lifecycle."""
    try:
        changed = attrs.evolve(DECLARED, response=mutation.declare())
    except DeclarationError:
        return "refused"
    return _try(changed, {_BESIDE})


def _try(changed: Lifecycles, kinds: set[ItemKind]) -> Fate:
    """Prove with few items first, which is fast and finds nearly all."""
    for open_items in (1, 2):
        if not prove(changed, kinds=kinds, open_items=open_items).holds:
            return "caught"
    return "survived"
