"""Events as frames and as objects."""

import json

import pytest

from interlock.events import spec
from interlock.events.dialects import OPEN_RESPONSES
from interlock.events.json import members
from interlock.events.sse import CONTENT_TYPE, DONE_FRAME, Event, EventWriter, SseWriter, frame_of

ADDRESS = {"item_id": "rs_100%d", "output_index": 0, "content_index": 0}


def event(specification, values, sequence_number):
    """An event, without the driver that makes them."""
    return Event._made(
        specification.name, sequence_number, frame_of(specification.name, "%b") % (members(values), sequence_number)
    )


def test_a_frame_is_an_event_line_a_data_line_and_an_empty_line():
    frame = SseWriter().write(event(spec.CODE_IN_PROGRESS, {"item_id": "ci_1", "output_index": 0}, 3))
    assert frame == (
        b"event: response.code_interpreter_call.in_progress\n"
        b'data: {"type":"response.code_interpreter_call.in_progress","item_id":"ci_1","output_index":0,"sequence_number":3}\n\n'
    )


@pytest.mark.parametrize("writer", [SseWriter(), SseWriter(OPEN_RESPONSES)])
@pytest.mark.parametrize("text", ["a", "", '"\n\r\\', "%d %b", "é\u2028", "\U0001f6a6", "a\ud800"])
def test_a_repeated_frame_says_what_a_written_one_does(writer, text):
    kept = []
    first = event(spec.REASONING_DELTA, {**ADDRESS, "delta": "first"}, 40)
    head, _, data = writer.repeat(first, kept.append)(text, 41).partition(b"\ndata: ")
    other_head, _, other = writer.write(event(spec.REASONING_DELTA, {**ADDRESS, "delta": text}, 41)).partition(b"\ndata: ")
    assert head == other_head
    assert data.isascii()
    assert data.endswith(b"}\n\n")
    assert data.count(b"\n") == 2
    assert json.loads(data) == json.loads(other)
    assert kept == [json.loads(data)["delta"].encode()]


def test_the_other_dialect_has_another_name_for_reasoning():
    first = event(spec.REASONING_DELTA, {**ADDRESS, "delta": "first"}, 0)
    frame = SseWriter(OPEN_RESPONSES).repeat(first, bytes)("a", 1)
    assert frame.startswith(b'event: response.reasoning.delta\ndata: {"type":"response.reasoning.delta",')


def test_an_object_holds_name_number_and_body():
    first = event(spec.CODE_DELTA, {"item_id": "ci_1", "output_index": 0, "delta": "x"}, 3)
    written = EventWriter().write(first)
    assert (written.name, written.sequence_number) == ("response.code_interpreter_call_code.delta", 3)
    assert written == first
    kept = []
    repeated = EventWriter().repeat(first, kept.append)("text\ud800", 4)
    assert kept == ["text\ufffd".encode()]
    assert repeated.body == {
        "type": first.name,
        "item_id": "ci_1",
        "output_index": 0,
        "delta": "text\ufffd",
        "sequence_number": 4,
    }


def test_the_body_of_an_event_is_what_its_frame_says():
    item = {"id": "mcp_1", "output": [{"n": 1}], "big": 10**30}
    written = EventWriter().write(event(spec.DONE, {"output_index": 0, "item": item}, 3))
    assert written.body["item"] == item
    assert written.body is written.body


@pytest.mark.parametrize("text", ["", 'a,"delta":"b', '","logprobs":[]', "\\", "é\ud800"])
def test_what_stands_behind_the_text_is_repeated_before_it(text):
    first = event(spec.TEXT_DELTA, {**ADDRESS, "delta": text, "logprobs": []}, 40)
    frame = SseWriter().repeat(first, bytes)(text, 41)
    assert json.loads(frame.partition(b"\ndata: ")[2]) == {**first.body, "sequence_number": 41}


def test_an_event_cannot_be_made_by_its_class():
    with pytest.raises(TypeError, match=r"^an Event is made by firing an edge of a lifecycle, not by calling its class$"):
        Event("response.created", 0, {})


def test_the_stream_has_its_media_type_and_its_end():
    assert (CONTENT_TYPE, DONE_FRAME) == ("text/event-stream", b"data: [DONE]\n\n")
