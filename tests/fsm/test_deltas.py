import attrs
import pytest

from interlock.fsm.deltas import EndTurn, Fail, Open, Progress, Run, Succeed, Usage


def test_usages_add_up_field_by_field():
    one = Usage(input_tokens=1, cached_tokens=2, output_tokens=3, reasoning_tokens=4, cache_write_tokens=5)
    other = Usage(input_tokens=10, cached_tokens=20, output_tokens=30, reasoning_tokens=40, cache_write_tokens=50)
    assert attrs.astuple(one + other) == (11, 22, 33, 44, 55)


def test_the_fields_of_usage_are_named_because_their_order_is_arbitrary():
    with pytest.raises(TypeError, match="positional argument"):
        Usage(1, 2, 3)


def test_an_item_of_no_kind_is_refused():
    with pytest.raises(ValueError, match=r"^there is no item of kind 'poem'$"):
        Open("poem")


def test_an_item_is_refused_without_what_its_added_event_must_show():
    with pytest.raises(ValueError, match=r"^an item of kind 'mcp_call' cannot open without server_label, name$"):
        Open("mcp_call", {"arguments": "{}"})
    assert Open("mcp_call", {"server_label": "wiki", "name": "search"}).kind == "mcp_call"


def test_a_finish_reason_of_another_api_is_refused():
    with pytest.raises(
        ValueError,
        match=r"^unknown finish reason 'tool_calls'; choose one of stop, length, .*\('stop' if a turn ends with calls\)$",
    ):
        EndTurn("tool_calls")


@pytest.mark.parametrize("make", [Run, lambda known: Progress(known, {}), Succeed, lambda known: Fail(known, "no")])
def test_the_id_of_a_call_is_not_taken_for_that_of_its_item(make):
    with pytest.raises(ValueError, match=r"^'call_1' is a call_id; pass the item's id"):
        make("call_1")
    assert make("mcp_1").item_id == "mcp_1"
