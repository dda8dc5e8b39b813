"""Every turn for vLLM's parsers, on a server with a stream interval of seven tokens and two API processes.

`test_crossing` plays them, and the turns of harmony, on other servers.
"""

import httpx
import pytest
from playing import at_once, body, judged, stream, summary, without_chance
from turns import PARSED


@pytest.mark.parametrize("server", ["shared"], indirect=True)
def test_turns_are_legal_streams_and_the_same_without_streaming(server):
    def check(turn):
        request = body(server.setup.model, turn)
        response = judged(stream(server.url, request))[-1]["response"]
        assert (summary(response), response["status"]) == (list(turn.items), turn.status)
        answer = httpx.post(f"{server.url}/v1/responses", json=request, timeout=60)
        assert answer.status_code == 200
        assert without_chance(answer.json()) == without_chance(response)

    at_once(PARSED, check)
