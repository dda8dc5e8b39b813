"""Host and origin checks (against DNS rebinding), isolation between API keys, and errors for unknown routes and models."""

import logging
import socket

import httpx
import pytest
from for_each import for_each
from live.chunk_shapes import chunk
from live.command import serve_command
from live.engines import ANSWER, StagedEngine, steps
from live.upstream import failure, gateway, stream
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from interlock.serving.build import build
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http import answers as module
from interlock.serving.http.answers import ADVICE, UnservedLog, unserved
from interlock.serving.settings import Settings, SettingsError

REFUSED = (
    400,
    '{"error":{"message":"Invalid host header","type":"invalid_request_error","param":null,"code":"invalid_host"}}',
)
FOREIGN_PAGE = (
    "Pages of the origin 'https://evil.example' are not allowed. The operator of the server can allow it with --cors-origin."
)


def get(url, host, path="/v1/models", **headers):
    answer = httpx.get(f"{url}{path}", headers={"host": host, **headers})
    return answer.status_code, None if answer.status_code == 200 else answer.text


def test_a_server_on_loopback_accepts_only_local_hosts() -> None:
    with serve_command("--view") as command:
        port = command.url.rpartition(":")[2]
        allowed = ["127.0.0.1", "localhost", f"LocalHost:{port}", "app.localhost", "[::1]:80"]
        foreign = [
            "evil.example",
            f"evil.example:{port}",
            "127.evil.example",
            "localhost.evil.example",
            "[::2]",
            "a:b:c",
            "192.168.0.1",
        ]
        assert [get(command.url, host) for host in allowed] == [(200, None)] * len(allowed)
        assert [get(command.url, host) for host in foreign] == [REFUSED] * len(foreign)
        assert get(command.url, "evil.example", "/interlock/") == REFUSED
        assert get(command.url, "localhost", "/interlock/") == (200, None)
        assert [get(command.url, "10.0.0.7", path) for path in ("/health", "/ready")] == [(200, None)] * 2


def test_a_server_on_all_addresses_accepts_any_host_unless_hosts_are_listed() -> None:
    with serve_command("--host", "0.0.0.0", "--api-key", "k") as command:  # noqa: S104 - the test is about this address
        assert get(command.url, "any.example", authorization="Bearer k") == (200, None)
    with serve_command(
        "--host",
        "0.0.0.0",  # noqa: S104 - likewise
        INTERLOCK_ALLOWED_HOST="api.example,*.ours.example",
        INTERLOCK_API_KEY="k",
    ) as command:
        hosts = ["api.example", "a.ours.example:443", "ours.example", "other.example"]
        answers = [get(command.url, host, authorization="Bearer k") for host in hosts]
    assert answers == [(200, None), (200, None), REFUSED, REFUSED]


@pytest.mark.parametrize("host", ["a*b", "http://a.example", "a.example:80", "*example", "::1", ""])
def test_an_invalid_allowed_host_is_refused(host) -> None:
    with pytest.raises(SettingsError, match=r"^allowed_host: .* is no host, such as "):
        Settings(allowed_host=[host])


def test_the_config_file_sets_the_allowed_hosts(tmp_path) -> None:
    config = tmp_path / "interlock.toml"
    config.write_text('[serve]\nallowed_host = ["api.example"]\n')
    with serve_command("--config", config) as command:
        assert [get(command.url, host) for host in ("api.example", "localhost")] == [(200, None), REFUSED]


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ({"host": "evil.example", "origin": "http://evil.example"}, *REFUSED),
        ({"host": "api.example", "origin": "https://evil.example"}, 403, FOREIGN_PAGE),
    ],
)
def test_a_websocket_from_a_foreign_host_or_origin_is_refused_with_the_reason(serve, headers, status, reason) -> None:
    with serve(EmbeddedEngine(), allowed_host=["api.example"]) as url:
        address = url.replace("http", "ws") + "/v1/responses"
        fields = {name: value for name, value in headers.items() if name != "host"}
        with pytest.raises(InvalidStatus) as refused, connect_as(address, headers["host"], fields):
            pass
    answer = refused.value.response
    assert (answer.status_code, reason in answer.body.decode()) == (status, True)


def test_the_log_names_each_refused_host_once_up_to_twenty(serve, caplog) -> None:
    caplog.set_level("WARNING", "interlock.serving.http.app")
    hosts = ["api.example:443", "api.example", "*", "*.evil.example", "a/b", *(f"{number}.example" for number in range(30))]
    with serve(EmbeddedEngine(), allowed_host=["localhost"]) as url:
        assert get(url, "localhost") == (200, None)
        assert [get(url, host) for host in hosts] == [REFUSED] * len(hosts)
    first, *others = [record.getMessage() for record in caplog.records if record.name == "interlock.serving.http.app"]
    assert first == "refused the host 'api.example': to allow it, add --allowed-host api.example"
    assert [line.split()[3] for line in others] == [f"'{number}.example':" for number in range(19)]


def connect_as(address, host, headers):
    """Connect to an address in the name of another host."""
    place = address.removeprefix("ws://").partition("/")[0]
    machine, _, port = place.partition(":")
    return connect(address.replace(place, host), sock=socket.create_connection((machine, port)), additional_headers=headers)


@pytest.mark.parametrize(("path", "origin"), [("/v1/responses", "https://evil.example"), ("/v1/no", "http://testserver")])
def test_a_refused_websocket_is_closed_if_the_server_cannot_send_a_response(path, origin) -> None:
    app = build(Settings(), EmbeddedEngine())

    async def without_extension(scope, receive, send) -> None:
        await app({**scope, "extensions": {}} if scope["type"] == "websocket" else scope, receive, send)

    with (
        pytest.raises(WebSocketDisconnect) as raised,
        TestClient(without_extension).websocket_connect(path, headers={"origin": origin}),
    ):
        pass
    assert raised.value.code == 1008


# A response that one API key has stored does not exist for another


REQUEST = {"model": "staged", "input": "Hi"}
ONE, TWO = ({"authorization": f"Bearer {key}"} for key in ("one", "two"))


def statuses(url, response, headers):
    """The statuses of all requests about a response with a key."""
    one, item = f"{url}/v1/responses/{response['id']}", response["output"][0]["id"]
    reference = [{"type": "item_reference", "id": item}]
    requests = [
        httpx.get(one, headers=headers),
        httpx.get(f"{one}/input_items", headers=headers),
        httpx.post(f"{url}/v1/responses", json={**REQUEST, "previous_response_id": response["id"]}, headers=headers),
        httpx.post(f"{url}/v1/responses", json={**REQUEST, "input": reference}, headers=headers),
        httpx.post(f"{one}/cancel", headers=headers),
        httpx.delete(one, headers=headers),
    ]
    return [answer.status_code for answer in requests]


@pytest.mark.parametrize(
    ("share", "others", "own"), [(False, [404, 404, 400, 404, 404, 404], 200), (True, [200, 200, 200, 200, 400, 200], 404)]
)
def test_stored_responses_are_visible_to_other_keys_only_if_shared(serve, share, others, own) -> None:
    with serve(StagedEngine(steps(ANSWER)), api_key=["one", "two"], share_between_keys=share) as url:
        response = httpx.post(f"{url}/v1/responses", json=REQUEST, headers=ONE).json()
        assert statuses(url, response, TWO) == others
        assert httpx.get(f"{url}/v1/responses/{response['id']}", headers=ONE).status_code == own


def test_each_key_that_a_gateway_passes_on_is_a_tenant() -> None:
    with gateway(stream(chunk({"content": "Yes."}), chunk({}, "stop")), pass_key=True) as (url, upstream):
        request = {**REQUEST, "model": "m"}
        response = httpx.post(f"{url}/v1/responses", json=request, headers=ONE).json()
        unnamed = httpx.post(f"{url}/v1/responses", json=request).json()
        for headers, other in [(TWO, response), ({}, response), (ONE, unnamed)]:
            assert [status for status in statuses(url, other, headers) if status != 400] == [404] * 5
        assert httpx.get(f"{url}/v1/responses/{response['id']}", headers=ONE).status_code == 200
        assert httpx.get(f"{url}/v1/responses/{unnamed['id']}").status_code == 200
    assert [sent.headers.get("authorization") for sent in upstream.requests if sent.body] == ["Bearer one", None]


# Errors for unknown routes and models list the known ones, in the format of each API


SERVED = (
    "This server serves /v1/responses, /v1/responses/compact, /v1/responses/input_tokens, /v1/conversations, /v1/messages, "
    "/v1/messages/count_tokens, /v1/chat/completions, /v1/models, /health, /metrics, /ready."
)
KNOWN = "The model 'x' does not exist or you do not have access to it. This server has: interlock-embedded."
CHAT = {"model": "x", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
ERROR = {"message": KNOWN, "type": "invalid_request_error", "param": "model", "code": "model_not_found"}


def test_the_error_for_an_unknown_route_lists_the_served_ones(url) -> None:
    answer = httpx.post(f"{url}/v1/nothing", json={})
    error = {"type": "invalid_request_error", "param": None, "code": None}
    assert answer.status_code == 404
    assert answer.json() == {"error": {"message": f"Invalid URL (POST /v1/nothing). {SERVED}", **error}}


def test_advice_about_a_route_has_the_error_format_of_messages(url) -> None:
    answer = httpx.post(f"{url}/v1/v1/messages", json={}, headers={"anthropic-version": "2023-06-01"})
    advice = "Advice: the path has /v1 twice: remove it from the base URL of the client."
    message = f"Invalid URL (POST /v1/v1/messages). {advice} {SERVED}"
    assert (answer.status_code, answer.json()) == (
        404,
        {"type": "error", "error": {"type": "not_found_error", "message": message}, "request_id": answer.headers["x-request-id"]},
    )


@for_each(
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
        ("/test-1/chat/completions", "end the base URL of the client with /v1"),
    ],
)
def test_errors_for_known_unserved_routes_give_advice(path, advice) -> None:
    message = unserved("POST", path, []).message
    assert message.startswith(f"Invalid URL (POST {path}). Advice: ")
    assert advice in message


def test_served_routes_have_no_advice() -> None:
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
def test_the_error_for_an_unknown_model_lists_the_known_ones(url, path, body, answer) -> None:
    refused = httpx.post(f"{url}{path}", json=body)
    ids = {"request_id": refused.headers["x-request-id"]} if path == "/v1/messages" else {}
    assert (refused.status_code, refused.json()) == (404, {**answer, **ids})


def test_retrieving_an_unknown_model_lists_the_known_ones(url) -> None:
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


def test_a_gateway_in_front_of_another_lists_the_known_models_once() -> None:
    refusal = failure(404, {"error": {"message": "No model x. This server has: m, n.", "code": "model_not_found"}})
    with gateway(refusal, models=("m",)) as (url, _):
        unknown = httpx.post(f"{url}/v1/responses", json={"model": "x", "input": "Hi"}).json()["error"]
    assert unknown["message"] == "No model x. This server has: m."


def test_unserved_routes_are_logged_once_a_minute(monkeypatch, caplog) -> None:
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    log = UnservedLog()
    with caplog.at_level(logging.WARNING):
        for seconds, target in ((0, "GET /a"), (1, "GET /b"), (59, "GET /c"), (60, "GET /d")):
            now = 100.0 + seconds
            log.add(target)
    assert caplog.messages == ["no route serves GET /a", "no route serves GET /d, nor 2 earlier requests"]
