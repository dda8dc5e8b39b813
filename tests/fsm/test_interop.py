"""A table as a machine of `transitions`: the same states, triggers and effects."""

import pytest
from each import each
from transitions import MachineError

from interlock.fsm import as_transitions
from interlock.fsm.lifecycles import LIFECYCLES
from interlock.fsm.table import Edge, Table
from interlock.serving.http.lane_table import LANE, LaneEffect

TURNSTILE = Table(
    "turnstile",
    initial="locked",
    final={"broken"},
    edges=[
        Edge("locked", "pay", "unlocked", ["unlock"]),
        Edge("unlocked", "push", "locked", ["count", "lock"]),
        Edge("locked", "kick", "broken"),
    ],
)


class Visitor:
    """An empty model."""


def test_a_trigger_enters_the_next_state_and_carries_out_the_effects_in_order() -> None:
    effects: list[str] = []
    visitor = Visitor()
    as_transitions(TURNSTILE, effects.append, visitor)
    assert visitor.state == "locked"
    assert (visitor.pay(), visitor.state, effects) == (True, "unlocked", ["unlock"])
    assert (visitor.push(), visitor.state, effects) == (True, "locked", ["unlock", "count", "lock"])


def test_without_a_model_the_machine_is_its_own_model() -> None:
    machine = as_transitions(TURNSTILE, print)
    assert (machine.kick(), machine.state, machine.get_state("broken").final) == (True, "broken", True)


def test_a_trigger_without_an_edge_is_refused_and_changes_nothing() -> None:
    effects: list[str] = []
    machine = as_transitions(TURNSTILE, effects.append)
    with pytest.raises(MachineError, match="push"):
        machine.push()
    assert (machine.state, effects) == ("locked", [])


@each("table", [*LIFECYCLES.values(), LANE], ids=lambda table: table.name)
def test_every_table_has_the_same_states_and_edges_as_its_machine(table) -> None:
    machine = as_transitions(table, print, Visitor())
    edges = {
        (source, name, transition.dest, tuple(each.args[0] for each in transition.after))
        for name, event in machine.events.items()
        for source, transitions in event.transitions.items()
        for transition in transitions
    }
    assert edges == {(edge.source, str(edge.trigger), edge.dest, tuple(edge.effects)) for edge in table.edges}
    assert [*machine.states] == [*table.states]
    assert {name for name, state in machine.states.items() if state.final} == {*table.final}


def test_the_effects_of_a_process_are_carried_out_too() -> None:
    effects: list[LaneEffect] = []
    lane = Visitor()
    as_transitions(LANE, effects.append, lane)
    assert (lane.ask(), lane.ask(), lane.end()) == (True, True, True)
    assert effects == [LaneEffect.BEGIN, LaneEffect.QUEUE, LaneEffect.ADVANCE]
