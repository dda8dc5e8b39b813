from itertools import pairwise

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from interlock.fsm.errors import DeclarationError
from interlock.parsers.framing import HARMONY, Effect, Framing, FramingEdge, Trigger


def test_every_state_answers_every_trigger():
    outside = set(Trigger) - {Trigger.TEXT}
    inside = set(Trigger) - {Trigger.WORD, Trigger.PROSE}
    assert {state: set(rows) for state, rows in HARMONY.rows.items()} == {
        "expect_start": outside,
        "header": outside,
        "content": inside,
    }


def test_the_table_is_the_declaration():
    declared = {(edge.source, edge.trigger): (edge.dest, edge.effects) for edge in HARMONY.edges}
    assert {(state, trigger): row for state, rows in HARMONY.rows.items() for trigger, row in rows.items()} == declared


def test_a_missing_edge_is_refused():
    with pytest.raises(DeclarationError, match="harmony framing: 0 edges for 'start' in 'expect_start'"):
        evolve(HARMONY, edges=HARMONY.edges[1:])


def test_two_edges_for_one_trigger_are_refused():
    with pytest.raises(DeclarationError, match="harmony framing: 2 edges for 'cut' in 'content'"):
        Framing("harmony framing", "expect_start", (*HARMONY.edges, FramingEdge("content", Trigger.CUT, "content")))


class Model:
    """What a `transitions.Machine` moves."""

    state: str

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def take(self, effect: Effect) -> None:
        self.effects.append(effect)


@given(st.lists(st.sampled_from(Trigger), max_size=30))
def test_the_table_and_the_machine_walk_in_lockstep(triggers):
    model = Model()
    HARMONY.machine.add_model(model)
    try:
        state, effects = HARMONY.initial, []
        for trigger in triggers:
            if trigger in HARMONY.rows[state]:
                state, more = HARMONY.rows[state][trigger]
                effects += more
                model.trigger(trigger.value)
            assert (model.state, model.effects) == (state, effects)
    finally:
        HARMONY.machine.remove_model(model)


def test_an_item_is_open_in_content_and_nowhere_else():
    opens, closes = {Effect.OPEN}, {Effect.CLOSE, Effect.LEAVE}
    for edge in HARMONY.edges:
        marks = [effect for effect in edge.effects if effect in opens | closes]
        levels = [edge.source == "content"]
        for mark in marks:
            assert levels[-1] is (mark in closes)
            levels.append(mark in opens)
        assert levels[-1] is (edge.dest == "content")
        assert all(before is not after for before, after in pairwise(levels))
