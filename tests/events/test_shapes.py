"""`mismatches` finds every difference of a JSON value from a type, with its path."""

import json
from pathlib import Path
from typing import Annotated, Any, Union

import pytest
from for_each import for_each
from msgspec import Meta, Struct

from interlock.events.items import InputItem, OutputItem
from interlock.events.request import CreateResponse
from interlock.events.response_object import Response
from interlock.events.shapes import Mismatch, mismatches, name_of, param_of
from interlock.events.stream import EVENTS, OutputDelta, TextDelta
from interlock.events.tools import And, AnyFilter, AnyTool, FunctionTool

ANY_EVENT = Union[tuple(EVENTS.values())]  # noqa: UP007 - as many as there are
OBSERVED = Path(__file__).parent.parent / "corpus" / "observed"
CALL = {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "call_1", "name": "sum", "arguments": "{}"}
PRINTED = {"type": "response.shell_call_output_content.delta", "item_id": "sho_1", "output_index": 0, "command_index": 0}
STATUSES = ("in_progress", "completed", "incomplete")


class Page(Struct):
    last_id: str | None


def in_stream(value: object, type_: Any) -> list[Mismatch]:
    return list(mismatches(value, type_, direction="stream"))


def in_request(value: object, type_: Any) -> list[Mismatch]:
    return list(mismatches(value, type_, direction="request"))


def test_a_value_of_its_type_has_no_mismatches():
    assert in_stream(CALL, OutputItem) == []
    assert in_stream([None], Any) == []


@for_each(
    ("change", "mismatch"),
    [
        ({"arguments": 1}, Mismatch(("arguments",), "type", "function_call", "a string", 1)),
        ({"arguments": None}, Mismatch(("arguments",), "type", "function_call", "a string")),
        ({"status": None}, Mismatch(("status",), "type", "function_call", "one of 'in_progress', 'completed' and 'incomplete'")),
        (
            {"status": "done"},
            Mismatch(
                ("status",), "value", "function_call", "one of 'in_progress', 'completed' and 'incomplete'", "done", STATUSES
            ),
        ),
        ({"namespace": None}, Mismatch(("namespace",), "null", "function_call", "a string")),
        ({"created_by": None}, None),
        ({"async": 1}, Mismatch(("async",), "type", "function_call", "a boolean", 1)),
        ({"copilot": 1}, Mismatch(("copilot",), "unknown", "function_call", "", 1)),
        ({"agent": {}}, Mismatch(("agent", "agent_name"), "missing", "Agent", "a string")),
        (
            {"caller": {"type": "me"}},
            Mismatch(("caller", "type"), "tag", "function_call", "one of 'direct' and 'program'", "me", ("direct", "program")),
        ),
        (
            {"caller": {"type": []}},
            Mismatch(("caller", "type"), "type", "function_call", "one of 'direct' and 'program'", [], ("direct", "program")),
        ),
        (
            {"caller": {}},
            Mismatch(
                ("caller", "type"), "missing", "function_call", "one of 'direct' and 'program'", choices=("direct", "program")
            ),
        ),
    ],
)
def test_a_mismatch_has_its_path_and_the_expected_type(change, mismatch):
    assert in_stream(CALL | change, OutputItem) == ([mismatch] if mismatch else [])


@pytest.mark.parametrize("name", CALL)
def test_a_missing_field_of_a_streamed_item_is_a_mismatch(name):
    (mismatch,) = in_stream({field: value for field, value in CALL.items() if field != name}, OutputItem)
    assert (mismatch.path, mismatch.kind) == ((name,), "missing")


def test_a_request_may_omit_fields_that_only_responses_require():
    assert in_request({"type": "function_call", "call_id": "c", "name": "n", "arguments": "", "id": None}, InputItem) == []
    assert in_request({**CALL, "namespace": None, "status": None}, InputItem) == []


def test_only_a_request_may_omit_a_field_with_a_default():
    tool = {"type": "function", "name": "sum"}
    assert in_request(tool, AnyTool) == in_stream(tool, AnyTool) == []
    assert in_request({"name": "sum"}, FunctionTool) == []
    assert in_stream({"name": "sum"}, FunctionTool) == [Mismatch(("type",), "missing", "function", "'function'")]
    assert in_request({"last_id": None}, Page) == []


def test_the_result_of_an_image_may_be_null_but_not_missing():
    image = {"type": "image_generation_call", "id": "ig_1", "status": "generating"}
    assert in_stream({**image, "result": None}, OutputItem) == []
    assert in_stream(image, OutputItem) == [Mismatch(("result",), "missing", "image_generation_call", "a string")]


def test_an_object_with_a_wrong_type_is_a_mismatch():
    assert in_stream({"type": "custom", "name": "sum"}, FunctionTool) == [
        Mismatch(("type",), "tag", "function", "'function'", "custom", ("function",))
    ]


@pytest.mark.parametrize("stdout", [1, None, {}])
def test_the_output_of_a_command_must_be_text(stdout):
    (mismatch,) = in_stream({**PRINTED, "delta": {"stdout": stdout}, "sequence_number": 0}, OutputDelta)
    kind = "null" if stdout is None else "type"
    assert mismatch == Mismatch(("delta", "stdout"), kind, "ShellDelta", "a string", stdout)


@for_each(
    ("setting", "param", "kind", "expected", "limit"),
    [
        ({"model": ""}, "model", "value", "a length of at least 1", ("min_length", 1)),
        ({"temperature": 3}, "temperature", "value", "at most 2", ("le", 2)),
        ({"temperature": -0.5}, "temperature", "value", "at least 0", ("ge", 0)),
        ({"temperature": "hot"}, "temperature", "type", "a number", None),
        ({"max_output_tokens": 16.5}, "max_output_tokens", "type", "an integer", None),
        ({"stream": 1}, "stream", "type", "a boolean", None),
        ({"metadata": {"a": 1}}, "metadata.a", "type", "a string", None),
        ({"metadata": {"a": "b" * 513}}, "metadata.a", "value", "a length of at most 512", ("max_length", 512)),
        ({"metadata": {"a" * 65: "b"}}, "metadata", "value", "a length of at most 64", ("max_length", 64)),
        (
            {"metadata": {str(number): "" for number in range(17)}},
            *("metadata", "value", "a length of at most 16", ("max_length", 16)),
        ),
        ({"input": 3}, "input", "type", "a string or an array of objects", None),
        ({"input": [3]}, "input[0]", "type", "an object", None),
        ({"include": [1]}, "include[0]", "type", "a string", None),
        (
            {"input": [{"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": 3}]}]},
            *("input[0].content[0].image_url", "type", "a string", None),
        ),
        (
            {"input": [{"type": "message", "role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
            *("input[0].content[0].input_audio.data", "missing", "a string", None),
        ),
    ],
)
def test_a_mismatch_of_a_request_names_its_parameter(setting, param, kind, expected, limit):
    mismatch = in_request({"model": "m", **setting}, CreateResponse)[0]
    assert (param_of(mismatch.path), mismatch.kind, mismatch.expected, mismatch.limit) == (param, kind, expected, limit)


def test_mismatches_are_in_document_order_with_missing_fields_last():
    value = {"output": [3, {"type": "x"}], "id": 1, "new": 0, "model": "m"}
    differences = [(param_of(mismatch.path), mismatch.kind) for mismatch in in_stream(value, Response)]
    assert differences[:4] == [("output[0]", "type"), ("output[1].type", "tag"), ("id", "type"), ("new", "unknown")]
    assert differences[4:] == [
        (name, "missing") for name in ("object", "created_at", "parallel_tool_calls", "tool_choice", "tools")
    ]


def test_the_expected_types_of_a_union_are_written_as_a_list():
    (mismatch,) = in_request({"type": "eq", "key": "a", "value": None}, AnyFilter)
    assert mismatch.expected == "a string or a number or a boolean or an array of strings or numbers"
    (mismatch,) = in_request({"type": "function", "name": "f", "allowed_callers": 1}, FunctionTool)
    assert mismatch.expected == "an array of values, each one of 'direct' and 'programmatic'"


def test_a_deeply_nested_value_is_checked():
    value: object = {"type": "and", "filters": 1}
    for _ in range(5000):
        value = {"type": "and", "filters": [value]}
    (mismatch,) = in_request(value, And)
    assert (len(mismatch.path), mismatch.kind, mismatch.value) == (10001, "type", 1)


def test_every_observed_event_matches_its_type_except_vendor_fields():
    differences = set()
    for path in sorted(OBSERVED.glob("*.sse")):
        for line in path.read_text().splitlines():
            if line.startswith("data: {"):
                body = json.loads(line.removeprefix("data: "))
                if not isinstance(body.get("error"), dict):
                    differences |= {
                        (mismatch.type, mismatch.path[-1], mismatch.kind) for mismatch in in_stream(body, EVENTS[body["type"]])
                    }
    assert {mismatch for mismatch in differences if mismatch[2] != "unknown"} == {
        ("web_search_call", "action", "missing"),
        ("image_generation_call", "result", "missing"),
        ("response.output_text.done", "logprobs", "missing"),
    }


JUNK: tuple[object, ...] = (
    None,
    True,
    0,
    2**70,
    -0.5,
    1e300,
    "",
    "\ud800",
    [],
    {},
    [[]],
    {"type": {}},
    {"type": []},
    {"\ud800": 1},
)


@for_each("junk", JUNK, ids=repr)
def test_any_value_of_a_wrong_type_has_mismatches(junk):
    names = ("type", "item", "part", "delta", "response", "annotation", "output")
    for name, event in EVENTS.items():
        for body in (
            junk,
            {"type": name, **dict.fromkeys(names, junk)},
            {"type": name, "item": {"type": "reasoning", "summary": junk}},
        ):
            assert in_stream(body, ANY_EVENT)
            assert in_stream(body, event)


def test_a_value_that_is_not_an_object_is_a_mismatch_at_the_root():
    assert in_stream([], TextDelta) == [Mismatch((), "type", "", "an object", [])]
    assert param_of(()) == ""


def test_name_of_returns_the_tag_or_the_class_of_a_type():
    assert [name_of(kind) for kind in (FunctionTool, Response)] == ["function", "Response"]


@pytest.mark.parametrize(
    ("type_", "value", "limit"),
    [
        (Annotated[int, Meta(gt=0)], 0, ("gt", 0)),
        (Annotated[float, Meta(ge=0)], float("nan"), ("ge", 0)),
        (Annotated[float, Meta(le=1)], float("nan"), ("le", 1)),
        (Annotated[str, Meta(pattern="^a")], "b", ("pattern", "^a")),
    ],
)
def test_a_value_beyond_a_limit_is_a_mismatch(type_, value, limit):
    assert [mismatch.limit for mismatch in in_request(value, type_)] == [limit]


def test_a_value_within_its_limits_has_no_mismatch():
    assert in_request([1, "ab"], list[Annotated[int, Meta(gt=0)] | Annotated[str, Meta(pattern="^a")]]) == []
