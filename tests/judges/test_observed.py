"""Observed streams of real services: legal unless they break a client, and illegal with one more fault."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from for_each import for_each

from interlock.judges import DEVIATIONS, Acceptor, judge
from interlock.testing.streams import renumber

OBSERVED = sorted((Path(__file__).parents[1] / "corpus" / "observed").glob("*.sse"))
OPTIONAL = {"error", "response.queued", "response.image_generation_call.partial_image"}
BREAKING = {
    "openai-github-copilot-id-rotation.1": {"R7", "R13"},  # the proxy gives every event another id
    "open-responses-lmstudio-tool-call.1": {"R9"},  # arguments without a delta
    "open-responses-lmstudio-tool-call.2": {"R9"},
}
"""The rules that streams break which also break a client."""
EVERY = pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in OBSERVED])
each_stream = for_each("path", OBSERVED, ids=lambda path: path.stem)


def streams(path):
    """Return the bodies of each stream in a file."""
    bodies = []
    for line in path.read_text().splitlines():
        if line.startswith("data: "):
            body = json.loads(line.removeprefix("data: "))
            if body["type"] == "response.created":
                bodies.append([])
            bodies[-1].append(body)
    return bodies


def findings(bodies):
    acceptor = Acceptor()
    for body in bodies:
        yield from acceptor.feed(body)
    yield from acceptor.end()


def is_illegal(bodies):
    return any(finding.severity == "error" for finding in findings(bodies))


@each_stream
def test_an_observed_stream_has_no_error_unless_it_breaks_a_client(path) -> None:
    verdict = judge([path.read_bytes()])
    errors = {one.rule for one in verdict.findings if one.severity == "error"}
    assert errors == BREAKING.get(path.stem, set())
    assert {one.deviation for one in verdict.findings} <= DEVIATIONS.keys() | {""}


@each_stream
def test_keepalive_events_change_no_finding(path) -> None:
    """OpenAI's service numbers `keepalive`, which comes after half a minute of silence; no recording has it."""
    for bodies in streams(path):
        alive = [bodies[0], *(each for body in bodies[1:] for each in ({"type": "keepalive", "sequence_number": 0}, body))]
        expected = [finding.message for finding in findings(renumber(bodies))]
        assert [finding.message for finding in findings(renumber(alive))] == expected


@pytest.mark.long
@EVERY
def test_a_missing_event_is_an_error(path) -> None:
    """Exceptions: the only delta of a text, events that repeat others, and events after an `error` event."""
    for bodies in streams(path):
        for place, body in enumerate(bodies):
            rest = [*bodies[:place], *bodies[place + 1 :]]
            name = body["type"]
            alike = [other for other in bodies if other["type"] == name and other.get("item_id") == body.get("item_id")]
            alone = name.endswith(".delta") and len(alike) == 1
            announced = name == "response.mcp_call.in_progress" and len(alike) > 1
            after_error = name == "response.failed" and bodies[place - 1]["type"] == "error"
            listed = name == "response.output_item.done" and body["item"]["type"] == "mcp_list_tools"
            if alone or announced or after_error or listed or name in OPTIONAL:
                continue
            assert is_illegal(renumber(rest)), (place, name)


@pytest.mark.long
@EVERY
def test_a_repeated_event_is_an_error(path) -> None:
    for bodies in streams(path):
        for place, body in enumerate(bodies):
            if body["type"] in {"error", "response.image_generation_call.partial_image"}:
                continue
            assert is_illegal(renumber([*bodies[: place + 1], *bodies[place:]])), (place, body["type"])


@pytest.mark.long
@EVERY
def test_a_text_that_differs_from_its_deltas_is_an_error(path) -> None:
    for bodies in streams(path):
        for place, body in enumerate(bodies):
            for field in ("delta", "text", "arguments", "code", "diff", "command"):
                if body.get(field):
                    changed = [*bodies[:place], {**body, field: "something else"}, *bodies[place + 1 :]]
                    assert is_illegal(changed), (place, body["type"], field)


@pytest.mark.long
@EVERY
def test_one_wrong_index_or_sequence_number_is_an_error(path) -> None:
    for bodies in streams(path):
        for place, body in enumerate(bodies):
            for field in ("output_index", "content_index", "summary_index", "sequence_number"):
                if field in body:
                    changed = [*bodies[:place], {**body, field: 7777}, *bodies[place + 1 :]]
                    assert is_illegal(changed), (place, body["type"], field)


@pytest.mark.long
@EVERY
def test_a_truncated_stream_is_an_error(path) -> None:
    for bodies in streams(path):
        for end in range(1, len(bodies)):
            ends_with_error = bodies[end - 1]["type"] == "error"  # which clients raise on
            assert is_illegal(bodies[:end]) is not ends_with_error, end


FREE = (
    {"response.output_text.delta", "response.output_text.annotation.added"},
    {"response.mcp_call_arguments.delta", "response.mcp_call.in_progress"},
)
"""Events that may come in any order."""


def may_overlap(one, other):
    """Whether a hosted call may be done after the next item was added."""
    return one["type"] == "response.output_item.done" and other["type"] == "response.output_item.added"


@pytest.mark.long
@EVERY
def test_two_swapped_events_are_an_error(path) -> None:
    for bodies in streams(path):
        for place in range(len(bodies) - 1):
            one, other = bodies[place], bodies[place + 1]
            if one["type"] == other["type"] or {one["type"], other["type"]} in FREE or may_overlap(one, other):
                continue
            swapped = renumber([*bodies[:place], other, one, *bodies[place + 2 :]])
            assert is_illegal(swapped), (place, one["type"], other["type"])


VLLM = sorted((Path(__file__).parents[1] / "corpus" / "vllm").glob("*.sse"))
TURNS = (Path(__file__).parents[2] / "docs" / "evidence" / "conformance" / "turns.md").read_text("utf-8")
ROW = re.compile(
    r"^\| [^|]+ \| (?:yes|no) \| (.+?) \| (.+?) \| (.+)\. \[the stream\]\(.*/corpus/vllm/(.+\.sse)\).* \| none \|$",
    re.MULTILINE,
)
ROWS = ROW.findall(TURNS)
ABOUT_MORE = re.compile(r"no terminal event|other content|none")
"""What the page says beside the errors of a turn."""


def test_the_page_links_every_stream_of_vllm() -> None:
    assert sorted(name for *_, name in ROWS) == [path.name for path in VLLM]


@for_each("path", VLLM, ids=lambda path: path.stem)
def test_a_stream_of_vllm_has_the_findings_of_the_page(path) -> None:
    ((errors, deviations, first),) = [row[:3] for row in ROWS if row[3] == path.name]
    found = {"error": Counter(), "deviation": Counter()}
    sentences = []
    answer = path.with_suffix(".json")
    whole = json.loads(answer.read_bytes()) if answer.exists() else None
    assert (whole is not None) is ("R19" in errors)
    for finding, times in judge([path.read_bytes()], whole=whole).findings.items():
        if finding.deviation != "no-done-marker":
            found[finding.severity][finding.rule] += times
            sentences.append(
                f"{finding.rule}: `{finding.received.removeprefix('response.')}`: {finding.message}".replace(": ``", "")
            )
    for shown, counts in ((errors, found["error"]), (deviations, found["deviation"])):
        listed = [each for each in shown.split(", ") if not ABOUT_MORE.fullmatch(each)]
        assert listed == [f"{rule}: {counts[rule]}" for rule in sorted(counts, key=lambda rule: int(rule[1:]))]
    assert re.split(r"\. (?:Other content|vLLM raised)", first)[0] == sentences[0]
