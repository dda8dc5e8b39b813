"""The tests of the kind that docs/design/adding-a-kind.md adds; `test_adding.py` runs them with a copy of the package."""

import json
import os
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

import interlock
from interlock.diagram import draw, to_mermaid, to_svg
from interlock.events.sse import SseWriter
from interlock.fsm import Close, Fail, Finish, Open, ResponseDriver, Run, SequentialIds, Start, Succeed, Usage
from interlock.fsm.lifecycles import LIFECYCLES
from interlock.parsers import Chunk
from interlock.parsers.chat_deltas import ChatParser
from interlock.parsers.routing import Routing
from interlock.serving.cli.commands import app
from interlock.serving.requests.create import read_request
from interlock.serving.requests.input_items import normalize
from interlock.serving.requests.tool_offer import HOSTED_TOOLS, list_hosted_functions, route_hosted
from interlock.serving.tools.hosting import mcp_tool, result_item_fields, server_call
from interlock.testing import findings, streams
from interlock.verify import oracle
from interlock.verify.proof import prove

CALL = Open("memory_call"), "the trip"
DONE = "response.output_item.done"


def events(*deltas):
    driver = ResponseDriver({"model": "m"}, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 7)
    frames = driver.feed([Start(), *deltas, Finish()])
    return [json.loads(frame[frame.index(b"{") :]) for frame in frames]


LEGAL = events(*CALL, Close(), Run("mem_1"), Succeed("mem_1", {"output": "To Ulm."}))


def rules(bodies):
    return {finding.rule for finding in findings(bodies)}


def without(name):
    rest = [body for body in LEGAL if body["type"] != name]
    return [{**body, "sequence_number": number} for number, body in enumerate(rest)]


def changed(place, name, value):
    bodies = json.loads(json.dumps(LEGAL))
    (bodies[place] if name in bodies[place] else bodies[place]["item"])[name] = value
    return bodies


def test_the_copy_of_the_package_is_imported():
    assert Path(interlock.__file__).is_relative_to(os.environ["PYTHONPATH"])


def test_the_driver_emits_the_events_in_the_declared_order():
    call = {"type": "memory_call", "id": "mem_1", "query": "the trip"}
    about = {"item_id": "mem_1", "output_index": 0}
    assert LEGAL[2:-1] == [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**call, "query": "", "status": "in_progress", "output": None},
            "sequence_number": 2,
        },
        {"type": "response.memory_call_query.delta", **about, "delta": "the trip", "sequence_number": 3},
        {"type": "response.memory_call_query.done", **about, "query": "the trip", "sequence_number": 4},
        {"type": "response.memory_call.recalling", **about, "sequence_number": 5},
        {"type": "response.memory_call.recalled", **about, "sequence_number": 6},
        {
            "type": DONE,
            "output_index": 0,
            "item": {**call, "status": "completed", "output": "To Ulm."},
            "sequence_number": 7,
        },
    ]


@pytest.mark.parametrize("end", [[], [Close()], [Close(), Run("mem_1")], [Close(), Fail("mem_1", "It broke.")]])
def test_both_judges_accept_every_ending(end):
    bodies = events(*CALL, *end)
    assert (rules(bodies), oracle.check(bodies)) == (set(), [])


@pytest.mark.parametrize(
    ("bodies", "rule"),
    [
        (without("response.memory_call_query.done"), "R10"),
        (changed(4, "query", "a trip"), "R9"),
        (without("response.memory_call.recalling"), "R11"),
        (without("response.memory_call.recalled"), "R10"),
        (changed(2, "id", "msg_1"), "R7"),
        (changed(2, "query", 1), "R14"),
        (changed(5, "item_id", 1), "R14"),
        (changed(7, "status", "failed"), "R10"),
    ],
)
def test_both_judges_report_a_planted_fault(bodies, rule):
    assert rule in rules(bodies)
    assert rule in {finding.rule for finding in oracle.check(bodies)}


def run(*arguments):
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    return result.exit_code, result.stdout


def test_check_judges_a_stream_with_the_item(tmp_path):
    stream = tmp_path / "stream.sse"
    stream.write_bytes(streams.frames(LEGAL))
    assert run("check", str(stream)) == (0, f"legal: {stream}: 9 events, 1 item, completed\n")
    stream.write_bytes(streams.frames(without("response.memory_call.recalled")))
    status, output = run("check", str(stream))
    assert (status, "R10" in output) == (1, True)


def test_diagram_draws_the_kind():
    assert run("diagram", "memory_call") == (0, to_mermaid(draw(LIFECYCLES["memory_call"])))
    assert run("diagram", "memory_call", "--format", "svg") == (0, to_svg(draw(LIFECYCLES["memory_call"])))


def test_a_client_may_send_the_item_back():
    item = LEGAL[7]["item"]
    assert read_request({"model": "m", "input": [item]}).input == (item,)


def test_a_server_offers_the_tool():
    assert HOSTED_TOOLS[-1] == "memory"
    (function,) = list_hosted_functions({"memory": ""}).values()
    assert (function["name"], function["parameters"]["required"]) == ("memory", ["query"])


def test_a_model_calls_the_tool_and_the_item_has_its_result():
    parser = ChatParser(route_hosted(Routing(), {"memory"}))
    call = {"index": 0, "id": "call_1", "function": {"name": "memory", "arguments": '{"query": "the trip"}'}}
    driver = ResponseDriver({"model": "m"}, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 7)
    driver.feed([Start(), *parser.feed(Chunk(delta={"tool_calls": [call]})), *parser.end("stop", Usage())])
    (ready,) = driver.ready
    assert (ready.kind, mcp_tool(ready.kind, ready.fields), server_call(ready)) == (
        "memory_call",
        ("memory", "recall"),
        ("recall", {"query": "the trip"}),
    )
    driver.feed([Run(ready.id), Succeed(ready.id, result_item_fields(ready, "To Ulm.", ())), Finish()])
    assert driver.response["output"] == [LEGAL[7]["item"]]


def test_the_query_streams():
    parser = ChatParser(route_hosted(Routing(), {"memory"}))
    call = {"index": 0, "id": "call_1", "function": {"name": "memory", "arguments": '{"query": "the'}}
    assert [*parser.feed(Chunk(delta={"tool_calls": [call]}))] == [Open("memory_call"), "the"]


def test_a_call_without_a_query_has_all_arguments_as_its_query():
    parser = ChatParser(route_hosted(Routing(), {"memory"}))
    call = {"index": 0, "id": "call_1", "function": {"name": "memory", "arguments": '{"question": "the trip"}'}}
    written = [*parser.feed(Chunk(delta={"tool_calls": [call]})), *parser.end("stop", Usage())]
    assert written[:3] == [Open("memory_call"), '{"question": "the trip"}', Close()]


def test_the_item_reaches_a_model_as_a_function_call_and_its_output():
    arguments = {"name": "memory", "arguments": '{"query":"the trip"}'}
    call, output = normalize([LEGAL[7]["item"]])
    assert call == {"type": "function_call", "call_id": call["call_id"], **arguments}
    assert output == {"type": "function_call_output", "call_id": call["call_id"], "output": "To Ulm."}


def test_the_proof_holds_for_the_kind():
    proof = prove(kinds=("memory_call",))
    assert proof.holds
    assert proof.coverage["memory_call"].edges == 10


def test_break_rule_drops_the_start_of_the_tool():
    names = [body["type"] for body in streams.break_rule(LEGAL, "R11")]
    assert names == [body["type"] for body in without("response.memory_call.recalling")]


class Seeded(random.Random):
    """Makes the choices of a stream from a seed."""

    def text(self):
        return "rain"


def test_random_streams_have_the_kind_and_both_judges_accept_them():
    drawn = [streams.stream(Seeded(seed), min_items=1) for seed in range(200)]
    having = [bodies for bodies in drawn if any(body.get("item", {}).get("type") == "memory_call" for body in bodies)]
    assert having
    assert [(rules(bodies), oracle.check(bodies)) for bodies in having] == [(set(), [])] * len(having)
