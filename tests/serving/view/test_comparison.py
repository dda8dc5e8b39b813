"""The comparison of two streams, and how often edges fire."""

import json
from pathlib import Path

import pytest
from live.dialect_streams import chat, messages

from interlock.serving.view import comparison
from interlock.serving.view.comparison import ComparedSide, pairs
from interlock.serving.view.dialect_lines import AnyTrace

CORPUS = Path(__file__).parents[2] / "corpus"


def side(data):
    result, trace = ComparedSide(), AnyTrace()
    for line in [*trace.feed(data), *trace.end()]:
        result.add(line)
    return result


def rows(left, right):
    kind, alignment = pairs(side(left), side(right))
    assert kind == "pairs"
    return [(row["left"], row["right"], row["mark"], row["paths"]) for row in alignment["rows"]]


def stream(name):
    return (CORPUS / name).read_bytes()


def frames(*bodies):
    return b"".join(f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode() for body in bodies)


def test_a_stream_equals_itself_with_other_ids() -> None:
    message = stream("legal/message.sse")
    other = message.replace(b"msg_0", b"msg_9").replace(b"resp_1", b"resp_7")
    assert other != message
    assert {mark for _, _, mark, _ in rows(message, other)} == {"same"}


def test_a_difference_is_named_by_its_path() -> None:
    differing = [row for row in rows(stream("legal/message.sse"), stream("broken/R9-part-differs.sse")) if row[2] != "same"]
    assert differing == [
        ((8, 9), (8, 9), "differs", [".part.text"]),
        ((9, 10), (9, 10), "differs", [".item.content[0].text"]),
        ((10, 11), (10, 11), "differs", [".response.output[0].content[0].text"]),
    ]


def test_the_division_of_a_text_into_deltas_is_ignored() -> None:
    def delta(text):
        return {"type": "response.output_text.delta", "output_index": 0, "delta": text}

    one, other = frames(delta("ab"), delta("c")), frames(delta("a"), delta("b"), delta("c"))
    assert rows(one, other) == [((0, 2), (0, 3), "same", [])]
    assert rows(one, frames(delta("abd"))) == [((0, 2), (0, 1), "differs", ["delta"])]


def test_items_of_only_one_stream_have_their_own_rows() -> None:
    def item(index, kind):
        added = {"type": "response.output_item.added", "output_index": index, "item": {"type": kind, "id": f"x_{index}"}}
        return frames(added, {**added, "type": "response.output_item.done"})

    left, right = item(0, "reasoning") + item(1, "message"), item(0, "message") + item(1, "function_call")
    assert rows(left, right) == [
        ((0, 1), None, "left", []),
        ((1, 2), None, "left", []),
        ((2, 3), (0, 1), "same", []),
        ((3, 4), (1, 2), "same", []),
        (None, (2, 3), "right", []),
        (None, (3, 4), "right", []),
    ]
    assert [mark for _, _, mark, _ in rows(item(0, "a"), item(0, "b") + item(1, "a"))] == ["right", "right", "same", "same"]


def test_values_of_any_shape_are_compared() -> None:
    def event(**fields):
        return frames({"type": "x", **fields})

    assert rows(event(a=[1]), event(a=[1, 2]))[0][3] == [".a"]
    assert rows(event(a={"b": 1}), event(a={"c": 1}))[0][3] == [".a.b", ".a.c"]
    assert rows(event(a=1), event(a="1"))[0][3] == [".a"]
    assert rows(b"data: nonsense\n\n", b"data: otherwise\n\n")[0][2:] == ("differs", [""])


def test_long_streams_are_paired_in_order(monkeypatch) -> None:
    monkeypatch.setattr(comparison, "_LONGEST", 5)
    assert {mark for _, _, mark, _ in rows(stream("legal/message.sse"), stream("legal/message.sse"))} == {"same"}


@pytest.mark.parametrize("path", sorted((CORPUS / "legal").glob("*.sse")), ids=lambda path: path.stem)
def test_every_event_is_in_one_row(path) -> None:
    aligned = rows(path.read_bytes(), stream("legal/message.sse"))
    for column in (0, 1):
        ranges = sorted(row[column] for row in aligned if row[column])
        assert [end for _, end in ranges[:-1]] == [start for start, _ in ranges[1:]]
        assert ranges[0][0] == 0


@pytest.mark.parametrize(("stream_of", "deltas"), [(messages, 2), (chat, 2)])
def test_the_texts_of_other_apis_are_compared_as_a_whole(stream_of, deltas) -> None:
    data = stream_of()
    joined = data.replace(b"while.", b"").replace(b"Mean", b"Meanwhile.")
    assert {mark for _, _, mark, _ in rows(data, joined.replace(b"msg_", b"msg_9").replace(b"chatcmpl-", b"chatcmpl-9"))} == {
        "same"
    }
    differing = [
        (left[1] - left[0], paths) for left, _, mark, paths in rows(data, data.replace(b"Mean", b"Some")) if mark != "same"
    ]
    assert differing == [(deltas, ["delta"])]
