"""What stands between parser and driver: questions in the place of calls, annotations beside marks, in any chunks."""

from itertools import pairwise

import pytest

from interlock.events.sse import EventWriter
from interlock.fsm.deltas import Annotate, Close, EndPart, EndTurn, Finish, Open, Refusal, Text
from interlock.fsm.driver import ResponseDriver
from interlock.fsm.ids import SequentialIds
from interlock.serving.tools.hosting import Approvals, Citations, Page, pages_of

CALL = Open("mcp_call", {"server_label": "s", "name": "t"})
FREE = Open("mcp_call", {"server_label": "s", "name": "free"})
MESSAGE = Open("message", {"phase": "final_answer"})


def asked(arguments):
    return Open("mcp_approval_request", {"server_label": "s", "name": "t", "arguments": arguments})


def approvals():
    return Approvals(lambda _label, name: name == "t")


@pytest.mark.parametrize(
    ("told", "given"),
    [
        ([CALL, '{"a"', ":1}", Close()], [asked('{"a":1}')]),
        ([CALL, Text("{}", []), MESSAGE, "x"], [asked("{}"), MESSAGE, "x"]),
        ([CALL, CALL, "{}", EndTurn("stop")], [asked(""), asked("{}"), EndTurn("stop")]),
        ([CALL, '{"a', EndTurn("length")], [CALL, '{"a', EndTurn("length")]),
        ([FREE, "{}", Close(), EndTurn("length")], [FREE, "{}", Close(), EndTurn("length")]),
    ],
)
def test_a_call_that_needs_approval_becomes_a_request_unless_it_is_truncated(told, given) -> None:
    assert approvals().feed(told) == given
    one_by_one = approvals()
    assert [delta for each in told for delta in one_by_one.feed([each])] == given


def citations():
    pages = Citations()
    pages.add_pages([Page(0, "Zero", "https://zero.example")])
    return pages


def annotated(*told):
    """The places of the annotations that a reader sees, after each delta of one stream."""
    pages = citations()
    given = [delta for each in told for delta in pages.feed([each])]
    assert [delta for delta in given if not isinstance(delta, Annotate)] == [*told]
    driver = ResponseDriver({}, writer=EventWriter(), ids=SequentialIds(), clock=lambda: 0)
    driver.feed([*given, Finish()])
    places = []
    for item in driver.response["output"]:
        for part in item.get("content", []):
            for mark in part.get("annotations", []):
                assert (mark["type"], mark["url"], mark["title"]) == ("url_citation", "https://zero.example", "Zero")
                assert part["text"][mark["start_index"] : mark["end_index"]].startswith("【0†")
                places.append((mark["start_index"], mark["end_index"]))
    return places


def test_a_mark_is_found_in_any_chunks() -> None:
    text = "a【0†L1】b【0†】"
    assert annotated(MESSAGE, text, Close()) == [(1, 7), (8, 12)]
    assert annotated(MESSAGE, *text, Close()) == [(1, 7), (8, 12)]
    for cut in range(1, len(text)):
        assert annotated(MESSAGE, text[:cut], Text(text[cut:], [])) == [(1, 7), (8, 12)]


def test_an_annotation_follows_the_text_that_it_is_about() -> None:
    given = citations().feed([MESSAGE, "【0†L1】", "b", Close()])
    assert [type(delta) for delta in given] == [Open, str, Annotate, str, Close]
    assert all(isinstance(before, str) for before, delta in pairwise(given) if isinstance(delta, Annotate))


@pytest.mark.parametrize(
    "text",
    ["【1†L1】", "【0】", "【x†L1】", "【0†L1", "【0†" + "x" * 80 + "】", "【" + "9" * 5_000 + "†】"],
    ids=["unknown", "no dagger", "no number", "open", "too long", "too many digits"],
)
def test_text_that_resembles_a_mark_stays_text(text) -> None:
    assert annotated(MESSAGE, text, Close()) == []
    assert annotated(MESSAGE, *text, Close()) == []


def test_only_the_text_of_messages_is_annotated_and_each_part_begins_anew() -> None:
    assert annotated(Open("reasoning"), "【0†】", Close()) == []
    assert annotated(CALL, "【0†】", Close()) == []
    assert annotated(MESSAGE, "ab", EndPart(), "【0†】", Refusal("no"), "【0†】") == [(0, 4), (0, 4)]


def test_a_mark_is_placed_in_the_part_that_the_driver_makes() -> None:
    scored = Text("ab", [{"token": "ab", "bytes": [97, 98], "logprob": -0.5, "top_logprobs": []}])
    assert annotated("c【0†】") == [(1, 5)]  # without an Open, the text is in a message all the same
    assert annotated(MESSAGE, scored, "c【0†】") == [(1, 5)]  # the driver begins a part where log probabilities end
    assert annotated(MESSAGE, "  \n", "é【0†】") == [(4, 8)]  # white space that was held back is in the part
    assert annotated(MESSAGE, "【0", scored, "†】") == []  # the two halves are in different parts


def test_pages_are_named_by_a_line_of_their_own() -> None:
    text = (
        "[0] A (b) page (https://a.example/x_(y))\nL0: [1] no (https://n.example)\n\n[12] B (http://b.example)\r\n[3] C (ftp://c)"
    )
    assert pages_of(text) == [Page(0, "A (b) page", "https://a.example/x_(y)"), Page(12, "B", "http://b.example")]
