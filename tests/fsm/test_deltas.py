import pytest

from interlock.fsm.deltas import Open, Usage


def test_usages_add_up_field_by_field():
    assert Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40) == Usage(11, 22, 33, 44)


def test_an_item_of_no_kind_is_refused():
    with pytest.raises(ValueError, match=r"^there is no item of kind 'poem'$"):
        Open("poem")


def test_an_item_is_refused_without_what_its_added_event_must_show():
    with pytest.raises(ValueError, match=r"^a mcp_call cannot open without server_label, name$"):
        Open("mcp_call", {"arguments": "{}"})
    assert Open("mcp_call", {"server_label": "wiki", "name": "search"}).kind == "mcp_call"
