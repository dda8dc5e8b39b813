"""The edges with which the acceptor explains events."""

from itertools import groupby
from pathlib import Path

from each import each

from interlock.fsm.lifecycles import LIFECYCLES, RESPONSE
from interlock.judges import Acceptor, Judge
from interlock.serving.view.steps import FiredEdge, Step, explain, narrow_steps

CORPUS = Path(__file__).parents[2] / "corpus"
LEGAL = sorted((CORPUS / "legal").glob("*.sse"))


def judged_messages(path):
    return list(Judge().follow(path.read_bytes()))


def machines(path):
    """Give the narrowed steps of each lifecycle in a stream."""
    steps = sorted(
        (explain(one.transition) for one in judged_messages(path) if one.transition),
        key=lambda step: -1 if step.index is None else step.index,
    )
    return [(index, narrow_steps(list(group))) for index, group in groupby(steps, key=lambda step: step.index)]


def edges(step):
    return [(edge.source, edge.trigger, edge.dest) for edge in step.fired]


def test_a_legal_message_walks_from_absent_to_completed() -> None:
    (_, response), (_, message) = machines(CORPUS / "legal" / "message.sse")
    assert [(edges(step), step.states) for step in response] == [
        ([("absent", "start", "in_progress")], ("absent",)),
        ([("absent", "start", "in_progress")], ("in_progress",)),
        ([("in_progress", "complete", "completed")], ("completed",)),
    ]
    assert [edges(step) for step in message] == [
        [("pending", "append", "output_text")],
        [("pending", "append", "output_text")],
        [("pending", "append", "output_text")],
        [("output_text", "append", "output_text")],
        [("output_text", "append", "output_text")],
        [("output_text", "close", "completed")],
        [("output_text", "close", "completed")],
        [("output_text", "close", "completed")],
    ]
    assert message[0].fired[0].silent == (("absent", "open", "pending"),)


def test_the_status_of_a_done_item_tells_how_it_ended() -> None:
    (_, cut) = machines(CORPUS / "legal" / "message-cut.sse")[-1]
    assert [edges(step) for step in cut[-3:]] == [[("output_text", "cut", "incomplete")]] * 3
    assert cut[-1].states == ("incomplete",)


def test_a_running_tool_is_seen_where_it_runs() -> None:
    (_, call) = machines(CORPUS / "legal" / "mcp-call.sse")[-1]
    assert [step.states for step in call] == [
        ("absent",),
        ("in_progress",),
        ("in_progress",),
        ("in_progress",),
        ("calling",),
        ("calling",),
        ("completed",),
    ]
    assert call[1].possible == ("ready",)
    assert call[4].fired == (FiredEdge("ready", "run", "calling", silent=(("in_progress", "close", "ready"),)),)


@each("path", LEGAL, ids=lambda path: path.stem)
def test_every_event_of_a_legal_stream_is_explained_by_edges_of_its_lifecycle(path) -> None:
    for index, steps in machines(path):
        lifecycle = RESPONSE if index is None else LIFECYCLES[steps[0].machine]
        declared = {(edge.source, edge.trigger, edge.dest) for edge in lifecycle.edges}
        for step in steps:
            assert step.machine == lifecycle.name
            assert step.fired
            assert {*edges(step), *(way for edge in step.fired for way in edge.silent)} <= declared


def test_every_edge_of_a_message_with_several_parts_is_certain_after_narrowing() -> None:
    (_, parts) = machines(CORPUS / "legal" / "message-parts.sse")[-1]
    assert [len(step.fired) for step in parts] == [1] * len(parts)


def test_an_event_out_of_place_fires_nothing() -> None:
    fired = [explain(one.transition).fired for one in judged_messages(CORPUS / "broken" / "R8-text-not-done.sse") if one.findings]
    assert fired == [()]


def test_what_is_about_no_lifecycle_has_no_step() -> None:
    messages = [*Judge().follow(b'event: error\ndata: {"type": "error"}\n\nevent: x\ndata: nonsense\n\ndata: [DONE]\n\n')]
    assert [(one.message.event, one.body, one.transition) for one in messages] == [
        ("error", {"type": "error"}, None),
        ("x", None, None),
        ("message", None, None),
    ]


def test_narrowing_keeps_what_nothing_after_it_contradicts() -> None:
    one, other = FiredEdge("a", "x", "b"), FiredEdge("a", "y", "c")
    later = FiredEdge("b", "z", "d")
    steps = [Step("m", 0, (one, other), ("b", "c")), Step("m", 0, (later,), ("d",)), Step("m", 0), Step("m", 0, (one,), ("b",))]
    assert narrow_steps(steps) == [Step("m", 0, (one,), ("b",)), *steps[1:]]
    assert narrow_steps([Step("m", 0, (later,)), Step("m", 0, (FiredEdge("b", "x", "e"), FiredEdge("d", "y", "e")))])[
        1
    ].fired == (FiredEdge("d", "y", "e"),)
    assert narrow_steps([Step("m", 0, (one,)), Step("m", 0, (FiredEdge("q", "z", "d"),))])[0].fired == (one,)


def test_an_item_without_a_lifecycle_has_no_machine() -> None:
    acceptor = Acceptor(first_sequence_number=None)
    item = {"id": "x_0", "type": "something_new"}
    acceptor.feed({"type": "response.output_item.added", "sequence_number": 7, "output_index": 3, "item": item})
    assert explain(acceptor.transition) == Step("", 3)


def test_an_edge_with_a_single_event_has_always_just_begun() -> None:
    acceptor = Acceptor(first_sequence_number=None)
    text = {"item_id": "msg_0", "output_index": 0, "content_index": 0, "delta": "x", "logprobs": []}
    acceptor.feed({"type": "response.output_text.delta", "sequence_number": 7, **text})
    fired = explain(acceptor.transition).fired
    appended = [edge.begins for edge in fired if (edge.source, edge.trigger) == ("output_text", "append")]
    assert appended == [True]
