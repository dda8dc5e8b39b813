"""Every scripted turn on a real engine: a legal stream, the items it should have, and the same response in one piece."""

import httpx
import pytest
from playing import body, judged, stream, summary, without_chance
from servers import RELEASE
from turns import HARMONY, PARSED

HARMONY_SERVERS = pytest.mark.parametrize("server", ["harmony", "harmony-7"], indirect=True)
PARSED_SERVERS = pytest.mark.parametrize("server", ["parsed", "parsed-7"], indirect=True)


def plays(server, turn):
    if turn.since > RELEASE:
        pytest.skip(f"vLLM makes this of it since {turn.since}")
    request = body(server.setup.model, turn)
    bodies = judged(stream(server.url, request))
    response = bodies[-1]["response"]
    assert (summary(response), response["status"]) == (list(turn.items), turn.status)
    answer = httpx.post(f"{server.url}/v1/responses", json=request, timeout=60)
    assert answer.status_code == 200
    assert without_chance(answer.json()) == without_chance(response)


@HARMONY_SERVERS
@pytest.mark.parametrize("turn", HARMONY, ids=lambda turn: turn.name)
def test_a_turn_of_harmony_is_a_legal_stream_and_the_same_without_streaming(server, turn):
    plays(server, turn)


@PARSED_SERVERS
@pytest.mark.parametrize("turn", PARSED, ids=lambda turn: turn.name)
def test_a_turn_of_vllms_parsers_is_a_legal_stream_and_the_same_without_streaming(server, turn):
    plays(server, turn)
