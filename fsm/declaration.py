"""What a lifecycle must be to be accepted: checked once, when it is declared.

It knows graphs and brackets, and nothing of what the events mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from interlock.events.spec import Place
from interlock.fsm.errors import DeclarationError

if TYPE_CHECKING:
    from interlock.fsm.lifecycle import Edge, Lifecycle

S = TypeVar("S")


def check(lifecycle: Lifecycle[S]) -> None:
    """Refuse a wrong declaration.

    Args:
        lifecycle: What is declared; only its edges and the names of its states are read.

    Raises:
        DeclarationError: A state cannot be reached, cannot be left or is left although it is final; a state has two edges
            for one trigger; a state from which a stream could not be cut, or whose tool could not fail; an edge whose
            events stand outside of their bracket.
    """
    leaving = _leaving(lifecycle)
    _check_states(lifecycle, leaving)
    _check_escapes(lifecycle, leaving)
    _check_brackets(lifecycle, leaving)


def _refuse(lifecycle: Lifecycle[S], message: str) -> DeclarationError:
    return DeclarationError(f"lifecycle {lifecycle.item!r}: {message}")


def _leaving(lifecycle: Lifecycle[S]) -> dict[str, dict[str, Edge[S]]]:
    leaving: dict[str, dict[str, Edge[S]]] = {}
    for edge in lifecycle.edges:
        leaving.setdefault(edge.dest, {})
        if edge.trigger in leaving.setdefault(edge.source, {}):
            raise _refuse(lifecycle, f"state {edge.source!r} has two edges for {edge.trigger!r}")
        leaving[edge.source][edge.trigger] = edge
    return leaving


def _check_states(lifecycle: Lifecycle[S], leaving: Mapping[str, Mapping[str, Edge[S]]]) -> None:
    reached = _reach([lifecycle.initial], {name: {e.dest for e in row.values()} for name, row in leaving.items()})
    back: dict[str, set[str]] = {}
    for edge in lifecycle.edges:
        back.setdefault(edge.dest, set()).add(edge.source)
    ending = _reach(lifecycle.final, back)
    for name in (lifecycle.initial, *sorted(lifecycle.final), *leaving):
        if name not in leaving or name not in reached:
            raise _refuse(lifecycle, f"state {name!r} cannot be reached")
        if name in lifecycle.final and leaving[name]:
            raise _refuse(lifecycle, f"state {name!r} is final but has edges")
        if name not in ending:
            raise _refuse(lifecycle, f"state {name!r} has no way to a final state")


def _reach(start: Iterable[str], following: Mapping[str, Iterable[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting.extend(following.get(name, ()))
    return reached


def _check_escapes(lifecycle: Lifecycle[S], leaving: Mapping[str, Mapping[str, Edge[S]]]) -> None:
    for name, row in leaving.items():
        if name in lifecycle.final or name == lifecycle.initial:
            continue
        for trigger in ("cut", "fail") if row.keys() & {"run", "succeed", "complete"} else ("cut",):
            if trigger not in row:
                raise _refuse(lifecycle, f"state {name!r} has no edge for {trigger!r}")
            if row[trigger].dest not in lifecycle.final:
                raise _refuse(lifecycle, f"{trigger!r} in state {name!r} does not lead to a final state")


def _check_brackets(lifecycle: Lifecycle[S], leaving: Mapping[str, Mapping[str, Edge[S]]]) -> None:
    places = {lifecycle.initial: Place.OUTSIDE}
    waiting = [lifecycle.initial]
    while waiting:
        name = waiting.pop()
        for edge in leaving[name].values():
            place = _walk(lifecycle, edge, places[name])
            if edge.dest not in places:
                places[edge.dest] = place
                waiting.append(edge.dest)
            elif places[edge.dest] is not place:
                other = places[edge.dest].value
                raise _refuse(lifecycle, f"state {edge.dest!r} is entered both {other} and {place.value}")
    for name, place in places.items():
        if name in lifecycle.final and place not in {Place.OUTSIDE, Place.AFTER}:
            raise _refuse(lifecycle, f"state {name!r} is final but leaves the {place.value} open")
        if name not in lifecycle.final and place is Place.AFTER:
            raise _refuse(lifecycle, f"state {name!r} goes on after the end")


def _walk(lifecycle: Lifecycle[S], edge: Edge[S], place: Place) -> Place:
    for emission in edge.emits:
        if emission.spec.before is not place:
            at = f"{edge.trigger!r} in state {edge.source!r}"
            wanted = emission.spec.before.value
            raise _refuse(lifecycle, f"{at} emits {emission.name} {place.value}, not {wanted}")
        place = emission.spec.after
    return place
