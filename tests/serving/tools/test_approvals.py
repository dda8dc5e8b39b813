"""A call that needs approval becomes a request for it, in any chunks."""

import pytest

from interlock.fsm.deltas import Close, EndTurn, Open, Text
from interlock.serving.tools.hosting import Approvals

OPEN_CALL = Open("mcp_call", {"server_label": "s", "name": "t"})
FREE = Open("mcp_call", {"server_label": "s", "name": "free"})
MESSAGE = Open("message", {"phase": "final_answer"})


def approval(arguments):
    return Open("mcp_approval_request", {"server_label": "s", "name": "t", "arguments": arguments})


def approvals():
    return Approvals(lambda _label, name: name == "t")


@pytest.mark.parametrize(
    ("deltas", "output"),
    [
        ([OPEN_CALL, '{"a"', ":1}", Close()], [approval('{"a":1}')]),
        ([OPEN_CALL, Text("{}", []), MESSAGE, "x"], [approval("{}"), MESSAGE, "x"]),
        ([OPEN_CALL, OPEN_CALL, "{}", EndTurn("stop")], [approval(""), approval("{}"), EndTurn("stop")]),
        ([OPEN_CALL, '{"a', EndTurn("length")], [OPEN_CALL, '{"a', EndTurn("length")]),
        ([FREE, "{}", Close(), EndTurn("length")], [FREE, "{}", Close(), EndTurn("length")]),
    ],
)
def test_a_call_that_needs_approval_becomes_a_request_unless_it_is_truncated(deltas, output) -> None:
    assert approvals().feed(deltas) == output
    one_by_one = approvals()
    assert [delta for each in deltas for delta in one_by_one.feed([each])] == output
