import re
from itertools import pairwise

import pytest
from corpus_streams.frames import framed
from corpus_streams.legal import LEGAL
from hypothesis import given
from hypothesis import strategies as st

from interlock.events.decode import SseDecoder, SseMessage


def decoded(*pieces, **options):
    decoder = SseDecoder(**options)
    messages = [message for piece in pieces for message in decoder.feed(piece)]
    return messages + decoder.end()


def understood(data):
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
    assert [(m.event, m.data, m.last_event_id) for m in decoded(data) if m.complete] == understood(data)


@given(STREAMS, st.data())
def test_any_split_gives_the_same_messages(data, choices):
    cuts = sorted(choices.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    edges = [0, *cuts, len(data)]
    assert decoded(*(data[a:b] for a, b in pairwise(edges))) == decoded(data)


@given(STREAMS)
def test_a_stream_decodes_the_same_byte_by_byte(data):
    assert decoded(*(data[n : n + 1] for n in range(len(data)))) == decoded(data)


@given(st.binary(max_size=200), st.integers(1, 20))
def test_no_bytes_make_the_decoder_raise(data, limit):
    for message in decoded(data, limit=limit):
        assert len(message.data) <= limit


def test_every_written_frame_has_an_event_line_and_one_data_line():
    (message,) = decoded(b'event: response.created\ndata: {"a": 1}\n\n')
    assert message == SseMessage("response.created", '{"a": 1}', fields=("event", "data"))
    assert (message.data_lines, message.has_id) == (1, False)


def test_a_complete_legal_stream_is_read_unchanged():
    messages = decoded(framed(LEGAL["message"]))
    assert [m.event for m in messages] == [*(body["type"] for body in LEGAL["message"]), "message"]
    assert messages[-1].data == "[DONE]"


def test_data_lines_are_joined_and_counted():
    (message,) = decoded(b"data: a\ndata\ndata:b\n\n")
    assert message == SseMessage("message", "a\n\nb", fields=("data", "data", "data"))
    assert message.data_lines == 3


def test_ids_comments_and_unknown_fields_are_noted():
    one, other = decoded(b":hi\nid: 7\nfoo: x\ndata: a\n\ndata: b\n\n")
    assert one == SseMessage("message", "a", "7", ("", "id", "foo", "data"))
    assert one.has_id
    assert other == SseMessage("message", "b", "7", ("data",))


def test_an_id_with_a_nul_is_not_accepted():
    assert decoded(b"id: 1\0\ndata: a\n\n")[0].last_event_id == ""


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_carriage_returns_end_lines_and_are_noted(end):
    (message,) = decoded(end.join([b"event: e", b"data: a", b"", b""]))
    assert message == SseMessage("e", "a", had_cr=True)


def test_a_line_feed_after_a_chunk_ending_in_cr_is_not_another_line():
    assert decoded(b"data: a\r", b"\n\r", b"\ndata: b\n\n") == [
        SseMessage("message", "a", fields=("data",), had_cr=True),
        SseMessage("message", "b", fields=("data",)),
    ]


def test_only_a_leading_byte_order_mark_is_skipped():
    assert decoded(b"\xef", b"\xbb\xbfdata: a\n\n") == [SseMessage("message", "a", fields=("data",))]
    assert decoded(b"\xef\xbb\xbf\ndata: a\n\n") == [SseMessage("message", "a", fields=("data",))]
    assert decoded(b"\xef\xbb\xbf") == decoded(b"\xef\xbb", b"\xbf") == []
    assert decoded(b"\n\xef\xbb\xbfdata: a\n\n") == []


def test_invalid_utf8_is_replaced_and_reported():
    assert decoded(b"data: a\xffb\n\n") == [SseMessage("message", "a\ufffdb", fields=("data",), invalid_utf8=True)]
    assert decoded(b"data: a\n\nevent: e\ndata: \xff\n\n")[1] == SseMessage("e", "\ufffd", invalid_utf8=True)


def test_a_character_may_be_split():
    assert decoded(b"data: \xe2\x82", b"\xac\n\n") == [SseMessage("message", "€", fields=("data",))]


def test_an_event_without_data_is_counted_but_not_returned():
    decoder = SseDecoder()
    assert decoder.feed(b"event: e\n\n: keep alive\n\n\n") == []
    assert decoder.end() == []
    assert decoder.without_data == 1


def test_the_end_inside_a_message_is_visible():
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
