"""The oracles of Messages and Chat Completions name the rule that a broken stream breaks."""

import inspect
import json
import re
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from anthropic.types.beta import BetaRawContentBlockDeltaEvent, BetaRawContentBlockStartEvent
from for_each import for_each
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from interlock.judges import DEVIATIONS, DIALECT_JUDGES, DIALECT_RULES, AnyJudge, Judge, dialects, judge
from interlock.judges.chat import check_chat
from interlock.judges.messages import BLOCK_DELTAS, BLOCKS, check_messages
from interlock.serving.view.trace import explain

START = {
    "type": "message_start",
    "message": {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 1, "output_tokens": 0},
    },
}


def block(index, kind, *pieces, **fields):
    deltas = [{"type": "content_block_delta", "index": index, "delta": piece} for piece in pieces]
    start = {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}}
    return [start, *deltas, {"type": "content_block_stop", "index": index}]


def ended(reason="end_turn"):
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 2}}, {"type": "message_stop"}]


TEXT = block(0, "text", {"type": "text_delta", "text": "Hi"}, text="")
SIGNED = {"type": "signature_delta", "signature": "s"}
THINKING = block(0, "thinking", {"type": "thinking_delta", "thinking": "Hm"}, SIGNED, thinking="", signature="")
PIECE = {"type": "input_json_delta", "partial_json": "{}"}
CALL = block(0, "tool_use", PIECE, id="t", name="f", input={})
RESULT = block(0, "mcp_tool_result", tool_use_id="t", is_error=False, content=[])
FAILED = {"type": "error", "error": {"type": "api_error", "message": "No"}}


def changed(events, place, **fields):
    events = deepcopy(events)
    events[place].update(fields)
    return events


def rules(events):
    return [finding.rule for finding in check_messages(events)]


@pytest.mark.parametrize(
    "events",
    [
        [START, *ended()],
        [START, {"type": "ping"}, *TEXT, *ended("max_tokens")],
        [START, *THINKING, *ended()],
        [START, *CALL, *ended("tool_use")],
        [START, *CALL, *ended("max_tokens")],
        [START, *block(0, "tool_use", id="t", name="f", input={"a": 1}), *ended("tool_use")],
        [START, *block(0, "tool_use", {**PIECE, "partial_json": " "}, id="t", name="f", input={}), *ended("tool_use")],
        [START, *block(0, "thinking", THINKING[1]["delta"], SIGNED, thinking=""), *ended()],
        [START, *block(0, "thinking", thinking="", signature="s"), *ended()],
        [START, *block(0, "text", {"type": "citations_delta", "citation": {}}, TEXT[1]["delta"], text=""), *ended()],
        [START, *block(0, "web_fetch_tool_result", tool_use_id="t", content={}), *ended("pause_turn")],
        [START, *block(0, "compaction", {"type": "compaction_delta", "content": "Hi"}, content=None), *ended("compaction")],
        [START, *RESULT, *ended()],
        [START, *TEXT[:2], FAILED],
        [FAILED],
    ],
)
def test_legal_messages_break_no_rule(events):
    assert rules(events) == []


@for_each(
    ("finding", "events"),
    [
        ("M1 the stream has no event", []),
        ("M1 message_delta is event 0", [*ended()]),
        ("M1 message_start is event 1", [START, START, *ended()]),
        (
            "M1 the message does not begin empty, with an id and a model",
            changed([START, *ended()], 0, message={**START["message"], "stop_reason": "end_turn"}),
        ),
        (
            "M1 the message does not begin empty, with an id and a model",
            changed([START, *ended()], 0, message={**START["message"], "id": ""}),
        ),
        ("M1 the message begins without usage", changed([START, *ended()], 0, message={**START["message"], "usage": {}})),
        ("M2 block 1 begins, after 0 blocks", [START, *changed(TEXT, 0, index=1), *ended()]),
        ("M2 content_block_delta is for block 1, which is not open", [START, *changed(TEXT, 1, index=1), *ended()]),
        ("M2 block 0 begins, after 1 block", [START, *TEXT[:2], *TEXT, *ended()]),
        ("M2 message_delta inside a block", [START, *TEXT[:2], *ended()]),
        ("M2 content_block_stop is for block 0, which is not open", [START, TEXT[2], *ended()]),
        ("M3 the API has no block poem", [START, *block(0, "poem"), *ended()]),
        ("M3 the block has no text", [START, *block(0, "text", {"type": "text_delta", "text": "Hi"}), *ended()]),
        (
            "M3 text is not empty at the start",
            [START, *block(0, "text", {"type": "text_delta", "text": "Hi"}, text="Hi"), *ended()],
        ),
        (
            "M3 input_json_delta in a block of the type text",
            [START, *block(0, "text", {"type": "text_delta", "text": "Hi"}, PIECE, text=""), *ended()],
        ),
        (
            "M3 input_json_delta in a block of the type mcp_tool_result",
            [START, *block(0, "mcp_tool_result", PIECE, tool_use_id="t", is_error=False, content=[]), *ended()],
        ),
        ("M4 the block has no signature", [START, *block(0, "thinking", thinking="", signature=""), *ended()]),
        (
            "M4 the block does not end with one signature",
            [START, *block(0, "thinking", SIGNED, SIGNED, thinking="", signature=""), *ended()],
        ),
        (
            "M4 the block does not end with one signature",
            [START, *block(0, "thinking", SIGNED, *[THINKING[1]["delta"]], thinking="", signature=""), *ended()],
        ),
        ("M5 the block has no input", [START, *block(0, "tool_use", id="t", name="f"), *ended("tool_use")]),
        (
            "M5 the input at the start is not that of the deltas",
            [
                START,
                *block(0, "tool_use", {**PIECE, "partial_json": '{"b": 1}'}, id="t", name="f", input={"a": 1}),
                *ended("tool_use"),
            ],
        ),
        (
            "M5 the input is 'null' instead of an object",
            [START, *block(0, "tool_use", {**PIECE, "partial_json": "null"}, id="t", name="f", input={}), *ended()],
        ),
        (
            "M5 the input is '[1]' instead of an object",
            [START, *block(0, "tool_use", {**PIECE, "partial_json": "[1]"}, id="t", name="f", input={}), *ended("max_tokens")],
        ),
        (
            "M5 the input is '{\"a' instead of an object",
            [START, *block(0, "tool_use", {**PIECE, "partial_json": '{"a'}, id="t", name="f", input={}), *ended("tool_use")],
        ),
        (
            "M5 the input is '{\"a' instead of an object",
            [
                START,
                *block(0, "tool_use", {**PIECE, "partial_json": '{"a'}, id="t", name="f", input={}),
                *changed(changed(changed(TEXT, 0, index=1), 1, index=1), 2, index=1),
                *ended(),
            ],
        ),
        ("M7 no message_delta follows the last block", [START, {"type": "message_stop"}]),
        ("M7 no message_delta follows the last block", [START, ended()[0], *TEXT, {"type": "message_stop"}]),
        ("M7 message_delta has no usage", changed([START, *ended()], 1, usage={})),
        ("M8 the reason is 'stop'", [START, *ended("stop")]),
        ("M8 the reason is tool_use, without a call", [START, *ended("tool_use")]),
        ("M8 the client has a call to run, and the reason is end_turn", [START, *CALL, *ended()]),
        ("M8 the reason is 'stop_sequence', and the stop sequence null", [START, *ended("stop_sequence")]),
        (
            "M8 the reason is 'end_turn', and the stop sequence 'END'",
            changed([START, *ended()], 1, delta={"stop_reason": "end_turn", "stop_sequence": "END"}),
        ),
        ("M9 the stream ends with content_block_stop", [START, *TEXT]),
        ("M9 events follow message_stop", [START, *ended(), *TEXT]),
        ("M11 events follow error", [START, FAILED, *ended()]),
        ("M11 an error needs a type and a message", [START, {"type": "error", "error": {}}]),
        ("M14 the text is empty", [START, *block(0, "text", text=""), *ended()]),
    ],
)
def test_each_broken_stream_of_messages_has_its_finding(finding, events):
    assert finding in [f"{one.rule} {one.message}" for one in check_messages(events)]


def test_messages_with_an_unfinished_call_may_end_with_end_turn():
    cut = block(0, "tool_use", {"type": "input_json_delta", "partial_json": '{"a'}, id="t", name="f", input={})
    assert rules([START, *cut, *ended()]) == []


def test_the_oracles_report_errors_after_the_first_one() -> None:
    broken = block(0, "poem", id=5)
    wrong = [*changed(changed(changed(CALL, 0, index=1), 1, index=1), 2, index=5)]
    assert rules([START, *broken, *wrong, *ended("stop")]) == ["M2", "M2", "M2", "M3", "M8"]
    chunks = [
        ROLE,
        chunk({"tool_calls": [{**BEGUN, "index": 1}]}, id="d"),
        chunk(finish_reason="length"),
        chunk(finish_reason="stop"),
    ]
    assert [each.rule for each in check_chat(chunks) if not each.deviation] == ["C6", "C2", "C4"]


def test_an_unknown_block_and_an_unknown_event_are_deviations() -> None:
    poem = block(0, "poem", {"type": "poem_delta"})
    found = check_messages([START, {"type": "message_sung"}, *poem, *ended()])
    assert [(each.rule, each.deviation) for each in found] == [("M12", "unknown-message-event"), ("M3", "unknown-block")]
    assert "M2" in rules([START, *changed(poem, 0, index=1), *ended()])


def test_a_message_that_begins_with_content_is_a_deviation() -> None:
    start = {**START, "message": {**START["message"], "content": [{"type": "text", "text": "Hi"}]}}
    assert [(each.rule, each.deviation) for each in check_messages([start, *ended()])] == [("M1", "content-at-start")]


def chunk(delta=None, finish_reason=None, **fields):
    base = {"id": "c", "created": 1, "model": "m", "object": "chat.completion.chunk"}
    return {**base, "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish_reason}], **fields}


ROLE = chunk({"role": "assistant", "content": ""})
BEGUN = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}
MORE = {"index": 0, "function": {"arguments": "{}"}}
SECOND = {**ROLE, "choices": [{**ROLE["choices"][0], "index": 1}]}
USAGE = {**chunk(usage={"total_tokens": 1}), "choices": []}


@pytest.mark.parametrize(
    ("chunks", "usage"),
    [
        ([ROLE, chunk({"content": "Hi"}), chunk(finish_reason="stop")], False),
        ([ROLE, chunk({"tool_calls": [BEGUN]}), chunk({"tool_calls": [MORE]}), chunk(finish_reason="tool_calls")], False),
        ([ROLE, chunk(finish_reason="stop"), USAGE], True),
        ([ROLE, chunk(finish_reason="stop"), {**USAGE, "usage": None}], True),
        ([ROLE, {"error": {"message": "No"}}], False),
        ([{**chunk(), "choices": []}, ROLE, chunk(finish_reason="stop")], False),
        (
            [
                ROLE,
                SECOND,
                chunk(finish_reason="stop"),
                {**SECOND, "choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]},
            ],
            False,
        ),
        ([ROLE, chunk({"function_call": {"name": "f", "arguments": "{}"}}), chunk(finish_reason="function_call")], False),
        ([ROLE, chunk({"audio": {"id": "audio_1", "data": "AA=="}}), chunk(finish_reason="stop")], False),
        ([ROLE, chunk(finish_reason="stop"), USAGE, {**chunk(moderation={}), "choices": []}], True),
    ],
)
def test_legal_chat_streams_break_no_rule(chunks, usage):
    assert check_chat(chunks, usage=usage) == []


@for_each(
    ("finding", "chunks"),
    [
        ("C1 the first chunk of the choice has no role", [chunk({"content": "Hi"}), chunk(finish_reason="stop")]),
        ("C1 the role is repeated", [ROLE, ROLE, chunk(finish_reason="stop")]),
        ("C1 comes late", [chunk({"content": "Hi"}), ROLE, chunk(finish_reason="stop")]),
        ("C1 the role is 'user'", [chunk({"role": "user"}), chunk(finish_reason="stop")]),
        ("C2 the stream has no choice", []),
        ("C2 the choice has no finish reason", [ROLE]),
        ("C2 repeats or follows the reason 'stop'", [ROLE, chunk(finish_reason="stop"), chunk(finish_reason="stop")]),
        ("C2 the last delta is not empty", [ROLE, chunk({"content": "Hi"}, "stop")]),
        ("C2 a choice has no finish_reason", [ROLE, {**ROLE, "choices": [{"delta": {}}]}, chunk(finish_reason="stop")]),
        ("C2 the reason is 'done'", [ROLE, chunk(finish_reason="done")]),
        ('C2 the reason is ["stop"]', [ROLE, chunk(finish_reason=["stop"])]),
        ("C2 the choice has no finish reason", [ROLE, SECOND, chunk(finish_reason="stop")]),
        ("C3 the reason is tool_calls, without a call", [ROLE, chunk(finish_reason="tool_calls")]),
        ("C3 the reason is function_call, without a call", [ROLE, chunk(finish_reason="function_call")]),
        ("C4 the index is 1, not 0", [ROLE, chunk({"tool_calls": [{**BEGUN, "index": 1}]}), chunk(finish_reason="tool_calls")]),
        (
            "C4 the id, the type and the name come together, once",
            [ROLE, chunk({"tool_calls": [{**BEGUN, "type": "tool"}]}), chunk(finish_reason="tool_calls")],
        ),
        (
            "C4 the arguments are not a string",
            [ROLE, chunk({"tool_calls": [{**BEGUN, "function": {"name": "f", "arguments": {}}}]}), chunk(finish_reason="stop")],
        ),
        ("C5 nobody requested the usage", [ROLE, chunk(finish_reason="stop"), USAGE]),
        ("C6 the id differs", [ROLE, chunk(finish_reason="stop", id="d")]),
        ("C6 the object is 'chat'", [ROLE, chunk(finish_reason="stop", object="chat")]),
        ('C6 the object is ["chat"]', [ROLE, chunk(finish_reason="stop", object=["chat"])]),
        ("C6 the time differs", [ROLE, chunk(finish_reason="stop", created=2)]),
        ("C6 the model differs", [ROLE, chunk(finish_reason="stop"), {**chunk(model="n"), "choices": []}]),
        ("C6 the chunk has no list of choices", [ROLE, {**ROLE, "choices": None}, chunk(finish_reason="stop")]),
        ("C7 the reasoning differs between its two fields", [ROLE, chunk({"reasoning": "Hm"}), chunk(finish_reason="stop")]),
        ("C8 an error is the last chunk, with a message", [ROLE, {"error": {}}]),
        ("C8 an error is the last chunk, with a message", [{"error": {"message": "No"}}, ROLE, chunk(finish_reason="stop")]),
    ],
)
def test_each_broken_chat_stream_has_its_finding(finding, chunks):
    assert finding in [f"{one.rule} {one.message}" for one in check_chat(chunks)]


def test_the_usage_of_a_chat_stream_comes_once_and_last_if_requested():
    counted = {**chunk(), "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
    said = [chunk({"role": "assistant", "content": "Hi"}), chunk({}, "stop")]
    found = [
        [(each.rule, each.deviation) for each in check_chat(chunks, usage=usage)]
        for chunks, usage in [
            ([*said, counted], False),
            (said, True),
            ([*said, counted, counted], True),
            ([said[0], counted, said[1]], True),
        ]
    ]
    assert found == [[("C5", "")], [("C5", "")], [("C5", "usage-again")], [("C5", "")]]


def test_an_error_beside_the_last_choice_breaks_no_rule():
    failed = {**chunk({}, "stop"), "error": {"message": "It broke."}}
    assert [each.rule for each in check_chat([chunk({"role": "assistant", "content": "Hi"}), failed])] == []


# The judge detects the API of a stream, and names the rules that the stream breaks


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
def test_a_legal_stream_of_each_api_is_legal(size):
    result = verdict(framed([{"type": "ping"}, *EVENTS]), size, "text/event-stream; charset=utf-8")
    assert (result.legal, result.events, result.items, result.status) == (True, 7, ["text"], "end_turn")
    result = verdict(b": ping\n\n" + chunked(CHUNKS), size)
    assert (result.legal, result.events, result.items, result.status, result.has_done_marker) == (True, 2, [], "stop", True)


def test_a_stream_that_its_error_ends_has_failed_and_one_that_is_cut_off_has_not_ended():
    error = {"type": "error", "error": {"type": "api_error", "message": "It broke."}}
    result = verdict(framed([*EVENTS[:2], error]))
    assert (result.legal, result.status) == (True, "failed")
    assert verdict(framed(EVENTS[:2])).status is None
    error = {"error": {"message": "It broke.", "type": "server_error", "param": None, "code": None}}
    result = verdict(chunked([*CHUNKS[:1], error]))
    assert (result.legal, result.status) == (True, "failed")
    assert verdict(chunked(CHUNKS[:1], "")).status is None


def test_a_stream_of_the_responses_api_is_judged_by_its_judge():
    data = b'event: response.created\ndata: {"type":"response.created"}\n\n'
    assert verdict(data) == judge([data])
    assert verdict(b"") == judge([])


@pytest.mark.parametrize("size", [1, 50, 100_000])
def test_followed_events_have_the_edges_of_their_transducer(size):
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


def test_the_option_api_replaces_the_detection():
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
def test_a_finding_has_its_rule_and_place(data, rule, line, received):
    findings = [each for each in verdict(data).findings if each.rule == rule]
    assert [(finding.line, finding.received) for finding in findings[:1]] == [(line, received)]
    assert verdict(data).rules[rule] == len(findings)


def test_a_wrong_content_type_breaks_the_framing_rule():
    assert "M12" in verdict(framed(EVENTS), content_type="text/plain").rules
    assert "C8" in verdict(chunked(CHUNKS), content_type="text/plain").rules


def test_dialect_rules_lists_exactly_the_rules_of_the_oracles():
    source = "".join(Path(inspect.getfile(judge)).read_text() for judge in DIALECT_JUDGES.values())
    judged = {number for number, rule in DIALECT_RULES.items() if rule.breaks}
    assert judged == {*re.findall(r'"([A-Z]\d+)"', source)}


def test_text_beside_the_finish_reason_is_a_deviation_that_the_sdk_reads() -> None:
    last = {**BASE, "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    judged = verdict(chunked([CHUNKS[0], last]))
    assert [(each.rule, each.deviation) for each in judged.findings] == [("C2", "text-at-finish")]
    assert (judged.legal, judged.severities) == (True, {"error": 0, "deviation": 1, "not_judged": 0})
    state = ChatCompletionStreamState()
    for chunk in (CHUNKS[0], last):
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    assert state.get_final_completion().choices[0].message.content == "Hi"


def test_reasoning_in_one_of_its_two_fields_is_a_deviation() -> None:
    def found(**delta):
        chunks = [CHUNKS[0], {**BASE, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}, CHUNKS[1]]
        return [(each.severity, each.deviation) for each in verdict(chunked(chunks)).findings]

    thought = {**BASE, "choices": [{"index": 0, "delta": {"reasoning": "Hm"}, "finish_reason": None}]}
    assert found(reasoning="Hm") == found(reasoning_content="Hm") == [("deviation", "one-reasoning")]
    assert found(reasoning="Hm", reasoning_content="Hm") == []
    assert [*verdict(chunked([CHUNKS[0], *[thought] * 3, CHUNKS[1]])).findings.values()] == [3]
    assert found(reasoning="Hm", reasoning_content="Oh") == [("error", "")]


def test_the_first_delta_of_a_call_may_lack_its_arguments() -> None:
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


def test_an_end_marker_in_messages_breaks_m9():
    marked = verdict(framed(EVENTS) + b"data: [DONE]\n\n" * 2)
    assert [(each.rule, each.deviation, each.line, times) for each, times in marked.findings.items()] == [("M9", "marker", 19, 2)]


@for_each(
    ("late", "deviation"),
    [
        ("data: [DONE]\n\n", ""),
        ('data: {"choices": []}\n\n', "after-marker"),
        ('data: {"choices": [], "error": {"message": "No"}}\n\n', ""),
        ('data: {"error": {"message": "No"}}\n\n', ""),
        (f"data: {json.dumps(CHUNKS[1])}\n\n", ""),
        ("data: {\n\n", ""),
    ],
)
def test_what_follows_the_end_marker_of_chat_breaks_c8(late, deviation):
    found = verdict(chunked(CHUNKS) + late.encode()).findings
    assert [(each.rule, each.deviation, each.event, each.line) for each in found] == [("C8", deviation, 2, 7)]


def test_each_further_end_marker_is_a_finding() -> None:
    assert verdict(chunked(CHUNKS) + b"data: [DONE]\n\n" * 5).rules == {"C8": 5}


def test_a_long_beginning_without_an_event_is_judged_as_responses():
    judging = AnyJudge()
    judging.feed(b"x" * (dialects.UNDECIDED + 1))
    assert isinstance(judging._judge, Judge)


# A known request, on which some rules depend


NAMED = {"type": "function", "function": {"name": "f"}}
CALLING = [ROLE, chunk({"tool_calls": [BEGUN]}), chunk({"tool_calls": [MORE]})]
STOPPED = changed([START, *ended("stop_sequence")], 1, delta={"stop_reason": "stop_sequence", "stop_sequence": "END"})


def found(data, **request):
    """The errors and deviations of the stream that answers a request."""
    judging = AnyJudge()
    judging.request(request)
    judging.feed(data)
    return [(each.rule, each.event, each.deviation or each.message) for each in judging.end().findings]


@for_each(
    ("request_fields", "count", "expected"),
    [
        ({"stream_options": {"include_usage": True}}, 0, [("C5", 2, "the usage is missing")]),
        ({"stream_options": {"include_usage": True}}, 1, []),
        ({"stream_options": {"include_usage": False}}, 0, []),
        ({"stream_options": {}}, 1, []),  # many services send it anyway
        ({"stream_options": None}, 0, []),
    ],
)
def test_a_chat_that_asks_for_the_usage_needs_it(request_fields, count, expected) -> None:
    data = chunked([ROLE, chunk(finish_reason="stop"), *[USAGE] * count])
    assert found(data, model="m", **request_fields) == expected


@for_each(
    ("request_fields", "reason", "expected"),
    [
        ({}, "tool_calls", []),
        ({}, "length", []),
        ({}, "stop", [("C3", 3, "the reason is stop, although there is a call")]),
        ({"tool_choice": "required"}, "stop", [("C3", 3, "the reason is stop, although there is a call")]),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [NAMED]}}},
            "stop",
            [("C3", 3, "the reason is stop, although there is a call")],
        ),
        ({"tool_choice": NAMED}, "stop", []),
        ({"function_call": {"name": "f"}}, "stop", []),
        ({"tool_choice": NAMED}, "tool_calls", [("C3", 3, "reason-of-named")]),
    ],
)
def test_the_reason_after_a_call_depends_on_the_tool_choice(request_fields, reason, expected) -> None:
    data = chunked([*CALLING, chunk(finish_reason=reason)])
    assert found(data, model="m", **request_fields) == expected
    assert found(data) == []


def test_a_message_ends_at_a_stop_sequence_of_the_request() -> None:
    data = framed(STOPPED)
    assert found(data) == found(data, model="m", stop_sequences=["\n", "END"]) == []
    expected = [("M8", 1, "the stop sequence 'END' is not one of the request")]
    assert found(data, model="m", stop_sequences=["\n"]) == found(data, model="m") == expected


# Observed streams of Messages and Chat Completions, each with its findings; and hostile streams


FOLDER = Path(__file__).parents[1] / "corpus"
STREAMS = {
    f"{api}-{name}": (api, stream["events"], stream["findings"])
    for api in ("messages", "chat")
    for name, stream in json.loads((FOLDER / f"{api}.json").read_text()).items()
}
BREAKING = {
    "chat-openai.1": "the recording is cut off",
    "chat-evroc.1": "the recording is cut off",
    "messages-vercel-gateway.2": "no message_stop: Anthropic's SDK for JavaScript has no message",
    "chat-snowflake.1": "no finish reason: a client cannot tell a whole answer from half of one",
    "chat-snowflake.2": "no finish reason",
    "chat-litellm-proxy-openai.2": "no finish reason for the second choice",
    "chat-gpustack.2": "a call without an index: the openai package raises",
    "chat-mlflow-gateway-localhost-5002.2": "legacy completions: the text is not where clients of Chat read it",
}
EVERY = pytest.mark.parametrize("name", STREAMS)


def encoded(events, *, framed=True):
    """The events as server-sent events, or as JSON lines."""
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    if not framed:
        return "\n".join(texts).encode()
    names = [event.get("type") if isinstance(event, dict) else None for event in events]
    framing = (f"event: {name}\n" if isinstance(name, str) else "" for name in names)
    return "".join(f"{line}data: {text}\n\n" for line, text in zip(framing, texts, strict=True)).encode()


def judged(events, api=None, **options):
    judge = AnyJudge(api=api)
    judge.feed(encoded(events, **options))
    return judge.end()


@EVERY
def test_each_observed_stream_has_exactly_its_findings(name) -> None:
    api, events, findings = STREAMS[name]
    judge = AnyJudge()
    judge.feed(encoded(events))
    verdict = judge.end()
    assert judge.api == api
    assert [f"{one.rule} {one.deviation or one.message}" for one in verdict.findings] == findings
    assert all(one.rule == DEVIATIONS[one.deviation].rule for one in verdict.findings if one.deviation)
    assert verdict.legal is (name not in BREAKING)


@EVERY
def test_json_lines_with_a_byte_order_mark_have_the_same_findings(name) -> None:
    api, events, findings = STREAMS[name]
    judge = AnyJudge()
    for byte in b"\xef\xbb\xbf\n" + encoded(events, framed=False):
        judge.feed(bytes([byte]))
    verdict = judge.end()
    assert judge.api == api
    found = [f"{one.rule} {one.deviation or one.message}" for one in verdict.findings]
    assert sorted(found) == sorted([*findings, f"{'C8' if api == 'chat' else 'M12'} bare-{api}-lines"])


LEGAL_MESSAGES = [name for name, (api, *_) in STREAMS.items() if api == "messages" and name not in BREAKING]


@pytest.mark.parametrize("name", LEGAL_MESSAGES)
def test_a_wrong_order_in_messages_is_an_error(name) -> None:
    _, events, _ = STREAMS[name]
    events = [event for event in events if event["type"] != "ping"]
    for place, event in enumerate(events):
        rest = [*events[:place], *events[place + 1 :]]
        if event["type"] != "content_block_delta":
            assert not judged(rest, "messages").legal, ("left out", place)
            if event["type"] != "message_delta":
                assert not judged([*events[: place + 1], *events[place:]], "messages").legal, ("twice", place)
        if place and events[place - 1]["type"] != event["type"]:
            swapped = [*events[: place - 1], event, events[place - 1], *events[place + 1 :]]
            assert not judged(swapped, "messages").legal, ("swapped", place)


LEGAL_CHAT = [name for name, (api, *_) in STREAMS.items() if api == "chat" and name not in BREAKING]


def choices_of(chunk):
    return chunk["choices"] if isinstance(chunk, dict) else []


@pytest.mark.parametrize("name", LEGAL_CHAT)
def test_a_wrong_order_in_chat_is_an_error(name) -> None:
    _, events, _ = STREAMS[name]
    ends = [place for place, chunk in enumerate(events) if any(choice.get("finish_reason") for choice in choices_of(chunk))]
    assert not judged([chunk for place, chunk in enumerate(events) if place not in ends], "chat").legal
    late = {**events[ends[-1]], "choices": [{"index": 0, "delta": {"content": "late"}, "finish_reason": None}]}
    assert not judged([*events[: ends[-1] + 1], late, *events[ends[-1] + 1 :]], "chat").legal
    assert not judged([*events, "[DONE]", late], "chat").legal
    calls = [
        place
        for place, chunk in enumerate(events)
        if any(choice.get("delta", {}).get("tool_calls") for choice in choices_of(chunk))
    ]
    for place in calls:
        changed = json.loads(json.dumps(events[place]))
        changed["choices"][0]["delta"]["tool_calls"][0]["index"] = 7
        assert not judged([*events[:place], changed, *events[place + 1 :]], "chat").legal, ("index", place)
        if changed["choices"][0]["delta"]["tool_calls"][0].get("id") and place < calls[-1]:  # nothing refers to the last call
            assert not judged([*events[:place], *events[place + 1 :]], "chat").legal, ("left out", place)


HOSTILE = [None, True, -1, 2**70, 0.5, "", "\ud800", [], ["stop"], [[]], {}, {"type": {}}, [{"index": [], "delta": 5}]]


def replaced(value, other):
    """Yield another value, and a copy of a value for each value inside it, which the other replaces."""
    yield other
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        for changed in replaced(inner, other):
            copy = value.copy()
            copy[key] = changed
            yield copy


@pytest.mark.parametrize(
    "name", ["messages-anthropic.10", "messages-anthropic.3", "chat-openai.3", "chat-mistral.2", "chat-groq.1"]
)
def test_a_hostile_value_is_judged_without_an_exception(name) -> None:
    api, events, _ = STREAMS[name]
    for (place, event), other in product(enumerate(events), HOSTILE):
        for changed in replaced(event, other) if isinstance(event, dict) else ():
            text = json.dumps(changed)
            assert judged([*events[:place], text, *events[place + 1 :]], api).events
        for changed in replaced(event, "DEEP") if isinstance(event, dict) else ():
            text = json.dumps(changed).replace('"DEEP"', "[" * 900 + "]" * 900)
            assert judged([*events[:place], text, *events[place + 1 :]], api).events


@pytest.mark.parametrize("api", ["messages", "chat"])
def test_an_empty_stream_is_not_legal(api) -> None:
    verdict = DIALECT_JUDGES[api]().end()
    assert (verdict.legal, verdict.events) == (False, 0)


@pytest.mark.parametrize(("data", "rule"), [(framed(EVENTS), "M12"), (chunked(CHUNKS), "C8")])
def test_a_stream_without_empty_lines_breaks_the_framing_rule(data, rule) -> None:
    (finding,) = [one for one in verdict(data.replace(b"\n\n", b"\n")).findings if "empty line" in one.message]
    events = data.count(b"data: ")
    assert (finding.rule, finding.message, finding.line) == (rule, f"no empty line separates {events} events", 1)


@pytest.mark.parametrize(
    ("event", "api"),
    [
        (
            {"type": "response.created", "response": {"metadata": {"type": "ping", "object": "chat.completion.chunk"}}},
            "responses",
        ),
        ({"type": "error", "code": "x", "message": "No", "sequence_number": 0}, "responses"),
        ({"type": "error", "error": {"type": "x", "message": "No"}, "sequence_number": 0}, "responses"),
        ({"object": "response", "id": "resp_1"}, "responses"),
        ({"type": "error", "error": {"type": "api_error", "message": "No"}}, "messages"),
        ({"type": "message", "id": "msg_1", "content": []}, "messages"),
        ({"type": "content_block_delta", "index": 0}, "messages"),
        ({"type": "ping"}, "messages"),
        ({"id": "c", "choices": []}, "chat"),
        ({"error": {"message": "No"}}, "chat"),
        ({"object": "chat.completion", "choices": []}, "chat"),
        ({"type": [], "choices": []}, "chat"),
        ({}, "responses"),
    ],
)
def test_the_api_is_detected_by_the_first_event(event, api) -> None:
    text = json.dumps(event).encode()
    for data in (b": hi\n\ndata: " + text + b"\n\n", text, b"[" + text + b"]", json.dumps(event, indent=2).encode()):
        judge = AnyJudge()
        judge.feed(data)
        judge.end()
        assert judge.api == api, data


def test_the_api_is_detected_by_the_event_name_if_the_data_is_unreadable() -> None:
    for event, api in (("message_start", "messages"), ("response.created", "responses"), ("x", "responses")):
        judge = AnyJudge()
        judge.feed(f"event: {event}\ndata: {{\n\n".encode())
        judge.end()
        assert judge.api == api


def variants(event, name):
    """The fields of each type that a field of an event of the SDK may have."""
    types = get_args(event.model_fields[name].annotation)
    return {get_args(each.model_fields["type"].annotation)[0]: each.model_fields for each in types}


def required(fields):
    return {field.alias or name for name, field in fields.items() if field.is_required()} - {"type"}


def test_blocks_and_their_deltas_have_the_required_fields_of_the_sdk() -> None:
    blocks = variants(BetaRawContentBlockStartEvent, "content_block")
    expected = {kind: required(fields) for kind, fields in blocks.items()}
    expected["thinking"] -= {"signature"}  # which Anthropic's own service leaves out at times
    assert {kind: {*fields} for kind, fields in BLOCKS.items()} == expected
    deltas = variants(BetaRawContentBlockDeltaEvent, "delta")
    known = {kind: {*fields} for kinds in BLOCK_DELTAS.values() for kind, fields in kinds.items()}
    assert known == {kind: required(fields) for kind, fields in deltas.items()}
