"""vLLM with the plugin passes the compliance suite of Open Responses, whose dialect is the default of this server."""

import json

import httpx
import pytest
from live.open_responses import CASES, Suite
from playing import body
from servers import HEADERS, KEY
from turns import DONE, NEXT, THINK, Turn
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

pytestmark = pytest.mark.parametrize("server", ["open-responses"], indirect=True)

CALL = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
ANSWERS = {"text": f"{THINK}Hm.<|end|>{NEXT}{DONE}", "call": f"{CALL}{json.dumps({'location': 'Rome'})}<|call|>"}


def scripted(answer):
    """Return the request fields that make the model give this answer in every turn."""
    rounds = [ANSWERS[answer]] * 4
    return {"vllm_xargs": body("gpt_oss", Turn("", rounds))["vllm_xargs"]}


@pytest.mark.parametrize("case", CASES)
def test_the_server_passes_each_case(server, case):
    CASES[case](Suite(server.url, "tiny", scripted, HEADERS))


def test_a_socket_needs_the_key_before_it_is_opened(server):
    url = server.url.replace("http", "ws", 1) + "/v1/responses"
    for headers in ({}, {"Authorization": f"Bearer not-{KEY}"}):
        with pytest.raises(InvalidStatus) as refused, connect(url, additional_headers=headers, open_timeout=60):
            pass
        assert refused.value.response.status_code == 401


def test_a_compressed_body_needs_the_key_before_it_is_read(server):
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    answer = httpx.post(f"{server.url}/v1/responses", content=b"no gzip", headers=headers)
    assert answer.status_code == 401
