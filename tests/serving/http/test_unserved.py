"""Whoever calls a route or a model that is not served learns what is, in the words of each API."""

import logging

import httpx
import pytest
from each import each
from live.upstream import failure, gateway

from interlock.serving.http import unserved as module
from interlock.serving.http.unserved import ADVICE, UnservedLog, unserved

SERVED = (
    "This server serves /v1/responses, /v1/responses/compact, /v1/responses/input_tokens, /v1/conversations, /v1/messages, "
    "/v1/messages/count_tokens, /v1/chat/completions, /v1/models, /health, /metrics, /ready."
)
KNOWN = "The model 'x' does not exist or you do not have access to it. This server has: interlock-embedded."
CHAT = {"model": "x", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
ERROR = {"message": KNOWN, "type": "invalid_request_error", "param": "model", "code": "model_not_found"}


def test_an_unknown_route_says_what_is_served(url) -> None:
    answer = httpx.post(f"{url}/v1/nothing", json={})
    error = {"type": "invalid_request_error", "param": None, "code": None}
    assert answer.status_code == 404
    assert answer.json() == {"error": {"message": f"Invalid URL (POST /v1/nothing). {SERVED}", **error}}


def test_a_known_api_has_advice_in_the_words_of_messages(url) -> None:
    answer = httpx.post(f"{url}/v1/v1/messages", json={}, headers={"anthropic-version": "2023-06-01"})
    advice = "Advice: the path has /v1 twice: remove it from the base URL of the client."
    message = f"Invalid URL (POST /v1/v1/messages). {advice} {SERVED}"
    assert (answer.status_code, answer.json()) == (
        404,
        {"type": "error", "error": {"type": "not_found_error", "message": message}, "request_id": answer.headers["x-request-id"]},
    )


@each(
    ("path", "advice"),
    [
        ("/responses", "add /v1 to the base URL"),
        ("/chat/completions", "add /v1 to the base URL"),
        ("/v1/responses/", "remove the slash"),
        ("/v1/completions", "continues a text only in"),
        ("/v1/embeddings", "send these requests to the model server itself"),
        ("/v2/rerank", "send these requests to the model server itself"),
        ("/v1/images/generations", "pictures, sound and films"),
        ("/v1/assistants", "use /v1/responses with /v1/conversations"),
        ("/v1/threads/t/runs", "use /v1/responses with /v1/conversations"),
        ("/v1/realtime", "takes WebSockets for text"),
        ("/v1/files", "input_file"),
        ("/v1/batches", "background: true"),
        ("/v1/fine_tuning/jobs", "a service of OpenAI"),
        ("/api/chat", "Ollama"),
        ("/openai/deployments/d/chat/completions", "Azure"),
        ("/v1beta/models/m:generateContent", "Gemini"),
        ("/interlock/", "--view"),
    ],
)
def test_known_apis_have_advice(path, advice) -> None:
    message = unserved("POST", path, []).message
    assert message.startswith(f"Invalid URL (POST {path}). Advice: ")
    assert advice in message


def test_no_advice_is_for_a_route_that_is_served() -> None:
    served = [path.strip(".") for path in SERVED.removeprefix("This server serves ").split(", ")]
    served += ["/v1/responses/resp_1", "/v1/models/m"]
    assert [path for path in served if any(module.re.fullmatch(pattern, path) for pattern in ADVICE)] == []


@pytest.mark.parametrize(
    ("path", "body", "answer"),
    [
        ("/v1/responses", {"model": "x", "input": "Hi"}, {"error": ERROR}),
        ("/v1/chat/completions", CHAT, {"error": ERROR}),
        (
            "/v1/messages",
            CHAT,
            {"type": "error", "error": {"type": "not_found_error", "message": f"model: {KNOWN}"}},
        ),
    ],
)
def test_an_unknown_model_lists_the_known_ones(url, path, body, answer) -> None:
    refused = httpx.post(f"{url}{path}", json=body)
    ids = {"request_id": refused.headers["x-request-id"]} if path == "/v1/messages" else {}
    assert (refused.status_code, refused.json()) == (404, {**answer, **ids})


def test_a_list_of_models_tells_the_known_ones_too(url) -> None:
    assert httpx.get(f"{url}/v1/models/x").json() == {"error": ERROR}


def test_a_gateway_adds_the_known_models_to_the_refusal_of_its_upstream() -> None:
    refusal = failure(404, {"error": {"message": "No model x.", "code": "model_not_found"}})
    names = tuple(f"m{number}" for number in range(22))
    with gateway(refusal, models=names) as (url, _):
        unknown = httpx.post(f"{url}/v1/responses", json={"model": "x", "input": "Hi"}).json()["error"]
        known = httpx.post(f"{url}/v1/responses", json={"model": "m1", "input": "Hi"}).json()["error"]
    listed = ", ".join(names[:20])
    assert unknown["message"] == f"No model x. This server has: {listed} and 2 more."
    assert known["message"] == "No model x."


def test_unserved_routes_are_logged_once_a_minute(monkeypatch, caplog) -> None:
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    log = UnservedLog()
    with caplog.at_level(logging.WARNING):
        for seconds, target in ((0, "GET /a"), (1, "GET /b"), (59, "GET /c"), (60, "GET /d")):
            now = 100.0 + seconds
            log.add(target)
    assert caplog.messages == ["no route serves GET /a", "no route serves GET /d, nor 2 earlier requests"]
