"""Lifecycles: tables whose edges emit events, and the subjects that go through them.

A lifecycle is a `Table` (see `interlock.fsm.table`) whose effects are emissions: an emission binds one wire event to the function
that returns its fields. Beyond what every table must be, a lifecycle must bracket its events and be ready to be cut at any time
(`interlock.fsm.declaration`), or it cannot be imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Final, Generic, TypeAlias, TypeVar

from attrs import define, field, frozen

from interlock.events.spec import EventSpec, Scope
from interlock.events.sse import frame_of
from interlock.fsm.declaration import check
from interlock.fsm.table import Machine, State, Table

S = TypeVar("S")
"""What a lifecycle is about: an item, or the response."""


Given: TypeAlias = Mapping[str, object]
"""The arguments of a trigger, by the API's names: the result of a tool, an annotation, how a response ended."""

Saved: TypeAlias = tuple[object, ...]
"""What a subject had recorded before an edge fired."""


ADDRESSES: Final[Mapping[Scope, tuple[str, tuple[str, ...]]]] = {
    Scope.RESPONSE: ("", ()),
    Scope.BRACKET: (',"output_index":%d,"item":%b', ("output_index", "shown")),
    **{
        scope: ("%b" + "".join(f',"{index}":%d' for index in scope.value[2:]), ("place", "part_index")[: len(scope.value) - 1])
        for scope in (Scope.ITEM, Scope.PART, Scope.SUMMARY, Scope.COMMAND_OUTPUT)
    },
    Scope.COMMAND: (',"output_index":%d,"command_index":%d', ("output_index", "part_index")),
}
"""The fields that address an event, by its scope: their JSON with gaps, and the attributes of the subject that fill these."""


def _getter(attributes: tuple[str, ...]) -> Callable[[object], tuple[object, ...]]:
    """Return a function that gives the values of these attributes, at least one, as a tuple."""
    get = attrgetter(*attributes)
    return get if len(attributes) > 1 else lambda subject: (get(subject),)


@frozen
class Emission(Generic[S]):
    """An event that an edge emits: which one, what the subject records first, and the fields it then carries.

    Args:
        spec: The wire event.
        fields: The event's own fields in their order, each with the name of the subject's attribute that holds its JSON. `**`
            stands for fields that differ from event to event; the JSON of each of them has a comma before it.
        record: What the subject notes before (a part opens, a text is whole).
        accept: What the subject takes of the trigger's arguments before that.
    """

    spec: EventSpec
    fields: Mapping[str, str] = field(factory=dict[str, str], hash=False)
    record: Callable[[S], None] | None = None
    accept: Callable[[S, Given], None] | None = None
    frame: bytes = field(init=False, eq=False, repr=False)
    """The event's frame, with a gap for each value."""
    values: Callable[[object], tuple[object, ...]] = field(init=False, eq=False, repr=False)
    """Returns what fills the gaps, but for the number."""

    def __attrs_post_init__(self) -> None:
        """Compile what is the same of every such event."""
        address, where = ADDRESSES[self.spec.scope]
        own = "".join("%b" if name == "**" else f',"{name}":%b' for name in self.fields)
        object.__setattr__(self, "frame", frame_of(self.spec.name, address + own))
        object.__setattr__(self, "values", _getter((*where, *self.fields.values())))

    def emit(self, subject: S, given: Given, number: int) -> bytes:
        """Have the subject record what goes with the event, and return the event's frame.

        Args:
            subject: What the event is about.
            given: The arguments of the trigger.
            number: The event's place in the stream, from 0.
        """
        if self.accept is not None:
            self.accept(subject, given)
        if self.record is not None:
            self.record(subject)
        return self.frame % (*self.values(subject), number)

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

    def save(self) -> Saved:
        """Return what firing an edge may change, the state included."""
        raise NotImplementedError

    def restore(self, saved: Saved) -> None:
        """Undo what firing an edge has recorded.

        Args:
            saved: What `save` returned before.
        """
        raise NotImplementedError


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
