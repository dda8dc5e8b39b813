"""The families on real engines: a model's output gives the expected items, with and without streaming.

`make nightly` starts a server for each; `test_gateway` plays the turns of all on one server.
"""

import httpx
import pytest
from playing import body, judged, stream, summary, without_chance
from servers import FAMILIES
from turns import LOOK, family_turns

pytestmark = pytest.mark.long
SERVERS = pytest.mark.parametrize("server", [f"family-{name}" for name in FAMILIES], indirect=True)

TURNS = [
    pytest.param(f"family-{name}", turn, id=turn.name)
    for name, reasoning in FAMILIES.items()
    for turn in family_turns(name, reasoning)
]


@pytest.mark.parametrize(("server", "turn"), TURNS, indirect=["server"])
def test_a_turn_is_a_legal_stream_and_the_same_without_streaming(server, turn):
    request = body(server.setup.model, turn)
    bodies = judged(stream(server.url, request))
    response = bodies[-1]["response"]
    assert (summary(response), response["status"]) == (list(turn.items), turn.status)
    answer = httpx.post(f"{server.url}/v1/responses", json=request, timeout=60)
    assert answer.status_code == 200
    assert without_chance(answer.json()) == without_chance(response)


@SERVERS
def test_the_client_receives_the_encoded_items(server):
    name = server.name.removeprefix("family-")
    turn, *_ = family_turns(name, FAMILIES[name])
    response = judged(stream(server.url, body(server.setup.model, turn)))[-1]["response"]
    texts = [item.get("arguments") or item["content"][0]["text"] for item in response["output"]]
    assert texts == [each.text for each in LOOK if each.kind != "reasoning" or FAMILIES[name]]
    reasoned = response["usage"]["output_tokens_details"]["reasoning_tokens"]
    assert bool(reasoned) is bool(FAMILIES[name])


@SERVERS
def test_the_log_names_the_parsers(server):
    assert "with its own parsers for " + server.name.removeprefix("family-") in server.process.log
