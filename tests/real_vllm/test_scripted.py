"""Every turn for vLLM's parsers, on a server with a stream interval of seven tokens and two API processes.

`test_crossing` plays them, and the turns of harmony, on other servers.
"""

import httpx
import pytest
from playing import body, judged, stream, summary, without_chance
from servers import RELEASE
from turns import PARSED


@pytest.mark.parametrize("server", ["shared"], indirect=True)
@pytest.mark.parametrize("turn", PARSED, ids=lambda turn: turn.name)
def test_a_turn_is_a_legal_stream_and_the_same_without_streaming(server, turn):
    if turn.since > RELEASE:
        pytest.skip(f"vLLM parses this turn like that only since {turn.since}")
    request = body(server.setup.model, turn)
    response = judged(stream(server.url, request))[-1]["response"]
    assert (summary(response), response["status"]) == (list(turn.items), turn.status)
    answer = httpx.post(f"{server.url}/v1/responses", json=request, timeout=60)
    assert answer.status_code == 200
    assert without_chance(answer.json()) == without_chance(response)
