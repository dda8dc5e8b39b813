from itertools import pairwise

import pytest
from attrs import evolve

from interlock.fsm.errors import DeclarationError
from interlock.fsm.table import Edge
from interlock.parsers.harmony_framing import HARMONY, HarmonyEffect, HarmonyTrigger


def test_every_state_answers_every_trigger():
    outside = set(HarmonyTrigger) - {HarmonyTrigger.TEXT}
    inside = set(HarmonyTrigger) - {HarmonyTrigger.WORD, HarmonyTrigger.PROSE}
    assert {name: set(state.rows) for name, state in HARMONY.states.items()} == {
        "expect_start": outside,
        "header": outside,
        "content": inside,
    }


def test_a_missing_edge_is_refused():
    with pytest.raises(DeclarationError, match="table 'harmony': state 'expect_start' has no edge for channel"):
        evolve(HARMONY, edges=HARMONY.edges[1:])


def test_a_surplus_edge_is_refused():
    with pytest.raises(DeclarationError, match="table 'harmony': state 'content' has an edge for word"):
        evolve(HARMONY, edges=(*HARMONY.edges, Edge("content", HarmonyTrigger.WORD, "content")))


def test_an_item_is_open_in_content_and_nowhere_else():
    opens, closes = {HarmonyEffect.OPEN}, {HarmonyEffect.CLOSE, HarmonyEffect.LEAVE}
    for edge in HARMONY.edges:
        marks = [effect for effect in edge.effects if effect in opens | closes]
        levels = [edge.source == "content"]
        for mark in marks:
            assert levels[-1] is (mark in closes)
            levels.append(mark in opens)
        assert levels[-1] is (edge.dest == "content")
        assert all(before is not after for before, after in pairwise(levels))
