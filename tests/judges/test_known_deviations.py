"""A known deviation of a real service is reported under its name; similar streams that no service sends are errors."""

import pytest
from clients.deviations import BREAKING, TOLERATED
from clients.deviations import DEVIATIONS as PLAYED
from clients.deviations import LEGAL as LEGAL_TURNS
from corpus_streams.broken import BROKEN, numbered
from corpus_streams.legal import FAILED, LEGAL, item, message, response, stream, text_part
from for_each import for_each

from interlock.judges import DEVIATIONS, RULES, Acceptor, judge


def findings(bodies, **settings):
    acceptor = Acceptor(**settings)
    return [*(one for body in bodies for one in acceptor.feed(body)), *acceptor.end()]


def deviations_in(bodies):
    return {one.deviation or f"error {one.rule}" for one in findings(bodies)}


MESSAGE = LEGAL["message"]


def whole_call(**added):
    """A custom tool call without events between `added` and `done`."""
    call = {"type": "custom_tool_call", "id": "ctc_0", "call_id": "call_1", "name": "f", "input": "go", **added}
    return stream(item(0, call, {}, ("custom_tool_call_input.done", {"input": "go"})))


def deviations_of_turns(turns):
    """Return the deviations of both turns for a client; of errors, the rules."""
    reported = [one for data in turns.streams for one in judge([data]).findings]
    return {one.deviation or f"error {one.rule}" for one in reported}


def test_the_turns_for_clients_have_every_judged_deviation_of_live_streams() -> None:
    of_files = {"resumed", "another-stream", "bare-lines"}
    judged = {name for name, each in DEVIATIONS.items() if each.severity == "deviation" and each.rule in RULES}
    assert {name.partition(",")[0] for name in PLAYED} == judged - of_files


@pytest.mark.parametrize("name", LEGAL_TURNS)
def test_the_legal_streams_for_clients_have_no_deviation(name) -> None:
    assert deviations_of_turns(LEGAL_TURNS[name]) == set()


@for_each("name", PLAYED)
def test_the_streams_for_clients_have_only_the_deviation_of_their_name(name) -> None:
    assert deviations_of_turns(PLAYED[name]) == {name.partition(",")[0]}


@for_each("name", BREAKING)
def test_a_stream_that_breaks_clients_has_an_error(name) -> None:
    assert BREAKING[name].breaks
    assert any(one.startswith("error") for one in deviations_of_turns(BREAKING[name]))


@for_each("name", TOLERATED)
def test_a_stream_with_an_error_that_breaks_no_client_has_only_fields_of_another_level(name) -> None:
    assert not TOLERATED[name].breaks
    assert deviations_of_turns(TOLERATED[name]) == {"error R13", "error R14"}


@pytest.mark.parametrize(
    ("bodies", "seen"),
    [
        (LEGAL["message"][4:], {"resumed"}),
        ([*MESSAGE[:4], {"type": "acme:thinking", "output_index": 0}, *MESSAGE[4:]], {"unknown-event"}),
        ([{"type": "acme:ready"}, *MESSAGE], {"unknown-event"}),
        ([*MESSAGE, {"type": "response.rate_limits.updated", "rate_limits": []}], {"late-rate-limits"}),
        (
            [*LEGAL["nothing"][:2], {"type": "error", "sequence_number": 2, "error": {"message": "no", "code": "c"}}],
            {"nested-error", "error-is-last"},
        ),
        (BROKEN["R14-unknown-item"], {"unknown-item"}),
        (BROKEN["R10-failed-but-completed"], {"status-of-tool"}),
    ],
)
def test_each_deviation_has_its_name(bodies, seen) -> None:
    assert deviations_in(bodies) == seen


def test_a_stream_numbers_every_event_or_none() -> None:
    for places in ({0}, {4}, {0, 1}, {1, 2}):
        bodies = [{k: v for k, v in body.items() if k != "sequence_number" or n not in places} for n, body in enumerate(MESSAGE)]
        assert "error R2" in deviations_in(bodies)


def test_a_changing_item_id_is_reported_once() -> None:
    bodies = [{**body, **({"item_id": f"msg_{n}"} if "item_id" in body else {})} for n, body in enumerate(MESSAGE)]
    assert [(one.rule, one.message) for one in findings(bodies)] == [("R7", "item_id is 'msg_3', but that of item 0 is 'msg_0'")]


def test_another_response_in_the_same_file_is_judged_on_its_own() -> None:
    other = [{**body, "response": {**body["response"], "id": "resp_2"}} for body in LEGAL["nothing"]]
    assert deviations_in([*MESSAGE, *other]) == {"another-stream"}
    assert deviations_in([*MESSAGE, *MESSAGE]) == {"error R3"}


def test_a_failed_response_may_lack_its_items_and_its_usage() -> None:
    bodies = stream(message(0, *text_part(0, "hi")), **FAILED)
    bodies[-1]["response"] |= {"output": []}
    del bodies[-1]["response"]["usage"]
    assert deviations_in(bodies) == {"failed-without-output", "usage"}


def test_the_terminal_response_may_have_other_encrypted_content_or_nulls() -> None:
    sealed = {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "one"}
    bodies = stream(item(0, sealed, {}))
    assert deviations_in(bodies) == set()
    bodies[-1]["response"]["output"] = [{**sealed, "encrypted_content": "other"}]
    assert deviations_in(bodies) == {"encrypted-content"}
    bodies[-1]["response"]["output"] = [{**sealed, "status": None}]
    assert deviations_in(bodies) == {"null-or-absent"}
    bodies[-1]["response"]["output"] = [{**sealed, "summary": [{"type": "summary_text", "text": "x"}]}]
    assert deviations_in(bodies) == {"error R13"}


def test_a_call_may_be_added_complete_but_not_streamed_again() -> None:
    bodies = whole_call()
    assert deviations_in(bodies) == {"begins-whole"}
    delta = {"type": "response.custom_tool_call_input.delta", "item_id": "ctc_0", "output_index": 0, "delta": "go"}
    assert deviations_in(numbered([*bodies[:3], delta, *bodies[3:]])) == {"error R9"}


def test_framing_that_the_standard_allows_is_a_deviation() -> None:
    frames = b"".join(b'data: {"type": "x"}\nid: 1\r\n\n' for _ in range(2))
    assert {one.deviation for one in judge([frames]).findings} >= {"framing", "no-event-line"}
    assert response("completed", [])["id"] == "resp_1"
