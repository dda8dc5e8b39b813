"""Recordings are read, refused with the number of the wrong line, and written back."""

import json

import pytest
from each import each
from live.dialects import post_message

from interlock.parsers import Chunk, Tagged
from interlock.serving.build import build
from interlock.serving.engines.engine import EngineOutput
from interlock.serving.engines.recordings import RecordedTurn, Recording, RecordingError, ToolResult, read, rechunk, write
from interlock.serving.engines.script import recorded_rule
from interlock.serving.engines.scripted_engine import ScriptedEngine
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings

HEADER = '{"interlock_recording": 1, "format": "harmony", "request": {"model": "m"}}'


def recording(*lines: object) -> list[str]:
    return [HEADER, *(json.dumps(line) for line in lines)]


def test_a_recording_is_a_request_and_turns_of_outputs_with_the_results_of_their_tools() -> None:
    lines = recording(
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
    turns = read(recording({"token_ids": [1], "finish_reason": "stop"}, {"token_ids": [2]})).turns
    assert [len(turn.outputs) for turn in turns] == [1, 1]


def test_a_result_of_a_tool_ends_a_turn_without_a_finish_reason() -> None:
    turns = read(recording({"token_ids": [1]}, {"tool_result": {"output": "x"}}, {"token_ids": [2]})).turns
    assert [turn.finish_reason for turn in turns] == ["stop", "stop"]


@pytest.mark.parametrize("reason", ["stop", "length", "abort", "error", "content_filter"])
def test_a_turn_has_a_finish_reason(reason) -> None:
    assert read(recording({"token_ids": [1], "finish_reason": reason})).turns[0].finish_reason == reason


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


def test_text_log_probabilities_and_deltas_are_kept_as_they_are() -> None:
    logprobs = [{"token": "a", "bytes": [97], "logprob": -0.5, "top_logprobs": []}]
    delta = {"role": "assistant", "content": None, "tool_calls": [{"index": 0, "function": {"name": "f"}}]}
    (turn,) = read(recording({"text": "a", "logprobs": logprobs}, {"delta": delta})).turns
    assert [output.chunk for output in turn.outputs] == [
        Chunk(text="a", logprobs=tuple(logprobs)),
        Chunk(delta=delta),
    ]


def test_empty_lines_and_windows_line_ends_are_skipped(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\r\n" + HEADER.encode() + b'\r\n\r\n{"token_ids": [1]}\r\n')
    assert read(path) == read(recording({"token_ids": [1]}))


def test_a_written_recording_reads_back_the_same() -> None:
    logprobs = [{"token": "\ud800", "bytes": None, "logprob": -1.0, "top_logprobs": []}]
    lines = recording(
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


@each(
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
        (recording({"\ud800": 1}), 2, "a lone surrogate in a field's name, or in a value with fixed choices"),
        (recording({"tokens": [1]}), 2, "Object contains unknown field `tokens`"),
        (recording({"token_ids": 1}), 2, "Expected `array | null`, got `int` - at `$.token_ids`"),
        (recording({"token_ids": [1, "2"]}), 2, "Expected `int`, got `str` - at `$.token_ids[1]`"),
        (recording({"token_ids": [True]}), 2, "Expected `int`, got `bool` - at `$.token_ids[0]`"),
        (recording({"text": 1}), 2, "Expected `str | null`, got `int` - at `$.text`"),
        (recording({"logprobs": [1]}), 2, "Expected `object`, got `int` - at `$.logprobs[0]`"),
        (recording({"token_ids": [1, 2], "logprobs": [{}]}), 2, "1 logprobs for 2 token_ids"),
        (recording({"finish_reason": "done"}), 2, "Invalid enum value 'done' - at `$.finish_reason`"),
        (recording({"usage": {"input_tokens": True}}), 2, "Expected `int | null`, got `bool` - at `$.usage.input_tokens`"),
        (recording({"usage": {"cached_tokens": -1}}), 2, "Expected `int` >= 0 - at `$.usage.cached_tokens`"),
        (recording({"usage": {"output_tokens": 1}}), 2, "Object contains unknown field `output_tokens` - at `$.usage`"),
        (recording({"delta": {"refusal": "x"}}), 2, "Object contains unknown field `refusal` - at `$.delta`"),
        (recording({"delta": {"content": 1}}), 2, "Expected `str | null`, got `int` - at `$.delta.content`"),
        (
            recording({"delta": {"tool_calls": [{"index": "0"}]}}),
            2,
            "Expected `int | null`, got `str` - at `$.delta.tool_",
        ),
        (
            recording({"delta": {"tool_calls": [{"function": {"arguments": {}}}]}}),
            2,
            "Expected `str | null`, got `object` - ",
        ),
        (recording({"tool_result": {"output": "x"}}), 2, "a tool_result without a turn before it"),
        (recording({}, {"tool_result": {"output": 1}}), 3, "Expected `str | null`, got `int` - at `$.tool_result.output`"),
        (recording({}, {"tool_result": {"result": "x"}}), 3, "Object contains unknown field `result` - at `$.tool_result`"),
        (recording({}, {"tool_result": {}, "text": "x"}), 3, "Object contains unknown field `text`"),
    ],
)
def test_a_malformed_recording_is_refused_with_the_line_that_is_wrong(lines, line, message) -> None:
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


def test_a_recording_says_how_its_prompts_end() -> None:
    recording = read(tagged(tool_parser="hermes", reasoning_parser="qwen3", starts="between"))
    assert recording.format == Tagged("hermes", "qwen3", "between")
    assert read(write(recording)) == recording
    with pytest.raises(RecordingError, match="line 1: Invalid enum value 'inside'"):
        read(tagged(tool_parser="hermes", starts="inside"))


def test_an_unknown_family_is_an_error_of_the_first_line() -> None:
    with pytest.raises(RecordingError, match="line 1: unknown tool parser 'esperanto': choose one of qwen3_coder, "):
        read(tagged(tool_parser="esperanto"))


def test_only_text_with_markers_has_a_family() -> None:
    with pytest.raises(RecordingError, match="line 1: the format text has no tool_parser, reasoning_parser or starts"):
        read(tagged(format="text", tool_parser="hermes"))
