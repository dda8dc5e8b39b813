"""Deltas and emissions: what their constructors refuse, and the properties of random scenarios."""

import json
import re
from math import inf, nan
from pathlib import Path

import attrs
import pytest
from for_each import for_each
from fuzzing.campaign import PROPERTIES, SCENARIOS, from_json, to_json
from hypothesis import HealthCheck, given, settings

from interlock import Finish, driver_for
from interlock.events.stream import EVENTS, Keepalive, ResponseEvent
from interlock.fsm import emissions
from interlock.fsm.deltas import Annotate, Close, EndOutput, EndTurn, Fail, Open, Progress, Run, Succeed, Text, Usage
from interlock.fsm.driver import SequentialIds
from interlock.fsm.lifecycle import Emission
from interlock.fsm.lifecycles import LIFECYCLES, RESPONSE


def test_usages_add_up_field_by_field():
    one = Usage(input_tokens=1, cached_tokens=2, output_tokens=3, reasoning_tokens=4, cache_write_tokens=5)
    other = Usage(input_tokens=10, cached_tokens=20, output_tokens=30, reasoning_tokens=40, cache_write_tokens=50)
    assert attrs.astuple(one + other) == (11, 22, 33, 44, 55)


def test_usage_takes_only_keyword_arguments():
    with pytest.raises(TypeError, match="positional argument"):
        Usage(1, 2, 3)


def test_an_item_of_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"^there is no item of kind 'poem'$"):
        Open("poem")


def test_an_item_cannot_open_without_its_required_fields():
    with pytest.raises(ValueError, match=r"^an item of kind 'mcp_call' cannot open without server_label, name$"):
        Open("mcp_call", {"arguments": "{}"})
    assert Open("mcp_call", {"server_label": "wiki", "name": "search"}).kind == "mcp_call"


def test_a_finish_reason_of_another_api_is_refused():
    with pytest.raises(
        ValueError,
        match=r"^unknown finish reason 'tool_calls'; choose one of stop, length, .*\('stop' if a turn ends with calls\)$",
    ):
        EndTurn("tool_calls")


@pytest.mark.parametrize("make", [Run, lambda known: Progress(known, {}), Succeed, lambda known: Fail(known, "no")])
def test_a_call_id_as_item_id_is_refused(make):
    with pytest.raises(ValueError, match=r"^'call_1' is a call_id; pass the item's id"):
        make("call_1")
    assert make("mcp_1").item_id == "mcp_1"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Close({"summary": []}), "no kind of item has a field 'summary' here"),
        (lambda: Close({"encrypted_content": 5}), "'encrypted_content' of reasoning cannot be 5"),
        (lambda: Succeed("ws_1", {"found": "x"}), "no kind of item has a field 'found' here"),
        (lambda: Succeed("ci_1", {"outputs": "x"}), "'outputs' of code_interpreter_call cannot be 'x'"),
        (
            lambda: Progress("ig_1", {"partial_image_index": 3}),
            "no tool has output 'partial_image_index' with the value 3;",
        ),
        (
            lambda: Progress("sho_1", {"stdout": b"x"}),
            "no tool has output 'stdout' with the value b'x';",
        ),
        (lambda: EndOutput("sho_1", {"type": "killed"}), "Invalid value 'killed'"),
        (lambda: Annotate({"type": "url_citation"}, "[1]"), "Object missing required field `"),
        (lambda: Annotate({"type": "note"}), "Invalid value 'note'"),
        (lambda: Text("a", [{"token": "a"}]), "Object missing required field `logprob` - at `$[0]`"),
        (lambda: Text("a", [{"token": "a", "logprob": -1.0, "bytes": [256]}]), "Expected `int` <= 255 - at `$[0].bytes[0]`"),
        (lambda: Usage(input_tokens=-1), "input_tokens is -1, and not a number of tokens"),
        (lambda: Usage(output_tokens=True), "output_tokens is True, and not a number of tokens"),
    ],
)
def test_a_delta_with_an_invalid_field_is_refused(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        make()


def test_log_probabilities_have_the_fields_of_the_api():
    least, other = {"token": "é", "logprob": -1.0}, {"token": "b", "logprob": -2.0, "bytes": None}
    (entry,) = Text("é", [{**least, "rank": 1, "top_logprobs": [other]}]).logprobs
    expected = {**least, "bytes": [0xC3, 0xA9], "top_logprobs": [{**other, "bytes": [98]}]}
    assert json.dumps(entry) == json.dumps(expected)
    assert Text("é", [least]).logprobs == [{**expected, "top_logprobs": []}]
    assert Text("", [{**least, "bytes": [0xC3]}]).logprobs == [{**least, "bytes": [0xC3], "top_logprobs": []}]


@pytest.mark.parametrize("value", [-inf, inf, nan])
def test_a_log_probability_that_is_not_finite_becomes_the_least(value) -> None:
    least = {"token": "a", "logprob": -9999.0, "bytes": [97]}
    entry = {**least, "logprob": value}
    assert Text("a", [{**entry, "top_logprobs": [entry]}]).logprobs == [{**least, "top_logprobs": [least]}]


def test_fields_of_another_kind_of_item_are_ignored():
    opening = Open("web_search_call", {"action": {"type": "search", "query": "q"}})
    driver = driver_for({"model": "m"})
    driver.feed([opening, Close({"encrypted_content": "x"})])
    (call,) = driver.ready
    driver.feed([Progress(call.id, {"stdout": "x"}), Succeed(call.id, {"output": "x", "action": "generate"}), Finish()])
    assert driver.items() == [{"type": "web_search_call", "id": call.id, "status": "completed", **opening.fields}]
    driver = driver_for({"model": "m"})
    driver.feed([Open("image_generation_call"), Close()])
    (call,) = driver.ready
    events = driver.feed(
        [Progress(call.id, {"partial_image_b64": "aQ==", "stdout": "x"}), Succeed(call.id, {"output": "x"}), Finish()]
    )
    assert [b"stdout" in event for event in events] == [False] * len(events)
    assert driver.status == "completed"


def test_sequential_ids_count_each_prefix_from_one():
    ids = SequentialIds()
    assert [ids(prefix) for prefix in ("msg", "rs", "msg")] == ["msg_1", "rs_1", "msg_2"]


def test_each_instance_of_sequential_ids_counts_from_one():
    assert [SequentialIds()("msg"), SequentialIds()("msg")] == ["msg_1", "msg_1"]


# Emissions, which make the events of a lifecycle's edges


BOUND = {name: value for name, value in vars(emissions).items() if isinstance(value, Emission)}
EMITTED = {
    str(emission) for lifecycle in (RESPONSE, *LIFECYCLES.values()) for edge in lifecycle.edges for emission in edge.effects
}


@for_each("name", BOUND)
def test_every_emission_is_part_of_some_lifecycle(name):
    assert str(BOUND[name]) in EMITTED


def test_every_event_but_error_is_emitted_by_some_lifecycle():
    never = {name for name in EVENTS if name not in EMITTED}
    assert never == {"error"}


def test_an_emission_is_labelled_by_its_wire_name():
    assert [str(emission) for emission in LIFECYCLES["message"].edges[2].effects] == [
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
    ]


def test_the_response_emits_only_events_about_itself():
    events = {emission.event for edge in RESPONSE.edges for emission in edge.effects}
    assert {event for event in events if not issubclass(event, ResponseEvent)} == {Keepalive}


# Random deltas through the driver give streams with the properties of `fuzzing.campaign`


KEPT = sorted((Path(__file__).parents[1] / "counterexamples").glob("*.json"))


@pytest.mark.long
@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenario=SCENARIOS)
def test_a_random_scenario_has_the_property(holds, scenario):
    holds(scenario)


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.stem)
def test_an_old_counterexample_has_the_property(kept, holds):
    holds(from_json(json.loads(kept.read_text())))


@given(scenario=SCENARIOS)
def test_a_scenario_can_be_written_as_json_and_read_again(scenario):
    assert from_json(json.loads(json.dumps(to_json(scenario)))) == [
        delta if isinstance(delta, str) else from_json(json.loads(json.dumps(to_json([delta]))))[0] for delta in scenario
    ]
