"""The echo of a request's settings: complete, of the right types, and legal for the installed SDK."""

from __future__ import annotations

import pytest
from openai.types.responses import Response

from interlock.events.resource import SECRETIVE, response_settings

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


def test_settings_that_were_given_are_echoed_as_given():
    assert echo(**FULL) == FULL


def test_a_later_change_of_an_echo_changes_no_default():
    settings = echo()
    settings["text"]["format"]["type"] = "json_object"
    settings["tools"].append(1)
    settings["metadata"]["a"] = "b"
    assert echo() == EMPTY


@pytest.mark.parametrize("request_", [{}, FULL])
def test_the_echo_and_the_driven_fields_make_a_whole_response(request_):
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
def test_a_tool_is_echoed_without_what_is_secret_in_it(tool, echoed):
    assert echo(tools=[tool])["tools"] == [echoed]


def test_the_tools_that_can_have_secrets():
    assert {"mcp", "code_interpreter", "shell"} == SECRETIVE


def test_an_mcp_tool_is_echoed_without_its_secrets():
    tool = {"type": "mcp", "server_label": "s", "server_url": "https://h", "authorization": "t", "headers": {"k": "v"}}
    assert echo(tools=[tool])["tools"] == [{"type": "mcp", "server_label": "s", "server_url": "https://h"}]


def test_known_hosted_tools_are_echoed_and_completed():
    tools = [{"type": "web_search"}, {"type": "namespace", "name": "n", "description": "d", "tools": []}]
    container = {"type": "code_interpreter", "container": {"type": "auto"}}
    assert echo(tools=[*tools, {"type": "code_interpreter"}])["tools"] == [*tools, container]


def test_tools_that_have_no_type_are_left_out():
    assert echo(tools=[{"type": "from_the_future"}, {"type": "local_shell"}])["tools"] == [{"type": "local_shell"}]


def test_a_setting_that_the_response_cannot_hold_becomes_the_default():
    assert echo(tool_choice={"type": "from_the_future"}, truncation="later", tools=7, text=7, reasoning=7) == EMPTY


def test_the_fast_tier_is_reported_as_priority():
    assert echo(service_tier="fast")["service_tier"] == "priority"


def test_a_schema_format_is_echoed_with_description_and_strictness():
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    assert echo(text={"format": form, "verbosity": None})["text"] == {"format": {**form, "description": None, "strict": False}}
    assert echo(text={"format": None})["text"] == {"format": {"type": "text"}}


def test_half_a_reasoning_setting_is_completed():
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
def test_a_setting_is_echoed_as_it_is_read(setting, read):
    assert {name: echo(**setting)[name] for name in read} == read


@pytest.mark.parametrize("setting", ["conv_1", {"id": "conv_1", "object": "conversation"}])
def test_a_conversation_is_echoed_by_id_and_only_if_given(setting):
    assert response_settings({"model": "m", "conversation": setting}) == {**EMPTY, "conversation": {"id": "conv_1"}}
    assert response_settings({"model": "m", "conversation": None}) == EMPTY
