"""Every fault of an upstream: an HTTP error before the head of its answer, a legal `response.failed` after it."""

import asyncio
import json
import socket
import threading
from contextlib import contextmanager

import httpx
import pytest
from live.chunk_shapes import chunk
from live.upstream import CUT, PATIENCE, STALL, Reply, ScriptedUpstream, event, failure, gateway, serve_upstream, stream
from live.wire import bodies
from prometheus_client import REGISTRY
from websockets.sync.client import connect

from interlock.serving.build import build
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.upstreams import ModelList, upstream_of
from interlock.serving.http.server import ServerThread
from interlock.serving.requests.logs import JsonFormatter, begin_logs
from interlock.serving.settings import Settings, UpstreamSettings

HELLO = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hello"}, "finish_reason": None}]}
STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
GOOD = stream(HELLO, STOP)
BODY = {"model": "m", "input": "Hi", "stream": True}
MALFORMED = "The upstream server sent a chunk that is malformed:"
KEY = "sk-secret-0123456789"


def post(url, **fields):
    return httpx.post(f"{url}/v1/responses", json={**BODY, **fields}, timeout=PATIENCE)


def logged(caplog):
    """The level, text and traceback of each log record about calls, without those about lists of models."""
    lines = [(record.levelname, record.getMessage(), record.exc_info) for record in caplog.records if "interlock" in record.name]
    return [line for line in lines if "list its models" not in line[1] and line[0] != "DEBUG"]


def failed(url):
    """The error of a stream that begins and fails, and is legal."""
    answer = post(url)
    assert answer.status_code == 200
    *_, last = bodies(answer.content)
    assert last["type"] == "response.failed"
    return last["response"]["error"]


@pytest.mark.parametrize("status", [400, 403, 404, 413, 422, 429, 500, 503])
@pytest.mark.parametrize("streams", [True, False])
def test_an_error_before_the_first_event_keeps_its_status_and_is_logged_unless_the_client_caused_it(status, streams, caplog):
    body = {"error": {"message": f"No {KEY}.", "type": "some_error", "code": "some_code", "param": "messages"}}
    with gateway(failure(status, body), key=KEY) as (url, _):
        answer = post(url, stream=streams)
    expected = {"message": "No ***.", "type": "some_error", "param": None, "code": "some_code"}
    assert (answer.status_code, answer.json()) == (status, {"error": expected})
    warning = ("WARNING", f"the call failed with status {status}: No ***.", None)
    assert logged(caplog) == ([] if status in {400, 404, 413, 422} else [warning])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"object": "error", "message": "Too long.", "code": 400}, "Too long."),
        ({"detail": "Not here."}, "Not here."),
        ({"error": "model 'x' not found"}, "model 'x' not found"),
        ({"error": {"message": f"Incorrect API key provided: {KEY}."}}, "Incorrect API key provided: ***."),
        ("<html>Bad Gateway</html>", "The upstream server answered with status 400."),
        ([], "The upstream server answered with status 400."),
        (
            {"detail": [{"type": "missing", "loc": ["body", "model"], "msg": "Field required"}, {"msg": "And more"}]},
            "body.model: Field required; And more",
        ),
        ({"error": {"message": {"detail": "Nested."}}}, "Nested."),
        ({"error": {"message": ["One.", "Two."]}}, "One.; Two."),
        ({"error": ["One.", {"message": "Two."}]}, "One.; Two."),
        ({"detail": {"reason": 7}}, '{"reason":7}'),
        ({"error": {}, "detail": "Here."}, "Here."),
        ({"message": "Plain."}, "Plain."),
        ({"error": "x" * 1990 + KEY}, "x" * 1990 + "***"),
    ],
)
def test_every_shape_of_an_error_is_read_and_keys_are_redacted(body, message):
    with gateway(failure(400, body), key=KEY) as (url, _):
        assert post(url).json()["error"]["message"] == message


@pytest.mark.parametrize("body", ["Busy.", {"error": {"message": "Busy.", "code": "their_own"}}])
@pytest.mark.parametrize("status", [500, 503, 529])
def test_a_failing_upstream_is_counted_by_its_status_whatever_its_code(status, body):
    before = counted("interlock_refused_requests_total", reason=f"http_{status}")
    with gateway(failure(status, body), retries=0) as (url, _):
        assert post(url).status_code == status
    assert counted("interlock_refused_requests_total", reason=f"http_{status}") == before + 1


def test_a_status_without_a_name_is_passed_on():
    with gateway(failure(529, []), retries=0) as (url, _):
        answer = post(url)
    assert (answer.status_code, answer.json()["error"]["message"]) == (529, "The upstream server answered with status 529.")


def test_an_unreachable_upstream_gives_502_and_is_not_ready(serve):
    upstream = upstream_of(UpstreamSettings(url="http://127.0.0.1:1", retries=0))
    with serve(Gateway([upstream])) as url:
        answer = post(url)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
        assert httpx.get(f"{url}/ready").status_code == 503
        assert httpx.get(f"{url}/health").status_code == 200
        assert httpx.get(f"{url}/v1/models").json()["data"] == []


def test_an_upstream_without_an_answer_gives_504(serve, caplog):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        upstream = upstream_of(UpstreamSettings(url=f"http://127.0.0.1:{silent.getsockname()[1]}", first_timeout=0.1))
        with serve(Gateway([upstream])) as url:
            answer = post(url)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "upstream_timeout")
    assert logged(caplog) == [("WARNING", "The upstream server sent nothing for 0.1 seconds.", None)]


def test_a_retry_after_is_passed_on():
    with gateway(failure(429, {"error": {"message": "Slow down."}}, retry_after="30"), retries=2) as (url, upstream):
        answer = post(url)
    assert (answer.status_code, answer.headers["retry-after"], len(upstream.bodies)) == (429, "30", 1)


@pytest.mark.parametrize("header", ["nan", "inf", "soon"])
def test_an_invalid_retry_after_is_ignored(header, monkeypatch):
    monkeypatch.setattr("interlock.serving.engines.upstream.upstream_client.BACKOFF", 0)
    with gateway(failure(503, {"error": {"message": "Busy."}}, retry_after=header), retries=1) as (url, upstream):
        answer = post(url)
    assert (answer.status_code, answer.headers["retry-after"], len(upstream.bodies)) == (503, "1", 2)


@pytest.mark.parametrize(
    "fault",
    [
        failure(429, {"error": {"message": "Slow down."}}, retry_after="0"),
        failure(503, "busy", retry_after="Thu, 01 Jan 2015 00:00:00 GMT"),
        failure(500, "busy"),
    ],
)
def test_a_fault_before_the_upstream_begins_is_retried(fault, monkeypatch):
    monkeypatch.setattr("interlock.serving.engines.upstream.upstream_client.BACKOFF", 0)
    before = retries(fault.status)
    with gateway(fault, fault, GOOD, retries=2) as (url, upstream):
        *_, last = bodies(post(url).content)
    assert (last["type"], len(upstream.bodies), retries(fault.status) - before) == ("response.completed", 3, 2)


@pytest.mark.parametrize(
    "fault",
    [
        Reply((CUT,)),
        Reply((b": nothing yet\n\n", CUT)),
        Reply(()),
        Reply((b"<html>",), 200, {"content-type": "text/html"}),
        Reply((b"{",), 200, {"content-type": "application/json"}),
        Reply((b" \n" * 9,), 200, {"content-type": "text/plain"}),
        Reply((event({"error": {"message": "Busy.", "code": 503}}),)),
    ],
)
def test_a_generation_that_the_upstream_has_begun_is_not_retried(fault):
    with gateway(fault, GOOD, retries=2) as (url, upstream):
        assert failed(url)["code"] in ("upstream_disconnected", "upstream_error")
    assert len(upstream.bodies) == 1


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/octet-stream", "application/json", "text/html; charset=x", None]
)
@pytest.mark.parametrize("size", [1, 1000])
def test_an_event_stream_under_any_media_type_is_read(media_type, size):
    data = b"\xef\xbb\xbf\n: begins\n\n" + b"".join(GOOD.body)
    pieces = tuple(data[at : at + size] for at in range(0, len(data), size))
    headers = {} if media_type is None else {"content-type": media_type}
    with gateway(Reply(pieces, 200, headers), retries=2) as (url, upstream):
        last = bodies(post(url).content)[-1]
    assert (last["type"], last["response"]["output"][0]["content"][0]["text"]) == ("response.completed", "Hello")
    assert len(upstream.bodies) == 1


@pytest.mark.parametrize("media_type", ["text/plain", "application/octet-stream", "text/event-stream", "application/json", None])
def test_a_whole_answer_under_any_media_type_is_read(media_type):
    whole = {"choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}]}
    headers = {} if media_type is None else {"content-type": media_type}
    for text in (json.dumps(whole), json.dumps(whole, indent=2), json.dumps(whole) + "\n"):
        with gateway(Reply((text[:3].encode(), text[3:].encode()), 200, headers)) as (url, _):
            last = bodies(post(url).content)[-1]
        assert (last["type"], last["response"]["output"][0]["content"][0]["text"]) == ("response.completed", "Hello")


def test_a_refused_request_is_not_retried():
    with gateway(failure(400, {"error": {"message": "No."}}), GOOD, retries=2) as (url, upstream):
        assert post(url).status_code == 400
    assert len(upstream.bodies) == 1


@pytest.mark.parametrize(
    ("rest", "code", "message"),
    [
        ((CUT,), "upstream_disconnected", "The connection to the upstream server broke before the end of its answer."),
        ((), "upstream_disconnected", "The upstream server ended its stream before the end of the turn."),
        ((event(b"[DONE]"),), "upstream_disconnected", "The upstream server ended its stream before the end of the turn."),
        ((b'data: {"choices": [{',), "upstream_error", f"{MALFORMED} Input data was truncated."),
        ((b"<html><body>502 Bad Gateway</body></html>",), "upstream_disconnected", None),
        ((event({"error": {"message": "Out of memory.", "code": 500}}),), "upstream_error", "Out of memory."),
        ((event({"error": {"message": "Too many.", "code": "rate_limit_exceeded"}}),), "rate_limit_exceeded", "Too many."),
        ((event({"error": {"message": "Too many.", "code": 429}}),), "rate_limit_exceeded", "Too many."),
        ((event({"error": {"message": "Too long a context length.", "code": "400"}}),), "invalid_prompt", None),
        ((event({"error": {"title": "Busy."}}),), "upstream_error", "Busy."),
        ((event({"object": "error", "message": "Too many.", "code": 429}),), "rate_limit_exceeded", "Too many."),
        ((event({"object": "error", "message": "Aborted."}),), "upstream_error", "Aborted."),
        ((b"event: error\n" + event({"error": "boom"}),), "upstream_error", "boom"),
        ((event([{"error": {"message": "Too many.", "code": 429}}]),), "rate_limit_exceeded", "Too many."),
        ((event({"errors": [{"message": "Too many.", "code": 429}]}),), "rate_limit_exceeded", "Too many."),
        ((event({"errors": ["Busy.", "Sorry."]}),), "upstream_error", "Busy.; Sorry."),
        ((event({"Message": "Busy."}),), "upstream_error", "Busy."),
        ((event({"title": "Busy.", "status": 429}),), "rate_limit_exceeded", "Busy."),
        ((event([{"a": 1}]),), "upstream_error", f"{MALFORMED} Expected `object`, got `array`."),
        ((b'{"error": {"message": "Too many.", "code": 429}}',), "rate_limit_exceeded", "Too many."),
        ((json.dumps({"error": {"message": "Busy."}}, indent=2).encode(),), "upstream_error", "Busy."),
        ((b'[{"error": {"message": "Busy."}}]\n\n',), "upstream_error", "Busy."),
        ((b"{not JSON}",), "upstream_disconnected", None),
        ((b"event: error\ndata: Busy.\n\n",), "upstream_error", "Busy."),
        ((b"event:error\n" + event({"message": "Too many.", "code": 429}),), "rate_limit_exceeded", "Too many."),
        ((event({"id": "x"}),), "upstream_error", "The upstream server sent a chunk without choices."),
        ((event({"choices": [{"index": 0}]}),), "upstream_disconnected", None),
        ((event({"choices": [{"delta": {}, "finish_reason": ""}]}), event(b"[DONE]")), "upstream_disconnected", None),
        ((event({"choices": [], "usage": {"prompt_tokens": 1}}),), "upstream_disconnected", None),
        ((event({"choices": [{"delta": {"content": 7}}]}),), "upstream_error", None),
        ((event({"choices": [{"delta": {}, "finish_reason": "error"}]}), event(b"[DONE]")), "server_error", None),
    ],
)  # fmt: skip
def test_a_fault_in_the_middle_is_a_failed_response_with_the_text_so_far(rest, code, message):
    with gateway(Reply((event(HELLO), *rest))) as (url, _):
        answer = post(url)
    *_, last = bodies(answer.content)
    error = last["response"]["error"]
    assert (last["type"], error["code"]) == ("response.failed", code)
    assert message in (None, error["message"])
    assert last["response"]["output"][0]["content"][0]["text"] == "Hello"


@pytest.mark.parametrize("reason", ["UNEXPECTED_TOOL_CALL", "other", "eos-token", "stop"])
@pytest.mark.parametrize("fields", [{"delta": {}}, {"message": {"content": ""}}])
def test_a_turn_without_output_that_ends_for_an_unknown_reason_fails(reason, fields):
    finish = {"choices": [{**fields, "finish_reason": reason}]}
    with gateway(Reply((event(finish), event(b"[DONE]")))) as (url, _):
        response = bodies(post(url).content)[-1]["response"]
    if reason in ("stop", "eos-token"):
        assert (response["status"], response["output"]) == ("completed", [])
    else:
        message = f"The upstream server ended the turn without output, and gave the reason '{reason.lower()}'."
        assert response["error"] == {"code": "upstream_error", "message": message, "type": "server_error"}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"type": "error", "code": 429, "message": "No."}, "rate_limit_exceeded"),
        ({"type": "error", "error": {"code": "429", "message": "No."}}, "rate_limit_exceeded"),
        ({"type": "error", "code": 400, "message": "No."}, "invalid_prompt"),
        ({"type": "error", "code": "model_error", "message": "No."}, "model_error"),
        ({"type": "response.failed", "response": {"error": {"code": 429, "message": "No."}}}, "rate_limit_exceeded"),
        ({"error": {"code": 429, "message": "No."}}, "rate_limit_exceeded"),
        ([{"error": {"code": 429, "message": "No."}}], "rate_limit_exceeded"),
        ({"message": "No."}, "upstream_error"),
    ],
)
def test_error_codes_of_a_responses_upstream_are_translated(error, code):
    with gateway(Reply((event(error),)), api="responses") as (url, _):
        assert {**failed(url), "type": "any"} == {"code": code, "message": "No.", "type": "any"}
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    with gateway(Reply((event(error),)), api="responses") as (url, _):
        status = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE).status_code
    assert status == {"rate_limit_exceeded": 429, "invalid_prompt": 400}.get(code, 500)


@pytest.mark.parametrize("tail", [(), (event({"choices": []}),), (CUT,), (STALL,)])
def test_any_end_of_a_stream_after_the_finish_reason_completes_the_response(tail):
    finish = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    with gateway(Reply((event(HELLO), event(finish), *tail)), between_timeout=0.2) as (url, _):
        last = bodies(post(url).content)[-1]
    assert (last["type"], last["response"]["output"][0]["content"][0]["text"]) == ("response.completed", "Hello")


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply((CUT,)), "upstream_disconnected"),
        (Reply((event(HELLO), CUT)), "upstream_disconnected"),
        (Reply(()), "upstream_disconnected"),
        (Reply((b"<html>",), 200, {"content-type": "text/html"}), "upstream_error"),
        (Reply((b"{",), 200, {"content-type": "application/json"}), "upstream_error"),
        (Reply((b'data: {"choices": [{\n\n',)), "upstream_error"),
    ],
)
@pytest.mark.parametrize("streams", [True, False])
def test_a_fault_after_the_head_is_a_failed_response_with_the_status_200(reply, code, streams):
    with gateway(reply) as (url, _):
        answer = post(url, stream=streams)
    response = bodies(answer.content)[-1]["response"] if streams else answer.json()
    assert (answer.status_code, response["status"], response["error"]["code"]) == (200, "failed", code)


def test_an_upstream_that_breaks_off_is_logged_as_one_warning_without_a_traceback(caplog):
    with gateway(Reply((event(HELLO), CUT))) as (url, _):
        failed(url)
    ((level, text, traceback),) = logged(caplog)
    message = "the response failed: The connection to the upstream server broke before the end of its answer."
    assert (level, text.partition(": ")[2], traceback) == ("WARNING", message, None)


def test_an_unreachable_upstream_is_one_warning_after_a_line_for_each_further_attempt(serve, caplog, monkeypatch):
    caplog.set_level("INFO", "interlock.serving.engines")
    monkeypatch.setattr("interlock.serving.engines.upstream.upstream_client.BACKOFF", 0)
    upstream = upstream_of(UpstreamSettings(url="http://127.0.0.1:9", retries=1))
    with serve(Gateway([upstream])) as url:
        assert post(url).status_code == 502
    reason = "the upstream server could not be reached: no connection: ConnectionRefusedError"
    assert logged(caplog) == [("INFO", f"{reason}; next attempt in 0.00 s", None), ("WARNING", reason, None)]


def test_a_stream_that_stalls_before_or_after_its_first_event_times_out():
    with gateway(Reply((STALL,)), first_timeout=0.2) as (url, upstream):
        error = failed(url)
    assert (error["code"], upstream.left) == ("upstream_timeout", 1)
    assert error["message"] == "The upstream server sent nothing for 0.2 seconds."
    with gateway(Reply((event(HELLO), STALL)), between_timeout=0.1) as (url, upstream):
        assert failed(url)["message"] == "The upstream server sent nothing for 0.1 seconds."
    assert upstream.left == 1


def test_an_event_that_is_too_large_ends_the_response(monkeypatch):
    monkeypatch.setattr("interlock.serving.engines.upstream.upstream_client.MAX_EVENT", 1000)
    with gateway(Reply((event(HELLO), b"data: " + b"x" * 2000))) as (url, _):
        assert failed(url)["message"] == "The upstream server sent an event that is too large."


def test_a_silent_upstream_is_not_retried():
    with gateway(Reply((STALL,)), GOOD, first_timeout=0.1, retries=2) as (url, upstream):
        assert failed(url)["code"] == "upstream_timeout"
    assert len(upstream.bodies) == 1


def test_a_whole_answer_that_is_too_large_ends_the_response(monkeypatch):
    monkeypatch.setattr("interlock.serving.engines.upstream.upstream_client.MAX_EVENT", 1000)
    with gateway(Reply((b"x" * 2000,), 200, {"content-type": "application/json"})) as (url, _):
        assert failed(url)["message"] == "The answer of the upstream server is too large."


@pytest.mark.parametrize(
    ("reply", "status", "message"),
    [
        (
            Reply(GOOD.body, 200, {**GOOD.headers, "content-encoding": "gzip"}),
            502,
            "The upstream server compressed its answer (gzip), which the request does not accept.",
        ),
        (Reply((b"\x1f\x8b",), 403, {"content-encoding": "gzip"}), 403, "The upstream server answered with status 403."),
    ],
)
def test_a_compressed_answer_is_refused(reply, status, message):
    with gateway(reply) as (url, _):
        answer = post(url)
    assert (answer.status_code, answer.json()["error"]["message"]) == (status, message)


@pytest.mark.parametrize(
    ("reply", "code"),
    [(Reply((STALL,)), "upstream_timeout"), (Reply((b"<html>",)), "upstream_error"), (failure(500, {}), "upstream_error")],
)
def test_an_upstream_that_lists_no_models_is_not_ready(reply, code):
    with gateway(GOOD, listing=reply, first_timeout=0.2) as (url, _):
        answer = httpx.get(f"{url}/ready")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, code)
        assert httpx.get(f"{url}/v1/models").json()["data"] == []
        assert post(url, stream=False).json()["status"] == "completed"


@pytest.mark.parametrize(("status", "settings"), [(404, {}), (401, {"pass_key": True}), (401, {}), (403, {}), (429, {})])
def test_an_upstream_that_answers_without_a_list_is_ready(status, settings):
    with gateway(GOOD, listing=failure(status, {}), models=(), **settings) as (url, _):
        assert httpx.get(f"{url}/ready").status_code == 200


def test_the_end_marker_ends_a_stream_even_if_the_connection_stays_open():
    with gateway(Reply((*GOOD.body, STALL)), between_timeout=10 * PATIENCE) as (url, _):
        *_, last = bodies(post(url).content)
    assert last["type"] == "response.completed"


def test_no_key_is_in_the_log(caplog):
    caplog.set_level("DEBUG")
    with gateway(Reply((event(HELLO), CUT)), key=KEY) as (url, upstream):
        failed(url)
    assert upstream.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in caplog.text
    assert KEY not in repr(upstream.requests and json.dumps(BODY))


REFUSED_KEY = (502, {"message": "The upstream server refuses the key of the gateway.", "code": "upstream_unauthorized"})
CLIENTS = (401, {"message": "No such key.", "code": "no_key"})


@pytest.mark.parametrize(
    ("settings", "sent", "expected"),
    [
        ({"key": KEY}, None, REFUSED_KEY),
        ({}, None, REFUSED_KEY),
        ({"key": KEY}, "mine", REFUSED_KEY),
        ({"key": KEY, "pass_key": True}, None, REFUSED_KEY),
        ({"key": KEY, "pass_key": True}, "mine", CLIENTS),
        ({"pass_key": True}, None, CLIENTS),
    ],
)
@pytest.mark.parametrize("streams", [True, False])
def test_a_401_of_an_upstream_is_the_clients_only_if_its_own_key_was_sent(settings, sent, expected, streams, caplog):
    refusal = failure(401, {"error": {"message": "No such key.", "code": "no_key"}})
    with gateway(refusal, **{"retries": 2, **settings}) as (url, upstream):
        headers = {} if sent is None else {"authorization": f"Bearer {sent}"}
        answer = httpx.post(f"{url}/v1/responses", json={**BODY, "stream": streams}, headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, {name: error[name] for name in ("message", "code")}) == expected
    assert (len(upstream.bodies), logged(caplog)) == (1, [("WARNING", "the call failed with status 401: No such key.", None)])


def test_a_client_may_send_its_own_key():
    with gateway(GOOD, pass_key=True, key=KEY) as (url, upstream):
        httpx.post(f"{url}/v1/responses", json=BODY, headers={"authorization": "Bearer mine"})
        httpx.post(f"{url}/v1/responses", json=BODY)
    assert [received.headers["authorization"] for received in upstream.requests if received.body] == [
        "Bearer mine",
        f"Bearer {KEY}",
    ]


# A gateway begins each response once, and answers, cancels and stops also before the head of its upstream's answer


YES = stream(chunk({"content": "Yes."}), chunk({}, "stop"))
ASK = {"model": "m", "input": "Hi"}
PATH = "/v1/responses"


class Headless(ScriptedUpstream):
    """An upstream that withholds the head of its answer until `go_on` is set, or the client has disconnected."""

    def __init__(self):
        super().__init__([YES])
        self.url = ""
        self.requested, self.abandoned, self.go_on = threading.Event(), threading.Event(), threading.Event()

    async def _reply(self, reply, receive, send):
        self.requested.set()
        gone = asyncio.ensure_future(receive())
        while not gone.done() and not self.go_on.is_set():
            await asyncio.wait([gone], timeout=0.01)
        if gone.done():
            self.abandoned.set()
        else:
            gone.cancel()
            await super()._reply(reply, receive, send)


@contextmanager
def waiting_gateway():
    """Serve a gateway in front of a headless upstream; yield the server, its URL and the upstream."""
    upstream = Headless()
    with serve_upstream(upstream) as upstream.url:
        server = ServerThread(
            build(Settings(), Gateway([upstream_of(UpstreamSettings(url=upstream.url, models=["m"], retries=0))]))
        )
        with server as url:
            yield server, url, upstream


def until_ended(url, response_id):
    """Wait for the end of a background response."""
    frames = httpx.get(f"{url}{PATH}/{response_id}", params={"stream": "true"}).text
    (*_, last) = (line for line in frames.splitlines() if line.startswith("data: {"))
    return json.loads(last.removeprefix("data: "))["response"]


@pytest.mark.parametrize("members", [{"background": True}, {"background": True, "stream": True}, {}, {"stream": True}])
def test_each_response_is_one_request_of_the_upstream(members) -> None:
    async def burst(url):
        async with httpx.AsyncClient(base_url=url, limits=httpx.Limits()) as client:
            return await asyncio.gather(*(client.post(PATH, json={**ASK, **members}) for _ in range(12)))

    with gateway(YES) as (url, upstream):
        answers = asyncio.run(burst(url))
        ids = {
            json.loads(answer.text.partition("data: ")[2].partition("\n")[0])["response"]["id"]
            if "stream" in members
            else answer.json()["id"]
            for answer in answers
        }
        statuses = {until_ended(url, each)["status"] for each in ids} if "background" in members else {"completed"}
    assert (len(ids), statuses, len(upstream.bodies)) == (12, {"completed"}, 12)


def test_a_background_response_is_queued_before_the_upstream_answers() -> None:
    with waiting_gateway() as (_, url, upstream):
        queued = httpx.post(f"{url}{PATH}", json={**ASK, "background": True}).json()
        assert queued["status"] == "queued"
        assert not upstream.go_on.is_set()
        upstream.go_on.set()
        ended = until_ended(url, queued["id"])
    assert (ended["id"], ended["status"], len(upstream.bodies)) == (queued["id"], "completed", 1)


def test_a_background_response_that_the_upstream_refuses_fails() -> None:
    with gateway(stream(b'{"error": {"message": "No.", "code": "rate_limit_exceeded"}}')) as (url, _):
        queued = httpx.post(f"{url}{PATH}", json={**ASK, "background": True}).json()
        ended = until_ended(url, queued["id"])
    assert (queued["status"], ended["status"], ended["error"]["message"]) == ("queued", "failed", "No.")


def test_an_invalid_background_request_is_refused_at_once() -> None:
    with gateway(YES) as (url, upstream):
        answer = httpx.post(f"{url}{PATH}", json={**ASK, "background": True, "temperature": 7})
    assert (answer.status_code, upstream.bodies) == (400, [])


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_a_websocket_that_cancels_or_closes_before_the_head_ends_the_upstream_request(end) -> None:
    with waiting_gateway() as (_, url, upstream):
        with connect(f"{url.replace('http', 'ws', 1)}{PATH}") as socket:
            socket.send(json.dumps({"type": "response.create", **ASK}))
            assert upstream.requested.wait(60)
            if end == "cancel":
                socket.send(json.dumps({"type": "response.cancel"}))
                assert upstream.abandoned.wait(60)
        assert upstream.abandoned.wait(60)
    assert len(upstream.bodies) == 1


@pytest.mark.parametrize("members", [{}, {"stream": True}])
def test_a_request_that_waits_for_a_head_at_shutdown_gets_an_error_as_json(members) -> None:
    answers = []
    with waiting_gateway() as (server, url, upstream):
        asking = threading.Thread(target=lambda: answers.append(httpx.post(f"{url}{PATH}", json={**ASK, **members})))
        asking.start()
        assert upstream.requested.wait(60)
        server.stop()
        asking.join(60)
        assert upstream.abandoned.wait(60)
    (answer,) = answers
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, "The server is shutting down.")


def counted(name, **labels):
    return REGISTRY.get_sample_value(name, labels) or 0


def retries(status):
    """How many calls of upstreams were tried again after a status so far."""
    (metric,) = [each for each in REGISTRY.collect() if each.name == "interlock_upstream_retries"]
    return sum(each.value for each in metric.samples if each.name.endswith("_total") and each.labels["error_type"] == f"{status}")


def refusals():
    """How many requests each reason has refused so far."""
    return {reason: counted("interlock_refused_requests_total", reason=reason) for reason in ("cancelled", "http_400")}


def calls(url, error_type):
    """How many calls of an upstream have ended so."""
    labels = {"gen_ai_operation_name": "chat", "gen_ai_provider_name": "openai", "gen_ai_request_model": "m"}
    server = {"server_address": "127.0.0.1", "server_port": url.rpartition(":")[2]}
    return counted("gen_ai_client_operation_duration_seconds_count", **labels, **server, error_type=error_type)


def leave(url, path, body, until):
    """Send a request, and close the connection when something has happened."""
    content = json.dumps(body)
    headers = f"host: x\r\nx-request-id: mine\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\n{headers}\r\n\r\n{content}".encode())
        assert until(60)


MESSAGES = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
REQUESTS = [
    (PATH, ASK),
    ("/v1/messages", {**MESSAGES, "max_tokens": 9}),
    ("/v1/chat/completions", MESSAGES),
    ("/v1/responses/compact", ASK),
]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(("path", "body"), REQUESTS)
def test_a_client_that_leaves_before_the_head_is_counted_and_logged_with_its_upstream(path, body, streams, caplog) -> None:
    caplog.set_level("INFO", "interlock.serving.responses.service")
    caplog.handler.setFormatter(JsonFormatter())
    before = refusals()
    with waiting_gateway() as (_, url, upstream):
        leave(url, path, {**body, "stream": streams}, upstream.requested.wait)
        assert upstream.abandoned.wait(60)
    after = refusals()
    (line,) = map(json.loads, caplog.handler.stream.getvalue().splitlines())
    origin = f"{upstream.url}/v1"
    assert {reason: after[reason] - before[reason] for reason in after} == {"cancelled": 1, "http_400": 0}
    assert (calls(upstream.url, "cancelled_unanswered"), calls(upstream.url, "cancelled")) == (1, 0)
    assert (line["request_id"], line["model"], line["upstream"], line["status"]) == ("mine", "m", origin, "cancelled")
    assert line["message"] == f"cancelled before the answer began, after {line['seconds']:.3f} s"


def test_a_client_that_leaves_after_the_first_event_has_cancelled_an_upstream_that_answers() -> None:
    upstream = ScriptedUpstream([Reply((event(HELLO), STALL))])
    with serve_upstream(upstream) as upstream_url:
        engine = Gateway([upstream_of(UpstreamSettings(url=upstream_url, models=["m"]))])
        with (
            ServerThread(build(Settings(), engine)) as url,
            httpx.stream("POST", f"{url}{PATH}", json={**ASK, "stream": True}) as answer,
        ):
            next(line for line in answer.iter_lines() if "Hello" in line)
    assert (calls(upstream_url, "cancelled_unanswered"), calls(upstream_url, "cancelled")) == (0, 1)


def test_the_look_at_an_upstream_has_no_request_in_its_log_lines(caplog) -> None:
    caplog.handler.setFormatter(JsonFormatter())

    async def look(url):
        begin_logs("req_old")
        listed = ModelList(upstream_of(UpstreamSettings(url=url)))
        await listed.refresh()
        listed.close()
        await listed.upstream.close()

    url = "http://127.0.0.1:1/v1"
    asyncio.run(look(url))
    (line,) = map(json.loads, caplog.handler.stream.getvalue().splitlines())
    assert {name: value for name, value in line.items() if name != "time"} == {
        "level": "warning",
        "logger": "interlock.serving.engines.upstream.upstreams",
        "message": f"the upstream server {url} does not list its models: The upstream server cannot be reached.",
    }
