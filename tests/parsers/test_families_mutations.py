"""Changes of one row of the framing are refused when it is declared, or a text shows them: a sample of `families.mutations`."""

from itertools import chain

import pytest
from families.alike import ALIKE
from families.mutations import fate_of, mutations, text_that_shows, texts
from families.relations import pairs

from interlock.parsers.families.framing import FRAMING


def changes_of(state):
    return [each for each in mutations() if each.edge.source == state]


def change(text):
    return next(each for each in changes_of(text.partition("/")[0]) if str(each) == text)


def test_an_edge_cannot_be_moved_to_another_trigger():
    changes_tried = [each for each in changes_of("value") if each.change.startswith("on ")]
    assert len(changes_tried) > 100
    assert {fate_of(each) for each in changes_tried} == {"refused"}


@pytest.mark.nightly
@pytest.mark.long
def test_the_framing_itself_reads_every_text_on_which_changes_are_tried():
    assert [each for each in chain(pairs(), texts()) if not each.holds(FRAMING)] == []


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.parametrize("state", ["keyed", "key", "member"])
def test_no_change_of_a_row_survives_but_those_that_nobody_could_see(state):
    survived = {str(each) for each in changes_of(state) if not each.change.startswith("on ") and fate_of(each) == "survived"}
    assert survived == {each for each in chain.from_iterable(ALIKE.values()) if each.startswith(f"{state}/")}


@pytest.mark.nightly
@pytest.mark.long
def test_a_text_is_found_that_shows_a_change():
    torn = change("member/text: go to torn_string")
    witness = text_that_shows(torn, 2)
    assert witness is not None
    assert witness.holds(FRAMING)
    assert not witness.holds(torn.declare())


@pytest.mark.nightly
@pytest.mark.long
def test_no_text_is_found_that_shows_a_change_that_makes_none():
    assert text_that_shows(change("bare/declared: go to aside_name"), 1) is None


def test_a_key_that_is_none_does_not_lead_back_to_keys():
    assert fate_of(change("key/text: go to body")) == fate_of(change("keyed/text: go to body")) == "refused"
