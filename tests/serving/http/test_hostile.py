"""Hostile requests to a real server: each gets its expected answer, and the server keeps running."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from fuzzing.bodies import PARAMETERS, frames, heads, requests
from fuzzing.hostile import ALLOWED, FRAMES, HEADS, JSON, MCP_SERVERS, REQUESTS, over_connection, over_socket, summarize
from fuzzing.request_campaign import Prober
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from live.watched import serving

from interlock.events.request import CreateResponse

FINDINGS = sorted((Path(__file__).parents[2] / "counterexamples" / "hostile_requests").glob("*.json"))
"""The findings of `fuzzing.request_campaign`."""

ANSWERS = {
    "a pattern that takes exponential time": (200, "invalid_prompt"),
    "`minItems` of 100,000": (200, "invalid_prompt"),
    "`minLength` of 100,000": (200, "invalid_prompt"),
    "`uniqueItems`, `minItems` of 5,000": (200, "invalid_prompt"),
    "references that double 40 times": (200, "invalid_prompt"),
    "20,000 properties": (200, "invalid_prompt"),
    "20,000 properties, strict": (200, "invalid_prompt"),
    "10,000,000 letters": (200, "invalid_prompt"),
    "30 MB of words": (200, "invalid_prompt"),
    "10 MB of instructions": (400, "string_above_max_length (instructions)"),
    "10,000 calls with their outputs": (400, "array_above_max_length (input)"),
    "20,000 items": (413, "request_too_large"),
    "5,000,000 empty arrays": (413, "request_too_large"),
    "100,000 levels of arrays": (413, "request_too_large"),
    "5,800,000 lone surrogates": (413, "request_too_large"),
    "an MCP server that lists 1,024 tools, and 40,000 that are allowed": (200, "invalid_prompt"),
    "60 MB": (413, "request_too_large"),
    "`call_id` of `{}`": (400, "invalid_type (input[0].call_id)"),
    "an item of a type that nobody knows": (400, "invalid_value (input[0].type)"),
    "a reference to nothing": (404, "Item with id 'msg_1' not found. Items are not persisted when (input)"),
    "an output without its call": (400, "No tool call found for function call output with call_id c. (input)"),
    "a hosted tool that is chosen and not there": (400, "invalid_value (tool_choice)"),
    "`max_output_tokens` of 1": (400, "integer_below_min_value (max_output_tokens)"),
}
"""The answers that are not a completed response."""


@pytest.fixture(scope="module")
def prober():
    with serving(*ALLOWED) as (url, pid), MCP_SERVERS, Prober(url, pid) as prober:
        yield prober


@pytest.mark.parametrize("name", REQUESTS)
def test_a_hostile_request_gets_its_expected_answer(prober, name) -> None:
    answer = httpx.post(f"{prober.url}/v1/responses", content=REQUESTS[name](), headers=JSON, timeout=300)
    assert (answer.status_code, summarize(answer.json())) == ANSWERS.get(name, (200, "completed"))


HEAD_ANSWERS = {"two hosts": ("400", "invalid_header"), "(for comparison) 100 headers of 600 bytes": ("200", "")}


@pytest.mark.parametrize("name", HEADS)
def test_a_hostile_head_gets_its_expected_answer(prober, name) -> None:
    assert over_connection(prober.url, HEADS[name]()) == HEAD_ANSWERS.get(name, ("431", "headers_too_large"))


SOCKET_ANSWERS = {
    "a frame of one string of 31 MiB": ("response.failed", "invalid_prompt"),  # the file has more tokens than the context
    "a frame of 60,000 values": ("413", "request_too_large"),
    "a frame of 5,001 items": ("400", "array_above_max_length (input)"),
    "a frame of invalid UTF-8": ("1007", ""),
    "20,000 frames that are no requests": ("400", "invalid_json"),
    "a million continuation frames of two bytes": ("1008", ""),
    "a million empty continuation frames": ("1008", ""),
}
"""The same over a WebSocket: a status, or the code of the close frame."""


@pytest.mark.parametrize(
    "name", sorted(FRAMES.keys() - {"a million pings, and nothing is read", "32 lanes that keep 30 MB each"})
)
def test_hostile_frames_get_their_expected_answer(prober, name) -> None:
    status, summary, _ = over_socket(prober.url, FRAMES[name]())
    assert (status, summary) == SOCKET_ANSWERS.get(name, ("response.completed", "completed"))


@pytest.mark.long
@seed(7)
@settings(
    max_examples=120,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(st.one_of(requests(), frames(), heads()))
def test_any_request_gets_an_allowed_answer(prober, body) -> None:
    prober.send(body)


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: path.stem)
def test_the_findings_of_campaigns_are_fixed(prober, path) -> None:
    prober.send(json.loads(path.read_text()))


def test_every_parameter_is_fuzzed() -> None:
    assert set(PARAMETERS) == set(CreateResponse.__struct_fields__)
