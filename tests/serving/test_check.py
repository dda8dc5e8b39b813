"""A stream's bytes are judged: its framing, its end marker, and its events by the oracle."""

from pathlib import Path

import pytest

from interlock.serving.check import Finding, judge

CORPUS = Path(__file__).parents[1] / "corpus"
LEGAL = (CORPUS / "legal").glob("*.sse")
BROKEN = (CORPUS / "broken").glob("*.sse")
FRAMES = (CORPUS / "legal" / "nothing.sse").read_bytes()


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in sorted(LEGAL)])
def test_a_legal_stream_has_no_finding(path) -> None:
    assert judge([path.read_bytes()]).findings == []


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in sorted(BROKEN)])
def test_a_broken_stream_has_a_finding_of_its_rule(path) -> None:
    assert path.name.split("-")[0] in {found.rule for found in judge([path.read_bytes()]).findings}


def test_the_verdict_does_not_depend_on_how_the_bytes_are_split() -> None:
    data = (CORPUS / "broken" / "R9-delta-lost.sse").read_bytes()
    assert judge(data[place : place + 1] for place in range(len(data))) == judge([data])


def test_bytes_that_are_no_stream_have_no_events() -> None:
    assert judge([b"\x00\xff" * 100]).names == []


def test_data_that_is_no_object_is_found_and_the_rest_is_judged_all_the_same() -> None:
    for data in (b"nonsense", b"[1]", b"[" * 100_000):
        found = judge([b"event: x\ndata: " + data + b"\n\n" + FRAMES]).findings
        assert Finding(0, "R5", "the data is not a JSON object") in found


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (FRAMES.replace(b"event: response.created", b"event: created"), "the event is 'created', and"),
        (FRAMES.replace(b"data: {", b"data:\ndata: {", 1), "2 lines of data"),
        (FRAMES.replace(b"\n", b"\r\n"), "a line ends with a carriage return"),
        (FRAMES.replace(b"data: {", b"id: 1\ndata: {", 1), "it has an id"),
        (FRAMES.replace(b'"resp_1"', b'"resp_\xff"'), "it is not UTF-8"),
        (FRAMES.replace(b"\n\ndata: [DONE]\n\n", b""), "the stream ends inside an event"),
    ],
)
def test_each_fault_of_framing_is_found(frames, message) -> None:
    found = [found for found in judge([frames]).findings if found.rule == "R5"]
    assert any(fault.message.startswith(message) for fault in found)


def test_the_end_marker_has_to_be_there_and_to_be_the_end() -> None:
    done = b"data: [DONE]\n\n"
    events = FRAMES.removesuffix(done)
    number = events.count(b"\n\n")
    assert judge([events]).findings == [Finding(number, "R3", "the stream has no end marker [DONE]")]
    assert judge([events, done, done]).findings == [Finding(number, "R3", "the end marker [DONE] is not the end")]
