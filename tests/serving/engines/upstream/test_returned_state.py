"""What an upstream wants back comes back: with the ids of calls, and with encrypted reasoning, from clients of every API."""

import httpx
import pytest
from live.chunk_shapes import call, chunk
from live.upstream import gateway, stream
from live.wire import bodies

from interlock.events.call_extras import LONGEST, add_extras, split_extras

SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln/+bmF0dXJl" * 300}}}
LITELLM = {"provider_specific_fields": {"thought_signature": "abc"}}
DETAILS = [
    {"type": "reasoning.text", "text": "Hm, so.", "format": "google-gemini-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "c2VjcmV0", "id": "rs_7", "format": "google-gemini-v1", "index": 1},
]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"name": "get_weather", "parameters": PARAMETERS}


def signed(call_id="function-call-1", fields=SIGNED):
    """The chunks of a turn with reasoning and a call that have to come back."""
    begin = call(0, '{"city":"Berlin"}', "get_weather", call_id)
    begin["tool_calls"][0] |= fields
    return stream(
        chunk({"role": "assistant", "reasoning_details": [{**DETAILS[0], "text": "Hm, "}], "reasoning": "Hm, "}),
        chunk({"reasoning_details": [{**DETAILS[0], "text": "so."}], "reasoning": "so."}),
        chunk({"reasoning_details": DETAILS[1:], "reasoning": None}),
        chunk(begin),
        chunk({}, "tool_calls"),
    )


GOOD = stream(chunk({"content": "Yes."}), chunk({}, "stop"))


def assistant(upstream):
    """The message with the call, and the tool's, as the upstream gets them with the second request."""
    _, answer, tool = upstream.bodies[1]["messages"]
    return answer, tool


def turns(url, path, first, second):
    """The whole answers to two requests; the second is a function of the first answer."""
    one = httpx.post(f"{url}{path}", json=first, timeout=60)
    assert one.status_code == 200, one.text
    two = httpx.post(f"{url}{path}", json=second(one.json()), timeout=60)
    assert two.status_code == 200, two.text
    return one.json(), two.json()


def responses(url, *, keeps, **body):
    """Two turns over the Responses API; a client returns the items of the first with the fields that it `keeps`."""
    request = {"model": "m", "tools": [{"type": "function", **WEATHER}], **body}

    def second(response):
        call_id = next(item["call_id"] for item in response["output"] if item["type"] == "function_call")
        output = {"type": "function_call_output", "call_id": call_id, "output": "Sun."}
        if body.get("store") is not False:
            return {**request, "previous_response_id": response["id"], "input": [output]}
        items = [{name: item[name] for name in keeps if name in item} for item in response["output"]]
        return {**request, "input": [{"role": "user", "content": "Hi"}, *items, output]}

    return turns(url, "/v1/responses", {**request, "input": "Hi"}, second)


def chat(url, *, keeps):
    request = {"model": "m", "tools": [{"type": "function", "function": WEATHER}]}
    start = {"role": "user", "content": "Hi"}

    def second(completion):
        message, names = completion["choices"][0]["message"], ("id", "type", "function", *keeps)
        calls = [{name: each[name] for name in names if name in each} for each in message["tool_calls"]]
        message = {name: value for name, value in message.items() if name in ("role", "content", *keeps)}
        tool = {"role": "tool", "tool_call_id": calls[0]["id"], "content": "Sun."}
        return {**request, "messages": [start, {**message, "tool_calls": calls}, tool]}

    return turns(url, "/v1/chat/completions", {**request, "messages": [start]}, second)


def messages(url):
    tool = {"name": "get_weather", "input_schema": PARAMETERS}
    request = {"model": "m", "max_tokens": 99, "tools": [tool]}
    start = {"role": "user", "content": "Hi"}

    def second(message):
        result = {"type": "tool_result", "tool_use_id": message["content"][-1]["id"], "content": "Sun."}
        answer = {"role": "assistant", "content": message["content"]}
        return {**request, "messages": [start, answer, {"role": "user", "content": [result]}]}

    return turns(url, "/v1/messages", {**request, "messages": [start]}, second)


CODEX = ("type", "name", "arguments", "call_id", "summary", "encrypted_content")
CLIENTS = {
    "responses, stored": lambda url: responses(url, keeps=()),
    "responses, as Codex": lambda url: responses(url, keeps=CODEX, store=False, include=["reasoning.encrypted_content"]),
    "responses, nothing included": lambda url: responses(url, keeps=CODEX, store=False, include=[]),
    "chat": lambda url: chat(url, keeps=("extra_content", "reasoning_details", "reasoning_content")),
    "messages": messages,
}


@pytest.mark.parametrize("fields", [SIGNED, LITELLM, {**SIGNED, **LITELLM}])
@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_an_upstream_gets_back_what_it_added(client, fields):
    with gateway(signed(fields=fields), GOOD) as (url, upstream):
        client(url)
        answer, tool = assistant(upstream)
    function = {"name": "get_weather", "arguments": '{"city":"Berlin"}'}
    assert answer["tool_calls"] == [{"id": "function-call-1", "type": "function", "function": function, **fields}]
    assert answer["reasoning_details"] == DETAILS
    assert answer["reasoning_content"] == "Hm, so."
    assert tool == {"role": "tool", "tool_call_id": "function-call-1", "content": "Sun."}


def test_a_client_of_chat_sees_what_was_added_and_may_drop_it():
    with gateway(signed(), GOOD) as (url, upstream):
        first, _ = chat(url, keeps=())
        answer, _ = assistant(upstream)
    message = first["choices"][0]["message"]
    assert message["tool_calls"][0]["extra_content"] == SIGNED["extra_content"]
    assert [detail["type"] for detail in message["reasoning_details"]] == ["reasoning.encrypted"]
    assert "c2VjcmV0" not in str(message)
    assert answer["tool_calls"][0]["extra_content"] == SIGNED["extra_content"]


def test_what_a_client_of_chat_has_from_the_service_itself_is_sent():
    function = {"name": "get_weather", "arguments": "{}"}
    calls = [{"id": "a", "type": "function", "function": function, **SIGNED}]
    history = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": calls, "reasoning_details": [{"type": "reasoning.encrypted", "data": "foreign"}, 7]},
        {"role": "tool", "tool_call_id": "a", "content": "Sun."},
    ]
    with gateway(GOOD) as (url, upstream):
        answer = httpx.post(f"{url}/v1/chat/completions", json={"model": "m", "messages": history}, timeout=60)
    assert answer.status_code == 200, answer.text
    assert upstream.bodies[0]["messages"] == [
        history[0],
        {"role": "assistant", "content": "", "tool_calls": calls},
        history[2],
    ]


def test_the_extras_of_one_upstream_do_not_reach_another():
    with gateway(signed()) as (url, _):
        items = httpx.post(f"{url}/v1/responses", json={"model": "m", "input": "Hi"}, timeout=60).json()["output"]
    made = items[-1]
    output = {"type": "function_call_output", "call_id": made["call_id"], "output": "Sun."}
    for settings in ({}, {"api": "responses"}):
        with gateway(GOOD, **settings) as (url, upstream):
            httpx.post(f"{url}/v1/responses", json={"model": "m", "input": [made, output]}, timeout=60)
        (body,) = upstream.bodies[:1]
        assert "thought_signature" not in str(body)
        assert "function-call-1" in str(body)


@pytest.mark.parametrize("call_id", [None, ""])
def test_a_call_without_an_id_has_extras_too(call_id):
    with gateway(signed(call_id), GOOD) as (url, upstream):
        responses(url, keeps=())
        answer, tool = assistant(upstream)
    (made,) = answer["tool_calls"]
    assert made["extra_content"] == SIGNED["extra_content"]
    assert made["id"] == tool["tool_call_id"]
    assert made["id"].isalnum()


def test_later_deltas_of_a_call_with_extras_belong_to_it():
    first = call(0, '{"city":', "get_weather", "a")
    first["tool_calls"][0] |= SIGNED
    rest = call(0, '"Berlin"}', None, "a")
    rest["tool_calls"][0] |= SIGNED
    late = call(0, " ", None, None)
    late["tool_calls"][0] |= LITELLM
    with gateway(stream(chunk(first), chunk(rest), chunk(late), chunk({}, "tool_calls"))) as (url, _):
        (item,) = httpx.post(f"{url}/v1/responses", json={"model": "m", "input": "Hi"}, timeout=60).json()["output"]
    assert item["arguments"] == '{"city":"Berlin"} '
    assert split_extras(item["call_id"]) == ("call__a", SIGNED)


def test_encrypted_reasoning_after_the_text_is_an_item_of_its_own():
    late = {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": []}, "y"]}
    body = {"model": "m", "input": "Hi", "stream": True}
    with gateway(stream(chunk({"content": "Yes."}), chunk(late), chunk({}, "stop")), GOOD) as (url, upstream):
        response = bodies(httpx.post(f"{url}/v1/responses", json=body, timeout=60).content)[-1]["response"]
        again = {**body, "previous_response_id": response["id"]}
        httpx.post(f"{url}/v1/responses", json=again, timeout=60)
    assert [item["type"] for item in response["output"]] == ["message", "reasoning"]
    assert response["output"][1]["encrypted_content"] not in ("", "x")
    details = upstream.bodies[1]["messages"][1]["reasoning_details"]
    assert details == [{"type": "reasoning.encrypted", "data": "x", "index": []}, {}]


def test_details_without_encrypted_content_are_plain_reasoning():
    with gateway(stream(chunk({"reasoning_details": DETAILS[:1]}), chunk({}, "stop"))) as (url, _):
        (item,) = httpx.post(f"{url}/v1/responses", json={"model": "m", "input": "Hi"}, timeout=60).json()["output"]
    assert "encrypted_content" not in item


@pytest.mark.parametrize("call_id", ["call_a", "call_a-x", "call_a-xb-x", "", "é"])
def test_extras_are_split_from_ids(call_id):
    full = add_extras(call_id, SIGNED, "here")
    assert split_extras(full) == split_extras(full, "here") == (call_id, SIGNED)
    assert split_extras(full, "there") == (call_id, {})
    assert split_extras(add_extras(call_id, SIGNED), "there") == (call_id, SIGNED)


@pytest.mark.parametrize("call_id", ["call_a", "call_a-xb", "call_a-x_0_1", "call_a-xé", "call_a-x" + "A" * LONGEST])
def test_ids_without_extras_stay_as_they_are(call_id):
    assert split_extras(call_id) == (call_id, {})
    assert add_extras(call_id, {}) == call_id


def test_extras_of_other_shapes_are_no_extras():
    assert add_extras("a", {"extra_content": {"x": [str(number) for number in range(100_000)]}}) == "a"
    for value in (1, ["", 1], [1, {}], {}):
        full = add_extras("a", {"extra_content": value})
        assert split_extras(full) == ("a", {})
