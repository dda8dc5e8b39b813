"""Every recording of the repository replays to a legal stream, the same for any chunks and without streaming."""

import json
from pathlib import Path

import httpx
import pytest
from for_each import for_each
from live.wire import bodies, post_message, without_chance
from recovery.cases import recordings

from interlock.events.conversion import response_to_openai, to_openai
from interlock.events.json import as_json
from interlock.parsers import Chunk, Tagged
from interlock.serving.build import build
from interlock.serving.engines.engine import EngineOutput
from interlock.serving.engines.recordings import (
    EPOCH,
    RecordedTurn,
    Recording,
    RecordingError,
    ToolResult,
    read,
    rechunk,
    replay_events,
    replay_frames,
    replay_response,
    write,
)
from interlock.serving.engines.script import ScriptedEngine, recorded_rule
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings
from interlock.serving.tools.hosting import ScriptedTools
from interlock.verify.oracle import check

FOLDER = Path(__file__).parents[2] / "corpus" / "recordings"
RECORDINGS = {**{path.stem: read(path) for path in sorted(FOLDER.glob("*.jsonl"))}, **recordings()}

each_recording = for_each("recording", RECORDINGS.values(), ids=RECORDINGS)


def bodies_of(recording) -> list[dict]:
    frames = [*replay_frames(recording)]
    assert frames[-1] == b"data: [DONE]\n\n"
    return [json.loads(frame.split(b"\ndata: ")[1]) for frame in frames[:-1]]


@each_recording
def test_the_oracle_finds_no_fault_in_a_replay(recording) -> None:
    assert check(bodies_of(recording)) == []


@each_recording
@for_each("size", [1, 2, 7, 1000])
def test_other_chunks_give_a_legal_stream_with_the_same_response(recording, size) -> None:
    cut = rechunk(recording, size)
    assert check(bodies_of(cut)) == []
    assert replay_response(cut) == replay_response(recording)


@each_recording
def test_the_response_equals_that_of_the_terminal_event(recording) -> None:
    assert json.loads(json.dumps(replay_response(recording))) == bodies_of(recording)[-1]["response"]


@each_recording
def test_the_sdk_has_a_type_for_every_event_and_for_the_response(recording) -> None:
    assert [to_openai(body).type for body in bodies_of(recording)] == [body["type"] for body in bodies_of(recording)]
    assert response_to_openai(bodies_of(recording)[-1]["response"]).id == "resp_1"


@each_recording
def test_replayed_events_equal_the_frames(recording) -> None:
    assert [as_json(event) for event in replay_events(recording)] == bodies_of(recording)


@each_recording
def test_every_recording_is_written_and_read_back_unchanged(recording) -> None:
    assert read(write(recording)) == recording


def test_the_recordings_have_each_kind_of_item_that_a_model_writes() -> None:
    kinds = {item["type"] for recording in RECORDINGS.values() for item in replay_response(recording)["output"]}
    assert kinds == {
        "reasoning",
        "message",
        "function_call",
        "custom_tool_call",
        "mcp_call",
        "code_interpreter_call",
        "web_search_call",
    }


def test_the_recordings_have_each_final_status() -> None:
    statuses = {replay_response(recording)["status"] for recording in RECORDINGS.values()}
    assert statuses == {"completed", "incomplete", "failed", "cancelled"}


def summary(name: str) -> list[tuple[object, ...]]:
    """Return the kind, the status and a characteristic field of each item."""
    telling = ("name", "action", "code", "phase")
    return [
        (item["type"], item["status"], *(item[field] for field in telling if field in item))
        for item in replay_response(RECORDINGS[name])["output"]
    ]


@for_each(
    ("name", "items"),
    [
        ("answer", [("reasoning", "completed"), ("message", "completed", "final_answer")]),
        (
            "preamble-and-function-call",
            [
                ("reasoning", "completed"),
                ("message", "completed", "commentary"),
                ("function_call", "completed", "get_weather"),
            ],
        ),
        ("two-calls", [("function_call", "completed", "get_weather")] * 2),
        ("function-call-without-arguments", [("function_call", "completed", "now")]),
        ("custom-tool-call", [("reasoning", "completed"), ("custom_tool_call", "completed", "apply_patch")]),
        ("mcp-call-that-fails", [("mcp_call", "failed", "lookup"), ("message", "completed", "final_answer")]),
        (
            "code-interpreter",
            [
                ("reasoning", "completed"),
                ("code_interpreter_call", "completed", "print(2**64)"),
                ("message", "completed", "final_answer"),
            ],
        ),
        ("cut-in-reasoning", [("reasoning", "incomplete")]),
        ("cut-in-message", [("reasoning", "completed"), ("message", "incomplete", "final_answer")]),
        ("cut-in-arguments", [("function_call", "incomplete", "get_weather")]),
        ("cut-in-code", [("code_interpreter_call", "incomplete", "print(2**")]),
        ("engine-error", [("message", "incomplete", "final_answer")]),
    ],
)
def test_a_recording_gives_the_items_that_its_name_says(name, items) -> None:
    assert summary(name) == items


FAMILIES = {name: recording for name, recording in RECORDINGS.items() if name.startswith("family-")}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_the_same_turn_is_the_same_response_in_every_family(size) -> None:
    assert len(FAMILIES) == 12
    for recording in FAMILIES.values():
        steps = [
            (item["type"], item.get("arguments") or item["content"][0]["text"])
            for item in replay_response(rechunk(recording, size))["output"]
        ]
        assert steps == [
            ("reasoning", "The user wants the weather, twice."),
            ("message", "Let me look."),
            ("function_call", '{"city":"Berlin"}'),
            ("function_call", '{"city":"Zürich \\"Altstadt\\""}'),
        ]


# Recordings are read, refused with the number of the wrong line, and written back


HEADER = '{"interlock_recording": 1, "format": "harmony", "request": {"model": "m"}}'


def lines_of(*lines: object) -> list[str]:
    return [HEADER, *(json.dumps(line) for line in lines)]


def test_a_recording_is_a_request_and_turns_of_outputs_with_the_results_of_their_tools() -> None:
    lines = lines_of(
        {"token_ids": [1, 2], "usage": {"input_tokens": 7, "cached_tokens": 4}},
        {"token_ids": [3], "finish_reason": "stop"},
        {"tool_result": {"output": "4", "error": None}},
        {"tool_result": {"error": "no network"}},
        {"token_ids": [5]},
    )
    assert read(lines) == Recording(
        format="harmony",
        request={"model": "m"},
        turns=(
            RecordedTurn(
                outputs=(
                    EngineOutput(Chunk(token_ids=(1, 2)), input_tokens=7, cached_tokens=4),
                    EngineOutput(Chunk(token_ids=(3,)), finish_reason="stop"),
                ),
                results=(ToolResult("4"), ToolResult(error="no network")),
            ),
            RecordedTurn(outputs=(EngineOutput(Chunk(token_ids=(5,))),)),
        ),
    )


def test_a_finish_reason_ends_a_turn_without_any_tool() -> None:
    turns = read(lines_of({"token_ids": [1], "finish_reason": "stop"}, {"token_ids": [2]})).turns
    assert [len(turn.outputs) for turn in turns] == [1, 1]


def test_a_result_of_a_tool_ends_a_turn_without_a_finish_reason() -> None:
    turns = read(lines_of({"token_ids": [1]}, {"tool_result": {"output": "x"}}, {"token_ids": [2]})).turns
    assert [turn.finish_reason for turn in turns] == ["stop", "stop"]


@pytest.mark.parametrize("reason", ["stop", "length", "abort", "error", "content_filter"])
def test_a_turn_can_have_any_finish_reason(reason) -> None:
    assert read(lines_of({"token_ids": [1], "finish_reason": reason})).turns[0].finish_reason == reason


def test_the_stop_string_that_ended_a_turn_is_kept() -> None:
    chunk = {"text": "Hi", "finish_reason": "stop", "stop_sequence": "END"}
    once = read([HEADER.replace("harmony", "text"), json.dumps(chunk)])
    assert once.turns[0].outputs[-1].stop_sequence == "END"
    assert read(write(once)) == once
    assert rechunk(once, 1).turns[0].outputs[-1].stop_sequence == "END"
    with ServerThread(build(Settings(), ScriptedEngine([recorded_rule(once)]))) as url:
        message = post_message(url, model="interlock-script", stop_sequences=["END"]).json()
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "END")


def test_a_recording_without_chunks_has_no_turns_and_an_empty_turn_stopped_by_itself() -> None:
    assert read([HEADER]).turns == ()
    assert RecordedTurn().finish_reason == "stop"


def test_text_log_probabilities_and_deltas_are_kept_unchanged() -> None:
    logprobs = [{"token": "a", "bytes": [97], "logprob": -0.5, "top_logprobs": []}]
    delta = {"role": "assistant", "content": None, "tool_calls": [{"index": 0, "function": {"name": "f"}}]}
    (turn,) = read(lines_of({"text": "a", "logprobs": logprobs}, {"delta": delta})).turns
    assert [output.chunk for output in turn.outputs] == [
        Chunk(text="a", logprobs=tuple(logprobs)),
        Chunk(delta=delta),
    ]


def test_empty_lines_and_windows_line_ends_are_skipped(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\r\n" + HEADER.encode() + b'\r\n\r\n{"token_ids": [1]}\r\n')
    assert read(path) == read(lines_of({"token_ids": [1]}))


def test_a_written_recording_reads_back_the_same() -> None:
    logprobs = [{"token": "\ud800", "bytes": None, "logprob": -1.0, "top_logprobs": []}]
    lines = lines_of(
        {"token_ids": [1], "usage": {"input_tokens": 3}},
        {
            "text": "ü\ud800",
            "logprobs": logprobs,
            "finish_reason": "stop",
            "usage": {"cached_tokens": 1, "cache_write_tokens": 2},
        },
        {"tool_result": {"output": "✓"}},
        {"delta": {"reasoning": "r"}, "finish_reason": "length"},
        {},
    )
    once = read(lines)
    assert read(write(once)) == once
    assert [*write(read(write(once)))] == [*write(once)]


@for_each(
    ("lines", "line", "message"),
    [
        ([], 1, "not a recording: its first line has no interlock_recording"),
        (["", '{"token_ids": []}'], 2, "not a recording: its first line has no interlock_recording"),
        (['{"interlock_recording": 2}'], 1, "not version 1 of the format, the only known one"),
        (['{"interlock_recording": 1}'], 1, "Object missing required field `format`"),
        (['{"interlock_recording": 1, "format": []}'], 1, "Expected `str`, got `array` - at `$.format`"),
        (['{"interlock_recording": 1, "format": "sse"}'], 1, "Invalid enum value 'sse' - at `$.format`"),
        (
            ['{"interlock_recording": 1, "format": "text", "request": []}'],
            1,
            "Expected `object | null`, got `array` - at `$.request`",
        ),
        (['{"interlock_recording": 1, "format": "text", "turns": []}'], 1, "Object contains unknown field `turns`"),
        (["[1]"], 1, "not a JSON object"),
        ([b"\xff\xfe\x00"], 1, "not JSON: "),
        (["[" * 100_000], 1, "not JSON: "),
        ([HEADER, "{", "}"], 2, "not JSON: "),
        ([f'{{"interlock_recording": 1, "request": {"[" * 300 + "]" * 300}}}'], 1, "nested more than 200 levels deep"),
        (lines_of({"\ud800": 1}), 2, "a lone surrogate in a field's name, or in a value with fixed choices"),
        (lines_of({"tokens": [1]}), 2, "Object contains unknown field `tokens`"),
        (lines_of({"token_ids": 1}), 2, "Expected `array | null`, got `int` - at `$.token_ids`"),
        (lines_of({"token_ids": [1, "2"]}), 2, "Expected `int`, got `str` - at `$.token_ids[1]`"),
        (lines_of({"token_ids": [True]}), 2, "Expected `int`, got `bool` - at `$.token_ids[0]`"),
        (lines_of({"text": 1}), 2, "Expected `str | null`, got `int` - at `$.text`"),
        (lines_of({"logprobs": [1]}), 2, "Expected `object`, got `int` - at `$.logprobs[0]`"),
        (lines_of({"token_ids": [1, 2], "logprobs": [{"token": "a", "logprob": -1.0}]}), 2, "1 logprobs for 2 token_ids"),
        (lines_of({"finish_reason": "done"}), 2, "Invalid enum value 'done' - at `$.finish_reason`"),
        (lines_of({"usage": {"input_tokens": True}}), 2, "Expected `int | null`, got `bool` - at `$.usage.input_tokens`"),
        (lines_of({"usage": {"cached_tokens": -1}}), 2, "Expected `int` >= 0 - at `$.usage.cached_tokens`"),
        (lines_of({"usage": {"output_tokens": 1}}), 2, "Object contains unknown field `output_tokens` - at `$.usage`"),
        (lines_of({"delta": {"refusal": "x"}}), 2, "Object contains unknown field `refusal` - at `$.delta`"),
        (lines_of({"delta": {"content": 1}}), 2, "Expected `str | null`, got `int` - at `$.delta.content`"),
        (
            lines_of({"delta": {"tool_calls": [{"index": "0"}]}}),
            2,
            "Expected `int | null`, got `str` - at `$.delta.tool_",
        ),
        (
            lines_of({"delta": {"tool_calls": [{"function": {"arguments": {}}}]}}),
            2,
            "Expected `str | null`, got `object` - ",
        ),
        (lines_of({"tool_result": {"output": "x"}}), 2, "a tool_result without a turn before it"),
        (lines_of({}, {"tool_result": {"output": 1}}), 3, "Expected `str | null`, got `int` - at `$.tool_result.output`"),
        (lines_of({}, {"tool_result": {"result": "x"}}), 3, "Object contains unknown field `result` - at `$.tool_result`"),
        (lines_of({}, {"tool_result": {}, "text": "x"}), 3, "Object contains unknown field `text`"),
    ],
)
def test_a_malformed_recording_is_refused_with_the_number_of_the_line(lines, line, message) -> None:
    with pytest.raises(RecordingError) as caught:
        read(lines)
    assert (caught.value.line, caught.value.message[: len(message)]) == (line, message)
    assert str(caught.value).startswith(f"line {line}: {message}")


def tagged(**fields: object) -> list[str]:
    return [json.dumps({"interlock_recording": 1, "format": "tagged", "request": {}, **fields})]


def test_a_recording_of_a_family_names_it() -> None:
    recording = read(tagged(tool_parser="hermes", reasoning_parser="qwen3"))
    assert recording.format == Tagged("hermes", "qwen3")
    assert read(write(recording)) == recording
    assert read(tagged(tool_parser="hermes")).format == Tagged("hermes")


def test_a_recording_can_name_the_state_where_its_turns_start() -> None:
    recording = read(tagged(tool_parser="hermes", reasoning_parser="qwen3", starts="between"))
    assert recording.format == Tagged("hermes", "qwen3", "between")
    assert read(write(recording)) == recording
    with pytest.raises(RecordingError, match="line 1: Invalid enum value 'inside'"):
        read(tagged(tool_parser="hermes", starts="inside"))


def test_a_recording_can_name_the_special_tokens_of_its_model() -> None:
    recording = read(tagged(tool_parser="hermes", special={"<tool_call>": 3}))
    assert recording.format == Tagged("hermes", special={"<tool_call>": 3})
    assert read(write(recording)) == recording


def test_an_unknown_family_is_an_error_of_the_first_line() -> None:
    with pytest.raises(RecordingError, match="line 1: unknown tool parser 'esperanto': choose one of qwen3_coder, "):
        read(tagged(tool_parser="esperanto"))


def test_only_text_with_markers_has_a_family() -> None:
    with pytest.raises(RecordingError, match="line 1: the format text has no tool_parser, reasoning_parser, starts or special"):
        read(tagged(format="text", tool_parser="hermes"))


# Rechunking a recording changes only its chunks


def recorded(*lines: object, form: str = "text") -> Recording:
    return read(json.dumps(line) for line in ({"interlock_recording": 1, "format": form}, *lines))


def chunks(cut: Recording) -> list[list[Chunk]]:
    return [[output.chunk for output in turn.outputs] for turn in cut.turns]


def logprob(token: str) -> dict[str, object]:
    return {"token": token, "bytes": [*token.encode()], "logprob": -1.0, "top_logprobs": []}


def test_tokens_are_merged_and_cut_within_their_turn() -> None:
    whole = recorded(
        {"token_ids": [1, 2], "finish_reason": None},
        {"token_ids": [3], "finish_reason": "stop"},
        {"tool_result": {"output": "x"}},
        {"token_ids": [4]},
        form="harmony",
    )
    cut = rechunk(whole, 2)
    assert chunks(cut) == [[Chunk(token_ids=(1, 2)), Chunk(token_ids=(3,))], [Chunk(token_ids=(4,))]]
    assert [turn.results for turn in cut.turns] == [turn.results for turn in whole.turns]
    assert chunks(rechunk(whole, 1000)) == [[Chunk(token_ids=(1, 2, 3))], [Chunk(token_ids=(4,))]]


def test_the_last_chunk_has_the_finish_reason_and_all_have_the_usage() -> None:
    whole = recorded(
        {"text": "ab", "usage": {"input_tokens": 9, "cached_tokens": 8}},
        {"text": "c", "finish_reason": "length", "usage": {"cache_write_tokens": 1}},
    )
    (turn,) = rechunk(whole, 1).turns
    assert [output.finish_reason for output in turn.outputs] == [None, None, "length"]
    counts = [(output.input_tokens, output.cached_tokens, output.cache_write_tokens) for output in turn.outputs]
    assert counts == [(9, 8, 1)] * 3


def test_a_turn_without_any_token_keeps_its_end() -> None:
    (turn,) = rechunk(recorded({"finish_reason": "error"}), 7).turns
    assert [(output.chunk, output.finish_reason) for output in turn.outputs] == [(Chunk(), "error")]


def test_text_is_divided_by_character_beside_its_tokens() -> None:
    whole = recorded({"token_ids": [1], "text": "aü"}, {"token_ids": [2], "text": "b"})
    assert chunks(rechunk(whole, 2)) == [[Chunk(token_ids=(1, 2), text="aü"), Chunk(text="b")]]


def test_text_is_divided_by_token_if_the_log_probabilities_spell_it() -> None:
    whole = recorded({"token_ids": [1, 2, 3], "text": "Hello you", "logprobs": [*map(logprob, ["Hel", "lo", " you"])]})
    assert chunks(rechunk(whole, 2)) == [
        [
            Chunk((1, 2), "Hello", (logprob("Hel"), logprob("lo"))),
            Chunk((3,), " you", (logprob(" you"),)),
        ]
    ]


def test_text_is_divided_by_character_if_the_log_probabilities_do_not_spell_it() -> None:
    whole = recorded({"text": "abc", "logprobs": [logprob("\ufffd"), {**logprob("bc"), "bytes": None}]})
    assert chunks(rechunk(whole, 2)) == [
        [Chunk(text="ab", logprobs=(logprob("\ufffd"), {**logprob("bc"), "bytes": None})), Chunk(text="c", logprobs=())],
    ]


def test_chunks_with_and_without_log_probabilities_are_not_merged() -> None:
    whole = recorded({"text": "a", "logprobs": [logprob("a")]}, {"text": "b"})
    assert chunks(rechunk(whole, 9)) == chunks(whole)


def test_deltas_are_divided_and_never_merged() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "abc"}}
    whole = recorded(
        {"token_ids": [1, 2], "delta": {"reasoning": "xyz", "content": None}},
        {"token_ids": [3], "delta": {"content": "12"}},
        {"delta": {"content": "3"}},
        {"delta": {"tool_calls": [call]}},
        {"delta": {"tool_calls": [{"index": 1}]}},
        form="vllm",
    )
    assert chunks(rechunk(whole, 2)) == [
        [
            Chunk(token_ids=(1, 2), delta={"reasoning": "xy"}),
            Chunk(delta={"reasoning": "z"}),
            Chunk(token_ids=(3,), delta={"content": "12"}),
            Chunk(delta={"content": "3"}),
            Chunk(delta={"tool_calls": [{**call, "function": {"name": "f", "arguments": "ab"}}]}),
            Chunk(delta={"tool_calls": [{"index": 0, "function": {"arguments": "c"}}]}),
            Chunk(delta={"tool_calls": [{"index": 1, "function": {"arguments": ""}}]}),
        ]
    ]


def test_a_delta_without_one_string_stays_whole() -> None:
    calls = [{"index": 0, "function": {"arguments": "abc"}}, {"index": 1, "function": {"arguments": "def"}}]
    whole = recorded(
        {"token_ids": [1], "delta": {"reasoning": "abc", "content": "def"}},
        {"token_ids": [2], "delta": {"tool_calls": calls}},
        {"token_ids": [3], "delta": {}},
        form="vllm",
    )
    assert chunks(rechunk(whole, 1)) == chunks(whole)


def test_a_delta_with_log_probabilities_stays_whole() -> None:
    whole = recorded({"delta": {"content": "abc"}, "logprobs": [logprob("abc")]}, form="vllm")
    assert chunks(rechunk(whole, 1)) == chunks(whole)


def test_a_chunk_holds_at_least_one_token() -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        rechunk(recorded(), 0)


# A replay runs the turns and their tools in order, and is the same every time, also from a server


ALL = {path.stem: read(path) for path in sorted((Path(__file__).parents[2] / "corpus" / "recordings").glob("*.jsonl"))}
LEAST = 16
REQUESTABLE = {name: requested for name, requested in ALL.items() if requested.request.get("max_output_tokens", LEAST) >= LEAST}
"""The recordings that a client can request: the API accepts no smaller limit of tokens."""


def requested(*lines: object, form: str = "text", **request: object) -> Recording:
    header = {"interlock_recording": 1, "format": form, "request": request}
    return read(json.dumps(line) for line in (header, *lines))


def names(replayed: Recording) -> list[str]:
    return [event.type for event in replay_events(replayed)]


def test_a_replay_is_the_same_to_the_byte_every_time() -> None:
    replayed = requested({"text": "Hello"}, model="m")
    first, second = ([*replay_frames(replayed)] for _ in range(2))
    assert first == second
    assert first[-1] == b"data: [DONE]\n\n"


def test_ids_are_counted_and_the_time_is_fixed() -> None:
    response = replay_response(requested({"text": "Hello"}, model="m"))
    assert (response["id"], response["created_at"], response["model"]) == ("resp_1", EPOCH, "m")


def test_a_recording_without_turns_is_an_empty_response() -> None:
    assert names(requested()) == ["response.created", "response.in_progress", "response.completed"]


def test_the_tokens_of_the_prompt_are_counted_once_for_each_turn() -> None:
    usage = {"input_tokens": 10, "cached_tokens": 4, "cache_write_tokens": 6}
    response = replay_response(requested({"text": "a", "usage": usage}, {"text": "b", "usage": usage}))
    assert response["usage"]["input_tokens"] == 10
    assert response["usage"]["input_tokens_details"] == {"cached_tokens": 4, "cache_write_tokens": 6}


def test_a_result_without_a_call_is_ignored() -> None:
    lines = [{"text": "Hello"}, {"tool_result": {"output": "x"}}, {"text": " again"}]
    assert replay_response(requested(*lines))["status"] == "completed"


def test_turns_after_the_end_of_a_response_are_ignored() -> None:
    cut = [{"text": "Hello", "finish_reason": "length"}]
    assert replay_response(requested(*cut, {"text": " again"})) == replay_response(requested(*cut))


@pytest.mark.parametrize("recorded", REQUESTABLE.values(), ids=REQUESTABLE)
def test_a_served_recording_equals_the_replayed_one(recorded) -> None:
    engine = ScriptedEngine([recorded_rule(recorded)])
    request = {"input": "Hi", **recorded.request, "model": "scripted", "stream": True}
    with ServerThread(build(Settings(), engine, tools=ScriptedTools(engine))) as url:
        answer = httpx.post(f"{url}/v1/responses", json=request)
    response = bodies(answer.content)[-1]["response"]
    assert without_chance(response) == without_chance({**replay_response(recorded), "model": "scripted"})
