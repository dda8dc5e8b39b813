"""Items: what is known of each kind, and how one is shown."""

import json
from typing import get_args

import pytest
from openai.types.responses import ResponseOutputItem
from pydantic import TypeAdapter

from interlock.events.items import (
    ITEMS,
    OUTPUT_TEXT,
    REASONING_TEXT,
    REFUSAL,
    SUMMARY_TEXT,
    ItemKind,
    failure_fields,
    lasting,
    result_fields,
    snapshot,
)
from interlock.fsm.proof.inputs import FIELDS

CALLED = [*ITEMS][[*ITEMS].index("apply_patch_call") :]
OPENED = {
    "function_call": {"name": "f", "call_id": "call_1"},
    "custom_tool_call": {"name": "f", "call_id": "call_1"},
    "mcp_call": {"server_label": "wiki", "name": "f"},
    "mcp_list_tools": {"server_label": "wiki"},
    "mcp_approval_request": {"server_label": "wiki", "name": "f", "arguments": "{}"},
    "code_interpreter_call": {"container_id": "cntr_1"},
    "web_search_call": {"action": {"type": "search", "query": "q"}},
    "file_search_call": {"queries": ["q"]},
    **{kind: {"call_id": "call_1", **FIELDS[kind]} for kind in CALLED},
}
TYPED = {name for model in get_args(get_args(ResponseOutputItem)[0]) for name in get_args(model.model_fields["type"].annotation)}
"""The kinds that the installed package types; older releases know fewer."""


def shown(kind, status="completed", text="", parts=None, **fields):
    spec = ITEMS[kind]
    known = {**OPENED.get(kind, {}), **fields}
    lists = parts or {name: [] for name in spec.lists}
    return json.loads(snapshot(spec, lasting(spec, f"{spec.prefix}_1", known), status, json.dumps(text).encode(), lists))


def test_there_is_a_specification_of_every_kind():
    assert tuple(ITEMS) == get_args(ItemKind)
    assert len({spec.prefix for spec in ITEMS.values()}) == len(ITEMS)


def test_every_kind_of_the_package_is_known():
    assert {*TYPED} - {*ITEMS} == set()


@pytest.mark.parametrize("kind", sorted(TYPED))
def test_a_completed_item_is_one_of_the_package(kind):
    model = TypeAdapter(ResponseOutputItem).validate_python(shown(kind))
    assert model.type == kind
    assert getattr(model, "status", None) in {"completed", None}


@pytest.mark.parametrize("kind", ITEMS)
def test_what_an_item_opens_with_is_shown(kind):
    assert set(ITEMS[kind].opens_with) <= shown(kind).keys()


def test_a_state_that_is_no_status_shows_as_in_progress():
    assert shown("mcp_call", "ready")["status"] == "in_progress"
    assert shown("mcp_call", "calling")["status"] == "calling"
    assert "status" not in shown("mcp_list_tools", "completed")


def test_text_and_parts_stand_where_the_kind_has_them():
    assert shown("function_call", text="{}")["arguments"] == "{}"
    item = shown("message", parts={"content": [b"1", b"[2]"]})
    assert item["content"] == [1, [2]]
    assert shown("shell_call", parts={"action.commands": [b'"ls"']})["action"]["commands"] == ["ls"]


@pytest.mark.parametrize(("kind", "living"), [("message", {"content": "c"}), ("function_call", {"arguments": "a"})])
def test_what_its_lifecycle_says_of_an_item_nobody_else_can_say(kind, living):
    spec, fields = ITEMS[kind], OPENED.get(kind, {})
    assert lasting(spec, "id_1", {**fields, **living, "status": "completed"}) == lasting(spec, "id_1", fields)


def test_an_item_that_comes_whole_brings_its_status():
    spec = ITEMS["function_call_output"]
    known = lasting(spec, "fco_1", {**OPENED["function_call_output"], "status": "incomplete"})
    assert json.loads(snapshot(spec, known, "completed", b'""', {}))["status"] == "incomplete"


def test_an_open_part_is_empty():
    assert [json.loads(part.empty) for part in (OUTPUT_TEXT, REFUSAL, REASONING_TEXT, SUMMARY_TEXT)] == [
        {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
        {"type": "refusal", "refusal": ""},
        {"type": "reasoning_text", "text": ""},
        {"type": "summary_text", "text": ""},
    ]


def test_the_plain_result_of_a_tool_has_a_place_in_its_item():
    assert {kind: result_fields(kind, "r") for kind in ITEMS if result_fields(kind, "r")} == {
        "mcp_call": {"output": "r"},
        "code_interpreter_call": {"outputs": [{"type": "logs", "logs": "r"}]},
        "image_generation_call": {"result": "r"},
    }


def test_the_failure_of_a_tool_has_a_place_in_its_item():
    assert {kind: failure_fields(kind, "no") for kind in ITEMS if failure_fields(kind, "no")} == {
        "mcp_call": {"error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no"}]}},
        "mcp_list_tools": {"error": "no"},
        "code_interpreter_call": {"outputs": [{"type": "logs", "logs": "no"}]},
    }
