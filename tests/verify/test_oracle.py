"""The oracle reports every fault of a broken stream, and nothing in a legal one."""

import copy
import json

import pytest
from corpus_streams.broken import BROKEN, numbered
from corpus_streams.legal import FAILED, LEGAL, message, reasoning, reasoning_part, stream, text_part
from for_each import for_each
from fuzzing.campaign import is_legal_and_true
from open_responses_oracle import check_open_responses

from interlock import EventWriter, Finish, driver_for
from interlock.events.items import open_item
from interlock.events.json import as_json
from interlock.fsm.deltas import Close, EndOutput, Fail, Open, Progress, Run, Succeed
from interlock.fsm.driver import SequentialIds
from interlock.testing import findings
from interlock.verify import oracle
from interlock.verify.oracle import Finding, check


def in_open_responses(bodies):
    """Translate an OpenAI stream to Open Responses."""
    translated = []
    for body in bodies:
        name = body["type"].replace("reasoning_text", "reasoning")
        if name == "error":
            error = {"type": "server_error", **{field: body[field] for field in ("code", "message", "param")}}
            translated.append({"type": "error", "sequence_number": body["sequence_number"], "error": error})
        else:
            translated.append({**body, "type": name})
    return translated


@for_each("name", LEGAL)
def test_a_legal_stream_breaks_no_rule(name):
    assert check(LEGAL[name]) == []


@for_each("name", LEGAL)
def test_a_legal_stream_breaks_no_rule_in_open_responses(name):
    assert check_open_responses(in_open_responses(LEGAL[name])) == []


@for_each("name", BROKEN)
def test_each_broken_stream_breaks_the_rule_in_its_name(name):
    assert name.split("-")[0] in {finding.rule for finding in check(BROKEN[name])}


def test_an_oracle_finding_has_its_event_and_message():
    assert check(BROKEN["R2-skips"]) == [Finding("R2", "sequence_number is 99 instead of 4", event=4)]


def test_a_changed_function_name_breaks_r7():
    bodies = [dict(body) for body in LEGAL["function-call"]]
    bodies[5]["name"] = "another"
    message = "response.function_call_arguments.done has another id or name than item 0"
    assert check(bodies) == [Finding("R7", message, event=5)]


def test_the_empty_stream_breaks_r1_and_r3():
    assert check([]) == [
        Finding("R1", "the stream opens with []", event=0),
        Finding("R3", "there is no terminal event", event=0),
    ]


def test_every_proper_prefix_of_a_legal_stream_breaks_r3():
    for bodies in LEGAL.values():
        for length in range(len(bodies)):
            assert "R3" in {finding.rule for finding in check(bodies[:length])}


def test_a_missing_event_breaks_a_rule_unless_it_is_optional():
    optional = {
        "response.queued",
        "error",
        "response.image_generation_call.partial_image",
        "response.web_search_call.searching",
        "response.code_interpreter_call.interpreting",
    }
    for name, bodies in LEGAL.items():
        for place, body in enumerate(bodies):
            if body["type"] not in optional or name in {"code", "web-search"}:
                assert check(numbered([*bodies[:place], *bodies[place + 1 :]])), (name, place, body["type"])


def test_a_repeated_event_breaks_a_rule():
    for name, bodies in LEGAL.items():
        for place, body in enumerate(bodies):
            if body["type"] not in {"error", "response.image_generation_call.partial_image"}:
                assert check(numbered([*bodies[: place + 1], *bodies[place:]])), (name, place, body["type"])


def test_swapping_two_events_of_one_item_breaks_a_rule():
    for name, bodies in LEGAL.items():
        if name == "message-annotated":  # an annotation may come at any time
            continue
        for place in range(len(bodies) - 1):
            one, other = bodies[place], bodies[place + 1]
            of_two_items = one.get("output_index") != other.get("output_index") and "item" not in other
            if one["type"] != "error" and other["type"] != "error" and not of_two_items and one["type"] != other["type"]:
                swapped = numbered([*bodies[:place], other, one, *bodies[place + 2 :]])
                assert check(swapped), (name, place, one["type"], other["type"])


def test_openais_event_names_are_errors_in_open_responses():
    findings = check_open_responses(LEGAL["reasoning"])
    assert {finding.rule for finding in findings} == {"R14"}
    assert "R14" in {finding.rule for finding in check_open_responses(LEGAL["fault-said"])}


def test_open_responses_refuses_nulls_that_openai_allows():
    events = message(0, *text_part(0, "hi"), phase=None)
    assert check(stream(events)) == []
    findings = check_open_responses(stream(events))
    assert findings == [Finding("R14", "phase must not be null in Open Responses", event=place) for place in (2, 7)]


def test_logprobs_without_bytes_rebuild_the_text_from_their_tokens():
    logprobs = [[{"token": "h", "logprob": 0}], [{"token": "i", "logprob": -1.0}]]
    assert check(stream(message(0, *text_part(0, "h", "i", logprobs=logprobs)))) == []


def test_a_reasoning_item_may_lack_its_status_and_its_content():
    events = reasoning(0, *reasoning_part(0, "t"))
    for body in (events[0], events[-1]):
        del body["item"]["status"]
    del events[0]["item"]["content"]
    assert check(stream(events)) == []


def test_a_failed_response_may_have_no_items():
    assert check(stream([], **FAILED)) == []


def test_values_of_a_wrong_type_give_findings_and_never_raise():
    for value in (None, 3, "x", [], [[]]):
        for field in ("type", "item", "part", "response", "output_index", "item_id", "delta", "logprobs", "sequence_number"):
            for name in ("message", "message-annotated", "web-search"):
                for place in range(len(LEGAL[name])):
                    bodies = list(LEGAL[name])
                    if bodies[place].get(field, value) != value:
                        bodies[place] = {**bodies[place], field: value}
                        assert check(bodies), (name, place, field, value)


def paths(value, way=()):
    """Yield the path to every value inside a JSON value."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in entries:
        yield (*way, step)
        yield from paths(inner, (*way, step))


@pytest.mark.parametrize("name", ["message", "fault", *(pytest.param(name, marks=pytest.mark.long) for name in LEGAL)])
@pytest.mark.parametrize("value", [None, "x", -0.5, [{"x": None}]])
def test_both_judges_agree_on_a_stream_with_a_changed_value(name, value):
    for place, body in enumerate(LEGAL[name]):
        for *way, last in paths(body):
            bodies = json.loads(json.dumps(LEGAL[name]))
            target = bodies[place]
            for step in way:
                target = target[step]
            target[last] = value
            by_acceptor, by_oracle = ({each.rule for each in judge(bodies)} for judge in (findings, check))
            found = f"`interlock check` finds {by_acceptor}, and verify/oracle.py {by_oracle}: event {place}, {[*way, last]}"
            assert bool(by_acceptor) == bool(by_oracle), found
            assert not by_acceptor or by_acceptor & by_oracle, found


def test_a_row_of_orders_with_an_unknown_event_is_refused():
    with pytest.raises(ValueError, match=r"^a row of _ORDERS names 'response\.program\.run', which is not an event$"):
        oracle._expression("added program.run done")


def test_a_command_that_is_added_with_text_breaks_r9():
    scenario = [Open("shell_call", {"call_id": "call_1"}), "ls", Close(), Finish()]
    bodies = [as_json(event) for event in driver_for({"model": "m"}, writer=EventWriter()).feed(scenario)]
    place = next(place for place, body in enumerate(bodies) if body["type"] == "response.shell_call_command.added")
    bodies[place] = {**bodies[place], "command": "l"}
    assert Finding("R9", "a command is added with text", event=place) in check(bodies)
    assert ("R9", place, "the command is added with text") in {
        (finding.rule, finding.event, finding.message) for finding in findings(bodies)
    }


def test_a_command_without_a_delta_breaks_r9():
    scenario = [Open("shell_call", {"call_id": "call_1"}), "ls", Close(), Finish()]
    bodies = [as_json(event) for event in driver_for({"model": "m"}, writer=EventWriter()).feed(scenario)]
    bodies = numbered([body for body in bodies if body["type"] != "response.shell_call_command.delta"])
    assert "R9" in {finding.rule for finding in check(bodies)}
    assert ("R9", "command comes without a delta") in {(finding.rule, finding.message) for finding in findings(bodies)}


def test_an_item_without_the_output_of_its_command_breaks_r9():
    scenario = [Open("shell_call_output", {"call_id": "call_1"}), Progress("sho_1", {"stdout": "a", "stderr": ""})]
    scenario += [EndOutput("sho_1", {"type": "exit", "exit_code": 0}), Succeed("sho_1"), Finish()]
    driver = driver_for({"model": "m"}, writer=EventWriter(), ids=SequentialIds())
    bodies = [as_json(event) for event in driver.feed(scenario)]
    assert check(bodies) == []
    place, done = next((at, body) for at, body in enumerate(bodies) if body["type"] == "response.output_item.done")
    done["item"] = {**done["item"], "output": []}
    assert Finding("R9", "the output of item 0 is not that of its commands", event=place) in check(bodies)


@pytest.mark.parametrize("logprobs", [None, [{"token": "a", "logprob": -1.0, "bytes": "a"}]])
def test_invalid_log_probabilities_are_reported(logprobs):
    bodies = copy.deepcopy(LEGAL["message"])
    place = next(place for place, body in enumerate(bodies) if body["type"] == "response.output_text.delta")
    bodies[place]["logprobs"] = logprobs
    assert place in {finding.event for finding in check(bodies)}
    assert place in {finding.event for finding in findings(bodies)}


def test_a_shell_call_that_is_added_with_commands_breaks_r9():
    scenario = [Open("shell_call", {"call_id": "call_1"}), "ls", Close(), Finish()]
    events = [as_json(event) for event in driver_for({"model": "m"}, writer=EventWriter()).feed(scenario)]
    assert check(events) == []
    added = next(body for body in events if body["type"] == "response.output_item.added")
    added["item"] = {**added["item"], "action": {"commands": ["ls"]}}
    assert "R9" in {finding.rule for finding in check(events)}


# The judges and the expectation of the proof, on scenarios of hosted calls


PRINTED = {"stdout": "signals\n", "stderr": ""}
EXIT = {"type": "exit", "exit_code": 0}
PATCH = {"operation": {"type": "delete_file", "path": "a.txt"}}


@pytest.mark.parametrize(
    "scenario",
    [
        [Open("shell_call", {"action": {}}), "ls", " -l", Close()],
        [Open("shell_call_output", {"call_id": "call_1"}), Progress("#0", PRINTED), EndOutput("#0", EXIT), Succeed("#0")],
        [Open("shell_call_output", {"call_id": "call_1"}), Progress("#0", PRINTED), Progress("#0", PRINTED), Succeed("#0")],
        [Open("shell_call_output", {"call_id": "call_1"}), Progress("#0", PRINTED), Fail("#0", "It broke.")],
        [Open("shell_call_output", {"call_id": "call_1"}), EndOutput("#0", EXIT)],
        [Open("mcp_list_tools", {"server_label": "s"}), EndOutput("#0", EXIT), Progress("#0", {}), Run("#0"), Succeed("#0")],
        [Open("apply_patch_call", PATCH), Close()],
        [Open("mcp_call", {"server_label": "s", "name": "n"}), "{}", Close(), Fail("#0", "It is not there.")],
    ],
    ids=repr,
)
def test_a_scenario_is_legal_and_has_the_expected_effects(scenario) -> None:
    is_legal_and_true(scenario)


def test_a_patch_that_deletes_has_no_diff() -> None:
    assert as_json(open_item("apply_patch_call", PATCH))["operation"] == PATCH["operation"]
