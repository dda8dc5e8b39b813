"""Streams of Messages and Chat Completions as lines for the page, with the edges of the transducers."""

import json
from itertools import takewhile

import pytest
from live.dialect_streams import MESSAGES, broken_messages, chat, messages

from interlock.dialects.chat import CHAT, ChatEffect
from interlock.dialects.messages import MESSAGES as MESSAGES_TABLE
from interlock.dialects.messages import MessagesEffect
from interlock.judges import DIALECT_JUDGES
from interlock.serving.view.trace import Trace, encode_lines


def lines(data, size=1_000_000):
    trace = Trace()
    made = [line for start in range(0, len(data), size) for line in trace.feed(data[start : start + size])]
    return [json.loads(line) for line in encode_lines([*made, *trace.end()]).splitlines()]


def of(trace_lines, kind):
    return [line for line in trace_lines if line[0] == kind]


def walked(trace_lines):
    """Return each event, after corrections: its lane, its name, and the edges that may have fired."""
    steps = {line[1]: line[2] for line in of(trace_lines, "step")}
    events = of(trace_lines, "e")
    numbers = [event[4] for event in events]
    for _, fixes in of(trace_lines, "fix"):
        for first, number in zip(fixes[::2], fixes[1::2], strict=True):
            before, lane = numbers[first], events[first][1]
            later = [at for at in range(first, len(events)) if events[at][1] == lane]
            for at in takewhile(lambda at, before=before: numbers[at] == before, later):
                numbers[at] = number
    return [
        (lane, name, [f"{source} {trigger} {dest}" for source, trigger, dest, _, _ in steps.get(step, {"fired": []})["fired"]])
        for (_, lane, name, *_), step in zip(events, numbers, strict=True)
    ]


def test_a_message_is_shown_with_a_lane_for_each_block_and_the_edges_of_its_table() -> None:
    trace_lines = lines(messages())
    assert [(line[1], line[2]["kind"], line[2]["name"], line[2]["index"]) for line in of(trace_lines, "lane")] == [
        (0, "message", "m", None),
        (1, "thinking", None, 0),
        (2, "mcp_tool_use", "t", 1),
        (3, "text", None, 2),
        (4, "mcp_tool_result", None, 3),
        (5, "tool_use", "f", 4),
    ]
    assert walked(trace_lines) == [
        (0, "message_start", ["absent begin between"]),
        (1, "content_block_start", ["between think thinking"]),
        (1, "content_block_delta", ["between think thinking"]),
        (1, "content_block_delta", ["thinking seal between"]),
        (1, "content_block_stop", ["thinking seal between"]),
        (2, "content_block_start", ["between use between"]),
        (2, "content_block_delta", ["between use between"]),
        (2, "content_block_stop", ["between use between"]),
        (3, "content_block_start", ["between text text"]),
        (3, "content_block_delta", ["between text text"]),
        (3, "content_block_delta", ["text text text"]),
        (3, "content_block_stop", ["text close between"]),
        (4, "content_block_start", ["between result between"]),
        (4, "content_block_stop", ["between result between"]),
        (5, "content_block_start", ["between call call"]),
        (5, "content_block_delta", ["call argue call"]),
        (5, "content_block_stop", ["call close between"]),
        (0, "message_delta", ["between end ended"]),
        (0, "message_stop", ["between end ended"]),
    ]
    verdict = {"status": "tool_use", "legal": True, "readable": True, "rules": {}}
    assert (trace_lines[-1], of(trace_lines, "f")) == (["end", verdict], [])


def test_a_completion_is_shown_with_a_lane_for_its_text_and_each_call() -> None:
    trace_lines = lines(b": ping\n\n" + chat(), size=10)
    assert [(line[1], line[2]["kind"], line[2]["name"]) for line in of(trace_lines, "lane")] == [
        (0, "completion", "m"),
        (1, "reasoning", None),
        (2, "content", None),
        (3, "tool_call", "f"),
    ]
    assert walked(trace_lines) == [
        (0, "delta.role", ["begun think open"]),
        (1, "delta.reasoning", ["begun think open"]),
        (2, "delta.content", ["open text open"]),
        (2, "delta.content", ["open text open"]),
        (3, "delta.tool_calls", ["open call call"]),
        (3, "delta.tool_calls", ["call argue call"]),
        (0, "finish_reason", ["open end ended"]),
        (0, "usage", []),
        (0, "[DONE]", []),
    ]
    assert trace_lines[-1][1]["legal"] is True


def chunk(delta=None, index=0, finish_reason=None, **fields):
    choices = [] if delta is None else [{"index": index, "delta": delta, "finish_reason": finish_reason}]
    return {"id": "c", "created": 1, "model": "m", "object": "chat.completion.chunk", "choices": choices, **fields}


def chunked(*bodies):
    return b"".join(b"data: %b\n\n" % json.dumps(body).encode() for body in bodies)


def test_other_choices_and_events_have_places_too() -> None:
    role = chunk({"role": "assistant", "content": ""})
    other = chunk({"content": "Hi"}, 1)
    refusal, nothing, error = chunk({"refusal": "No"}), chunk({}), {"error": {"message": "No"}}
    data = chunked(role, other, refusal, nothing) + b"data: {\n\n" + chunked(error)
    trace_lines = lines(data)
    assert walked(trace_lines) == [
        (0, "delta.role", ["begun text open"]),
        (1, "delta.content", ["begun text open"]),
        (2, "delta.refusal", ["open refuse open"]),
        (0, "chat.completion.chunk", []),
        (0, "message", []),
        (0, "error", ["open fail ended"]),
    ]
    assert [line[2]["name"] for line in of(trace_lines, "lane")] == ["m", "choice 1", None]


def test_a_finding_stands_at_its_event_and_no_edge_explains_it() -> None:
    trace_lines = lines(broken_messages())
    (finding,) = of(trace_lines, "f")
    assert finding[:2] == ["f", 9]
    message = "content_block_delta is for block 1, which is not open"
    about = {"rule": "M2", "severity": "error", "deviation": "", "message": message, "expected": [], "line": 28}
    assert finding[2] == about
    places = walked(trace_lines)
    assert places[9:11] == [(2, "content_block_delta", []), (3, "content_block_delta", ["between text text"])]
    assert trace_lines[-1][1]["rules"] == {"M2": 1}


def test_the_walk_goes_on_after_events_that_no_edge_explains() -> None:
    events = [*MESSAGES[:1], {"type": "ping"}, {"type": "poem"}, *MESSAGES[5:]]
    framed = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in [*events[:3], *events[9:]])
    places = walked(lines(framed.encode()))
    assert places[:4] == [
        (0, "message_start", ["absent begin between"]),
        (0, "ping", []),
        (0, "poem", []),
        (1, "content_block_stop", []),
    ]
    assert places[4] == (2, "content_block_start", ["between result between"])


def test_a_stream_without_an_event_is_one_of_responses() -> None:
    assert [line[2]["rule"] for line in of(lines(b"", 7), "f")] == ["R3", "R3"]


@pytest.mark.parametrize(
    ("api", "effects", "silent"),
    [
        ("messages", MessagesEffect, {"hold_use", "hold_result", "release"}),
        ("chat", ChatEffect, {"annotation", "base", "sealed"}),
    ],
)
def test_every_effect_has_its_events(api, effects, silent) -> None:
    assert {effect.value for effect in effects if effect not in DIALECT_JUDGES[api].emitted} == silent


@pytest.mark.parametrize(
    ("table", "data", "unseen"),
    [
        (
            MESSAGES_TABLE,
            messages(),
            {
                *(
                    "between refuse text",
                    "text refuse text",
                    "thinking think thinking",
                    "between seal between",
                    "between fail ended",
                ),
                *("between quote text", "text argue text"),
            },
        ),
        (
            CHAT,
            chat(),
            {
                *("begun call call", "begun end ended", "begun fail ended", "begun quote call", "begun refuse open"),
                *(
                    "begun seal open",
                    "begun text open",
                    "open fail ended",
                    "open quote call",
                    "open refuse open",
                    "open think open",
                ),
            },
        ),
    ],
)
def test_the_streams_fire_all_other_edges_that_emit(table, data, unseen) -> None:
    emitting = {
        f"{name} {trigger} {dest.name}"
        for name, state in table.states.items()
        for trigger, (dest, effects) in state.rows.items()
        if any(effect in DIALECT_JUDGES[table.name].emitted for effect in effects)
    }
    assert emitting - {edge for _, _, edges in walked(lines(data)) for edge in edges} == unseen
