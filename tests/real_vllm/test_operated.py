"""With the plugin, vLLM keeps its API keys, metrics, traces and logs, and its own response fields."""

import httpx
import openai
import pytest
from playing import body, judged, metric, stream, until
from servers import HEADERS, KEY, OTHER_KEY, RELEASE
from turns import FUNCTION, Turn

pytestmark = pytest.mark.parametrize("server", ["operated"], indirect=True)

WRITTEN = "<think>Hm.</think>Hello.<|im_end|>"


def request_body(**fields):
    return body("qwen3", Turn("", [WRITTEN]), **fields)


def post(server, request, headers=HEADERS):
    return httpx.post(f"{server.url}/v1/responses", json=request, headers=headers, timeout=60)


def test_every_route_requires_the_key(server):
    ways = [
        ("POST", "/v1/responses"),
        ("GET", "/v1/responses/resp_1"),
        ("POST", "/v1/responses/resp_1/cancel"),
    ]
    assert [httpx.request(method, server.url + path, json=request_body()).status_code for method, path in ways] == [401] * 3
    assert post(server, request_body(), {"Authorization": "Bearer open"}).status_code == 401


def test_a_request_with_the_key_is_answered(server):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY)
    request = request_body()
    script = {"vllm_xargs": request.pop("vllm_xargs")}
    response = client.responses.create(**request, extra_body=script)
    assert (response.status, response.output_text) == ("completed", "Hello.")


def test_the_viewer_shows_a_stream_to_the_key_that_asked_for_it(server):
    post(server, request_body(stream=True))
    headers = [{}, {"Authorization": f"Bearer {OTHER_KEY}"}, HEADERS]
    answers = [httpx.get(f"{server.url}/interlock/", headers=each) for each in headers]
    assert [answer.status_code for answer in answers] == [401, 200, 200]
    lists = [httpx.get(f"{server.url}/interlock/lines", headers=each).text for each in headers[1:]]
    assert ["Hello." in each for each in lists] == [False, True]


def test_only_requests_of_one_tenant_share_the_prefix_cache(server):
    def cached(key, cache_key):
        request = request_body(input="word " * 300, prompt_cache_key=cache_key)
        usage = post(server, request, {"Authorization": f"Bearer {key}"}).json()["usage"]
        return usage["input_tokens_details"]["cached_tokens"] > 0

    ways = [(KEY, "a"), (KEY, "b"), (OTHER_KEY, "a"), (OTHER_KEY, "b")]
    assert [cached(*way) for way in ways] == [False, True, False, True]


def test_metrics_count_the_generated_tokens(server):
    before = metric(server.url, "vllm:generation_tokens_total"), metric(server.url, "vllm:request_success_total")
    usage = judged(stream(server.url, request_body(), **HEADERS))[-1]["response"]["usage"]
    after = metric(server.url, "vllm:generation_tokens_total"), metric(server.url, "vllm:request_success_total")
    assert (after[0] - before[0], after[1] - before[1]) == (usage["output_tokens"], 1)


def test_vllm_and_interlock_count_a_response_with_vllms_tool_parser(server):
    names = ("vllm:tool_call_parser_invocations_total", "interlock_responses_total", "interlock_items_total")
    before = [metric(server.url, name) for name in names]
    judged(stream(server.url, request_body(tools=[FUNCTION]), **HEADERS))
    parsed, *ours = [metric(server.url, name) - value for name, value in zip(names, before, strict=True)]
    assert (parsed > 0, ours) == (True, [1, 2])


@pytest.mark.parametrize("streamed", [True, False])
def test_a_response_and_vllms_own_span_continue_the_trace_of_the_request(server, streamed):
    trace, parent = f"{1 + streamed:032x}", "b7ad6b7169203331"
    headers = {**HEADERS, "traceparent": f"00-{trace}-{parent}-01"}
    if streamed:
        judged(stream(server.url, request_body(), **headers))
    else:
        assert post(server, request_body(), headers).status_code == 200

    def spans():
        return {span["name"]: span for span in server.spans if span["trace"] == trace}

    until(lambda: len(spans()) == 3)
    parents = {name: span["parent"] for name, span in spans().items()}
    assert parents == {"chat tiny": parent, "turn": spans()["chat tiny"]["id"], "llm_request": parent}


def test_requests_and_outputs_are_logged(server):
    response = post(server, request_body()).json()
    lines = server.process.log.splitlines()
    assert any(f"Received request {response['id']}_0" in line for line in lines)
    (log_line,) = [line for line in lines if f"Generated response {response['id']}:" in line]
    assert '"text":"Hello."' in log_line
    assert "completed" in log_line


def test_a_request_can_enable_the_models_messages(server):
    response = judged(stream(server.url, request_body(enable_response_messages=True), **HEADERS))[-1]["response"]
    (prompt,), (output,) = response["input_messages"], response["output_messages"]
    assert prompt["message"].endswith("Hi.<|im_end|>\n<|im_start|>assistant\n")
    assert output["message"] == "<think>Hm.</think>Hello."
    assert len(output["tokens"]) == response["usage"]["output_tokens"]
    assert "output_messages" not in post(server, request_body()).json()


@pytest.mark.skipif(RELEASE < (0, 32), reason="vLLM times a response since 0.32")
def test_the_response_has_timings(server):
    timings = post(server, request_body()).json()["metrics"]
    assert timings["time_to_first_token_ms"] > 0


def test_the_openapi_description_has_the_route_with_vllms_request(server):
    described = httpx.get(f"{server.url}/openapi.json", timeout=60).json()["paths"]["/v1/responses"]
    assert list(described) == ["post"]
    schema = described["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/ResponsesRequest"}
