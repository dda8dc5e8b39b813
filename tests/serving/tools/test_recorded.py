"""A script that is served gives the same response as its recording that is replayed, tools and faults included."""

from pathlib import Path

import httpx
import pytest
from live.wire import bodies, without_chance

from interlock.serving.engines.recordings import read, replay_response
from interlock.serving.engines.script import ScriptedEngine
from interlock.serving.http.app import create_app
from interlock.serving.http.server import ServerThread
from interlock.serving.tools.tool_runner import RecordedTools

ALL = {path.stem: read(path) for path in sorted((Path(__file__).parents[3] / "recordings").glob("*.jsonl"))}
LEAST = 16
RECORDINGS = {name: recording for name, recording in ALL.items() if recording.request.get("max_output_tokens", LEAST) >= LEAST}
"""All of them but those that no client could have asked for: the API takes no smaller limit of tokens."""


@pytest.mark.parametrize("recording", RECORDINGS.values(), ids=RECORDINGS)
def test_a_served_recording_is_the_replayed_one(recording) -> None:
    engine = ScriptedEngine([turn.outputs for turn in recording.turns], recording.format, ("scripted",))
    request = {"input": "Hi", **recording.request, "model": "scripted", "stream": True}
    with ServerThread(create_app(engine, tools=RecordedTools(recording.turns))) as url:
        answer = httpx.post(f"{url}/v1/responses", json=request)
    response = bodies(answer.content)[-1]["response"]
    assert without_chance(response) == without_chance({**replay_response(recording), "model": "scripted"})
