"""A model of a table: the same behaviour, told by what has happened so far instead of by states.

A model says in which past each trigger is possible, which effects it has then, and whether the process is over after it.
`explore` fires every edge of a table in every state and past that it can reach, and compares.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Any, Generic, Self, TypeAlias, TypeVar

from attrs import evolve, field, fields, frozen

from interlock.fsm.table import Table

T = TypeVar("T", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)
P = TypeVar("P", bound="Past")


def fact(*, on: AbstractSet[StrEnum], off: AbstractSet[StrEnum] = frozenset()) -> bool:
    """Declare a fact that some triggers and effects make true, and others false; both at once make it true."""
    value: bool = field(default=False, metadata={"on": on, "off": off})
    return value


@frozen
class Past:
    """What has happened to a process and still matters; a subclass has a field for each fact."""

    def after(self, trigger: Any, effects: Sequence[Any]) -> Iterator[Self]:  # noqa: ANN401 - of any table
        """Yield what the past can be after a trigger and its effects."""
        happened = [trigger, *effects]
        facts = [each for each in fields(type(self)) if each.metadata]
        yield evolve(
            self,
            **{
                each.name: _is_among(happened, each.metadata["on"])
                or (getattr(self, each.name) and not _is_among(happened, each.metadata["off"]))
                for each in facts
            },
        )

    def faults(self) -> Iterable[str]:
        """Return what is wrong with a process that is over."""
        return ()

    def excludes(self, _trigger: Any, /) -> bool:  # noqa: ANN401 - of any table
        """Return whether a state that has this past must have no edge for a trigger that is not possible."""
        return False


def _is_among(happened: Iterable[StrEnum], members: Iterable[StrEnum]) -> bool:
    """Return whether one of the members happened; a trigger and an effect of the same name are equal, but not identical."""
    return any(one is member for one in happened for member in members)


Conditions: TypeAlias = Mapping[T, Callable[[P], bool]]
"""For each trigger, a condition on the past."""


def at(*triggers: T) -> Mapping[T, Callable[[object], bool]]:
    """Return conditions that every past meets."""
    return dict.fromkeys(triggers, lambda _past: True)


@frozen
class Model(Generic[T, E, P]):
    """The behaviour of a process.

    Args:
        table: The table that the model is about.
        start: The past of a new process.
        possible: When each trigger can fire. The table must have an edge for it then, and no others.
        effects: When each trigger has an effect, by effect. A trigger with several has them in the order of this mapping.
        over: When the process is over after a trigger.
        owned: The triggers that only the owner of a lease fires, in a process that several others share.
    """

    table: Table[T, E]
    start: P
    possible: Conditions[T, P]
    effects: Mapping[E, Conditions[T, P]]
    over: Conditions[T, P]
    owned: AbstractSet[T] = frozenset()

    def effects_of(self, trigger: T, past: P) -> list[E]:
        """Return the effects that a trigger must have."""
        return [effect for effect, conditions in self.effects.items() if _holds(conditions, trigger, past)]

    def ends(self, trigger: T, past: P) -> bool:
        """Return whether the process is over after a trigger."""
        return _holds(self.over, trigger, past)


AnyModel: TypeAlias = Model[Any, Any, Any]


def _holds(conditions: Conditions[T, P], trigger: T, past: P) -> bool:
    return trigger in conditions and conditions[trigger](past)


@frozen
class Exploration:
    """The result of comparing a table with its model."""

    states: int
    """How many pairs of a state and a past were reached."""
    edges: int
    """How many edges the table has."""
    unfired: tuple[str, ...]
    """The edges that never fired, as `state/trigger`."""
    faults: tuple[str, ...]
    """The differences, each after its edge."""

    @property
    def holds(self) -> bool:
        """Whether the table does what the model says, and every edge fired."""
        return not self.unfired and not self.faults


def explore(model: Model[T, E, P], table: Table[T, E] | None = None) -> Exploration:
    """Fire every edge in every reachable state and past, and compare the table with the model.

    Args:
        model: The model.
        table: The table; by default, that of the model.
    """
    table = model.table if table is None else table
    start = (table.states[table.initial], model.start)
    waiting = deque([start])
    seen = {start}
    fired: set[tuple[str, T]] = set()
    faults: dict[str, None] = {}
    while waiting:
        state, past = waiting.popleft()
        possible = [trigger for trigger, condition in model.possible.items() if condition(past)]
        surplus = [trigger for trigger in state.rows if trigger not in possible and past.excludes(trigger)]
        faults.update((f"{state.name}/{trigger}: an edge that is not possible", None) for trigger in surplus)
        for trigger in possible:
            row = state.row_for(trigger, is_owner=trigger in model.owned)
            if row is None:
                faults[f"{state.name}: no edge for {trigger}"] = None
                continue
            dest, effects = row
            edge = f"{state.name}/{trigger}"
            fired.add((state.name, trigger))
            if trigger in model.owned and state.row_for(trigger, is_owner=False) is not None:
                faults[f"{edge}: fires for a process that is not the owner"] = None
            expected = model.effects_of(trigger, past)
            if [*effects] != expected:
                faults[f"{edge}: {_list(effects)} instead of {_list(expected)}"] = None
            ends = model.ends(trigger, past)
            if ends is bool(dest.rows):
                faults[f"{edge}: the process goes on instead of ending" if ends else f"{edge}: the process ends too soon"] = None
            for place in ((dest, after) for after in past.after(trigger, expected)):
                if place not in seen:
                    seen.add(place)
                    faults.update((f"{edge}: {fault}", None) for fault in (place[1].faults() if ends else ()))
                    waiting.extend([place] if dest.rows and not ends else [])
    unfired = [f"{edge.source}/{edge.trigger}" for edge in table.edges if (edge.source, edge.trigger) not in fired]
    return Exploration(len(seen), len(table.edges), tuple(unfired), tuple(faults))


def _list(effects: Collection[StrEnum]) -> str:
    return f"[{', '.join(effects)}]"
