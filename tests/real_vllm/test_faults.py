"""Faults during a response on real servers: the engine's client fails, the engine aborts, or a parser raises an error."""

import httpx
import pytest
from playing import body, get, judged, stream, without_chance
from servers import HEADERS
from turns import ANSWER, Turn

from interlock.serving.responses.run import GENERATION_ERROR

WORDS = "One two three four five six seven eight nine ten."
TEXT = " ".join([WORDS] * 40)  # more than a busy machine delivers at once
OUTPUT = {"gpt_oss": f"{ANSWER}{TEXT}<|return|>", "qwen3": f"<think></think>{TEXT}<|im_end|>"}
EACH = pytest.mark.parametrize("server", ["harmony", "operated"], indirect=True)


def request_body(server, fault, **fields):
    model = server.setup.model
    request = body(model, Turn("", [OUTPUT[model]]), **fields)
    request["vllm_xargs"]["fault"] = fault
    return request


def stream_response(server, request):
    """Return the response of a legal stream."""
    return judged(stream(server.url, request, **HEADERS))[-1]["response"]


def whole(server, request):
    """Return the response without streaming."""
    answer = httpx.post(f"{server.url}/v1/responses", json=request, headers=HEADERS, timeout=60)
    assert answer.status_code == 200
    return answer.json()


def end(response):
    return response["status"], response["error"]


@EACH
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("raises", GENERATION_ERROR),
        ("cannot generate", "The engine cannot generate this."),
        ("is dead", "EngineCore encountered an issue. See stack trace (above) for the root cause."),
        ("error", "The engine failed while it generated the response."),
    ],
)
def test_an_engine_failure_fails_the_response_and_keeps_its_text(server, fault, text):
    request = request_body(server, fault)
    for response in (stream_response(server, request), whole(server, request)):
        assert end(response) == ("failed", {"code": "server_error", "message": text})
        (message,) = response["output"]
        assert message["status"] == "incomplete"
        assert message["content"][0]["text"].startswith("One")
        assert TEXT.startswith(message["content"][0]["text"])
        assert response["usage"]["output_tokens"] > 0


@EACH
@pytest.mark.parametrize("fault", ["abort", "aborts"])
def test_an_engine_abort_cancels_the_response(server, fault):
    for response in (stream_response(server, request_body(server, fault)), whole(server, request_body(server, fault))):
        assert end(response) == ("cancelled", None)
        assert [item["status"] for item in response["output"]] == ["incomplete"]
        assert response["usage"]["output_tokens"] > 0


@EACH
def test_the_server_works_after_a_fault(server):
    stream_response(server, request_body(server, "raises"))
    request = request_body(server, "")
    response = stream_response(server, request)
    assert (response["status"], response["output"][0]["content"][0]["text"]) == ("completed", TEXT)
    assert without_chance(whole(server, request)) == without_chance(response)


@pytest.mark.parametrize("server", ["operated"], indirect=True)
def test_a_parser_error_fails_the_response(server):
    written = OUTPUT["qwen3"].replace("<|im_end|>", " Eleven, twelve, thirteen.<|im_end|>")  # see failing_parser.py
    turn = Turn("", [written], body={"tools": [{"type": "function", "name": "f"}]})
    request = body("qwen3", turn)
    response = stream_response(server, request)
    assert end(response) == end(whole(server, request)) == ("failed", {"code": "server_error", "message": GENERATION_ERROR})
    assert response["output"][0]["content"][0]["text"].startswith(WORDS)


@pytest.mark.parametrize("server", ["harmony"], indirect=True)
def test_a_fault_of_a_background_response_ends_all_its_streams(server):
    background = httpx.post(f"{server.url}/v1/responses", json=request_body(server, "raises", background=True), timeout=60).json()
    url = f"{server.url}/v1/responses/{background['id']}"
    readings = [judged(get(url, params={"stream": "true"}).content) for _ in range(2)]
    assert readings[0] == readings[1]
    assert readings[0][-1]["response"]["error"]["message"] == GENERATION_ERROR
    assert get(url).json() == readings[0][-1]["response"]
