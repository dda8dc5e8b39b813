"""Messages and Chat Completions on real engines: a turn is legal, says what the model wrote, and is the same in one piece.

`benchmarks/turns/vllm_turns.py` plays all turns, those of the families too, and on vLLM's own routes.
"""

import apis
import httpx
import pytest
from playing import TIMEOUT, events, stream, verdict
from turns import HARMONY, PARSED

TURNS = [
    *(pytest.param("harmony", turn, id=turn.name) for turn in HARMONY[::3]),
    *(pytest.param("parsed", turn, id=turn.name) for turn in PARSED[::3]),
]


@pytest.mark.parametrize("api", ["messages", "chat"])
@pytest.mark.parametrize(("server", "turn"), TURNS, indirect=["server"])
def test_a_turn_is_a_legal_stream_and_the_same_without_streaming(server, turn, api):
    request, path = apis.request(api, server.setup.model, turn), apis.PATHS[api]
    data = stream(server.url, {**request, **apis.STREAMED[api]}, path)
    bodies = events(data)
    assert [str(finding) for finding in verdict(data, api=api).findings] == []
    output, reason = apis.read_stream(api, bodies)
    assert apis.matches(output, turn.output), output
    assert (reason == "error") is (turn.status == "failed")
    assert api == "messages" or reason == "error" or bodies[-1]["usage"]
    answer = httpx.post(f"{server.url}{path}", json=request, timeout=TIMEOUT)
    assert answer.status_code == (500 if reason == "error" else 200)
    assert apis.is_same(api, (output, reason), answer.json())
