"""The requests of the gateway to a server of Chat Completions; docs/guides/gateway.md has them as tables."""

import json
import re

import httpx
import pytest
from live.chunk_shapes import call, chunk
from live.upstream import STALL, Reply, gateway, stream
from live.wire import bodies

from interlock.events.chat import LONGEST, add_extras, split_extras

GOOD = stream(chunk({"content": "Yes."}), chunk({}, "stop"))
PNG = "data:image/png;base64,aGk="
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
STRING = {"type": "object", "properties": {"n": {"type": "string"}}}
F, G = ({"type": "function", "name": name, "parameters": STRING} for name in "fg")


def sent(settings=(), **body):
    """The body that the upstream gets for a request."""
    with gateway(GOOD, **dict(settings)) as (url, upstream):
        answer = httpx.post(f"{url}/v1/responses", json={"model": "m", "input": "Hi", **body})
        assert answer.status_code == 200, answer.text
    return upstream.bodies[0]


def messages(*items, **body):
    return sent(input=[*items], **body)["messages"]


def test_a_minimal_request_adds_only_the_fields_for_streaming():
    assert sent() == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_every_parameter_that_both_apis_have_is_sent():
    same = {"temperature": 0.5, "top_p": 0.9, "presence_penalty": 0.1, "frequency_penalty": 0.2, "user": "u"}
    same |= {"service_tier": "flex", "safety_identifier": "s", "prompt_cache_key": "k"}
    body = sent(
        **same,
        max_output_tokens=5,
        reasoning={"effort": "low", "summary": "auto"},
        text={"verbosity": "low", "format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}},
        include=["message.output_text.logprobs"],
        top_logprobs=3,
        metadata={"a": "b"},
        truncation="auto",
        store=False,
    )
    assert {name: body[name] for name in same} == same
    assert body["max_completion_tokens"] == 5
    assert (body["reasoning_effort"], body["verbosity"], body["logprobs"], body["top_logprobs"]) == ("low", "low", True, 3)
    assert body["response_format"] == {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
    assert {"metadata", "truncation", "store", "text", "include", "reasoning"} & body.keys() == set()


def test_parameters_outside_the_api_are_sent_unless_they_change_the_form_of_the_answer():
    body = sent(top_k=5, chat_template_kwargs={"thinking": True}, n=3, messages=[], text={"format": {"type": "json_object"}})
    assert (body["top_k"], body["chat_template_kwargs"]) == (5, {"thinking": True})
    assert body["messages"] == [{"role": "user", "content": "Hi"}]
    assert "n" not in body
    assert body["response_format"] == {"type": "json_object"}


def test_fields_can_be_renamed_or_dropped():
    reasoning = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    fields = {"max_completion_tokens": "max_tokens", "stream_options": "", "reasoning_content": "reasoning"}
    body = sent({"fields": fields}, max_output_tokens=50, input=[reasoning, {"role": "user", "content": "Hi"}])
    assert body["max_tokens"] == 50
    assert {"stream_options", "max_completion_tokens"} & body.keys() == set()
    assert body["messages"][0] == {"role": "assistant", "content": "", "reasoning": "Hm."}


@pytest.mark.parametrize(
    ("owner", "fields", "name"),
    [
        ("library", {}, "max_tokens"),
        ("organization_owner", {}, "max_tokens"),
        ("openai", {}, "max_completion_tokens"),
        (None, {}, "max_completion_tokens"),
        ("library", {"max_completion_tokens": "num_predict"}, "num_predict"),
    ],
)
def test_the_token_limit_has_the_name_that_the_server_knows(owner, fields, name):
    listing = Reply(
        (json.dumps({"data": [{"id": "m", "owned_by": owner}]}).encode(),), headers={"content-type": "application/json"}
    )
    body = sent({"listing": listing, "fields": fields}, max_output_tokens=50)
    assert {key: value for key, value in body.items() if value == 50} == {name: 50}


def test_a_stalled_model_list_does_not_delay_a_request(monkeypatch):
    monkeypatch.setattr("interlock.serving.engines.upstream.gateway.PATIENCE", 0.1)
    assert sent({"listing": Reply((STALL,))}, max_output_tokens=50)["max_completion_tokens"] == 50


def test_instructions_and_developer_messages_become_system_text():
    developer = {"role": "developer", "content": [{"type": "input_text", "text": "b"}, {"type": "input_text", "text": "c"}]}
    assert messages(developer, {"role": "user", "content": "d"}, {"role": "system", "content": "e"}, instructions="a") == [
        {"role": "system", "content": "a\n\nb\nc"},
        {"role": "user", "content": "d"},
        {"role": "user", "content": "<system>\ne\n</system>"},
    ]


def test_late_system_messages_keep_their_place_if_the_upstream_accepts_them():
    late = [{"role": "user", "content": "d"}, {"role": "system", "content": "e"}]
    assert sent({"late_system": True}, input=late)["messages"] == late


def test_parts_of_a_user_message_are_translated():
    parts = [
        {"type": "input_text", "text": "a"},
        {"type": "input_image", "image_url": PNG, "detail": "low"},
        {"type": "input_image", "image_url": PNG, "detail": "original"},
        {"type": "input_file", "file_data": "aGk=", "filename": "a.pdf"},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
        {"type": "input_video", "video_url": "https://example.com/a.mp4"},
    ]
    assert messages({"role": "user", "content": parts})[0]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": PNG, "detail": "high"}},
        {"type": "file", "file": {"file_data": "aGk=", "filename": "a.pdf"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
        {"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}},
    ]


@pytest.mark.parametrize(
    "part", [{"type": "input_image", "file_id": "file-1"}, {"type": "input_file", "file_url": "https://example.com/a.pdf"}]
)
def test_a_part_that_chat_completions_lacks_gets_a_400(part):
    with gateway(GOOD) as (url, upstream):
        body = {"model": "m", "input": [{"role": "user", "content": [part]}]}
        answer = httpx.post(f"{url}/v1/responses", json=body)
    assert (answer.status_code, answer.json()["error"]["param"], upstream.bodies) == (400, "input", [])


def test_truncation_does_not_drop_a_turn_that_cannot_be_sent():
    file = {"role": "user", "content": [{"type": "input_file", "file_url": "https://example.com/a.pdf"}]}
    with gateway(GOOD) as (url, upstream):
        body = {"model": "m", "truncation": "auto", "input": [file, {"role": "user", "content": "And?"}]}
        answer = httpx.post(f"{url}/v1/responses", json=body)
    assert (answer.status_code, answer.json()["error"]["code"], upstream.bodies) == (400, "unsupported_value", [])


def test_a_turn_of_the_assistant_is_one_message_and_images_of_tools_follow_the_outputs():
    items = [
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": "I look."},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "call_2", "name": "patch", "input": "x"},
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [{"type": "input_text", "text": "seen"}, {"type": "input_image", "image_url": PNG}],
        },
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "done"},
        {"role": "user", "content": "And?"},
    ]
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "call_2", "type": "function", "function": {"name": "patch", "arguments": '{"input":"x"}'}},
    ]
    seen = [{"type": "text", "text": "These are the images in the output of the tools."}]
    assert messages(*items) == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "content": "seen\n[input_image]"},
        {"role": "tool", "tool_call_id": "call_2", "content": "done"},
        {"role": "user", "content": [*seen, {"type": "image_url", "image_url": {"url": PNG}}]},
        {"role": "user", "content": "And?"},
    ]


def test_an_output_without_a_call_becomes_a_user_message():
    standalone = {"type": "function_call_output", "name": "notify", "namespace": "agents", "output": "done"}
    assert messages({"role": "user", "content": "Hi"}, standalone) == [
        {"role": "user", "content": "Hi"},
        {"role": "user", "content": "[Output of agents__notify]\ndone"},
    ]


def result(call_id, output="done"):
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def function_call(call_id, name="f", **fields):
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **fields}


def summary(body):
    """The messages of a request in short: the ids of calls, the id of an output, or the text."""
    return [
        [call["id"] for call in each["tool_calls"]] if "tool_calls" in each else each.get("tool_call_id", each["content"])
        for each in body["messages"]
    ]


UPSTREAM_IDS = ["g6fVbXS8K", "functions.f:0", "call_1", "call__1", "call_a:b-ab", "toolu_01-ab-zz", "chatcmpl-0a", "ü", "-2d-"]
UPSTREAM_IDS += [f"call_{'a' * 35}", f"call_{'a' * 36}"]


@pytest.mark.parametrize("upstream_id", [*UPSTREAM_IDS, f"call_1__thought__{'aB+/' * 100}=="])
def test_call_ids_return_to_the_upstream_unchanged(upstream_id):
    with gateway(stream(chunk(call(0, "{}", "f", upstream_id)), chunk({}, "tool_calls")), GOOD) as (url, upstream):
        body = {"model": "m", "input": "Hi", "tools": [F]}
        (item,) = httpx.post(f"{url}/v1/responses", json=body).json()["output"]
        assert re.fullmatch("call_[a-zA-Z0-9_-]+", item["call_id"])
        history = [{"role": "user", "content": "Hi"}, item, result(item["call_id"])]
        httpx.post(f"{url}/v1/responses", json={**body, "input": history})
    assert summary(upstream.bodies[-1]) == ["Hi", [upstream_id], upstream_id]


FOREIGN_IDS = [f"toolu_{'a' * 40}", "a.b:0", "call_a b", "call__", "ü"]


def is_short(call_id):
    return re.fullmatch("[a-zA-Z0-9]{9}", call_id) is not None


@pytest.mark.parametrize("settings", [{}, {"short_call_ids": True}])
def test_foreign_call_ids_that_a_service_may_refuse_are_replaced_by_stable_short_ones(settings):
    pairs = [[function_call(foreign), result(foreign)] for foreign in FOREIGN_IDS]
    _, *sent_ids = summary(sent(settings, input=[USER, *(item for pair in pairs for item in pair)]))
    calls, outputs = [call_id for (call_id,) in sent_ids[::2]], sent_ids[1::2]
    assert (calls, len({*calls}), all(map(is_short, calls))) == (outputs, len(FOREIGN_IDS), True)
    assert summary(sent(settings, input=[USER, *pairs[1]])) == [USER["content"], calls[1:2], calls[1]]


def test_an_upstream_with_short_call_ids_keeps_its_own_and_receives_others_as_short_ones():
    upstream_id = "g6fVbXS8K"
    reply = stream(chunk(call(0, "{}", "f", upstream_id)), chunk({}, "tool_calls"))
    with gateway(reply, GOOD, short_call_ids=True) as (url, upstream):
        body = {"model": "m", "input": "Hi", "tools": [F]}
        (item,) = httpx.post(f"{url}/v1/responses", json=body).json()["output"]
        call_ids = ["call_1", "call__functions.f-3a0"]
        others = [*map(function_call, call_ids), *map(result, call_ids)]
        history = [USER, item, result(item["call_id"]), *others]
        httpx.post(f"{url}/v1/responses", json={**body, "input": history})
    _, (own,), own_output, calls, *outputs = summary(upstream.bodies[-1])
    assert (own, own_output, calls, all(map(is_short, calls)), len({*calls})) == (upstream_id, upstream_id, outputs, True, 2)


@pytest.mark.parametrize(("short", "expected"), [(False, "call_1"), (True, "OQMW7ZZOJ")])
def test_a_family_receives_its_own_call_ids_and_short_foreign_ones_if_required(short, expected):
    items = [USER, function_call("call_g6fVbXS8K"), function_call("call_1"), result("call_g6fVbXS8K"), result("call_1")]
    body = sent({"family": "mistral", "short_call_ids": short}, input=items)
    assert summary(body)[1:] == [["g6fVbXS8K", expected], "g6fVbXS8K", expected]


def test_an_oversized_call_id_is_replaced():
    with gateway(stream(chunk(call(0, "{}", "f", "a" * 1_025)), chunk({}, "tool_calls"))) as (url, _):
        (item,) = httpx.post(f"{url}/v1/responses", json={"model": "m", "input": "Hi", "tools": [F]}).json()["output"]
    assert re.fullmatch("call_[0-9a-f]{32}", item["call_id"])


def test_calls_of_the_server_have_ids_that_every_service_accepts():
    ran = {"type": "mcp_call", "id": f"mcp_{'0' * 32}", "server_label": "s", "name": "f", "arguments": "{}", "output": "a"}
    (_, (call_id,), output) = summary(sent(input=[{"role": "user", "content": "Hi"}, ran]))
    assert (re.fullmatch("[a-zA-Z0-9]{9}", call_id) is not None, output) == (True, call_id)


USER, DONE = {"role": "user", "content": "And?"}, "done"


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([function_call("f"), USER, result("f")], [["f"], "f", "And?"]),
        (
            [function_call("f"), function_call("g"), result("f"), function_call("h"), result("g"), result("h")],
            [["f", "g"], "f", "g", ["h"], "h"],
        ),
        ([function_call("f"), result("f"), function_call("f"), USER, result("f")], [["f"], "f", ["f"], "f", "And?"]),
        ([function_call("f"), function_call("g"), result("g"), USER, result("f")], [["f", "g"], "g", "f", "And?"]),
        ([{"type": "local_shell_call_output", "id": "old", "output": "a"}, USER], ["old", "And?"]),
    ],
)
def test_the_outputs_of_calls_follow_their_calls(items, expected):
    assert summary(sent(input=items)) == expected


def test_files_in_the_output_of_a_tool_follow_it():
    file = {"type": "input_file", "file_data": "aGk=", "filename": "a.pdf"}
    output = [{"type": "input_text", "text": "seen"}, {"type": "input_image", "image_url": PNG}, file]
    assert messages(function_call("f"), USER, result("f", output), result("f", [file]))[1:] == [
        {"role": "tool", "tool_call_id": "f", "content": "seen\n[input_image]\n[input_file]"},
        {"role": "tool", "tool_call_id": "f", "content": "[input_file]"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "These are the images and files in the output of the tools."},
                {"type": "image_url", "image_url": {"url": PNG}},
                *[{"type": "file", "file": {"file_data": "aGk=", "filename": "a.pdf"}}] * 2,
            ],
        },
        USER,
    ]


def test_a_file_in_the_output_of_a_tool_that_cannot_be_sent_gets_a_400():
    with gateway(GOOD) as (url, upstream):
        output = [{"type": "input_file", "file_url": "https://example.com/a.pdf"}]
        answer = httpx.post(f"{url}/v1/responses", json={"model": "m", "input": [function_call("f"), result("f", output)]})
    message = "An 'input_file' without 'file_data' or 'file_id' cannot be sent to this model."
    assert (answer.status_code, answer.json()["error"]["message"], upstream.bodies) == (400, message, [])


def namespace_tool(name, *names):
    tools = [{"type": "function", "name": each, "parameters": STRING} for each in names]
    return {"type": "namespace", "name": name, "description": "", "tools": tools}


LONG = "x" * 60


def parsed(names):
    """Calls that the upstream has parsed, without arguments."""
    return stream(
        *(chunk(call(index, '{"n":"1"}', name, f"call_{index}")) for index, name in enumerate(names)), chunk({}, "tool_calls")
    )


def raw(names):
    """The same calls as the family `qwen3_coder` writes them: it is their schema that makes the argument a string."""
    texts = [f"<tool_call>\n<function={name}>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>" for name in names]
    return stream(chunk({"content": f"</think>{''.join(texts)}"}), chunk({}, "stop"))


@pytest.mark.parametrize(("settings", "written"), [({}, parsed), ({"family": "qwen3_coder"}, raw)], ids=["parsed", "raw"])
@pytest.mark.parametrize(
    ("tools", "names"),
    [
        ([F, namespace_tool("crm", "get")], ["f", "crm__get"]),
        ([namespace_tool("my.crm", "get")], ["my_crm__get_8494a372"]),
        ([namespace_tool(LONG, "get")], [f"{LONG[:55]}_407e2cf8"]),
        ([namespace_tool("a__b", "c"), namespace_tool("a", "b__c")], ["a__b__c_0079d871", "a__b__c_f40290d4"]),
        ([{**F, "name": "crm__get"}, namespace_tool("crm", "get")], ["crm__get", "crm__get_0883a571"]),
        ([{"type": "from_the_future", "name": "a.b", "parameters": STRING}], ["a_b_f8c5abde"]),
    ],
)
def test_names_of_functions_are_distinct_and_fit_every_service(tools, names, settings, written):
    declared = [
        {name: value for name, value in (("name", each["name"]), ("namespace", namespace)) if value}
        for tool in tools
        for namespace, each in ([(tool["name"], each) for each in tool["tools"]] if "tools" in tool else [(None, tool)])
    ]
    with gateway(written(names), GOOD, **settings) as (url, upstream):
        body = {"model": "m", "input": [USER], "tools": tools}
        output = httpx.post(f"{url}/v1/responses", json=body).json()["output"]
        assert [{name: item[name] for name in ("name", "namespace") if item.get(name)} for item in output] == declared
        assert [json.loads(item["arguments"]) for item in output] == [{"n": "1"}] * len(names)
        history = [USER, *output, *(result(item["call_id"]) for item in output)]
        httpx.post(f"{url}/v1/responses", json={**body, "input": history})
    for received in upstream.bodies:
        assert [tool["function"]["name"] for tool in received["tools"]] == names
    assert [each["function"]["name"] for each in upstream.bodies[1]["messages"][1]["tool_calls"]] == names


def test_a_call_of_a_tool_that_is_no_longer_declared_keeps_its_name():
    named = messages(function_call("f", "get", namespace="my.crm"), result("f"))[0]["tool_calls"][0]["function"]["name"]
    assert named == "my_crm__get_8494a372"


def test_tools_become_functions_and_their_calls_are_translated_back():
    tools = [
        {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
        {"type": "custom", "name": "patch"},
        {
            "type": "namespace",
            "name": "crm",
            "description": "",
            "tools": [{"type": "function", "name": "get", "parameters": SCHEMA}],
        },
        {"type": "local_shell"},
        {"type": "web_search"},
        {"type": "file_search", "vector_store_ids": ["vs_1"]},
    ]
    chunks = [chunk(call(index, arguments, name, f"call_{index}")) for index, (name, arguments) in enumerate(CALLS)]
    with gateway(stream(*chunks, chunk({}, "tool_calls")), hosted=["web_search"]) as (url, upstream):
        body = {
            "model": "m",
            "input": "Hi",
            "stream": True,
            "tools": tools,
            "parallel_tool_calls": False,
            "tool_choice": "required",
        }
        answer = httpx.post(f"{url}/v1/responses", json=body)
    (received,) = upstream.bodies
    assert [tool["function"]["name"] for tool in received["tools"]] == ["f", "patch", "crm__get", "local_shell", "web_search"]
    function = {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}
    assert received["tools"][0] == {"type": "function", "function": function}
    assert (received["tool_choice"], received["parallel_tool_calls"]) == ("required", False)
    output = bodies(answer.content)[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["function_call", "custom_tool_call", "function_call", "local_shell_call"]
    assert (output[1]["input"], output[2]["namespace"], output[2]["name"]) == ("x", "crm", "get")


CALLS = [("f", "{}"), ("patch", '{"input":"x"}'), ("crm__get", "{}"), ("local_shell", '{"command":["ls"]}')]


@pytest.mark.parametrize(
    ("choice", "names", "expected"),
    [
        ({"type": "function", "name": "g"}, ["f", "g"], {"type": "function", "function": {"name": "g"}}),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]}, ["g"], "required"),
        ("none", ["f", "g"], "none"),
    ],
)
def test_a_tool_choice_is_translated(choice, names, expected):
    body = sent(tools=[F, G], tool_choice=choice)
    assert [tool["function"]["name"] for tool in body["tools"]] == names
    assert body["tool_choice"] == expected


def test_a_tool_without_an_equivalent_function_is_omitted_and_logged(caplog):
    body = sent(tools=[{"type": "file_search", "vector_store_ids": ["vs_1"]}])
    assert "tools" not in body
    assert "a tool of the type file_search is not offered to the model" in caplog.text


def test_input_tokens_are_an_estimate():
    with gateway(GOOD) as (url, _):
        answer = httpx.post(f"{url}/v1/responses/input_tokens", json={"model": "m", "input": "x" * 4000})
    assert 900 < answer.json()["input_tokens"] < 1100


def test_the_key_of_a_client_of_messages_is_passed_on():
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    with gateway(GOOD, pass_key=True) as (url, upstream):
        assert httpx.post(f"{url}/v1/messages", json=body, headers={"x-api-key": "mine"}).status_code == 200
    assert [received.headers.get("authorization") for received in upstream.requests if received.body] == ["Bearer mine"]


def test_a_conversation_is_compacted_with_the_clients_own_key():
    with gateway(GOOD, pass_key=True) as (url, upstream):
        headers = {"authorization": "Bearer mine"}
        answer = httpx.post(f"{url}/v1/responses/compact", json={"model": "m", "input": "Hi"}, headers=headers)
        assert answer.json()["output"][-1]["type"] == "compaction"
        body = {"model": "m", "input": "Hi", "context_management": [{"type": "compaction", "compact_threshold": 1000}]}
        httpx.post(f"{url}/v1/responses", json={**body, "input": "x" * 8000}, headers=headers)
    assert [received.headers.get("authorization") for received in upstream.requests if received.body] == ["Bearer mine"] * 3


# Extra fields return to their upstream in the ids of calls and in encrypted reasoning, from clients of every API


SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln/+bmF0dXJl" * 300}}}
LITELLM = {"provider_specific_fields": {"thought_signature": "abc"}}
DETAILS = [
    {"type": "reasoning.text", "text": "Hm, so.", "format": "google-gemini-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "c2VjcmV0", "id": "rs_7", "format": "google-gemini-v1", "index": 1},
]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"name": "get_weather", "parameters": PARAMETERS}


def signed(call_id="function-call-1", fields=SIGNED):
    """A turn whose reasoning and call have extra fields that must return to the upstream."""
    begin = call(0, '{"city":"Berlin"}', "get_weather", call_id)
    begin["tool_calls"][0] |= fields
    return stream(
        chunk({"role": "assistant", "reasoning_details": [{**DETAILS[0], "text": "Hm, "}], "reasoning": "Hm, "}),
        chunk({"reasoning_details": [{**DETAILS[0], "text": "so."}], "reasoning": "so."}),
        chunk({"reasoning_details": DETAILS[1:], "reasoning": None}),
        chunk(begin),
        chunk({}, "tool_calls"),
    )


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


def messages_history(url):
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
    "messages": messages_history,
}


@pytest.mark.parametrize("fields", [SIGNED, LITELLM, {**SIGNED, **LITELLM}])
@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_an_upstream_gets_its_extra_fields_back(client, fields):
    with gateway(signed(fields=fields), GOOD) as (url, upstream):
        client(url)
        answer, tool = assistant(upstream)
    function = {"name": "get_weather", "arguments": '{"city":"Berlin"}'}
    assert answer["tool_calls"] == [{"id": "function-call-1", "type": "function", "function": function, **fields}]
    assert answer["reasoning_details"] == DETAILS
    assert answer["reasoning_content"] == "Hm, so."
    assert tool == {"role": "tool", "tool_call_id": "function-call-1", "content": "Sun."}


def test_a_chat_client_receives_the_extra_fields_and_may_drop_them():
    with gateway(signed(), GOOD) as (url, upstream):
        first, _ = chat(url, keeps=())
        answer, _ = assistant(upstream)
    message = first["choices"][0]["message"]
    assert message["tool_calls"][0]["extra_content"] == SIGNED["extra_content"]
    assert [detail["type"] for detail in message["reasoning_details"]] == ["reasoning.encrypted"]
    assert "c2VjcmV0" not in str(message)
    assert answer["tool_calls"][0]["extra_content"] == SIGNED["extra_content"]


def test_extra_fields_of_calls_from_the_service_itself_are_sent():
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
def test_a_call_without_an_id_keeps_its_extras(call_id):
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


def test_extras_of_other_shapes_are_ignored():
    assert add_extras("a", {"extra_content": {"x": [str(number) for number in range(100_000)]}}) == "a"
    for value in (1, ["", 1], [1, {}], {}):
        full = add_extras("a", {"extra_content": value})
        assert split_extras(full) == ("a", {})
