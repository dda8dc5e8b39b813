"""The lines for the page of the viewer: a stream's events, the edges that fired, and its findings."""

import json
from itertools import groupby, takewhile
from pathlib import Path

import pytest
from for_each import for_each
from live.wire import MESSAGES, broken_messages, chat, messages

from interlock.dialects.chat import CHAT, ChatEffect
from interlock.dialects.messages import MESSAGES as MESSAGES_TABLE
from interlock.dialects.messages import MessagesEffect
from interlock.fsm.lifecycles import LIFECYCLES, RESPONSE
from interlock.judges import DIALECT_JUDGES, Acceptor, Judge
from interlock.serving.engines.recordings import read, replay_frames
from interlock.serving.view.recordings import recording_lines
from interlock.serving.view.trace import FiredEdge, Step, Trace, encode_lines, explain, narrow_steps

ROOT = Path(__file__).parents[3]
CORPUS = ROOT / "tests" / "corpus"
RECORDINGS = sorted((CORPUS / "recordings").glob("*.jsonl"))


def lines(path):
    trace = Trace()
    trace_lines = [*trace.feed(path.read_bytes()), *trace.end()]
    return [json.loads(line) for line in encode_lines(trace_lines).splitlines()]


def of_kind(trace_lines, kind):
    return [line for line in trace_lines if line[0] == kind]


def steps(trace_lines):
    """Return each event that moved a machine: its name, and the edges that fired, after corrections."""
    by_number = {line[1]: line[2] for line in of_kind(trace_lines, "step")}
    events = of_kind(trace_lines, "e")
    numbers = [event[4] for event in events]
    for _, fixes in of_kind(trace_lines, "fix"):
        numbers[fixes[0]] = fixes[1]
        for event, number in zip(fixes[::2], fixes[1::2], strict=True):
            numbers[event] = number
    return [
        (event[2].removeprefix("response."), [tuple(edge[:3]) for edge in by_number[number]["fired"]])
        for event, number in zip(events, numbers, strict=True)
        if number >= 0
    ]


def test_each_event_has_a_line_with_the_edges_that_fired() -> None:
    trace_lines = lines(CORPUS / "legal" / "function-call.sse")
    assert of_kind(trace_lines, "lane")[0] == ["lane", 1, {"kind": "function_call", "name": "f", "id": "fc_0", "index": 0}]
    opening = ("absent", "open", "in_progress")
    append = ("in_progress", "append", "in_progress")
    close = ("in_progress", "close", "completed")
    assert [step for step in steps(trace_lines) if step[1] != []][:7] == [
        ("created", [("absent", "start", "in_progress")]),
        ("in_progress", [("absent", "start", "in_progress")]),
        ("output_item.added", [opening]),
        ("function_call_arguments.delta", [append]),
        ("function_call_arguments.delta", [append]),
        ("function_call_arguments.done", [close]),
        ("output_item.done", [close]),
    ]
    assert steps(trace_lines)[-1] == ("completed", [("in_progress", "complete", "completed")])
    assert of_kind(trace_lines, "e")[-1][2:] == ["[DONE]", None, -1, None, 6, "[DONE]"]
    assert of_kind(trace_lines, "end") == [["end", {"status": "completed", "legal": True, "readable": True, "rules": {}}]]


def test_a_finding_has_the_number_of_its_event() -> None:
    trace_lines = lines(CORPUS / "broken" / "R8-text-not-done.sse")
    (finding,) = of_kind(trace_lines, "f")
    assert finding[:2] == ["f", 7]
    assert (finding[2]["rule"], finding[2]["severity"], finding[2]["message"]) == ("R8", "error", "breaks the order of parts")
    assert finding[2]["expected"][0].startswith("response.output_text.")
    assert of_kind(trace_lines, "end")[0][1]["rules"] == {"R8": 1}


def names(trace_lines, kind):
    """The last name of each lane of a kind."""
    return [*{lane: about["name"] for _, lane, about in of_kind(trace_lines, "lane") if about["kind"] == kind}.values()]


def test_the_lane_of_a_search_is_named_by_its_query() -> None:
    replayed = b"".join(replay_frames(read(CORPUS / "recordings" / "web-search.jsonl")))
    assert names(lines_of(replayed), "web_search_call") == ["h11 author", "https://h11.example", "written by"]
    late = CORPUS / "observed" / "openai-openai-web-search-tool.1.sse"
    assert set(names(lines(late), "web_search_call")) == {"words of our own"}
    files = CORPUS / "observed" / "openai-openai-file-search-tool.1.sse"
    assert names(lines(files), "file_search_call") == ["words of our own"]


def test_a_keepalive_is_an_event_of_the_response_without_a_finding() -> None:
    trace = Trace()
    created, *rest = (CORPUS / "legal" / "nothing.sse").read_bytes().split(b"\n\n")
    silence = b'event: keepalive\ndata: {"type": "keepalive", "sequence_number": 1}'
    rest = [
        frame.replace(b'"sequence_number": 2', b'"sequence_number": 3').replace(b'"sequence_number": 1', b'"sequence_number": 2')
        for frame in rest
    ]
    trace_lines = [*trace.feed(b"\n\n".join([created, silence, *rest])), *trace.end()]
    assert [line[1:5] for line in of_kind(trace_lines, "e")][1] == (0, "keepalive", 1, -1)
    assert of_kind(trace_lines, "f") == []


def test_a_finding_at_the_end_comes_after_the_last_event() -> None:
    trace_lines = lines(CORPUS / "broken" / "R3-no-end.sse")
    assert {line[1] for line in of_kind(trace_lines, "f")} == {len(of_kind(trace_lines, "e"))}


@pytest.mark.long
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*.sse")), ids=lambda path: path.stem)
def test_every_stream_gives_the_same_lines_in_any_chunks(path) -> None:
    data = path.read_bytes()
    trace = Trace()
    pieces = [line for at in range(0, len(data), 7) for line in trace.feed(data[at : at + 7])]
    trace_lines = [json.loads(line) for line in encode_lines([*pieces, *trace.end()]).splitlines()]
    assert trace_lines == lines(path)
    assert [event[7] for event in of_kind(trace_lines, "e")] == [
        line.removeprefix("data:").removeprefix(" ")
        for line in data.decode(errors="replace").replace("\r", "").split("\n")
        if line.startswith("data:")
    ] or path.stem in {"R5-two-data-lines", "R5-cut-inside-a-frame"}


def test_the_time_of_an_event_is_that_of_its_last_chunk() -> None:
    data = (CORPUS / "legal" / "message.sse").read_bytes()
    trace = Trace()
    trace_lines = [*trace.feed(data[:1000], 0), *trace.feed(data[1000:], 250)]
    times = [line[5] for line in trace_lines if line[0] == "e"]
    assert times == sorted(times)
    assert set(times) == {0, 250}


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_gives_the_origin_of_each_event(path) -> None:
    recording = read(path)
    trace_lines = [json.loads(line) for batch in recording_lines(recording, Trace()) for line in encode_lines(batch).splitlines()]
    assert of_kind(trace_lines, "f") == []
    origins = [line[2] for line in of_kind(trace_lines, "origin")]
    assert len(origins) > 1
    tokens = [token for one in origins for token, _ in one.get("tokens", ())]
    recorded_tokens = [token for turn in recording.turns for output in turn.outputs for token in output.chunk.token_ids]
    assert tokens == (recorded_tokens if recording.format == "harmony" else [])
    for one in origins:
        for (_, _, dest), (source, _, _) in zip(one.get("framing", ()), one.get("framing", ())[1:], strict=False):
            assert dest == source


def test_hostile_streams_raise_no_error() -> None:
    bodies = [
        b'event: x\ndata: {"type": 3, "output_index": "0", "item": []}\n\n',
        b'event: response.output_item.added\ndata: {"type": "response.output_item.added", "output_index": 0, "item": null}\n\n',
        b"event: \xff\xfe\ndata: \xc3\x28 broken\n\n",
        b'data: {"type": "response.output_text.delta", "delta": "\\ud800", "output_index": true, "sequence_number": 1e999}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
        b'data: {"type": "<script>alert(1)</script>", "output_index": 99999999999999999999999999}\n\n',
    ]
    trace = Trace()
    trace_lines = [json.loads(line) for line in encode_lines([*trace.feed(b"".join(bodies)), *trace.end()]).splitlines()]
    assert len(of_kind(trace_lines, "e")) == len(bodies)


# Streams of Messages and Chat Completions as lines for the page, with the edges of the transducers


def lines_of(data, size=1_000_000):
    trace = Trace()
    made = [line for start in range(0, len(data), size) for line in trace.feed(data[start : start + size])]
    return [json.loads(line) for line in encode_lines([*made, *trace.end()]).splitlines()]


def fired_edges(trace_lines):
    """Return each event, after corrections: its lane, its name, and the edges that may have fired."""
    steps = {line[1]: line[2] for line in of_kind(trace_lines, "step")}
    events = of_kind(trace_lines, "e")
    numbers = [event[4] for event in events]
    for _, fixes in of_kind(trace_lines, "fix"):
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
    trace_lines = lines_of(messages())
    assert [(line[1], line[2]["kind"], line[2]["name"], line[2]["index"]) for line in of_kind(trace_lines, "lane")] == [
        (0, "message", "m", None),
        (1, "thinking", None, 0),
        (2, "mcp_tool_use", "t", 1),
        (3, "text", None, 2),
        (4, "mcp_tool_result", None, 3),
        (5, "tool_use", "f", 4),
    ]
    assert fired_edges(trace_lines) == [
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
    assert (trace_lines[-1], of_kind(trace_lines, "f")) == (["end", verdict], [])


def test_a_completion_is_shown_with_a_lane_for_its_text_and_each_call() -> None:
    trace_lines = lines_of(b": ping\n\n" + chat(), size=10)
    assert [(line[1], line[2]["kind"], line[2]["name"]) for line in of_kind(trace_lines, "lane")] == [
        (0, "completion", "m"),
        (1, "reasoning", None),
        (2, "content", None),
        (3, "tool_call", "f"),
    ]
    assert fired_edges(trace_lines) == [
        (0, "delta.role", ["created think open"]),
        (1, "delta.reasoning", ["created think open"]),
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


def test_other_choices_and_events_have_lanes() -> None:
    role = chunk({"role": "assistant", "content": ""})
    other = chunk({"content": "Hi"}, 1)
    refusal, nothing, error = chunk({"refusal": "No"}), chunk({}), {"error": {"message": "No"}}
    data = chunked(role, other, refusal, nothing) + b"data: {\n\n" + chunked(error)
    trace_lines = lines_of(data)
    assert fired_edges(trace_lines) == [
        (0, "delta.role", ["created text open"]),
        (1, "delta.content", ["created text open"]),
        (2, "delta.refusal", ["open refuse open"]),
        (0, "chat.completion.chunk", []),
        (0, "message", []),
        (0, "error", ["open fail ended"]),
    ]
    assert [line[2]["name"] for line in of_kind(trace_lines, "lane")] == ["m", "choice 1", None]


@pytest.mark.parametrize("index", [["0"], {}, "0", None, 0.5, 2**80])
def test_a_chunk_with_an_index_of_any_type_is_shown(index) -> None:
    call = {"tool_calls": [{"index": index, "id": "a", "function": {"name": "f", "arguments": ""}}]}
    trace_lines = lines_of(chunked(chunk({"content": "Hi"}, index), chunk(call, index)))
    assert [name for _, name, _ in fired_edges(trace_lines)] == ["delta.content", "delta.tool_calls"]


def test_a_finding_is_shown_at_its_event_which_no_edge_explains() -> None:
    trace_lines = lines_of(broken_messages())
    (finding,) = of_kind(trace_lines, "f")
    assert finding[:2] == ["f", 9]
    message = "content_block_delta is for block 1, which is not open"
    about = {"rule": "M2", "severity": "error", "deviation": "", "message": message, "expected": [], "line": 28}
    assert finding[2] == about
    places = fired_edges(trace_lines)
    assert places[9:11] == [(2, "content_block_delta", []), (3, "content_block_delta", ["between text text"])]
    assert trace_lines[-1][1]["rules"] == {"M2": 1}


def test_events_after_unexplained_ones_are_explained_by_edges() -> None:
    events = [*MESSAGES[:1], {"type": "ping"}, {"type": "poem"}, *MESSAGES[5:]]
    framed = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in [*events[:3], *events[9:]])
    places = fired_edges(lines_of(framed.encode()))
    assert places[:4] == [
        (0, "message_start", ["absent begin between"]),
        (0, "ping", []),
        (0, "poem", []),
        (1, "content_block_stop", []),
    ]
    assert places[4] == (2, "content_block_start", ["between result between"])


def test_a_stream_without_events_is_judged_as_one_of_responses() -> None:
    assert [line[2]["rule"] for line in of_kind(lines_of(b"", 7), "f")] == ["R3", "R3"]


@pytest.mark.parametrize(
    ("api", "effects", "silent"),
    [
        ("messages", MessagesEffect, {"hold_use", "hold_result", "release"}),
        ("chat", ChatEffect, {"annotation", "base", "sealed"}),
    ],
)
def test_every_effect_emits_events_except_the_silent_ones(api, effects, silent) -> None:
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
                *("created call call", "created end ended", "created fail ended", "created quote call", "created refuse open"),
                *(
                    "created seal open",
                    "created text open",
                    "open fail ended",
                    "open quote call",
                    "open refuse open",
                    "open think open",
                ),
            },
        ),
    ],
)
def test_the_sample_streams_fire_every_emitting_edge_except_the_listed_ones(table, data, unseen) -> None:
    emitting = {
        f"{name} {trigger} {dest.name}"
        for name, state in table.states.items()
        for trigger, (dest, effects) in state.rows.items()
        if any(effect in DIALECT_JUDGES[table.name].emitted for effect in effects)
    }
    assert emitting - {edge for _, _, edges in fired_edges(lines_of(data)) for edge in edges} == unseen


# The edges with which the acceptor explains events


LEGAL = sorted((CORPUS / "legal").glob("*.sse"))


def judged_messages(path):
    return list(Judge().follow(path.read_bytes()))


def machines(path):
    """Give the narrowed steps of each lifecycle in a stream."""
    steps = sorted(
        (explain(one.transition) for one in judged_messages(path) if one.transition),
        key=lambda step: -1 if step.index is None else step.index,
    )
    return [(index, narrow_steps(list(group))) for index, group in groupby(steps, key=lambda step: step.index)]


def edges(step):
    return [(edge.source, edge.trigger, edge.dest) for edge in step.fired]


def test_the_edges_of_a_legal_message_lead_from_absent_to_completed() -> None:
    (_, response), (_, message) = machines(CORPUS / "legal" / "message.sse")
    assert [(edges(step), step.states) for step in response] == [
        ([("absent", "start", "in_progress")], ("absent",)),
        ([("absent", "start", "in_progress")], ("in_progress",)),
        ([("in_progress", "complete", "completed")], ("completed",)),
    ]
    assert [edges(step) for step in message] == [
        [("pending", "append", "output_text")],
        [("pending", "append", "output_text")],
        [("pending", "append", "output_text")],
        [("output_text", "append", "output_text")],
        [("output_text", "append", "output_text")],
        [("output_text", "close", "completed")],
        [("output_text", "close", "completed")],
        [("output_text", "close", "completed")],
    ]
    assert message[0].fired[0].silent == (("absent", "open", "pending"),)
    assert [step.state for step in message] == [
        "leaving pending",
        "leaving pending",
        "output_text",
        "output_text",
        "output_text",
        "leaving output_text",
        "leaving output_text",
        "completed",
    ]


def test_a_truncated_item_ends_with_the_edge_cut() -> None:
    (_, cut) = machines(CORPUS / "legal" / "message-cut.sse")[-1]
    assert [edges(step) for step in cut[-3:]] == [[("output_text", "cut", "incomplete")]] * 3
    assert cut[-1].states == ("incomplete",)


def test_a_running_tool_is_in_the_state_calling() -> None:
    (_, call) = machines(CORPUS / "legal" / "mcp-call.sse")[-1]
    assert [step.states for step in call] == [
        ("absent",),
        ("in_progress",),
        ("in_progress",),
        ("in_progress",),
        ("calling",),
        ("calling",),
        ("completed",),
    ]
    assert call[1].possible == ("ready",)
    assert call[4].fired == (FiredEdge("ready", "run", "calling", silent=(("in_progress", "close", "ready"),)),)


@for_each("path", LEGAL, ids=lambda path: path.stem)
def test_every_event_of_a_legal_stream_is_explained_by_edges_of_its_lifecycle(path) -> None:
    for index, steps in machines(path):
        lifecycle = RESPONSE if index is None else LIFECYCLES[steps[0].machine]
        declared = {(edge.source, edge.trigger, edge.dest) for edge in lifecycle.edges}
        for step in steps:
            assert step.machine == lifecycle.name
            assert step.fired
            assert {*edges(step), *(way for edge in step.fired for way in edge.silent)} <= declared


def test_every_edge_of_a_message_with_several_parts_is_certain_after_narrowing() -> None:
    (_, parts) = machines(CORPUS / "legal" / "message-parts.sse")[-1]
    assert [len(step.fired) for step in parts] == [1] * len(parts)


def test_an_event_out_of_place_fires_nothing() -> None:
    fired = [explain(one.transition).fired for one in judged_messages(CORPUS / "broken" / "R8-text-not-done.sse") if one.findings]
    assert fired == [()]


def test_an_illegal_event_is_shown_in_the_states_that_its_finding_names() -> None:
    illegal = {
        (path.stem, finding.state): explain(one.transition)
        for path in sorted((CORPUS / "broken").glob("R[18]-*.sse"))
        for one in judged_messages(path)
        for finding in one.findings
        if one.transition and finding.expected and finding.severity == "error" and not explain(one.transition).fired
    }
    assert [(*found, step.state, step.states) for found, step in illegal.items()] == [
        ("R1-no-created", "absent", "absent", ("absent",)),
        ("R1-opening-late", "in_progress", "in_progress", ("in_progress",)),
        ("R1-opening-twice", "in_progress", "in_progress", ("in_progress",)),
        ("R1-queued-after-in-progress", "in_progress", "in_progress", ("in_progress",)),
        ("R8-part-not-added", "leaving pending", "leaving pending", ("pending",)),
        ("R8-part-not-done", "leaving output_text", "leaving output_text", ("output_text",)),
        ("R8-text-not-done", "output_text", "output_text", ("output_text",)),
        ("R8-two-parts-at-once", "output_text", "output_text", ("output_text",)),
        ("R8-two-parts-at-once", "in_progress", "in_progress", ("in_progress",)),
    ]
    (step,) = [explain(one.transition) for one in judged_messages(CORPUS / "broken" / "R11-never-searched.sse") if one.findings]
    assert (step.state, step.states, step.possible) == ("in_progress or ready", ("in_progress", "ready"), ())


def test_an_event_without_a_lifecycle_has_no_step() -> None:
    messages = [*Judge().follow(b'event: error\ndata: {"type": "error"}\n\nevent: x\ndata: nonsense\n\ndata: [DONE]\n\n')]
    assert [(one.message.event, one.body, one.transition) for one in messages] == [
        ("error", {"type": "error"}, None),
        ("x", None, None),
        ("message", None, None),
    ]


def test_narrowing_keeps_the_edges_that_no_later_step_contradicts() -> None:
    one, other = FiredEdge("a", "x", "b"), FiredEdge("a", "y", "c")
    later = FiredEdge("b", "z", "d")
    steps = [Step("m", 0, (one, other), ("b", "c")), Step("m", 0, (later,), ("d",)), Step("m", 0), Step("m", 0, (one,), ("b",))]
    assert narrow_steps(steps) == [Step("m", 0, (one,), ("b",), state="b"), *steps[1:]]
    steps = narrow_steps([Step("m", 0, (later,)), Step("m", 0, (FiredEdge("b", "x", "e"), FiredEdge("d", "y", "e")))])
    assert steps[1].fired == (FiredEdge("d", "y", "e"),)
    assert narrow_steps([Step("m", 0, (one,)), Step("m", 0, (FiredEdge("q", "z", "d"),))])[0].fired == (one,)


def test_an_item_without_a_lifecycle_has_no_machine() -> None:
    acceptor = Acceptor(first_sequence_number=None)
    item = {"id": "x_0", "type": "something_new"}
    acceptor.feed({"type": "response.output_item.added", "sequence_number": 7, "output_index": 3, "item": item})
    assert explain(acceptor.transition) == Step("", 3)


def test_an_edge_with_a_single_event_always_begins() -> None:
    acceptor = Acceptor(first_sequence_number=None)
    text = {"item_id": "msg_0", "output_index": 0, "content_index": 0, "delta": "x", "logprobs": []}
    acceptor.feed({"type": "response.output_text.delta", "sequence_number": 7, **text})
    fired = explain(acceptor.transition).fired
    appended = [edge.begins for edge in fired if (edge.source, edge.trigger) == ("output_text", "append")]
    assert appended == [True]
