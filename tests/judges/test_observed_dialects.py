"""Streams of Messages and Chat Completions as real services send them, each with its findings; and hostile streams."""

import json
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from anthropic.types.beta import BetaRawContentBlockDeltaEvent, BetaRawContentBlockStartEvent

from interlock.judges import DEVIATIONS, DIALECT_JUDGES, AnyJudge
from interlock.judges.messages import BLOCK_DELTAS, BLOCKS

FOLDER = Path(__file__).parents[1] / "corpus"
STREAMS = {
    f"{api}-{name}": (api, stream["events"], stream["findings"])
    for api in ("messages", "chat")
    for name, stream in json.loads((FOLDER / f"{api}.json").read_text()).items()
}
BREAKING = {
    "chat-openai.1": "the recording is cut off",
    "chat-evroc.1": "the recording is cut off",
    "messages-vercel-gateway.2": "no message_stop: Anthropic's SDK for JavaScript has no message",
    "chat-snowflake.1": "no finish reason: a client cannot tell a whole answer from half of one",
    "chat-snowflake.2": "no finish reason",
    "chat-litellm-proxy-openai.2": "no finish reason for the second choice",
    "chat-gpustack.2": "a call without an index: the openai package raises",
    "chat-mlflow-gateway-localhost-5002.2": "legacy completions: the text is not where clients of Chat read it",
}
EVERY = pytest.mark.parametrize("name", STREAMS)


def encoded(events, *, framed=True):
    """The events as server-sent events, or as JSON lines."""
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    if not framed:
        return "\n".join(texts).encode()
    names = [event.get("type") if isinstance(event, dict) else None for event in events]
    framing = (f"event: {name}\n" if isinstance(name, str) else "" for name in names)
    return "".join(f"{line}data: {text}\n\n" for line, text in zip(framing, texts, strict=True)).encode()


def judged(events, api=None, **options):
    judge = AnyJudge(api=api)
    judge.feed(encoded(events, **options))
    return judge.end()


@EVERY
def test_each_observed_stream_has_exactly_its_findings(name) -> None:
    api, events, findings = STREAMS[name]
    judge = AnyJudge()
    judge.feed(encoded(events))
    verdict = judge.end()
    assert judge.api == api
    assert [f"{one.rule} {one.deviation or one.message}" for one in verdict.findings] == findings
    assert all(one.rule == DEVIATIONS[one.deviation].rule for one in verdict.findings if one.deviation)
    assert verdict.legal is (name not in BREAKING)


@EVERY
def test_json_lines_with_a_byte_order_mark_are_the_same_stream(name) -> None:
    api, events, findings = STREAMS[name]
    judge = AnyJudge()
    for byte in b"\xef\xbb\xbf\n" + encoded(events, framed=False):
        judge.feed(bytes([byte]))
    verdict = judge.end()
    assert judge.api == api
    found = [f"{one.rule} {one.deviation or one.message}" for one in verdict.findings]
    assert sorted(found) == sorted([*findings, f"{'C8' if api == 'chat' else 'M12'} bare-{api}-lines"])


LEGAL_MESSAGES = [name for name, (api, *_) in STREAMS.items() if api == "messages" and name not in BREAKING]


@pytest.mark.parametrize("name", LEGAL_MESSAGES)
def test_a_wrong_order_in_messages_is_an_error(name) -> None:
    _, events, _ = STREAMS[name]
    events = [event for event in events if event["type"] != "ping"]
    for place, event in enumerate(events):
        rest = [*events[:place], *events[place + 1 :]]
        if event["type"] != "content_block_delta":
            assert not judged(rest, "messages").legal, ("left out", place)
            if event["type"] != "message_delta":
                assert not judged([*events[: place + 1], *events[place:]], "messages").legal, ("twice", place)
        if place and events[place - 1]["type"] != event["type"]:
            swapped = [*events[: place - 1], event, events[place - 1], *events[place + 1 :]]
            assert not judged(swapped, "messages").legal, ("swapped", place)


LEGAL_CHAT = [name for name, (api, *_) in STREAMS.items() if api == "chat" and name not in BREAKING]


def choices_of(chunk):
    return chunk["choices"] if isinstance(chunk, dict) else []


@pytest.mark.parametrize("name", LEGAL_CHAT)
def test_a_wrong_order_in_chat_is_an_error(name) -> None:
    _, events, _ = STREAMS[name]
    ends = [place for place, chunk in enumerate(events) if any(choice.get("finish_reason") for choice in choices_of(chunk))]
    assert not judged([chunk for place, chunk in enumerate(events) if place not in ends], "chat").legal
    late = {**events[ends[-1]], "choices": [{"index": 0, "delta": {"content": "late"}, "finish_reason": None}]}
    assert not judged([*events[: ends[-1] + 1], late, *events[ends[-1] + 1 :]], "chat").legal
    assert not judged([*events, "[DONE]", late], "chat").legal
    calls = [
        place
        for place, chunk in enumerate(events)
        if any(choice.get("delta", {}).get("tool_calls") for choice in choices_of(chunk))
    ]
    for place in calls:
        changed = json.loads(json.dumps(events[place]))
        changed["choices"][0]["delta"]["tool_calls"][0]["index"] = 7
        assert not judged([*events[:place], changed, *events[place + 1 :]], "chat").legal, ("index", place)
        if changed["choices"][0]["delta"]["tool_calls"][0].get("id") and place < calls[-1]:  # nothing refers to the last call
            assert not judged([*events[:place], *events[place + 1 :]], "chat").legal, ("left out", place)


HOSTILE = [None, True, -1, 2**70, 0.5, "", "\ud800", [], ["stop"], [[]], {}, {"type": {}}, [{"index": [], "delta": 5}]]


def replaced(value, other):
    """Yield a copy of a value for each value inside it, which is replaced by another, and the other itself."""
    yield other
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        for changed in replaced(inner, other):
            copy = value.copy()
            copy[key] = changed
            yield copy


@pytest.mark.parametrize(
    "name", ["messages-anthropic.10", "messages-anthropic.3", "chat-openai.3", "chat-mistral.2", "chat-groq.1"]
)
def test_a_hostile_value_is_judged_like_any_other(name) -> None:
    api, events, _ = STREAMS[name]
    for (place, event), other in product(enumerate(events), HOSTILE):
        for changed in replaced(event, other) if isinstance(event, dict) else ():
            text = json.dumps(changed)
            assert judged([*events[:place], text, *events[place + 1 :]], api).events


@pytest.mark.parametrize("api", ["messages", "chat"])
def test_an_empty_stream_is_unreadable(api) -> None:
    verdict = DIALECT_JUDGES[api]().end()
    assert (verdict.readable, verdict.legal, verdict.events) == (False, False, 0)


@pytest.mark.parametrize(
    ("event", "api"),
    [
        (
            {"type": "response.created", "response": {"metadata": {"type": "ping", "object": "chat.completion.chunk"}}},
            "responses",
        ),
        ({"type": "error", "code": "x", "message": "No", "sequence_number": 0}, "responses"),
        ({"type": "error", "error": {"type": "x", "message": "No"}, "sequence_number": 0}, "responses"),
        ({"object": "response", "id": "resp_1"}, "responses"),
        ({"type": "error", "error": {"type": "api_error", "message": "No"}}, "messages"),
        ({"type": "message", "id": "msg_1", "content": []}, "messages"),
        ({"type": "content_block_delta", "index": 0}, "messages"),
        ({"type": "ping"}, "messages"),
        ({"id": "c", "choices": []}, "chat"),
        ({"error": {"message": "No"}}, "chat"),
        ({"object": "chat.completion", "choices": []}, "chat"),
        ({"type": [], "choices": []}, "chat"),
        ({}, "responses"),
    ],
)
def test_the_shape_of_the_first_event_shows_the_api(event, api) -> None:
    text = json.dumps(event).encode()
    for data in (b": hi\n\ndata: " + text + b"\n\n", text, b"[" + text + b"]", json.dumps(event, indent=2).encode()):
        judge = AnyJudge()
        judge.feed(data)
        judge.end()
        assert judge.api == api, data


def test_unreadable_data_leaves_the_name_of_its_event() -> None:
    for event, api in (("message_start", "messages"), ("response.created", "responses"), ("x", "responses")):
        judge = AnyJudge()
        judge.feed(f"event: {event}\ndata: {{\n\n".encode())
        judge.end()
        assert judge.api == api


def variants(event, name):
    """The fields of each type that a field of an event of the SDK may have."""
    types = get_args(event.model_fields[name].annotation)
    return {get_args(each.model_fields["type"].annotation)[0]: each.model_fields for each in types}


def required(fields):
    return {field.alias or name for name, field in fields.items() if field.is_required()} - {"type"}


def test_the_blocks_and_their_deltas_are_those_of_the_sdk() -> None:
    blocks = variants(BetaRawContentBlockStartEvent, "content_block")
    expected = {kind: required(fields) for kind, fields in blocks.items()}
    expected["thinking"] -= {"signature"}  # which Anthropic's own service leaves out at times
    assert {kind: {*fields} for kind, fields in BLOCKS.items()} == expected
    deltas = variants(BetaRawContentBlockDeltaEvent, "delta")
    known = {kind: {*fields} for kinds in BLOCK_DELTAS.values() for kind, fields in kinds.items()}
    assert known == {kind: required(fields) for kind, fields in deltas.items()}
