"""Lifecycles run as they are declared: the compiled rows and the edges say the same."""

import pytest
from each import each

from interlock.events.stream import Completed, Created, Queued
from interlock.fsm.errors import IllegalTransition
from interlock.fsm.lifecycle import Emission, Lifecycle, Subject, emission, stream_of
from interlock.fsm.lifecycles import DECLARED, LIFECYCLES, RESPONSE
from interlock.fsm.table import Edge

EVERY = {"response": RESPONSE, **LIFECYCLES}


@emission
def created(door) -> Created:
    door.times += 1
    return Created(door.times)


DOOR = Lifecycle(
    name="door",
    initial="shut",
    final={"gone"},
    edges=[
        Edge("shut", "open", "ajar", [created]),
        Edge("ajar", "append", "ajar", [Emission(lambda door: Queued(door.times), Queued)]),
        Edge("ajar", "cut", "gone", [Emission(lambda door: Completed(door.times), Completed)]),
    ],
)


class Door(Subject["Door"]):
    times: int = 0


@each("name", EVERY)
def test_the_table_has_a_row_for_each_edge_and_no_other(name):
    lifecycle = EVERY[name]
    rows = {
        (state.name, trigger, dest.name, emissions)
        for state in lifecycle.states.values()
        for trigger, (dest, emissions) in state.rows.items()
    }
    assert rows == {(edge.source, edge.trigger, edge.dest, tuple(edge.effects)) for edge in lifecycle.edges}


@each("name", EVERY)
def test_final_states_and_no_others_have_no_rows(name):
    lifecycle = EVERY[name]
    assert {state.name for state in lifecycle.states.values() if not state.rows} == lifecycle.final


@each("name", EVERY)
def test_every_illegal_trigger_is_refused(name):
    lifecycle = EVERY[name]
    for state in lifecycle.states.values():
        for trigger in {*lifecycle.triggers, "unheard_of"} - state.rows.keys():
            with pytest.raises(IllegalTransition) as caught:
                state.row(trigger)
            assert (caught.value.table, caught.value.state, caught.value.trigger) == (name, state.name, trigger)
            assert caught.value.legal == tuple(state.rows)


def test_an_illegal_transition_lists_the_legal_triggers():
    with pytest.raises(IllegalTransition, match=r"^door: 'shut' is illegal in state 'ajar'; legal: append, cut$"):
        DOOR.states["ajar"].row("shut")
    with pytest.raises(IllegalTransition, match=r"^door: 'cut' is illegal in state 'gone'; legal: nothing$"):
        DOOR.states["gone"].row("cut")


def test_an_emission_has_the_subject_record_and_returns_the_event():
    door = Door(DOOR.states["shut"])
    door.state, (opening,) = door.state.row("open")
    assert door.state is DOOR.states["ajar"]
    assert opening.make(door) == Created(1)
    assert door.times == 1
    assert (opening.event, opening.name, str(opening)) == (Created, "response.created", "response.created")


def test_restore_undoes_an_edge():
    door = Door(DOOR.states["shut"])
    saved = door.save()
    door.state, (opening,) = door.state.row("open")
    opening.make(door)
    door.restore(saved)
    assert (door.state, door.times) == (DOOR.states["shut"], 0)


def test_text_streams_only_where_one_delta_comes_and_nothing_else_could():
    streams = {
        (name, state.name): emission.name
        for name, each in EVERY.items()
        for state in each.states.values()
        if (emission := stream_of(state)) is not None
    }
    assert streams == {
        ("reasoning", "reasoning_text"): "response.reasoning_text.delta",
        ("message", "output_text"): "response.output_text.delta",
        ("function_call", "in_progress"): "response.function_call_arguments.delta",
        ("custom_tool_call", "in_progress"): "response.custom_tool_call_input.delta",
        ("mcp_call", "in_progress"): "response.mcp_call_arguments.delta",
        ("code_interpreter_call", "in_progress"): "response.code_interpreter_call_code.delta",
        ("apply_patch_call", "diff"): "response.apply_patch_call_operation_diff.delta",
        ("shell_call", "command"): "response.shell_call_command.delta",
    }


def test_declared_has_every_lifecycle():
    assert (DECLARED.response, DECLARED.items) == (RESPONSE, LIFECYCLES)
    assert [lifecycle.name for lifecycle in LIFECYCLES.values()] == [*LIFECYCLES]
