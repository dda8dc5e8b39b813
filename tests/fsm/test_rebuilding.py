"""Another driver can end a stream that was cut anywhere, and the whole stream is legal."""

import json
from pathlib import Path

import pytest
from for_each import for_each
from hypothesis import given
from hypothesis import strategies as st
from open_responses_oracle import check_in

from interlock.events.dialects import DIALECTS
from interlock.events.settings_echo import response_settings
from interlock.events.sse import SseWriter
from interlock.fsm.deltas import (
    Annotate,
    Cancel,
    Close,
    EndOutput,
    Fail,
    Fault,
    Finish,
    Open,
    Progress,
    Refusal,
    Run,
    Start,
    Succeed,
)
from interlock.fsm.driver import ResponseDriver, SequentialIds
from interlock.fsm.lifecycles import LIFECYCLES, RESPONSE
from interlock.serving.engines.recordings import read, replay_frames
from interlock.testing.strategies import legal_streams
from interlock.testing.streams import findings
from interlock.testing.streams import frames as written

RECORDINGS = sorted((Path(__file__).parents[1] / "corpus" / "recordings").glob("*.jsonl"))
LOST = Fault("server_error", "The server that made the response was lost.")


def body_of(frame):
    return json.loads(frame[frame.index(b"{") :])


def resumed_driver(frames, dialect="openai"):
    """Return a driver that has resumed some frames, nine seconds after their response began."""
    response = body_of(frames[0])["response"] if frames else response_settings({"model": "m"})
    driver = ResponseDriver(
        response,
        writer=SseWriter(DIALECTS[dialect]),
        ids=SequentialIds(),
        clock=lambda: response.get("created_at", 0) + 9,
        response_id=response.get("id"),
        created_at=response.get("created_at"),
    )
    driver.resume(frames)
    return driver


def ended(frames, ending, dialect="openai"):
    """Return a stream that was truncated, resumed and ended."""
    return [*frames, *resumed_driver(frames, dialect).feed([ending])]


def broken_rules(frames, dialect="openai"):
    """Return the rules that a stream breaks, by both judges."""
    bodies = [body_of(frame) for frame in frames]
    return {finding.rule for finding in findings(bodies, dialect=dialect)} | {
        finding.rule for finding in check_in(dialect, bodies)
    }


def assert_ended(frames, cut, ending, status, dialect="openai"):
    """Assert that a truncated stream is ended legally; an item may lack text only if the cut comes before its first."""
    stream = ended(frames[:cut], ending, dialect)
    textless = cut > 0 and body_of(frames[cut - 1])["type"].endswith((".added", "part.added"))
    assert broken_rules(stream, dialect) <= ({"R18"} if textless else set())
    assert (stream[:cut], body_of(stream[-1])["response"]["status"]) == (frames[:cut], status)


@pytest.mark.long
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_that_is_truncated_anywhere_is_ended_legally(path, dialect) -> None:
    *frames, _ = replay_frames(read(path), DIALECTS[dialect])
    for cut in range(len(frames)):
        assert_ended(frames, cut, LOST, "failed", dialect)
    assert ended(frames, LOST, dialect) == frames


@given(legal_streams(), st.data())
def test_a_random_stream_that_is_truncated_anywhere_is_ended_legally(bodies, data) -> None:
    *frames, _ = (frame + b"\n\n" for frame in written(bodies).split(b"\n\n")[:-1])
    cut = data.draw(st.integers(0, len(frames) - 1))
    ending, status = data.draw(st.sampled_from([(LOST, "failed"), (Cancel(), "cancelled")]))
    assert_ended(frames, cut, ending, status)


SERVED = [
    *(Start(), Open("mcp_list_tools", {"server_label": "docs"}), Succeed("mcpl_1", {"tools": []})),
    *(Open("mcp_call", {"server_label": "docs", "name": "look"}), "{}", Close(), Run("mcp_1"), Succeed("mcp_1", {"output": "x"})),
    *(Open("mcp_call", {"server_label": "docs", "name": "look"}), "{}", Close(), Run("mcp_2"), Fail("mcp_2", "no")),
    *(Open("shell_call_output", {"call_id": "call_1"}), Progress("sho_1", {"stdout": "a", "stderr": ""})),
    *(EndOutput("sho_1", {"type": "exit", "exit_code": 1}), Progress("sho_1", {"stdout": "b", "stderr": ""}), Succeed("sho_1")),
    *(Open("image_generation_call"), Close(), Run("ig_1"), Progress("ig_1", {"partial_image_b64": "aQ=="})),
    *(
        Succeed("ig_1", {"result": "aQ=="}),
        "It is ",
        Annotate({"type": "file_citation", "file_id": "f", "filename": "n", "index": 1}),
    ),
    *("so.", Finish()),
]


def test_tool_results_and_annotations_are_restored() -> None:
    driver = ResponseDriver(
        response_settings({"model": "m"}), writer=SseWriter(), ids=SequentialIds(), clock=lambda: 1_700_000_000
    )
    frames = driver.feed(SERVED)
    for cut in range(len(frames)):
        assert_ended(frames, cut, LOST, "failed")
    whole, cut = (body_of(stream[-1])["response"]["output"] for stream in (frames, ended(frames[:-3], LOST)))
    assert cut == [*whole[:-1], {**whole[-1], "status": "incomplete"}]


@for_each("path", RECORDINGS, ids=lambda path: path.stem)
def test_resuming_a_complete_stream_restores_its_response(path) -> None:
    *frames, _ = replay_frames(read(path))
    driver = resumed_driver(frames)
    assert (driver.ended, driver.response) == (True, body_of(frames[-1])["response"])


def test_a_resumed_driver_can_continue_a_text() -> None:
    *frames, _ = replay_frames(read(RECORDINGS[0].with_name("text.jsonl")))
    cut = next(place for place, frame in enumerate(frames) if b"output_text.done" in frame)
    driver = resumed_driver(frames[:cut])
    stream = [*frames[:cut], *driver.feed([" And more.", Finish()])]
    assert (broken_rules(stream), driver.response["output"][-1]["content"][0]["text"][-10:]) == (set(), " And more.")


def test_frames_that_are_not_events_are_skipped() -> None:
    *frames, _ = replay_frames(read(RECORDINGS[0].with_name("text.jsonl")))
    strange = [*frames[:5], b"data: 3\n\n", b"data: {\n\n", frames[0], b'data: {"type":"hologram","sequence_number":8}\n\n']
    first, *rest = map(body_of, resumed_driver(strange).feed([LOST]))
    assert (first["type"], first["sequence_number"], rest[-1]["type"]) == ("response.output_text.done", 9, "response.failed")
    driver = resumed_driver([*frames[:-1], frames[-1].replace(b'"status":"completed"', b'"status":"dreaming"')])
    assert (driver.feed([LOST]), driver.ended, driver.status) == ([], True, "completed")


def test_an_item_whose_done_event_is_unreadable_ends_with_the_response() -> None:
    driver = ResponseDriver(response_settings({"model": "m"}), writer=SseWriter(), ids=SequentialIds(), clock=lambda: 1)
    frames = driver.feed([Start(), "So.", Close(), Open("reasoning"), "Hm", Finish()])
    done = next(place for place, frame in enumerate(frames) if b"output_item.done" in frame)
    frames[done] = b'data: {"type":"keepalive","sequence_number":%d}\n\n' % done
    ends = [body_of(frame) for frame in resumed_driver(frames[: done + 3]).feed([LOST])]
    assert [event["item"]["id"] for event in ends if event["type"].endswith("item.done")] == ["msg_1", "rs_1"]


def test_an_interrupted_refusal_is_restored_as_a_refusal() -> None:
    driver = ResponseDriver(
        response_settings({"model": "m"}), writer=SseWriter(), ids=SequentialIds(), clock=lambda: 1_700_000_000
    )
    frames = driver.feed([Start(), Refusal("No."), Finish()])
    for cut in range(len(frames)):
        assert_ended(frames, cut, LOST, "failed")


@for_each("lifecycle", [RESPONSE, *LIFECYCLES.values()], ids=lambda lifecycle: lifecycle.name)
def test_the_last_event_of_an_edge_determines_the_next_state(lifecycle) -> None:
    states = {}
    for edge in lifecycle.edges:
        if edge.effects and edge.dest not in lifecycle.final and edge.trigger != "silence":  # which a log never has
            states.setdefault(edge.effects[-1], set()).add(edge.dest)
    assert [found for found in states.values() if len(found) > 1] == []


def test_an_item_closed_without_an_event_is_restored_as_closed():
    driver = ResponseDriver(
        response_settings({"model": "m"}), writer=SseWriter(DIALECTS["openai"]), ids=SequentialIds(), clock=lambda: 1_700_000_000
    )
    deltas = Start(), Open("image_generation_call"), Close(), Open("image_generation_call")
    frames = driver.feed(deltas)
    stream = ended(frames, LOST)
    assert broken_rules(stream) == set()
    assert [item["status"] for item in body_of(stream[-1])["response"]["output"]] == ["failed", "failed"]


@given(st.data())
def test_a_resumed_stream_continues_the_sequence_numbers(data) -> None:
    path = data.draw(st.sampled_from(RECORDINGS))
    *frames, _ = replay_frames(read(path))
    first = data.draw(st.integers(0, len(frames) - 1))
    cut = data.draw(st.integers(first, len(frames) - 1))
    driver = ResponseDriver(
        response_settings({"model": "m"}), writer=SseWriter(), ids=SequentialIds(), clock=lambda: 1_700_000_009
    )
    driver.resume(frames[first:cut], first)
    new = [body_of(frame) for frame in driver.feed([LOST])]
    assert [event["sequence_number"] for event in new] == [*range(cut, cut + len(new))]
    assert (new[0]["type"] == "response.created", new[-1]["type"]) == (cut == 0, "response.failed")
    done = [body_of(frame)["item"]["id"] for frame in frames[first:cut] if b"output_item.done" in frame]
    assert {*done} <= {item["id"] for item in new[-1]["response"]["output"]}


@pytest.mark.parametrize(
    ("shown", "ended_item"), [({}, {}), ({"status": "projecting"}, {"status": "incomplete"})], ids=["no status", "a status"]
)
def test_an_item_of_an_unknown_kind_ends_as_it_was_added(shown, ended_item) -> None:
    item = {"type": "hologram", "id": "holo_1", **shown}
    added = {"type": "response.output_item.added", "output_index": 0, "item": item, "sequence_number": 2}
    driver = ResponseDriver(
        response_settings({"model": "m"}), writer=SseWriter(), ids=SequentialIds(), clock=lambda: 1_700_000_009
    )
    frames = driver.feed([Start()])
    driver = resumed_driver([*frames, f"data: {json.dumps(added)}\n\n".encode()])
    done, end = map(body_of, driver.feed([LOST]))
    assert (done["type"], done["item"]) == ("response.output_item.done", {**item, **ended_item})
    assert (end["type"], end["response"]["output"]) == ("response.failed", [{**item, **ended_item}])
