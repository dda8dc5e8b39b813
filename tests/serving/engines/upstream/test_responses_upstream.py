"""The gateway in front of another Responses service: its stateless requests, and how it reads the answers."""

import base64
import json

import httpx
import pytest
from live.upstream import CUT, PATIENCE, STALL, Reply, event, failure, gateway, stream
from live.wire import bodies

from interlock.serving.requests.create import read_request
from interlock.serving.tools.hosting import ToolServers


def ended(*output, status="completed", **fields):
    usage = {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 2}, "output_tokens": 4, "total_tokens": 9}
    usage["output_tokens_details"] = {"reasoning_tokens": 1}
    return {"type": f"response.{status}", "response": {"status": status, "output": [*output], "usage": usage, **fields}}


def message(text, **fields):
    return {"type": "message", "id": "msg_x", "role": "assistant", "content": [{"type": "output_text", "text": text}], **fields}


def call(name="f", arguments="{}"):
    return {"type": "function_call", "id": "fc_x", "call_id": "call_x", "name": name, "arguments": arguments}


YES = stream(ended(message("Yes.")))
USER = {"type": "message", "role": "user", "content": "Hi"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}


def post(url, **body):
    answer = httpx.post(f"{url}/v1/responses", json={"model": "m", "input": "Hi", **body}, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    return bodies(answer.content)[-1]["response"] if body.get("stream") else answer.json()


def sent(*replies, settings=(), **body):
    """The bodies that the upstream gets for a request."""
    with gateway(*(replies or [YES]), api="responses", **dict(settings)) as (url, upstream):
        post(url, **body)
    return upstream.bodies


def test_a_request_is_sent_statelessly():
    (body,) = sent(
        instructions="Be brief.",
        temperature=0.5,
        top_k=3,
        max_output_tokens=7,
        include=["reasoning.encrypted_content"],
        reasoning={"effort": "low", "summary": "auto"},
        metadata={"a": "b"},
        tool_choice="auto",
        stream=True,
    )
    assert body == {
        "model": "m",
        "input": [USER],
        "instructions": "Be brief.",
        "temperature": 0.5,
        "top_k": 3,
        "max_output_tokens": 7,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": "auto"},
        "store": False,
        "stream": True,
    }


def test_fields_can_be_renamed_and_dropped():
    (body,) = sent(settings={"fields": {"max_output_tokens": "max_tokens", "store": ""}}, max_output_tokens=20)
    assert (body["max_tokens"], "store" in body) == (20, False)


def test_text_and_usage_come_from_the_upstream():
    with gateway(YES, api="responses") as (url, _):
        response = post(url, stream=True)
    assert response["output"][0]["content"][0]["text"] == "Yes."
    usage = response["usage"]
    assert (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], usage["output_tokens"]) == (5, 2, 4)
    assert usage["output_tokens_details"] == {"reasoning_tokens": 1}


def test_a_whole_answer_is_read():
    reply = Reply((json.dumps({"object": "response", **ended(message("Yes."))["response"]}).encode(),))
    with gateway(Reply(reply.body, 200, {"content-type": "application/json"}), api="responses") as (url, _):
        assert post(url, stream=True)["output"][0]["content"][0]["text"] == "Yes."


def test_tools_are_sent_unchanged_except_those_that_the_gateway_runs():
    search = {"type": "web_search"}
    custom = {"type": "custom", "name": "patch"}
    tools = [search, custom, {"type": "code_interpreter", "container": {"type": "auto"}}]
    (body,) = sent(settings={"hosted": ["code_interpreter"]}, tools=tools, tool_choice={"type": "code_interpreter"})
    assert body["tools"][:2] == [search, custom]
    assert [body["tools"][2]["type"], body["tools"][2]["name"], body["tool_choice"]] == [
        "function",
        "python",
        {"type": "function", "name": "python"},
    ]
    (body,) = sent(tools=tools, tool_choice={"type": "custom", "name": "patch"})
    assert (body["tools"], body["tool_choice"]) == (tools, {"type": "custom", "name": "patch"})


def test_items_are_sent_as_a_stateless_service_accepts_them():
    items = [
        {**REASONING, "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {**REASONING, "id": "rs_2", "content": []},
        message("a"),
        call(),
        {"type": "function_call_output", "call_id": "call_x", "output": "b"},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "wiki", "name": "f", "arguments": "{}", "output": "c"},
        {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "wiki", "name": "f", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        USER,
    ]
    (body,) = sent(input=items)
    without_ids = [{name: value for name, value in item.items() if name != "id"} for item in items[2:5]]
    assert body["input"][:5] == [items[0], {"type": "reasoning", "summary": []}, *without_ids]
    called, output, denied, refusal = body["input"][5:9]
    assert (called["type"], called["name"], output["output"]) == ("function_call", "wiki__f", "c")
    assert (denied["name"], refusal["output"]) == ("wiki__f", "The user did not approve this call. It was not made.")
    assert body["input"][9:] == items[8:]


def test_an_output_without_a_call_is_sent_unchanged():
    standalone = {"type": "function_call_output", "name": "notify", "namespace": "agents", "output": "done"}
    (body,) = sent(input=[USER, standalone], store=False)
    assert body["input"][1] == standalone


@pytest.mark.parametrize("upstream_id", ["call_1", "123456789", "functions.f:0", "call__1", "a" * 64])
def test_call_ids_return_to_the_upstream_unchanged(upstream_id):
    ids = [upstream_id, f"{upstream_id}x", *[f"{upstream_id}y"] * 2]
    custom = {"type": "custom_tool_call", "id": "ct_x", "name": "patch", "input": "x"}
    shell = {"type": "shell_call", "id": "sh_1", "status": "completed", "action": {"commands": ["ls"]}}
    items = [call(), custom, shell, {"type": "shell_call_output", "id": "sho_1", "status": "completed", "output": []}]
    ran = [{**item, "call_id": call_id} for item, call_id in zip(items, ids, strict=True)]
    with gateway(stream(ended(*ran)), YES, api="responses") as (url, upstream):
        output = post(url, stream=True)["output"]
        answers = [{"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "b"} for item in output[:2]]
        post(url, input=[USER, *output, *answers])
    assert [item["call_id"].startswith("call_") for item in output] == [True] * 4
    assert [item.get("call_id") for item in upstream.bodies[-1]["input"]] == [None, *ids, *ids[:2]]


def test_foreign_call_ids_that_a_service_may_refuse_are_replaced():
    foreign = "x" * 65
    output = {"type": "function_call_output", "call_id": foreign, "output": "b"}
    (body,) = sent(input=[USER, {**call(), "call_id": foreign}, output])
    _, called, answered = [item.get("call_id") for item in body["input"]]
    assert (called, len(called), called.isalnum()) == (answered, 9, True)


def test_an_oversized_call_id_is_replaced():
    with gateway(stream(ended({**call(), "call_id": "a" * 1_025})), api="responses") as (url, _):
        (item,) = post(url, stream=True)["output"]
    assert (item["call_id"][:5], len(item["call_id"])) == ("call_", 37)


def test_the_gateway_sends_the_whole_conversation():
    with gateway(YES, api="responses") as (url, upstream):
        first = post(url)
        post(url, previous_response_id=first["id"], input="More")
    last = upstream.bodies[-1]
    assert [item.get("role") for item in last["input"]] == ["user", "assistant", "user"]
    assert "previous_response_id" not in last


def test_encrypted_content_returns_to_the_upstream_through_the_client_and_the_store():
    reasoning = {**REASONING, "encrypted_content": "gAAA", "summary": [{"type": "summary_text", "text": "Hm."}]}
    wanted = {"include": ["reasoning.encrypted_content"]}
    with gateway(stream(ended(reasoning, message("Yes."))), api="responses") as (url, upstream):
        first = post(url, **wanted)
        assert first["output"][0]["encrypted_content"] != "gAAA"
        assert b"gAAA" not in base64.urlsafe_b64decode(first["output"][0]["encrypted_content"])
        post(url, previous_response_id=first["id"], **wanted)
        post(url, input=[*first["output"], USER], **wanted)
    expected = {"type": "reasoning", "summary": reasoning["summary"], "encrypted_content": "gAAA"}
    for body in upstream.bodies[1:]:
        (item,) = [item for item in body["input"] if item["type"] == "reasoning"]
        assert {name: item[name] for name in expected} == expected
        assert not item.keys() & {"id", "content"}


def test_a_hosted_call_that_failed_at_the_upstream_is_not_answered_by_the_gateway():
    failed = {"type": "web_search_call", "id": "ws_1", "status": "failed", "action": {"type": "search", "query": "q"}}
    with gateway(stream(ended(failed, message("No luck."))), api="responses", tools=ToolServers()) as (url, upstream):
        response = post(url, tools=[{"type": "web_search"}], stream=True)
    assert [item["status"] for item in response["output"]] == ["failed", "completed"]
    assert len(upstream.bodies) == 1


def test_the_gateway_runs_calls_of_its_own_hosted_tools():
    tools = ToolServers({"code_interpreter": "http://127.0.0.1:9/sse"})  # nothing answers there
    python = stream(ended(call("python", '{"code": "1"}')))
    with gateway(python, YES, api="responses", hosted=["code_interpreter"], tools=tools) as (url, upstream):
        response = post(
            url, tools=[{"type": "code_interpreter", "container": {"type": "auto"}}], tool_choice="required", stream=True
        )
    assert [(item["type"], item["status"]) for item in response["output"]] == [
        ("code_interpreter_call", "failed"),
        ("message", "completed"),
    ]
    first, second = upstream.bodies
    assert (first["tool_choice"], second["tool_choice"]) == ("required", "auto")
    assert [item["type"] for item in second["input"]] == ["message", "function_call", "function_call_output"]


def test_the_turn_after_a_required_call_keeps_the_allowed_tools_without_requiring_one():
    tools = ToolServers({"code_interpreter": "http://127.0.0.1:9/sse"})  # nothing answers there
    python = stream(ended(call("python", '{"code": "1"}')))
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}
    offered = [{"type": "code_interpreter", "container": {"type": "auto"}}, {"type": "function", "name": "f", "parameters": {}}]
    with gateway(python, YES, api="responses", hosted=["code_interpreter"], tools=tools) as (url, upstream):
        post(url, tools=offered, tool_choice=choice, stream=True)
    assert [body["tool_choice"] for body in upstream.bodies] == [choice, {**choice, "mode": "auto"}]


@pytest.mark.parametrize(
    ("reply", "status", "code"),
    [
        (stream(ended(message("a", status="incomplete"), status="incomplete")), "incomplete", None),
        (stream(ended(message("a"), status="failed", error={"code": "c", "message": "m"})), "failed", "c"),
        (stream({"type": "error", "code": "c", "message": "m"}), "failed", "c"),
        (stream({"type": "response.created"}, done=False), "failed", "upstream_disconnected"),
        (stream({"type": "response.created"}), "completed", None),
        (Reply((event(ended(message("a"))["response"]), CUT)), "failed", "upstream_error"),
        (Reply((event({"type": "response.in_progress"}), CUT)), "failed", "upstream_disconnected"),
        (Reply((event(b"{"),)), "failed", "upstream_error"),
        (Reply((event(b"[]"),)), "failed", "upstream_error"),
    ],
)
def test_each_end_of_a_stream_sets_the_status_of_the_response(reply, status, code):
    with gateway(reply, api="responses") as (url, _):
        response = post(url, stream=True)
    assert (response["status"], (response["error"] or {}).get("code")) == (status, code)


ADDED = {"type": "response.output_item.added", "output_index": 0, "item": message("")}
DELTA = {"type": "response.output_text.delta", "item_id": "msg_x", "output_index": 0, "content_index": 1, "delta": "Yes."}
ITEM_DONE = {"type": "response.output_item.done", "output_index": 0, "item": message("Yes.", status="completed")}
WHOLE = [ADDED, DELTA, ITEM_DONE]
RATES = {"type": "response.rate_limits.updated", "rate_limits": []}


@pytest.mark.parametrize("tail", [(), (CUT,), (STALL,), (event(b"{"),), (event(RATES), CUT)])
@pytest.mark.parametrize("last", [(event(ended()),), (event(ended(message("Yes."))),)])
def test_data_after_the_terminal_event_is_ignored(last, tail):
    with gateway(Reply((*map(event, WHOLE), *last, *tail)), api="responses", between_timeout=10 * PATIENCE) as (url, _):
        response = post(url, stream=True)
    assert (response["status"], response["error"], response["usage"]["total_tokens"]) == ("completed", None, 9)
    assert [part["text"] for item in response["output"] for part in item["content"]] == ["Yes."]


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ((*WHOLE,), "completed"),
        ((*WHOLE, {"type": "response.output_item.added", "output_index": 1, "item": call()}), "failed"),
        ((ADDED, DELTA), "failed"),
        ((*WHOLE[:2], {**ITEM_DONE, "item": message("Yes.", status="incomplete")}), "failed"),
        ((), "failed"),
    ],
)
def test_a_stream_that_ends_without_a_terminal_event_is_complete_if_its_items_are(events, status):
    with gateway(stream(*events, done=False), api="responses") as (url, _):
        response = post(url, stream=True)
    assert (response["status"], (response["error"] or {}).get("code")) == (
        status,
        None if status == "completed" else "upstream_disconnected",
    )


@pytest.mark.parametrize("last", [(), (ended(),)])
def test_completed_items_are_in_the_response_even_if_the_last_event_lacks_them(last):
    thought = {**REASONING, "content": [{"type": "reasoning_text", "text": "Hm."}]}
    items = [thought, message("Yes.", status="completed"), {**call(arguments='{"a":1}'), "status": "completed"}]
    events = [{"type": "response.output_item.done", "output_index": index, "item": item} for index, item in enumerate(items)]
    with gateway(stream(*events, *last, done=False), api="responses") as (url, _):
        answer = post(url, stream=True)
    reasoning, text, function = answer["output"]
    assert (answer["status"], answer["error"]) == ("completed", None)
    assert (reasoning["content"], text["content"][0]["text"]) == (thought["content"], "Yes.")
    assert (function["name"], function["arguments"], function["call_id"]) == ("f", '{"a":1}', "call_x")


def test_a_stream_that_is_cut_without_a_terminal_event_fails():
    with gateway(Reply((*map(event, WHOLE), CUT)), api="responses") as (url, _):
        response = post(url, stream=True)
    assert (response["status"], response["error"]["code"]) == ("failed", "upstream_disconnected")


def test_events_of_another_api_are_an_error():
    chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Yes."}, "finish_reason": "stop"}]}
    whole = {"object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}}]}
    error = {"error": {"message": "No such model.", "code": "model_not_found"}}
    not_an_event = "The upstream server sent an event that is not of the Responses API: it has no type."
    for reply, message in (
        (stream(chunk), not_an_event),
        (failure(200, whole), not_an_event),
        (stream(error), "No such model."),
    ):
        with gateway(reply, api="responses") as (url, _):
            response = post(url, stream=True)
        assert (response["status"], response["error"]["message"]) == ("failed", message)


def test_tokens_are_counted_by_the_upstream_or_estimated():
    counted = failure(200, {"object": "response.input_tokens", "input_tokens": 42})
    for reply, expected in ((counted, 42), (failure(404, {}), 17)):
        with gateway(reply, api="responses") as (url, upstream):
            answer = httpx.post(f"{url}/v1/responses/input_tokens", json={"model": "m", "input": "Hi"})
        assert answer.json()["input_tokens"] == expected
        assert upstream.bodies == [{"model": "m", "input": [USER]}]
        assert [each.path for each in upstream.requests if each.body is not None] == ["/v1/responses/input_tokens"]
    with gateway(failure(400, {"error": {"message": "No."}}), api="responses") as (url, _):
        assert httpx.post(f"{url}/v1/responses/input_tokens", json={"model": "m", "input": "Hi"}).status_code == 400


def test_the_gateway_accepts_a_smaller_max_output_tokens_than_the_api():
    with pytest.raises(Exception, match="max_output_tokens"):
        read_request({"model": "m", "input": "Hi", "max_output_tokens": 7})
    with gateway(YES, api="responses") as (url, _):
        answer = httpx.post(f"{url}/v1/responses", json={"model": "m", "input": "Hi", "max_output_tokens": 0})
    assert answer.status_code == 400
