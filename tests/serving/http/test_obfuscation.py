"""Streams whose deltas are padded, because the request wants it."""

import httpx
import pytest
from live.engines import ANSWER, CALL, REASONING, StagedEngine, steps
from live.sockets import socket_client
from live.wire import bodies

from interlock.events.stream import EVENTS
from interlock.verify.oracle import check

REQUEST = {"model": "staged", "input": "Hi", "stream": True}
TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
PADDED = {**REQUEST, "tools": [TOOL], "stream_options": {"include_obfuscation": True}}


def over_http(url, request):
    return bodies(httpx.post(f"{url}/v1/responses", json=request).content)


def over_socket(url, request):
    with socket_client(url, request) as socket:
        return socket.ask()


@pytest.mark.parametrize("ask", [over_http, over_socket])
def test_deltas_are_padded_to_blocks_and_otherwise_the_same(serve, ask):
    with serve(StagedEngine(steps(f"{REASONING}{ANSWER}"))) as url:
        padded, plain = ask(url, PADDED), ask(url, {**PADDED, "stream_options": {}})
    assert check(padded) == []
    deltas = [event for event in padded if event["type"].endswith(".delta")]
    assert len(deltas) > 4
    assert {(len(event["delta"]) + len(event["obfuscation"])) % 16 for event in deltas} == {0}
    assert len({event["obfuscation"] for event in deltas if len(event["delta"]) % 16}) > 1
    assert not any("obfuscation" in event for event in plain)
    assert [(event["type"], event["sequence_number"], event.get("delta")) for event in padded] == [
        (event["type"], event["sequence_number"], event.get("delta")) for event in plain
    ]


def test_the_arguments_of_calls_are_padded(serve):
    with serve(StagedEngine(steps(CALL))) as url:
        padded = over_http(url, PADDED)
    deltas = [event for event in padded if event["type"] == "response.function_call_arguments.delta"]
    assert deltas
    assert {(len(event["delta"]) + len(event["obfuscation"])) % 16 for event in deltas} == {0}


def test_every_event_with_padding_has_a_delta():
    fields = [event.__struct_fields__ for event in EVENTS.values() if "obfuscation" in event.__struct_fields__]
    assert len(fields) > 8
    assert all("delta" in each for each in fields)
