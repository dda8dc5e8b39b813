"""A stream as lines for the page."""

import json
from pathlib import Path

import pytest

from interlock.serving.recordings.recording import read
from interlock.serving.view.recorded import recorded
from interlock.serving.view.redaction import redacted, without_quotes
from interlock.serving.view.trace import Trace, encoded

ROOT = Path(__file__).parents[3]
CORPUS = ROOT / "tests" / "corpus"
RECORDINGS = sorted((ROOT / "recordings").glob("*.jsonl"))


def lines(path, **options):
    trace = Trace(**options)
    told = [*trace.feed(path.read_bytes()), *trace.end()]
    return [json.loads(line) for line in encoded(told).splitlines()]


def of(told, kind):
    return [line for line in told if line[0] == kind]


def steps(told):
    """Give for each event that moved a machine: its name, and the edges that fired, as they turned out."""
    known = {line[1]: line[2] for line in of(told, "step")}
    events = of(told, "e")
    numbers = [event[5] for event in events]
    for _, _, fixes in of(told, "fix"):
        numbers[fixes[0]] = fixes[1]
        for event, number in zip(fixes[::2], fixes[1::2], strict=True):
            numbers[event] = number
    return [
        (event[3].removeprefix("response."), [tuple(edge[:3]) for edge in known[number]["fired"]])
        for event, number in zip(events, numbers, strict=True)
        if number >= 0
    ]


def test_a_stream_is_told_event_by_event_with_the_edges_that_fired() -> None:
    told = lines(CORPUS / "legal" / "function-call.sse")
    assert of(told, "lane")[0] == ["lane", 0, 1, {"kind": "function_call", "name": "f", "id": "fc_0", "index": 0}]
    opening = ("absent", "open", "in_progress")
    append = ("in_progress", "append", "in_progress")
    close = ("in_progress", "close", "completed")
    assert [step for step in steps(told) if step[1] != []][:7] == [
        ("created", [("absent", "start", "in_progress")]),
        ("in_progress", [("absent", "start", "in_progress")]),
        ("output_item.added", [opening]),
        ("function_call_arguments.delta", [append]),
        ("function_call_arguments.delta", [append]),
        ("function_call_arguments.done", [close]),
        ("output_item.done", [close]),
    ]
    assert steps(told)[-1] == ("completed", [("in_progress", "complete", "completed")])
    assert of(told, "e")[-1][3:] == ["[DONE]", None, -1, None, 6, "[DONE]"]
    assert of(told, "end") == [["end", 0, {"status": "completed", "legal": True, "readable": True, "rules": {}}]]


def test_a_finding_stands_at_its_event() -> None:
    told = lines(CORPUS / "broken" / "R8-text-not-done.sse")
    (finding,) = of(told, "f")
    assert finding[:3] == ["f", 0, 7]
    assert (finding[3]["rule"], finding[3]["severity"], finding[3]["message"]) == ("R8", "error", "breaks the order of parts")
    assert finding[3]["expected"][0].startswith("response.output_text.")
    assert of(told, "end")[0][2]["rules"] == {"R8": 1}


def test_what_is_missing_at_the_end_stands_after_the_last_event() -> None:
    told = lines(CORPUS / "broken" / "R3-no-end.sse")
    assert {line[2] for line in of(told, "f")} == {len(of(told, "e"))}


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*.sse")), ids=lambda path: path.stem)
def test_every_stream_of_the_corpus_can_be_told_whole_and_in_pieces_alike(path) -> None:
    data = path.read_bytes()
    trace = Trace()
    pieces = [line for at in range(0, len(data), 7) for line in trace.feed(data[at : at + 7])]
    told = [json.loads(line) for line in encoded([*pieces, *trace.end()]).splitlines()]
    assert told == lines(path)
    assert [event[8] for event in of(told, "e")] == [
        line.removeprefix("data:").removeprefix(" ")
        for line in data.decode(errors="replace").replace("\r", "").split("\n")
        if line.startswith("data:")
    ] or path.stem in {"R5-two-data-lines", "R5-cut-inside-a-frame"}


def test_the_time_of_an_event_is_that_of_the_piece_that_completes_it() -> None:
    data = (CORPUS / "legal" / "message.sse").read_bytes()
    trace = Trace()
    told = [*trace.feed(data[:1000], 0), *trace.feed(data[1000:], 250)]
    times = [line[6] for line in told if line[0] == "e"]
    assert times == sorted(times)
    assert set(times) == {0, 250}


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_is_told_with_what_the_parser_read(path) -> None:
    recording = read(path)
    told = [json.loads(line) for batch in recorded(recording, Trace()) for line in encoded(batch).splitlines()]
    assert of(told, "f") == []
    made = [line[3] for line in of(told, "made")]
    assert len(made) > 1
    tokens = [token for one in made for token, _ in one.get("tokens", ())]
    recorded_tokens = [token for turn in recording.turns for output in turn.outputs for token in output.chunk.token_ids]
    assert tokens == (recorded_tokens if recording.format == "harmony" else [])
    for one in made:
        for (_, _, dest), (source, _, _) in zip(one.get("framing", ()), one.get("framing", ())[1:], strict=False):
            assert dest == source


def test_redacted_lines_say_nothing_that_was_said() -> None:
    told = lines(ROOT / "tests" / "corpus" / "legal" / "message.sse", redact=True)
    assert "Hello" not in json.dumps(told)
    assert [line[3] for line in of(told, "e")] == [line[3] for line in of(lines(CORPUS / "legal" / "message.sse"), "e")]
    recording = read(ROOT / "recordings" / "web-search.jsonl")
    hidden = b"".join(encoded(batch) for batch in recorded(recording, Trace(redact=True)))
    shown = b"".join(encoded(batch) for batch in recorded(recording, Trace()))
    assert b"author" in shown
    assert b"author" not in hidden
    broken = json.dumps(lines(CORPUS / "broken" / "R5-not-json.sse", redact=True))
    assert "not JSON" not in broken


def test_redaction_keeps_what_is_listed_and_hides_all_else() -> None:
    assert redacted(
        {
            "type": "x",
            "delta": "secret",
            "item": {"id": "fc_1", "name": "f", "arguments": '{"a": 1}', "code": "print()", "unheard_of": ["a", 1, None, True]},
            "error": {"code": "server_error", "message": "secret"},
            "logprobs": [{"token": "sec", "bytes": [115], "logprob": -1.0}],
        }
    ) == {
        "type": "x",
        "delta": "••••••",
        "item": {"id": "fc_1", "name": "f", "arguments": "••••••••", "code": "•••••••", "unheard_of": ["•", 1, None, True]},
        "error": {"code": "server_error", "message": "••••••"},
        "logprobs": [{"token": "•••", "bytes": [], "logprob": -1.0}],
    }
    assert without_quotes("item_id is 'it\\'s secret', and \"this\"") == "item_id is '•••', and '•••'"


def test_hostile_streams_are_told_and_nothing_breaks() -> None:
    bodies = [
        b'event: x\ndata: {"type": 3, "output_index": "0", "item": []}\n\n',
        b'event: response.output_item.added\ndata: {"type": "response.output_item.added", "output_index": 0, "item": null}\n\n',
        b"event: \xff\xfe\ndata: \xc3\x28 broken\n\n",
        b'data: {"type": "response.output_text.delta", "delta": "\\ud800", "output_index": true, "sequence_number": 1e999}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
        b'data: {"type": "<script>alert(1)</script>", "output_index": 99999999999999999999999999}\n\n',
    ]
    trace = Trace()
    told = [json.loads(line) for line in encoded([*trace.feed(b"".join(bodies)), *trace.end()]).splitlines()]
    assert len(of(told, "e")) == len(bodies)
    redacting = Trace(redact=True)
    assert encoded([*redacting.feed(b"".join(bodies)), *redacting.end()])
