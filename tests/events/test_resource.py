"""The echo of a request's settings: complete, of the right types, and legal for the installed SDK."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import pytest
from msgspec import UNSET, Meta, Struct
from openai.types.responses import Response, ResponseOutputItem
from pydantic import TypeAdapter

from interlock.events.items import (
    ITEMS,
    ApiSource,
    Point,
    UrlSource,
    _examples,
    example,
    examples,
    literals_of,
    open_item,
    result_fields,
)
from interlock.events.json import as_json
from interlock.events.parts import Json, Maybe
from interlock.events.settings_echo import SECRETIVE, response_settings

DRIVEN = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "completed_at": None,
    "status": "in_progress",
    "incomplete_details": None,
    "output": [],
    "error": None,
    "usage": None,
}

EMPTY = {
    "background": False,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "model": "m",
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}

FULL = {
    "background": True,
    "frequency_penalty": 0.5,
    "instructions": "Be kind.",
    "max_output_tokens": 10,
    "max_tool_calls": 2,
    "metadata": {"a": "b"},
    "model": "m",
    "parallel_tool_calls": False,
    "presence_penalty": -1,
    "previous_response_id": "resp_0",
    "prompt_cache_key": "k",
    "reasoning": {"effort": "low", "summary": "auto"},
    "safety_identifier": "s",
    "service_tier": "flex",
    "store": False,
    "temperature": 0,
    "text": {"format": {"type": "json_object"}, "verbosity": "low"},
    "tool_choice": {"type": "function", "name": "f"},
    "tools": [{"type": "function", "name": "f", "description": None, "parameters": {"type": "object"}, "strict": True}],
    "top_logprobs": 3,
    "top_p": 0.5,
    "truncation": "auto",
    "user": "u",
}


def echo(**request):
    return response_settings({"model": "m", "input": "hi", **request})


def test_a_bare_request_is_echoed_with_every_default():
    assert echo() == EMPTY


def test_nulls_are_echoed_as_defaults():
    assert response_settings({**dict.fromkeys(EMPTY), "model": "m"}) == EMPTY


def test_given_settings_are_echoed_unchanged():
    assert echo(**FULL) == FULL


def test_a_later_change_of_an_echo_changes_no_default():
    settings = echo()
    settings["text"]["format"]["type"] = "json_object"
    settings["tools"].append(1)
    settings["metadata"]["a"] = "b"
    assert echo() == EMPTY


@pytest.mark.parametrize("request_", [{}, FULL])
def test_the_echo_and_the_fields_of_the_driver_make_a_valid_response(request_):
    resource = {**echo(**request_), **DRIVEN}
    assert sorted(resource) == sorted(EMPTY | DRIVEN)
    Response.model_validate(resource)


def test_a_function_tool_has_every_field_that_open_responses_requires():
    assert echo(tools=[{"type": "function", "name": "f", "defer_loading": True}])["tools"] == [
        {
            "type": "function",
            "name": "f",
            "description": None,
            "parameters": None,
            "strict": None,
            "defer_loading": True,
        }
    ]


POLICY = {"type": "allowlist", "allowed_domains": ["h"], "domain_secrets": [{"domain": "h", "name": "k", "value": "sesame"}]}
WITHOUT = {"type": "allowlist", "allowed_domains": ["h"]}


@pytest.mark.parametrize(
    ("tool", "echoed"),
    [
        (
            {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["f"], "network_policy": POLICY}},
            {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["f"], "network_policy": WITHOUT}},
        ),
        (
            {"type": "shell", "environment": {"type": "container_auto", "network_policy": POLICY}},
            {"type": "shell", "environment": {"type": "container_auto", "network_policy": WITHOUT}},
        ),
        ({"type": "code_interpreter", "container": "cntr_1"}, {"type": "code_interpreter", "container": "cntr_1"}),
        (
            {"type": "mcp", "server_label": "s", "server_url": "https://me:sesame@h:1/a@b?c=d@e"},
            {"type": "mcp", "server_label": "s", "server_url": "https://h:1/a@b?c=d@e"},
        ),
        (
            {"type": "mcp", "server_label": "s", "server_url": "https://me:ses@me@h"},
            {"type": "mcp", "server_label": "s", "server_url": "https://h"},
        ),
    ],
)
def test_a_tool_is_echoed_without_its_secrets(tool, echoed):
    assert echo(tools=[tool])["tools"] == [echoed]


@pytest.mark.parametrize("kind", [{}, [], 7, None])
def test_a_tool_with_an_invalid_type_is_not_echoed(kind):
    assert response_settings({"tools": [{"type": kind, "name": "f"}]})["tools"] == []


def test_three_tools_can_have_secrets():
    assert {"mcp", "code_interpreter", "shell"} == SECRETIVE


def test_an_mcp_tool_is_echoed_without_its_secrets():
    tool = {"type": "mcp", "server_label": "s", "server_url": "https://h", "authorization": "t", "headers": {"k": "v"}}
    assert echo(tools=[tool])["tools"] == [{"type": "mcp", "server_label": "s", "server_url": "https://h"}]


def test_hosted_tools_are_echoed_with_their_required_fields():
    tools = [{"type": "web_search"}, {"type": "namespace", "name": "n", "description": "d", "tools": []}]
    container = {"type": "code_interpreter", "container": {"type": "auto"}}
    assert echo(tools=[*tools, {"type": "code_interpreter"}])["tools"] == [*tools, container]


def test_unknown_tools_are_not_echoed():
    assert echo(tools=[{"type": "from_the_future"}, {"type": "local_shell"}])["tools"] == [{"type": "local_shell"}]


def test_an_invalid_setting_is_echoed_as_its_default():
    assert echo(tool_choice={"type": "from_the_future"}, truncation="later", tools=7, text=7, reasoning=7) == EMPTY


def test_the_fast_tier_is_reported_as_priority():
    assert echo(service_tier="fast")["service_tier"] == "priority"


def test_a_schema_format_is_echoed_with_description_and_strict():
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    assert echo(text={"format": form, "verbosity": None})["text"] == {"format": {**form, "description": None, "strict": False}}
    assert echo(text={"format": None})["text"] == {"format": {"type": "text"}}


def test_missing_reasoning_settings_are_echoed_as_null():
    assert echo(reasoning={"effort": "high", "summary": None})["reasoning"] == {"effort": "high", "summary": None}
    assert echo(reasoning={})["reasoning"] == {"effort": None, "summary": None}


@pytest.mark.parametrize(
    ("setting", "read"),
    [
        ({"parallel_tool_calls": "false"}, {"parallel_tool_calls": False}),
        ({"max_tool_calls": "2"}, {"max_tool_calls": 2}),
        ({"temperature": "0.5", "top_p": True}, {"temperature": 0.5, "top_p": 1.0}),
        ({"tools": [{"type": "function", "name": "f", "strict": "true"}]}, {"tools": [FULL["tools"][0] | {"parameters": None}]}),
    ],
)
def test_a_coerced_setting_is_echoed_with_its_type(setting, read):
    assert {name: echo(**setting)[name] for name in read} == read


@pytest.mark.parametrize("setting", ["conv_1", {"id": "conv_1", "object": "conversation"}])
def test_a_conversation_is_echoed_by_its_id(setting):
    assert response_settings({"model": "m", "conversation": setting}) == {**EMPTY, "conversation": {"id": "conv_1"}}
    assert response_settings({"model": "m", "conversation": None}) == EMPTY


# Items: how each kind begins, and which field has the result of its tool


TYPED = {name for model in get_args(get_args(ResponseOutputItem)[0]) for name in get_args(model.model_fields["type"].annotation)}
"""The kinds for which the installed package has a type; older releases have fewer."""


def beginning(kind, **fields):
    return {name: value for name, value in as_json(open_item(kind, {**example(kind), **fields})).items() if name != "type"}


class Anything(Struct, kw_only=True):
    """A type with a field of every sort."""

    name: str | None
    approve: bool
    count: int
    score: Annotated[float, Meta(ge=0)]
    action: Literal["wait", "go"]
    sources: list[UrlSource]
    source: UrlSource | ApiSource
    point: Point
    schema: Json
    left_out: Maybe[str] = UNSET


def test_an_example_has_the_required_fields():
    simplest, *others = _examples("", Anything)
    assert (simplest, others) == (
        {
            "name": "name",
            "approve": True,
            "count": 1,
            "score": 1,
            "action": "go",
            "sources": [],
            "source": {"type": "url", "url": "url"},
            "point": {"x": 1, "y": 1},
            "schema": {},
        },
        [],
    )
    assert example("program_output") == {"call_id": "call_id", "result": "result"}


def test_further_examples_differ_in_one_field():
    assert examples("tool_search_output", ("execution", "tools")) == [
        {"execution": "client", "tools": []},
        {"execution": "server", "tools": []},
    ]
    assert examples("mcp_list_tools", ("server_label", "tools")) == [
        {"server_label": "server_label", "tools": []},
        {"server_label": "server_label", "tools": [{"name": "name", "input_schema": {}}]},
    ]
    assert examples("web_search_call", ("action",)) == [
        {"action": {"type": "search"}},
        {"action": {"type": "open_page"}},
        {"action": {"type": "find_in_page", "url": "url", "pattern": "pattern"}},
    ]


def test_items_has_every_kind_of_the_package():
    assert {*TYPED} - {*ITEMS} == set()


def test_each_kind_has_its_own_id_prefix():
    prefixes = [kind.prefix for kind in ITEMS.values()]
    assert all(prefixes)
    assert len({*prefixes}) == len(prefixes)


@pytest.mark.parametrize("kind", sorted(TYPED))
def test_an_added_item_is_valid_for_the_sdk(kind):
    made = dict.fromkeys(ITEMS[kind].generated_ids, "made_1")
    status = {"status": "completed"} if literals_of(ITEMS[kind], "status") else {}
    older = {"action": {"type": "search", "query": "signals"}} if kind == "web_search_call" else {}  # 2.25 requires the query
    item = {"id": "id_1", "type": kind, **beginning(kind, **older), **made, **status}
    assert TypeAdapter(ResponseOutputItem).validate_python(item).type == kind


@pytest.mark.parametrize(
    ("kind", "fields", "shown"),
    [
        ("message", {"content": ["x"], "phase": None}, {"role": "assistant", "phase": None, "content": []}),
        ("reasoning", {"content": ["x"]}, {"summary": [], "content": []}),
        ("function_call", {"arguments": "x", "call_id": None}, {"call_id": "", "name": "name", "arguments": ""}),
        ("mcp_list_tools", {}, {"server_label": "server_label", "tools": []}),
        (
            "tool_search_call",
            {"call_id": None},
            {"call_id": None, "execution": "client", "arguments": {}},
        ),
        ("shell_call", {}, {"call_id": "", "action": {"commands": [], "max_output_length": None, "timeout_ms": None}}),
    ],
)
def test_fields_that_are_streamed_begin_empty(kind, fields, shown):
    assert beginning(kind, **fields) == shown


def test_opening_an_item_with_an_unknown_field_raises():
    says = "an item of kind 'compaction' has no field encryptd_content; it has agent, created_by, encrypted_content, id, type"
    with pytest.raises(ValueError, match=f"^{says}$"):
        open_item("compaction", {"encryptd_content": "x"})


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("telepathy_call", {}, r"there is no item of kind 'telepathy_call'"),
        ("function_call", {}, r"an item of kind 'function_call' cannot open without name"),
        ("mcp_call", {"name": "f"}, r"an item of kind 'mcp_call' cannot open without server_label"),
        ("web_search_call", {}, r"an item of kind 'web_search_call' cannot open without action"),
        (
            "file_search_call",
            {"queries": "q"},
            r"an item of kind 'file_search_call' cannot open with these fields: .*`\$.queries`",
        ),
    ],
)
def test_an_invalid_item_is_refused(kind, fields, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        open_item(kind, fields)


def test_literals_of_returns_the_statuses_of_a_kind():
    assert literals_of(ITEMS["mcp_call"], "status") == ("in_progress", "completed", "incomplete", "calling", "failed")
    assert literals_of(ITEMS["mcp_list_tools"], "status") == ()


def test_a_plain_result_is_stored_in_a_field_of_its_item():
    assert {kind: result_fields(kind, "r") for kind in TYPED if result_fields(kind, "r")} == {
        "mcp_call": {"output": "r"},
        "code_interpreter_call": {"outputs": [{"type": "logs", "logs": "r"}]},
        "image_generation_call": {"result": "r"},
    }


def test_a_tool_failure_is_stored_in_a_field_of_its_item():
    assert {kind: ITEMS[kind].failure_fields("no") for kind in TYPED if ITEMS[kind].failure_fields("no")} == {
        "mcp_call": {"error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no"}]}},
        "mcp_list_tools": {"error": "no"},
        "code_interpreter_call": {"outputs": [{"type": "logs", "logs": "no"}]},
    }


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"output": "18 °C"}, "18 °C"),
        ({"output": None, "error": None}, ""),
        ({"error": "no"}, "no"),
        ({"output": "lost", "error": {"type": "http_error", "code": 404, "message": "Not Found"}}, "Not Found"),
        (ITEMS["mcp_call"].failure_fields("no"), "no"),
        ({"error": {"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]}}, "a\nb"),
        ({"error": {"content": []}}, '{"content":[]}'),
    ],
)
def test_the_text_of_a_call_of_an_mcp_server_is_its_output_or_what_its_error_says(fields, text):
    assert ITEMS["mcp_call"].result_text(fields) == text


def test_kinds_that_a_client_answers_name_the_kind_of_their_answer():
    assert {kind: ITEMS[kind].answer for kind in TYPED if ITEMS[kind].answer} == {
        "function_call": "function_call_output",
        "custom_tool_call": "custom_tool_call_output",
        "tool_search_call": "tool_search_output",
        "apply_patch_call": "apply_patch_call_output",
        "shell_call": "shell_call_output",
        "local_shell_call": "local_shell_call_output",
        "computer_call": "computer_call_output",
        "mcp_approval_request": "mcp_approval_response",
    }
    assert all(item.answer in ITEMS or not item.answer for item in ITEMS.values())
