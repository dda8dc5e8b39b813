"""Items: how one of each kind begins, and where the result of its tool stands."""

from typing import Annotated, Literal, get_args

import pytest
from msgspec import UNSET, Meta, Struct
from openai.types.responses import ResponseOutputItem
from pydantic import TypeAdapter

from interlock.events.items import (
    ITEMS,
    ApiSource,
    Point,
    UrlSource,
    _examples,
    example,
    examples,
    open_item,
    result_fields,
    statuses_of,
)
from interlock.events.json import as_json
from interlock.events.parts import Json, Maybe

TYPED = {name for model in get_args(get_args(ResponseOutputItem)[0]) for name in get_args(model.model_fields["type"].annotation)}
"""The kinds that the installed package types; older releases know fewer."""


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


def test_an_example_has_the_fields_that_are_required():
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


def test_every_kind_of_the_package_is_known():
    assert {*TYPED} - {*ITEMS} == set()


def test_the_ids_of_each_kind_begin_in_their_own_way():
    prefixes = [kind.prefix for kind in ITEMS.values()]
    assert all(prefixes)
    assert len({*prefixes}) == len(prefixes)


@pytest.mark.parametrize("kind", sorted(TYPED))
def test_an_added_item_is_valid_for_the_sdk(kind):
    made = dict.fromkeys(ITEMS[kind].generated_ids, "made_1")
    status = {"status": "completed"} if statuses_of(ITEMS[kind]) else {}
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
def test_fields_that_are_written_later_begin_empty(kind, fields, shown):
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


def test_the_statuses_of_a_kind_are_those_of_its_type():
    assert statuses_of(ITEMS["mcp_call"]) == ("in_progress", "completed", "incomplete", "calling", "failed")
    assert statuses_of(ITEMS["mcp_list_tools"]) == ()


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


def test_the_client_answers_its_own_calls_and_requests_for_approval():
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
