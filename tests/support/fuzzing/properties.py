"""Properties of every scenario, as functions that assert them; for the tests and for the campaign."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from fuzzing.scenarios import resolved
from open_responses_oracle import check_open_responses
from openai.types.responses import ResponseOutputItem
from stray_fields import stray_fields

from interlock.events.conversion import EVENT_MODELS, response_to_openai, to_openai
from interlock.events.dialects import OPEN_RESPONSES
from interlock.events.json import as_json, clean, dumps
from interlock.events.sse import DONE_FRAME, EventWriter, SseWriter, Writer
from interlock.fsm.deltas import Delta, Finish, Refusal, Succeed, Summary, Text
from interlock.fsm.driver import ResponseDriver, SequentialIds
from interlock.judges import judge
from interlock.verify import oracle
from interlock.verify.expectation import Expectation

SETTINGS = {"model": "m", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}


def driver(writer: Writer[Any]) -> ResponseDriver[Any]:
    return ResponseDriver(SETTINGS, writer=writer, ids=SequentialIds(), clock=lambda: 7)


def bodies(frames: Iterable[bytes]) -> list[Mapping[str, Any]]:
    return [json.loads(frame.partition(b"\ndata: ")[2]) for frame in frames]


def is_legal_and_true(scenario: Sequence[Delta]) -> None:
    """The oracle and the acceptor find nothing, and each delta has the expected effects."""
    run, expectation, frames = driver(SseWriter()), Expectation(), []
    for delta in (*scenario, Finish()):
        with_id = resolved(delta, run)
        new_frames = run.feed([with_id])
        frames += new_frames
        assert expectation.compare(_as_written(with_id), bodies(new_frames)) is None
    events = bodies(frames)
    assert oracle.check(events) == []
    assert list(judge([*frames, DONE_FRAME]).findings) == []
    assert run.ended


def _as_written(delta: Delta) -> Delta:
    """Return a delta as the wire carries it, because the expectation compares texts."""
    match delta:
        case str():
            return clean(delta)
        case Text(text, logprobs):
            return Text(clean(text), logprobs)
        case Refusal(text) | Summary(text):
            return type(delta)(clean(text))
        case Succeed(item_id, fields):
            return Succeed(item_id, json.loads(dumps(fields)))
        case _:
            return delta


TYPED = {name for model in get_args(get_args(ResponseOutputItem)[0]) for name in get_args(model.model_fields["type"].annotation)}
"""The kinds of item for which the installed `openai` package has a type; its beta has more."""


def is_typed(scenario: Sequence[Delta]) -> None:
    """The `openai` package has a type for every event, and the terminal event has the driver's response."""
    run = driver(EventWriter())
    events = events_of(run, scenario)
    if any(item["type"] not in TYPED for item in run.response["output"]):
        return
    for event in events:
        if event.type in EVENT_MODELS:  # no release has the two events of a patch
            assert to_openai(as_json(event)).type == event.type
            assert stray_fields(as_json(event)) == []
    assert as_json(events[-1])["response"] == run.response
    assert response_to_openai(run.response).id == run.response["id"]


def is_the_same_in_any_chunks(scenario: Sequence[Delta]) -> None:
    """Frames and event objects agree, whether the deltas are fed one by one or all at once."""
    objects, one_by_one, at_once = driver(EventWriter()), driver(SseWriter()), driver(SseWriter())
    events = events_of(objects, scenario)
    deltas, frames = [], []
    for delta in (*scenario, Finish()):
        deltas.append(resolved(delta, one_by_one))
        frames += one_by_one.feed(deltas[-1:])
    assert at_once.feed(deltas) == frames
    assert bodies(frames) == [as_json(event) for event in events]


def is_legal_in_the_other_dialect(scenario: Sequence[Delta]) -> None:
    """The stream in the dialect of Open Responses is legal in that dialect."""
    frames = events_of(driver(SseWriter(OPEN_RESPONSES)), scenario)
    assert check_open_responses(bodies(frames)) == []


def events_of(run: ResponseDriver[Any], scenario: Sequence[Delta]) -> list[Any]:
    return [event for delta in (*scenario, Finish()) for event in run.feed([resolved(delta, run)])]


PROPERTIES = (is_legal_and_true, is_typed, is_the_same_in_any_chunks, is_legal_in_the_other_dialect)
