"""State machines as data: a table of edges, checked and compiled on construction, and a machine that follows it.

A table lists every transition. Each row is an `Edge`: in this state, on this trigger, go to that state and return these
effects.

    >>> from enum import StrEnum
    >>> class Visitor(StrEnum):
    ...     PAY = "pay"
    ...     PUSH = "push"
    >>> turnstile = Table(
    ...     "turnstile",
    ...     initial="locked",
    ...     edges=[
    ...         #    in          on            goes to     effects
    ...         Edge("locked",   Visitor.PAY,  "unlocked", ["unlock"]),
    ...         Edge("unlocked", Visitor.PUSH, "locked",   ["count", "lock"]),
    ...     ],
    ... )
    >>> machine = Machine.at_start(turnstile)
    >>> machine.fire(Visitor.PAY), machine.state
    (('unlock',), <State unlocked: push>)

- A *state* has a name, a plain string.
- A *trigger* fires an edge: it is a string or a member of an enum (a `StrEnum` for a table that is drawn).
- An *effect* is any object: a member of an enum that the caller matches on, a function, an event. The machine returns the
  effects of an edge in order and never looks into them; the caller carries them out.

There are no guards. The caller evaluates a condition and fires one of two triggers, so both cases are in the table.

A *region* names two or more states that share edges; a state may be in several. An edge in a region stands for one edge in each
of its states; an edge from a region to itself stays in the current state. The compiled table has only states.

    >>> printer = Table(
    ...     "printer",
    ...     initial="waiting",
    ...     final={"off"},
    ...     regions={"on": ["waiting", "printing"]},
    ...     edges=[
    ...         Edge("waiting",  "print",  "printing"),
    ...         Edge("printing", "finish", "waiting"),
    ...         Edge("on",       "beep",   "on", ["beep"]),
    ...         Edge("on",       "stop",   "off"),
    ...     ],
    ... )
    >>> list(printer.states.values())
    [<State waiting: print, beep, stop>, <State printing: finish, beep, stop>, <State off: final>]

An invalid table cannot be constructed. `Table` raises `DeclarationError`, with a message that names the state, for a state that
cannot be reached or left or that leads to no final state, for two edges on one trigger, and for a state whose triggers differ
from the list in `total`. It also rejects invalid regions.

Construction compiles the table: each `State` holds a dict from trigger to the next `State` and the effects, so firing an edge
is one dict lookup.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property, partial
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from attrs import define, evolve, field, frozen

if TYPE_CHECKING:
    import transitions

T = TypeVar("T")
"""The type of the triggers."""

E = TypeVar("E")
"""The type of the effects."""

N = TypeVar("N", bound=Hashable)
T2 = TypeVar("T2")
E2 = TypeVar("E2")


class InterlockError(Exception):
    """Base class of Interlock's own exceptions."""


class DeclarationError(InterlockError):
    """A table is invalid. Raised on construction, usually at import."""


class IllegalTransition(InterlockError):  # noqa: N818 - the usual name in the literature
    """The caller fired a trigger in a state without an edge for it; `legal` has those with one. The machine is unchanged."""

    def __init__(self, table: str, state: str, trigger: str, legal: tuple[str, ...]) -> None:
        super().__init__(f"{table}: {trigger!r} is illegal in state {state!r}; legal: {', '.join(legal) or 'nothing'}")
        self.table = table
        self.state = state
        self.trigger = trigger
        self.legal = legal


@frozen
class Edge(Generic[T, E]):
    """One transition.

    Args:
        source: The name of the state or region that the edge leaves.
        trigger: The trigger that fires the edge.
        dest: The name of the state that the edge enters; `source` for an edge that stays.
        effects: The effects, in order.
    """

    source: str
    trigger: T
    dest: str
    effects: Sequence[E] = ()


@define(eq=False, repr=False, slots=False)  # slots and `cached_property` need a `__getattr__`, which slows every lookup
class State(Generic[T, E]):
    """A compiled state, compared by identity.

    Attributes:
        rows: The next state and the effects, by legal trigger.
    """

    table: str
    """The name of the table."""
    name: str
    owned: AbstractSet[T] = frozenset()
    """The triggers that only an owner fires; see `Table`."""
    rows: dict[T, tuple[State[T, E], tuple[E, ...]]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.rows = {}

    @cached_property
    def paths(self) -> dict[T, tuple[T, ...]]:
        """For each trigger that can still become legal, the shortest sequence of triggers that ends with it."""
        return _paths(self)

    def row(self, trigger: T) -> tuple[State[T, E], tuple[E, ...]]:
        """Return the next state and the effects of a trigger.

        Raises:
            IllegalTransition: The state has no edge for the trigger.
        """
        try:
            return self.rows[trigger]
        except KeyError:
            raise IllegalTransition(self.table, self.name, str(trigger), tuple(map(str, self.rows))) from None

    def row_for(self, trigger: T, *, is_owner: bool) -> tuple[State[T, E], tuple[E, ...]] | None:
        """Return the next state and the effects of a trigger; None if the state has no edge for it, or only for an owner."""
        return None if trigger in self.owned and not is_owner else self.rows.get(trigger)

    def __repr__(self) -> str:
        return f"<State {self.name}: {_list(self.rows) or 'final'}>"


@frozen(eq=False)
class Table(Generic[T, E]):
    """A declared state machine.

    Args:
        name: The name in errors and diagrams.
        initial: The name of the state in which a machine starts.
        edges: All edges, in reading order.
        final: The names of the states without edges; empty for a machine that never ends.
        total: The exact triggers of every non-final state, or a mapping from the name of each such state to its triggers. The
            default, no triggers, means no check.
        regions: The states of each region, by name.
        owned: The triggers that only the owner of a lease fires, for a table of what several processes share. A trigger of
            anybody else fires nothing; see `State.row_for`.

    Attributes:
        edges: All edges; those of a region are repeated for each of its states.
        states: The compiled states by name, in the order of the declaration.

    Raises:
        DeclarationError: The table is invalid; the message names the table and the states or the region at fault.
    """

    name: str
    initial: str
    edges: Sequence[Edge[T, E]]
    final: AbstractSet[str] = frozenset()
    total: Iterable[T] | Mapping[str, Iterable[T]] = ()
    regions: Mapping[str, Sequence[str]] = field(factory=dict[str, Sequence[str]])
    owned: AbstractSet[T] = frozenset()
    states: Mapping[str, State[T, E]] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(self._expand()))
        self._check_regions()
        if unknown := [trigger for trigger in self.owned if trigger not in self.triggers]:
            raise self.refusal(f"owned lists {_list(unknown)}, which no edge has")
        object.__setattr__(self, "states", self._compile())
        self._check_ends()
        self._check_total()

    @property
    def triggers(self) -> tuple[T, ...]:
        """All triggers, in the order of the declaration."""
        return tuple(dict.fromkeys(edge.trigger for edge in self.edges))

    def refusal(self, message: str) -> DeclarationError:
        """Return the error to raise for this table."""
        return DeclarationError(f"table {self.name!r}: {message}")

    def _expand(self) -> Iterator[Edge[T, E]]:
        """Yield the edges; an edge of a region becomes one edge for each of its states."""
        for edge in self.edges:
            if edge.source in self.regions:
                for state in self.regions[edge.source]:
                    yield evolve(edge, source=state, dest=state if edge.dest == edge.source else edge.dest)
            else:
                yield edge

    def _check_regions(self) -> None:
        states = {self.initial, *(edge.dest for edge in self.edges)}
        for region, members in self.regions.items():
            if region in states:
                raise self.refusal(f"region {region!r} has the name of a state")
            if len(members) < 2:  # noqa: PLR2004 - an edge of a single state needs no region
                raise self.refusal(f"region {region!r} needs two states or more")
            for name in members:
                if name not in states:
                    raise self.refusal(f"region {region!r} lists {name!r}, which is not a state")

    def _compile(self) -> dict[str, State[T, E]]:
        names = dict.fromkeys(name for edge in self.edges for name in (edge.source, edge.dest))
        states = {name: State[T, E](self.name, name, self.owned) for name in names}
        for edge in self.edges:
            rows = states[edge.source].rows
            if edge.trigger in rows:
                raise self.refusal(f"state {edge.source!r} has two edges for {str(edge.trigger)!r}")
            rows[edge.trigger] = (states[edge.dest], tuple(edge.effects))
        return states

    def conditions(self, start: N, follow: Callable[[State[T, E], N], Iterable[tuple[str, N]]]) -> Mapping[str, Sequence[N]]:
        """Return the conditions that can hold in each state, such as the item that is open there.

        Args:
            start: The condition in the initial state.
            follow: Yields, for a state and a condition there, the state that each edge enters and the condition after it. It
                raises for an edge whose effects contradict the condition.
        """
        conditions: dict[str, list[N]] = {}
        for name, condition in reachable([(self.initial, start)], lambda at: follow(self.states[at[0]], at[1])):
            conditions.setdefault(name, []).append(condition)
        return conditions

    def _check_ends(self) -> None:
        follow = {name: {dest.name for dest, _ in state.rows.values()} for name, state in self.states.items()}
        precede = {name: {source for source, dests in follow.items() if name in dests} for name in follow}
        reached = reachable([self.initial], lambda name: follow.get(name, ()))
        ending = reachable(self.final, lambda name: precede.get(name, ()))
        for name in (self.initial, *sorted(self.final), *follow):
            if name not in follow or name not in reached:
                raise self.refusal(f"state {name!r} cannot be reached")
            if name in self.final and follow[name]:
                raise self.refusal(f"state {name!r} is final but has edges")
            if name not in self.final and not follow[name]:
                raise self.refusal(f"state {name!r} is not final but has no edge")
            if self.final and name not in ending:
                raise self.refusal(f"state {name!r} has no way to a final state")

    def _check_total(self) -> None:
        required = self._required()
        for name, triggers in required.items():
            rows = self.states[name].rows
            if missing := [trigger for trigger in triggers if trigger not in rows]:
                raise self.refusal(f"state {name!r} has no edge for {_list(missing)}")
            if surplus := [trigger for trigger in rows if trigger not in triggers]:
                raise self.refusal(f"state {name!r} has an edge for {_list(surplus)}, which total does not list")

    def _required(self) -> Mapping[str, Sequence[T]]:
        """Return the triggers that each state must have, by state name."""
        lasting = [name for name, state in self.states.items() if state.rows]
        total = self.total
        if not isinstance(total, Mapping):
            triggers = tuple(total)
            return dict.fromkeys(lasting, triggers) if triggers else {}
        required = {name: tuple(triggers) for name, triggers in cast("Mapping[str, Iterable[T]]", total).items()}
        if required.keys() != {*lasting}:
            names, listed = _list(lasting), _list(sorted(required))
            raise self.refusal(f"total must list exactly the non-final states {names}; it lists {listed}")
        return required


@define(eq=False)
class Machine(Generic[T, E]):
    """A run of a table; it holds only the current state."""

    state: State[T, E]

    @staticmethod
    def at_start(table: Table[T2, E2]) -> Machine[T2, E2]:
        """Return a machine in the initial state of a table."""
        return Machine(table.states[table.initial])

    def fire(self, trigger: T) -> tuple[E, ...]:
        """Fire an edge: enter the next state, and return the effects in order for the caller to carry out.

        Raises:
            IllegalTransition: The state has no edge for the trigger. The machine is unchanged.
        """
        self.state, effects = self.state.row(trigger)
        return effects


def _list(names: Iterable[object]) -> str:
    return ", ".join(map(str, names))


def reachable(starts: Iterable[N], following: Callable[[N], Iterable[N]]) -> Collection[N]:
    """Return everything that is reached from some starts, in the order of its discovery."""
    reached = dict.fromkeys(starts)
    waiting = deque(reached)
    while waiting:
        new = [each for each in dict.fromkeys(following(waiting.popleft())) if each not in reached]
        reached.update(dict.fromkeys(new))
        waiting += new
    return reached.keys()


def _paths(start: State[T, E]) -> dict[T, tuple[T, ...]]:
    """Return the shortest path from a state to each trigger; among paths of equal length, the one declared first."""
    paths: dict[T, tuple[T, ...]] = {}
    seen = {start}
    waiting: deque[tuple[State[T, E], tuple[T, ...]]] = deque([(start, ())])
    while waiting:
        state, path = waiting.popleft()
        for trigger, (dest, _) in state.rows.items():
            paths.setdefault(trigger, (*path, trigger))
            if dest not in seen:
                seen.add(dest)
                waiting.append((dest, (*path, trigger)))
    return paths


def as_transitions(table: Table[T, E], carry_out: Callable[[E], object], model: object = None) -> transitions.Machine:
    """Return a table as a machine of the package `transitions`, for programs that already use that package.

    Args:
        table: A table, or a lifecycle.
        carry_out: Called with each effect of a transition, in order, after the new state is entered.
        model: The object that gets a `state` and a method for each trigger; by default the machine itself.

    Raises:
        ModuleNotFoundError: The package `transitions` is not installed (the extra `transitions`).
    """
    import transitions  # noqa: PLC0415

    return transitions.Machine(
        transitions.Machine.self_literal if model is None else model,
        states=[{"name": state.name, "final": not state.rows} for state in table.states.values()],
        initial=table.initial,
        transitions=[
            {
                "trigger": str(edge.trigger),
                "source": edge.source,
                "dest": edge.dest,
                "after": [partial(carry_out, effect) for effect in edge.effects],
            }
            for edge in table.edges
        ],
        auto_transitions=False,
        name=table.name,
    )
