"""Messages and Chat Completions in front of every kind of upstream: what the upstream gets, and what the client reads."""

import json

import httpx
import pytest
from live.chunk_shapes import SHAPES, call, chunk
from live.upstream import failure, gateway, stream
from live.wire import chunks_of, folded_completion, folded_message, messages_of, post_chat, post_message

PARAMETERS = {"type": "object", "properties": {"word": {"type": "string"}}}
LOOK_UP = {"name": "look_up", "description": "Look a word up.", "input_schema": PARAMETERS}
CHAT_LOOK_UP = {"type": "function", "function": {"name": "look_up", "description": "Look a word up.", "parameters": PARAMETERS}}
ARGUMENTS = '{"word": "a"}'
USER = {"role": "user", "content": "Hi there"}
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13, "prompt_tokens_details": {"cached_tokens": 5}}

CHAT = stream(
    chunk({"role": "assistant", "reasoning_content": "Hm."}),
    chunk({"content": "Let me see."}),
    chunk(call(0, name="look_up", call_id="call_1")),
    chunk(call(0, '{"word": ')),
    chunk(call(0, '"a"}')),
    chunk({}, "tool_calls"),
    chunk(usage=USAGE),
)
ITEMS = [
    {"type": "reasoning", "id": "rs_x", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
    {"type": "message", "id": "msg_x", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
    {"type": "function_call", "id": "fc_x", "call_id": "call_1", "name": "look_up", "arguments": ARGUMENTS},
]
COUNTS = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 5}, "output_tokens": 4, "total_tokens": 13}
RESPONSES = stream(
    {
        "type": "response.completed",
        "response": {
            "status": "completed",
            "output": ITEMS,
            "usage": {**COUNTS, "output_tokens_details": {"reasoning_tokens": 0}},
        },
    }
)
UPSTREAMS = pytest.mark.parametrize(("api", "reply"), [("chat", CHAT), ("responses", RESPONSES)])


@pytest.mark.parametrize(
    ("stops", "fields", "reason"),
    [
        (["END", "STOP"], {"stop_reason": "STOP"}, ("stop_sequence", "STOP")),
        (["END"], {"matched_stop": "END"}, ("stop_sequence", "END")),
        (["END"], {}, ("end_turn", None)),
        (["END"], {"stop_reason": None, "matched_stop": 151645}, ("end_turn", None)),
        ([], {"stop_reason": "end_turn"}, ("end_turn", None)),
    ],
    ids=["vllm", "sglang", "openai", "token", "other word"],
)
def test_a_stop_sequence_named_by_an_upstream_is_the_stop_reason(stops, fields, reason) -> None:
    reply = stream(chunk({"content": "Hello."}), chunk({}, "stop", **fields))
    with gateway(reply) as (url, upstream):
        message = post_message(url, model="m", stop_sequences=stops).json()
    assert (message["stop_reason"], message["stop_sequence"]) == reason
    assert upstream.bodies[0].get("stop") == (stops or None)


SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def test_a_hosted_tool_is_passed_to_a_responses_upstream() -> None:
    with gateway(RESPONSES, api="responses") as (url, upstream):
        assert post_message(url, model="m", tools=[SEARCH]).status_code == 200
    assert upstream.bodies[0]["tools"] == [{"type": "web_search"}]


def test_a_hosted_tool_is_refused_for_a_chat_upstream() -> None:
    with gateway(CHAT) as (url, upstream):
        refused = post_message(url, model="m", tools=[SEARCH], stream=True)
        missing = post_message(url, model="other", tools=[SEARCH])
    message = "This server does not run 'web_search_20250305'. Start it with --web-search or --tool-server, or omit the tool."
    error = {"type": "invalid_request_error", "message": f"tools[0].type: {message}"}
    assert (refused.status_code, refused.json()["error"]) == (400, error)
    assert (missing.status_code, upstream.bodies) == (400, [])


@UPSTREAMS
@pytest.mark.parametrize("streams", [True, False])
def test_a_messages_client_reads_the_answer_of_an_upstream(api, reply, streams) -> None:
    with gateway(reply, api=api) as (url, _):
        answer = post_message(url, model="m", tools=[LOOK_UP], stream=streams)
    message = folded_message(messages_of(answer.content)) if streams else answer.json()
    thinking, text, called = message["content"]
    assert (thinking["type"], thinking["thinking"], len(thinking["signature"]) > 50) == ("thinking", "Hm.", True)
    assert (text["type"], text["text"]) == ("text", "Let me see.")
    assert (called["type"], called["id"], called["name"], called["input"]) == ("tool_use", "call_1", "look_up", {"word": "a"})
    assert (message["stop_reason"], message["model"]) == ("tool_use", "m")
    usage = message["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (4, 5, 4)


@UPSTREAMS
@pytest.mark.parametrize("streams", [True, False])
def test_a_chat_client_reads_the_answer_of_an_upstream(api, reply, streams) -> None:
    with gateway(reply, api=api) as (url, _):
        options = {"stream_options": {"include_usage": True}} if streams else {}
        answer = post_chat(url, model="m", tools=[CHAT_LOOK_UP], stream=streams, **options)
    if streams:
        message, reason, usage = folded_completion(chunks_of(answer.content, usage=True))
    else:
        (choice,) = answer.json()["choices"]
        message, reason, usage = choice["message"], choice["finish_reason"], answer.json()["usage"]
    assert (message["reasoning_content"], message["reasoning"], message["content"]) == ("Hm.", "Hm.", "Let me see.")
    function = {"name": "look_up", "arguments": ARGUMENTS}
    assert message["tool_calls"] == [{"id": "call_1", "type": "function", "function": function}]
    assert (reason, usage["prompt_tokens"], usage["total_tokens"]) == ("tool_calls", 9, 13)


REQUEST = {
    "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=1"}, {"type": "text", "text": "Be brief."}],
    "tools": [LOOK_UP],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    "stop_sequences": ["END"],
    "top_k": 7,
    "max_tokens": 3,
    "thinking": {"type": "enabled", "budget_tokens": 2_000},
    "output_config": {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {}}}},
    "metadata": {"user_id": "u"},
    "of_the_future": 1,
}


def second_turn(url, **body):
    """Ask with a call, and again with its result and everything that the first answer had."""
    first = post_message(url, model="m", tools=[LOOK_UP]).json()
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "No such word", "is_error": True}
    messages = [USER, {"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
    assert post_message(url, model="m", messages=messages, **body).status_code == 200


def test_a_chat_upstream_gets_a_request_of_messages() -> None:
    with gateway(CHAT) as (url, upstream):
        second_turn(url, **REQUEST)
    body = upstream.bodies[1]
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        USER,
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "Hm.",
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"word":"a"}'}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "The tool failed: No such word"},
    ]
    function = {"name": "look_up", "description": "Look a word up.", "parameters": PARAMETERS, "strict": False}
    assert body["tools"] == [{"type": "function", "function": function}]
    assert (body["tool_choice"], body["parallel_tool_calls"], body["reasoning_effort"]) == ("required", False, "low")
    assert (body["stop"], body["top_k"], body["max_completion_tokens"], body["safety_identifier"]) == (["END"], 7, 3, "u")
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object", "properties": {}}
    assert "of_the_future" not in body


def test_a_responses_upstream_gets_a_request_of_messages() -> None:
    with gateway(RESPONSES, api="responses") as (url, upstream):
        second_turn(url, **REQUEST)
    body = upstream.bodies[1]
    assert [item["type"] for item in body["input"]] == [
        "message",
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
    ]
    assert body["input"][1]["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert body["input"][-1]["output"] == "The tool failed: No such word"
    assert (body["instructions"], body["tool_choice"], body["reasoning"]) == ("Be brief.", "required", {"effort": "low"})
    assert (body["max_output_tokens"], body["store"], "of_the_future" in body) == (3, False, False)


def test_a_chat_upstream_gets_a_request_of_chat_completions() -> None:
    reasoned = {"role": "assistant", "content": "Let me see.", "reasoning_content": "Hm."}
    called = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": ARGUMENTS}}
    messages = [USER, {**reasoned, "tool_calls": [called]}, {"role": "tool", "tool_call_id": "call_1", "content": "A letter."}]
    same = {"temperature": 0.5, "seed": 3, "stop": ["END"], "logprobs": True, "top_logprobs": 2, "reasoning_effort": "low"}
    with gateway(CHAT) as (url, upstream):
        assert post_chat(url, model="m", messages=messages, tools=[CHAT_LOOK_UP], max_tokens=1, **same).status_code == 200
    (body,) = upstream.bodies
    assert (body["messages"], body["max_completion_tokens"]) == (messages, 1)
    assert {name: body[name] for name in same} == same


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (400, {"message": "No.", "code": "invalid_value"}, (400, "invalid_request_error")),
        (400, {"message": "maximum context length is 9", "code": "context_length_exceeded"}, (400, "invalid_request_error")),
        (401, {"message": "No key"}, (502, "api_error")),
        (403, {"message": "No"}, (403, "permission_error")),
        (404, {"message": "No model"}, (404, "not_found_error")),
        (429, {"message": "Slowly"}, (429, "rate_limit_error")),
        (500, {"message": "Oh"}, (500, "api_error")),
        (503, {"message": "Busy"}, (503, "overloaded_error")),
    ],
)
@pytest.mark.parametrize("streams", [True, False])
def test_errors_of_an_upstream_have_the_format_of_messages(status, error, expected, streams) -> None:
    with gateway(failure(status, {"error": error})) as (url, _):
        answer = post_message(url, model="m", stream=streams)
    body = answer.json()
    assert (answer.status_code, body["error"]["type"]) == expected
    assert body["error"]["message"].startswith("prompt is too long: ") == ("context" in error["message"])


def test_tokens_are_estimated_if_the_upstream_does_not_count_them() -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi there"}]}
    with gateway(CHAT) as (url, _):
        counted = post_message(url, "/v1/messages/count_tokens", model="m").json()
        estimated = httpx.post(f"{url}/v1/responses/input_tokens", json={"model": "m", "input": [item]}).json()
    assert counted == {"input_tokens": estimated["input_tokens"]}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_shape_of_chunks_is_legal_and_whole_in_both_apis(shape) -> None:
    names = {name for kind, _, *rest in shape.items for name in rest if kind == "function_call"}
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in sorted(names)]
    functions = [{"type": "function", "function": {"name": tool["name"]}} for tool in tools]
    with gateway(stream(*shape.chunks, done=shape.done)) as (url, _):
        message = folded_message(messages_of(post_message(url, model="m", tools=tools, stream=True).content))
        completion, *_ = folded_completion(chunks_of(post_chat(url, model="m", tools=functions, stream=True).content))
    calls = [(item[2], item[1]) for item in shape.items if item[0] == "function_call"]
    texts = ["".join(text for kind, text, *_ in shape.items if kind == wanted) for wanted in ("message", "reasoning")]
    blocks = message["content"]
    assert (
        [
            "".join(block["text"] for block in blocks if block["type"] == "text"),
            "".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
        ]
        == texts
        == [(completion["content"] or "") + completion.get("refusal", ""), completion.get("reasoning", "")]
    )
    assert [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"] == [
        (name, json.loads(text or "{}")) for name, text in calls
    ]
    made = [call["function"] for call in completion.get("tool_calls", [])]
    assert [(function["name"], function["arguments"]) for function in made] == calls
