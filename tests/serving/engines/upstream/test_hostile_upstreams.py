"""A hostile upstream cannot learn a key, block the event loop, fill the memory, or redirect the gateway."""

import itertools
import json

import httpx
import pytest
from for_each import for_each
from live.chunk_shapes import chunk
from live.upstream import STALL, Reply, ScriptedUpstream, event, failure, gateway, serve_bytes, serve_upstream, stream
from live.wire import bodies

from interlock.serving.engines.upstream import upstream_client
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.upstream_client import SseReader
from interlock.serving.engines.upstream.upstreams import upstream_of
from interlock.serving.http import answers
from interlock.serving.settings import UpstreamSettings

KEY = "sk-secret-0123456789"
HELLO = chunk({"content": "Hello"})
GOOD = stream(HELLO, chunk({}, "stop"))
BODY = {"model": "m", "input": "Hi", "stream": True}
BROKEN = {"message": f"No {KEY}.", "type": f"bad {KEY}", "code": f"code_{KEY}"}
FAILED = {"type": "response.failed", "response": {"status": "failed", "error": BROKEN, "output": []}}
WHOLE = {"object": "response", **FAILED["response"]}
JSON = {"content-type": "application/json"}


def post(url, **fields):
    return httpx.post(f"{url}/v1/responses", json={**BODY, **fields}, timeout=60)


def failed(url):
    """The error of a stream that begins and fails, and is legal."""
    answer = post(url)
    assert answer.status_code == 200, answer.text
    *_, last = bodies(answer.content)
    assert last["type"] == "response.failed"
    return last["response"]["error"]


# Keys, cookies and redirects.


@pytest.mark.parametrize(
    ("api", "reply", "error"),
    [
        ("chat", Reply((event({"error": BROKEN}),)), ("code_***", "No ***.")),
        ("chat", Reply((event(HELLO), event({"error": BROKEN}))), ("code_***", "No ***.")),
        ("chat", Reply((json.dumps({"error": BROKEN}).encode(),), 200, JSON), ("code_***", "No ***.")),
        (
            "chat",
            Reply((b"x",), 200, {"content-type": f"text/{KEY}"}),
            ("upstream_error", "The upstream server answered with text/*** instead of an event stream."),
        ),
        ("responses", Reply((event({**BROKEN, "type": "error"}),)), ("code_***", "No ***.")),
        ("responses", Reply((event({"type": "error", "error": BROKEN}),)), ("code_***", "No ***.")),
        ("responses", Reply((event(FAILED),)), ("code_***", "No ***.")),
        ("responses", Reply((json.dumps(WHOLE).encode(),), 200, JSON), ("code_***", "No ***.")),
    ],
)  # fmt: skip
def test_no_error_in_an_answer_with_status_200_has_the_key(api, reply, error, caplog):
    caplog.set_level("DEBUG")
    with gateway(reply, key=KEY, api=api) as (url, _):
        answer = failed(url)
        whole = post(url, stream=False).text
    assert (answer["code"], answer["message"]) == error
    assert KEY not in whole + caplog.text


@pytest.mark.parametrize("passes", [True, False])
def test_no_field_of_a_refusal_has_the_key(passes, caplog):
    caplog.set_level("DEBUG")
    settings = {"pass_key": True} if passes else {"key": KEY}
    with gateway(failure(400, {"error": BROKEN}), **settings) as (url, _):
        answer = httpx.post(f"{url}/v1/responses", json=BODY, headers={"authorization": f"Bearer {KEY}"} if passes else {})
        listing = httpx.get(f"{url}/ready")
    assert answer.json()["error"] == {"message": "No ***.", "type": "bad ***", "param": None, "code": "code_***"}
    assert KEY not in caplog.text + listing.text


def test_a_cookie_of_one_answer_is_not_sent_with_the_next_request():
    with gateway(Reply(GOOD.body, 200, {**GOOD.headers, "set-cookie": "session=alice; Path=/"})) as (url, upstream):
        for _ in range(2):
            assert post(url).status_code == 200
    assert [request.headers.get("cookie") for request in upstream.requests] == [None] * len(upstream.requests)


@pytest.mark.parametrize("status", [600, 799, 999])
def test_an_invalid_status_becomes_502(status, serve):
    body = b'{"error": {"message": "Odd."}}'
    head = f"HTTP/1.1 {status} Odd\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    with serve_bytes(head.encode() + body) as (upstream, _), serve(engine(upstream)) as url:
        answer = post(url)
    assert (answer.status_code, answer.json()["error"]["message"]) == (502, "Odd.")


def test_a_key_in_the_address_of_a_redirect_is_not_logged(caplog):
    with gateway(failure(302, {}, location="https://b.example/v1/secret-key/x?key=secret-key"), key="secret-key") as (url, _):
        httpx.post(f"{url}/v1/responses", json={"model": "m", "input": "Hi"})
    assert ("redirects to https://b.example/v1/***/x" in caplog.text, "secret-key" in caplog.text) == (True, False)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_error_and_neither_followed_nor_retried(status):
    other = ScriptedUpstream([GOOD])
    with serve_upstream(other) as elsewhere:
        reply = Reply((), status, {"location": f"{elsewhere}/v1/chat/completions?key={KEY}"})
        with gateway(reply, GOOD, retries=2, key=KEY) as (url, upstream):
            answer = post(url)
    message = f"The upstream server redirects to another address (status {status}), and the gateway does not follow."
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_redirect")
    assert (answer.json()["error"]["message"], len(upstream.bodies), other.requests) == (message, 1, [])


# The parser of events.


TRICKY = b"\xef\xbb\xbfdata: 1\r\rdata: 2\r\n: no\r\n\r\nevent: x\ndata: 3\ndata: 4\n\n\n\rdata:5\r\r\ndata: 6"


@for_each("size", range(1, len(TRICKY)))
def test_every_line_end_and_a_byte_order_mark_are_read_in_any_chunks(size):
    reader = SseReader()
    pieces = [TRICKY[at : at + size] for at in range(0, len(TRICKY), size)]
    events = [*itertools.chain.from_iterable(map(reader.feed, pieces)), *reader.end()]
    assert events == [b"1", b"2", b"3\n4", b"5", b"6"]


class Piece(bytes):
    """Bytes that count how often their length is read."""

    __slots__ = ()
    reads = 0

    def __len__(self):
        Piece.reads += 1
        return super().__len__()


def test_an_event_in_many_pieces_takes_linear_time():
    reader, count = SseReader(), 5_000
    for _ in range(count):
        assert reader.feed(Piece(b"x" * 100)) == []
    assert Piece.reads <= 2 * count
    assert reader.feed(b"\ndata: 1\n\n") == [b"1"]


def test_comments_do_not_count_towards_the_size_of_an_event(monkeypatch):
    monkeypatch.setattr(upstream_client, "MAX_EVENT", 100)
    reader = SseReader()
    assert [*itertools.chain.from_iterable(reader.feed(b": nothing new\n\ndata: 1\n\n") for _ in range(100))] == [b"1"] * 100


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize(
    "data",
    [
        b'{"type": "x", "choices": [{"delta": {"content": "\xff"}}]}',
        b'{"choices": ' + b"[" * 100_000,
        b'{"usage": ' + b"9" * 9_000 + b"}",
    ],
    ids=["UTF-8", "depth", "number"],
)
def test_invalid_json_is_an_upstream_error(api, data):
    with gateway(Reply((event(data),)), api=api) as (url, _):
        assert failed(url)["code"] == "upstream_error"


@pytest.mark.parametrize("value", [b"9" * 9_000, b"[" * 100_000])
def test_an_unreadable_error_is_an_upstream_error(value):
    with gateway(Reply((event(b'{"error": "No.", "x": ' + value + b"}"),))) as (url, _):
        assert failed(url)["code"] == "upstream_error"


@pytest.mark.parametrize("many_events", [True, False])
def test_thousands_of_calls_in_one_read_are_sent_in_parts(many_events, monkeypatch):
    function = {"name": "f", "arguments": "{}"}
    calls = [{"index": index, "id": f"call_{index}", "function": function} for index in range(4_000)]
    chunks = [chunk({"tool_calls": [call]}) for call in calls] if many_events else [chunk({"tool_calls": calls})]
    data = b"".join(map(event, [*chunks, chunk({}, "tool_calls"), b"[DONE]"]))
    sizes, message = [], answers._message

    def record(run, frames):
        sizes.append(len(frames))
        return message(run, frames)

    monkeypatch.setattr(answers, "_message", record)
    with gateway(Reply((data,))) as (url, _):
        events = bodies(post(url).content)
    assert [item["call_id"] for item in events[-1]["response"]["output"]] == [call["id"] for call in calls]
    assert max(sizes) < 1_000


# The connection.


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
BOTH = HEAD % 5 + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"


def engine(url):
    return Gateway([upstream_of(UpstreamSettings(url=url, retries=0))])


def test_a_body_with_two_lengths_is_an_error_and_its_connection_is_closed(serve):
    with serve_bytes(BOTH) as (upstream, heads), serve(engine(upstream)) as url:
        errors = [post(url).json()["error"] for _ in range(2)]
    assert [error["code"] for error in errors] == ["upstream_unreachable"] * 2
    assert len([head for head in heads if head.startswith("POST")]) == 2


def test_the_whole_output_of_an_upstream_is_bounded(monkeypatch):
    monkeypatch.setattr(upstream_client, "MAX_STREAM", 10_000)
    with gateway(Reply((*[event(HELLO)] * 1_000, STALL))) as (url, upstream):
        assert failed(url)["message"] == "The answer of the upstream server is too large."
    assert upstream.left == 1


def test_proxies_come_from_the_environment(serve, monkeypatch):
    answer = HEAD % 25 + b'\r\n{"data": [{"id": "far"}]}'
    with serve_bytes(answer) as (proxy, heads):
        monkeypatch.setenv("http_proxy", proxy.removeprefix("http://"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with serve(engine("http://upstream.invalid:81")) as url:
            assert [model["id"] for model in httpx.get(f"{url}/v1/models").json()["data"]] == ["far"]
        assert heads[0].splitlines()[0] == "GET http://upstream.invalid:81/v1/models HTTP/1.1"
        with gateway(GOOD) as (url, _):
            assert [model["id"] for model in httpx.get(f"{url}/v1/models").json()["data"]] == ["m"]
    assert len(heads) == 1


def test_the_name_of_an_event_without_data_does_not_apply_to_the_next():
    reader = SseReader()
    assert reader.feed(b'event: error\n\ndata: {"a":1}\n\n') == [b'{"a":1}']
    assert reader.feed(b'event: error\ndata: {"a":1}\n\n') == [b'{"error":{"a":1}}']


def test_bare_json_is_read_only_after_the_last_event():
    reader = SseReader()
    assert reader.feed(b'{"early":1}\n\ndata: {"a":1}\n\n') == [b'{"a":1}']
    assert [*reader.feed(b'{"late":1}\n'), *reader.end()] == [b'{"late":1}']
