"""The judge finds out the API of a stream, and names the rules that it breaks."""

import json
import re
from pathlib import Path

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from interlock.judges import DIALECT_JUDGES, DIALECT_RULES, AnyJudge, Judge, chat, dialects, judge, messages
from interlock.serving.view.steps import explain

MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
EVENTS = [
    {"type": "message_start", "message": {**MESSAGE, "usage": {"input_tokens": 1, "output_tokens": 0}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
]
BASE = {"id": "c", "created": 1, "model": "m", "object": "chat.completion.chunk"}
CHUNKS = [
    {**BASE, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
    {**BASE, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
]


def framed(events):
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def chunked(chunks, end="data: [DONE]\n\n"):
    return ("".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + end).encode()


def verdict(data, size=1000, content_type=None, **options):
    judging = AnyJudge(**options)
    if content_type is not None:
        judging.content_type(content_type)
    for start in range(0, len(data), size):
        judging.feed(data[start : start + size])
    return judging.end()


@pytest.mark.parametrize("size", [1, 50, 100_000])
def test_legal_streams_of_each_api(size):
    result = verdict(framed([{"type": "ping"}, *EVENTS]), size, "text/event-stream; charset=utf-8")
    assert (result.legal, result.events, result.items, result.status) == (True, 7, ["text"], "end_turn")
    result = verdict(b": ping\n\n" + chunked(CHUNKS), size)
    assert (result.legal, result.events, result.items, result.status, result.has_done_marker) == (True, 2, [], "stop", True)


def test_a_stream_of_the_responses_api_is_judged_as_before():
    data = b'event: response.created\ndata: {"type":"response.created"}\n\n'
    assert verdict(data) == judge([data])
    assert verdict(b"") == judge([])


@pytest.mark.parametrize("size", [1, 50, 100_000])
def test_a_stream_is_followed_with_the_edges_of_its_transducer(size):
    judging, data = AnyJudge(), framed(EVENTS).removesuffix(b"\n")
    followed = [each for start in range(0, len(data), size) for each in judging.follow(data[start : start + size])]
    followed += judging.follow_end()
    assert [(each.body, each.findings) for each in followed] == [(event, ()) for event in EVENTS]
    steps = [explain(each.transition) for each in followed]
    assert [[(edge.source, edge.trigger, edge.dest) for edge in step.fired] for step in steps] == [
        [("absent", "begin", "between")],
        [("between", "text", "text")],
        [("between", "text", "text"), ("text", "text", "text")],
        [("text", "close", "between")],
        [("between", "end", "ended")],
        [("between", "end", "ended")],
    ]
    assert [(step.machine, step.states, step.possible) for step in (steps[1], steps[5])] == [
        ("messages", ("between",), ("text",)),
        ("messages", ("ended",), ()),
    ]
    assert judging.end().legal
    assert verdict(data, size).legal


def test_the_option_forces_an_api():
    assert verdict(framed(EVENTS), api="chat").legal is False
    assert verdict(chunked(CHUNKS), api="responses").legal is False


@pytest.mark.parametrize(
    ("data", "rule", "line", "received"),
    [
        (framed([EVENTS[0], *EVENTS[2:]]), "M2", 4, "content_block_delta"),
        (framed(EVENTS).replace(b"event: message_stop", b"event: stop"), "M12", 16, "message_stop"),
        (framed(EVENTS[:1]) + b"event: message_stop\ndata: {\n\n", "M9", 4, "message_stop"),
        (chunked(CHUNKS, ""), "C8", None, ""),
        (chunked([CHUNKS[0], CHUNKS[0], CHUNKS[1]]), "C1", 3, "message"),
    ],
)
def test_a_broken_stream_names_its_rule_and_place(data, rule, line, received):
    findings = [each for each in verdict(data).findings if each.rule == rule]
    assert [(finding.line, finding.received) for finding in findings[:1]] == [(line, received)]
    assert verdict(data).rules[rule] == len(findings)


def test_a_wrong_content_type_breaks_the_framing_rule():
    assert "M12" in verdict(framed(EVENTS), content_type="text/plain").rules
    assert "C8" in verdict(chunked(CHUNKS), content_type="text/plain").rules


def test_every_rule_of_the_oracles_is_explained():
    source = "".join(Path(module.__file__).read_text() for module in (messages, chat))
    judged = {number for number, rule in DIALECT_RULES.items() if rule.breaks}
    assert judged == {*re.findall(r'"([MC]\d+)"', source)}
    assert DIALECT_JUDGES["chat"]().end().readable is False


def test_text_beside_the_finish_reason_is_a_deviation_which_the_sdk_reads() -> None:
    last = {**BASE, "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    judged = verdict(chunked([CHUNKS[0], last]))
    assert [(each.rule, each.deviation) for each in judged.findings] == [("C2", "text-at-finish")]
    assert (judged.legal, judged.severities) == (True, {"error": 0, "deviation": 1, "not_judged": 0})
    state = ChatCompletionStreamState()
    for chunk in (CHUNKS[0], last):
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    assert state.get_final_completion().choices[0].message.content == "Hi"


def test_reasoning_in_one_field_is_a_deviation_and_another_text_in_the_other_is_an_error() -> None:
    def found(**delta):
        chunks = [CHUNKS[0], {**BASE, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}, CHUNKS[1]]
        return [(each.severity, each.deviation) for each in verdict(chunked(chunks)).findings]

    thought = {**BASE, "choices": [{"index": 0, "delta": {"reasoning": "Hm"}, "finish_reason": None}]}
    assert found(reasoning="Hm") == found(reasoning_content="Hm") == [("deviation", "one-reasoning")]
    assert found(reasoning="Hm", reasoning_content="Hm") == []
    assert [*verdict(chunked([CHUNKS[0], *[thought] * 3, CHUNKS[1]])).findings.values()] == [3]
    assert found(reasoning="Hm", reasoning_content="Oh") == [("error", "")]


def test_the_first_delta_of_a_call_may_have_no_arguments_which_the_sdk_reads() -> None:
    begun = {"index": 0, "id": "a", "type": "function", "function": {"name": "f"}}
    deltas = [({"tool_calls": [begun]}, None), ({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}, None)]
    chunks = [
        CHUNKS[0],
        *(
            {**BASE, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
            for delta, end in [*deltas, ({}, "tool_calls")]
        ),
    ]
    assert verdict(chunked(chunks)).is_clean
    state = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    (call,) = state.get_final_completion().choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("f", "{}")


def test_a_deviation_does_not_hide_an_error_in_the_calls() -> None:
    call = {"index": 1, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    last = {**BASE, "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    judged = verdict(chunked([CHUNKS[0], last]))
    assert [(each.severity, each.rule) for each in judged.findings] == [("error", "C4"), ("deviation", "C2")]


def test_an_end_marker_of_messages_is_a_deviation():
    judging = AnyJudge()
    judging.feed(framed(EVENTS) + b"data: [DONE]\n\n")
    assert judging.end().rules == {"M9": 1}


def test_a_long_beginning_without_an_event_is_judged_as_responses():
    judging = AnyJudge()
    judging.feed(b"x" * (dialects.UNDECIDED + 1))
    assert isinstance(judging._judge, Judge)
