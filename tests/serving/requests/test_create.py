"""Request bodies: requests of real clients are accepted, and errors name the invalid parameter."""

from __future__ import annotations

import asyncio
import json
from types import MappingProxyType

import pytest
from for_each import for_each
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response

from interlock.events.request import CreateResponse
from interlock.events.settings_echo import response_settings
from interlock.serving.requests import create
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.body import read_object
from interlock.serving.requests.chat_request import read_chat
from interlock.serving.requests.create import (
    read_conversation,
    read_conversation_items,
    read_for_host,
    read_metadata,
    read_request,
)
from interlock.serving.requests.input_items import join
from interlock.serving.requests.messages_request import read_messages
from interlock.serving.requests.runtime import Yielder

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
USER = {"type": "message", "role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
ADDITIONAL_TOOLS = {"type": "additional_tools", "role": "developer"}
UNTYPED = {"role": "user", "content": "hi"}


def read(**members):
    return read_request({"model": "m", "input": "hi", **members})


def read_body(body):
    return read_request(asyncio.run(read_object(body, Yielder())))


def resolve(request, previous=(), stored=MappingProxyType({})):
    return join(previous, request.input, stored)


def refusal(**members):
    with pytest.raises(ApiError) as caught:
        resolve(read(**members))
    assert caught.value.status == 400
    return caught.value.param, caught.value.code


@pytest.mark.parametrize("body", [[], None, "hi", 3])
def test_a_body_that_is_no_object_is_refused_in_every_api(body):
    for reader in (read_request, lambda raw: asyncio.run(read_chat(raw)), lambda raw: asyncio.run(read_messages(raw))):
        with pytest.raises(ApiError) as caught:
            reader(body)
        assert (caught.value.status, caught.value.message) == (400, "The body must be a JSON object.")


def test_a_minimal_request_has_the_defaults_of_the_api():
    request = read_body(b'{"model": "m", "input": "hi"}')
    assert request.input == (USER,)
    assert (request.model, request.stream, request.store, request.tool_choice) == ("m", False, True, "auto")
    assert (request.max_output_tokens, request.text_format, request.reasoning_effort) == (None, {"type": "text"}, None)
    assert request.raw == {"model": "m", "input": "hi"}
    assert not request.wants_logprobs


def test_given_parameters_are_read():
    request = read(
        stream=True,
        background=True,
        instructions="i",
        previous_response_id="resp_1",
        max_output_tokens=50,
        max_tool_calls=2,
        parallel_tool_calls=False,
        tools=[FUNCTION],
        tool_choice={"type": "function", "name": "f"},
        include=["message.output_text.logprobs"],
        top_logprobs=3,
        text={"format": {"type": "json_object"}},
        reasoning={"effort": "low", "summary": None},
    )
    assert (request.stream, request.background, request.instructions) == (True, True, "i")
    assert read(store=False).store is False
    assert (request.previous_response_id, request.max_output_tokens, request.max_tool_calls) == ("resp_1", 50, 2)
    assert (request.parallel_tool_calls, request.tools, request.top_logprobs) == (False, (FUNCTION,), 3)
    assert (request.tool_choice, request.text_format) == ({"type": "function", "name": "f"}, {"type": "json_object"})
    assert (request.reasoning_effort, request.wants_logprobs) == ("low", True)


@pytest.mark.parametrize("conversation", ["conv_1", {"id": "conv_1"}])
def test_a_conversation_is_named_by_its_id_alone_or_in_an_object(conversation):
    request = read_request({"model": "m", "conversation": conversation})
    assert (request.conversation_id, request.input, read().conversation_id) == ("conv_1", (), None)


def test_null_means_the_default():
    request = read(stream=None, tools=None, text=None, reasoning=None, metadata=None, conversation=None, prompt=None)
    assert (request.stream, request.tools, request.text_format) == (False, (), {"type": "text"})


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_messages_of_every_role_may_omit_type_and_id(role):
    item = {"role": role, "content": [{"type": "input_text", "text": "a"}]}
    typed = {**item, "type": "message", "id": "msg_1", "status": "completed", "phase": None}
    assert read(input=[item, typed]).input == ({**item, "type": "message"}, typed)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_text", "text": ""},
        {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "auto", "file_id": None},
        {"type": "input_image", "file_id": "file_1"},
        {"type": "input_file", "file_data": "AA", "filename": "a.pdf"},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
        {"type": "output_text", "text": "a", "annotations": [{"type": "url_citation"}], "logprobs": None},
        {"type": "refusal", "refusal": "no"},
    ],
)
def test_parts_of_every_kind_are_accepted(part):
    assert read(input=[{"role": "user", "content": [part]}]).input[0]["content"] == [part]


@for_each(
    "item",
    [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}], "content": None},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "a"}]},
        {**CALL, "id": None, "status": "completed"},
        {"type": "custom_tool_call", "call_id": "call_1", "name": "f", "input": ""},
        {"type": "mcp_call", "id": "mcp_1", "name": "x", "arguments": "{}", "server_label": "s", "output": None},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "code_interpreter_call", "id": "ci_1", "code": None, "container_id": "c", "outputs": None},
        {"type": "mcp_approval_request", "id": "mcpr_1", "name": "x", "arguments": "{}", "server_label": "s"},
        {"type": "compaction", "encrypted_content": "a", "anything": [1]},
        {"type": "function_call_output", "name": "notify", "namespace": "agents", "output": "done"},
        {"type": "function_call_output", "name": "notify", "call_id": None, "output": "done"},
    ],
)
def test_items_of_every_kind_are_accepted_unchanged(item):
    assert resolve(read(input=[item])) == (item,)


def test_an_approval_needs_its_request():
    approval_request = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "x", "arguments": "{}", "server_label": "s"}
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    assert resolve(read(input=[approval_request, answer])) == (approval_request, answer)
    assert resolve(read(input=[answer]), [approval_request]) == (approval_request, answer)
    with pytest.raises(ApiError) as refused:
        resolve(read(input=[answer]))
    assert (refused.value.status, refused.value.param) == (400, "input[0].approval_request_id")


@pytest.mark.parametrize("kind", ["reference without a type", "reference with a null type"])
def test_an_item_with_an_id_alone_is_a_reference(kind):
    item = {"id": "msg_1"} if "without" in kind else {"id": "msg_1", "type": None}
    assert read(input=[item]).input == ({"id": "msg_1", "type": "item_reference"},)


@for_each(
    "tool",
    [
        FUNCTION,
        {"type": "function", "name": "f", "parameters": None, "strict": None, "description": None},
        {"type": "custom", "name": "f", "format": {"type": "text"}},
        {"type": "namespace", "name": "n", "description": "d", "tools": [FUNCTION]},
        {"type": "mcp", "server_label": "s", "server_url": "https://h", "require_approval": "never"},
        {"type": "file_search", "vector_store_ids": ["vs_1"]},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "code_interpreter"},
        {"type": "web_search"},
        {"type": "image_generation"},
        {"type": "local_shell"},
        {"type": "from_the_future", "name": 7},
    ],
)
def test_tools_of_every_kind_are_accepted_unchanged(tool):
    assert read(tools=[tool]).tools == (tool,)


def test_other_settings_of_real_clients_are_accepted():
    read(
        metadata={"k": "v"},
        prompt_cache_key="k",
        client_metadata={"a": "b"},
        truncation="auto",
        service_tier="flex",
        user="u",
        safety_identifier="s",
        temperature=0,
        top_p=1.0,
        stream_options={"include_obfuscation": False},
        text={"verbosity": "low", "format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        vllm_xargs={"x": 1},
    )


def test_a_body_of_a_megabyte_is_accepted():
    request = read_body(json.dumps({"model": "m", "input": "x" * 1_000_000}).encode())
    assert len(str(request.input[0]["content"])) == 1_000_000


def test_lone_surrogates_become_replacement_characters_and_pairs_stay_characters():
    body = rb'{"model": "m", "input": [{"role": "user", "content": "a\ud83d b\ud83d\ude00", "n": 1}]}'
    assert read_body(body).input[0]["content"] == "a\ufffd b\U0001f600"


@for_each(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b'{"model": "m", "input": NaN}',
        b'{"model": "m", "input": -Infinity}',
        b'{"model": "\xff"}',
        b"[" * 100_000,
        b'{"model": "m", "input": ' + b"[" * 101 + b"]" * 101 + b"}",
        b'{"model": "m", "input": ' + b"9" * 5000 + b', "a": "\\ud800"}',
        b'{"a": "\\ud800", "input": ' + b"[" * 101 + b"]" * 101 + b"}",
    ],
)
def test_a_body_that_is_not_a_json_object_is_refused(body):
    with pytest.raises(ApiError) as caught:
        read_body(body)
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, None, "invalid_json")


def test_an_error_has_the_format_of_openai():
    with pytest.raises(ApiError, match="'temperature'") as caught:
        read(temperature="hot")
    assert caught.value.body() == {
        "error": {
            "message": "Invalid type for 'temperature': expected a number, but got a string instead.",
            "type": "invalid_request_error",
            "param": "temperature",
            "code": "invalid_type",
        }
    }


@for_each(
    ("members", "param", "code"),
    [
        ({"model": None}, "model", "missing_required_parameter"),
        ({"model": 7}, "model", "invalid_type"),
        ({"model": ""}, "model", "empty_string"),
        ({"input": None}, "input", "missing_required_parameter"),
        ({"input": []}, "input", "missing_required_parameter"),
        ({"input": {}}, "input", "invalid_type"),
        ({"input": ["hi"]}, "input[0]", "invalid_type"),
        ({"input": [{}]}, "input[0].type", "missing_required_parameter"),
        ({"input": [USER, {"role": "tool", "content": "a"}]}, "input[1].role", "invalid_value"),
        ({"input": [{"role": "user"}]}, "input[0].content", "missing_required_parameter"),
        ({"input": [{"role": "user", "content": None}]}, "input[0].content", "invalid_type"),
        (
            {"input": [USER, USER, {"role": "user", "content": [{"type": "nonsense"}]}]},
            "input[2].content[0].type",
            "invalid_value",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
            "input[0].content[0].text",
            "missing_required_parameter",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": {"url": "x"}}]}]},
            "input[0].content[0].image_url",
            "invalid_type",
        ),
        ({"input": [{**CALL, "arguments": {}}]}, "input[0].arguments", "invalid_type"),
        ({"input": [{"type": "function_call"}]}, "input[0].call_id", "missing_required_parameter"),
        ({"input": [USER, RESULT]}, "input", None),
        ({"input": [{**RESULT, "output": {}}, CALL]}, "input[0].output", "invalid_type"),
        ({"input": [{"type": "custom_tool_call_output", "call_id": "x", "output": ""}]}, "input", None),
        ({"input": [RESULT, CALL]}, "input", None),
        ({"stop": ""}, "stop", "empty_string"),
        ({"stop": ["END", ""]}, "stop[1]", "empty_string"),
        ({"stop": [None]}, "stop[0]", "invalid_type"),
        ({"input": [{**RESULT, "name": "f"}]}, "input", None),
        ({"input": [{"type": "function_call_output", "output": ""}]}, "input[0].call_id", "missing_required_parameter"),
        (
            {"input": [{"type": "function_call_output", "name": "", "output": ""}]},
            "input[0].call_id",
            "missing_required_parameter",
        ),
        ({"input": [{"type": "function_call_output", "name": "<|", "output": ""}]}, "input[0].name", "invalid_value"),
        ({"input": [CALL, {**RESULT, "call_id": {}}]}, "input[1].call_id", "invalid_type"),
        ({"input": [{"type": "from_the_future"}]}, "input[0].type", "invalid_value"),
        ({"input": [{"type": {}}]}, "input[0].type", "invalid_type"),
        ({"input": [{**CALL, "name": "<|call|>"}]}, "input[0].name", "invalid_value"),
        ({"input": [{**CALL, "namespace": "a<|call|>"}]}, "input[0].namespace", "invalid_value"),
        ({"input": [{"type": "mcp_call", "server_label": "<|call|>"}]}, "input[0].server_label", "invalid_value"),
        ({"input": [{"type": "mcp_call", "name": "<|call|>"}]}, "input[0].name", "invalid_value"),
        (
            {"input": [{"type": "mcp_approval_request", "server_label": "<|call|>", "name": "f", "arguments": ""}]},
            "input[0].server_label",
            "invalid_value",
        ),
        ({"input": [{**ADDITIONAL_TOOLS, "tools": [{"type": []}]}]}, "input[0].tools[0].type", "invalid_type"),
        ({"input": [{**ADDITIONAL_TOOLS, "tools": [{"type": "x", "name": {}}]}]}, "input[0].tools[0].name", "invalid_type"),
        (
            {"input": [{**ADDITIONAL_TOOLS, "tools": [{"type": "mcp", "server_label": []}]}]},
            "input[0].tools[0].server_label",
            "invalid_type",
        ),
        (
            {"input": [{**ADDITIONAL_TOOLS, "tools": [{"type": "namespace", "name": "n", "tools": [{"type": {}}]}]}]},
            "input[0].tools[0].tools[0].type",
            "invalid_type",
        ),
        (
            {
                "tools": [FUNCTION],
                "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": []}]},
            },
            "tool_choice.tools[0].name",
            "invalid_type",
        ),
        ({"tools": [{"type": []}]}, "tools[0].type", "invalid_type"),
        ({"tool_choice": {"type": "x", "name": []}}, "tool_choice.name", "invalid_type"),
        ({"input": [{"type": "shell_call_output", "call_id": []}]}, "input[0].call_id", "invalid_type"),
        ({"instructions": ["a"]}, "instructions", "invalid_type"),
        ({"stream": "yes"}, "stream", "invalid_type"),
        ({"stream": 1}, "stream", "invalid_type"),
        ({"max_output_tokens": 15}, "max_output_tokens", "integer_below_min_value"),
        ({"max_output_tokens": -1}, "max_output_tokens", "integer_below_min_value"),
        ({"max_output_tokens": True}, "max_output_tokens", "invalid_type"),
        ({"max_output_tokens": 1.5}, "max_output_tokens", "invalid_type"),
        ({"max_tool_calls": -1}, "max_tool_calls", "integer_below_min_value"),
        ({"temperature": 2.1}, "temperature", "decimal_above_max_value"),
        ({"temperature": -0.1}, "temperature", "decimal_below_min_value"),
        ({"temperature": float("nan")}, "temperature", "invalid_type"),
        ({"temperature": True}, "temperature", "invalid_type"),
        ({"top_p": 1.1}, "top_p", "decimal_above_max_value"),
        ({"top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
        ({"top_logprobs": -1}, "top_logprobs", "integer_below_min_value"),
        ({"metadata": {"k": 1}}, "metadata.k", "invalid_type"),
        ({"metadata": {"k" * 65: "v"}}, "metadata", "string_above_max_length"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k", "string_above_max_length"),
        ({"metadata": {str(n): "v" for n in range(17)}}, "metadata", "object_above_max_properties"),
        ({"metadata": []}, "metadata", "invalid_type"),
        ({"truncation": "some"}, "truncation", "invalid_value"),
        ({"truncation": 1}, "truncation", "invalid_type"),
        ({"service_tier": "best"}, "service_tier", "invalid_value"),
        ({"include": "all"}, "include", "invalid_type"),
        ({"reasoning": {"effort": "heroic"}}, "reasoning.effort", "invalid_value"),
        ({"conversation": ""}, "conversation", "empty_string"),
        ({"conversation": {}}, "conversation.id", "missing_required_parameter"),
        ({"conversation": 1}, "conversation", "invalid_type"),
        (
            {"conversation": "conv_1", "previous_response_id": "resp_1"},
            "previous_response_id",
            "mutually_exclusive_parameters",
        ),
        ({"prompt": {"id": "pmpt_1"}}, "prompt", "unsupported_parameter"),
        ({"tools": {}}, "tools", "invalid_type"),
        ({"tools": [{}]}, "tools[0].type", "missing_required_parameter"),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "missing_required_parameter"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name", "invalid_value"),
        ({"tools": [{"type": "function", "name": "a" * 129}]}, "tools[0].name", "string_above_max_length"),
        ({"tools": [FUNCTION, FUNCTION]}, "tools[1].name", "duplicate_tool_name"),
        ({"tools": [{**FUNCTION, "parameters": []}]}, "tools[0].parameters", "invalid_type"),
        (
            {"tools": [{**FUNCTION, "strict": True, "parameters": {"type": "thing"}}]},
            "tools[0].parameters",
            "invalid_json_schema",
        ),
        ({"tools": [{"type": "mcp"}]}, "tools[0].server_label", "missing_required_parameter"),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": [FUNCTION, FUNCTION]}]},
            "tools[0].tools[1].name",
            "duplicate_tool_name",
        ),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": [FUNCTION]}] * 2},
            "tools[1].tools[0].name",
            "duplicate_tool_name",
        ),
        ({"background": True, "store": False}, "background", "invalid_value"),
        ({"conversation": "conv_1", "store": False}, "conversation", "invalid_value"),
        ({"tool_choice": "perhaps"}, "tool_choice", "invalid_value"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        ({"tool_choice": 7}, "tool_choice", "invalid_type"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name", "missing_required_parameter"),
        ({"tool_choice": {"type": "function", "name": "g"}, "tools": [FUNCTION]}, "tool_choice.name", "invalid_value"),
        ({"tool_choice": {"type": "custom", "name": "f"}, "tools": [FUNCTION]}, "tool_choice.name", "invalid_value"),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]}},
            "tool_choice.tools[0].name",
            "invalid_value",
        ),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type", "invalid_value"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema", "missing_required_parameter"),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": 5}}}},
            "text.format.schema",
            "invalid_json_schema",
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"$schema": []}}}},
            "text.format.schema",
            "invalid_json_schema",
        ),
    ],
)
def test_an_error_names_the_invalid_parameter(members, param, code):
    assert refusal(**members) == (param, code)


def test_a_function_of_a_namespace_may_be_chosen():
    tools = [{"type": "namespace", "name": "n", "tools": [FUNCTION]}, {"type": "mcp", "server_label": "s"}]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}, {"type": "mcp"}]}
    assert read(tools=tools, tool_choice=choice).tool_choice == choice


def test_a_tool_output_may_answer_a_call_of_the_previous_response():
    request = read(input=[RESULT], previous_response_id="resp_1")
    assert resolve(request, [USER, CALL]) == (USER, CALL, RESULT)


def test_a_reference_is_replaced_by_its_item_unless_the_input_has_the_item():
    stored = {"fc_1": {**CALL, "id": "fc_1"}}
    request = read(input=[{"type": "item_reference", "id": "fc_1"}, RESULT])
    assert resolve(request, stored=stored) == (stored["fc_1"], RESULT)
    assert resolve(request, [stored["fc_1"]], stored) == (stored["fc_1"], RESULT)


def test_a_reference_to_an_unknown_item_is_not_found():
    with pytest.raises(ApiError) as refused:
        resolve(read(input=[{"type": "item_reference", "id": "fc_1"}, RESULT]))
    assert (refused.value.status, refused.value.param, refused.value.code) == (404, "input", None)
    assert "fc_1" in refused.value.message


@pytest.mark.parametrize(
    ("choice", "tools", "param"),
    [
        ({"type": "web_search"}, [FUNCTION], "tool_choice"),
        ({"type": "code_interpreter"}, [], "tool_choice"),
        ({"type": "mcp", "server_label": "s"}, [], "tool_choice.server_label"),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]}, [FUNCTION], "tool_choice.tools[0]"),
    ],
)
def test_a_chosen_tool_must_be_declared(choice, tools, param):
    assert refusal(tools=tools, tool_choice=choice) == (param, "invalid_value")


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 30),
    st.floats(),
    st.sampled_from(["", "auto", "none", "required", "function", "user", "message", "json_schema", "f"]),
)
KEYS = st.sampled_from(
    ["type", "role", "content", "name", "tools", "mode", "format", "schema", "effort", "call_id", "output", "text", "id"]
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)), max_leaves=8
)
DRIVEN = {"id": "resp_1", "object": "response", "created_at": 1, "status": "in_progress", "output": []}


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(CreateResponse.__struct_fields__), VALUES, max_size=4))
def test_any_object_is_refused_or_accepted_and_echoed(members):
    try:
        request = read(**members)
    except ApiError as error:
        outcome = (error.status, bool(error.param))
    else:
        Response.model_validate(DRIVEN | response_settings(request.raw))
        outcome = (400, True)
    assert outcome == (400, True)


def test_a_conversation_may_begin_with_items_and_metadata():
    assert read_conversation({}) == read_conversation({"items": None, "metadata": None}) == ((), {})
    assert read_conversation({"items": [UNTYPED], "metadata": {"topic": "trains"}}) == ((USER,), {"topic": "trains"})


def test_added_items_and_new_metadata_of_a_conversation_are_read():
    assert read_conversation_items({"items": [UNTYPED] * 20}) == (USER,) * 20
    assert read_metadata({"metadata": {"topic": "trains"}}) == {"topic": "trains"}
    assert read_metadata({"metadata": None}) == {}


@pytest.mark.parametrize(
    ("read", "body", "param", "code"),
    [
        (read_conversation, {"items": [UNTYPED] * 21}, "items", "array_above_max_length"),
        (read_conversation, {"items": [{"type": "riddle"}]}, "items[0].type", "invalid_value"),
        (read_conversation, {"metadata": {"k": 1}}, "metadata.k", "invalid_type"),
        (read_conversation_items, {}, "items", "missing_required_parameter"),
        (read_conversation_items, {"items": "hi"}, "items", "invalid_type"),
        (read_conversation_items, {"items": [UNTYPED] * 21}, "items", "array_above_max_length"),
        (read_conversation_items, {"items": [UNTYPED, {"role": "user"}]}, "items[1].content", "missing_required_parameter"),
        (read_metadata, {}, "metadata", "missing_required_parameter"),
        (read_metadata, {"metadata": {str(n): "v" for n in range(17)}}, "metadata", "object_above_max_properties"),
    ],
)
def test_an_error_in_a_conversation_names_the_invalid_parameter(read, body, param, code):
    with pytest.raises(ApiError) as caught:
        read(body)
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, code)


def refusal_of(read, body):
    with pytest.raises(ApiError) as refusal:
        read({"model": "m", **body})
    return refusal.value.status, refusal.value.param, refusal.value.message


@pytest.mark.parametrize("read", [read_for_host, read_request])
def test_both_servers_refuse_an_unknown_item_type(read):
    status, param, message = refusal_of(read, {"input": [{"role": "user", "content": "Hi"}, {"type": "teleport_call"}]})
    assert (status, param) == (400, "input[1].type")
    assert message.startswith("Invalid value: 'teleport_call'. Supported values are: 'message', ")


@pytest.mark.parametrize("read", [read_for_host, read_request])
@pytest.mark.parametrize("fields", [{"async": "yes"}, {"defer_loading": "x"}, {"async": 1}, {"defer_loading": []}])
def test_both_servers_refuse_tool_fields_of_the_wrong_type(read, fields):
    (name,) = fields
    tools = [
        {"type": "function", "name": "f", "parameters": None, "strict": None},
        {"type": "custom", "name": "c"},
        {"type": "namespace", "name": "n", "description": "N", "tools": [{"type": "function", "name": "f"}]},
    ]
    for index, tool in enumerate(tools):
        wrong = {**tool, "tools": [{**tool["tools"][0], **fields}]} if "tools" in tool else {**tool, **fields}
        param = f"tools[{index}].tools[0].{name}" if "tools" in tool else f"tools[{index}].{name}"
        body = {"input": "Hi", "tools": [*tools[:index], wrong, *tools[index + 1 :]]}
        assert refusal_of(read, body)[:2] == (400, param)
    read({"model": "m", "input": "Hi", "tools": tools})


@for_each(
    ("body", "param"),
    [
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "n"}]}, "input[0].input"),
        ({"input": [{"type": "custom_tool_call_output", "output": "ok"}]}, "input[0].call_id"),
        ({"input": [{"type": "item_reference"}]}, "input[0].id"),
        ({"input": [{"type": "mcp_approval_response", "approve": True}]}, "input[0].approval_request_id"),
        ({"input": [{"type": "shell_call", "action": "ls"}]}, "input[0].action"),
        ({"input": 5}, "input"),
        ({"input": ["Hi"]}, "input[0]"),
        ({"input": "Hi", "tools": [{"type": "custom"}]}, "tools[0].name"),
        ({"input": "Hi", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom"}]}]}, "tools[0].tools[0].name"),
        ({"input": "Hi", "tools": [{"type": "mcp"}]}, "tools[0].server_label"),
        ({"input": "Hi", "tools": {}}, "tools"),
    ],
)
def test_items_and_tools_that_the_host_does_not_know_are_checked(body, param):
    assert refusal_of(read_for_host, body)[:2] == (400, param)


def test_items_and_tools_that_the_host_knows_are_not_checked():
    body = {
        "input": [
            {"role": "tool", "content": 5},
            {"type": "reasoning", "content": "odd"},
            {"type": "function_call"},
            {"type": "function_call_output", "output": 1},
        ],
        "tools": [{"type": "function"}, {"type": "unheard"}],
    }
    items = ({"role": "tool", "content": 5, "type": "message"}, *body["input"][1:])
    assert read_for_host(body) == create.ResponseRequest(raw=body, model="", input=items, tools=tuple(body["tools"]))


def test_the_host_reads_text_as_a_user_message_and_null_as_empty():
    assert read_for_host({"input": "Hi"}).input == ({"type": "message", "role": "user", "content": "Hi"},)
    nothing = {"input": None, "tools": None}
    assert read_for_host(nothing) == create.ResponseRequest(raw=nothing, model="")
