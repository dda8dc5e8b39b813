"""Mutations of a lifecycle: every change of one edge, and whether its declaration is refused or the proof catches it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import attrs
from attrs import frozen

from interlock.events.items import ItemKind
from interlock.fsm.lifecycle import Emission, ItemState, Lifecycle, ResponseState
from interlock.fsm.lifecycles import DECLARED, Lifecycles
from interlock.fsm.table import DeclarationError, Edge, Table
from interlock.verify.proof import prove

S = TypeVar("S")
T = TypeVar("T")
N = TypeVar("N")

Fate: TypeAlias = Literal["refused", "caught", "survived"]
"""The result of a mutation: its declaration is refused, the proof fails, or neither."""

_BESIDE: Final[ItemKind] = "message"
"""The kind of item that is opened beside the mutated one."""


@frozen
class Mutation(Generic[S]):
    """A lifecycle with one edge changed."""

    lifecycle: Lifecycle[S]
    change: str
    """The edge and its change: `ready/run: drop`."""
    edges: Sequence[Edge[str, Emission[S]]]

    def declare(self) -> Lifecycle[S]:
        return Lifecycle(self.lifecycle.name, self.lifecycle.initial, self.edges, self.lifecycle.final)


def mutations(lifecycle: Lifecycle[S]) -> Iterator[Mutation[S]]:
    """Yield every mutation of a lifecycle."""
    for place, edge in enumerate(lifecycle.edges):
        for change, edges in changes(lifecycle, edge):
            description = f"{edge.source}/{edge.trigger}: {change}"
            yield Mutation(lifecycle, description, (*lifecycle.edges[:place], *edges, *lifecycle.edges[place + 1 :]))


def changes(table: Table[T, N], edge: Edge[T, N]) -> Iterator[tuple[str, Sequence[Edge[T, N]]]]:
    """Yield every change of an edge of a table, with its description.

    The edge is dropped; one of its effects is dropped or doubled, or two are swapped; it leads to each other state; it fires on
    each other trigger.
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
    names = [getattr(effect, "name", str(effect)) for effect in effects]
    for place, effect in enumerate(effects):
        yield f"drop {names[place]}", (*effects[:place], *effects[place + 1 :])
        yield f"double {names[place]}", (*effects[:place], effect, *effects[place:])
    for first, second in combinations(range(len(effects)), 2):
        swapped = [*effects]
        swapped[first], swapped[second] = effects[second], effects[first]
        yield f"swap {names[first]} and {names[second]}", swapped


def fate_of_item(mutation: Mutation[ItemState[Any]], kind: ItemKind) -> Fate:
    try:
        changed = attrs.evolve(DECLARED, items={**DECLARED.items, kind: mutation.declare()})
    except DeclarationError:
        return "refused"
    return _try(changed, {kind, _BESIDE})


def fate_of_response(mutation: Mutation[ResponseState]) -> Fate:
    try:
        changed = attrs.evolve(DECLARED, response=mutation.declare())
    except DeclarationError:
        return "refused"
    return _try(changed, {_BESIDE})


def _try(changed: Lifecycles, kinds: set[ItemKind]) -> Fate:
    """Prove with one open item first, which is fast and catches nearly every mutation."""
    for open_items in (1, 2):
        if not prove(changed, kinds=kinds, open_items=open_items, arguments=False).holds:
            return "caught"
    return "survived"
