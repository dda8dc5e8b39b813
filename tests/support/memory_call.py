"""The tests of the kind that docs/design/adding-a-kind.md adds; `test_adding.py` runs them with a copy of the package."""

import json
import os
import random
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from live.mcp_servers import running
from live.upstream import Reply, gateway, stream
from mcp.server.mcpserver import MCPServer

import interlock
from interlock.diagram import draw, to_mermaid, to_svg
from interlock.events.sse import SseWriter
from interlock.fsm import Close, Fail, Finish, Open, ResponseDriver, Run, SequentialIds, Start, Succeed, Usage
from interlock.fsm.lifecycles import LIFECYCLES
from interlock.parsers import Chunk, Tagged
from interlock.parsers.chat_deltas import ChatParser
from interlock.parsers.hosted_tools import HOSTED_TOOLS
from interlock.parsers.routing import Routing
from interlock.serving.build import build
from interlock.serving.cli.commands import app
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.engines.harmony_tokens import encode_framing, encoding
from interlock.serving.engines.script import Call, ScriptedEngine, ScriptRule, ScriptStep
from interlock.serving.http.server import ServerThread
from interlock.serving.requests.create import read_request
from interlock.serving.requests.input_items import normalize
from interlock.serving.requests.tool_offer import list_hosted_functions
from interlock.serving.settings import Settings
from interlock.serving.tools.hosting import ScriptedTools, ToolServers, mcp_tool, result_item_fields, server_call
from interlock.testing import findings, streams
from interlock.verify import oracle
from interlock.verify.proof import prove

REQUEST = {"model": "m", "input": "recall from memory: the trip", "tools": [{"type": "memory"}]}
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
    parser = ChatParser(Routing.from_request(REQUEST))
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


async def recall(query: str) -> str:
    return {"the trip": "To Ulm."}[query]


@pytest.fixture(scope="module")
def url():
    """The URL of an MCP server with the tool."""
    server = MCPServer("memory", log_level="CRITICAL")
    server.add_tool(recall)
    with running(server.streamable_http_app()) as base:
        yield f"{base}/mcp"


def output(url, **changes):
    """The output of a response, without its ids."""
    answer = httpx.post(f"{url}/v1/responses", json={**REQUEST, **changes}, timeout=60)
    return [{**item, "id": "mem_1"} for item in answer.json()["output"] if item["type"] not in ("reasoning", "message")]


FORMATS = [None, "harmony", *map(Tagged, ("hermes", "qwen3_coder", "pythonic", "deepseek_v3", "kimi_k2"))]


@pytest.mark.parametrize("family", FORMATS)
def test_a_server_runs_the_tool_whichever_format_its_model_writes(url, family):
    with ServerThread(build(Settings(tool_server=[f"memory={url}"]), EmbeddedEngine(family=family))) as served:
        assert output(served, model="interlock-embedded") == [LEGAL[7]["item"]]


@pytest.mark.parametrize("family", [None, "harmony", "hermes"])
def test_a_script_has_the_result_of_the_tool(family):
    call = Call("memory", {"query": "the trip"}, returns="To Ulm.")
    engine = ScriptedEngine([ScriptRule(family=family, steps=[ScriptStep(calls=[call]), ScriptStep(says="To Ulm.")])])
    with ServerThread(build(Settings(), engine, tools=ScriptedTools(engine))) as served:
        assert output(served, model="scripted") == [LEGAL[7]["item"]]


def written(text):
    """The answer of vLLM with the tokens of harmony."""
    choice = {"index": 0, "text": "", "token_ids": [*encode_framing(text)], "finish_reason": "stop"}
    return stream({"choices": [choice]})


def test_a_gateway_describes_the_tool_to_gpt_oss_as_a_function_and_continues_the_call(url):
    call = '<|channel|>commentary to=functions.memory <|constrain|>json<|message|>{"query": "the trip"}<|call|>'
    replies = written(call), written("<|channel|>final<|message|>Ulm.<|return|>")
    with gateway(*replies, api="vllm", hosted=["memory"], tools=ToolServers({"memory": url})) as (served, upstream):
        assert output(served) == [LEGAL[7]["item"]]
    first, second = [encoding().decode(body["prompt"]) for body in upstream.bodies]
    assert "// Searches earlier conversations.\ntype memory = (_: {\nquery: string,\n}) => any;" in first
    assert second == (
        f"{first}{call}<|start|>functions.memory to=assistant<|channel|>commentary<|message|>To Ulm.<|end|><|start|>assistant"
    )


def test_a_gateway_offers_the_tool_as_a_function_of_chat_completions(url):
    call = {"index": 0, "id": "call_1", "function": {"name": "memory", "arguments": '{"query": "the trip"}'}}
    deltas = {"tool_calls": [call]}, {"content": "Ulm."}
    replies = [stream({"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]}) for delta in deltas]
    with gateway(*replies, hosted=["memory"], tools=ToolServers({"memory": url})) as (served, upstream):
        assert output(served) == [LEGAL[7]["item"]]
    assert [tool["function"]["name"] for tool in upstream.bodies[0]["tools"]] == ["memory"]


def test_a_gateway_offers_the_tool_as_a_function_of_a_responses_service(url):
    driver = ResponseDriver({"model": "m"}, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 7)
    call = Open("function_call", {"name": "memory", "call_id": "call_1"})
    calling = b"".join(driver.feed([Start(), call, '{"query": "the trip"}', Close(), Finish()]))
    driver = ResponseDriver({"model": "m"}, writer=SseWriter(), ids=SequentialIds(), clock=lambda: 7)
    answer = b"".join(driver.feed([Start(), Open("message"), "Ulm.", Close(), Finish()]))
    replies = Reply((calling,)), Reply((answer,))
    with gateway(*replies, api="responses", hosted=["memory"], tools=ToolServers({"memory": url})) as (served, upstream):
        assert output(served) == [LEGAL[7]["item"]]
    assert [tool["name"] for tool in upstream.bodies[0]["tools"]] == ["memory"]


def test_a_function_of_the_client_with_the_name_stays_one():
    routing = Routing.from_request({"tools": [{"type": "memory"}, {"type": "function", "name": "memory"}]})
    assert {name: routing.function(name).kind for name in ("memory", "functions.memory")} == {
        "memory": "function_call",
        "functions.memory": "function_call",
    }


def test_the_query_streams():
    parser = ChatParser(Routing.from_request(REQUEST))
    call = {"index": 0, "id": "call_1", "function": {"name": "memory", "arguments": '{"query": "the'}}
    assert [*parser.feed(Chunk(delta={"tool_calls": [call]}))] == [Open("memory_call"), "the"]


def test_a_call_without_a_query_has_all_arguments_as_its_query():
    parser = ChatParser(Routing.from_request(REQUEST))
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
