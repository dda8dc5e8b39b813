"""Responses on a real server: refusals, disconnects, background and stored responses, and dialects."""

import contextlib

import httpx
import openai
import pytest
from playing import body, events, get, is_aborted, judged, stream, summary, until
from servers import HARMONY
from turns import ANSWER, DONE, FUNCTION, THINK, WEATHER, Turn

pytestmark = pytest.mark.parametrize("server", ["harmony"], indirect=True)

ENDLESS = f"{ANSWER}One two three"
CONTEXT = HARMONY.context


def request_body(*rounds, **fields):
    return body("gpt_oss", Turn("", rounds, body=fields))


def post(server, request, **headers):
    return httpx.post(f"{server.url}/v1/responses", json=request, headers=headers, timeout=60)


def test_refusals_have_vllms_status(server):
    assert post(server, {"model": "tiny"}).status_code == 400
    assert post(server, {"model": "unheard", "input": "Hi."}).status_code == 404
    refused = post(server, request_body(DONE, prompt={"id": "p"}))
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "prompt")
    assert httpx.post(f"{server.url}/v1/responses", content=b"{", headers={"content-type": "application/json"}).status_code == 400


def test_the_log_probabilities_of_gpt_oss_rebuild_the_text_and_bytes_that_divide_a_character(server):
    text = f"{THINK}Hm.<|end|><|start|>assistant{ANSWER}Grüße, 世界! 👩‍👩‍👧<|return|>"
    request = request_body(text, include=["message.output_text.logprobs"], top_logprobs=2)
    bodies = judged(stream(server.url, request))
    part = bodies[-1]["response"]["output"][-1]["content"][0]
    entries = [entry for event in bodies if event["type"].endswith("output_text.delta") for entry in event["logprobs"]]
    assert (part["text"], part["logprobs"]) == ("Grüße, 世界! 👩‍👩‍👧", entries)
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == part["text"]
    assert {len(entry["top_logprobs"]) for entry in entries} == {2}
    assert post(server, request_body(DONE, include=["message.output_text.logprobs"], top_logprobs=21)).status_code == 400


def test_a_prompt_over_the_context_length_is_refused(server):
    assert post(server, {**request_body(DONE), "input": "word " * CONTEXT, "stream": True}).status_code == 400


def test_a_generation_that_fills_the_context_is_truncated(server):
    bodies = judged(stream(server.url, request_body(ENDLESS, input="word " * (CONTEXT - 400))))
    assert bodies[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert bodies[-1]["response"]["usage"]["total_tokens"] == CONTEXT


def test_the_response_has_every_field_with_vllms_resolved_values(server):
    response = post(server, request_body(DONE, temperature=0.5, metadata={"a": "b"}, tools=[FUNCTION])).json()
    assert response["completed_at"] >= response["created_at"]
    assert (response["temperature"], response["metadata"], response["model"]) == (0.5, {"a": "b"}, "tiny")
    assert response["tools"][0]["name"] == "get_weather"
    assert [item["phase"] for item in response["output"]] == ["final_answer"]


def test_a_header_selects_the_dialect_of_open_responses(server):
    request = request_body(f"{THINK}Hm.<|end|><|start|>assistant{DONE}")
    bodies = judged(stream(server.url, request, **{"OpenResponses-Version": "2026-04-24"}), "open_responses")
    assert "response.reasoning.delta" in [event["type"] for event in bodies]


def test_a_disconnect_aborts_the_request(server):
    def begin():
        request = {**request_body(ENDLESS), "stream": True}
        with httpx.stream("POST", f"{server.url}/v1/responses", json=request, timeout=60) as answer:
            pieces = answer.iter_bytes()
            while b"output_text.delta" not in next(pieces):
                pass

    assert is_aborted(server, begin)


def test_a_disconnect_without_streaming_aborts_the_request(server):
    def begin():
        with contextlib.suppress(httpx.ReadTimeout):  # no timeout: this client was delayed; `is_aborted` tries again
            httpx.post(f"{server.url}/v1/responses", json=request_body(ENDLESS), timeout=1)

    assert is_aborted(server, begin)


def test_a_response_continues_another(server):
    call = post(server, request_body(f'{WEATHER}{{"city": "Rome"}}<|call|>', tools=[FUNCTION])).json()
    item = call["output"][0]
    answered = {"type": "function_call_output", "call_id": item["call_id"], "output": "sunny"}
    request = request_body("", DONE, tools=[FUNCTION], previous_response_id=call["id"], input=[answered])
    response = judged(stream(server.url, request))[-1]["response"]
    assert (summary(response), response["previous_response_id"]) == (["message"], call["id"])
    assert response["usage"]["input_tokens"] > call["usage"]["input_tokens"]


def test_a_stored_response_is_returned_unchanged(server):
    response = judged(stream(server.url, request_body(DONE)))[-1]["response"]
    url = f"{server.url}/v1/responses/{response['id']}"
    assert get(url).json() == response
    assert get(url, params={"stream": "true"}).status_code == 400
    assert httpx.post(f"{url}/cancel").status_code == 400
    assert get(f"{server.url}/v1/responses/resp_unheard").status_code == 404


def test_a_background_response_can_be_read_repeatedly_and_from_any_event(server):
    first = judged(stream(server.url, request_body(DONE, background=True)))
    response = first[-1]["response"]
    url = f"{server.url}/v1/responses/{response['id']}"
    assert [event["type"] for event in first[:3]] == ["response.created", "response.queued", "response.in_progress"]
    second = get(url, params={"stream": "true"}).content
    assert judged(second) == first
    tail = get(url, params={"stream": "true", "starting_after": 4}).content
    assert events(tail) == first[5:]
    assert get(url).json() == response


def test_a_background_response_is_first_queued_and_then_completed(server):
    background = post(server, request_body(DONE, background=True)).json()
    assert (background["status"], background["output"]) == ("queued", [])
    url = f"{server.url}/v1/responses/{background['id']}"
    until(lambda: get(url).json()["status"] == "completed")
    assert summary(get(url).json()) == ["message"]


def test_cancelling_a_background_response_ends_its_streams(server):
    for _ in range(10):
        background = post(server, request_body(ENDLESS, background=True)).json()
        url = f"{server.url}/v1/responses/{background['id']}"
        with httpx.stream("GET", url, params={"stream": "true"}, timeout=60) as reader:
            # Read nothing first: if bytes arrive late, the response would end by itself.
            answer = httpx.post(f"{url}/cancel", timeout=60)
            read = b"".join(reader.iter_bytes())
        if answer.status_code == 200:
            break  # otherwise the response had already ended; try again
    cancelled = answer.json()
    assert cancelled["status"] == "cancelled"
    assert judged(read)[-1]["response"]["status"] == "cancelled"
    assert get(url).json() == cancelled


def test_the_openai_client_reads_a_stream(server):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    request = request_body(f'{THINK}Hm.<|end|><|start|>assistant{WEATHER}{{"city": "Rome"}}<|call|>', tools=[FUNCTION])
    script = {"vllm_xargs": request.pop("vllm_xargs")}
    with client.responses.stream(**request, extra_body=script) as streamed:
        kinds = [event.type for event in streamed]
        final = streamed.get_final_response()
    assert kinds[-1] == "response.completed"
    assert [item.type for item in final.output] == ["reasoning", "function_call"]
    assert final.output[1].arguments == '{"city": "Rome"}'
