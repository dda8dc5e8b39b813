"""vLLM's refusals keep their message: they come with their status before any event, or they fail a background response."""

import json

import httpx
import pytest
from playing import body, judged, stream
from pydantic import ValidationError
from servers import HARMONY
from turns import DONE, END, PYTHON, RUN, Turn

from interlock.serving.engines.vllm.compat import router, valid_request

PARSED_SERVER = pytest.mark.parametrize("server", ["parsed"], indirect=True)
HARMONY_SERVER = pytest.mark.parametrize("server", ["harmony"], indirect=True)
WAYS = [{}, {"stream": True}]
SCORES = {"include": ["message.output_text.logprobs"]}
REQUEST = {"model": "tiny", "input": "Hi.", "max_output_tokens": 16}


def schema(settings):
    return {"text": {"format": {"type": "json_schema", "name": "a", "schema": settings}}}


def post(server, request):
    return httpx.post(f"{server.url}/v1/responses", json=request, timeout=120)


@PARSED_SERVER
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (schema({"type": "nonsense"}), "Grammar error: Invalid type: nonsense"),
        (schema({"$ref": "#/nowhere"}), "Grammar error: Pointer '/nowhere' does not exist"),
        (schema({"type": "string", "pattern": "((("}), "Grammar error: regex parse error"),
        ({"structured_outputs": {"regex": "((["}}, "Grammar error"),
        ({"structured_outputs": {"grammar": "root ::= ((("}}, "Invalid grammar specification"),
        ({"structured_outputs": {"json": "{nothing"}}, "Invalid JSON grammar specification"),
        ({"structured_outputs": {"choice": []}}, "Choice '[]' cannot be an empty list"),
        ({"logit_bias": {"999999999": 1}}, "in logit_bias contain out-of-vocab token ids"),
        ({"stop_token_ids": [-5]}, "in stop_token_ids contain out-of-vocab token ids"),
        ({**SCORES, "top_logprobs": 21}, "Requested sample logprobs of 21, which is greater than max allowed: 20"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_a_refusal_at_the_first_step_is_a_400_or_fails_a_background_response(server, settings, message):
    answers = [post(server, {**REQUEST, **settings, **way}) for way in WAYS]
    assert [answer.status_code for answer in answers] == [400] * len(WAYS)
    assert answers[0].json() == answers[1].json()
    assert message in answers[0].json()["error"]["message"]
    queued = post(server, {**REQUEST, **settings, "background": True}).json()
    assert queued["status"] == "queued"
    read = httpx.get(f"{server.url}/v1/responses/{queued['id']}", params={"stream": "true"}, timeout=120)
    ended = judged(read.content)[-1]["response"]
    assert (ended["id"], ended["status"]) == (queued["id"], "failed")
    assert message in ended["error"]["message"]


@PARSED_SERVER
def test_an_invalid_parameter_is_a_400_in_every_mode(server):
    ways = [*WAYS, *({**way, "background": True} for way in WAYS)]
    answers = [post(server, {**REQUEST, "temperature": -1, **way}) for way in ways]
    assert [answer.status_code for answer in answers] == [400] * len(ways)
    assert [answer.json() for answer in answers] == [answers[0].json()] * len(ways)
    assert "temperature must be non-negative" in answers[0].json()["error"]["message"]


@PARSED_SERVER
def test_an_invalid_grammar_is_vllms_error_with_and_without_streaming(server):
    settings = schema({"type": "object", "patternProperties": {"^a": {"type": "string"}}, "minContains": 2})
    answers = [post(server, {**REQUEST, **settings, "stream": streamed}) for streamed in (False, True)]
    assert [answer.status_code for answer in answers] == [answers[0].status_code] * 2
    assert answers[0].status_code != 200 or answers[0].json()["status"] in {"completed", "incomplete"}  # a backend may support it


@HARMONY_SERVER
def test_a_prompt_that_a_tool_made_too_long_fails_with_invalid_prompt(server):
    code = "print(1) " * 60
    turn = Turn("", [f"{RUN}{code}<|call|>", DONE], body={"tools": [PYTHON], "input": "word " * (HARMONY.context - 400)})
    response = judged(stream(server.url, body("gpt_oss", turn)))[-1]["response"]
    assert (response["status"], response["error"]["code"]) == ("failed", "invalid_prompt")
    assert [item["type"] for item in response["output"]] == ["code_interpreter_call"]
    assert response["usage"]["output_tokens"] > 100


@HARMONY_SERVER
@pytest.mark.parametrize("way", [{}, {"stream": True}, {"background": True}], ids=["whole", "stream", "background"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"logit_bias": {"999999999": 1}}, "in logit_bias contain out-of-vocab token ids"),
        ({"structured_outputs": {"grammar": "root ::= ((("}}, "Invalid grammar specification"),
        ({"input": "word " * (HARMONY.context - 150)}, f"exceeds the max_model_len {HARMONY.context}"),
    ],
    ids=["logit_bias", "grammar", "prompt"],
)
def test_a_refusal_after_the_tools_of_mcp_servers_are_listed_fails_the_response(server, settings, message, way):
    tools = [{"type": "mcp", "server_label": "own", "server_url": server.tool_url("browser")}]
    answer = post(server, {**REQUEST, **settings, **way, "tools": tools})
    assert answer.status_code == 200
    if "background" in way:
        answer = httpx.get(f"{server.url}/v1/responses/{answer.json()['id']}", params={"stream": "true"}, timeout=120)
    response = judged(answer.content)[-1]["response"] if way else answer.json()
    assert ([item["type"] for item in response["output"]], response["status"]) == (["mcp_list_tools"], "failed")
    assert (response["error"]["code"], message in response["error"]["message"]) == ("invalid_prompt", True)


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
