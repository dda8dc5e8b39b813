"""Legal streams are legal, broken streams break the rule that they name, and the bytes are those of the stream."""

import json

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState

from interlock.events.conversion import to_openai
from interlock.events.sse import SseDecoder
from interlock.testing import ENDINGS, KINDS, RULES, assert_legal, broken_streams, findings, frames, legal_streams, sse_bytes
from interlock.testing.streams import MUTATIONS
from interlock.verify import oracle

pytestmark = pytest.mark.long

few = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
any_at_all = settings(few, max_examples=10_000, phases=[Phase.generate])


@few
@given(legal_streams())
def test_legal_streams_are_legal_by_both_judges(events):
    assert_legal(events, strict=True)
    assert oracle.check(events) == []


@few
@given(legal_streams(dialect="open_responses"))
def test_legal_streams_are_legal_in_open_responses(events):
    assert_legal(events, dialect="open_responses", strict=True)


@pytest.mark.parametrize("kind", KINDS)
def test_streams_have_only_the_requested_kinds_of_item(kind):
    events = find(legal_streams(kinds=[kind], max_items=1), lambda events: events[-1]["response"]["output"], settings=any_at_all)
    assert [item["type"] for item in events[-1]["response"]["output"]] == [kind]


@pytest.mark.parametrize("ending", ENDINGS)
def test_streams_end_in_the_requested_status(ending):
    events = find(legal_streams(endings=[ending]), lambda _: True, settings=any_at_all)
    assert events[-1]["response"]["status"] == ending


def test_the_simplest_stream_has_no_items():
    events = find(legal_streams(), lambda _: True)
    assert [body["type"] for body in events] == ["response.created", "response.in_progress", "response.completed"]


@pytest.mark.parametrize(
    "name", ["annotation.added", "refusal.delta", "summary_text.delta", "partial_image", "call.failed", "queued"]
)
def test_streams_may_have_rare_events(name):
    assert find(legal_streams(), lambda events: any(body["type"].endswith(name) for body in events), settings=any_at_all)


def test_streams_may_have_log_probabilities():
    assert find(
        legal_streams(kinds=["message"]), lambda events: any(body.get("logprobs") for body in events), settings=any_at_all
    )


@pytest.mark.parametrize("rule", RULES)
def test_broken_streams_break_the_requested_rule(rule):
    @few
    @given(broken_streams(rule=rule))
    def check(broken):
        assert broken.rule == rule
        assert rule in {finding.rule for finding in findings(broken.events)}
        assert oracle.check(broken.events)

    check()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.rule}: {mutation.what}")
def test_every_mutation_applies_to_some_stream(mutation):
    assert find(broken_streams(rule=mutation.rule), lambda broken: broken.what == mutation.what, settings=any_at_all)


@few
@given(broken_streams(dialect="open_responses"))
def test_broken_streams_are_broken_in_open_responses(broken):
    assert broken.rule in {finding.rule for finding in findings(broken.events, dialect="open_responses")}


def test_a_rule_that_no_stream_can_break_is_refused():
    with pytest.raises(ValueError, match=r"rule must be one of R1, R2, .*, not 'R19'"):
        find(broken_streams(rule="R19"), lambda _: True)


@few
@given(st.data(), legal_streams(max_items=1))
def test_the_chunks_of_sse_bytes_join_to_the_stream(data, events):
    pieces = data.draw(sse_bytes(events))
    assert all(pieces)
    assert b"".join(pieces) == frames(events)
    decoder = SseDecoder()
    messages = [message for piece in pieces for message in decoder.feed(piece)]
    assert [json.loads(message.data) for message in messages[:-1]] == events
    assert_legal(pieces, strict=True)


def whole_texts(output):
    """Yield the place of each text and call of a response, and its text."""
    for index, item in enumerate(output):
        if item["type"] == "function_call":
            yield (index, None), item["arguments"]
        elif item["type"] == "message":
            yield from (((index, place), part["text"]) for place, part in enumerate(item["content"]) if "text" in part)


@few
@given(legal_streams(kinds=["message", "reasoning", "function_call"], endings=["completed"]))
def test_the_snapshots_of_the_openai_package_equal_the_texts_of_the_response(events):
    state = ResponseStreamState(input_tools=omit, text_format=omit)
    snapshots = {}
    for body in events:
        for event in state.handle_event(to_openai(body)):
            if event.type == "response.output_text.delta":
                snapshots[event.output_index, event.content_index] = event.snapshot
            elif event.type == "response.function_call_arguments.delta":
                snapshots[event.output_index, None] = event.snapshot
    assert snapshots == {place: text for place, text in whole_texts(events[-1]["response"]["output"]) if text}
