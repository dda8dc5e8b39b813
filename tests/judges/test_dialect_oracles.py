"""The oracles of Messages and Chat Completions name the rule that a broken stream breaks."""

from copy import deepcopy

import pytest
from each import each

from interlock.judges.chat import check_chat
from interlock.judges.messages import check_messages

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
def test_legal_messages(events):
    assert rules(events) == []


@each(
    ("rule", "events"),
    [
        ("M1", []),
        ("M1", [*ended()]),
        ("M1", [START, START, *ended()]),
        ("M1", changed([START, *ended()], 0, message={**START["message"], "stop_reason": "end_turn"})),
        ("M1", changed([START, *ended()], 0, message={**START["message"], "id": ""})),
        ("M1", changed([START, *ended()], 0, message={**START["message"], "usage": {}})),
        ("M2", [START, *changed(TEXT, 0, index=1), *ended()]),
        ("M2", [START, *changed(TEXT, 1, index=1), *ended()]),
        ("M2", [START, *TEXT[:2], *TEXT, *ended()]),
        ("M2", [START, *TEXT[:2], *ended()]),
        ("M2", [START, TEXT[2], *ended()]),
        ("M3", [START, *block(0, "poem"), *ended()]),
        ("M3", [START, *block(0, "text", {"type": "text_delta", "text": "Hi"}), *ended()]),
        ("M3", [START, *block(0, "text", {"type": "text_delta", "text": "Hi"}, text="Hi"), *ended()]),
        ("M3", [START, *block(0, "text", {"type": "text_delta", "text": "Hi"}, PIECE, text=""), *ended()]),
        ("M3", [START, *block(0, "mcp_tool_result", PIECE, tool_use_id="t", is_error=False, content=[]), *ended()]),
        ("M4", [START, *block(0, "thinking", thinking="", signature=""), *ended()]),
        ("M4", [START, *block(0, "thinking", SIGNED, SIGNED, thinking="", signature=""), *ended()]),
        ("M4", [START, *block(0, "thinking", SIGNED, *[THINKING[1]["delta"]], thinking="", signature=""), *ended()]),
        ("M5", [START, *block(0, "tool_use", id="t", name="f"), *ended("tool_use")]),
        (
            "M5",
            [
                START,
                *block(0, "tool_use", {**PIECE, "partial_json": '{"b": 1}'}, id="t", name="f", input={"a": 1}),
                *ended("tool_use"),
            ],
        ),
        ("M5", [START, *block(0, "tool_use", {**PIECE, "partial_json": "null"}, id="t", name="f", input={}), *ended()]),
        (
            "M5",
            [START, *block(0, "tool_use", {**PIECE, "partial_json": "[1]"}, id="t", name="f", input={}), *ended("max_tokens")],
        ),
        ("M5", [START, *block(0, "tool_use", {**PIECE, "partial_json": '{"a'}, id="t", name="f", input={}), *ended("tool_use")]),
        (
            "M5",
            [
                START,
                *block(0, "tool_use", {**PIECE, "partial_json": '{"a'}, id="t", name="f", input={}),
                *changed(changed(changed(TEXT, 0, index=1), 1, index=1), 2, index=1),
                *ended(),
            ],
        ),
        ("M7", [START, {"type": "message_stop"}]),
        ("M7", [START, ended()[0], *TEXT, {"type": "message_stop"}]),
        ("M7", changed([START, *ended()], 1, usage={})),
        ("M8", [START, *ended("stop")]),
        ("M8", [START, *ended("tool_use")]),
        ("M8", [START, *CALL, *ended()]),
        ("M8", [START, *ended("stop_sequence")]),
        ("M8", changed([START, *ended()], 1, delta={"stop_reason": "end_turn", "stop_sequence": "END"})),
        ("M9", [START, *TEXT]),
        ("M9", [START, *ended(), *TEXT]),
        ("M11", [START, FAILED, *ended()]),
        ("M11", [START, {"type": "error", "error": {}}]),
        ("M14", [START, *block(0, "text", text=""), *ended()]),
    ],
)
def test_broken_messages(rule, events):
    assert rule in rules(events)


def test_a_response_that_ends_in_an_unfinished_call_needs_no_reason():
    cut = block(0, "tool_use", {"type": "input_json_delta", "partial_json": '{"a'}, id="t", name="f", input={})
    assert rules([START, *cut, *ended()]) == []


def test_judging_goes_on_after_an_error() -> None:
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


def test_an_unknown_block_and_event_are_deviations_and_their_order_is_judged() -> None:
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
def test_legal_chat(chunks, usage):
    assert check_chat(chunks, usage=usage) == []


@each(
    ("rule", "chunks"),
    [
        ("C1", [chunk({"content": "Hi"}), chunk(finish_reason="stop")]),
        ("C1", [ROLE, ROLE, chunk(finish_reason="stop")]),
        ("C1", [chunk({"content": "Hi"}), ROLE, chunk(finish_reason="stop")]),
        ("C1", [chunk({"role": "user"}), chunk(finish_reason="stop")]),
        ("C2", []),
        ("C2", [ROLE]),
        ("C2", [ROLE, chunk(finish_reason="stop"), chunk(finish_reason="stop")]),
        ("C2", [ROLE, chunk({"content": "Hi"}, "stop")]),
        ("C2", [ROLE, {**ROLE, "choices": [{"delta": {}}]}, chunk(finish_reason="stop")]),
        ("C2", [ROLE, chunk(finish_reason="done")]),
        ("C2", [ROLE, chunk(finish_reason=["stop"])]),
        ("C2", [ROLE, SECOND, chunk(finish_reason="stop")]),
        ("C3", [ROLE, chunk(finish_reason="tool_calls")]),
        ("C3", [ROLE, chunk(finish_reason="function_call")]),
        ("C4", [ROLE, chunk({"tool_calls": [{**BEGUN, "index": 1}]}), chunk(finish_reason="tool_calls")]),
        ("C4", [ROLE, chunk({"tool_calls": [{**BEGUN, "type": "tool"}]}), chunk(finish_reason="tool_calls")]),
        (
            "C4",
            [ROLE, chunk({"tool_calls": [{**BEGUN, "function": {"name": "f", "arguments": {}}}]}), chunk(finish_reason="stop")],
        ),
        ("C5", [ROLE, chunk(finish_reason="stop"), USAGE]),
        ("C6", [ROLE, chunk(finish_reason="stop", id="d")]),
        ("C6", [ROLE, chunk(finish_reason="stop", object="chat")]),
        ("C6", [ROLE, chunk(finish_reason="stop", object=["chat"])]),
        ("C6", [ROLE, chunk(finish_reason="stop", created=2)]),
        ("C6", [ROLE, chunk(finish_reason="stop"), {**chunk(model="n"), "choices": []}]),
        ("C6", [ROLE, {**ROLE, "choices": None}, chunk(finish_reason="stop")]),
        ("C7", [ROLE, chunk({"reasoning": "Hm"}), chunk(finish_reason="stop")]),
        ("C8", [ROLE, {"error": {}}]),
        ("C8", [{"error": {"message": "No"}}, ROLE, chunk(finish_reason="stop")]),
    ],
)
def test_broken_chat(rule, chunks):
    assert rule in [finding.rule for finding in check_chat(chunks)]


def test_the_usage_of_a_chat_stream_is_requested_counted_once_and_last():
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


def test_an_error_beside_the_last_choice_is_read_with_it():
    failed = {**chunk({}, "stop"), "error": {"message": "It broke."}}
    assert [each.rule for each in check_chat([chunk({"role": "assistant", "content": "Hi"}), failed])] == []
