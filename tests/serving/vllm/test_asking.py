"""A request as vLLM gets it: functions, and messages, reasoning, function calls and their outputs, on both of its paths."""

import logging

import pytest

from interlock.serving.errors import ApiError
from interlock.serving.requests.plain import plain
from interlock.serving.vllm.asking import Before, rendered

HI = {"type": "message", "role": "user", "content": "Hi"}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "name": "weather", "parameters": CITY}
SKY = {"type": "namespace", "name": "sky", "tools": [WEATHER]}
CALL = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "write", "input": "a"}
OUTPUT = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "ok"}
BOTH = pytest.mark.parametrize("harmony", [True, False])


def asked(*, harmony=True, before=None, **body):
    return rendered({"model": "m", "input": "Hi", **body}, before or Before(), harmony=harmony)


@BOTH
def test_a_request_that_vllm_knows_is_left_as_it_is(harmony):
    body = {"model": "m", "input": "Hi", "temperature": 0.5, "tools": [WEATHER], "tool_choice": "auto", "service_tier": "flex"}
    theirs, read_by = rendered(body, Before(), harmony=harmony)
    assert (theirs, read_by) == ({**body, "include": None}, body)


@BOTH
def test_tools_and_calls_are_functions_and_are_read_as_they_were_declared(harmony):
    body = {"tools": [SKY, {"type": "web_search"}], "tool_choice": {"type": "function", "name": "weather", "namespace": "sky"}}
    theirs, read_by = asked(harmony=harmony, input=[HI, CALL, OUTPUT], **body)
    assert theirs["tools"] == [{**WEATHER, "name": "sky__weather"}, {"type": "web_search_preview"}]
    assert theirs["tool_choice"] == read_by["tool_choice"] == {"type": "function", "name": "sky__weather"}
    assert read_by["tools"] == body["tools"]
    assert theirs["input"] == [
        HI,
        {"type": "function_call", "call_id": "call_1", "name": "write", "arguments": '{"input":"a"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
    ]


def test_tools_that_the_input_brings_are_offered_and_read_by():
    found = {"type": "tool_search_output", "call_id": "call_1", "tools": [SKY]}
    theirs, read_by = asked(input=[HI, found])
    assert (theirs["tools"], read_by["tools"]) == ([{**WEATHER, "name": "sky__weather"}], [SKY])
    later = asked(before=Before(items=[HI, found]))
    assert (later[0]["tools"], later[1]["tools"]) == (theirs["tools"], [SKY])


def test_what_cannot_be_offered_is_left_out_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        theirs, _ = asked(tools=[{"type": "image_generation"}], tool_choice="auto")
    assert (theirs["tools"], theirs["tool_choice"]) == ([], "none")
    assert caplog.messages == ["a tool of the type image_generation is not offered to the model: no function can stand for it"]


def test_settings_that_vllm_does_not_know_are_put_into_those_that_it_knows():
    odd = {"include": ["reasoning.encrypted_content", "message.output_text.logprobs"], "service_tier": "ultrafast"}
    theirs, _ = asked(**odd, reasoning={"effort": "xhigh", "summary": "auto"})
    assert theirs["include"] == ["message.output_text.logprobs"]
    assert "service_tier" not in theirs
    assert theirs["reasoning"] == {"effort": "high", "summary": "auto"}
    assert asked(reasoning={"effort": "xhigh"}, harmony=False)[0]["reasoning"] == {"effort": "xhigh"}


def test_a_reference_is_the_item_that_is_stored_and_goes_where_that_is_there():
    reference = {"type": "item_reference", "id": "ctc_1"}
    wanted = list(plain([CALL, OUTPUT]))
    assert asked(input=[reference, OUTPUT], before=Before(stored={"ctc_1": CALL}))[0]["input"] == wanted
    assert asked(input=[CALL, reference, OUTPUT])[0]["input"] == wanted
    assert asked(input=[{"id": "ctc_1"}, OUTPUT], before=Before(items=[CALL]))[0]["input"] == wanted
    with pytest.raises(ApiError, match="Item with id 'ctc_1' not found") as refused:
        asked(input=[reference])
    assert refused.value.status == 404


@pytest.mark.parametrize("harmony", [True, False])
def test_what_was_said_before_is_put_before_the_input_for_vllm_has_nothing_stored(harmony):
    before = Before(items=[CALL])
    theirs, _ = asked(input=[OUTPUT], previous_response_id="resp_1", before=before, harmony=harmony)
    assert (theirs["input"], "previous_response_id" in theirs) == (list(plain([CALL, OUTPUT])), False)
    assert asked(input="Go on.", before=before, harmony=harmony)[0]["input"] == [
        *plain([CALL]),
        {"type": "message", "role": "user", "content": "Go on."},
    ]
    assert asked(input=None, before=before, harmony=harmony)[0]["input"] == list(plain([CALL]))


def test_pictures_that_a_tool_gave_are_named_to_a_model_that_writes_harmony():
    picture = {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "data:,"}]}
    assert asked(input=[picture])[0]["input"] == [{**picture, "output": "[input_image]"}]
    assert asked(input=[picture], harmony=False)[0]["input"] == [picture]


FUNCTION_CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
BROUGHT = {"type": "tool_search_output", "call_id": "c"}


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"input": [HI, {**FUNCTION_CALL, "name": "<|call|>"}]}, "input[1].name", "invalid_value"),
        ({"input": [{**FUNCTION_CALL, "namespace": "<|call|>"}]}, "input[0].namespace", "invalid_value"),
        ({"input": [{**CALL, "name": "<|call|>"}]}, "input[0].name", "invalid_value"),
        ({"input": [{"type": "mcp_call", "server_label": "<|call|>"}]}, "input[0].server_label", "invalid_value"),
        ({"input": [{**BROUGHT, "tools": [{"type": []}]}]}, "input[0].tools[0].type", "invalid_type"),
        ({"tools": [{"type": []}]}, "tools[0].type", "invalid_type"),
        ({"tools": [{"type": "function", "name": []}]}, "tools[0].name", "invalid_type"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": []}}, "tool_choice.name", "invalid_type"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": {}}]}},
            "tool_choice.tools[0].name",
            "invalid_type",
        ),
    ],
)
def test_what_no_host_could_take_is_refused_by_its_place(body, param, code):
    with pytest.raises(ApiError) as refused:
        asked(**body)
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, param, code)


def test_a_body_may_have_100_levels():
    schema = {"type": "object"}
    for _ in range(95):
        schema = {"not": schema}
    assert asked(tools=[{**WEATHER, "parameters": schema}])[0]["tools"] == [{**WEATHER, "parameters": schema}]
    with pytest.raises(ApiError, match="nested deeper than 100 levels"):
        asked(tools=[{**WEATHER, "parameters": {"not": {"not": {"not": schema}}}}])


@pytest.mark.parametrize("said", [{}, {"input": None}, {"input": []}])
def test_a_request_that_says_nothing_and_continues_nothing_is_refused(said):
    with pytest.raises(ApiError) as refused:
        rendered({"model": "m", **said}, Before(), harmony=True)
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, "input", "missing_required_parameter")
    assert rendered({"model": "m", **said}, Before(items=[HI]), harmony=True)[0]["input"] == [HI]
