"""Log lines: each has its time, level, request, response, model and upstream, and none has content or keys."""

import json
import logging
import os
import re
import sys
from collections import Counter
from contextvars import copy_context
from socket import gethostname

import httpx
import pytest
from click.testing import CliRunner
from live.command import serve_command
from live.engines import ANSWER, Gate, StagedEngine, step
from openai import OpenAI
from prometheus_client import REGISTRY
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from interlock.serving.build import build
from interlock.serving.cli.commands import app
from interlock.serving.http.server import ServerThread
from interlock.serving.requests.logs import FIELDS, JsonFormatter, TextFormatter, begin_logs, log_with
from interlock.serving.settings import Settings

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
SENTENCE = "a secret sentence"
QUESTION = {"model": "interlock-embedded", "input": SENTENCE}
FIGURES = {"first_event_seconds", "seconds", "time", "response_id", "owner"}


def objects(lines):
    """The lines as JSON."""
    return [json.loads(line) for line in lines]


def responses(lines):
    """The fields of the lines about responses, without ids and times."""
    ends = [line for line in lines if line["logger"].endswith(".responses.service")]
    assert [line for line in ends if not line.keys() >= FIGURES or not re.fullmatch(TIME, line["time"])] == []
    return [{name: value for name, value in line.items() if name not in FIGURES | {"message"}} for line in ends]


def test_a_response_has_one_line_of_text() -> None:
    with serve_command("--log-level", "info") as command:
        answer = httpx.post(f"{command.url}/v1/responses", json=QUESTION, headers={"x-request-id": "mine-1"})
    response = answer.json()
    assert answer.headers.get_list("x-request-id") == ["mine-1"]
    (line,) = [line for line in command.lines if ".responses.service " in line]
    usage = response["usage"]
    pattern = (
        rf"{TIME} INFO interlock\.serving\.responses\.service request_id=mine-1 response_id={response['id']} "
        rf"model=interlock-embedded: {response['id']}: completed, 2 items, {usage['input_tokens']} tokens in, "
        rf"{usage['output_tokens']} out, first event after \d+\.\d{{3}} s, \d+\.\d{{3}} s, "
        rf"owner {re.escape(gethostname())}:{os.getpid()}:[0-9a-f]{{8}}"
    )
    assert re.fullmatch(pattern, line)


def test_a_line_names_the_owner_of_the_response_that_the_store_names(tmp_path, caplog) -> None:
    caplog.set_level("INFO", "interlock.serving.responses.service")
    store, gate = f"sqlite:{tmp_path}/store.db", Gate()
    with ServerThread(build(Settings(store=store), StagedEngine([step(ANSWER), gate, step("", "stop")]))) as url:
        answer = httpx.post(f"{url}/v1/responses", json={"model": "staged", "input": "Hi", "background": True}).json()
        assert gate.reached.wait(10)
        (line,) = [
            line for line in CliRunner().invoke(app, ["store", "info", "--store", store]).output.splitlines() if " runs " in line
        ]
        gate.open()
        httpx.get(f"{url}/v1/responses/{answer['id']}?stream=true")
    (fields,) = [getattr(record, FIELDS) for record in caplog.records if record.name.endswith(".responses.service")]
    assert line == f"{answer['id']} runs on {fields['owner']} (lease 1)"


def test_every_answer_has_a_request_id_and_an_invalid_one_is_replaced() -> None:
    with serve_command("--log-format", "json", "--log-level", "debug", "--view", "--api-key", "k") as command:
        key = {"authorization": "Bearer k"}
        answers = [
            httpx.get(f"{command.url}/health", headers={"x-request-id": ""}),
            httpx.get(f"{command.url}/v1/nothing", headers={**key, "x-request-id": "two words"}),
            httpx.get(f"{command.url}/v1/models", headers={"x-request-id": "x" * 129}),
            httpx.get(f"{command.url}/interlock/", headers={"x-request-id": "\xe4".encode("latin-1")}),
        ]
    assert [answer.status_code for answer in answers] == [200, 404, 401, 401]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert [each for each in ids if not re.fullmatch("req_[0-9a-f]+", each)] == []
    lines = [line for line in objects(command.lines) if line["logger"] == "uvicorn.access"]
    assert [line["request_id"] for line in lines] == ids
    assert [(line["method"], line["path"], line["http_status"]) for line in lines] == [
        ("GET", "/health", 200),
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/models", 401),
        ("GET", "/interlock/", 401),
    ]
    assert [line["message"].partition(" - ")[0] for line in lines] == [line["client"] for line in lines]


@pytest.mark.parametrize(("level", "of_success"), [("info", []), ("debug", ["debug"])])
def test_a_probe_that_succeeds_is_logged_only_at_debug(level, of_success) -> None:
    with serve_command("--log-format", "json", "--log-level", level, "--api-key", "k") as command:
        with httpx.Client(base_url=command.url, headers={"authorization": "Bearer k"}) as client:
            for path in ("/health", "/ready?from=balancer", "/metrics", "/v1/models"):
                assert client.get(path).status_code == 200
        assert httpx.get(f"{command.url}/metrics").status_code == 401
    lines = [line for line in objects(command.lines) if line["logger"] == "uvicorn.access"]
    assert [(line["message"].partition(" - ")[2], line["level"]) for line in lines] == [
        *(('"GET /health HTTP/1.1" 200', each) for each in of_success),
        *(('"GET /ready?from=balancer HTTP/1.1" 200', each) for each in of_success),
        *(('"GET /metrics HTTP/1.1" 200', each) for each in of_success),
        ('"GET /v1/models HTTP/1.1" 200', "info"),
        ('"GET /metrics HTTP/1.1" 401', "info"),
    ]


def refused_so_far():
    """How many requests each reason has refused."""
    (metric,) = [each for each in REGISTRY.collect() if each.name == "interlock_refused_requests"]
    return Counter({each.labels["reason"]: int(each.value) for each in metric.samples if each.name.endswith("_total")})


def test_the_line_of_a_refused_request_has_the_tenant_model_reason_and_parameter() -> None:
    before = refused_so_far()
    with serve_command(
        *("--log-level", "info", "--log-format", "json", "--api-key", "k", "--api-key", "l", "--view"),
        *("--cors-origin", "https://page.test", "--allowed-host", "127.0.0.1"),
    ) as command:
        with httpx.Client(base_url=command.url) as client:
            key = {"authorization": "Bearer k"}
            client.post("/v1/responses", json=QUESTION)
            client.post("/v1/responses", json={**QUESTION, "model": "gone"}, headers=key)
            client.post("/v1/responses", json={**QUESTION, "temperature": SENTENCE}, headers=key)
            client.post("/v1/responses", json={**QUESTION, "input": [{"type": SENTENCE}]}, headers=key)
            client.post("/v1/responses", json={**QUESTION, SENTENCE: 1, "metadata": {SENTENCE: 1}}, headers=key)
            client.post("/v1/responses", json=QUESTION, headers=key)
            client.post("/v1/responses/input_tokens", json={**QUESTION, "model": "x" * 200}, headers=key)
            client.get("/v1/responses", headers=key)
            client.get("/v1/nothing", headers=key)
            client.get("/v1/models/gone", headers={**key, "anthropic-version": "2023-06-01"})
            client.get("/v1/models", headers={**key, "host": "evil.example"})
            client.get("/interlock/")
            client.options("/v1/responses", headers={"origin": "https://evil.test", "access-control-request-method": "POST"})
        address = f"{command.url.replace('http', 'ws')}/v1/responses"
        with pytest.raises(InvalidStatus):
            connect(address)
        with connect(address, additional_headers=key) as socket:
            socket.send(json.dumps({"type": "response.create", **QUESTION, "temperature": SENTENCE}))
            socket.recv()
    names = ("tenant", "model", "reason", "param")
    refusals = [line for line in objects(command.lines) if line["message"].startswith("refused a request")]
    lines = [line for line in objects(command.lines) if '" ' in line["message"]] + refusals
    found = [(line["message"].partition(" - ")[2] or line["message"], *map(line.get, names)) for line in lines]
    (tenant,) = {tenant for _, tenant, *_ in found if tenant}
    assert found == [
        ('"POST /v1/responses HTTP/1.1" 401', None, None, "invalid_api_key", None),
        ('"POST /v1/responses HTTP/1.1" 404', tenant, "gone", "model_not_found", "model"),
        ('"POST /v1/responses HTTP/1.1" 400', tenant, "interlock-embedded", "invalid_type", "temperature"),
        ('"POST /v1/responses HTTP/1.1" 400', tenant, "interlock-embedded", "invalid_value", "input[0].type"),
        ('"POST /v1/responses HTTP/1.1" 400', tenant, "interlock-embedded", "invalid_type", None),
        ('"POST /v1/responses HTTP/1.1" 200', tenant, "interlock-embedded", None, None),
        ('"POST /v1/responses/input_tokens HTTP/1.1" 404', tenant, "x" * 100, "model_not_found", "model"),
        ('"GET /v1/responses HTTP/1.1" 405', tenant, None, "http_405", None),
        ('"GET /v1/nothing HTTP/1.1" 404', tenant, None, "http_404", None),
        ('"GET /v1/models/gone HTTP/1.1" 404', tenant, None, "model_not_found", "model"),
        ('"GET /v1/models HTTP/1.1" 400', None, None, "invalid_host", None),
        ('"GET /interlock/ HTTP/1.1" 401', None, None, "http_401", None),
        ('"OPTIONS /v1/responses HTTP/1.1" 400', None, None, "http_400", None),
        ('"WebSocket /v1/responses" 401', None, None, "invalid_api_key", None),
        ('"WebSocket /v1/responses" [accepted]', tenant, None, None, None),
        (
            "refused a request with status 400: invalid_type, temperature",
            tenant,
            "interlock-embedded",
            "invalid_type",
            "temperature",
        ),
    ]
    assert SENTENCE not in "\n".join(command.lines)
    assert refused_so_far() - before == Counter(reason for *_, reason, _ in found if reason)


def test_the_message_of_a_refusal_is_logged_at_debug_because_it_may_quote_the_client() -> None:
    with serve_command("--log-level", "debug") as command:
        answer = httpx.post(f"{command.url}/v1/responses", json={**QUESTION, "input": [{"type": SENTENCE}]})
    message = answer.json()["error"]["message"]
    lines = [line.partition(": ")[2] for line in command.lines if " DEBUG interlock.serving.http.answers " in line]
    assert lines == [f"refused: {message}" if "'input[0].type'" in message else f"refused: input[0].type: {message}"]


def test_the_log_format_comes_from_the_environment_or_a_file(tmp_path) -> None:
    config = tmp_path / "interlock.toml"
    config.write_text('[serve]\nlog_format = "json"\nlog_level = "info"\n')
    for options, variables in (([], {"INTERLOCK_LOG_FORMAT": "json"}), (["--config", config], {})):
        with serve_command("--log-level", "info", *options, **variables) as command:
            OpenAI(base_url=f"{command.url}/v1", api_key="-").responses.create(**QUESTION)
        assert [line["status"] for line in responses(objects(command.lines))] == ["completed"]


def test_the_lines_of_a_gateway_name_its_upstream_and_never_content_or_keys() -> None:
    with serve_command("--api-key", "upstream key") as upstream:
        options = ["--upstream", upstream.url, "--upstream-key", "upstream key", "--api-key", "key one", "--api-key", "key two"]
        with serve_command(*options, "--log-format", "json", "--log-level", "debug") as command:
            headers = {"x-request-id": "mine"}
            client = OpenAI(base_url=f"{command.url}/v1", api_key="key one", default_headers=headers)
            client.responses.create(**QUESTION)
            client.responses.create(**QUESTION, max_output_tokens=16)
            client.chat.completions.create(model="interlock-embedded", messages=[{"role": "user", "content": SENTENCE}])
            message = {"model": "interlock-embedded", "max_tokens": 500, "messages": [{"role": "user", "content": SENTENCE}]}
            httpx.post(f"{command.url}/v1/messages", json=message, headers={**headers, "x-api-key": "key one"})
            with connect(
                f"{command.url.replace('http', 'ws')}/v1/responses",
                additional_headers={**headers, "authorization": "Bearer key one"},
            ) as socket:
                socket.send(json.dumps({"type": "response.create", **QUESTION}))
                while json.loads(socket.recv())["type"] != "response.completed":
                    pass
    common = {
        "level": "info",
        "logger": "interlock.serving.responses.service",
        "request_id": "mine",
        "model": "interlock-embedded",
        "upstream": f"{upstream.url}/v1",
        "tenant": "34e92212e0f81f5a",
    }
    lines = [line for line in responses(objects(command.lines)) if "upstream" in line]  # both servers log in this process
    tokens = {line.pop("input_tokens") for line in lines} | {line.pop("output_tokens") for line in lines}
    assert min(tokens) > 0
    whole = {**common, "status": "completed", "items": 2}
    cut = {**common, "status": "incomplete", "reason": "max_output_tokens", "items": 2}
    assert lines == [whole, cut, whole, whole, whole]
    text = "\n".join(command.lines)
    assert [secret for secret in (SENTENCE, "secret", "key one", "key two", "upstream key") if secret in text] == []


def test_a_log_message_stays_on_its_line_and_a_traceback_follows() -> None:
    try:
        int("broken")
    except ValueError:
        record = logging.LogRecord("interlock", logging.ERROR, "", 0, "a\nb %s", ("c",), sys.exc_info())
    record.created = 0.5
    setattr(record, FIELDS, {"items": 2})

    def write():
        begin_logs("r\n1")
        log_with(model="m\x1b[2J")
        return TextFormatter().format(record), JsonFormatter().format(record)

    text, line = copy_context().run(write)
    first, *traceback = text.splitlines()
    assert first == "1970-01-01T00:00:00.500Z ERROR interlock request_id=r\\x0a1 model=m\\x1b[2J: a\\x0ab c"
    assert (traceback[0], traceback[-1]) == (
        "Traceback (most recent call last):",
        "ValueError: invalid literal for int() with base 10: 'broken'",
    )
    value = json.loads(line)
    assert value.pop("exception").endswith("ValueError: invalid literal for int() with base 10: 'broken'")
    assert value == {
        "time": "1970-01-01T00:00:00.500Z",
        "level": "error",
        "logger": "interlock",
        "message": "a\nb c",
        "request_id": "r\n1",
        "model": "m\x1b[2J",
        "items": 2,
    }
