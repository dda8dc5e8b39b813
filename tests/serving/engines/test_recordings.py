"""Every recording of the repository replays to a legal stream, the same for any chunks and without streaming."""

import json
from pathlib import Path

import pytest
from each import each
from recovery.recordings import recordings

from interlock.events.conversion import response_to_openai, to_openai
from interlock.events.json import as_json
from interlock.serving.engines.recordings import read, rechunk, replay_events, replay_frames, replay_response, write
from interlock.verify.oracle import check

FOLDER = Path(__file__).parents[2] / "corpus" / "recordings"
RECORDINGS = {**{path.stem: read(path) for path in sorted(FOLDER.glob("*.jsonl"))}, **recordings()}

each_recording = each("recording", RECORDINGS.values(), ids=RECORDINGS)


def bodies(recording) -> list[dict]:
    frames = [*replay_frames(recording)]
    assert frames[-1] == b"data: [DONE]\n\n"
    return [json.loads(frame.split(b"\ndata: ")[1]) for frame in frames[:-1]]


@each_recording
def test_the_oracle_finds_nothing(recording) -> None:
    assert check(bodies(recording)) == []


@each_recording
@each("size", [1, 2, 7, 1000])
def test_other_chunks_give_a_legal_stream_with_the_same_response(recording, size) -> None:
    cut = rechunk(recording, size)
    assert check(bodies(cut)) == []
    assert replay_response(cut) == replay_response(recording)


@each_recording
def test_without_streaming_the_response_is_that_of_the_terminal_event(recording) -> None:
    assert json.loads(json.dumps(replay_response(recording))) == bodies(recording)[-1]["response"]


@each_recording
def test_the_sdk_has_a_type_for_every_event_and_for_the_response(recording) -> None:
    assert [to_openai(body).type for body in bodies(recording)] == [body["type"] for body in bodies(recording)]
    assert response_to_openai(bodies(recording)[-1]["response"]).id == "resp_1"


@each_recording
def test_events_and_frames_say_the_same(recording) -> None:
    assert [as_json(event) for event in replay_events(recording)] == bodies(recording)


@each_recording
def test_a_recording_is_written_as_it_was_read(recording) -> None:
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


@each(
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
