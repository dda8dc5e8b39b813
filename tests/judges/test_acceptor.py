"""The acceptor on each stream of the corpus, and rule by rule; `test_agreement` compares it with the oracle."""

import copy
import json

import pytest
from corpus_streams.broken import BROKEN, doubled, dropped, edited, moved, numbered
from corpus_streams.legal import FAILED, LEGAL, code_interpreter_call, function_call, item, message, stream, text_part
from for_each import for_each

from interlock import Close, EventWriter, Finish, Open, driver_for
from interlock.events.dialects import OPEN_RESPONSES
from interlock.events.json import as_json
from interlock.fsm.lifecycles import LIFECYCLES, RESPONSE
from interlock.judges import Acceptor, Finding
from interlock.judges.automaton import LifecycleAutomaton
from interlock.judges.digests import LogprobsDigest, TextDigest, digest


def findings(bodies, **settings):
    acceptor = Acceptor(**settings)
    return [*(one for body in bodies for one in acceptor.feed(body)), *acceptor.end()]


def summaries(bodies, **settings):
    return [(one.rule, one.event, one.message) for one in findings(bodies, **settings)]


@for_each("name", LEGAL)
def test_a_legal_stream_has_no_finding(name):
    assert findings(LEGAL[name]) == []


@for_each("name", LEGAL)
def test_a_legal_stream_has_no_finding_in_open_responses(name):
    assert findings([OPEN_RESPONSES.convert(body) for body in LEGAL[name]], dialect="open_responses") == []


@for_each("name", LEGAL)
def test_no_tail_of_a_legal_stream_has_a_finding(name):
    for cut in range(1, len(LEGAL[name])):
        assert findings(LEGAL[name][cut:], first_sequence_number=cut) == []
        assert findings(LEGAL[name][cut:], first_sequence_number=None) == []


@for_each("name", BROKEN)
def test_each_broken_stream_has_a_finding_for_the_rule_in_its_name(name):
    assert name.split("-")[0] in {one.rule for one in findings(BROKEN[name])}


def test_a_stream_that_begins_with_0_counts_as_complete():
    assert summaries(dropped("message", 1), first_sequence_number=None) == [("R1", 1, "comes before the stream has opened")]


def test_a_finding_has_its_place_the_received_event_and_the_expected_events():
    assert findings(dropped("function-call", 5)) == [
        Finding(
            rule="R10",
            event=5,
            sequence_number=5,
            item="fc_0",
            kind="function_call",
            state="in_progress",
            received="response.output_item.done",
            expected=("response.function_call_arguments.delta", "response.function_call_arguments.done"),
            message="is not allowed here in the lifecycle of function_call",
        )
    ]


def test_expected_events_have_the_names_of_the_dialect():
    bodies = [OPEN_RESPONSES.convert(body) for body in dropped("reasoning", 6)]
    assert findings(bodies, dialect="open_responses")[0].expected == ("response.reasoning.delta", "response.reasoning.done")


@pytest.mark.parametrize("name", ["reasoning", "fault-said"])
def test_open_responses_names_are_unknown_in_openais_dialect(name):
    assert {one.rule for one in findings(LEGAL[name], dialect="open_responses")} == {"R14"}


def test_a_truncated_stream_lists_its_open_items():
    (finding,) = findings(LEGAL["fault"][:8])
    assert (finding.rule, finding.event, finding.received) == ("R3", 8, "")
    assert (
        finding.message
        == "the stream ends without a terminal event, with item 0 (ci_0, ready), item 1 (msg_1, output_text or refusal) open"
    )
    assert finding.expected == ("response.completed", "response.failed", "response.incomplete")


def test_the_empty_stream_breaks_r3():
    assert summaries([]) == [("R3", 0, "the stream ends without a terminal event")]


@for_each(
    ("bodies", "findings"),
    [
        (dropped("message", 3), [("R8", 3, "breaks the order of parts")]),
        (dropped("message", -4), [("R8", 7, "breaks the order of parts")]),
        (doubled("message", 2), [("R7", 3, "the item is added a second time")]),
        (doubled("message", 9), [("R7", 10, "comes after the item was done")]),
        (doubled("code", 8), [("R10", 9, "is not allowed here in the lifecycle of code_interpreter_call")]),
        (moved("image", 5, 4), [("R10", 4, "is not allowed here in the lifecycle of image_generation_call")]),
        (moved("file-search", 5, 4), [("R11", 4, "reports the end of a tool that did not run")]),
        (edited("message", 5, "sequence_number", 99), [("R2", 5, "sequence_number is 99 instead of 5")]),
        (edited("message", 5, "sequence_number", ...), [("R2", 5, "sequence_number is missing")]),
        (edited("message", 5, "sequence_number", "5"), [("R2", 5, "sequence_number is '5' instead of a number")]),
        (edited("function-call", 5, "arguments", "{}"), [("R9", 5, "arguments differs from the deltas at character 1")]),
        (edited("message", 4, "output_index", 3), [("R7", 4, "output_index is 3, but that of item msg_0 is 0")]),
        (edited("message", 4, "item_id", "msg_1"), [("R7", 4, "item_id is 'msg_1', but that of item 0 is 'msg_0'")]),
    ],
)
def test_one_error_is_reported_once(bodies, findings):
    without_shapes = [one for one in summaries(bodies) if one[0] != "R14"]
    assert without_shapes == findings


def test_a_wrong_id_in_every_event_is_reported_once():
    bodies = copy.deepcopy(LEGAL["message"])
    for body in bodies:
        if "item_id" in body:
            body["item_id"] = "msg_9"
    assert summaries(bodies) == [("R7", 3, "item_id is 'msg_9', but that of item 0 is 'msg_0'")]


def test_a_gap_in_the_sequence_numbers_is_reported_once():
    bodies = [{**body, "sequence_number": place + 3 * (place > 4)} for place, body in enumerate(LEGAL["message"])]
    assert summaries(bodies) == [("R2", 5, "sequence_number is 8 instead of 5")]


def test_a_wrong_sequence_number_is_reported_on_the_fast_path():
    numbers = {6: 9, 7: 10, 8: 7, **{place: place - 1 for place in range(9, 16)}}
    bodies = stream(message(0, *text_part(0, *"abcdefgh")))
    bodies = [{**body, "sequence_number": numbers.get(place, place)} for place, body in enumerate(bodies)]
    assert summaries(bodies) == [
        ("R2", 6, "sequence_number is 9 instead of 6"),
        ("R2", 8, "sequence_number is 7 instead of 11"),
    ]


def test_an_unreadable_event_causes_no_findings_in_later_events():
    bodies = LEGAL["message"]
    for place in (4, 6, 7, 8):
        acceptor = Acceptor()
        findings = [one for body in bodies[:place] for one in acceptor.feed(body)]
        acceptor.skip()
        findings += [one for body in bodies[place + 1 :] for one in acceptor.feed(body)]
        assert {one.rule for one in findings} <= {"R8"}
    acceptor = Acceptor(first_sequence_number=None)
    acceptor.skip()
    assert [one for place in range(1, len(bodies)) for one in acceptor.feed(bodies[place])] == []


def test_interleaved_items_break_r10_unless_permitted():
    bodies = BROKEN["R10-two-items-at-once"]
    assert {one.rule for one in findings(bodies)} == {"R10"}
    assert findings(bodies, permissive=True) == []


def test_calls_may_wait_while_another_item_is_written():
    waiting = code_interpreter_call(0, "1")
    assert findings(stream([*waiting[:4], *message(1, *text_part(0, "hi")), *waiting[4:]])) == []


def test_an_item_without_an_added_event_is_reported_once():
    bodies = numbered([body for body in LEGAL["function-call"] if body["type"] != "response.output_item.added"])
    assert [(one.rule, one.item) for one in findings(bodies)] == [("R7", "fc_0"), ("R7", "fc_1")]


def test_a_state_is_unknown_if_an_item_may_be_in_more_than_two():
    (finding,) = findings(dropped("message", 2))
    assert (finding.rule, finding.state) == ("R7", "unknown")


def test_the_kind_of_an_unadded_item_is_inferred_from_its_events():
    events = function_call(0, "{}")[1:]
    for body in events:
        if "item_id" in body:
            body["item_id"] = "x"
    events[-1]["item"]["id"] = "x"
    assert {one.kind for one in findings(stream(events))} == {"function_call"}
    part = {"type": "response.content_part.added", "item_id": "x", "output_index": 0, "content_index": 0}
    bodies = stream([{**part, "part": {"type": "refusal", "refusal": ""}}])
    assert [(one.rule, one.kind, one.state) for one in findings(bodies)] == [("R7", None, "unknown")] * 2


def test_an_item_at_a_taken_index_is_still_judged():
    second = [{**body, "output_index": 0} for body in message(1, *text_part(0, "hi"))]
    bodies = stream([*message(0, *text_part(0, "hi")), *second])
    assert summaries(bodies)[0] == ("R7", 8, "output_index 0 already belongs to msg_0")
    assert {one.rule for one in findings(bodies)} == {"R7", "R13"}


def test_an_event_without_an_index_breaks_only_r14():
    for name in ("response.output_item.added", "response.output_text.delta"):
        bodies = stream([{"type": name}])
        assert {one.rule for one in findings(bodies)} == {"R14"}


def test_an_event_that_the_api_lacks_breaks_r14():
    assert summaries(stream([{"type": "response.audio.done"}])) == [("R14", 2, "the API has no event 'response.audio.done'")]


@pytest.mark.parametrize(
    ("holder", "field", "message"),
    [
        ("item", "output_index", "function_call has 'output_index', which is a field of events"),
        ("item", "x", "function_call has the unknown field 'x'"),
        (None, "part", "response.output_item.added has 'part', which is a field of other events"),
        (None, "x", "response.output_item.added has the unknown field 'x'"),
    ],
)
def test_a_field_that_its_object_lacks_is_unknown_or_of_events(holder, field, message):
    bodies = copy.deepcopy(LEGAL["function-call"])
    (bodies[2][holder] if holder else bodies[2])[field] = 0
    assert summaries(bodies) == [("R14", 2, message)]


def test_an_item_without_its_status_is_judged_by_the_other_rules():
    bodies = copy.deepcopy(LEGAL["function-call"])
    place = next(place for place, body in enumerate(bodies) if body["type"] == "response.function_call_arguments.done")
    del bodies[2]["item"]["status"]
    missing = ("R14", 2, "function_call: status is missing")
    assert summaries(bodies) == [missing]
    bodies[place]["arguments"] = "{}"
    assert summaries(bodies) == [missing, ("R9", place, "arguments differs from the deltas at character 1")]


@for_each("name", ["name", "call_id", "arguments", "status"])
def test_a_wrong_field_of_an_item_is_reported_once_for_each_event(name):
    bodies = copy.deepcopy(LEGAL["function-call"])
    places = [place for place, body in enumerate(bodies) if "item" in body]
    for place in places:
        del bodies[place]["item"][name]
    assert summaries(bodies) == [("R14", place, f"function_call: {name} is missing") for place in places]


@pytest.mark.parametrize("name", ["bytes", "top_logprobs"])
def test_log_probabilities_of_events_may_lack_fields_that_those_of_parts_have(name):
    def shorten(holder):
        holder["logprobs"] = [{field: value for field, value in entry.items() if field != name} for entry in holder["logprobs"]]

    bodies = json.loads(json.dumps(LEGAL["message-logprobs"]))
    *_, part_done, item_done, _ = bodies
    for body in bodies:
        if "logprobs" in body:
            shorten(body)
    assert "R14" not in {finding.rule for finding in findings(bodies)}
    for part in (part_done["part"], item_done["item"]["content"][0]):
        shorten(part)
    bodies[-1]["response"]["output"] = [item_done["item"]]
    of_fields = [summary for summary in summaries(bodies) if summary[0] == "R14"]
    assert of_fields == [("R14", place, f"logprobs: {name} is missing") for place in (7, 7, 7, 8, 8, 8)]


def test_an_incomplete_response_may_end_in_a_call_whose_status_is_missing():
    bodies = copy.deepcopy(LEGAL["function-call-left"])
    del bodies[-2]["item"]["status"]  # which is also the item of the response
    assert {one.rule for one in findings(bodies)} == {"R14"}


def test_an_item_after_an_error_event_breaks_r4():
    assert ("R4", 3, "an item begins after an error event") in summaries(BROKEN["R4-item-after-error-event"])


def test_the_fast_path_gives_the_same_findings():
    pieces = [str(number) for number in range(100)]
    bodies = stream(message(0, *text_part(0, *pieces)))
    assert findings(bodies) == []
    for place, field, value in [
        (50, "delta", 3),
        (50, "sequence_number", 51.0),
        (50, "output_index", False),
        (50, "content_index", 1),
        (50, "item_id", "msg_1"),
        (50, "x", None),
        (50, "logprobs", [1]),
    ]:
        edited_ = [*bodies[:place], {**bodies[place], field: value}, *bodies[place + 1 :]]
        assert findings(edited_)[0].event == place
    without = [{name: value for name, value in body.items() if name != "sequence_number"} for body in bodies]
    assert {one.rule for one in findings(without)} == {"R2"}


def test_obfuscation_does_not_change_the_text():
    bodies = [
        {**body, "obfuscation": "x" * place} if body["type"].endswith(".delta") else body
        for place, body in enumerate(LEGAL["message"])
    ]
    assert findings(bodies) == []


@pytest.mark.long
@pytest.mark.parametrize("value", [None, True, 1.5, "x", [[]], {}, [{"a": [None]}]])
def test_values_of_a_wrong_type_give_findings_and_never_raise(value):
    for name, bodies in LEGAL.items():
        for place, body in enumerate(bodies):
            for field in body:
                changed = [*bodies[:place], {**body, field: value}, *bodies[place + 1 :]]
                legal = isinstance(value, type(body[field])) or body["type"] == "error"
                assert legal or findings(changed), (name, place, field)
            for holder in ("item", "response", "part"):
                for field in body.get(holder, {}):
                    changed = [*bodies[:place], {**body, holder: {**body[holder], field: value}}, *bodies[place + 1 :]]
                    findings(changed)


def test_a_response_may_fail_before_it_has_items():
    assert findings(stream([], **FAILED)) == []


def test_an_unknown_kind_of_item_breaks_only_r14():
    bodies = stream(item(0, {"type": "telepathy", "id": "t_0"}, {}, ("web_search_call.searching", {})))
    assert {(one.rule, one.message) for one in findings(bodies)} == {("R14", "the API has no item of type 'telepathy'")}


def test_a_wrong_total_of_tokens_breaks_r13():
    bodies = copy.deepcopy(LEGAL["message"])
    bodies[-1]["response"]["usage"]["total_tokens"] = 19
    assert summaries(bodies) == [("R13", 10, "usage does not add up: 11 and 7 are not 19")]


def test_a_long_text_is_hashed_and_compared():
    pieces = [f"{number} " for number in range(10_000)]
    whole = "".join(pieces)
    for whole_text, wrong in [
        (whole, ""),
        ("x" + whole[1:], "differs from the 48890 characters of the deltas, among the first "),
        (whole[:-1], "has 48889 characters where the deltas have 48890"),
        (whole[:-2] + "! ", "differs from the deltas at character 48888"),
    ]:
        text = TextDigest()
        for piece in pieces:
            text.add(piece)
        assert len(text.chunks) < 4096
        difference = text.compare(whole_text)
        assert difference.startswith(wrong) if wrong else difference is None
        assert text.compare(whole_text) is None


def test_the_first_full_text_is_accepted_if_its_deltas_are_incomplete():
    text = TextDigest(complete=False)
    text.add("end")
    assert text.compare("whole") is None
    assert text.compare("another") == "differs from the deltas at character 0"


def test_logprobs_are_compared_token_by_token_and_rebuild_their_text():
    entries = [
        {"token": "\ufffd", "logprob": -1, "bytes": [195]},
        {"token": "\ufffd", "logprob": -2.0, "bytes": [169]},
    ]
    logprobs = LogprobsDigest()
    logprobs.add(entries)
    assert logprobs.equal([{**entries[0], "logprob": -1.0}, entries[1]])
    assert not logprobs.equal(entries[:1])
    assert logprobs.rebuild("é")
    assert not LogprobsDigest().count
    assert LogprobsDigest().rebuild("anything")


def test_equal_json_values_have_equal_digests():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert digest({"a": 1, "b": 2.0}) == digest({"b": 2, "a": 1.0})
    assert digest([1]) != digest([True])
    assert digest(1.5) != digest(1)
    assert digest(10**30) != digest(10**31)
    assert digest("\ud800") != digest("\ud801")
    assert digest((1, "\ud800")) == digest([1, "\ud800"])
    assert digest(deep) == digest([deep])  # too deep to be compared


@for_each("lifecycle", [*LIFECYCLES.values(), RESPONSE], ids=lambda lifecycle: lifecycle.name)
def test_the_automaton_of_a_lifecycle_accepts_the_events_of_every_edge(lifecycle):
    automaton = LifecycleAutomaton(lifecycle)
    assert automaton.events == {str(emission) for edge in lifecycle.edges for emission in edge.effects}
    for edge in lifecycle.edges:
        node = automaton.at_state(edge.source)
        for emission in edge.effects:
            assert str(emission) in automaton.reachable_from(node).moves
            node = automaton.step(node, str(emission))
        assert edge.dest in node.states
    for name in automaton.events:
        assert automaton.step(automaton.unknown, name) is automaton.after(name)


def with_unknown(name, unknown, before):
    """Return a legal stream with an unknown event before the first event of a type."""
    place = next(at for at, body in enumerate(LEGAL[name]) if body["type"] == before)
    return numbered([*LEGAL[name][:place], {"output_index": 0, **unknown}, *LEGAL[name][place:]])


def test_an_unknown_event_after_done_breaks_r7():
    bodies = with_unknown("code", {"type": "response.telepathy"}, "response.completed")
    assert {(one.rule, one.severity) for one in findings(bodies)} == {("R14", "not_judged"), ("R7", "error")}


def test_an_unknown_event_of_a_known_kind_is_only_not_judged():
    unknown = {"type": "response.code_interpreter_call.dreaming"}
    bodies = with_unknown("code", unknown, "response.code_interpreter_call.interpreting")
    assert {(one.rule, one.severity) for one in findings(bodies)} == {("R14", "not_judged")}


@pytest.mark.parametrize(
    ("bodies", "fault"),
    [
        (doubled("mcp-call", 3), ("R10", 4, "comes again; only an approved call may repeat it, once")),
        (
            edited("mcp-list-tools", 5, "item.status", "failed"),
            ("R10", 5, "the item ends with the status 'failed', but its events say in_progress"),
        ),
    ],
)
def test_invalid_contents_of_an_item_are_reported(bodies, fault):
    assert fault in summaries(bodies)


@pytest.mark.parametrize(
    ("place", "field", "value", "fault"),
    [
        (9, "item.content", [], ("R9", 9, "the item's content differs from the 1 part done")),
        (10, "response.output", [], ("R13", 10, "the response has 0 items where the stream has 1")),
        (7, "text", "H", ("R9", 7, "text has 1 character where the deltas have 14")),
    ],
)
def test_a_message_counts_one_in_the_singular(place, field, value, fault):
    assert fault in summaries(edited("message", place, field, value))


@pytest.mark.parametrize(
    ("place", "field", "value", "fault"),
    [
        (4, "command_index", 1, ("R8", 4, "command_index is 1 instead of 0")),
        (6, "item", {"action": {"commands": ["pwd"]}}, ("R9", 6, "the item's commands differ from the 1 done")),
    ],
)
def test_a_command_with_a_wrong_index_or_text_is_reported(place, field, value, fault):
    scenario = [Open("shell_call", {"call_id": "call_1"}), "ls", Close(), Finish()]
    bodies = [as_json(event) for event in driver_for({"model": "m"}, writer=EventWriter()).feed(scenario)]
    assert findings(bodies) == []
    bodies[place][field] = {**bodies[place][field], **value} if isinstance(value, dict) else value
    assert fault in summaries(bodies)
