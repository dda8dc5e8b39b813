"""Lifecycles: tables whose edges emit events, and the subjects that go through them.

A lifecycle is a `Table` (see `interlock.fsm.table`) whose effects are emissions: functions of the subject that return one event.
Beyond what every table must be, a lifecycle must bracket its events and be ready to be cut at any time
(`interlock.fsm.declaration`), or it cannot be imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, Generic, TypeAlias, TypeVar, get_type_hints

import attrs
from attrs import define, field, frozen

from interlock.events.stream import StreamEvent, wire_name
from interlock.fsm.declaration import check
from interlock.fsm.table import Machine, State, Table

S = TypeVar("S")
"""What a lifecycle is about: an item, or the response."""

Fields: TypeAlias = Mapping[str, object]
"""The arguments of a trigger, by the API's names: the result of a tool, an annotation, how a response ended."""

Saved: TypeAlias = tuple[object, ...]
"""What a subject had recorded before an edge fired."""

NO_FIELDS: Final[Fields] = MappingProxyType({})
"""The arguments of a trigger that has none."""


@frozen
class Emission(Generic[S]):
    """What an edge emits: one event, made by a function of the subject.

    Args:
        make: Records in the subject what goes with the event (a part opens, a text is whole), and returns the event.
        event: The event's type.
        name: Its wire name, which labels the edge in a diagram.
    """

    make: Callable[[S], StreamEvent]
    event: type[StreamEvent]
    name: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Look up the wire name."""
        object.__setattr__(self, "name", wire_name(self.event))

    def __str__(self) -> str:
        """Return the wire name."""
        return self.name


def emission(make: Callable[[S], StreamEvent]) -> Emission[S]:
    """Make an emission of a function that is annotated with the type of the event that it returns."""
    return Emission(make, get_type_hints(make)["return"])


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
        args: The arguments of the trigger that fires.
    """

    args: Fields = field(default=NO_FIELDS, kw_only=True, repr=False)

    def save(self) -> Saved:
        """Return everything that firing an edge may change."""
        subject: Any = self.__class__
        return _values_of(subject)(self)

    def restore(self, saved: Saved) -> None:
        """Undo what firing an edge has recorded.

        Args:
            saved: What `save` returned before.
        """
        subject: Any = self.__class__
        for name, value in zip(_names_of(subject), saved, strict=True):
            setattr(self, name, value)


@cache
def _names_of(subject: Any) -> tuple[str, ...]:  # noqa: ANN401 - a class of subjects
    return tuple(attribute.name for attribute in attrs.fields(subject))


@cache
def _values_of(subject: Any) -> Callable[[object], Saved]:  # noqa: ANN401 - likewise
    return attrgetter(*_names_of(subject))


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
