"""Skipping vLLM's validation of plain items changes no request and no error; these tests need no server."""

import pytest
from pydantic import ValidationError

from interlock.serving.engines.vllm.compat import router, valid_request

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, when vLLM is imported

PARTS = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
CALL = {"type": "function_call", "call_id": "call_1", "name": "look_up", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
PLAIN = [
    *({"role": role, "content": "a"} for role in ("user", "assistant", "system", "developer")),
    {"type": "message", "role": "user", "content": ""},
    {"role": "assistant", "content": "a", "status": "completed"},
    {"role": "user", "content": PARTS, "id": "msg_2"},
    {"type": "message", "role": "developer", "content": PARTS},
    OUTPUT,
    {**OUTPUT, "id": "fc_1", "status": "incomplete"},
]
OTHER_ITEMS = [
    CALL,
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "a"}]},
    {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "a"}]},
    {"role": "user", "content": [{"type": "input_image", "image_url": "https://example.org/a.png"}]},
    {"role": "user", "content": [], "phase": None},
    {**OUTPUT, "role": "user", "content": "a"},
    {**OUTPUT, "output": [{"type": "input_text", "text": "x"}]},
]
WRONG = [
    {"role": "tool", "content": "a"},
    {"role": "user", "content": 7},
    {"role": "user", "content": [{"type": "input_text", "text": 7}]},
    {"role": ["user"], "content": "a"},
    {"role": "user", "content": [{"type": ["input_text"], "text": "a"}]},
    {**OUTPUT, "status": ["completed"]},
    {**OUTPUT, "status": "lost"},
    {**OUTPUT, "id": 7},
    "a",
    None,
]


def request(*items):
    return {"model": "tiny", "input": [*items], "request_id": "resp_1", "stream": True}


@pytest.mark.parametrize("item", [*PLAIN, *OTHER_ITEMS], ids=str)
def test_every_item_equals_vllms_validated_one(item):
    for items in ([item], [CALL, item, OUTPUT], [PLAIN[0], item, CALL]):
        assert valid_request(request(*items)) == router().ResponsesRequest(**request(*items))


def test_an_answer_with_a_string_as_content_keeps_it():
    """vLLM's validation replaces such a text by an iterator over content parts."""
    answer = {"type": "message", "role": "assistant", "content": "a", "id": "msg_1", "status": "completed"}
    assert valid_request(request(answer)).input == [answer]


def test_plain_items_are_not_validated(monkeypatch):
    validated = []

    class Validated(router().ResponsesRequest):
        def __init__(self, **body):
            validated.append(body["input"])
            super().__init__(**body)

    monkeypatch.setattr(router(), "ResponsesRequest", Validated)
    valid_request(request(*PLAIN, CALL))
    assert validated == [[CALL]]


@pytest.mark.parametrize("item", WRONG, ids=str)
def test_an_invalid_item_is_refused_with_its_index(item):
    body = request(PLAIN[0], item, *PLAIN)
    with pytest.raises(ValidationError) as vllm_error:
        router().ResponsesRequest(**body)
    with pytest.raises(ValidationError) as error:
        valid_request(body)
    places = [each["loc"] for each in vllm_error.value.errors()]
    assert [each["loc"] for each in error.value.errors()] == places
    assert any(1 in place for place in places)


def test_an_input_that_is_not_a_list_is_left_to_vllm():
    assert valid_request({"model": "tiny", "input": "Hi."}).input == "Hi."
