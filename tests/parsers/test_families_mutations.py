"""Every change of one row of the framing is refused when it is declared, or a case finds it: shown for the states below."""

import pytest
from families.mutations import can_come, fate_of, mutations

SURVIVING = {
    # To forget twice is to forget.
    "between": {"think: double FORGET", "unthink: double FORGET"},
    "thinking": {"think: double FORGET", "unthink: double FORGET"},
    "value": set(),
}
"""The changes that make no difference which anybody could see, by the state."""

WITHOUT_SECTIONS = {
    # A family whose calls stand alone has no sections, so to it a message is the same inside of one and outside, and no
    # marker of its names tells declared tools from others.
    "between": {"call: go to bare name", "call: go to aside name"},
}


def changed(state):
    return [each for each in mutations() if each.edge.source == state]


def test_an_edge_cannot_be_left_out_or_moved_to_another_trigger():
    tried = [each for each in changed("value") if each.change == "drop" or each.change.startswith("on ")]
    assert len(tried) > 100
    assert {fate_of(each) for each in tried} == {"refused"}


@pytest.mark.proof
@pytest.mark.parametrize("state", SURVIVING)
def test_no_change_of_a_row_survives_but_those_that_nobody_could_see(state):
    tried = [each for each in changed(state) if can_come(each.edge) and not each.change.startswith("on ")]
    survived = {str(each).removeprefix(f"{state}/") for each in tried if fate_of(each) == "survived"}
    assert survived == SURVIVING[state] | WITHOUT_SECTIONS.get(state, set())
