"""The driver accepts any delta in any state: it opens a missing item, closes one in the way, and ignores the rest."""

import json
import tracemalloc

import pytest
from for_each import for_each

from interlock.events.json import as_json
from interlock.events.sse import EventWriter, SseWriter
from interlock.fsm import lifecycle
from interlock.fsm.deltas import (
    Annotate,
    Cancel,
    Close,
    EndOutput,
    EndPart,
    EndTurn,
    Enqueue,
    Fail,
    Fault,
    Finish,
    Open,
    Progress,
    Refusal,
    Reject,
    Run,
    Silence,
    Start,
    Succeed,
    Summary,
    Text,
    Usage,
)
from interlock.fsm.driver import ReadyCall, ResponseDriver, SequentialIds
from interlock.verify.oracle import check

SETTINGS = {"model": "m", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
CITATION = {"type": "url_citation", "url": "https://example.org", "title": "E", "start_index": 0, "end_index": 1}
MCP = Open("mcp_call", {"server_label": "wiki", "name": "search"})
CODE = Open("code_interpreter_call")
FUNCTION = Open("function_call", {"name": "look_up"})
IMAGE = Open("image_generation_call")
SHELL = Open("shell_call_output", {"call_id": "call_1"})
SEARCH = Open("web_search_call", {"action": {"type": "search", "query": "signals"}})


class Stream:
    """A driver, the events that it returned, and shorthands for tests."""

    def __init__(self, *deltas):
        self.driver = ResponseDriver(SETTINGS, writer=EventWriter(), ids=SequentialIds(), clock=lambda: 7)
        self.events = []
        self.feed(*deltas)

    def feed(self, *deltas):
        new = self.driver.feed(deltas)
        self.events += new
        return [event.type.removeprefix("response.") for event in new]

    def finish(self, *deltas):
        self.feed(*deltas, Finish())
        bodies = [as_json(event) for event in self.events]
        assert check(bodies) == []
        assert self.driver.response == bodies[-1]["response"]
        return bodies[-1]["response"]

    def output(self, *deltas):
        return self.finish(*deltas)["output"]


def statuses(output):
    return [(item["id"], item.get("status")) for item in output]


def test_text_alone_is_a_final_answer():
    assert Stream().output("Hel", "lo") == [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "phase": "final_answer",
            "content": [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}],
        }
    ]


def test_the_events_of_an_answer_come_in_order():
    stream = Stream()
    assert stream.feed("Hel", "lo") == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
    ]
    assert stream.feed(Finish()) == ["output_text.done", "content_part.done", "output_item.done", "completed"]
    assert [event.sequence_number for event in stream.events] == [*range(10)]


def test_final_fields_are_in_done_and_in_the_response():
    late = {"reasoning": {"encrypted_content": "sealed"}}
    driver = ResponseDriver(
        SETTINGS, writer=EventWriter(), ids=SequentialIds(), clock=lambda: 7, final_fields=lambda item: late.get(item["type"], {})
    )
    events = driver.feed([Open("reasoning"), "Hm", "m.", Open("message"), "Hello", Finish()])
    assert check([as_json(event) for event in events]) == []
    items = [as_json(event)["item"] for event in events if event.type.startswith("response.output_item")]
    assert [item.get("encrypted_content") for item in items] == [None, "sealed", None, None]
    assert driver.response["output"] == items[1::2]


def test_an_exception_of_final_fields_changes_nothing():
    answers = [OverflowError("too large"), {"encrypted_content": "sealed"}]

    def late(_item):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    driver = ResponseDriver(SETTINGS, writer=EventWriter(), ids=SequentialIds(), clock=lambda: 7, final_fields=late)
    events = driver.feed([Open("reasoning"), "Hmm."])
    with pytest.raises(OverflowError):
        driver.feed([Close()])
    events += driver.feed([Finish()])
    assert check([as_json(event) for event in events]) == []
    assert driver.response["output"][0]["encrypted_content"] == "sealed"


def test_an_exception_of_the_clock_at_the_end_changes_nothing():
    times = iter([7])
    driver = ResponseDriver(SETTINGS, writer=EventWriter(), ids=SequentialIds(), clock=lambda: next(times))
    events = driver.feed(["Hi"])
    with pytest.raises(StopIteration):
        driver.feed([Finish()])
    assert driver.response["status"] == "in_progress"
    events += driver.feed([Fault("server_error", "The clock has stopped.")])
    assert events[-1].type == "response.failed"


class FailingWriter:
    """Returns events unchanged, and raises for one of them."""

    fails = False

    def write(self, event):
        if self.fails:
            self.fails = False
            raise OSError("no room")
        return event

    def repeat(self, event):
        return EventWriter().repeat(event)


def test_text_whose_event_was_not_written_is_sent_with_the_next_text():
    writer = FailingWriter()
    driver = ResponseDriver(SETTINGS, writer=writer, ids=SequentialIds(), clock=lambda: 7)
    entries = [{"token": letter, "bytes": [*letter.encode()], "logprob": -1.0, "top_logprobs": []} for letter in "abc"]
    events = driver.feed([Text("a", entries[:1])])
    writer.fails = True
    with pytest.raises(OSError, match="no room"):
        driver.feed([Text("b", entries[1:2])])
    events += driver.feed([Text("c", entries[2:]), Finish()])
    assert check([as_json(event) for event in events]) == []
    deltas = [as_json(event) for event in events if event.type == "response.output_text.delta"]
    assert [(delta["delta"], len(delta["logprobs"])) for delta in deltas] == [("a", 1), ("bc", 2)]
    (part,) = driver.response["output"][0]["content"]
    assert (part["text"], part["logprobs"]) == ("abc", entries)


def test_output_whose_event_was_not_written_is_not_in_the_item():
    writer = FailingWriter()
    driver = ResponseDriver(SETTINGS, writer=writer, ids=SequentialIds(), clock=lambda: 7)
    events = driver.feed([SHELL, Progress("", {"stdout": "é", "stderr": "x"})])
    writer.fails = True
    with pytest.raises(OSError, match="no room"):
        driver.feed([Progress("", {"stdout": "lost", "stderr": "lost"})])
    events += driver.feed([Progress("", {"stdout": "b"}), EndOutput("", {"type": "timeout"}), Succeed(""), Finish()])
    assert check([as_json(event) for event in events]) == []
    (output,) = driver.response["output"][0]["output"]
    assert (output["stdout"], output["stderr"]) == ("éb", "x")


def test_shell_output_is_not_joined_for_each_delta():
    driver = ResponseDriver(SETTINGS, writer=EventWriter(), ids=SequentialIds(), clock=lambda: 7)
    driver.feed([SHELL, Progress("", {"stdout": "x" * 2**20})])
    peaks = []
    tracemalloc.start()
    for _ in range(10):
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        driver.feed([Progress("", {"stdout": "x"})])
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    assert sum(peak > 2**19 for peak in peaks) <= 1, "the text may move once, to a larger buffer"


def test_an_ended_response_is_copied_once():
    stream = Stream("Hi", FUNCTION)
    driver = stream.driver
    assert driver.response is not driver.response
    assert (driver.id, driver.item_count, driver.items(1)) == (driver.response["id"], 2, driver.response["output"][1:])
    stream.feed(Finish())
    assert driver.response is driver.response
    assert driver.items() == driver.response["output"] == as_json(stream.events[-1])["response"]["output"]
    assert as_json(driver.mark_unstored())["response"] == {**driver.response, "store": False} == driver.response


def test_mark_unstored_requires_an_ended_response():
    with pytest.raises(ValueError, match="has not ended"):
        ResponseDriver({}, writer=EventWriter(), ids=SequentialIds(), clock=lambda: 0).mark_unstored()


def test_an_item_is_copied_once_after_each_event_that_shows_it(monkeypatch):
    copied = []
    monkeypatch.setattr(lifecycle, "as_json", lambda body: copied.append(body.status) or as_json(body))
    stream = Stream("Hi", MCP, "{}", Close())
    first, second = stream.driver.items()
    assert [*stream.driver.items()] == [first, second]
    assert [call.id for call in stream.driver.ready] == ["mcp_1"]
    assert copied == ["completed", "in_progress"]
    stream.feed(Succeed("mcp_1", {"output": "o"}))
    assert stream.driver.items(1) == [{**second, "status": "completed", "arguments": "{}", "output": "o"}]
    stream.feed(Finish())
    assert stream.driver.response["output"] == stream.driver.items()
    assert copied == ["completed", "in_progress", "completed"]


def test_a_response_starts_once_and_is_queued_only_before_its_start():
    stream = Stream()
    assert stream.feed(Enqueue(), Enqueue()) == ["created", "queued"]
    assert stream.feed(Start(), Start(), Enqueue()) == ["in_progress"]
    assert stream.finish()["status"] == "completed"


def test_silence_emits_keepalive_in_every_open_state():
    silent, plain = Stream(Silence()), Stream()
    for delta in (Enqueue(), Start(), Open("reasoning"), "Hm", "m", CODE, "1", Close(), Run("ci_1"), Succeed("ci_1"), "Yes", "."):
        events = plain.feed(delta)
        assert silent.feed(delta) == events
        assert silent.feed(Silence(), Silence()) == ["keepalive", "keepalive"]
    assert silent.finish() == plain.finish()
    assert silent.feed(Silence()) == []
    kept = [event for event in silent.events if event.type != "keepalive"]
    assert [event.type for event in kept] == [event.type for event in plain.events]
    assert [event.sequence_number for event in silent.events] == [*range(len(silent.events))]


def test_a_response_without_items_is_complete():
    assert Stream().feed(Finish()) == ["created", "in_progress", "completed"]


@pytest.mark.parametrize("nothing", ["", Text("", ()), Refusal(""), Summary("")])
def test_empty_text_changes_nothing(nothing):
    stream = Stream(Open("reasoning"), "Hm")
    assert stream.feed(nothing) == []
    assert stream.output("m.")[0]["content"] == [{"type": "reasoning_text", "text": "Hmm."}]


def test_leading_white_space_waits_for_other_text():
    stream = Stream("\n", "\n")
    assert stream.feed(" ") == []
    stream.feed("x")
    assert as_json(stream.events[-1])["delta"] == "\n\n x"


@pytest.mark.parametrize("kind", ["message", "reasoning"])
def test_a_message_of_only_white_space_is_not_added(kind):
    assert Stream(Open(kind), " ", "\n").output() == []
    assert Stream(Open(kind), " ").output(EndTurn("length")) == []


def test_white_space_inside_of_a_text_is_kept():
    assert Stream("a", " ", "\n", "b ").output()[0]["content"][0]["text"] == "a \nb "


def test_lone_surrogates_are_replaced_on_every_path():
    assert Stream("\udc80", "é", "\udc80", Text("\ud800", ())).output()[0]["content"][0]["text"] == "\ufffdé\ufffd\ufffd"


def test_frames_and_objects_have_the_same_content():
    deltas = ["a", 'é"%d\n', "b", Refusal("no"), "c", Summary("short"), FUNCTION, "{", "}", Finish()]
    driver = ResponseDriver(SETTINGS, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 7)
    frames = driver.feed(deltas)
    assert [json.loads(frame.split(b"\ndata: ")[1]) for frame in frames] == [as_json(event) for event in Stream(*deltas).events]


def test_a_refusal_is_another_part_of_the_message():
    (item,) = Stream("I ", Refusal("won't"), Refusal("."), "Sorry").output()
    assert [part.get("text", part.get("refusal")) for part in item["content"]] == ["I ", "won't.", "Sorry"]


def test_a_summary_is_another_part_of_the_reasoning():
    (item,) = Stream(Summary("short"), "long", EndPart(), Summary("er")).output()
    assert item["summary"] == [{"type": "summary_text", "text": "short"}, {"type": "summary_text", "text": "er"}]
    assert item["content"] == [{"type": "reasoning_text", "text": "long"}]


def test_text_after_a_summary_stays_in_the_reasoning_item():
    (item,) = Stream(Summary("short"), "long").output()
    assert (item["type"], item["content"]) == ("reasoning", [{"type": "reasoning_text", "text": "long"}])


def test_a_driver_may_send_reasoning_as_its_summary():
    driver = ResponseDriver({}, writer=EventWriter(), ids=SequentialIds(), clock=lambda: 0, summarizes=True)
    driver.feed([Open("reasoning"), " ", "Hm", ".", EndPart(), "So.", Close(), "Hi", EndTurn("stop"), Finish()])
    reasoning, message = driver.items()
    assert [part["text"] for part in reasoning["summary"]] == [" Hm.", "So."]
    assert (reasoning["content"], message["content"][0]["text"]) == ([], "Hi")


def test_text_after_the_end_of_a_part_opens_another_part():
    (item,) = Stream("a", EndPart(), EndPart(), " ", "b").output()
    assert [part["text"] for part in item["content"]] == ["a", " b"]


def test_an_annotation_belongs_to_the_open_text():
    stream = Stream(Annotate(CITATION), "a", Annotate(CITATION), Annotate(CITATION))
    assert [as_json(event)["annotation_index"] for event in stream.events[-2:]] == [0, 1]
    assert stream.output()[0]["content"][0]["annotations"] == [CITATION, CITATION]


URL = {"type": "url_citation", "url": "https://example.org", "title": "E"}


def test_the_driver_finds_the_mark_of_an_annotation_in_the_open_part():
    stream = Stream("é[1][1]", Annotate(URL, "[1]"), " z", Annotate(URL, "[1]"), Annotate(URL, "[1]"), EndPart(), "[1]")
    stream.feed(
        Annotate({"type": "file_citation", "file_id": "f", "filename": "n"}, "[1]"),
        Annotate({"type": "file_path", "file_id": "f", "index": 0}, "1"),
    )
    first, second = stream.output()[0]["content"]
    assert first["annotations"] == [{**URL, "start_index": 1, "end_index": 4}, {**URL, "start_index": 4, "end_index": 7}]
    assert second["annotations"] == [{"type": "file_citation", "file_id": "f", "filename": "n", "index": 3}]


def test_after_a_missing_mark_only_the_end_of_the_part_is_searched_again():
    stream = Stream("[1]" + "é" * 1023 + "z[2]", Annotate(URL, "[3]"), Annotate(URL, "[1]"), Annotate(URL, "[2]"))
    (part,) = stream.output()[0]["content"]
    assert part["annotations"] == [{**URL, "start_index": 1027, "end_index": 1030}]


def test_an_annotation_type_without_a_position_is_sent_unchanged():
    path = {"type": "file_path", "file_id": "f", "index": 0}
    assert Stream("a", Annotate(path, "a")).output()[0]["content"][0]["annotations"] == [path]


def test_an_annotation_without_open_text_is_ignored():
    assert Stream(Open("message")).feed(Annotate(CITATION)) == []
    assert Stream(FUNCTION).feed(Annotate(CITATION)) == []


def test_logprobs_of_pending_white_space_are_sent_with_it():
    low, high = ({"token": token, "bytes": [ord(token)], "logprob": -1.0, "top_logprobs": []} for token in " a")
    stream = Stream(Text(" ", [low]), Text("a", [high]))
    assert as_json(stream.events[-1])["logprobs"] == [low, high]
    assert stream.output()[0]["content"][0]["logprobs"] == [low, high]


def test_logprobs_that_come_before_their_text_wait_for_it():
    part = {"token": "\ufffd", "bytes": [0xC3], "logprob": -1.0, "top_logprobs": []}
    rest = {"token": "\ufffd", "bytes": [0xA9], "logprob": -2.0, "top_logprobs": []}
    stream = Stream(Text("", [part]))
    assert stream.feed(Text("é", [rest]))[-1] == "output_text.delta"
    assert stream.output()[0]["content"][0]["logprobs"] == [part, rest]


def scored(text):
    return Text(text, [{"token": text, "bytes": [*text.encode()], "logprob": -1.0, "top_logprobs": []}])


@pytest.mark.parametrize(
    ("deltas", "parts"),
    [
        pytest.param(["a", scored("b"), "c", "d", scored("e")], [("a", 0), ("b", 1), ("cd", 0), ("e", 1)], id="by turns"),
        pytest.param([scored("a"), scored(""), scored("b")], [("ab", 3)], id="a token without text"),
        pytest.param([scored("a"), scored(""), "b"], [("a", 1), ("b", 0)], id="a token whose text never comes"),
        pytest.param(["a", scored(""), "b", scored("c")], [("ab", 0), ("c", 1)], id="the same in text without"),
        pytest.param(["a", scored(""), scored("b")], [("a", 0), ("b", 2)], id="a token that begins"),
        pytest.param([" ", scored("a"), scored("b")], [(" a", 0), ("b", 1)], id="white space without"),
        pytest.param([scored(" "), "a", "b"], [(" ab", 0)], id="white space with"),
        pytest.param([scored("a"), Refusal("b"), "c"], [("a", 1), ("b", 0), ("c", 0)], id="a refusal between"),
    ],
)
def test_a_part_has_log_probabilities_for_all_of_its_text_or_for_none(deltas, parts):
    (message,) = Stream(*deltas).output()
    assert [(part.get("text", part.get("refusal")), len(part.get("logprobs", ()))) for part in message["content"]] == parts


def test_log_probabilities_split_no_part_of_an_item_without_them():
    (reasoning,) = Stream(Open("reasoning"), "a", scored("b"), "c").output()
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "abc"}]


def test_opening_an_item_closes_the_active_one():
    output = Stream(Open("reasoning"), "Hm", Open("message", {"phase": "commentary"}), "Wait", FUNCTION, "{}").output()
    assert statuses(output) == [("rs_1", "completed"), ("msg_1", "completed"), ("fc_1", "completed")]
    assert output[1]["phase"] == "commentary"


def test_text_that_the_active_item_cannot_take_opens_a_message():
    output = Stream(SEARCH, "text").output()
    assert [item["type"] for item in output] == ["web_search_call", "message"]


def test_a_call_without_arguments_is_a_complete_item():
    assert Stream(FUNCTION).output() == [
        {"id": "fc_1", "type": "function_call", "status": "completed", "name": "look_up", "call_id": "call_1", "arguments": "{}"}
    ]


@pytest.mark.parametrize(
    ("call_id", "expected"), [("call_of_mine", "call_of_mine"), ("of_mine", "call_of_mine"), ("", "call_1"), (None, "call_1")]
)
def test_a_call_id_of_the_model_is_kept_if_it_is_valid(call_id, expected):
    assert Stream(Open("function_call", {"name": "f", "call_id": call_id})).output()[0]["call_id"] == expected


def test_a_tool_search_has_a_call_id_unless_it_is_null():
    searches = [
        Open("tool_search_call", {"execution": "client"}),
        Open("tool_search_call", {"execution": "server", "call_id": None}),
    ]
    assert [item["call_id"] for item in Stream(*searches).output()] == ["call_1", None]


def test_no_call_id_is_used_twice():
    of_mine = Open("function_call", {"name": "f", "call_id": "call_1"})
    assert [item["call_id"] for item in Stream(of_mine, FUNCTION, of_mine).output()] == ["call_1", "call_2", "call_3"]


def test_calls_may_share_a_container():
    code = [Open("code_interpreter_call", {"container_id": name}) for name in ("mine", "mine", None)]
    assert [item["container_id"] for item in Stream(*code).output()] == ["mine", "mine", "cntr_1"]


def test_hosted_calls_wait_for_their_tools_in_order():
    stream = Stream(MCP, "{", "}", CODE, "1", "+1", Close(), SEARCH)
    search = {"type": "mcp_call", "id": "mcp_1", "status": "in_progress", "server_label": "wiki", "name": "search"}
    code = {"type": "code_interpreter_call", "id": "ci_1", "status": "in_progress", "container_id": "cntr_1"}
    assert stream.driver.ready == [
        ReadyCall("mcp_1", "mcp_call", {**search, "arguments": ""}, "{}"),
        ReadyCall("ci_1", "code_interpreter_call", {**code, "code": "", "outputs": None}, "1+1"),
    ]
    stream.feed(Close(), Run("mcp_1"))
    assert [call.id for call in stream.driver.ready] == ["ci_1", "ws_1"]


def test_a_tool_runs_and_ends_while_others_wait():
    stream = Stream(MCP, CODE, Close())
    assert stream.feed(Run("ci_1"), Run("ci_1")) == ["code_interpreter_call.interpreting"]
    assert stream.feed(Succeed("ci_1", {"outputs": []})) == ["code_interpreter_call.completed", "output_item.done"]
    assert stream.feed(Fail("mcp_1", "no")) == ["mcp_call_arguments.done", "mcp_call.failed", "output_item.done"]
    mcp, code = stream.output()
    assert mcp["error"] == {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no"}]}
    assert (mcp["status"], code["status"], code["outputs"]) == ("failed", "completed", [])


def test_an_empty_item_id_means_the_last_open_item():
    stream = Stream(MCP, CODE)
    assert stream.feed(Run("")) == ["code_interpreter_call_code.done", "code_interpreter_call.interpreting"]
    stream.feed(Succeed(""), Fail("", "no"))
    assert [item["status"] for item in stream.output()] == ["failed", "completed"]
    assert stream.feed(Fail("", "no")) == []


def test_missing_events_before_an_end_are_supplied():
    assert Stream(CODE).feed(Succeed("ci_1")) == [
        "code_interpreter_call_code.done",
        "code_interpreter_call.interpreting",
        "code_interpreter_call.completed",
        "output_item.done",
    ]
    assert Stream(SEARCH).feed(Fail("ws_1", "no")) == ["output_item.done"]


def test_a_missing_required_result_is_empty():
    assert Stream(MCP).output(Succeed("mcp_1"))[0]["output"] == ""


def test_partial_images_are_numbered():
    stream = Stream(IMAGE)
    names = stream.feed(Progress("ig_1", {"partial_image_b64": "YQ=="}), Progress("ig_1", {"partial_image_b64": "Yg=="}))
    assert names == ["image_generation_call.generating", *["image_generation_call.partial_image"] * 2]
    assert [as_json(event)["partial_image_index"] for event in stream.events[-2:]] == [0, 1]
    assert stream.output(Succeed("ig_1", {"result": "Yw=="}))[0]["result"] == "Yw=="


def test_a_list_of_tools_has_its_tools_or_its_error():
    (item,) = Stream(Open("mcp_list_tools", {"server_label": "wiki"})).output(
        Succeed("mcpl_1", {"tools": [{"name": "search", "input_schema": {}}]})
    )
    assert item == {
        "id": "mcpl_1",
        "type": "mcp_list_tools",
        "server_label": "wiki",
        "tools": [{"name": "search", "input_schema": {}}],
    }
    (item,) = Stream(Open("mcp_list_tools", {"server_label": "wiki"})).output(Fail("mcpl_1", "gone"))
    assert item["error"] == "gone"


def test_an_approval_request_is_added_and_done_at_once():
    stream = Stream(Start())
    request = Open("mcp_approval_request", {"server_label": "wiki", "name": "search", "arguments": "{}"})
    assert stream.feed(request) == ["output_item.added", "output_item.done"]
    assert stream.finish()["status"] == "completed"


@for_each("delta_type", [Run, Fail, Succeed, Progress])
@for_each("item_id", ["nobody", "fc_1", "fc_2", "msg_1"])
def test_a_tool_delta_without_a_hosted_call_is_ignored(delta_type, item_id):
    stream = Stream("a", FUNCTION, Close(), FUNCTION)
    rest = {Run: [], Succeed: []}.get(delta_type, ["no"] if delta_type is Fail else [{}])
    assert stream.feed(delta_type(item_id, *rest)) == []


def test_a_rejected_call_fails_and_the_stream_continues():
    assert statuses(Stream(SEARCH, Reject("what?"), "Sorry").output()) == [("ws_1", "failed"), ("msg_1", "completed")]
    assert statuses(Stream(FUNCTION, Reject("what?")).output()) == [("fc_1", "completed")]
    assert Stream(Start()).feed(Reject("what?")) == []


@pytest.mark.parametrize("empty", [Close(), EndPart(), Reject("what?")])
def test_closing_without_an_active_item_changes_nothing(empty):
    assert Stream().feed(empty) == []


@pytest.mark.parametrize(
    ("end", "status", "item", "waiting"),
    [
        (Finish(), "completed", "completed", "failed"),
        (EndTurn("length"), "incomplete", "incomplete", "failed"),
        (EndTurn("content_filter"), "incomplete", "incomplete", "failed"),
        (EndTurn("abort"), "cancelled", "incomplete", "failed"),
        (EndTurn("error"), "failed", "incomplete", "failed"),
        (Fault("server_error", "It broke."), "failed", "incomplete", "failed"),
        (Cancel(), "cancelled", "incomplete", "failed"),
    ],
)
def test_every_ending_delta_closes_the_open_items_legally(end, status, item, waiting):
    stream = Stream(MCP, CODE, Close(), Run("ci_1"), "Hel")
    response = stream.finish(end, end, "lo", Start(), EndTurn("stop"))
    assert response["status"] == status
    assert statuses(response["output"]) == [("mcp_1", waiting), ("ci_1", waiting), ("msg_1", item)]
    assert stream.driver.ended
    assert Stream(Enqueue()).finish(end)["status"] == status
    assert Stream().finish(end)["status"] == status


def test_an_ended_response_has_its_reason_or_its_error():
    assert Stream().finish(EndTurn("length"))["incomplete_details"] == {"reason": "max_output_tokens"}
    assert Stream().finish(EndTurn("content_filter"))["incomplete_details"] == {"reason": "content_filter"}
    assert Stream().finish(EndTurn("error"))["error"]["code"] == "server_error"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("server_error", "server_error"),
        ("upstream_timeout", "server_error"),
        ("rate_limit_exceeded", "rate_limit_exceeded"),
        ("invalid_prompt", "invalid_request_error"),
        ("context_length_exceeded", "invalid_request_error"),
    ],
)
def test_the_error_of_a_failed_response_has_the_type_of_its_code(code, kind):
    assert Stream().finish(Fault(code, "Later."))["error"] == {"code": code, "message": "Later.", "type": kind}


def test_a_turn_cut_inside_a_call_makes_the_response_incomplete_without_a_reason():
    stream = Stream(MCP, Close(), Open("function_call", {"name": "f"}), '{"a"')
    response = stream.finish(EndTurn("cut", Usage(output_tokens=2)), "more")
    assert (response["status"], response["incomplete_details"]) == ("incomplete", None)
    assert statuses(response["output"]) == [("mcp_1", "failed"), ("fc_1", "incomplete")]
    assert (response["output"][1]["arguments"], response["usage"]["output_tokens"]) == ('{"a"', 2)


@pytest.mark.parametrize(
    ("opening", "shown"),
    [
        (Open("program", {"fingerprint": "f1"}), {"code": ""}),
        (Open("local_shell_call", {"action": {"type": "exec", "command": [], "env": {}}}), {"status": "incomplete"}),
    ],
)
def test_a_turn_cut_inside_any_kind_of_call_makes_the_response_incomplete(opening, shown):
    response = Stream(opening).finish(EndTurn("cut"))
    assert (response["status"], response["incomplete_details"]) == ("incomplete", None)
    assert {name: response["output"][0][name] for name in shown} == shown


def test_cutting_a_turn_inside_text_closes_it():
    assert statuses(Stream("a", EndTurn("cut"), "b", EndTurn("cut")).finish()["output"]) == [
        ("msg_1", "completed"),
        ("msg_2", "completed"),
    ]


def test_a_response_has_the_items_and_the_summed_usage_of_its_turns():
    usage = Usage(input_tokens=5, cached_tokens=1, output_tokens=3, reasoning_tokens=2, cache_write_tokens=4)
    stream = Stream("a", EndTurn("stop", usage), "b", EndTurn("stop", usage))
    assert stream.finish()["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 8},
        "output_tokens": 6,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 16,
    }
    assert statuses(stream.driver.response["output"]) == [("msg_1", "completed"), ("msg_2", "completed")]


def test_an_empty_turn_begins_the_response():
    assert Stream().feed(EndTurn("stop")) == ["created", "in_progress"]


def test_the_response_can_be_read_while_it_runs():
    stream = Stream("Hel")
    assert {name: stream.driver.response[name] for name in ("id", "status", "created_at", "completed_at", "usage", "error")} == {
        "id": "resp_1",
        "status": "in_progress",
        "created_at": 7,
        "completed_at": None,
        "usage": None,
        "error": None,
    }
    assert stream.driver.response["output"][0]["content"] == []
    assert not stream.driver.ended
    assert stream.finish()["completed_at"] == 7


def test_a_driver_may_be_given_the_id_of_the_response():
    driver = ResponseDriver(SETTINGS, writer=EventWriter(), ids=SequentialIds(), clock=lambda: 7, response_id="resp_known")
    assert driver.response["id"] == "resp_known"


@pytest.mark.parametrize("one", ["Hello", Finish(), Text("a", [])], ids=lambda one: type(one).__name__)
def test_feeding_a_single_delta_raises(one):
    stream = Stream()
    with pytest.raises(TypeError, match=r"^feed takes a list of deltas, not a single delta: "):
        stream.driver.feed(one)
    assert stream.feed("a")[:2] == ["created", "in_progress"]


def test_a_wrong_delta_raises_and_earlier_events_are_kept():
    stream = Stream()
    with pytest.raises(TypeError, match=r"^not a delta: 3$"):
        stream.driver.feed([Start(), 3])
    assert stream.feed() == ["created", "in_progress"]
    stream.finish()


def test_changing_an_event_or_the_response_changes_nothing_else():
    stream = Stream(MCP, "{}", Close(), Succeed("mcp_1", {"output": "o"}), "a", Annotate(CITATION), Close())
    before = json.dumps(stream.driver.response)
    for event in stream.events:
        spoil(as_json(event))
    spoil(stream.driver.response)
    assert json.dumps(stream.driver.response) == before
    stream.feed(Finish())
    assert json.dumps(stream.driver.response["output"]) == json.dumps(json.loads(before)["output"])


def spoil(value):
    """Empty a value of JSON and all that is in it."""
    for entry in [*(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())]:
        spoil(entry)
    if isinstance(value, dict | list):
        value.clear()


def test_an_item_that_is_opened_with_a_status_begins_in_progress():
    stream = Stream(Open("function_call", {"name": "look_up", "status": "completed"}))
    assert as_json(stream.events[-1])["item"]["status"] == "in_progress"


def test_a_patch_that_deletes_a_file_shows_a_diff_only_if_one_was_written():
    patch = {"type": "delete_file", "path": "a.txt"}
    assert Stream(Open("apply_patch_call", {"operation": patch})).output()[0]["operation"] == patch
    assert Stream(Open("apply_patch_call", {"operation": patch}), "x").output()[0]["operation"] == {**patch, "diff": "x"}


@pytest.mark.parametrize("ending", [Finish(), EndTurn("length"), Fault("server_error", "It broke.")])
def test_an_unstored_response_has_store_false_in_its_last_event(ending) -> None:
    stream = Stream(Start(), "Hello", ending)
    first = as_json(stream.events[-1])
    last = as_json(stream.driver.mark_unstored())
    assert last == {**first, "response": {**first["response"], "store": False}}
    assert stream.driver.response == last["response"]
    assert check([*map(as_json, stream.events[:-1]), last]) == []
