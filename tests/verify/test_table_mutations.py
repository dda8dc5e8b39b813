"""Every mutation of a lifecycle is refused when it is declared, or caught by the proof."""

import pytest
from table_mutations import Mutation, fate_of_item, fate_of_response, mutations

from interlock.fsm.lifecycles import DECLARED

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
    changes = {mutation.change: mutation for mutation in mutations(DECLARED.items["function_call"])}
    assert fate_of_item(changes["in_progress/cut: drop"], "function_call") == "refused"
    assert fate_of_item(changes["in_progress/append: drop"], "function_call") == "caught"
    changes = {mutation.change: mutation for mutation in mutations(DECLARED.response)}
    assert fate_of_response(changes["in_progress/fail: drop"]) == "refused"
    assert fate_of_response(changes["absent/start: drop response.created"]) == "refused"
    assert fate_of_response(changes["in_progress/cut: go to failed"]) == "caught"


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
