"""A citation mark in the text of a message gets its annotation, in any chunks."""

from itertools import pairwise

import pytest

from interlock.events.sse import EventWriter
from interlock.fsm.deltas import Annotate, Close, EndPart, Finish, Open, Refusal, Text
from interlock.fsm.driver import ResponseDriver, SequentialIds
from interlock.serving.engines.pages import Page, action_fields, pages_of
from interlock.serving.tools.hosting import Citations

OPEN_CALL = Open("mcp_call", {"server_label": "s", "name": "t"})
MESSAGE = Open("message", {"phase": "final_answer"})


def citations():
    pages = Citations()
    pages.add_pages([Page(0, "Zero", "https://zero.example")])
    return pages


def annotation_places(*deltas):
    """The places of the annotations that a reader sees, after each delta of one stream."""
    pages = citations()
    output = [delta for each in deltas for delta in pages.feed([each])]
    assert [delta for delta in output if not isinstance(delta, Annotate)] == [*deltas]
    driver = ResponseDriver({}, writer=EventWriter(), ids=SequentialIds(), clock=lambda: 0)
    driver.feed([*output, Finish()])
    places = []
    for item in driver.response["output"]:
        for part in item.get("content", []):
            for mark in part.get("annotations", []):
                assert (mark["type"], mark["url"], mark["title"]) == ("url_citation", "https://zero.example", "Zero")
                assert part["text"][mark["start_index"] : mark["end_index"]].startswith("【0†")
                places.append((mark["start_index"], mark["end_index"]))
    return places


def test_a_citation_mark_is_found_in_any_chunks() -> None:
    text = "a【0†L1】b【0†】"
    assert annotation_places(MESSAGE, text, Close()) == [(1, 7), (8, 12)]
    assert annotation_places(MESSAGE, *text, Close()) == [(1, 7), (8, 12)]
    for cut in range(1, len(text)):
        assert annotation_places(MESSAGE, text[:cut], Text(text[cut:], [])) == [(1, 7), (8, 12)]


def test_an_annotation_follows_the_text_that_it_is_about() -> None:
    output = citations().feed([MESSAGE, "【0†L1】", "b", Close()])
    assert [type(delta) for delta in output] == [Open, str, Annotate, str, Close]
    assert all(isinstance(before, str) for before, delta in pairwise(output) if isinstance(delta, Annotate))


@pytest.mark.parametrize(
    "text",
    ["【1†L1】", "【0】", "【x†L1】", "【0†L1", "【0†" + "x" * 80 + "】", "【" + "9" * 5_000 + "†】"],
    ids=["unknown", "no dagger", "no number", "open", "too long", "too many digits"],
)
def test_text_that_resembles_a_mark_stays_text(text) -> None:
    assert annotation_places(MESSAGE, text, Close()) == []
    assert annotation_places(MESSAGE, *text, Close()) == []


def test_only_the_text_of_messages_is_annotated_and_each_part_begins_anew() -> None:
    assert annotation_places(Open("reasoning"), "【0†】", Close()) == []
    assert annotation_places(OPEN_CALL, "【0†】", Close()) == []
    assert annotation_places(MESSAGE, "ab", EndPart(), "【0†】", Refusal("no"), "【0†】") == [(0, 4), (0, 4)]


def test_a_mark_is_placed_in_the_part_that_the_driver_makes() -> None:
    scored = Text("ab", [{"token": "ab", "bytes": [97, 98], "logprob": -0.5, "top_logprobs": []}])
    assert annotation_places("c【0†】") == [(1, 5)]  # without an Open, the text is still in a message
    assert annotation_places(MESSAGE, scored, "c【0†】") == [(1, 5)]  # the driver begins a part where log probabilities end
    assert annotation_places(MESSAGE, "  \n", "é【0†】") == [(4, 8)]  # white space that was held back is in the part
    assert annotation_places(MESSAGE, "【0", scored, "†】") == []  # the two halves are in different parts


def test_a_page_begins_with_a_line_of_its_number_title_and_url() -> None:
    text = (
        "[0] A (b) page (https://a.example/x_(y))\nL0: [1] no (https://n.example)\n\n[12] B (http://b.example)\r\n[3] C (ftp://c)"
    )
    assert pages_of(text) == [Page(0, "A (b) page", "https://a.example/x_(y)"), Page(12, "B", "http://b.example")]


@pytest.mark.parametrize(
    ("action", "text", "fields"),
    [
        ({"type": "open_page", "url": "cursor:3#7"}, "[4] A page (https://a.example/x)\nL0: a", "https://a.example/x"),
        (
            {"type": "find_in_page", "url": "cursor:4"},
            "[5] Found (https://a.example/x/find?pattern=a)\nL0: a",
            "https://a.example/x",
        ),
        ({"type": "open_page", "url": "cursor:3"}, "a page without a heading", None),
        ({"type": "open_page", "url": "https://b.example"}, "[4] A page (https://a.example/x)", None),
        ({"type": "search", "query": "a"}, "[4] A page (https://a.example/x)", None),
    ],
)
def test_an_action_gets_the_url_of_a_page_that_the_model_named_by_its_number(action, text, fields) -> None:
    assert action_fields(action, text) == ({} if fields is None else {"action": {**action, "url": fields}})
