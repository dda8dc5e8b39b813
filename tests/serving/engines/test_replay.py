"""A replay runs the turns and their tools in order, and is the same every time, also from a server."""

import json
from pathlib import Path

import httpx
import pytest
from live.wire import bodies, without_chance

from interlock.serving.build import build
from interlock.serving.engines.recordings import EPOCH, Recording, read, replay_events, replay_frames, replay_response
from interlock.serving.engines.script import recorded_rule
from interlock.serving.engines.scripted_engine import ScriptedEngine
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings
from interlock.serving.tools.tool_runner import ScriptedTools

ALL = {path.stem: read(path) for path in sorted((Path(__file__).parents[2] / "corpus" / "recordings").glob("*.jsonl"))}
LEAST = 16
RECORDINGS = {name: recording for name, recording in ALL.items() if recording.request.get("max_output_tokens", LEAST) >= LEAST}
"""All of them but those that no client could have asked for: the API takes no smaller limit of tokens."""


def recording(*lines: object, form: str = "text", **request: object) -> Recording:
    header = {"interlock_recording": 1, "format": form, "request": request}
    return read(json.dumps(line) for line in (header, *lines))


def names(replayed: Recording) -> list[str]:
    return [event.type for event in replay_events(replayed)]


def test_a_replay_is_the_same_to_the_byte_every_time() -> None:
    replayed = recording({"text": "Hello"}, model="m")
    first, second = ([*replay_frames(replayed)] for _ in range(2))
    assert first == second
    assert first[-1] == b"data: [DONE]\n\n"


def test_ids_are_counted_and_the_time_is_fixed() -> None:
    response = replay_response(recording({"text": "Hello"}, model="m"))
    assert (response["id"], response["created_at"], response["model"]) == ("resp_1", EPOCH, "m")


def test_a_recording_without_turns_is_an_empty_response() -> None:
    assert names(recording()) == ["response.created", "response.in_progress", "response.completed"]


def test_the_tokens_of_the_prompt_are_counted_once_for_each_turn() -> None:
    usage = {"input_tokens": 10, "cached_tokens": 4, "cache_write_tokens": 6}
    response = replay_response(recording({"text": "a", "usage": usage}, {"text": "b", "usage": usage}))
    assert response["usage"]["input_tokens"] == 10
    assert response["usage"]["input_tokens_details"] == {"cached_tokens": 4, "cache_write_tokens": 6}


def test_a_result_without_a_call_is_ignored() -> None:
    lines = [{"text": "Hello"}, {"tool_result": {"output": "x"}}, {"text": " again"}]
    assert replay_response(recording(*lines))["status"] == "completed"


def test_turns_after_the_end_of_a_response_are_ignored() -> None:
    cut = [{"text": "Hello", "finish_reason": "length"}]
    assert replay_response(recording(*cut, {"text": " again"})) == replay_response(recording(*cut))


@pytest.mark.parametrize("recorded", RECORDINGS.values(), ids=RECORDINGS)
def test_a_served_recording_is_the_replayed_one(recorded) -> None:
    engine = ScriptedEngine([recorded_rule(recorded)])
    request = {"input": "Hi", **recorded.request, "model": "scripted", "stream": True}
    with ServerThread(build(Settings(), engine, tools=ScriptedTools(engine))) as url:
        answer = httpx.post(f"{url}/v1/responses", json=request)
    response = bodies(answer.content)[-1]["response"]
    assert without_chance(response) == without_chance({**replay_response(recorded), "model": "scripted"})
