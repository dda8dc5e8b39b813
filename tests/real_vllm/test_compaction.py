"""On a real server, the requested model compacts conversations, and encrypted reasoning can be sent back."""

import httpx
import pytest
from playing import body, judged, stream, summary, tokens
from turns import DONE, FUNCTION, THINK, Turn

pytestmark = pytest.mark.parametrize("server", ["harmony"], indirect=True)

SUMMED = "They spoke of a zebra."
MARK = " zebra"
"""A token of the summary; a prompt with it begins the second round of the script."""

USER = {"type": "message", "role": "user", "content": "Hello."}
REPLY = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Good day."}]}
CALLED = {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{}"}
GAVE = {"type": "function_call_output", "call_id": "call_1", "output": "Rain."}
MANAGED = {"context_management": [{"type": "compaction", "compact_threshold": 20}]}


def request_body(**fields):
    rounds = (f"{THINK}Hm.<|end|><|start|>assistant<|channel|>final<|message|>{SUMMED}<|return|>", DONE)
    request = body("gpt_oss", Turn("", rounds, body=fields))
    (mark,) = tokens("gpt_oss", MARK)
    return {**request, "vllm_xargs": {**request["vllm_xargs"], "round_token": mark}}


def post(server, request, path=""):
    return httpx.post(f"{server.url}/v1/responses{path}", json=request, timeout=60).json()


def test_a_conversation_above_its_threshold_is_compacted_and_the_model_reads_the_summary(server):
    request = request_body(input=[USER, CALLED, GAVE, REPLY, USER], tools=[FUNCTION], **MANAGED)
    response = judged(stream(server.url, request))[-1]["response"]
    assert (response["status"], summary(response)) == ("completed", ["compaction", "message"])
    assert response["output"][1]["content"][0]["text"] == "It is done."
    assert response["usage"]["output_tokens"] > 10


def test_a_compacted_response_continues_from_its_summary(server):
    first = post(server, request_body(input=[USER, REPLY, USER], **MANAGED))
    second = post(server, request_body(input="And now?", previous_response_id=first["id"]))
    assert (first["status"], summary(second)) == ("completed", ["message"])


def test_the_compaction_of_a_trigger_can_be_sent_back(server):
    first = post(server, request_body(input=[USER, REPLY, {"type": "compaction_trigger"}], store=False))
    assert summary(first) == ["compaction"]
    assert summary(post(server, request_body(input=[USER, *first["output"], USER], store=False))) == ["message"]


def test_the_compaction_of_the_route_can_be_sent_back(server):
    route = {**request_body(input=[USER, REPLY]), "prompt_cache_key": "k"}
    compacted = post(server, route, "/compact")
    assert (compacted["object"], summary(compacted)) == ("response.compaction", ["message", "compaction"])
    assert compacted["usage"]["output_tokens"] > 5
    assert summary(post(server, request_body(input=[*compacted["output"], USER]))) == ["message"]


def test_sealed_reasoning_that_is_sent_back_is_in_the_prompt(server):
    sealing = {"include": ["reasoning.encrypted_content"], "store": False}
    first = post(server, request_body(**sealing))
    reasoning = {"type": "reasoning", "summary": [], "encrypted_content": first["output"][0]["encrypted_content"]}
    sealed = post(server, request_body(input=[USER, reasoning, USER], **sealing))
    plain = post(server, request_body(input=[USER, {**reasoning, "encrypted_content": None}, USER], **sealing))
    assert sealed["usage"]["input_tokens"] > plain["usage"]["input_tokens"]
    changed = {**reasoning, "encrypted_content": reasoning["encrypted_content"][:-8]}
    answer = post(server, request_body(input=[USER, changed], **sealing))
    assert (answer["status"], len(answer["input_transformations"])) == ("completed", 1)
