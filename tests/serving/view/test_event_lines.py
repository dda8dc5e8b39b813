"""A stream as lines for the page."""

import json
import random
import re
import typing
from pathlib import Path

import pytest

from interlock.fsm.deltas import Delta
from interlock.parsers.harmony_framing import HARMONY, HarmonyTrigger
from interlock.serving.engines.recordings import read
from interlock.serving.view.event_lines import Trace, encode_lines, recording_lines, redacted, strip_quotes

ROOT = Path(__file__).parents[3]
CORPUS = ROOT / "tests" / "corpus"
RECORDINGS = sorted((ROOT / "recordings").glob("*.jsonl"))


def lines(path, **options):
    trace = Trace(**options)
    trace_lines = [*trace.feed(path.read_bytes()), *trace.end()]
    return [json.loads(line) for line in encode_lines(trace_lines).splitlines()]


def of(trace_lines, kind):
    return [line for line in trace_lines if line[0] == kind]


def steps(trace_lines):
    """Return each event that moved a machine: its name, and the edges that fired, after corrections."""
    by_number = {line[1]: line[2] for line in of(trace_lines, "step")}
    events = of(trace_lines, "e")
    numbers = [event[5] for event in events]
    for _, _, fixes in of(trace_lines, "fix"):
        numbers[fixes[0]] = fixes[1]
        for event, number in zip(fixes[::2], fixes[1::2], strict=True):
            numbers[event] = number
    return [
        (event[3].removeprefix("response."), [tuple(edge[:3]) for edge in by_number[number]["fired"]])
        for event, number in zip(events, numbers, strict=True)
        if number >= 0
    ]


def test_each_event_has_a_line_with_the_edges_that_fired() -> None:
    trace_lines = lines(CORPUS / "legal" / "function-call.sse")
    assert of(trace_lines, "lane")[0] == ["lane", 0, 1, {"kind": "function_call", "name": "f", "id": "fc_0", "index": 0}]
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
    assert of(trace_lines, "e")[-1][3:] == ["[DONE]", None, -1, None, 6, "[DONE]"]
    assert of(trace_lines, "end") == [["end", 0, {"status": "completed", "legal": True, "readable": True, "rules": {}}]]


def test_a_finding_has_the_number_of_its_event() -> None:
    trace_lines = lines(CORPUS / "broken" / "R8-text-not-done.sse")
    (finding,) = of(trace_lines, "f")
    assert finding[:3] == ["f", 0, 7]
    assert (finding[3]["rule"], finding[3]["severity"], finding[3]["message"]) == ("R8", "error", "breaks the order of parts")
    assert finding[3]["expected"][0].startswith("response.output_text.")
    assert of(trace_lines, "end")[0][2]["rules"] == {"R8": 1}


def test_silence_is_an_event_of_the_response_without_a_finding() -> None:
    trace = Trace()
    created, *rest = (CORPUS / "legal" / "nothing.sse").read_bytes().split(b"\n\n")
    silence = b'event: keepalive\ndata: {"type": "keepalive", "sequence_number": 1}'
    rest = [
        frame.replace(b'"sequence_number": 2', b'"sequence_number": 3').replace(b'"sequence_number": 1', b'"sequence_number": 2')
        for frame in rest
    ]
    trace_lines = [*trace.feed(b"\n\n".join([created, silence, *rest])), *trace.end()]
    assert [line[2:6] for line in of(trace_lines, "e")][1] == (0, "keepalive", 1, -1)
    assert of(trace_lines, "f") == []


def test_a_finding_at_the_end_comes_after_the_last_event() -> None:
    trace_lines = lines(CORPUS / "broken" / "R3-no-end.sse")
    assert {line[2] for line in of(trace_lines, "f")} == {len(of(trace_lines, "e"))}


@pytest.mark.long
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*.sse")), ids=lambda path: path.stem)
def test_every_stream_gives_the_same_lines_in_any_chunks(path) -> None:
    data = path.read_bytes()
    trace = Trace()
    pieces = [line for at in range(0, len(data), 7) for line in trace.feed(data[at : at + 7])]
    trace_lines = [json.loads(line) for line in encode_lines([*pieces, *trace.end()]).splitlines()]
    assert trace_lines == lines(path)
    assert [event[8] for event in of(trace_lines, "e")] == [
        line.removeprefix("data:").removeprefix(" ")
        for line in data.decode(errors="replace").replace("\r", "").split("\n")
        if line.startswith("data:")
    ] or path.stem in {"R5-two-data-lines", "R5-cut-inside-a-frame"}


def test_the_time_of_an_event_is_that_of_its_last_chunk() -> None:
    data = (CORPUS / "legal" / "message.sse").read_bytes()
    trace = Trace()
    trace_lines = [*trace.feed(data[:1000], 0), *trace.feed(data[1000:], 250)]
    times = [line[6] for line in trace_lines if line[0] == "e"]
    assert times == sorted(times)
    assert set(times) == {0, 250}


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_gives_the_origin_of_each_event(path) -> None:
    recording = read(path)
    trace_lines = [json.loads(line) for batch in recording_lines(recording, Trace()) for line in encode_lines(batch).splitlines()]
    assert of(trace_lines, "f") == []
    origins = [line[3] for line in of(trace_lines, "origin")]
    assert len(origins) > 1
    tokens = [token for one in origins for token, _ in one.get("tokens", ())]
    recorded_tokens = [token for turn in recording.turns for output in turn.outputs for token in output.chunk.token_ids]
    assert tokens == (recorded_tokens if recording.format == "harmony" else [])
    for one in origins:
        for (_, _, dest), (source, _, _) in zip(one.get("framing", ()), one.get("framing", ())[1:], strict=False):
            assert dest == source


def test_redacted_lines_have_no_text() -> None:
    trace_lines = lines(ROOT / "tests" / "corpus" / "legal" / "message.sse", redact=True)
    assert "Hello" not in json.dumps(trace_lines)
    assert [line[3] for line in of(trace_lines, "e")] == [line[3] for line in of(lines(CORPUS / "legal" / "message.sse"), "e")]
    recording = read(ROOT / "recordings" / "web-search.jsonl")
    hidden = b"".join(encode_lines(batch) for batch in recording_lines(recording, Trace(redact=True)))
    output = b"".join(encode_lines(batch) for batch in recording_lines(recording, Trace()))
    assert b"author" in output
    assert b"author" not in hidden
    broken = json.dumps(lines(CORPUS / "broken" / "R5-not-json.sse", redact=True))
    assert "not JSON" not in broken


def test_redaction_shows_only_listed_fields() -> None:
    call = {"id": "fc_1", "name": "f", "arguments": '{"a": 1}', "code": "print()", "unheard_of": ["a"]}
    value = {
        "type": "x",
        "delta": "secret",
        "item": {**call, "error": {"code": "E", "message": "M"}},
        "logprobs": [{"token": "sec", "bytes": [115], "logprob": -1.0}],
        "response": {
            "metadata": {"type": "x"},
            "tools": [{"name": "f", "parameters": {"a": "b"}}],
            "usage": None,
            "model": ["a"],
        },
    }
    assert redacted(value) == {
        "type": "x",
        "delta": "••••••",
        "item": {
            "id": "fc_1",
            "name": "f",
            "arguments": "••••••••",
            "code": "•••••••",
            "error": {"code": "•", "message": "•"},
            "•••": 1,
        },
        "logprobs": [{"token": "•••", "logprob": -1.0, "•••": 1}],
        "response": {"metadata": "•••", "tools": [{"name": "f", "parameters": "•••"}], "usage": None, "model": "•••"},
    }
    assert strip_quotes("the assistant's, not of role 'secret'") == "the assistant's, not of role '•••'"
    assert strip_quotes("item_id is 'it\\'s secret', and \"this\"") == "item_id is '•••', and '•••'"


ITEM = "type id status role phase call_id name namespace server_label container_id approval_request_id execution"
TYPED = "output outputs outputs.outcome output.outcome content summary action action.sources operation caller error error.content"
TOOL = "type name server_label"
IN_ITEM = {"": ITEM, "tools": TOOL, **dict.fromkeys(TYPED.split(), "type")}
IN_ITEM |= dict.fromkeys(("content.annotations", "summary.annotations", "error.content.annotations"), "type container_id")
VISIBLE = {
    "": "event type item_id response_id call_id name",
    "annotation": "type container_id",
    "error": "type",
    "error.content": "type",
    "error.content.annotations": "type container_id",
    "output": "type",
    "output.outcome": "type",
    "part": "type",
    "part.annotations": "type container_id",
    "response": "id object status model previous_response_id service_tier truncation",
    "response.tools": TOOL,
    "response.error": "type",
    "response.error.content": "type",
    "response.incomplete_details": "reason",
    "response.reasoning": "effort",
    "response.text.format": "type",
    "response.conversation": "id",
    **{f"{root}.{place}".rstrip("."): names for root in ("item", "response.output") for place, names in IN_ITEM.items()},
}
STAYS = {f"{place}.{name}".lstrip(".") for place, names in VISIBLE.items() for name in names.split()}
"""The fields whose strings stay visible."""


class Marks:
    """Puts marks into a stream; each mark has the path of its place."""

    def __init__(self, seed, share):
        self.random = random.Random(seed)  # noqa: S311 - it hides nothing
        self.share, self.places = share, {}

    def mark(self, place):
        self.places[f"mark{len(self.places)}x"] = place
        return f"mark{len(self.places) - 1}x"

    def value(self, value, place=""):
        match value:
            case str() if self.random.random() < self.share:
                return self.mark(place)
            case dict():
                inner = {name: self.value(each, f"{place}.{name}".lstrip(".")) for name, each in value.items()}
                return inner if self.random.random() > 0.05 else {**inner, self.mark("a name"): self.mark("a member")}
            case list():
                return [self.value(each, place) for each in value]
            case _ if place != "type" and self.random.random() < self.share / 20:
                return self.random.choice((self.mark(place), [self.mark(f"{place}[]")], {"type": self.mark(f"{place}.type")}))
            case _:
                return value

    def line(self, line):
        name, _, data = line.partition(":")
        if name == "event" and self.random.random() < self.share:
            return f"event: {self.mark('event')}"
        try:
            return f"data: {json.dumps(self.value(json.loads(data)))}" if name == "data" else line
        except ValueError:
            return f"data:{data}{self.mark('a line')}"


@pytest.mark.long
@pytest.mark.parametrize("share", [0.03, 0.3, 1])
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*.sse")), ids=lambda path: path.stem)
def test_redaction_hides_every_string_outside_the_listed_fields(path, share) -> None:
    marks = Marks(path.stem, share)
    stream = "\n".join(map(marks.line, path.read_text(errors="replace").split("\n"))).encode()
    trace = Trace(redact=True)
    trace_lines = encode_lines([*trace.feed(stream), *trace.end()]).decode()
    assert {marks.places[mark] for mark in re.findall("mark[0-9]+x", trace_lines)} <= STAYS


DELTAS = {kind.__name__ for kind in typing.get_args(Delta)}
FRAMING = {*HARMONY.states, *HarmonyTrigger}


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_redaction_hides_every_string_of_a_recording(path) -> None:
    trace_lines = [
        json.loads(line) for batch in recording_lines(read(path), Trace(redact=True)) for line in encode_lines(batch).splitlines()
    ]
    for origin in (line[3] for line in of(trace_lines, "origin")):
        assert {*origin} <= {"deltas", "tokens", "framing", "text"}
        assert {*origin["deltas"]} <= DELTAS
        assert set("".join([origin.get("text", ""), *(text for _, text in origin.get("tokens", ()))])) <= {"•"}
        assert {state for edge in origin.get("framing", ()) for state in edge} <= FRAMING


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
    redacting = Trace(redact=True)
    assert encode_lines([*redacting.feed(b"".join(bodies)), *redacting.end()])
