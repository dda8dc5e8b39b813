"""Lifecycles: tables whose edges emit events, and the items and responses that go through them.

A lifecycle is a `Table` (see `interlock.fsm.table`) whose effects are emissions: functions that take the item or response and
return one event. Construction also checks that the events are nested correctly and that `cut` ends every open state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar, get_type_hints

from attrs import frozen
from msgspec import Struct
from msgspec.structs import replace

from interlock.events.stream import Place, StreamEvent, wire_name
from interlock.fsm.table import State, Table

S = TypeVar("S")
"""The subject of a lifecycle: an item, or the response."""

Fields: TypeAlias = Mapping[str, object]
"""Fields by the API's names: of an item, or the arguments of a trigger, such as the result of a tool or an annotation."""

NO_FIELDS: Final[Fields] = MappingProxyType({})
"""The arguments of a trigger that has none."""


@frozen
class Emission(Generic[S]):
    """The function that makes one event of an edge.

    Args:
        make: Updates the subject (opens a part, completes a text) and returns the event.
        event: The event's class.
    """

    make: Callable[[S], StreamEvent]
    event: type[StreamEvent]

    @property
    def name(self) -> str:
        """The event's wire name, which labels the edge in a diagram."""
        return wire_name(self.event)

    def __str__(self) -> str:
        """Return the wire name."""
        return self.name


def emission(make: Callable[[S], StreamEvent]) -> Emission[S]:
    """Decorate a function that makes an event; its return annotation is the event's class."""
    return Emission(make, get_type_hints(make)["return"])


LifecycleState: TypeAlias = State[str, Emission[S]]
"""A compiled state of a lifecycle."""


class Lifecycle(Table[str, Emission[S]]):
    """The table of the states and events of an item or of the response; its name is the kind of item, or `response`.

    Raises:
        DeclarationError: The table is invalid; a state that is neither initial nor final has no edge to a final state for
            `cut`, or for `fail` if a tool may run or the response may complete; or an edge emits an event in the wrong place,
            such as a delta outside a part. The message names the state.
    """

    def __attrs_post_init__(self) -> None:
        """Compile the edges, and check them as a table and as a lifecycle."""
        super().__attrs_post_init__()
        for state in self.states.values():
            if state.rows and state.name != self.initial:
                self._check_escapes(state)
        self._check_brackets()

    def _check_escapes(self, state: LifecycleState[S]) -> None:
        for trigger in ("cut", "fail") if state.rows.keys() & {"run", "succeed", "complete"} else ("cut",):
            if trigger not in state.rows:
                raise self.refusal(f"state {state.name!r} has no edge for {trigger!r}")
            dest, _ = state.rows[trigger]
            if dest.rows:
                raise self.refusal(f"{trigger!r} in state {state.name!r} does not lead to a final state")

    def _check_brackets(self) -> None:
        for name, places in self.conditions(Place.OUTSIDE, self._follow).items():
            if len(places) > 1:
                entered = " and in place ".join(repr(place.value) for place in places)
                raise self.refusal(f"state {name!r} is entered in place {entered}")
            (place,) = places
            if name in self.final and place not in {Place.OUTSIDE, Place.AFTER}:
                raise self.refusal(f"state {name!r} is final in place {place.value!r}")
            if name not in self.final and place is Place.AFTER:
                raise self.refusal(f"state {name!r} is not final, but the item has ended")

    def _follow(self, state: LifecycleState[S], place: Place) -> Iterator[tuple[str, Place]]:
        """Yield the state that each edge enters, and the place after its events."""
        for trigger, (dest, emissions) in state.rows.items():
            after = place
            for emission in emissions:
                event = emission.event
                if event.before is not after:
                    at = f"{trigger!r} in state {state.name!r}"
                    raise self.refusal(f"{at} emits {wire_name(event)} in place {after.value!r}, not {event.before.value!r}")
                after = event.after
            yield dest.name, after


class Subject(Struct, Generic[S], eq=False):
    """An item or the response in its lifecycle."""

    state: LifecycleState[S]
    args: Fields = NO_FIELDS
    """The arguments of the current trigger."""

    def save(self) -> Self:
        """Return a copy for `restore`."""
        return replace(self)

    def restore(self, backup: Subject[S]) -> None:
        """Undo the changes of an edge whose events could not be made or written."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(backup, name))


AnySubject: TypeAlias = Subject[Any]
"""An item or the response."""


@cache
def stream_of(state: LifecycleState[S]) -> Emission[S] | None:
    """Return the emission of the delta in a state that only streams text, or None for any other state.

    In such a state, `append` stays in the state and emits only this event, and white space has no trigger of its own.
    """
    match state.rows.get("append"):
        case (dest, (emission,)) if dest is state and "pad" not in state.rows:
            return emission
        case _:
            return None
