"""The decoder of server-sent events, JSON for any text, and the writers of events."""

import json
import re
from itertools import pairwise
from types import MappingProxyType

import pytest
from corpus_streams.legal import LEGAL, framed
from for_each import for_each
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from interlock.events.dialects import OPEN_RESPONSES
from interlock.events.json import as_json, clean, dumps, loads
from interlock.events.parts import OutputText, ReasoningText
from interlock.events.sse import CONTENT_TYPE, DONE_FRAME, EventWriter, SseDecoder, SseMessage, SseWriter
from interlock.events.stream import PROGRESS, ErrorEvent, PartAdded, ReasoningDelta, TextDelta


def decoded(*pieces, **options):
    decoder = SseDecoder(**options)
    messages = [message for piece in pieces for message in decoder.feed(piece)]
    return messages + decoder.end()


def naively_decoded(data):
    """Read a whole stream naively, and return the event, data and id of each message."""
    text = data.removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
    messages, event, lines, last_id = [], "", [], ""
    for line in re.split("\r\n|\r|\n", text)[:-1]:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if lines:
                messages.append((event or "message", "\n".join(lines), last_id))
            event, lines = "", []
        elif name == "event":
            event = value
        elif name == "data":
            lines.append(value)
        elif name == "id" and "\0" not in value:
            last_id = value
    return messages


PIECES = st.sampled_from(
    [b"data", b"event", b"id", b"retry", b":", b": ", b" ", b"\n", b"\r", b"\r\n", b"\n\n", b"x", b"10", b"\0", b"\xef\xbb\xbf"]
    + ["é€😀".encode()[n : n + 1] for n in range(9)]
    + [b"data: hello\n", b"event: e\n", b": comment\n"]
)
STREAMS = st.lists(PIECES, max_size=40).map(b"".join)


@given(STREAMS)
def test_the_decoder_agrees_with_a_naive_reader(data):
    assert [(m.event, m.data, m.last_event_id) for m in decoded(data) if m.complete] == naively_decoded(data)


@given(STREAMS, st.data())
def test_any_split_gives_the_same_messages(data, choices):
    cuts = sorted(choices.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    edges = [0, *cuts, len(data)]
    assert decoded(*(data[a:b] for a, b in pairwise(edges))) == decoded(data)


@given(STREAMS)
def test_a_stream_decodes_the_same_byte_by_byte(data):
    assert decoded(*(data[n : n + 1] for n in range(len(data)))) == decoded(data)


@given(st.binary(max_size=200), st.integers(1, 20))
def test_the_decoder_accepts_any_bytes_and_limits_the_data(data, limit):
    for message in decoded(data, limit=limit):
        assert len(message.data) <= limit


def test_a_message_lists_its_fields():
    (message,) = decoded(b'event: response.created\ndata: {"a": 1}\n\n')
    assert message == SseMessage("response.created", '{"a": 1}', fields=("event", "data"))
    assert message.fields == ("event", "data")


def test_a_complete_legal_stream_is_read_unchanged():
    messages = decoded(framed(LEGAL["message"]))
    assert [m.event for m in messages] == [*(body["type"] for body in LEGAL["message"]), "message"]
    assert messages[-1].data == "[DONE]"


def test_data_lines_are_joined_and_counted():
    (message,) = decoded(b"data: a\ndata\ndata:b\n\n")
    assert message == SseMessage("message", "a\n\nb", fields=("data", "data", "data"))
    assert message.fields.count("data") == 3


def test_a_message_lists_comments_and_unknown_fields_and_has_its_id():
    one, other = decoded(b":hi\nid: 7\nfoo: x\ndata: a\n\ndata: b\n\n")
    assert one == SseMessage("message", "a", "7", ("", "id", "foo", "data"))
    assert "id" in one.fields
    assert other == SseMessage("message", "b", "7", ("data",))


def test_an_id_with_a_null_character_is_ignored():
    assert decoded(b"id: 1\0\ndata: a\n\n")[0].last_event_id == ""


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_carriage_returns_end_lines_and_set_had_cr(end):
    (message,) = decoded(end.join([b"event: e", b"data: a", b"", b""]))
    assert message == SseMessage("e", "a", had_cr=True)


def test_a_line_feed_after_a_chunk_that_ends_in_cr_ends_no_other_line():
    assert decoded(b"data: a\r", b"\n\r", b"\ndata: b\n\n") == [
        SseMessage("message", "a", fields=("data",), had_cr=True),
        SseMessage("message", "b", fields=("data",)),
    ]


def test_only_a_leading_byte_order_mark_is_skipped():
    assert decoded(b"\xef", b"\xbb\xbfdata: a\n\n") == [SseMessage("message", "a", fields=("data",))]
    assert decoded(b"\xef\xbb\xbf\ndata: a\n\n") == [SseMessage("message", "a", fields=("data",))]
    assert decoded(b"\xef\xbb\xbf") == decoded(b"\xef\xbb", b"\xbf") == []
    assert decoded(b"\n\xef\xbb\xbfdata: a\n\n") == []


def test_invalid_utf8_is_replaced_and_sets_invalid_utf8():
    assert decoded(b"data: a\xffb\n\n") == [SseMessage("message", "a\ufffdb", fields=("data",), invalid_utf8=True)]
    assert decoded(b"data: a\n\nevent: e\ndata: \xff\n\n")[1] == SseMessage("e", "\ufffd", invalid_utf8=True)


def test_a_character_may_be_split_between_chunks():
    assert decoded(b"data: \xe2\x82", b"\xac\n\n") == [SseMessage("message", "€", fields=("data",))]


def test_an_event_without_data_is_counted_but_not_returned():
    decoder = SseDecoder()
    assert decoder.feed(b"event: e\n\n: keep alive\n\n\n") == []
    assert decoder.end() == []
    assert decoder.without_data == 1


def test_a_message_without_its_end_is_incomplete():
    assert decoded(b"event: e\ndata: a\nda") == [SseMessage("e", "a", fields=("event", "data", "da"), complete=False)]
    assert decoded(b"event: e\n") == [SseMessage("e", "", fields=("event",), complete=False)]


def test_a_message_over_the_limit_is_truncated_and_the_next_is_complete():
    data = b"data: aa\ndata: " + b"b" * 100 + b"\ndata: c\n\ndata: d\n\n"
    assert decoded(data, limit=20) == [
        SseMessage("message", "aa", fields=("data",), overlong=True),
        SseMessage("message", "d", fields=("data",)),
    ]
    assert decoded(b"x" * 100, limit=20) == [SseMessage("message", "", fields=(), overlong=True, complete=False)]


def test_a_long_line_does_not_fill_memory():
    decoder = SseDecoder(limit=1000)
    for _ in range(10_000):
        decoder.feed(b"x" * 1000)
    assert sum(len(piece) for piece in decoder._line) <= 1000


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_empty_lines_between_messages_are_skipped_in_one_step_and_counted(monkeypatch, end):
    ended = []
    monkeypatch.setattr(SseDecoder, "_end_line", lambda *_: ended.append(1) or [])
    decoder = SseDecoder()
    assert [*decoder.feed(b"event: a\ndata: 1\n\n" + end * 5), *decoder.feed(end * 5)] == [SseMessage("a", "1")]
    (message,) = decoder.feed(b"event: b\ndata: 2\n\n")
    assert (message, message.line, ended) == (SseMessage("b", "2"), 14, [])


# Any value is written as valid JSON


TEXT = st.text(st.characters())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def cleaned(value):
    match value:
        case str():
            return clean(value)
        case list():
            return [cleaned(entry) for entry in value]
        case dict():
            return {clean(name): cleaned(entry) for name, entry in value.items()}
        case _:
            return value


@pytest.mark.parametrize(
    ("text", "written"), [("abc", "abc"), ("é", "é"), ("a\ud800é\udfff", "a\ufffdé\ufffd"), ("\U0001f600", "\U0001f600")]
)
def test_lone_surrogates_are_replaced_one_by_one(text, written):
    assert clean(text) == written


@given(TEXT)
def test_clean_text_can_be_encoded(text):
    assert len(clean(text).encode().decode()) == len(text)


@given(VALUES)
def test_every_written_value_can_be_read(value):
    data = dumps(value)
    assert json.loads(data) == cleaned(value)
    assert b"\n" not in data


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (float("nan"), b"null"),
        ([float("inf"), "\ud800"], '[null,"\ufffd"]'.encode()),
        (2**70, b"1180591620717411303424"),
        ({"a": MappingProxyType({"b": (1, 2.5)})}, b'{"a":{"b":[1,2.5]}}'),
        ({"\ud800": None, "t": True}, '{"\ufffd":null,"t":true}'.encode()),
    ],
)
def test_values_that_json_lacks_are_written_as_valid_json(value, data):
    assert dumps(value) == data


def test_an_object_that_is_not_json_raises():
    with pytest.raises(TypeError, match=r"^object cannot be written as JSON$"):
        dumps({"a": object()})


@given(VALUES)
def test_as_json_returns_what_dumps_writes(value):
    assert as_json(value) == cleaned(value)


def test_as_json_writes_a_struct_with_its_type():
    assert as_json(OutputText(text="a\ud800")) == {"type": "output_text", "text": "a\ufffd", "annotations": [], "logprobs": []}


def test_nesting_of_any_depth_is_written():
    deep = loads("[" * 400 + "]" * 400)
    assert as_json(deep) == deep


# Events as frames and as objects


IN_PROGRESS = PROGRESS["code_interpreter_call.in_progress"]("ci_1", 0, sequence_number=3)


def data_of(frame):
    return json.loads(frame.partition(b"\ndata: ")[2])


def test_a_frame_is_an_event_line_a_data_line_and_an_empty_line():
    assert SseWriter().write(IN_PROGRESS) == (
        b"event: response.code_interpreter_call.in_progress\n"
        b'data: {"type":"response.code_interpreter_call.in_progress","item_id":"ci_1","output_index":0,"sequence_number":3}\n\n'
    )


@for_each("writer", [SseWriter(), SseWriter(OPEN_RESPONSES)])
@for_each(
    ("text", "written"), [("a", "a"), ('"\n\r\\', '"\n\r\\'), ("%d %b", "%d %b"), ("é\u2028", "é\u2028"), ("a\ud800", "a\ufffd")]
)
def test_any_text_is_written_as_one_data_line(writer, text, written):
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


def test_open_responses_frames_have_its_name_for_reasoning():
    assert SseWriter(OPEN_RESPONSES).write(ReasoningDelta("rs_1", 0, 0, "é", sequence_number=1)) == (
        b"event: response.reasoning.delta\n"
        b'data: {"type":"response.reasoning.delta","item_id":"rs_1","output_index":0,"content_index":0,'
        b'"delta":"\xc3\xa9","sequence_number":1}\n\n'
    )


def test_open_responses_frames_nest_the_fields_of_an_error():
    error = ErrorEvent(code="server_error", message="It broke.", sequence_number=2)
    assert data_of(SseWriter(OPEN_RESPONSES).write(error)) == {
        "type": "error",
        "sequence_number": 2,
        "error": {"type": "server_error", "code": "server_error", "message": "It broke.", "param": None},
    }


@for_each("writer", [SseWriter(), SseWriter(OPEN_RESPONSES), EventWriter()])
@for_each(
    "event",
    [TextDelta('msg_"delta":""', 0, 1, "first", []), ReasoningDelta("rs_1", 0, 1, '"delta":""')],
    ids=["text", "reasoning"],
)
@for_each("text", ["a", "", '"delta":""', "\n\r\\", "%d %b", "é\u2028"])
def test_a_repeated_event_equals_a_written_one(writer, event, text):
    again = writer.repeat(event)(text, 41)
    assert again == writer.write(replace(event, delta=text, sequence_number=41))
    assert event.sequence_number == 0


def test_the_event_writer_returns_the_event():
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


def test_the_media_type_and_the_end_marker_are_constants():
    assert (CONTENT_TYPE, DONE_FRAME) == ("text/event-stream", b"data: [DONE]\n\n")
