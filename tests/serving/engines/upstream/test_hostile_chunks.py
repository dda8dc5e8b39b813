"""Arbitrary streams of Chat Completions become legal streams that keep the text of every well-formed chunk."""

import json
from pathlib import Path

import httpx
import pytest
from attrs import evolve
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
from hypothesis import HealthCheck, Phase, find, given, seed, settings
from live.upstream import CUT, Reply, gateway

from interlock.parsers.chat_deltas import ChatParser

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
