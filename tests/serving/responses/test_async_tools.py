"""Async tools: the model continues after their calls, and the client sends their outputs at any later time."""

import json

import httpx
import pytest
from live.chunk_shapes import call, chunk
from live.engines import ANSWER, CALL, HOSTED_CALL, ScriptedTools, StagedEngine, steps
from live.sockets import socket_client
from live.upstream import gateway, stream
from live.wire import bodies
from openai import OpenAI

from interlock.fsm.deltas import Run, Succeed
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.engines.recordings import RecordedTurn, Recording
from interlock.serving.engines.script import ScriptedEngine, recorded_rule
from interlock.serving.requests.input_items import PENDING
from interlock.verify.oracle import check

LOOK_UP = {"type": "function", "name": "look_up", "parameters": {"type": "object"}, "async": True}
WAIT = {"type": "function", "name": "wait", "parameters": {"type": "object"}}
NOTE = {"type": "custom", "name": "note", "async": True}
MCP = {"type": "mcp", "server_label": "deep", "server_url": "https://mcp.example", "require_approval": "never"}
CALLED = [*steps(CALL + "<|call|>")]
WAITS = [*steps("<|channel|>commentary to=functions.wait <|constrain|>json<|message|>{}<|call|>")]
ANSWERED = [*steps(ANSWER)]


def post(url, **body):
    body = {"model": "staged", "input": "Hi", "tools": [LOOK_UP], **body}
    answer = httpx.post(f"{url}/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def kinds(items):
    return [item["type"] for item in items]


def output(call_id, text="b", kind="function_call_output"):
    return {"type": kind, "call_id": call_id, "output": text}


def read(items):
    """What a model reads, in short: the first letter of a role, or a call or output with a letter for its id."""
    letters = iter("abc")
    ids = {call_id: next(letters) for call_id in dict.fromkeys(item["call_id"] for item in items if "call_id" in item)}
    return [(item["type"], ids[item["call_id"]], item.get("output")) if "call_id" in item else item["role"][0] for item in items]


FIRST = ["u", ("function_call", "a", None), ("function_call_output", "a", PENDING)]
LATE = [("function_call", "b", None), ("function_call_output", "b", "late")]


def test_the_model_continues_after_the_call_of_an_async_tool(serve) -> None:
    engine = StagedEngine(CALLED, ANSWERED)
    with serve(engine) as url:
        response = OpenAI(base_url=f"{url}/v1", api_key="-").responses.create(model="staged", input="Hi", tools=[LOOK_UP])
    first, message = response.output
    assert (response.status, first.type, message.type) == ("completed", "function_call", "message")
    assert [each.to_dict()["async"] for each in (first, response.tools[0])] == [True, True]  # older releases have no `async_`
    assert [read(turn.items) for turn in engine.turns] == [["u"], FIRST]


def test_the_events_of_an_async_call_have_the_async_field(serve) -> None:
    with serve(StagedEngine(CALLED, ANSWERED)) as url:
        body = {"model": "staged", "input": "Hi", "tools": [LOOK_UP], "stream": True}
        events = bodies(httpx.post(f"{url}/v1/responses", json=body).content)
    assert check(events) == []
    assert [each["item"].get("async") for each in events if "item" in each] == [True, True, None, None]
    assert events[-1]["response"]["output"][0]["async"] is True


def chain(url, first, items):
    return post(url, previous_response_id=first["id"], input=items)


def conversation(url, first, items):
    return post(url, conversation=first["conversation"]["id"], input=items)


def whole(url, first, items):
    whole.items = [*getattr(whole, "items", [{"role": "user", "content": "Hi"}]), *first["output"], *items]
    return post(url, input=whole.items, store=False)


@pytest.mark.parametrize("road", [chain, conversation, whole])
def test_a_late_output_is_read_where_it_was_sent(serve, road) -> None:
    whole.items = [{"role": "user", "content": "Hi"}]
    engine = StagedEngine(CALLED, ANSWERED)
    with serve(engine) as url:
        fields = {"conversation": httpx.post(f"{url}/v1/conversations", json={}).json()["id"]} if road is conversation else {}
        first = post(url, **fields)
        second = road(url, first, [{"role": "user", "content": "And?"}])
        third = road(url, second, [output(first["output"][0]["call_id"], "late")])
    assert [kinds(each["output"]) for each in (first, second, third)] == [["function_call", "message"], ["message"], ["message"]]
    read_by_model = [read(turn.items) for turn in engine.turns]
    assert read_by_model == [["u"], FIRST, [*FIRST, "a", "u"], [*FIRST, "a", "u", "a", *LATE]]


def test_an_output_right_after_its_call_keeps_its_place(serve) -> None:
    engine = StagedEngine(ANSWERED)
    given = {"type": "function_call", "call_id": "call_1", "name": "look_up", "arguments": "{}"}
    with serve(engine) as url:
        post(url, input=[{"role": "user", "content": "Hi"}, {**given, "async": True}, output("call_1")])
    assert read(engine.turns[0].items) == ["u", ("function_call", "a", None), ("function_call_output", "a", "b")]


def test_a_call_of_another_tool_ends_the_response(serve) -> None:
    engine = StagedEngine(CALLED, WAITS, ANSWERED)
    with serve(engine) as url:
        first = post(url, tools=[LOOK_UP, WAIT])
        late, wait = (item["call_id"] for item in first["output"])
        second = chain(url, first, [output(late, "late"), output(wait, "done")])
    assert [item.get("async") for item in first["output"]] == [True, None]
    assert kinds(second["output"]) == ["message"]
    assert read(engine.turns[2].items) == [
        *("u", ("function_call", "a", None), ("function_call", "b", None)),
        *(("function_call_output", "a", "late"), ("function_call_output", "b", "done")),
    ]


def test_a_hosted_tool_runs_beside_an_async_one(serve) -> None:
    engine = StagedEngine(CALLED, [*steps(HOSTED_CALL + "<|call|>")], ANSWERED)
    tools = ScriptedTools(lambda made: [Run(made.id), Succeed(made.id, {"output": "c"})])
    with serve(engine, tools=tools) as url:
        response = post(url, tools=[LOOK_UP, MCP])
    assert kinds(response["output"]) == ["function_call", "mcp_call", "message"]
    assert kinds(engine.turns[2].items) == ["message", "function_call", "function_call_output", "mcp_call"]


def test_custom_tools_and_tools_in_namespaces_can_be_async(serve) -> None:
    note = [*steps('<|channel|>commentary to=functions.note <|constrain|>json<|message|>{"input": "x"}<|call|>')]
    spaced = [*steps("<|channel|>commentary to=functions.crm__look_up <|constrain|>json<|message|>{}<|call|>")]
    engine = StagedEngine(note, spaced, ANSWERED)
    with serve(engine) as url:
        first = post(url, tools=[NOTE, {"type": "namespace", "name": "crm", "description": "", "tools": [LOOK_UP]}])
        calls = first["output"][:2]
        second = chain(url, first, [output(calls[0]["call_id"], "late", "custom_tool_call_output")])
    assert [(each["type"], each["async"], each.get("namespace")) for each in calls] == [
        ("custom_tool_call", True, None),
        ("function_call", True, "crm"),
    ]
    assert second["status"] == "completed"
    assert [each[::2] for each in read(engine.turns[-1].items) if len(each) > 1] == [
        *(("custom_tool_call", None), ("custom_tool_call_output", PENDING)),
        *(("function_call", None), ("function_call_output", PENDING)),
        *(("custom_tool_call", None), ("custom_tool_call_output", "late")),
    ]


def test_a_model_that_only_calls_async_tools_stops_after_max_turns(serve, monkeypatch) -> None:
    monkeypatch.setattr("interlock.serving.responses.run.MAX_TURNS", 3)
    with serve(StagedEngine(CALLED)) as url:
        response = post(url)
    assert (response["status"], kinds(response["output"])) == ("completed", ["function_call"] * 3)


def test_async_must_be_a_boolean(serve) -> None:
    with serve(StagedEngine(ANSWERED)) as url:
        answer = httpx.post(
            f"{url}/v1/responses", json={"model": "staged", "input": "Hi", "tools": [{**LOOK_UP, "async": "yes"}]}
        )
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools[0].async")


def test_a_late_output_is_accepted_over_a_websocket(serve) -> None:
    engine = StagedEngine(CALLED, ANSWERED)
    with serve(engine) as url, socket_client(url, {"model": "staged", "tools": [LOOK_UP], "store": False}) as socket:
        first = socket.ask(input="Hi")[-1]["response"]
        socket.ask(previous_response_id=first["id"], input=[output(first["output"][0]["call_id"], "late")])
    assert read(engine.turns[-1].items) == [*FIRST, "a", *LATE]


def test_the_embedded_engine_answers_a_late_output(serve) -> None:
    with serve(EmbeddedEngine()) as url:
        first = post(url, model="interlock-embedded", input="look_up: a", tool_choice="required")
        second = post(
            url,
            model="interlock-embedded",
            previous_response_id=first["id"],
            input=[output(first["output"][1]["call_id"], "late")],
        )
    assert kinds(first["output"]) == ["reasoning", "function_call", "reasoning", "message"]
    assert "look_up says: late" in second["output"][-1]["content"][0]["text"]


def test_a_script_counts_the_turn_after_a_pending_call(serve) -> None:
    texts = [[*steps(f"<|channel|>final<|message|>{text}")] for text in ("One", "Two")]
    turns = tuple(RecordedTurn(tuple(turn)) for turn in (CALLED, *texts))
    with serve(ScriptedEngine([recorded_rule(Recording("harmony", {}, turns))])) as url:
        first = post(url)
        second = chain(url, first, [output(first["output"][0]["call_id"], "late")])
        again = chain(url, second, [{"role": "user", "content": "Again"}])
    answers = [each["output"][-1]["content"][0]["text"] for each in (first, second, again)]
    assert answers == ["One", "Two", "One"]


CHAT_CALL = stream(chunk(call(0, "{}", "look_up", "call_1")), chunk({}, "tool_calls"))
CHAT_ANSWER = stream(chunk({"content": "Yes."}), chunk({}, "stop"))


def test_a_chat_upstream_gets_a_late_output_with_a_second_call() -> None:
    with gateway(CHAT_CALL, CHAT_ANSWER) as (url, upstream):
        first = post(url, model="m")
        second = chain(url, {"id": first["id"]}, [{"role": "user", "content": "And?"}, output("call_1", "late")])
    assert (kinds(first["output"]), kinds(second["output"])) == (["function_call", "message"], ["message"])
    assert "async" not in json.dumps(upstream.bodies)
    messages = upstream.bodies[-1]["messages"]
    calls = [each["tool_calls"][0] for each in messages if "tool_calls" in each]
    assert [(each["role"], each.get("content"), each.get("tool_call_id")) for each in messages] == [
        ("user", "Hi", None),
        ("assistant", "", None),
        ("tool", PENDING, "call_1"),
        ("assistant", "Yes.", None),
        ("user", "And?", None),
        ("assistant", "", None),
        ("tool", "late", calls[1]["id"]),
    ]
    assert [each["function"] for each in calls] == [{"name": "look_up", "arguments": "{}"}] * 2
    assert calls[0]["id"] == "call_1" != calls[1]["id"]
    assert upstream.bodies[1]["messages"] == messages[:3]


@pytest.mark.parametrize("namespace", [None, "crm"])
def test_a_responses_upstream_gets_a_late_output_with_a_second_call(namespace) -> None:
    item = {"type": "function_call", "id": "fc_x", "call_id": "call_x", "name": "look_up", "arguments": "{}"}
    item |= {"namespace": namespace} if namespace else {}
    message = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}
    replies = [
        stream({"type": "response.completed", "response": {"status": "completed", "output": [each]}}) for each in (item, message)
    ]
    tool = {"type": "namespace", "name": namespace, "description": "", "tools": [LOOK_UP]} if namespace else LOOK_UP
    with gateway(*replies, api="responses") as (url, upstream):
        first = post(url, model="m", tools=[tool])
        post(url, model="m", tools=[tool], previous_response_id=first["id"], input=[output("call_x", "late")])
    assert [each.get("async") for each in first["output"]] == [True, None]
    assert "async" not in json.dumps(upstream.bodies)
    assert read(upstream.bodies[-1]["input"]) == [*FIRST, "a", *LATE]
