"""The proof holds for the tables; every mutation of a lifecycle is refused when it is declared, or caught by the proof."""

from pathlib import Path
from unittest.mock import Mock

import attrs
import pytest
from attrs import evolve
from table_mutations import Mutation, changes, fate_of_item, fate_of_response, mutations

from interlock.dialects.chat import CHAT
from interlock.dialects.messages import MESSAGES, MessagesTransducer
from interlock.events.items import ITEMS
from interlock.fsm import deltas
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.lifecycle import ItemState, Subject
from interlock.fsm.lifecycles import DECLARED
from interlock.fsm.table import DeclarationError, Edge, Machine
from interlock.serving.responses.turns_table import TurnEffect, TurnTrigger
from interlock.serving.store.tables import StoredTrigger
from interlock.serving.tools.code_interpreter import ContainerEffect, ContainerTrigger
from interlock.verify.expectation import Expectation
from interlock.verify.oracle import ORDERS, RUNNING
from interlock.verify.process_models import MODELS, explore
from interlock.verify.proof import Coverage, common_inputs, faults_of, prove

CITATION = {"type": "url_citation", "url": "https://example.org", "title": "E", "start_index": 0, "end_index": 1}


def change_row(kind, source, trigger, **change):
    lifecycle = DECLARED.items[kind]
    edges = [
        attrs.evolve(edge, **change) if (edge.source, edge.trigger) == (source, trigger) else edge for edge in lifecycle.edges
    ]
    return attrs.evolve(DECLARED, items={**DECLARED.items, kind: attrs.evolve(lifecycle, edges=edges)})


def emitted(kind, source, trigger):
    (edge,) = [edge for edge in DECLARED.items[kind].edges if (edge.source, edge.trigger) == (source, trigger)]
    return edge.effects


@pytest.mark.long
def test_every_stream_is_legal_and_every_edge_fires(monkeypatch):
    fired, fire = set(), Machine.fire

    def watched(machine, trigger):
        fired.add((machine.state.table, machine.state.name, trigger))
        return fire(machine, trigger)

    monkeypatch.setattr(Machine, "fire", watched)
    proof = prove()
    for table in (MESSAGES, CHAT):
        rows = {(table.name, state.name, trigger) for state in table.states.values() for trigger in state.rows}
        assert rows - fired == set()
    assert proof.counterexample is None
    assert {name: each.unfired for name, each in proof.coverage.items() if each.unfired} == {}
    assert {name: each.edges for name, each in proof.coverage.items()} == {
        "response": len(DECLARED.response.edges),
        **{kind: len(lifecycle.edges) for kind, lifecycle in DECLARED.items.items()},
    }
    assert proof.holds
    page = (Path(__file__).parents[2] / "docs" / "evidence" / "proof.md").read_text("utf-8")
    assert f"{proof.states:,} states, up to {proof.inputs} inputs in each, {proof.transitions:,} transitions\n" in page
    assert f"{proof.streams:,} different streams with {proof.events:,} events, judged in " in page


@pytest.mark.parametrize(
    "kind",
    [
        "image_generation_call",
        "custom_tool_call",
        *(pytest.param(kind, marks=pytest.mark.long) for kind in ("reasoning", "mcp_list_tools", "mcp_approval_request")),
    ],
)
def test_the_proof_holds_for_a_single_kind(kind):
    assert prove(kinds=(kind,), open_items=1).holds


def test_the_error_for_missing_rows_of_the_oracle_names_them(monkeypatch):
    for table, kind in ((ORDERS, "compaction"), (RUNNING, "compaction"), (RUNNING, "mcp_call")):
        monkeypatch.delitem(table, kind)
    with pytest.raises(DeclarationError) as raised:
        prove(kinds=("message", "compaction", "mcp_call"))
    assert str(raised.value).splitlines() == [
        "_ORDERS in verify/oracle.py has no row for 'compaction'",
        "_ORDERS in verify/oracle.py has no `>` before the events of the tool of 'mcp_call'",
    ]


def test_the_error_for_a_missing_row_of_whole_names_it(monkeypatch):
    monkeypatch.delitem(ORDERS, "program_output")
    with pytest.raises(DeclarationError, match=r"^WHOLE in verify/oracle\.py has no row for 'program_output'$"):
        prove(kinds=("program_output",))


@pytest.mark.long
def test_the_proof_holds_for_a_hosted_kind_with_one_tool_event(monkeypatch):
    monkeypatch.setitem(RUNNING, "web_search_call", RUNNING["web_search_call"][:1])
    assert prove(kinds=("web_search_call",), open_items=1).holds


@pytest.mark.long
def test_the_proof_is_deterministic():
    assert prove(kinds=("mcp_call",)) == prove(kinds=("mcp_call",))


@pytest.mark.long
def test_the_proof_has_more_states_with_more_open_items():
    few, more = (prove(kinds=("web_search_call",), open_items=number) for number in (1, 2))
    assert few.holds
    assert more.holds
    assert few.states < more.states


def test_the_common_inputs_open_every_kind():
    opened = [delta.kind for delta in common_inputs(ITEMS) if isinstance(delta, deltas.Open)]
    assert opened == ["reasoning", *ITEMS]  # reasoning once more, with encrypted content


def test_the_counterexample_of_a_missing_event_has_the_shortest_path():
    _, done = emitted("function_call", "in_progress", "close")
    proof = prove(change_row("function_call", "in_progress", "close", effects=[done]), kinds=("function_call",))
    assert proof.counterexample is not None
    call = deltas.Open("function_call", {"name": "name", "call_id": "call_of_the_model"})
    assert proof.counterexample.path == (call, deltas.Finish())
    assert {fault.partition(":")[0] for fault in proof.counterexample.faults} == {"R9", "R10"}
    assert not proof.holds


def test_the_expectation_reports_a_wrong_status_in_a_legal_stream():
    proof = prove(change_row("message", "output_text", "cut", dest="completed"), kinds=("message",))
    assert proof.counterexample is not None
    (fault,) = proof.counterexample.faults
    assert "ended={'msg_1': 'completed'}" in fault
    assert "ended={'msg_1': 'incomplete'}" in fault


def test_an_exception_in_a_transducer_fails_the_proof(monkeypatch):
    monkeypatch.setattr(MessagesTransducer, "make", Mock(side_effect=KeyError("an effect")))
    proof = prove(kinds=("message",), open_items=1)
    assert proof.counterexample is not None
    assert proof.counterexample.faults[0].startswith("KeyError: ")


def test_a_wrong_status_that_only_the_end_shows_is_reported():
    proof = prove(change_row("code_interpreter_call", "ready", "fail", dest="incomplete"), kinds=("code_interpreter_call",))
    assert proof.counterexample is not None
    assert proof.counterexample.path == (deltas.Open("code_interpreter_call"), deltas.Finish())
    assert proof.counterexample.faults[0].startswith("Finish() had ")


def test_an_edge_that_cannot_fire_fails_the_proof_without_a_counterexample():
    items = DECLARED.items["message"]
    edges = [*items.edges, attrs.evolve(items.edges[-1], trigger="linger")]
    lifecycles = attrs.evolve(DECLARED, items={**DECLARED.items, "message": attrs.evolve(items, edges=edges)})
    proof = prove(lifecycles, kinds=("message",))
    assert proof.counterexample is None
    assert proof.coverage["message"] == Coverage(len(edges), ("in_progress/linger",))
    assert not proof.holds


def test_an_exception_of_the_driver_is_a_counterexample(monkeypatch):
    def broken(_self):
        raise RuntimeError("it broke")

    monkeypatch.setattr(ResponseDriver, "_end_part", broken)
    proof = prove(kinds=("message",))
    assert proof.counterexample is not None
    assert proof.counterexample.path == (deltas.EndPart(), deltas.Finish())
    assert proof.counterexample.faults == ["RuntimeError: it broke"]


def test_a_response_that_differs_from_the_terminal_event_breaks_r19(monkeypatch):
    monkeypatch.setattr(ResponseDriver, "response", property(lambda _self: {}))
    proof = prove(kinds=("message",))
    assert proof.counterexample is not None
    assert proof.counterexample.faults == ["R19: the response of the driver differs from the one in the terminal event"]


def test_the_expectation_requires_the_result_in_the_item():
    expectation = Expectation()
    added = {
        "type": "response.output_item.added",
        "item": {"id": "mcpl_1", "type": "mcp_list_tools", "tools": []},
    }
    opening = [{"type": "response.created"}, {"type": "response.in_progress"}, added]
    assert expectation.compare(deltas.Open("mcp_list_tools", {"server_label": "wiki"}), opening) is None
    done = {"type": "response.output_item.done", "item": added["item"]}
    assert expectation.compare(deltas.Succeed("mcpl_1", {"tools": [{"name": "search", "input_schema": {}}]}), [done]) == (
        "{'id': 'mcpl_1', 'type': 'mcp_list_tools', 'tools': []} lacks the result of its tool"
    )


def test_an_unexpected_item_is_reported():
    added = {"type": "response.output_item.added", "item": {"id": "msg_1", "type": "message"}}
    fault = Expectation().compare(deltas.Close(), [added])
    assert fault is not None
    assert "added=['message']" in fault


@pytest.mark.parametrize("delta", ["text", deltas.Start(), deltas.Finish(), deltas.Fault("server_error", "It broke.")])
def test_no_effect_is_expected_after_the_end(delta):
    expectation = Expectation(status="completed")
    assert expectation.compare(delta, []) is None


ANSWER = (
    deltas.Open("message", {"phase": "final_answer"}),
    "a",
    deltas.Annotate(CITATION),
    deltas.EndPart(),
    "b",
    deltas.Close(),
)
PATHS = [*(ANSWER[: end + 1] for end in range(len(ANSWER))), (deltas.Open("message"), "a", "b", "c")]


def test_an_exception_of_an_edge_undoes_its_changes():
    assert [*faults_of(DECLARED, PATHS)] == []


def test_a_field_that_is_not_undone_is_reported(monkeypatch):
    restore = ItemState.restore

    def forget(item, backup):
        annotations = item.part.annotations
        restore(item, backup)
        item.update_part(annotations=annotations)

    monkeypatch.setattr(ItemState, "restore", forget)
    assert f"{ANSWER[:3]!r}, call 0: part was not undone" in [*faults_of(DECLARED, PATHS)]


def test_text_that_is_not_undone_is_reported(monkeypatch):
    monkeypatch.setattr(ItemState, "restore", Subject.restore)
    assert f"{ANSWER[:2]!r}, call 2: sent_text was not undone" in [*faults_of(DECLARED, [ANSWER[:2]])]


# The table of each process equals its model, and a mutated table does not


ALIKE = [
    {"queued", "running"},  # of a stored response: only the names of their states differ
    {"pending", "answered"},  # of an async call
    {"ended", "left"},  # of the owner of a background response
    {"refused", "settled"},  # of a run
]
"""States with the same edges, which no event can distinguish."""

CONTAINER, STORED, TURNS = (MODELS[name] for name in ("container", "stored", "turns"))


def change_table_row(table, source, trigger, **change):
    edges = [evolve(edge, **change) if (edge.source, edge.trigger) == (source, trigger) else edge for edge in table.edges]
    return evolve(table, edges=edges)


def drop_row(table, source, trigger):
    return evolve(table, edges=[edge for edge in table.edges if (edge.source, edge.trigger) != (source, trigger)])


@pytest.mark.parametrize("name", MODELS)
def test_the_table_of_each_process_agrees_with_its_model(name):
    model = MODELS[name]
    result = explore(model)
    assert (result.holds, result.edges, result.unfired, result.faults) == (True, len(model.table.edges), (), ())
    assert result.states >= len(model.table.states)
    assert {*model.possible} == {*type(model.table.triggers[0])}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long if name == "turns" else ()) for name in MODELS])
def test_every_mutation_of_a_process_is_refused_or_reported(name):
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


def test_a_missing_or_misplaced_effect_is_reported():
    less = change_table_row(CONTAINER.table, "new", ContainerTrigger.RUN, effects=[ContainerEffect.START])
    assert explore(CONTAINER, less).faults == ("new/run: [start] instead of [start, feed]",)
    swapped = change_table_row(
        CONTAINER.table, "new", ContainerTrigger.RUN, effects=[ContainerEffect.FEED, ContainerEffect.START]
    )
    assert explore(CONTAINER, swapped).faults == ("new/run: [feed, start] instead of [start, feed]",)


def test_a_missing_edge_is_reported():
    assert explore(CONTAINER, drop_row(CONTAINER.table, "idle", ContainerTrigger.RUN)).faults == ("idle: no edge for run",)


def test_an_impossible_edge_is_reported_as_unfired():
    table = evolve(CONTAINER.table, edges=[*CONTAINER.table.edges, Edge("new", ContainerTrigger.END, "new")])
    result = explore(CONTAINER, table)
    assert (result.holds, result.unfired, result.faults) == (False, ("new/end",), ())


def test_an_early_or_missing_end_is_reported():
    soon = change_table_row(CONTAINER.table, "idle", ContainerTrigger.RUN, dest="expired")
    assert explore(CONTAINER, soon).faults == ("idle/run: the process ends too soon",)
    late = change_table_row(CONTAINER.table, "idle", ContainerTrigger.DROP, dest="idle")
    assert explore(CONTAINER, late).faults == ("idle/drop: the process goes on instead of ending",)


@pytest.mark.parametrize("trigger", [StoredTrigger.APPEND, StoredTrigger.RENEW, StoredTrigger.FINISH])
def test_a_trigger_of_the_owner_that_another_process_fires_is_reported(trigger):
    table = evolve(STORED.table, owned=STORED.table.owned - {trigger})
    assert {*explore(STORED, table).faults} == {
        f"{state}/{trigger}: fires for a process that is not the owner" for state in ("queued", "running", "lost")
    }


def test_a_run_that_ends_before_its_response_is_reported():
    """The table and the model agree here, so only the judged events of the driver show the fault."""
    model = evolve(TURNS, effects={**TURNS.effects, TurnEffect.BREAK_OFF: {}})
    assert "opening/leave: R3: event 2: there is no terminal event" in explore(model).faults


def test_a_refused_request_with_a_response_is_reported():
    model = evolve(TURNS, start=evolve(TURNS.start, fed=(deltas.Start(),)))
    assert "admitting/leave: a refused request has a response" in explore(model).faults


def test_a_response_that_is_stored_before_its_end_is_reported():
    table = change_table_row(TURNS.table, "generating", TurnTrigger.FAIL, effects=[TurnEffect.STORE])
    assert explore(TURNS, table).faults == ("generating/fail: [store] instead of [break_off, store]",)


# Every mutation of a lifecycle.


EQUIVALENT = {
    # A driver whose response cannot end while it is queued starts it first: two edges emit the same events.
    ("response", "queued/fail: drop"),
    ("response", "queued/cancel: drop"),
    # An item of this kind has no status, so the name of its final state is not visible.
    ("mcp_list_tools", "in_progress/fail: go to completed"),
    ("mcp_list_tools", "in_progress/cut: go to completed"),
}
"""The mutations that change no event."""


def test_mutations_yields_every_change_of_an_edge():
    lifecycle = DECLARED.items["function_call"]
    assert [mutation.change for mutation in mutations(lifecycle)][-12:] == [
        "in_progress/cut: drop",
        "in_progress/cut: drop response.function_call_arguments.done",
        "in_progress/cut: double response.function_call_arguments.done",
        "in_progress/cut: drop response.output_item.done",
        "in_progress/cut: double response.output_item.done",
        "in_progress/cut: swap response.function_call_arguments.done and response.output_item.done",
        "in_progress/cut: go to absent",
        "in_progress/cut: go to in_progress",
        "in_progress/cut: go to completed",
        "in_progress/cut: on open",
        "in_progress/cut: on append",
        "in_progress/cut: on close",
    ]


@pytest.mark.long
def test_the_proof_holds_for_unchanged_lifecycles():
    item, response = DECLARED.items["function_call"], DECLARED.response
    assert fate_of_item(Mutation(item, "nothing", item.edges), "function_call") == "survived"
    assert fate_of_response(Mutation(response, "nothing", response.edges)) == "survived"


def test_the_fate_of_a_mutation_is_refused_or_caught():
    by_change = {mutation.change: mutation for mutation in mutations(DECLARED.items["function_call"])}
    assert fate_of_item(by_change["in_progress/cut: drop"], "function_call") == "refused"
    assert fate_of_item(by_change["in_progress/append: drop"], "function_call") == "caught"
    by_change = {mutation.change: mutation for mutation in mutations(DECLARED.response)}
    assert fate_of_response(by_change["in_progress/fail: drop"]) == "refused"
    assert fate_of_response(by_change["absent/start: drop response.created"]) == "refused"
    assert fate_of_response(by_change["in_progress/cut: go to failed"]) == "caught"


@pytest.mark.long
@pytest.mark.parametrize("kind", DECLARED.items)
def test_only_equivalent_mutations_of_an_item_survive(kind):
    lifecycle = DECLARED.items[kind]
    assert fate_of_item(Mutation(lifecycle, "nothing", lifecycle.edges), kind) == "survived"
    fates = {mutation.change: fate_of_item(mutation, kind) for mutation in mutations(lifecycle)}
    survived = {(kind, change) for change, fate in fates.items() if fate == "survived"}
    assert survived == {change for change in EQUIVALENT if change[0] == kind}


@pytest.mark.long
def test_only_equivalent_mutations_of_the_response_survive():
    fates = {mutation.change: fate_of_response(mutation) for mutation in mutations(DECLARED.response)}
    survived = {("response", change) for change, fate in fates.items() if fate == "survived"}
    assert survived == {change for change in EQUIVALENT if change[0] == "response"}
