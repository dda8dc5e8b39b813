"""A stream as lines for the page."""

import json
from pathlib import Path

import pytest

from interlock.serving.engines.recordings import read
from interlock.serving.view.recordings import recording_lines
from interlock.serving.view.trace import Trace, encode_lines

ROOT = Path(__file__).parents[3]
CORPUS = ROOT / "tests" / "corpus"
RECORDINGS = sorted((CORPUS / "recordings").glob("*.jsonl"))


def lines(path):
    trace = Trace()
    trace_lines = [*trace.feed(path.read_bytes()), *trace.end()]
    return [json.loads(line) for line in encode_lines(trace_lines).splitlines()]


def of(trace_lines, kind):
    return [line for line in trace_lines if line[0] == kind]


def steps(trace_lines):
    """Return each event that moved a machine: its name, and the edges that fired, after corrections."""
    by_number = {line[1]: line[2] for line in of(trace_lines, "step")}
    events = of(trace_lines, "e")
    numbers = [event[4] for event in events]
    for _, fixes in of(trace_lines, "fix"):
        numbers[fixes[0]] = fixes[1]
        for event, number in zip(fixes[::2], fixes[1::2], strict=True):
            numbers[event] = number
    return [
        (event[2].removeprefix("response."), [tuple(edge[:3]) for edge in by_number[number]["fired"]])
        for event, number in zip(events, numbers, strict=True)
        if number >= 0
    ]


def test_each_event_has_a_line_with_the_edges_that_fired() -> None:
    trace_lines = lines(CORPUS / "legal" / "function-call.sse")
    assert of(trace_lines, "lane")[0] == ["lane", 1, {"kind": "function_call", "name": "f", "id": "fc_0", "index": 0}]
    opening = ("absent", "open", "in_progress")
    append = ("in_progress", "append", "in_progress")
    close = ("in_progress", "close", "completed")
    assert [step for step in steps(trace_lines) if step[1] != []][:7] == [
        ("created", [("absent", "start", "in_progress")]),
        ("in_progress", [("absent", "start", "in_progress")]),
        ("output_item.added", [opening]),
        ("function_call_arguments.delta", [append]),
        ("function_call_arguments.delta", [append]),
        ("function_call_arguments.done", [close]),
        ("output_item.done", [close]),
    ]
    assert steps(trace_lines)[-1] == ("completed", [("in_progress", "complete", "completed")])
    assert of(trace_lines, "e")[-1][2:] == ["[DONE]", None, -1, None, 6, "[DONE]"]
    assert of(trace_lines, "end") == [["end", {"status": "completed", "legal": True, "readable": True, "rules": {}}]]


def test_a_finding_has_the_number_of_its_event() -> None:
    trace_lines = lines(CORPUS / "broken" / "R8-text-not-done.sse")
    (finding,) = of(trace_lines, "f")
    assert finding[:2] == ["f", 7]
    assert (finding[2]["rule"], finding[2]["severity"], finding[2]["message"]) == ("R8", "error", "breaks the order of parts")
    assert finding[2]["expected"][0].startswith("response.output_text.")
    assert of(trace_lines, "end")[0][1]["rules"] == {"R8": 1}


def test_silence_is_an_event_of_the_response_without_a_finding() -> None:
    trace = Trace()
    created, *rest = (CORPUS / "legal" / "nothing.sse").read_bytes().split(b"\n\n")
    silence = b'event: keepalive\ndata: {"type": "keepalive", "sequence_number": 1}'
    rest = [
        frame.replace(b'"sequence_number": 2', b'"sequence_number": 3').replace(b'"sequence_number": 1', b'"sequence_number": 2')
        for frame in rest
    ]
    trace_lines = [*trace.feed(b"\n\n".join([created, silence, *rest])), *trace.end()]
    assert [line[1:5] for line in of(trace_lines, "e")][1] == (0, "keepalive", 1, -1)
    assert of(trace_lines, "f") == []


def test_a_finding_at_the_end_comes_after_the_last_event() -> None:
    trace_lines = lines(CORPUS / "broken" / "R3-no-end.sse")
    assert {line[1] for line in of(trace_lines, "f")} == {len(of(trace_lines, "e"))}


@pytest.mark.long
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*.sse")), ids=lambda path: path.stem)
def test_every_stream_gives_the_same_lines_in_any_chunks(path) -> None:
    data = path.read_bytes()
    trace = Trace()
    pieces = [line for at in range(0, len(data), 7) for line in trace.feed(data[at : at + 7])]
    trace_lines = [json.loads(line) for line in encode_lines([*pieces, *trace.end()]).splitlines()]
    assert trace_lines == lines(path)
    assert [event[7] for event in of(trace_lines, "e")] == [
        line.removeprefix("data:").removeprefix(" ")
        for line in data.decode(errors="replace").replace("\r", "").split("\n")
        if line.startswith("data:")
    ] or path.stem in {"R5-two-data-lines", "R5-cut-inside-a-frame"}


def test_the_time_of_an_event_is_that_of_its_last_chunk() -> None:
    data = (CORPUS / "legal" / "message.sse").read_bytes()
    trace = Trace()
    trace_lines = [*trace.feed(data[:1000], 0), *trace.feed(data[1000:], 250)]
    times = [line[5] for line in trace_lines if line[0] == "e"]
    assert times == sorted(times)
    assert set(times) == {0, 250}


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_gives_the_origin_of_each_event(path) -> None:
    recording = read(path)
    trace_lines = [json.loads(line) for batch in recording_lines(recording, Trace()) for line in encode_lines(batch).splitlines()]
    assert of(trace_lines, "f") == []
    origins = [line[2] for line in of(trace_lines, "origin")]
    assert len(origins) > 1
    tokens = [token for one in origins for token, _ in one.get("tokens", ())]
    recorded_tokens = [token for turn in recording.turns for output in turn.outputs for token in output.chunk.token_ids]
    assert tokens == (recorded_tokens if recording.format == "harmony" else [])
    for one in origins:
        for (_, _, dest), (source, _, _) in zip(one.get("framing", ()), one.get("framing", ())[1:], strict=False):
            assert dest == source


def test_hostile_streams_raise_no_error() -> None:
    bodies = [
        b'event: x\ndata: {"type": 3, "output_index": "0", "item": []}\n\n',
        b'event: response.output_item.added\ndata: {"type": "response.output_item.added", "output_index": 0, "item": null}\n\n',
        b"event: \xff\xfe\ndata: \xc3\x28 broken\n\n",
        b'data: {"type": "response.output_text.delta", "delta": "\\ud800", "output_index": true, "sequence_number": 1e999}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
        b'data: {"type": "<script>alert(1)</script>", "output_index": 99999999999999999999999999}\n\n',
    ]
    trace = Trace()
    trace_lines = [json.loads(line) for line in encode_lines([*trace.feed(b"".join(bodies)), *trace.end()]).splitlines()]
    assert len(of(trace_lines, "e")) == len(bodies)
