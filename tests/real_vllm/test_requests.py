"""A request is read as vLLM reads it: its encoding, its settings and its items."""

import json

import httpx
import pytest
from playing import body
from pydantic import ValidationError
from turns import END, Turn

from interlock.serving.engines.vllm.compat import router, valid_request

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, when vLLM is imported

PARSED_SERVER = pytest.mark.parametrize("server", ["parsed"], indirect=True)
REQUEST = {"model": "tiny", "input": "Hi.", "max_output_tokens": 16}
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


def post(server, request):
    return httpx.post(f"{server.url}/v1/responses", json=request, timeout=120)


@PARSED_SERVER
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_a_body_is_read_in_every_encoding_that_vllm_reads(server, encoding):
    request = body("qwen3", Turn("", [f"<think>\n\n</think>\n\nHello.{END}"]))
    content = json.dumps({**request, "ignored": float("nan")}).encode(encoding)
    answer = httpx.post(f"{server.url}/v1/responses", content=content, headers={"content-type": "application/json"}, timeout=60)
    assert (answer.status_code, answer.json()["status"]) == (200, "completed")


@PARSED_SERVER
def test_the_response_echoes_settings_as_vllm_reads_them(server):
    settings = {
        "parallel_tool_calls": "false",
        "max_output_tokens": "16",
        "temperature": "0.5",
        "top_p": 1,
        "max_tool_calls": "3",
    }
    response = post(server, {**REQUEST, **settings}).json()
    assert {name: response[name] for name in settings} == {
        "parallel_tool_calls": False,
        "max_output_tokens": 16,
        "temperature": 0.5,
        "top_p": 1.0,
        "max_tool_calls": 3,
    }


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
