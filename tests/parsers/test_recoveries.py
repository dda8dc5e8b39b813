"""What parsers count when they read malformed output anyway."""

import pytest

from interlock.fsm.deltas import Usage
from interlock.parsers import ChatParser, Chunk, ResponsesParser, Routing, Tagged, parser_for


def counted(parser, *chunks):
    for chunk in chunks:
        parser.feed(chunk)
    parser.end("stop", Usage())
    return dict(parser.recoveries)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ('<tool_call>{"name": "f", "arguments": {}}</tool_call>', []),
        ("<tool_call>no", ["refuted_call"]),
        ('<tool_call>{"name": "f", "arguments": {"a": 1', ["cut_call"]),
        ('<tool_call>{"name": "f", "arguments": {}} x</tool_call>', ["broken_arguments"]),
    ],
)
def test_a_family_counts_by_its_name(text, kinds) -> None:
    recoveries = counted(parser_for(Tagged("hermes"), {"tools": [{"type": "function", "name": "f"}]}), Chunk(text=text))
    assert [kind for _, kind in recoveries] == kinds


def test_a_call_without_a_name_is_counted() -> None:
    call = {"tool_calls": [{"index": 0, "function": {"arguments": '{"a": 1}'}}]}
    assert counted(ChatParser(Routing()), Chunk(delta=call)) == {("chat", "nameless_call"): 1}


MESSAGE = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Hello"}]}


@pytest.mark.parametrize(
    ("events", "rules"),
    [
        ([{"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": "Hello"}], ["R7", "R7"]),
        ([{"type": "response.completed", "response": {"status": "completed", "output": [MESSAGE]}}], ["R13", "R9"]),
    ],
)
def test_repairs_of_a_service_are_counted_by_rule(events, rules) -> None:
    recoveries = counted(ResponsesParser(), *(Chunk(delta=event) for event in events))
    assert sorted(rule for (_, rule), count in recoveries.items() for _ in range(count)) == sorted(rules)
