"""The table of what is read of items, tools and formats: every field is one of the vocabulary, and other fields are free."""

import pytest
from each import each
from msgspec import structs

from interlock.serving.requests import limits
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.requests.create import read_request
from interlock.serving.requests.refusals import require_json_schema

TEXT = {"type": "message", "role": "user", "content": "Hi"}


def names(kind):
    return {field.encode_name for field in structs.fields(kind)}


@each("kind", limits.READ, ids=lambda kind: kind.__name__)
def test_every_field_of_the_table_is_one_of_its_type(kind):
    assert limits.READ[kind].keys() - names(kind) == set()


def test_every_type_of_item_has_its_row_or_is_carried():
    read = {name: limits.shape_of(kind).__struct_fields__ for name, kind in limits.ITEMS.items()}
    assert read["function_call"] == ("id", "status", "call_id", "name", "namespace", "async", "arguments")
    assert read["mcp_call"] == ("id", "status", "server_label", "name")
    assert read["compaction_trigger"] == ("id",)


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call", "status": "dreaming", "action": {"type": "teleport"}, "queries": 5},
        {"type": "message", "role": "assistant", "phase": "encore", "content": [], "agent": 7},
        {"type": "reasoning", "summary": [{"type": "text", "text": "a"}], "content": None},
        {"type": "image_generation_call", "action": "generate", "result": None},
        {"type": "mcp_list_tools", "tools": [{"name": "a", "input_schema": {}}]},
    ],
)
def test_what_a_later_release_or_a_hosted_tool_says_is_carried_as_it_came(item):
    assert read_request({"model": "m", "input": [item]}).input == (item,)


@each(
    ("members", "message"),
    [
        (
            {"input": [{**TEXT, "role": "tool"}]},
            "Invalid value: 'tool'. Supported values are: 'user', 'assistant', 'system', and 'developer'.",
        ),
        ({"input": [{**TEXT, "content": [{"type": None}]}]}, "Missing required parameter: 'input[0].content[0].type'."),
        (
            {"tools": [{"type": "function", "name": "a b"}]},
            (
                "Invalid 'tools[0].name': string does not match pattern. "
                "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            ),
        ),
        (
            {"user": "u" * 4097},
            (
                "Invalid 'user': string too long. "
                "Expected a string with maximum length 4096, but got a string with length 4097 instead."
            ),
        ),
        (
            {"include": ["a"] * 1001},
            (
                "Invalid 'include': array too long. "
                "Expected an array with maximum length 1000, but got an array with length 1001 instead."
            ),
        ),
        (
            {"metadata": {str(index): "" for index in range(17)}},
            "Invalid 'metadata': too many properties. Expected an object with at most 16 properties, but got 17.",
        ),
        (
            {"temperature": 10**400},
            "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got a longer number instead.",
        ),
        ({"top_logprobs": -1}, "Invalid 'top_logprobs': integer below minimum value. Expected a value >= 0, but got -1 instead."),
        ({"truncation": 1}, "Invalid type for 'truncation': expected a string, but got an integer instead."),
        ({"moderation": {"model": 5}}, "Invalid type for 'moderation.model': expected a string, but got an integer instead."),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": ["f"]}]},
            "Invalid type for 'tools[0].tools[0]': expected an object, but got a string instead.",
        ),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_api(members, message):
    with pytest.raises(ApiError) as refused:
        read_request({"model": "m", "input": "Hi", **members})
    assert refused.value.message == message


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"properties": {"a": {"type": ["string", "null"], "exclusiveMinimum": True}}, "items": [{}, False], "x-more": 1},
    ],
)
def test_a_schema_of_any_draft_is_valid(schema):
    require_json_schema("schema", schema)


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        (5, "$ must be a boolean or an object"),
        ({"properties": {"a": {"minLength": -1}}}, "$.properties.a.minLength must be at least 0"),
        ({"anyOf": [{"multipleOf": 0}]}, "$.anyOf[0].multipleOf must be above 0"),
        ({"not": {"required": [1]}}, "$.not.required[0] must be a string"),
        ({"x-more": 1, "minimum": None}, "$.minimum must be a number"),
    ],
)
def test_a_schema_is_judged_by_its_keywords(schema, error):
    with pytest.raises(ApiError) as refused:
        require_json_schema("schema", schema)
    assert refused.value.message == f"Invalid schema for 'schema': {error}."
