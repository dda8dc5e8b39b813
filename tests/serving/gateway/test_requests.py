"""What the gateway sends to a server of Chat Completions: docs/gateway.md has tables of it."""

import httpx
import pytest
from live.chunk_shapes import call, chunk
from live.upstream import gateway, stream
from live.wire import bodies

GOOD = stream(chunk({"content": "Yes."}), chunk({}, "stop"))
PNG = "data:image/png;base64,aGk="
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}


def sent(settings=(), **body):
    """The body that the upstream gets for a request."""
    with gateway(GOOD, **dict(settings)) as (url, upstream):
        answer = httpx.post(f"{url}/v1/responses", json={"model": "m", "input": "Hi", **body})
        assert answer.status_code == 200, answer.text
    return upstream.bodies[0]


def messages(*items, **body):
    return sent(input=[*items], **body)["messages"]


def test_a_plain_request_has_nothing_but_its_text():
    assert sent() == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_every_parameter_of_both_apis_is_sent():
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


def test_instructions_and_developers_are_the_system():
    developer = {"role": "developer", "content": [{"type": "input_text", "text": "b"}, {"type": "input_text", "text": "c"}]}
    assert messages(developer, {"role": "user", "content": "d"}, {"role": "system", "content": "e"}, instructions="a") == [
        {"role": "system", "content": "a\n\nb\nc"},
        {"role": "user", "content": "d"},
        {"role": "system", "content": "e"},
    ]


def test_parts_of_a_users_message_become_parts():
    parts = [
        {"type": "input_text", "text": "a"},
        {"type": "input_image", "image_url": PNG, "detail": "low"},
        {"type": "input_file", "file_data": "aGk=", "filename": "a.pdf"},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
        {"type": "input_video", "video_url": "https://example.com/a.mp4"},
    ]
    assert messages({"role": "user", "content": parts})[0]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
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


def test_tools_become_functions_and_their_calls_come_back():
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
F, G = ({"type": "function", "name": name, "parameters": SCHEMA} for name in "fg")


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


def test_a_tool_that_no_function_can_stand_for_is_left_out_and_logged(caplog):
    body = sent(tools=[{"type": "file_search", "vector_store_ids": ["vs_1"]}])
    assert "tools" not in body
    assert "a tool of the type file_search is not offered to the model" in caplog.text


def test_input_tokens_are_an_estimate():
    with gateway(GOOD) as (url, _):
        answer = httpx.post(f"{url}/v1/responses/input_tokens", json={"model": "m", "input": "x" * 4000})
    assert 900 < answer.json()["input_tokens"] < 1100


def test_a_conversation_is_compacted_with_the_clients_own_key():
    with gateway(GOOD, pass_key=True) as (url, upstream):
        headers = {"authorization": "Bearer mine"}
        answer = httpx.post(f"{url}/v1/responses/compact", json={"model": "m", "input": "Hi"}, headers=headers)
        assert answer.json()["output"][-1]["type"] == "compaction"
        body = {"model": "m", "input": "Hi", "context_management": [{"type": "compaction", "compact_threshold": 1000}]}
        httpx.post(f"{url}/v1/responses", json={**body, "input": "x" * 8000}, headers=headers)
    assert [received.headers.get("authorization") for received in upstream.requests if received.body] == ["Bearer mine"] * 3
