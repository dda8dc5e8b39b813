"""Events as frames and as objects."""

import json

import pytest

from interlock.events import spec
from interlock.events.dialects import OPEN_RESPONSES
from interlock.events.sse import CONTENT_TYPE, DONE_FRAME, Event, EventWriter, SseWriter

ADDRESS = {"item_id": "rs_100%d", "output_index": 0, "content_index": 0}


def test_a_frame_is_an_event_line_a_data_line_and_an_empty_line():
    frame = SseWriter()._write(spec.CODE_IN_PROGRESS, {"item_id": "ci_1", "output_index": 0}, 3)
    assert frame == (
        b"event: response.code_interpreter_call.in_progress\n"
        b'data: {"type":"response.code_interpreter_call.in_progress","item_id":"ci_1","output_index":0,"sequence_number":3}\n\n'
    )


@pytest.mark.parametrize("writer", [SseWriter(), SseWriter(OPEN_RESPONSES)])
@pytest.mark.parametrize("text", ["a", "", '"\n\r\\', "%d %b", "é\u2028", "\U0001f6a6", "a\ud800"])
def test_a_stamped_frame_says_what_a_written_one_does(writer, text):
    kept = []
    head, _, data = writer._stamp(spec.REASONING_DELTA, ADDRESS, kept.append)(text, 41).partition(b"\ndata: ")
    other_head, _, other = writer._write(spec.REASONING_DELTA, {**ADDRESS, "delta": text}, 41).partition(b"\ndata: ")
    assert head == other_head
    assert data.isascii()
    assert data.endswith(b"}\n\n")
    assert data.count(b"\n") == 2
    assert json.loads(data) == json.loads(other)
    assert kept == [json.loads(data)["delta"].encode()]


def test_the_other_dialect_has_another_name_for_reasoning():
    frame = SseWriter(OPEN_RESPONSES)._stamp(spec.REASONING_DELTA, ADDRESS, bytes)("a", 1)
    assert frame.startswith(b'event: response.reasoning.delta\ndata: {"type":"response.reasoning.delta",')


def test_an_object_holds_name_number_and_body():
    event = EventWriter()._write(spec.CODE_IN_PROGRESS, {"item_id": "ci_1", "output_index": 0}, 3)
    assert (event.name, event.sequence_number) == ("response.code_interpreter_call.in_progress", 3)
    assert event.body == {"type": event.name, "item_id": "ci_1", "output_index": 0, "sequence_number": 3}
    kept = []
    stamped = EventWriter()._stamp(spec.CODE_IN_PROGRESS, {"item_id": "ci_1"}, kept.append)("text", 4)
    assert kept == [b"text"]
    assert stamped.body == {"type": event.name, "item_id": "ci_1", "delta": "text", "sequence_number": 4}
    assert stamped != event


def test_an_event_cannot_be_made_by_its_class():
    with pytest.raises(TypeError, match=r"^an Event is made by firing an edge of a lifecycle, not by calling its class$"):
        Event("response.created", 0, {})


def test_the_stream_has_its_media_type_and_its_end():
    assert (CONTENT_TYPE, DONE_FRAME) == ("text/event-stream", b"data: [DONE]\n\n")
