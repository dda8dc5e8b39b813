"""A long run of the properties over random scenarios.

A scenario is a random list of deltas for a driver. A delta names its item by `#0`, `#1`, …, counted back from the newest item,
because ids are only known when the driver runs; `resolved` replaces the reference by the id. So a scenario stays usable when
Hypothesis drops some of its deltas.

Each round draws 250 for each property. A scenario that breaks one is shrunk, printed and written to `counterexamples/`, where the
ordinary tests replay it; the exit status is then 1.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import attrs
from campaigns import options
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from open_responses_oracle import check_open_responses
from openai.types.responses import ResponseOutputItem
from stray_fields import stray_fields

from interlock.events.conversion import EVENT_MODELS, response_to_openai, to_openai
from interlock.events.dialects import OPEN_RESPONSES
from interlock.events.items import ITEMS, ItemKind, result_fields
from interlock.events.json import as_json, clean, dumps
from interlock.events.sse import DONE_FRAME, EventWriter, SseWriter, Writer
from interlock.fsm import deltas
from interlock.fsm.deltas import Delta, Finish, FinishReason, Refusal, Succeed, Summary, Text
from interlock.fsm.driver import ResponseDriver, SequentialIds
from interlock.judges import judge
from interlock.verify import oracle
from interlock.verify.expectation import Expectation
from interlock.verify.proof import FIELDS

_TEXT = st.sampled_from(["a", "é", " ", "\n", "", '"}\\', "\u2028", "😀", "%d", "\ud800"]) | st.text(st.characters(), max_size=8)
_NAMES = st.text("abc_.-é", min_size=1, max_size=4)
_REFERENCE = st.integers(0, 4).map("#{}".format)
_MESSAGE = st.sampled_from(["It broke.", "é😀", "\ud800"])
_COUNT = st.integers(0, 9)
_USAGE = st.builds(deltas.Usage, **dict.fromkeys((field.name for field in attrs.fields(deltas.Usage)), _COUNT))
_CITATION = {"type": "url_citation", "url": "https://example.org", "title": "E", "start_index": 0, "end_index": 1}


def _cited(mark: str) -> deltas.Annotate:
    return deltas.Annotate({"type": "url_citation", "url": "https://example.org", "title": "E"}, mark)


_CALL_ID = st.sampled_from([None, "", "call_1", "call_2", "mine"]) | _NAMES
_ACTION = st.sampled_from(
    [
        {"type": "search", "query": "signals"},
        {"type": "open_page", "url": "https://example.org"},
        {"type": "find_in_page", "url": "https://example.org", "pattern": "signal"},
    ]
)
_FIELDS = {
    "reasoning": {"encrypted_content": st.sampled_from(["", "sealed"])},
    "message": {"phase": st.sampled_from(["commentary", "final_answer"])},
    "function_call": {"name": _NAMES, "call_id": _CALL_ID},
    "custom_tool_call": {"name": _NAMES, "call_id": _CALL_ID},
    "mcp_call": {"server_label": _NAMES, "name": _NAMES},
    "mcp_list_tools": {"server_label": _NAMES},
    "mcp_approval_request": {"server_label": _NAMES, "name": _NAMES, "arguments": st.just("{}")},
    "code_interpreter_call": {},
    "web_search_call": {"action": _ACTION},
    "file_search_call": {"queries": st.lists(_NAMES, max_size=2)},
    "image_generation_call": {},
}


def _fields(kind: ItemKind) -> st.SearchStrategy[dict[str, object]]:
    fields = _FIELDS.get(kind)
    return st.just({**FIELDS[kind]}) if fields is None else st.fixed_dictionaries(fields)


_OPEN = st.sampled_from(list(ITEMS)).flatmap(lambda kind: st.builds(deltas.Open, st.just(kind), _fields(kind)))
_PLAIN = _TEXT | st.builds(deltas.Text, _TEXT, st.just(()))


def _with_logprobs(texts: list[str]) -> deltas.Text:
    tokens = [{"token": text, "bytes": [*text.encode()], "logprob": -0.5, "top_logprobs": []} for text in texts]
    return deltas.Text("".join(texts), tokens)


_WITH_LOGPROBS = st.lists(_TEXT.map(clean), min_size=1, max_size=2).map(_with_logprobs)
_DELTA = st.one_of(
    _OPEN,
    st.sampled_from([deltas.Close({"encrypted_content": "sealed"}), deltas.Close({"code": "go", "action": {"type": "wait"}})]),
    st.builds(deltas.EndOutput, _REFERENCE, st.just({"type": "exit", "exit_code": 1})),
    st.sampled_from([deltas.Close(), deltas.EndPart(), deltas.Annotate(_CITATION), *map(_cited, ["a", "é", "\n", "😀"])]),
    st.builds(deltas.Summary, _TEXT),
    st.builds(deltas.Run, _REFERENCE),
    st.builds(deltas.Progress, _REFERENCE, st.just({"partial_image_b64": "aW1hZ2U="})),
    st.builds(deltas.Succeed, _REFERENCE, st.just({}) | st.fixed_dictionaries({"output": _TEXT})),
    st.builds(deltas.Fail, _REFERENCE, _MESSAGE),
    st.builds(deltas.Reject, _MESSAGE),
    st.builds(deltas.EndTurn, st.just("stop"), _USAGE),
    st.sampled_from([deltas.Start(), deltas.Enqueue()]),
)
_END = st.one_of(
    st.just(deltas.Finish()),
    st.just(deltas.Cancel()),
    st.builds(deltas.Fault, st.sampled_from(["server_error", "rate_limit_exceeded"]), _MESSAGE),
    st.builds(deltas.EndTurn, st.sampled_from(get_args(FinishReason)), _USAGE),
)


def _scenarios() -> st.SearchStrategy[list[Delta]]:
    steps = st.one_of(_PLAIN | _WITH_LOGPROBS, _DELTA, st.builds(deltas.Refusal, _TEXT))
    before, after = st.lists(steps, max_size=24), st.lists(steps, max_size=2)
    return st.builds(lambda *parts: [delta for part in parts for delta in part], before, st.lists(_END, max_size=2), after)


SCENARIOS = _scenarios()


_ACTIONS: Final[dict[str | None, dict[str, object]]] = {
    "web_search_call": {"type": "search", "query": "noise"},
    "local_shell_call": {"type": "exec", "command": ["ls"], "env": {}},
}
"""The actions of the kinds of item whose action is not a computer's."""


def resolved(delta: Delta, driver: ResponseDriver[Any]) -> Delta:
    """Return a delta with the id of its item, and with a result or an action that fits the item's kind."""
    if isinstance(delta, deltas.Close) and "action" in delta.fields:
        return deltas.Close({**delta.fields, "action": _ACTIONS.get(_kind(driver), delta.fields["action"])})
    if not isinstance(delta, deltas.Run | deltas.Progress | deltas.EndOutput | deltas.Succeed | deltas.Fail):
        return delta
    output = driver.response["output"][::-1]
    place = int(delta.item_id[1:])
    if place >= len(output):
        return delta
    item = output[place]
    with_id = attrs.evolve(delta, item_id=item["id"])
    if isinstance(with_id, deltas.Progress) and item["type"] == "shell_call_output":
        return attrs.evolve(with_id, fields={"stdout": "signals\n", "stderr": ""})
    if isinstance(with_id, deltas.Succeed):
        return attrs.evolve(
            with_id,
            fields=result_fields(item["type"], str(with_id.fields.get("output", ""))) if with_id.fields else {},
        )
    return with_id


def _kind(driver: ResponseDriver[Any]) -> str | None:
    """Return the kind of the newest item, which is the active one if any is active."""
    output = driver.response["output"]
    return output[-1]["type"] if output else None


def _arguments(delta: Delta) -> dict[str, Any]:
    """Return the arguments that create a delta."""
    names = {attribute.name for attribute in attrs.fields(type(delta)) if attribute.init}
    return attrs.asdict(delta, filter=lambda attribute, _: attribute.name in names)


def to_json(scenario: Sequence[Delta]) -> list[Any]:
    """Return a scenario as JSON values: a text stays a string; any other delta is its name and its fields."""
    return [delta if isinstance(delta, str) else [type(delta).__name__, _arguments(delta)] for delta in scenario]


def from_json(scenario: Sequence[Any]) -> list[Delta]:
    """Return the scenario that `to_json` returned as JSON values."""
    return [delta if isinstance(delta, str) else _build(*delta) for delta in scenario]


def _build(name: str, fields: dict[str, Any]) -> Delta:
    if "usage" in fields:
        fields = {**fields, "usage": deltas.Usage(**fields["usage"])}
    delta: Delta = getattr(deltas, name)(**fields)
    return delta


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


T = TypeVar("T")

FOUND = Path(__file__).parents[2] / "counterexamples"
ROUND = 250
"""The scenarios for each property in a round."""


def broken_by(
    examples: SearchStrategy[T], holds: Callable[[T], None], count: int = ROUND, number: int | None = None
) -> tuple[T, BaseException] | None:
    """Test a property with new examples, or with those of a seed; return the shortest one that breaks it, with the error."""
    last: list[T] = []

    def attempt(example: T) -> None:
        last[:] = [example]
        holds(example)

    limits = settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    property_test = limits(given(examples)(attempt))
    try:
        (property_test if number is None else seed(number)(property_test))()
    except BaseException as error:  # an assertion, an exception of what is tested, or several of them at once
        if isinstance(error, KeyboardInterrupt):
            raise
        return last[0], error  # Hypothesis repeats the shortest example last
    return None


def show(progress: str) -> None:
    """Write the progress over the line before it."""
    sys.stdout.write(f"\r{progress}")
    sys.stdout.flush()


def main(minutes: float) -> int:
    """Run for some minutes, and return the exit status."""
    start, scenarios = time.monotonic(), 0
    while (seconds := time.monotonic() - start) < minutes * 60:
        for holds in PROPERTIES:
            broken = broken_by(SCENARIOS, holds)
            if broken is not None:
                scenario, error = broken
                path = FOUND / time.strftime(f"{holds.__name__}-%Y%m%d-%H%M%S.json")
                path.write_text(json.dumps(to_json(scenario), indent=1) + "\n")
                show(f"{holds.__name__} does not hold: {error!r}\n{scenario!r}\nwritten to {path}\n")
                return 1
            scenarios += ROUND
        show(f"{scenarios:,} scenarios, {seconds / 60:.1f} of {minutes:g} minutes")
    show(f"{scenarios:,} scenarios in {minutes:g} minutes, and every property holds\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(**options(__doc__, minutes=5.0)))
