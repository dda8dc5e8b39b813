"""The answers of the server over HTTP: the framing of streams, errors, and routes."""

import asyncio
import json
import socket
import threading
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
from for_each import for_each
from live.agents import mcp, servers
from live.engines import ANSWER, Gate, StagedEngine, step, steps
from live.mcp_servers import Workshop, running
from live.wire import bodies, without_chance
from prometheus_client import REGISTRY

from interlock.judges import judge
from interlock.serving.build import build
from interlock.serving.engines.embedded import MODEL
from interlock.serving.engines.engine import Generation
from interlock.serving.engines.prompt import estimate_prompt
from interlock.serving.http.server import ServerThread
from interlock.serving.responses import service as making
from interlock.serving.settings import Settings, Times
from interlock.serving.store.sqlite import MemoryStore, SqliteStore
from interlock.serving.store.values import StoreDown
from interlock.serving.tools.hosting import NullTools

REQUEST = {"model": MODEL, "input": "Hi there"}
STAGED = {"model": "staged", "input": "Hi"}
FAST = Settings(times=Times(maintenance=0.01))
CHATTING = {"model": "staged", "messages": [{"role": "user", "content": "Hi"}]}


def post(url, body, **options):
    return httpx.post(f"{url}/v1/responses", json=body, timeout=60, **options)


def error_of(answer):
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert [*error] == ["message", "type", "param", "code"]
    return answer.status_code, error["param"], error["code"]


def test_a_stream_is_legal_and_has_the_headers_of_event_streams(url) -> None:
    answer = post(url, {**REQUEST, "stream": True})
    headers = {name: answer.headers[name] for name in ("content-type", "cache-control", "x-accel-buffering")}
    assert headers == {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}
    assert bodies(answer.content)[-1]["type"] == "response.completed"
    assert answer.content.endswith(b"\n\ndata: [DONE]\n\n")


def test_a_whole_response_equals_the_terminal_event_of_its_stream(url) -> None:
    streamed = bodies(post(url, {**REQUEST, "stream": True}).content)[-1]["response"]
    answer = post(url, REQUEST)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert without_chance(answer.json()) == without_chance(streamed)


def test_a_header_selects_the_open_responses_dialect(url) -> None:
    headers = {"OpenResponses-Version": "2026-04-24"}
    events = bodies(post(url, {**REQUEST, "stream": True}, headers=headers).content, "open_responses")
    assert "response.reasoning.delta" in {event["type"] for event in events}
    assert without_chance(post(url, REQUEST, headers=headers).json()) == without_chance(events[-1]["response"])


def run_application(application, body, on_send=lambda _count: None, messages=None):
    """Run one request through the application itself, to see each message that it sends."""
    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/responses", "query_string": b"", "headers": headers}
    pending = messages or [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    sent = []

    async def receive():
        return pending.pop(0) if pending else await asyncio.Event().wait()

    async def send(message):
        on_send(len(sent))
        await asyncio.sleep(0)
        sent.append(message)

    asyncio.run(application(scope, receive, send))
    return sent


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_sent_before_its_tools_are_closed(stream) -> None:
    order = []

    class Tools(NullTools):
        @asynccontextmanager
        async def begin(self, request, items, tenant):
            del request, items, tenant
            yield self
            order.append("closed")

    application = build(Settings(), StagedEngine(steps(ANSWER)), tools=Tools())
    run_application(application, {**STAGED, "stream": stream}, lambda _count: order.append("sent"))
    *sends, last = order
    assert (set(sends), last) == ({"sent"}, "closed")


def test_each_engine_step_is_one_write_of_whole_frames() -> None:
    engine = StagedEngine([step(ANSWER), step("!"), step(" More."), step("", "stop")])
    start, *writes = run_application(build(Settings(), engine), {**STAGED, "stream": True})
    assert start["status"] == 200
    frames = [write["body"].count(b"\n\n") for write in writes]
    assert frames == [2, 3, 1, 1, 3, 2]  # the first events, the deltas of three steps, the end of the turn, the end
    assert all(write["body"].endswith(b"\n\n") for write in writes)
    assert [write["more_body"] for write in writes] == [True] * 5 + [False]
    assert len(bodies(b"".join(write["body"] for write in writes))) == sum(frames) - 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_disconnect_during_the_request_body_starts_no_turn_and_is_counted(stream, caplog) -> None:
    def count():
        return REGISTRY.get_sample_value("interlock_refused_requests_total", {"reason": "cancelled"}) or 0

    caplog.set_level("INFO", "interlock.serving.http.answers")
    engine, before = StagedEngine(steps(ANSWER)), count()
    beginning = json.dumps({**STAGED, "stream": stream}).encode()[:9]
    messages = [{"type": "http.request", "body": beginning, "more_body": True}, {"type": "http.disconnect"}]
    run_application(build(Settings(), engine), {}, messages=messages)
    assert (engine.turns, count() - before) == ([], 1)
    messages = [record.getMessage() for record in caplog.records if record.name == "interlock.serving.http.answers"]
    assert messages == ["the client left before its answer"]


@for_each(
    ("body", "param", "code"),
    [
        pytest.param(b"", None, "invalid_json", id="nothing"),
        pytest.param(b"{", None, "invalid_json", id="half an object"),
        pytest.param(b"\xff\xfe\x00", None, "invalid_json", id="no UTF-8"),
        pytest.param(b"[]", None, "invalid_json", id="no object"),
        pytest.param(b'{"model": "m", "input": NaN}', None, "invalid_json", id="no JSON value"),
        pytest.param(b'{"a":' * 200 + b"1" + b"}" * 200, None, "invalid_json", id="too deep"),
        pytest.param({"input": "Hi"}, "model", "missing_required_parameter", id="no model"),
        pytest.param({"model": 7, "input": "Hi"}, "model", "invalid_type", id="model no string"),
        pytest.param({"model": MODEL}, "input", "missing_required_parameter", id="no input"),
        pytest.param({**REQUEST, "input": 7}, "input", "invalid_type", id="input a number"),
        pytest.param({**REQUEST, "input": [7]}, "input[0]", "invalid_type", id="item a number"),
        pytest.param(
            {**REQUEST, "input": [{"role": "user", "content": [{"type": "nonsense"}]}]},
            "input[0].content[0].type",
            "invalid_value",
            id="unknown part",
        ),
        pytest.param({**REQUEST, "stream": "yes"}, "stream", "invalid_type", id="stream no boolean"),
        pytest.param({**REQUEST, "max_output_tokens": -1}, "max_output_tokens", "integer_below_min_value", id="negative limit"),
        pytest.param({**REQUEST, "temperature": 3}, "temperature", "decimal_above_max_value", id="too hot"),
        pytest.param({**REQUEST, "tools": [{"type": "function"}]}, "tools[0].name", "missing_required_parameter", id="no name"),
        pytest.param({**REQUEST, "tool_choice": "required"}, "tool_choice", "invalid_value", id="choice without tools"),
        pytest.param(
            {**REQUEST, "input": [{"type": "function_call_output", "call_id": "call_1", "output": "4"}]},
            "input",
            None,
            id="output without a call",
        ),
        pytest.param(
            {**REQUEST, "previous_response_id": "resp_no"},
            "previous_response_id",
            "previous_response_not_found",
            id="no previous",
        ),
    ],
)
def test_an_error_names_the_invalid_parameter(url, body, param, code) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body)
    answer = httpx.post(f"{url}/v1/responses", content=content, headers={"content-type": "application/json"})
    assert error_of(answer) == (400, param, code)


def test_an_unknown_model_is_not_found(url) -> None:
    assert error_of(post(url, {**REQUEST, "model": "gpt-0"})) == (404, "model", "model_not_found")


def test_a_wrong_method_is_answered_with_the_allowed_ones(url) -> None:
    answer = httpx.put(f"{url}/v1/responses/resp_1")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "DELETE"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"model": "m", "input": [' + b"[]," * 2_000_000 + b"1]}", id="lists"),
        pytest.param(b'{"model": "m", "input": [' + b'"",' * 2_000_000 + b"1]}", id="texts"),
    ],
)
def test_a_body_with_too_many_values_is_refused(url, body) -> None:
    answer = httpx.post(f"{url}/v1/responses", content=body, headers={"content-type": "application/json"}, timeout=60)
    assert error_of(answer) == (413, None, "request_too_large")


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_a_body_of_another_content_type_is_refused(url, content_type) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    answer = httpx.post(f"{url}/v1/responses", content=json.dumps(REQUEST).encode(), headers=headers)
    assert error_of(answer) == (415, None, "unsupported_content_type")


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
def test_a_content_type_may_have_parameters_and_any_case(url, content_type) -> None:
    answer = httpx.post(f"{url}/v1/responses", content=json.dumps(REQUEST), headers={"content-type": content_type})
    assert answer.status_code == 200


def test_a_body_that_is_too_large_is_refused_and_the_server_continues(serve, monkeypatch) -> None:
    monkeypatch.setattr("interlock.serving.requests.body.DISCARDED", 2**20)
    with serve(StagedEngine(steps(ANSWER)), max_body_bytes=2**20) as url:
        assert error_of(post(url, {**STAGED, "input": "x" * 2**20})) == (413, None, "request_too_large")
        assert post(url, {**STAGED, "input": "x" * (2**20 - 100)}).status_code == 200

        def endless():
            while True:
                yield b" " * 2**16

        with suppress(httpx.TransportError):  # its connection is closed, and it may or may not get to read why
            answer = httpx.post(f"{url}/v1/responses", content=endless(), headers={"content-type": "application/json"})
            assert error_of(answer)[0] == 413
        assert post(url, STAGED).status_code == 200


def test_a_body_of_a_megabyte_is_accepted(url) -> None:
    content = [{"type": "input_text", "text": "words " * 200_000}]
    assert post(url, {**REQUEST, "input": [{"role": "user", "content": content}]}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/responses/", 404),
        ("GET", "/v1/responses", 405),
        ("PUT", "/v1/responses", 405),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/responses/resp_no", 404),
        ("DELETE", "/v1/responses/resp_no", 404),
        ("GET", "/v1/responses/resp_no/input_items", 404),
    ],
)
def test_unknown_paths_and_methods_have_an_error_body(url, method, path, status) -> None:
    answer = httpx.request(method, url + path)
    assert error_of(answer) == (status, None, None)
    assert ("allow" in answer.headers) == (status == 405)


def test_the_models_are_listed_and_described(serve) -> None:
    with serve(StagedEngine()) as url:
        listed = httpx.get(f"{url}/v1/models").json()
        assert (listed["object"], [model["id"] for model in listed["data"]]) == ("list", ["staged", "org/staged-2"])
        assert httpx.get(f"{url}/v1/models/org/staged-2").json() == listed["data"][1]
        assert error_of(httpx.get(f"{url}/v1/models/other")) == (404, "model", "model_not_found")


def test_only_health_needs_no_key(serve) -> None:
    with serve(StagedEngine(steps(ANSWER)), api_key=["sesame"]) as url:
        assert httpx.get(f"{url}/health").json() == {"status": "ok"}
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic sesame"}, {"authorization": "sesame"}):
            answer = post(url, STAGED, headers=headers)
            assert error_of(answer) == (401, None, "invalid_api_key")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert httpx.get(f"{url}/v1/nothing").status_code == 401
        assert post(url, STAGED, headers={"authorization": "bearer sesame"}).status_code == 200


def test_a_key_may_have_non_ascii_characters(serve) -> None:
    with serve(StagedEngine(steps(ANSWER)), api_key=["sésame"]) as url:
        assert error_of(post(url, STAGED, headers={"authorization": b"Bearer \xff"}))[0] == 401
        assert post(url, STAGED, headers={"authorization": "Bearer sésame".encode()}).status_code == 200


def test_only_pages_of_allowed_origins_may_use_the_server(serve, url) -> None:
    origin = {"origin": "https://page.test"}
    asking = {**origin, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    allowed = "access-control-allow-origin"
    assert allowed not in post(url, REQUEST, headers=origin).headers
    assert error_of(httpx.options(f"{url}/v1/responses", headers=asking))[0] == 405
    with serve(StagedEngine(steps(ANSWER)), cors_origin=["https://page.test"], api_key=["sesame"]) as guarded:
        assert httpx.options(f"{guarded}/v1/responses", headers=asking).headers[allowed] == "https://page.test"
        assert allowed not in httpx.get(f"{guarded}/health", headers={"origin": "https://other.test"}).headers
        refused = post(guarded, STAGED, headers=origin)
        assert (refused.status_code, refused.headers[allowed]) == (401, "https://page.test")
        assert refused.headers["access-control-expose-headers"] == "x-request-id, request-id, retry-after"


def test_a_server_error_before_the_stream_has_an_error_body(serve, monkeypatch, caplog) -> None:
    monkeypatch.setattr(making, "new_driver", lambda *_, **__: 1 / 0)
    with serve(StagedEngine()) as url:
        assert error_of(post(url, STAGED)) == (500, None, None)
    assert "ZeroDivisionError" in caplog.text


def test_an_engine_error_during_a_turn_ends_the_stream_legally(serve) -> None:
    with serve(StagedEngine([step(ANSWER), RuntimeError("a secret")])) as url:
        events = bodies(post(url, {**STAGED, "stream": True}).content)
        complete = post(url, STAGED)
    assert events[-1]["type"] == "response.failed"
    assert "secret" not in json.dumps(events)
    assert complete.status_code == 200
    assert without_chance(complete.json()) == without_chance(events[-1]["response"])


def test_the_last_event_has_store_false_if_the_store_fails(caplog) -> None:
    class Broken(MemoryStore):
        async def put(self, _tenant, _stored, _addition=None):
            raise OSError("the disk is full")

    engine = StagedEngine(steps(ANSWER))
    _, *writes = run_application(build(Settings(), engine, store=Broken()), {**STAGED, "stream": True})
    stream = b"".join(write["body"] for write in writes)
    events = bodies(stream)
    assert [(event["type"], event["response"]["store"]) for event in events if "response" in event] == [
        ("response.created", True),
        ("response.in_progress", True),
        ("response.completed", False),
    ]
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    assert judge([frame + b"\n\n" for frame in stream.split(b"\n\n") if frame]).findings == {}
    assert "the disk is full" in caplog.text


def test_a_response_larger_than_the_store_has_store_false(caplog) -> None:
    small = MemoryStore(max_bytes=1_000)
    with ServerThread(build(Settings(), StagedEngine(steps(ANSWER)), store=small)) as url:
        made = [post(url, {**STAGED, **more}).json() for more in ({}, {"input": "word " * 1_000}, {"store": False})]
        stored = [httpx.get(f"{url}/v1/responses/{response['id']}").status_code for response in made]
    assert [(response["status"], response["store"]) for response in made] == [("completed", False)] * 3
    assert stored == [404] * 3
    assert "larger than the store may be" in caplog.text


def test_a_request_of_a_coding_agent_is_answered(url) -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
    request = {
        "model": MODEL,
        "instructions": "You write code.",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "summary": [], "content": None, "encrypted_content": None},
            {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "call_1"},
            {"type": "function_call_output", "call_id": "call_1", "output": "done"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Thank you"}]},
        ],
        "tools": [
            {"type": "function", "name": "shell", "strict": False, "parameters": {"type": "object", "properties": {}}},
            {"type": "custom", "name": "patch", "description": "Change files.", "format": grammar},
            {"type": "web_search", "external_web_access": False},
            {"type": "namespace", "name": "files", "tools": []},
            {"type": "of_the_future", "anything": [1]},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "key",
        "text": {"verbosity": "low"},
        "client_metadata": {"installation": "1"},
        "service_tier": "auto",
    }
    assert bodies(post(url, request).content)[-1]["type"] == "response.completed"


def test_the_first_events_are_sent_before_the_engine_yields_output(serve) -> None:
    gate = Gate()
    engine = StagedEngine([gate, *steps(ANSWER)])
    with serve(engine) as url, httpx.stream("POST", f"{url}/v1/responses", json={**STAGED, "stream": True}) as answer:
        pieces = answer.iter_bytes()
        first = next(pieces)
        assert first.count(b"\n\n") == 2
        gate.reached.wait()
        gate.open()
        assert len(bodies(first + b"".join(pieces))) > 2


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("path", "body"), [("responses", STAGED), ("messages", {**CHATTING, "max_tokens": 99}), ("chat/completions", CHATTING)]
)
def test_a_client_that_disconnects_stops_the_generation(serve, path, body, stream) -> None:
    gate = Gate()
    engine = StagedEngine([step(ANSWER), gate])
    content = json.dumps({**body, "stream": stream})
    head = f"POST /v1/{path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
    with serve(engine) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(f"{head}\r\n\r\n{content}".encode())
            assert gate.reached.wait(10)
        assert engine.closed.wait(10)


def test_a_client_that_leaves_a_compaction_has_cancelled_it(serve) -> None:
    def ends():
        response = "interlock_responses_total", {"status": "cancelled", "reason": "", "model": "staged"}
        refusal = "interlock_refused_requests_total", {"reason": "cancelled"}
        return [REGISTRY.get_sample_value(*each) or 0 for each in (response, refusal)]

    before, gate = ends(), Gate()
    content = json.dumps(STAGED)
    head = f"POST /v1/responses/compact HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
    with serve(StagedEngine([step(ANSWER), gate])) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(f"{head}\r\n\r\n{content}".encode())
            assert gate.reached.wait(10)
    assert [now - then for now, then in zip(ends(), before, strict=True)] == [1, 1]


def test_a_slow_reader_slows_the_engine() -> None:
    engine = StagedEngine([step(ANSWER), *[step(" more")] * 9, step("", "stop")])
    ahead = []

    def on_send(writes):
        ahead.append(engine.yielded - writes)

    *_, last = run_application(build(Settings(), engine), {**STAGED, "stream": True}, on_send)
    assert last["more_body"] is False
    assert max(ahead) <= 0  # the engine yields no step before the last one is sent


def test_a_response_beyond_the_limit_is_refused_with_retry_after() -> None:
    gate = Gate()
    engine = StagedEngine([gate, *steps(ANSWER)], steps(ANSWER))
    with ServerThread(build(Settings(max_streams=1), engine)) as url, httpx.Client() as client:
        with client.stream("POST", f"{url}/v1/responses", json={**STAGED, "stream": True}) as first:
            assert gate.reached.wait(30)
            refused = [post(url, body) for body in (STAGED, {**STAGED, "stream": True}, {**STAGED, "background": True})]
            gate.open()
            assert bodies(first.read())[-1]["response"]["status"] == "completed"
        assert [(error_of(each), each.headers["retry-after"]) for each in refused] == [
            ((429, None, "rate_limit_exceeded"), "1")
        ] * 3
        message = "The server is already generating 1 response, its limit; try again in a second."
        assert [each.json()["error"]["message"] for each in refused] == [message] * 3
        assert post(url, STAGED).json()["status"] == "completed"


class LingeringGeneration(Generation):
    """A generation that closes only after another response has begun."""

    async def close(self):
        await asyncio.wait_for(self.engine.next_began.wait(), 30)


class LingeringEngine(StagedEngine):
    def __init__(self, *scripts):
        super().__init__(*scripts)
        self.next_began = asyncio.Event()

    async def begin(self, request, items, tenant="", connection=None):
        generation = await super().begin(request, items, tenant, connection)
        if not self.turns:
            return LingeringGeneration(self, generation.parser)
        self.next_began.set()
        return generation


def test_the_slot_is_free_once_the_client_has_read_the_last_event() -> None:
    with ServerThread(build(Settings(max_streams=1), LingeringEngine(steps(ANSWER)))) as url:
        statuses = []
        for _ in range(2):
            with httpx.stream("POST", f"{url}/v1/responses", json={**STAGED, "stream": True}) as answer:
                statuses += [json.loads(line[6:])["type"] for line in answer.iter_lines() if line.startswith("data: {")][-1:]
        assert statuses == ["response.completed"] * 2


def test_counted_input_tokens_equal_the_usage_of_the_response(url) -> None:
    first = post(url, REQUEST).json()
    going_on = {**REQUEST, "input": "And now?", "instructions": "Be brief.", "previous_response_id": first["id"]}
    counted = [httpx.post(f"{url}/v1/responses/input_tokens", json=body).json() for body in (REQUEST, going_on)]
    assert counted == [
        {"object": "response.input_tokens", "input_tokens": charged}
        for charged in (first["usage"]["input_tokens"], post(url, going_on).json()["usage"]["input_tokens"])
    ]


class CountingEngine(StagedEngine):
    """A staged engine that keeps the turns whose tokens it counts."""

    def __init__(self):
        super().__init__(steps(ANSWER))
        self.counted = []

    async def count(self, turn):
        self.counted.append(turn)
        return await super().count(turn)


@pytest.mark.parametrize("allowed", [("127.0.0.1",), ()])
def test_counted_input_tokens_include_the_tool_lists_of_mcp_servers(serve, allowed) -> None:
    approval = {"server_label": "shop", "name": "echo", "arguments": "{}"}
    items = [
        {"role": "user", "content": "Hi"},
        {"type": "mcp_approval_request", "id": "mcpr_1", **approval},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False},
    ]
    engine, shop = CountingEngine(), Workshop()
    with running(shop.server().streamable_http_app()) as base, serve(engine, tools=servers(allowed=allowed)) as url:
        tools = [mcp(f"{base}/mcp"), mcp(f"{base}/mcp", "other", allowed_tools=["look"])]
        body = {**STAGED, "input": items, "tools": tools}
        counted = httpx.post(f"{url}/v1/responses/input_tokens", json=body).json()
        post(url, body)
        approved = {**body, "input": [*items[:2], {**items[2], "approve": True}]}
        httpx.post(f"{url}/v1/responses/input_tokens", json=approved)
    first, generated, second = ([without_chance(item) for item in turn.items] for turn in engine.counted)
    assert first == generated == [without_chance(item) for item in engine.turns[0].items]
    assert [item["type"] for item in first[3:]] == ["mcp_list_tools"] * 2 == [item["type"] for item in second[3:]]
    assert counted["input_tokens"] == estimate_prompt(engine.counted[0])
    assert shop.began == []


def test_a_prompt_that_cannot_be_counted_is_refused(url) -> None:
    def counted(**body):
        return error_of(httpx.post(f"{url}/v1/responses/input_tokens", json={**REQUEST, **body}))

    assert counted(input="word " * 200_000) == (400, "input", "invalid_prompt")
    assert counted(model="nobody") == (404, "model", "model_not_found")
    assert counted(input=7) == (400, "input", "invalid_type")


def test_truncation_drops_the_oldest_turns(url) -> None:
    long = [{"role": "user", "content": f"{number} " + "word " * 30_000} for number in range(6)]
    request = {**REQUEST, "input": [*long, {"role": "user", "content": "And now?"}]}
    assert post(url, request).json()["error"]["code"] == "invalid_prompt"
    response = post(url, {**request, "truncation": "auto"}).json()
    assert (response["status"], response["truncation"]) == ("completed", "auto")
    assert 100_000 < response["usage"]["input_tokens"] < 131_072


def test_only_requests_that_store_are_refused_while_the_store_is_down() -> None:
    looked = threading.Event()

    class Down(MemoryStore):
        async def lost(self, _limit):
            looked.set()
            raise StoreDown("It cannot be reached.")

    with ServerThread(build(FAST, StagedEngine(steps(ANSWER)), store=Down())) as url:
        assert looked.wait(60)
        refused = [post(url, {**STAGED, **more}) for more in ({}, {"stream": True}, {"background": True})]
        assert [error_of(each) for each in refused] == [(503, None, "store_unavailable")] * 3
        assert post(url, {**STAGED, "store": False}).json()["status"] == "completed"


def test_a_full_disk_loses_one_response_and_refuses_others_until_it_has_room(tmp_path) -> None:
    looked, written = threading.Event(), threading.Event()

    class Full(SqliteStore):
        async def put(self, *arguments):
            try:
                await super().put(*arguments)
            except StoreDown:
                looked.set()
                raise

        async def delete(self, tenant, response_id):
            there = await super().delete(tenant, response_id)
            if there and response_id != first:
                written.set()
            return there

    def ask(url):
        answer = post(url, {**STAGED, "input": "word " * 80_000}).json()
        if answer["error"]:
            return answer["error"]["code"]
        claims.append(answer["store"])
        return answer["id"]

    def is_stored(url, response_id):
        return httpx.get(f"{url}/v1/responses/{response_id}").status_code == 200

    claims = []
    store = Full(str(tmp_path / "store.db"), max_bytes=600_000)
    with ServerThread(build(FAST, StagedEngine(steps(ANSWER)), store=store)) as url:
        first, second = ask(url), ask(url)
        refused = []
        for _ in range(3):
            refused.append(ask(url))
            looked.clear()
            assert looked.wait(60)  # another try to write has failed
        stored = is_stored(url, first), is_stored(url, second)
        assert httpx.delete(f"{url}/v1/responses/{first}").json()["deleted"]
        assert written.wait(60)
        third = ask(url)
        assert (refused, stored, is_stored(url, third)) == (["store_unavailable"] * 3, (True, False), True)
    assert claims == [True, False, True]
