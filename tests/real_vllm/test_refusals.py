"""vLLM's refusals keep their message: they come with their status before any event, or they fail a background response."""

import json

import httpx
import pytest
from playing import body, judged, stream
from servers import HARMONY
from turns import DONE, PYTHON, RUN, Turn

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
