"""Lifecycles: tables whose edges emit events, and the subjects that go through them.

A lifecycle is a `Table` (see `interlock.fsm.table`) whose effects are emissions: an emission binds one wire event to the function
that returns its fields. Beyond what every table must be, a lifecycle must bracket its events and be ready to be cut at any time
(`interlock.fsm.declaration`), or it cannot be imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Generic, TypeAlias, TypeVar, cast

from attrs import define, frozen

from interlock.events.spec import EventSpec, Scope
from interlock.fsm.declaration import check
from interlock.fsm.table import Machine, State, Table

S = TypeVar("S")
"""What a lifecycle is about: an item, or the response."""


Given: TypeAlias = Mapping[str, object]
"""The arguments of a trigger, by the API's names: the result of a tool, an annotation, how a response ended."""

Undo: TypeAlias = Callable[[], None]
"""Takes back what firing an edge has recorded."""


def _nothing(_subject: object) -> None:
    """Record nothing."""


def _take_nothing(_subject: object, _given: Given) -> None:
    """Leave the trigger's arguments alone."""


@frozen
class Emission(Generic[S]):
    """An event that an edge emits: which one, what the subject records first, and the fields it then carries.

    Args:
        spec: The wire event.
        values: A pure function of the subject that returns the event's own fields.
        record: What the subject notes before `values` is asked (a part opens, a text is whole).
        accept: What the subject takes of the trigger's arguments before that.
    """

    spec: EventSpec
    values: Callable[[S], Mapping[str, object]]
    record: Callable[[S], None] = _nothing
    accept: Callable[[S, Given], None] = _take_nothing

    @property
    def name(self) -> str:
        """The wire name."""
        return self.spec.name

    def __str__(self) -> str:
        """Return the wire name, which labels the edge in a diagram."""
        return self.spec.name


NO_FIELDS: Final[Given] = MappingProxyType({})
"""The arguments of a trigger that has none."""

LifecycleState: TypeAlias = State[str, Emission[S]]
"""A compiled state of a lifecycle."""


class Lifecycle(Table[str, Emission[S]]):
    """A declared lifecycle.

    Args:
        name: The kind of item, or `response`.
        initial: The state before anything is emitted.
        edges: The whole of it.
        final: The states in which nothing more can happen.

    Raises:
        DeclarationError: The declaration is wrong; the message names the state or edge.
    """

    def __attrs_post_init__(self) -> None:
        """Compile the edges and check them, as a table and as a lifecycle."""
        super().__attrs_post_init__()
        check(self)


@define(eq=False)
class Subject(Machine[str, Emission[S]]):
    """What goes through a lifecycle: an item, or the response.

    Args:
        state: Where it stands.
    """

    def save(self) -> Undo:
        """Return a function that undoes what firing an edge has recorded since."""
        raise NotImplementedError

    def address(self, scope: Scope) -> Mapping[str, object]:
        """Return the fields that address an event about it.

        Args:
            scope: The event's.
        """
        raise NotImplementedError

    def take(self, trigger: str, given: Given = NO_FIELDS) -> Iterator[tuple[EventSpec, dict[str, object]]]:
        """Fire an edge: enter the state that it leads to, and yield the events that it emits.

        Args:
            trigger: What makes it fire.
            given: The arguments of the trigger, for the emissions that accept them.

        Yields:
            Each event's specification and fields, in order.

        Raises:
            IllegalTransition: The state has no such edge. Nothing has changed.
        """
        emissions = self.fire(trigger)
        subject = cast("S", self)  # S is the class that derives from this one
        for emission in emissions:
            emission.accept(subject, given)
            emission.record(subject)
            yield emission.spec, {**self.address(emission.spec.scope), **emission.values(subject)}


def stream_of(state: LifecycleState[S]) -> Emission[S] | None:
    """Return the delta event of a state in which text only streams, or None for any other state.

    Text only streams where `append` stays in the state, emits this one event, and white space is no trigger of its own.

    Args:
        state: Any state of a lifecycle.
    """
    match state.rows.get("append"):
        case (dest, (emission,)) if dest is state and "pad" not in state.rows:
            return emission
        case _:
            return None
