"""Returns a table as a machine of the package `transitions`, for programs that already use that package."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from interlock.fsm.table import E, T, Table

if TYPE_CHECKING:
    from transitions import Machine


def as_transitions(table: Table[T, E], carry_out: Callable[[E], object], model: object = None) -> Machine:
    """Return a `transitions.Machine` with the states, triggers and effects of a table.

    Args:
        table: A table, or a lifecycle.
        carry_out: Called with each effect of a transition, in order, after the new state is entered.
        model: The object that gets a `state` and a method for each trigger; by default the machine itself.

    Raises:
        ModuleNotFoundError: The package `transitions` is not installed (the extra `transitions`).
    """
    from transitions import Machine  # noqa: PLC0415

    return Machine(
        Machine.self_literal if model is None else model,
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
