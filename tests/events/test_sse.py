"""Events as frames and as objects."""

import json

from each import each
from msgspec.structs import replace

from interlock.events.dialects import OPEN_RESPONSES
from interlock.events.json import as_json
from interlock.events.parts import ReasoningText
from interlock.events.sse import CONTENT_TYPE, DONE_FRAME, EventWriter, SseWriter
from interlock.events.stream import PROGRESS, ErrorEvent, PartAdded, ReasoningDelta, TextDelta

IN_PROGRESS = PROGRESS["code_interpreter_call.in_progress"]("ci_1", 0, sequence_number=3)


def data_of(frame):
    return json.loads(frame.partition(b"\ndata: ")[2])


def test_a_frame_is_an_event_line_a_data_line_and_an_empty_line():
    assert SseWriter().write(IN_PROGRESS) == (
        b"event: response.code_interpreter_call.in_progress\n"
        b'data: {"type":"response.code_interpreter_call.in_progress","item_id":"ci_1","output_index":0,"sequence_number":3}\n\n'
    )


@each("writer", [SseWriter(), SseWriter(OPEN_RESPONSES)])
@each(
    ("text", "written"), [("a", "a"), ('"\n\r\\', '"\n\r\\'), ("%d %b", "%d %b"), ("é\u2028", "é\u2028"), ("a\ud800", "a\ufffd")]
)
def test_any_text_is_one_line_of_data(writer, text, written):
    frame = writer.write(TextDelta("msg_1", 0, 0, text, sequence_number=4))
    assert frame.count(b"\n") == 3
    assert data_of(frame) == {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "delta": written,
        "logprobs": [],
        "sequence_number": 4,
    }


def test_the_other_dialect_has_another_name_for_reasoning():
    assert SseWriter(OPEN_RESPONSES).write(ReasoningDelta("rs_1", 0, 0, "é", sequence_number=1)) == (
        b"event: response.reasoning.delta\n"
        b'data: {"type":"response.reasoning.delta","item_id":"rs_1","output_index":0,"content_index":0,'
        b'"delta":"\xc3\xa9","sequence_number":1}\n\n'
    )


def test_the_other_dialect_nests_the_fields_of_an_error():
    error = ErrorEvent(code="server_error", message="It broke.", sequence_number=2)
    assert data_of(SseWriter(OPEN_RESPONSES).write(error)) == {
        "type": "error",
        "sequence_number": 2,
        "error": {"type": "server_error", "code": "server_error", "message": "It broke.", "param": None},
    }


@each("writer", [SseWriter(), SseWriter(OPEN_RESPONSES), EventWriter()])
@each(
    "event",
    [TextDelta('msg_"delta":""', 0, 1, "first", []), ReasoningDelta("rs_1", 0, 1, '"delta":""')],
    ids=["text", "reasoning"],
)
@each("text", ["a", "", '"delta":""', "\n\r\\", "%d %b", "é\u2028"])
def test_a_repeated_event_equals_a_written_one(writer, event, text):
    again = writer.repeat(event)(text, 41)
    assert again == writer.write(replace(event, delta=text, sequence_number=41))
    assert event.sequence_number == 0


def test_a_writer_of_objects_returns_the_event():
    event = PartAdded("rs_1", 0, 0, ReasoningText(text=""), sequence_number=3)
    assert EventWriter().write(event) is event
    assert as_json(event) == {
        "type": "response.content_part.added",
        "item_id": "rs_1",
        "output_index": 0,
        "content_index": 0,
        "part": {"type": "reasoning_text", "text": ""},
        "sequence_number": 3,
    }


def test_the_stream_has_its_media_type_and_its_end():
    assert (CONTENT_TYPE, DONE_FRAME) == ("text/event-stream", b"data: [DONE]\n\n")
