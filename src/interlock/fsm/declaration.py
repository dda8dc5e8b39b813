"""What a lifecycle must be beyond a right table: its events in brackets, and ready to be cut at any time.

It knows places inside a stream, and nothing of what the events mean. It is checked once, when a lifecycle is declared.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from interlock.events.stream import Place, StreamEvent, wire_name
from interlock.fsm.table import Edge, State, Table


class Placed(Protocol):
    """What an edge of a lifecycle emits."""

    @property
    def event(self) -> type[StreamEvent]:
        """The type of the event, which knows its place."""
        ...


P = TypeVar("P", bound=Placed)


def check(lifecycle: Table[str, P]) -> None:
    """Refuse a wrong lifecycle.

    Args:
        lifecycle: What is declared; a right table.

    Raises:
        DeclarationError: There is a state from which a stream could not be cut, or whose tool could not fail; or an edge whose
            events stand outside of their bracket.
    """
    for state in lifecycle.states.values():
        if state.rows and state.name != lifecycle.initial:
            _check_escapes(lifecycle, state)
    _check_brackets(lifecycle)


def _check_escapes(lifecycle: Table[str, P], state: State[str, P]) -> None:
    for trigger in ("cut", "fail") if state.rows.keys() & {"run", "succeed", "complete"} else ("cut",):
        if trigger not in state.rows:
            raise lifecycle.refusal(f"state {state.name!r} has no edge for {trigger!r}")
        dest, _ = state.rows[trigger]
        if dest.rows:
            raise lifecycle.refusal(f"{trigger!r} in state {state.name!r} does not lead to a final state")


def _check_brackets(lifecycle: Table[str, P]) -> None:
    places = {lifecycle.initial: Place.OUTSIDE}
    waiting = [lifecycle.initial]
    for name in waiting:
        for edge in (edge for edge in lifecycle.edges if edge.source == name):
            place = _walk(lifecycle, edge, places[name])
            if edge.dest not in places:
                places[edge.dest] = place
                waiting.append(edge.dest)
            elif places[edge.dest] is not place:
                other = places[edge.dest].value
                raise lifecycle.refusal(f"state {edge.dest!r} is entered both {other} and {place.value}")
    for name, place in places.items():
        if name in lifecycle.final and place not in {Place.OUTSIDE, Place.AFTER}:
            raise lifecycle.refusal(f"state {name!r} is final but leaves the {place.value} open")
        if name not in lifecycle.final and place is Place.AFTER:
            raise lifecycle.refusal(f"state {name!r} goes on after the end")


def _walk(lifecycle: Table[str, P], edge: Edge[str, P], place: Place) -> Place:
    for emission in edge.effects:
        event = emission.event
        if event.before is not place:
            at = f"{edge.trigger!r} in state {edge.source!r}"
            raise lifecycle.refusal(f"{at} emits {wire_name(event)} {place.value}, not {event.before.value}")
        place = event.after
    return place
