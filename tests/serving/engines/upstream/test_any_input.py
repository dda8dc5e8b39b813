"""Any stream of an upstream becomes a legal one, and the strictest services accept the requests for any conversation."""

import json
from pathlib import Path

import httpx
import pytest
from attrs import evolve
from fuzzing.bodies import COLLIDING, MODEL, conversations
from fuzzing.campaign import broken_by
from fuzzing.gateway_campaign import (
    BODY,
    ChunkStream,
    GatewayProber,
    Piece,
    chunk_streams,
    from_json,
    judge,
    to_json,
    well_formed,
)
from fuzzing.request_campaign import GOOD, StrictChat, faults
from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis import strategies as st
from live.upstream import CUT, Reply, gateway, serve_upstream

from interlock.parsers.chat_deltas import ChatParser
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.upstreams import upstream_of
from interlock.serving.settings import UpstreamSettings

FINDINGS = sorted((Path(__file__).parents[3] / "counterexamples" / "hostile_streams").glob("*.json"))
"""The findings of `fuzzing.gateway_campaign`."""

QUICK = settings(database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def prober():
    with GatewayProber() as prober:
        yield prober


def test_any_stream_becomes_a_legal_one_with_the_text_of_its_well_formed_chunks(prober):
    assert broken_by(chunk_streams(), prober.probe, 60, 7) is None


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: path.stem)
def test_the_findings_of_campaigns_are_fixed(prober, path):
    prober.probe(from_json(json.loads(path.read_text())))


def test_any_stream_of_a_real_upstream_becomes_a_legal_one():
    @seed(7)
    @settings(QUICK, max_examples=8)
    @given(chunk_streams())
    def attempt(stream):
        family = {} if stream.family is None else {"family": stream.family}
        with gateway(Reply((*stream.reads, *([] if stream.is_whole else [CUT]))), **family) as (url, _):
            answer = httpx.post(f"{url}/v1/responses", json=BODY, timeout=60)
        assert answer.status_code == 200, answer.text
        judge(stream, answer.content)

    attempt()


def test_a_lost_word_and_an_illegal_stream_are_found(prober):
    stream = ChunkStream([*well_formed("message", 0), *well_formed("message", 1), Piece(b"[DONE]")])
    with pytest.raises(AssertionError, match="w1w is missing in 'w0w ' of the kind message"):
        judge(stream, prober.answer(evolve(stream, pieces=stream.pieces[:1])))
    with pytest.raises(AssertionError):
        judge(stream, prober.answer(stream).replace(b'"sequence_number":2', b'"sequence_number":3'))


def test_an_error_of_the_gateway_is_found(prober, monkeypatch):
    monkeypatch.setattr(ChatParser, "feed", None)
    with pytest.raises(AssertionError, match="the response failed"):
        prober.probe(ChunkStream(well_formed("message", 0)))


def test_a_stream_is_stored_as_json():
    stream = find(chunk_streams(), lambda stream: len(stream.pieces) > 1, settings=QUICK)
    assert from_json(json.loads(json.dumps(to_json(stream)))) == stream


# Requests.


@pytest.fixture
def url(serve):
    with serve_upstream(StrictChat([GOOD])) as upstream:
        engine = Gateway([upstream_of(UpstreamSettings(url=upstream, retries=0, short_call_ids=True))])
        with serve(engine) as url:
            yield url


TOOLS = st.lists(st.sampled_from(COLLIDING), max_size=4, unique_by=lambda tool: tool["name"])


def test_any_conversation_is_accepted(url):
    statuses = set()

    @seed(7)
    @settings(QUICK, max_examples=40)
    @given(conversations(), TOOLS)
    def attempt(items, tools):
        body = {"model": MODEL, "input": items, "tools": tools, "store": False}
        content = json.dumps(body)  # with escapes of lone surrogates
        answer = httpx.post(f"{url}/v1/responses", content=content, headers={"content-type": "application/json"}, timeout=60)
        statuses.add(answer.status_code)
        assert answer.status_code in (200, 400), answer.text

    attempt()
    assert statuses == {200, 400}


CALL = {"id": "123456789", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USER, ASSISTANT = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": [CALL]}
OUTPUT = {"role": "tool", "tool_call_id": "123456789", "content": "a"}
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("messages", "tools", "found"),
    [
        ([USER, ASSISTANT, OUTPUT], [TOOL], []),
        ([ASSISTANT, USER, OUTPUT], [], ["the output 123456789 does not follow its call"]),
        ([USER], [TOOL, TOOL], ["two tools have the name f"]),
        ([USER], [{"type": "function", "function": {"name": "a.b"}}], ["the name 'a.b'"]),
        ([{"role": "assistant", "tool_calls": [{**CALL, "id": "call_1"}]}], [], ["the id 'call_1'"]),
    ],
)
def test_the_strict_upstream_reports_the_faults_of_a_request(messages, tools, found):
    assert faults({"messages": messages, "tools": tools}) == found
