"""None"""

import pytest
from attrs import evolve

from interlock.fsm.table import DeclarationError, Edge
from interlock.parsers.alignment import Alignment
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
        (
            Edge("header", T.CUT, "expect_start", [E.LEAVE]),
            "cut in state 'header' has the effect 'leave' with words of a header",
        ),
        (Edge("expect_start", T.END, "content"), "text in state 'content' has the effect 'append' with no header"),
        (Edge("header", T.CUT, "expect_start"), "'expect_start' is entered with no header and with words of a header"),
    ],
)
def test_an_effect_without_its_header_or_item_is_refused(edge, message):
    others = [each for each in HARMONY.edges if (each.source, each.trigger) != (edge.source, edge.trigger)]
    with pytest.raises(DeclarationError, match=message):
        evolve(HARMONY, edges=[*others, edge])


LE, END, IN, BARE, NONE = (
    {"token": "le"},
    {"token": "</think>"},
    {"token": "ignored", "bytes": list("é".encode())},
    {"token": "!\n"},
    {"token": None},
)


def aligned(*entries):
    alignment = Alignment()
    for entry in entries:
        alignment.add(entry)
    return alignment


def part(entry, text):
    return {**entry, "token": text, "bytes": list(text.encode()), "top_logprobs": []}


def test_a_text_has_the_tokens_that_spell_it():
    alignment = aligned(LE, END, IN, BARE)
    assert alignment.find("le") == ("le", [LE])
    assert alignment.find("é!\n") == ("é!\n", [IN, BARE])
    assert alignment.find("é") == ("é", ())


def test_a_text_waits_for_the_rest_of_its_token():
    alignment = aligned(LE, IN, BARE)
    assert alignment.find("l") == ("", [])
    assert alignment.find("eé!") == ("leé", [LE, IN])
    assert alignment.find("\n") == ("!\n", [BARE])
    assert alignment.flush() == ("", [])


def test_a_token_that_two_texts_share_is_divided_between_them():
    alignment = aligned(LE, BARE)
    assert alignment.find("le!") == ("le", [LE])
    assert alignment.flush() == ("!", [part(BARE, "!")])
    assert alignment.find("\n") == ("\n", [part(BARE, "\n")])


def test_a_text_that_begins_inside_of_a_token_has_the_part_of_it():
    alignment = aligned(BARE, LE)
    assert alignment.find("\nle") == ("\nle", [part(BARE, "\n"), LE])


def test_tokens_that_divide_a_character_stay_together():
    first, second = {"bytes": [0xC3]}, {"bytes": [0xA9, 0x21]}
    alignment = aligned(first, second)
    assert alignment.find("é") == ("", [])
    assert alignment.find("!") == ("é!", [first, second])


def test_a_text_that_no_tokens_spell_has_no_tokens():
    alignment = aligned(LE, NONE)
    assert alignment.find("l") == ("", [])
    assert alignment.find("other") == ("lother", ())
    assert alignment.find("le") == ("le", [LE])


@pytest.mark.parametrize("content", [[256], [-1], ["l", "e"], [None]])
def test_a_token_with_invalid_bytes_has_its_text(content):
    entry = {**LE, "bytes": content}
    assert aligned(entry).find("le") == ("le", [entry])


def test_tokens_that_fit_no_text_are_forgotten():
    alignment = aligned(*({"token": "x" * 1000} for _ in range(20)), LE)
    assert alignment.find("no such text") == ("no such text", ())
    assert len(alignment._bytes) < 20_000
    assert alignment.find("le") == ("le", [LE])
