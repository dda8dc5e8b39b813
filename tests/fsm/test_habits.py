"""What real services do that no rule allows: each habit is a deviation, and the same thing done once is an error."""

import copy

import pytest
from corpus.broken import BROKEN, edited, numbered
from corpus.legal import FAILED, LEGAL, item, message, reasoning, reasoning_part, response, stream, text_part

from interlock.fsm.acceptor import HABITS, Acceptor, judge
from interlock.fsm.acceptor.doubts import HABIT_OF


def found(bodies, **settings):
    acceptor = Acceptor(**settings)
    return [*(one for body in bodies for one in acceptor.feed(body)), *acceptor.end()]


def habits(bodies):
    return {one.habit or f"error {one.rule}" for one in found(bodies)}


def without(bodies, *fields):
    return [{name: value for name, value in body.items() if name not in fields} for body in bodies]


def rotating(bodies):
    """Every event gives its item another id."""
    changed = copy.deepcopy(bodies)
    for place, body in enumerate(changed):
        if "item_id" in body:
            body["item_id"] += f"-{place}"
        if "item" in body:
            body["item"]["id"] += f"-{place}"
    return changed


def dropped(bodies, *names):
    return numbered([body for body in bodies if not body["type"].endswith(names)])


MESSAGE = LEGAL["message"]
THOUGHT = stream([*reasoning(0, *reasoning_part(0, "so")), *message(1, *text_part(0, "hi"))])


def whole_call(**added):
    """A custom tool call that is added whole, and nothing between."""
    begun = {"type": "custom_tool_call", "id": "ctc_0", "call_id": "call_1", "name": "f", "input": "go", **added}
    return stream(item(0, begun, {}, ("custom_tool_call_input.done", {"input": "go"})))


def test_every_doubt_is_about_a_habit() -> None:
    assert {*HABIT_OF.values()} <= HABITS.keys()


@pytest.mark.parametrize(
    ("bodies", "seen"),
    [
        (without(MESSAGE, "sequence_number"), {"unnumbered"}),
        (rotating(MESSAGE), {"rotating-ids"}),
        (LEGAL["message"][4:], {"resumed"}),
        ([*MESSAGE, {"type": "acme:done"}], {"unknown-after-end"}),
        ([*MESSAGE[:4], {"type": "acme:thinking", "output_index": 0}, *MESSAGE[4:]], {"unknown-event"}),
        ([{"type": "keepalive"}, *MESSAGE], {"unknown-event"}),
        ([*MESSAGE[:2], {"type": "error", "sequence_number": 2, "message": "no", "code": None}], {"error-is-last"}),
        (
            [*LEGAL["nothing"][:2], {"type": "error", "sequence_number": 2, "error": {"message": "no", "code": "c"}}],
            {"nested-error", "error-is-last"},
        ),
        (edited("message", 2, "item.vendor", 1), {"vendor-field"}),
        (BROKEN["R14-unknown-item"], {"unknown-item"}),
        (BROKEN["R7-id-used-twice"], {"repeated-id"}),
        (BROKEN["R12-unknown-reason"], {"unknown-reason"}),
        (BROKEN["R18-blank-message"], {"blank"}),
        (BROKEN["R10-ends-in-progress"], {"status-behind"}),
        (BROKEN["R10-failed-but-completed"], {"status-of-tool"}),
    ],
)
def test_a_habit_is_called_by_its_name(bodies, seen) -> None:
    assert habits(bodies) == seen


def test_a_part_that_is_framed_nowhere_is_a_habit_and_one_that_is_framed_half_an_error() -> None:
    bare = [body for body in THOUGHT if not (body.get("output_index") == 0 and "part" in body)]
    assert habits(numbered(bare)) == {"unframed-part"}
    for gone in (".added", ".done"):
        half = [b for b in THOUGHT if not (b.get("output_index") == 0 and "part" in b and b["type"].endswith(gone))]
        assert "error R8" in habits(numbered(half))


def test_another_response_in_the_same_file_is_judged_by_itself() -> None:
    other = [{**body, "response": {**body["response"], "id": "resp_2"}} for body in LEGAL["nothing"]]
    assert habits([*MESSAGE, *other]) == {"another-stream"}
    assert habits([*MESSAGE, *MESSAGE]) == {"error R3"}


def test_a_failed_response_may_lack_its_items_and_its_usage() -> None:
    bodies = stream(message(0, *text_part(0, "hi")), **FAILED)
    bodies[-1]["response"] |= {"output": [], "usage": None}
    assert habits(bodies) == {"failed-without-output", "usage"}


def test_the_end_may_show_other_encryptions_and_nulls() -> None:
    sealed = {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "one"}
    bodies = stream(item(0, sealed, {}))
    assert habits(bodies) == set()
    bodies[-1]["response"]["output"] = [{**sealed, "encrypted_content": "other"}]
    assert habits(bodies) == {"encrypted-content"}
    bodies[-1]["response"]["output"] = [{**sealed, "status": None}]
    assert habits(bodies) == {"null-or-absent"}
    bodies[-1]["response"]["output"] = [{**sealed, "summary": [{"type": "summary_text", "text": "x"}]}]
    assert habits(bodies) == {"error R13"}


def test_a_call_may_be_added_whole_but_not_be_written_again() -> None:
    bodies = whole_call()
    assert habits(bodies) == {"begins-whole"}
    delta = {"type": "response.custom_tool_call_input.delta", "item_id": "ctc_0", "output_index": 0, "delta": "go"}
    assert habits(numbered([*bodies[:3], delta, *bodies[3:]])) == {"error R9"}


def test_framing_that_the_standard_allows_is_a_deviation() -> None:
    frames = b"".join(b'data: {"type": "x"}\nid: 1\r\n\n' for _ in range(2))
    assert {one.finding.habit for one in judge([frames]).reported} >= {"framing", "no-event-line"}
    assert response("completed", [])["id"] == "resp_1"
