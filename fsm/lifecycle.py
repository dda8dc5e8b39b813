"""Lifecycles: state machines declared as data, checked when they are declared, compiled from their own machine.

A lifecycle is a list of edges. An edge says: in this state, on this trigger, go to that state and emit these events. From
the edges a `transitions.Machine` is built, on whose transitions the emissions hang as `after` callbacks; that machine is
the declaration in running form. What the driver runs is a table compiled from the machine's own events and transitions:
`State.rows`, one row for each trigger. There is no second declaration, and a test walks both in lockstep.

Why a table and not the machine: a trigger of `transitions` costs microseconds, a row a tenth of one, and a token pays it.

What is refused at import (`DeclarationError`): a state that cannot be reached or left, a state from which a stream could
not be cut, an edge whose events would stand outside of their bracket (rules R7 and R8), two edges for one trigger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Generic, Protocol, TypeVar, cast

from attrs import define, field, frozen
from transitions import EventData, Machine

from interlock.events.spec import EventSpec, Scope
from interlock.fsm.declaration import check
from interlock.fsm.errors import IllegalTransition

S = TypeVar("S")
"""What a lifecycle is about: an item, or the response."""


def _nothing(_subject: object) -> None:
    """Record nothing."""


class Reference(Protocol):
    """A model that a lifecycle's own machine can move, to compare the table with."""

    def emit(self, name: str) -> None:
        """Note the wire name of an event that an edge emitted."""
        ...


@frozen
class Emission(Generic[S]):
    """An event that an edge emits: which one, what the subject records first, and the fields it then carries.

    Args:
        spec: The wire event.
        values: A pure function of the subject that gives the event's own fields.
        record: What the subject notes before `values` is asked (a part opens, a text is whole).
    """

    spec: EventSpec
    values: Callable[[S], Mapping[str, object]]
    record: Callable[[S], None] = _nothing

    @property
    def name(self) -> str:
        """The wire name, which labels the edge in a diagram."""
        return self.spec.name

    def __call__(self, event: EventData) -> None:
        """Emit into the model of a running `transitions.Machine`; this is the reference, not the hot path."""
        cast("Reference", event.model).emit(self.name)


@frozen
class Edge(Generic[S]):
    """One transition.

    Args:
        source: The state it leaves.
        trigger: What makes it fire.
        dest: The state it enters.
        emits: The events it emits, in order.
    """

    source: str
    trigger: str
    dest: str
    emits: Sequence[Emission[S]] = ()


@define(eq=False, repr=False)
class State(Generic[S]):
    """A compiled state: its rows say all that can happen in it.

    Args:
        lifecycle: The name of its lifecycle.
        name: As declared.
        rows: For each legal trigger, the state that follows and the events it emits.
        stream: The delta event of a state in which text only streams: `append` stays here, emits this one event, and white
            space is no trigger of its own. None in any other state.
    """

    lifecycle: str
    name: str
    rows: dict[str, tuple[State[S], tuple[Emission[S], ...]]] = field(init=False)
    stream: Emission[S] | None = None

    def __attrs_post_init__(self) -> None:
        """Start without rows; they are compiled once all states are known."""
        self.rows = {}

    def __repr__(self) -> str:
        """Give the name and the triggers."""
        return f"<State {self.name}: {', '.join(self.rows) or 'final'}>"


@define(eq=False)
class Subject(Generic[S]):
    """What has a lifecycle: an item, or the response.

    Args:
        state: Where its lifecycle stands.
    """

    state: State[S]

    def address(self, scope: Scope) -> Mapping[str, object]:
        """Give the fields that address an event about it.

        Args:
            scope: The event's.
        """
        raise NotImplementedError

    def take(self, trigger: str) -> Iterator[tuple[EventSpec, dict[str, object]]]:
        """Take an edge: enter its state, and say what it emits.

        Args:
            trigger: What makes it fire.

        Yields:
            Each event's specification and fields, in order.

        Raises:
            IllegalTransition: The state has no such edge. Nothing has changed.
        """
        row = self.state.rows.get(trigger)
        if row is None:
            raise IllegalTransition(self.state.lifecycle, self.state.name, trigger, tuple(self.state.rows))
        self.state, emissions = row
        subject = cast("S", self)  # S is the class that derives from this one
        for emission in emissions:
            emission.record(subject)
            yield emission.spec, {**self.address(emission.spec.scope), **emission.values(subject)}


@frozen(eq=False)
class Lifecycle(Generic[S]):
    """A declared machine.

    Args:
        item: Its name: the kind of item, or `response`.
        initial: The state before anything is emitted.
        final: The states in which nothing more can happen.
        edges: The whole of it.

    Raises:
        DeclarationError: The declaration is wrong; the message names the state or edge.
    """

    item: str
    initial: str
    final: AbstractSet[str]
    edges: Sequence[Edge[S]]
    machine: Machine = field(init=False, repr=False)
    states: Mapping[str, State[S]] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Check the edges, build the machine, compile it."""
        check(self)
        object.__setattr__(self, "machine", _machine(self))
        object.__setattr__(self, "states", _compile(self))

    @property
    def triggers(self) -> tuple[str, ...]:
        """Every trigger, in the order of the declaration."""
        return tuple(dict.fromkeys(edge.trigger for edge in self.edges))


def state_names(lifecycle: Lifecycle[S]) -> tuple[str, ...]:
    """Give the names of a lifecycle's states, in the order of the declaration."""
    return tuple(dict.fromkeys(name for edge in lifecycle.edges for name in (edge.source, edge.dest)))


def _machine(lifecycle: Lifecycle[S]) -> Machine:
    return Machine(
        model=None,
        states=[{"name": name, "final": name in lifecycle.final} for name in state_names(lifecycle)],
        initial=lifecycle.initial,
        transitions=[
            {"trigger": edge.trigger, "source": edge.source, "dest": edge.dest, "after": list(edge.emits)}
            for edge in lifecycle.edges
        ],
        auto_transitions=False,
        send_event=True,
    )


def _compile(lifecycle: Lifecycle[S]) -> dict[str, State[S]]:
    machine = lifecycle.machine
    states: dict[str, State[S]] = {name: State(lifecycle.item, name) for name in machine.states}
    for event in machine.events.values():
        for source, (transition,) in event.transitions.items():
            emissions = cast("list[Emission[S]]", transition.after)
            states[source].rows[event.name] = (states[str(transition.dest)], tuple(emissions))
    for state in states.values():
        match state.rows.get("append"):
            case (dest, (emission,)) if dest is state and "pad" not in state.rows:
                state.stream = emission
            case _:
                pass
    return states
