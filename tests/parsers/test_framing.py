import pytest
from attrs import evolve

from interlock.fsm.errors import DeclarationError
from interlock.fsm.table import Edge
from interlock.parsers.harmony_framing import HARMONY, HarmonyEffect, HarmonyTrigger

T, E = HarmonyTrigger, HarmonyEffect


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


@pytest.mark.parametrize(
    ("edge", "message"),
    [
        (
            Edge("content", T.END, "expect_start", [E.CLOSE, E.CLOSE]),
            "end in state 'content' has the effect 'close' with no header",
        ),
        (Edge("header", T.CUT, "expect_start", [E.LEAVE]), "cut in state 'header' has the effect 'leave' with words of a header"),
        (Edge("expect_start", T.END, "content"), "text in state 'content' has the effect 'append' with no header"),
        (Edge("header", T.CUT, "expect_start"), "'expect_start' is entered with no header and with words of a header"),
    ],
)
def test_an_effect_without_its_header_or_item_is_refused(edge, message):
    others = [each for each in HARMONY.edges if (each.source, each.trigger) != (edge.source, edge.trigger)]
    with pytest.raises(DeclarationError, match=message):
        evolve(HARMONY, edges=[*others, edge])
