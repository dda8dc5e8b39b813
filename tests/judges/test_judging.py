"""`judge` judges the bytes of a stream: the framing, the end marker, and the fields of the events."""

import random
import tracemalloc
from itertools import product
from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest
from corpus_streams.broken import numbered
from corpus_streams.legal import item, stream
from for_each import for_each

from interlock.events.items import ITEMS
from interlock.events.rulebook import Finding
from interlock.events.stream import EVENTS, wire_name
from interlock.judges.contents import check_fields
from interlock.judges.digests import digests, loose_digests, quote
from interlock.judges.judging import MAX_LISTED, JsonLines, Judge, judge
from interlock.testing import findings, streams

CORPUS = Path(__file__).parents[1] / "corpus"
FRAMES = (CORPUS / "legal" / "nothing.sse").read_bytes()
DONE = b"data: [DONE]\n\n"


def messages(*pieces, rule="R5"):
    return [one.message for one in judge(pieces).findings if one.rule == rule]


@for_each("path", [pytest.param(path, id=path.stem) for path in sorted((CORPUS / "legal").glob("*.sse"))])
def test_a_legal_stream_is_legal(path) -> None:
    verdict = judge([path.read_bytes()])
    assert (verdict.legal, verdict.is_clean, verdict.findings) == (True, True, {})


def test_the_verdict_does_not_depend_on_how_the_bytes_are_split() -> None:
    data = (CORPUS / "broken" / "R9-delta-lost.sse").read_bytes()
    assert judge(data[place : place + 1] for place in range(len(data))) == judge([data])


def test_judge_takes_bytes_or_chunks_of_bytes() -> None:
    assert judge(FRAMES) == judge([FRAMES])
    for chunks in ("data: {}", ["data: {}"]):
        with pytest.raises(TypeError, match=r"^a stream is judged in chunks of bytes, not str: 'd"):
            judge(chunks)


@pytest.mark.parametrize("garbage", [b"", b"\x00\xff" * 100, b"\n\n\n", b"<html>\n</html>\n", b": keep alive\n\n"])
def test_bytes_without_events_have_none(garbage) -> None:
    verdict = judge([garbage])
    assert (verdict.events, verdict.legal) == (0, False)


@pytest.mark.parametrize("data", [b"nonsense", b"[1]", b"[" * 100_000, b"\xff\xfe", b"null", b'"text"'])
def test_data_that_is_not_a_json_object_breaks_r5(data) -> None:
    verdict = judge([FRAMES.replace(b"event: response.completed", b"event: x\ndata: " + data + b"\n\nevent: response.completed")])
    findings = [one for one in verdict.findings if one.message.startswith("the data is not a JSON object")]
    assert [(one.rule, one.event, one.received) for one in findings] == [("R5", 2, "x")]
    assert (verdict.status, verdict.events) == ("completed", 4)


@pytest.mark.parametrize("body", [b'{"type": {}}', b'{"type": ["response.created"]}', rb'{"type": "\ud800"}', b"{}"])
def test_an_event_without_a_name_breaks_r14(body) -> None:
    verdict = judge([b"data: " + body + b"\n\n"])
    assert (verdict.events, verdict.rules.get("R14"), verdict.status) == (1, 1, None)


def test_an_id_and_a_status_of_any_type_are_judged() -> None:
    frames = FRAMES.replace(b'"resp_1"', b'[["resp_1"]]').replace(b'"completed"', b'{"a": {}}')
    assert judge([frames]).status == '{"a": {}}'
    assert messages(frames, rule="R14")[0] == "response: id is an array"


def test_json_lines_are_read_in_any_chunks() -> None:
    lines = b"\n".join(line[len(b"data: ") :] for line in FRAMES.split(b"\n") if line.startswith(b"data: {"))
    whole = judge([lines])
    assert (whole.events, whole.status, whole.rules) == (3, "completed", {"R5": 1})
    assert judge(lines[place : place + 1] for place in range(len(lines))) == whole
    assert judge([b"\n\n", lines, b"\n \n"]).events == 3
    spread = judge([lines.replace(b"\n", b"\r\n\r\n\n\n") + b"\n\n"])
    assert (spread.events, spread.status, spread.rules) == (3, "completed", {"R5": 1})
    apart = JsonLines()
    assert [one.line for one in (*apart.feed(b"{}\n\r\n\n{}"), *apart.feed(b"\r"), *apart.feed(b"\n\n{}\n"))] == [1, 4, 6]


def test_a_line_beyond_the_size_limit_is_dropped() -> None:
    whole, blank = JsonLines(limit=20), JsonLines(limit=20)
    (message,) = whole.feed(b'{"type": "a line that is too long"}\n')
    assert (message.data, message.overlong, message.line) == ("", True, 1)
    (message,) = blank.feed(b" " * 21 + b"\n")
    assert (message.data, message.overlong) == ("", True)
    lines = JsonLines(limit=20)
    assert [*lines.feed(b'{"type": '), *lines.feed(b'"x"}'), *lines.feed(b" " * 20), *lines.feed(b"}" * 99)] == []
    (message,) = lines.feed(b"\n{}")
    assert (message.overlong, message.data, message.line) == (True, "", 1)
    assert [(message.overlong, message.data, message.line) for message in lines.end()] == [(False, "{}", 2)]


@pytest.mark.parametrize("text", [rb'"\ud800"', b"1e999", b"9" * 100, b"[" * 900 + b"]" * 900])
def test_lone_surrogates_and_huge_numbers_are_read(text) -> None:
    assert not messages(FRAMES.replace(b'"model": "m"', b'"model": "m", "x": ' + text))


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (FRAMES.replace(b"event: response.created", b"event: created"), "the event is 'created', and the body's type is"),
        (FRAMES.replace(b"event: response.created\n", b""), "there is no event line, and the body's type is"),
        (FRAMES.replace(b"data: {", b"data:\ndata: {", 1), "an event has more than one line of data"),
        (FRAMES.replace(b"\n", b"\r\n"), "a line ends with a carriage return"),
        (FRAMES.replace(b"data: {", b"id: 1\ndata: {", 1), "an event has an id"),
        (FRAMES.replace(b'"resp_1"', b'"resp_\xff"'), "an event is not UTF-8"),
        (FRAMES.replace(b"}\n\ndata: [DONE]\n\n", b""), "the stream ends inside an event"),
        (FRAMES.replace(b"\n\ndata: [DONE]\n\n", b""), "the last event has no empty line after it"),
        (FRAMES.replace(b"\n\n", b"\n"), "no empty line separates 4 events"),
        (FRAMES.replace(b"event: ", b": ").replace(b"\n\n", b"\n"), "no empty line separates 4 events"),
        (FRAMES.replace(b"}\n\n", b"}\n", 1), "no empty line separates 2 events"),
        (b"event: x\n\n" + FRAMES, "events without data: 1"),
        (b"data: {}" + b" " * (65 * 2**20) + b"\n\n" + FRAMES, "the event is too long to be judged"),
    ],
)
def test_each_framing_error_is_reported(frames, message) -> None:
    assert any(text.startswith(message) for text in messages(frames))


def test_a_wrong_media_type_is_reported():
    for content_type, count in [("text/event-stream; charset=utf-8", 0), ("application/json", 1), ("", 1)]:
        judging = Judge()
        judging.content_type(content_type)
        judging.feed(FRAMES)
        assert len(judging.end().findings) == count


def test_comments_have_no_finding() -> None:
    assert judge([b": hello\n\n" + FRAMES.replace(b"data: {", b": alive\ndata: {")]).legal


def test_the_end_marker_must_come_last() -> None:
    assert messages(FRAMES.removesuffix(DONE), rule="R3") == ["the stream has no end marker [DONE]"]
    assert messages(FRAMES, DONE, rule="R3") == ["comes after the end marker [DONE]"]


def test_the_status_is_none_if_the_terminal_event_has_no_response() -> None:
    body = b'{"type": "response.failed", "sequence_number": 0, "response": null}'
    assert judge([b"event: response.failed\ndata: " + body + b"\n\n"]).status is None


def test_findings_beyond_the_limit_are_only_counted() -> None:
    judging = Judge()
    for number in range(3 * MAX_LISTED):
        judging.feed(b'event: x\ndata: {"type": "x", "sequence_number": %d, "more": 1}\n\n' % (2 * number))
    verdict = judging.end()
    listed = [one for one in verdict.findings if one.severity == "error"]
    assert (len(listed), verdict.rules["R14"], verdict.rules["R2"]) == (MAX_LISTED, 3 * MAX_LISTED, 3 * MAX_LISTED - 1)
    assert verdict.severities == {"error": 3 * MAX_LISTED, "deviation": 1, "not_judged": 3 * MAX_LISTED}


@pytest.mark.parametrize("different", [0, MAX_LISTED])
def test_repeated_findings_are_counted_whether_or_not_they_are_listed(different: int) -> None:
    judging = Judge()
    for number in range(different):
        judging.feed(b"data: %d\n\n" % number)
    judging.feed(b"data: repeated\n\n" * 3)
    verdict = judging.end()
    assert (verdict.rules["R5"], verdict.severities["error"]) == (different + 3, different + 4)  # R3: no terminal event


@pytest.mark.long
def test_a_long_stream_takes_no_more_memory_than_a_short_one() -> None:
    head, delta = FRAMES[: FRAMES.index(b"event: response.completed")], b"x" * 1000
    item = b'{"id":"msg_0","type":"message","role":"assistant","status":"in_progress","content":[]}'
    part = b'{"type":"output_text","text":"","annotations":[],"logprobs":[]}'
    at = b'"item_id":"msg_0","output_index":0,"content_index":0'

    def frames():
        yield head
        yield b'event: response.output_item.added\ndata: {"type":"response.output_item.added","output_index":0,'
        yield b'"item":%b,"sequence_number":2}\n\n' % item
        yield b'event: response.content_part.added\ndata: {"type":"response.content_part.added",%b,"part":%b,' % (at, part)
        yield b'"sequence_number":3}\n\n'
        for number in range(4, 20_000):
            yield b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta",%b,"delta":"%b",' % (at, delta)
            yield b'"logprobs":[],"sequence_number":%d}\n\n' % number

    tracemalloc.start()
    verdict = judge(frames())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (verdict.events, verdict.rules) == (20_000, {"R3": 2})
    assert peak < 20_000_000  # of 20 MB of text in 24 MB of frames, hardly more than the window is held


# Every field of every event and item is judged by its type, with JSON values of every kind


VALUES = (None, True, 1, 0.5, "x", [], {}, [[]], [None], {"type": {}}, {"type": "x"})
UNSEEN = {"keepalive"}


class Seeded(random.Random):
    """Makes the choices of a stream from a seed."""

    def text(self):
        return self.choice(("rain", " x"))


def samples():
    """Return a legal event of every name, and one that begins and one that ends an item of every kind."""
    bodies = {("error", None): {"type": "error", "code": None, "message": "it broke", "param": None, "sequence_number": 2}}
    for kind, seed in product(streams.KINDS, range(40)):
        for body in streams.stream(Seeded(seed), kinds=(kind,), min_items=1):
            bodies.setdefault((body["type"], body.get("item", {}).get("type")), body)
    return bodies


SAMPLES = samples()


def field_findings(event, body):
    """Return the findings in the fields of an event."""
    return check_fields(event, body)[0]


def presence(kind, name):
    """Return how a field may be left out, and whether its default is null."""
    (field,) = [field for field in msgspec.structs.fields(kind) if field.encode_name == name]
    hint = get_type_hints(kind, include_extras=True)[field.name]
    extras = [meta.extra for meta in getattr(hint, "__metadata__", ()) if meta.extra]
    return (extras[0]["presence"] if extras else "", field.default is None)


def is_legal(event, body, kind, name, value):
    """Return whether the type of a field allows a value, by `msgspec`, and whether a stream may have it."""
    if name == "sequence_number" or (name == "logprobs" and isinstance(value, list)):
        return True  # judged by R2, and by R15
    try:
        read = msgspec.to_builtins(msgspec.convert(body, event))
    except msgspec.ValidationError:
        return False
    known = read["item"] if kind in ITEMS.values() else read
    return known[name] == value and (value is not None or presence(kind, name) not in {("optional", False), ("outbound", False)})


def test_the_samples_cover_every_event_and_item():
    assert {name for name, _ in SAMPLES} == EVENTS.keys() - UNSEEN
    assert {kind for _, kind in SAMPLES if kind} == ITEMS.keys()
    assert [field_findings(EVENTS[name], body) for (name, _), body in SAMPLES.items()] == [[]] * len(SAMPLES)


@pytest.mark.parametrize("name", sorted(EVENTS.keys() - UNSEEN))
def test_every_field_is_judged_by_its_type(name):
    event = EVENTS[name]
    for (_, kind), sample in [one for one in SAMPLES.items() if one[0][0] == name]:
        places = [(event, (), field.encode_name) for field in msgspec.structs.fields(event)]
        if kind:
            places += [(ITEMS[kind], ("item",), field.encode_name) for field in msgspec.structs.fields(ITEMS[kind])]
        for type_, way, field in places:
            for value in VALUES:
                changed = {field: value} if not way else {"item": {**sample["item"], field: value}}
                body = {**sample, **changed}
                is_accepted = field_findings(event, body) == []
                assert is_accepted == is_legal(event, body, type_, field, value), (name, kind, field, value)


@for_each("name", sorted(EVENTS.keys() - UNSEEN))
def test_a_missing_required_field_is_reported(name):
    for (_, kind), sample in [one for one in SAMPLES.items() if one[0][0] == name]:
        for field in msgspec.structs.fields(ITEMS[kind] if kind else EVENTS[name]):
            holder = sample["item"] if kind else sample
            rest = {key: value for key, value in holder.items() if key != field.encode_name}
            wrongs = field_findings(EVENTS[name], {**sample, "item": rest} if kind else rest)
            if field.required:
                assert [wrong.message for wrong in wrongs] == [f"{kind or name}: {field.encode_name} is missing"]


@pytest.mark.parametrize(
    ("stdout", "wrong"),
    [
        (1, Finding("R14", "delta: stdout is a number")),
        ({}, Finding("R14", "delta: stdout is an object")),
        (None, Finding("R14", "delta: stdout is null", "null")),
    ],
)
def test_the_output_of_a_command_must_be_text(stdout, wrong):
    about = {"type": "shell_call_output", "id": "sho_0", "call_id": "call_s", "max_output_length": None, "output": []}
    printed = {"stdout": "hi", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    delta = ("shell_call_output_content.delta", {"command_index": 0, "delta": {"stdout": stdout, "stderr": ""}})
    done = ("shell_call_output_content.done", {"command_index": 0, "output": [{**printed, "stdout": ""}]})
    ended = {"status": "completed", "output": done[1]["output"]}
    bodies = numbered(stream(item(0, {**about, "status": "in_progress"}, ended, delta, done)))
    (finding,) = findings(bodies)
    assert (finding.rule, finding.message, finding.deviation) == ("R14", wrong.message, wrong.deviation)


def test_field_names_chosen_by_users_are_quoted():
    (name,) = (key for key in SAMPLES if key == ("response.output_item.done", "file_search_call"))
    sample = SAMPLES[name]
    results = [{"attributes": {"secret": []}}]
    (wrong,) = field_findings(EVENTS[name[0]], {**sample, "item": {**sample["item"], "results": results}})
    assert wrong.message == "attributes: 'secret' is an array"


def test_an_event_may_have_a_stream_id_and_a_null_agent():
    body = msgspec.structs.asdict(EVENTS["error"]("it broke"))
    assert field_findings(EVENTS["error"], {**body, "type": wire_name(EVENTS["error"]), "stream_id": "", "agent": None}) == []


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def test_a_finding_truncates_a_long_value():
    values = ("it's", "y" * 300, 1, None, [True], [1] * 300, {"a": "y" * 300}, nested(5000), 10**5000)
    assert [quote(value) for value in values] == [
        '"it\'s"',
        f"'{'y' * 200}'…",
        "1",
        "null",
        "[true]",
        "an array",
        "an object",
        "an array",
        "a number",
    ]


def test_values_nested_too_deeply_count_as_equal():
    deep = {"a": nested(5000), "b": 1}
    assert loose_digests(deep) == digests({"a": nested(6000), "b": 1})


def test_a_command_without_an_added_event_is_not_compared():
    about = {"type": "shell_call", "id": "sh_0", "call_id": "call_s", "action": {"commands": []}, "status": "in_progress"}
    delta = ("shell_call_command.delta", {"command_index": 0, "delta": "ls"})
    bodies = numbered(stream(item(0, about, {"status": "completed"}, delta)))
    assert [finding.rule for finding in findings(bodies)] == ["R14", "R8"]  # the helper gives it an `item_id`
