"""Each process of the server does what its model says, and a changed table does not."""

import pytest
from attrs import evolve
from table_mutations import changes

from interlock.fsm import deltas
from interlock.fsm.errors import DeclarationError
from interlock.fsm.table import Edge
from interlock.serving.responses.turns_table import TurnEffect, TurnTrigger
from interlock.serving.store.stored_table import StoredTrigger
from interlock.serving.tools.container_table import ContainerEffect, ContainerTrigger
from interlock.verify.model import explore
from interlock.verify.process_models import MODELS

ALIKE = [
    {"queued", "running"},  # of a stored response: only the names of their states differ
    {"pending", "answered"},  # of an async call
    {"ended", "left"},  # of the owner of a background response
    {"refused", "settled"},  # of a run
]
"""States with the same edges, so that no event tells one from the other."""

CONTAINER, STORED, TURNS = (MODELS[name] for name in ("container", "stored", "turns"))


def change_row(table, source, trigger, **change):
    edges = [evolve(edge, **change) if (edge.source, edge.trigger) == (source, trigger) else edge for edge in table.edges]
    return evolve(table, edges=edges)


def drop_row(table, source, trigger):
    return evolve(table, edges=[edge for edge in table.edges if (edge.source, edge.trigger) != (source, trigger)])


@pytest.mark.parametrize("name", MODELS)
def test_each_table_does_what_its_model_says(name):
    model = MODELS[name]
    result = explore(model)
    assert (result.holds, result.edges, result.unfired, result.faults) == (True, len(model.table.edges), (), ())
    assert result.states >= len(model.table.states)
    assert {*model.possible} == {*type(model.table.triggers[0])}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long if name == "turns" else ()) for name in MODELS])
def test_every_mutation_of_a_process_is_refused_or_found(name):
    model, table = MODELS[name], MODELS[name].table
    survivors = set()
    for place, edge in enumerate(table.edges):
        for change, edges in changes(table, edge):
            if {edge.dest, change.removeprefix("go to ")} in ALIKE:
                continue
            try:
                mutated = evolve(table, edges=[*table.edges[:place], *edges, *table.edges[place + 1 :]], regions={}, total=())
            except DeclarationError:
                continue
            if explore(model, mutated).holds:
                survivors.add(f"{edge.source}/{edge.trigger}: {change}")
    assert survivors == set()


def test_an_effect_that_is_missing_or_out_of_order_is_found():
    less = change_row(CONTAINER.table, "new", ContainerTrigger.RUN, effects=[ContainerEffect.START])
    assert explore(CONTAINER, less).faults == ("new/run: [start] instead of [start, feed]",)
    swapped = change_row(CONTAINER.table, "new", ContainerTrigger.RUN, effects=[ContainerEffect.FEED, ContainerEffect.START])
    assert explore(CONTAINER, swapped).faults == ("new/run: [feed, start] instead of [start, feed]",)


def test_a_missing_edge_is_found():
    assert explore(CONTAINER, drop_row(CONTAINER.table, "idle", ContainerTrigger.RUN)).faults == ("idle: no edge for run",)


def test_an_edge_that_is_never_possible_is_named():
    table = evolve(CONTAINER.table, edges=[*CONTAINER.table.edges, Edge("new", ContainerTrigger.END, "new")])
    result = explore(CONTAINER, table)
    assert (result.holds, result.unfired, result.faults) == (False, ("new/end",), ())


def test_an_early_or_missing_end_is_found():
    soon = change_row(CONTAINER.table, "idle", ContainerTrigger.RUN, dest="expired")
    assert explore(CONTAINER, soon).faults == ("idle/run: the process ends too soon",)
    late = change_row(CONTAINER.table, "idle", ContainerTrigger.DROP, dest="idle")
    assert explore(CONTAINER, late).faults == ("idle/drop: the process goes on instead of ending",)


@pytest.mark.parametrize("trigger", [StoredTrigger.APPEND, StoredTrigger.RENEW, StoredTrigger.FINISH])
def test_a_process_that_writes_after_another_has_taken_over_is_found(trigger):
    table = evolve(STORED.table, owned=STORED.table.owned - {trigger})
    assert {*explore(STORED, table).faults} == {
        f"{state}/{trigger}: fires for a process that is not the owner" for state in ("queued", "running", "lost")
    }


def test_a_run_that_ends_before_its_response_is_found():
    """Neither the table nor the model breaks the response off, so the events of the driver are judged."""
    model = evolve(TURNS, effects={**TURNS.effects, TurnEffect.BREAK_OFF: {}})
    assert "opening/leave: R3: event 2: there is no terminal event" in explore(model).faults


def test_a_refused_request_that_has_a_response_is_found():
    model = evolve(TURNS, start=evolve(TURNS.start, fed=(deltas.Start(),)))
    assert "admitting/leave: a refused request has a response" in explore(model).faults


def test_a_response_that_is_stored_before_it_has_ended_is_found():
    table = change_row(TURNS.table, "generating", TurnTrigger.FAIL, effects=[TurnEffect.STORE])
    assert explore(TURNS, table).faults == ("generating/fail: [store] instead of [break_off, store]",)
