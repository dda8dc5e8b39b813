"""A real chat model, SmolLM2-135M-Instruct, without a script: it gives sensible answers in legal streams."""

import asyncio
import json

import httpx
import openai
import pytest
from playing import judged, stream

from interlock.verify import oracle

pytestmark = [pytest.mark.long, pytest.mark.parametrize("server", ["smollm2"], indirect=True)]

CAPITAL = {
    "model": "tiny",
    "input": "What is the capital of France? Answer in one sentence.",
    "temperature": 0,
    "max_output_tokens": 60,
}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "big": {"type": "boolean"}},
    "required": ["city", "big"],
    "additionalProperties": False,
}


def final(server, **fields):
    return judged(stream(server.url, {**CAPITAL, **fields}))[-1]["response"]


def test_the_model_answers(server):
    response = final(server)
    assert "Paris" in response["output"][0]["content"][0]["text"]
    whole = httpx.post(f"{server.url}/v1/responses", json=CAPITAL, timeout=60).json()
    assert whole["output"][0]["content"] == response["output"][0]["content"]


def test_the_model_follows_a_schema(server):
    form = {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}}
    response = final(server, text=form)
    assert set(json.loads(response["output"][0]["content"][0]["text"])) == {"city", "big"}
    assert response["text"]["format"]["name"] == "answer"


def test_the_model_makes_a_required_call(server):
    tool = {"type": "function", "name": "look_up", "description": "Looks up a city.", "parameters": SCHEMA, "strict": True}
    response = final(server, tools=[tool], tool_choice="required", max_output_tokens=100)
    call = response["output"][0]
    assert (call["type"], call["name"], set(json.loads(call["arguments"]))) == ("function_call", "look_up", {"city", "big"})


def test_the_log_probabilities_of_the_deltas_rebuild_the_text(server):
    bodies = judged(stream(server.url, {**CAPITAL, "include": ["message.output_text.logprobs"], "top_logprobs": 3}))
    part = bodies[-1]["response"]["output"][0]["content"][0]
    entries = [entry for event in bodies if event["type"].endswith("text.delta") for entry in event["logprobs"]]
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == part["text"]
    assert {len(entry["top_logprobs"]) for entry in entries} == {3}
    assert part["logprobs"] == entries


def test_a_lora_adapter_answers_by_its_name(server):
    response = final(server, model="adapted")
    assert response["model"] == "adapted"
    assert response["output"][0]["content"] != final(server)["output"][0]["content"]


def test_the_token_limit_truncates_the_answer(server):
    response = final(server, max_output_tokens=4)
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert response["usage"]["output_tokens"] == 4
    assert response["output"][-1]["status"] == "incomplete"


def test_eight_concurrent_clients_receive_legal_streams(server):
    async def ask(client, word):
        request = {**CAPITAL, "input": f"Write a sentence about {word}.", "max_output_tokens": 40}
        events = await client.responses.create(**request, stream=True)
        return [event.to_dict(mode="json") async for event in events]

    async def ask_all():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            words = ("cats", "dogs", "rain", "snow", "tea", "books", "music", "ships")
            return await asyncio.gather(*(ask(client, word) for word in words))

    assert [oracle.check(events) for events in asyncio.run(ask_all())] == [[]] * 8
