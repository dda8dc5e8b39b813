"""The chunks of every server become the same legal streams."""

import asyncio
import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from live.chunk_shapes import SHAPES, WEATHER, call, chunk
from live.upstream import CUT, PATIENCE, STALL, Reply, ScriptedUpstream, event, gateway, serve_upstream, stream
from live.wire import bodies, post_chat, post_message

from interlock.serving.build import build
from interlock.serving.engines.shortcut import Shortcut
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.http_client import SMALL, Connection
from interlock.serving.engines.upstream.upstreams import upstream_of
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings, UpstreamSettings

TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("get_weather", "get_time")]
BODY = {"model": "m", "input": "Hi", "stream": True, "tools": TOOLS}


def answered(*replies, body=(), **settings):
    """The events of a legal stream, and the requests of the gateway."""
    with gateway(*replies, **settings) as (url, upstream):
        answer = httpx.post(f"{url}/v1/responses", json={**BODY, **dict(body)})
        assert answer.status_code == 200, answer.text
    return bodies(answer.content), upstream.bodies


def item_summary(item):
    """An item by its kind, text and name."""
    parts = [*item.get("content", ()), *item.get("summary", ())]
    text = "".join(part.get("text", part.get("refusal", "")) for part in parts)
    return item["type"], item.get("arguments", text), item.get("name")


def counted(usage):
    """The counts of usage: input, cached, output and reasoning tokens."""
    if usage is None:
        return None
    details = usage["input_tokens_details"]["cached_tokens"], usage["output_tokens_details"]["reasoning_tokens"]
    return usage["input_tokens"], details[0], usage["output_tokens"], details[1]


def test_usage_is_null_if_the_upstream_counts_nothing():
    reply = stream(chunk({"content": "a"}), chunk({}, "stop"))
    with gateway(reply, reply) as (url, _):
        events = bodies(httpx.post(f"{url}/v1/responses", json=BODY).content)
        whole = httpx.post(f"{url}/v1/responses", json={**BODY, "stream": False}).json()
        stored = httpx.get(f"{url}/v1/responses/{whole['id']}").json()
    assert [events[-1]["response"]["usage"], whole["usage"], stored["usage"]] == [None, None, None]


def test_a_failed_turn_of_an_upstream_has_no_usage():
    response = answered(Reply(tuple(stream(chunk({"content": "a"}), done=False).body)))[0][-1]["response"]
    assert (response["status"], response["usage"]) == ("failed", None)


def test_the_usage_of_a_compacted_conversation_has_numbers():
    with gateway(stream(chunk({"content": "a"}), chunk({}, "stop"))) as (url, _):
        answer = httpx.post(f"{url}/v1/responses/compact", json={"model": "m", "input": "Hi"})
    assert (answer.status_code, counted(answer.json()["usage"])) == (200, (0, 0, 0, 0))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("whole", [False, True])
def test_the_chunks_of_a_server_become_items(shape, whole):
    reply = stream(*shape.chunks, done=shape.done)
    if whole:  # all bytes in one write, with comments, other line ends and names of events
        text = b": hello\r\n\r\n" + b"".join(reply.body).replace(b"data: ", b"event: x\r\nid: 1\r\ndata:").replace(
            b"\n\n", b"\r\n\r\n"
        )
        reply = Reply((text,))
    events, _ = answered(reply)
    response = events[-1]["response"]
    assert (response["status"], [item_summary(item) for item in response["output"]]) == (shape.status, shape.items)
    assert counted(response["usage"]) == shape.usage


def test_a_stream_can_arrive_one_byte_at_a_time():
    data = b"".join(stream(*SHAPES["openai: two calls at once"].chunks).body)
    events, _ = answered(Reply(tuple(data[at : at + 1] for at in range(len(data)))))
    assert len(events[-1]["response"]["output"]) == 2


@pytest.mark.parametrize(
    ("reason", "end", "why"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("model_length", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
        ("abort", "failed", None),
        ("insufficient_system_resource", "failed", None),
        ("LENGTH", "incomplete", {"reason": "max_output_tokens"}),
        ("MAX_TOKENS", "incomplete", {"reason": "max_output_tokens"}),
        ("SAFETY", "incomplete", {"reason": "content_filter"}),
        ("STOP", "completed", None),
        ("something else", "completed", None),
        ("UNEXPECTED_TOOL_CALL", "completed", None),
        ("max-tokens", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter: SAFETY", "incomplete", {"reason": "content_filter"}),
        ("IMAGE_SAFETY", "incomplete", {"reason": "content_filter"}),
        ("NO_IMAGE", "failed", None),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", "failed", None),
    ],
)
def test_each_finish_reason_sets_the_status(reason, end, why):
    response = answered(stream(chunk({"content": "a"}), chunk({}, reason)))[0][-1]["response"]
    assert (response["status"], response["incomplete_details"]) == (end, why)


DETAILS = {"prompt_tokens_details": {"cached_tokens": 0}}
PROMPT = {"prompt_tokens": 9, "completion_tokens": 4}


@pytest.mark.parametrize(
    "usage",
    [
        {**PROMPT, "prompt_tokens_details": {"cached_tokens": 5}},
        {**PROMPT, "cached_tokens": 5},
        {**PROMPT, **DETAILS, "prompt_cache_hit_tokens": 5},
        {**PROMPT, **DETAILS, "cache_read_input_tokens": 5},
    ],
)
def test_usage_is_found_in_every_place_that_services_use(usage):
    end = chunk({}, "stop")
    for last in (
        {**end, "usage": usage},
        {**end, "choices": [{**end["choices"][0], "usage": usage}]},
        {**end, "x_groq": {"id": "req_1", "usage": usage}},
    ):
        first = {**chunk({"content": "a"}), "x_groq": {"id": "req_1"}}
        response = answered(stream(first, last))[0][-1]["response"]
        assert counted(response["usage"]) == (9, 5, 4, 0)


NESTED = {"type": "url_citation", "url_citation": {"url": "https://a.example", "title": "A", "start_index": 0, "end_index": 4}}
FLAT = {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 4}
SPARSE = {"type": "url_citation", "url_citation": {"url": "https://b.example", "content": "B"}}
UNKNOWN = {"type": "x"}
FILLED = {"type": "url_citation", "url": "https://b.example", "title": "", "start_index": 0, "end_index": 0}


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk({"content": "Yes."}), chunk({"annotations": [NESTED, SPARSE]}), chunk({}, "stop")],
        [chunk({"content": "Yes.", "annotations": [NESTED, SPARSE]}), chunk({}, "stop")],
        [
            chunk({"content": "Yes."}),
            chunk({"annotations": [FLAT]}),
            chunk({"annotations": [7, UNKNOWN, SPARSE]}),
            chunk({}, "stop"),
        ],
        [{"choices": [{"index": 0, "message": {"content": "Yes.", "annotations": [NESTED, SPARSE]}, "finish_reason": "stop"}]}],
        [
            chunk({"reasoning": "Hm."}),
            chunk({"content": "Yes.", "annotations": [NESTED, SPARSE]}),
            chunk(call(0, "{}", "f", "call_1")),
            chunk({"annotations": [NESTED]}),
            chunk({}, "tool_calls"),
        ],
    ],
)
def test_annotations_reach_clients_of_responses_and_chat(chunks):
    events, _ = answered(stream(*chunks))
    added = [event["annotation"] for event in events if event["type"] == "response.output_text.annotation.added"]
    (part,) = next(item["content"] for item in events[-1]["response"]["output"] if item["type"] == "message")
    assert added == part["annotations"] == [FLAT, FILLED]
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    nested = [NESTED, {"type": "url_citation", "url_citation": {name: value for name, value in FILLED.items() if name != "type"}}]
    with gateway(stream(*chunks)) as (url, _):
        whole = httpx.post(f"{url}/v1/chat/completions", json=body).json()
        streamed = httpx.post(f"{url}/v1/chat/completions", json={**body, "stream": True}).text
        message = {"model": "m", "max_tokens": 99, "messages": body["messages"]}
        assert httpx.post(f"{url}/v1/messages", json=message).json()["content"][-1]["type"] in ("text", "tool_use")
    assert whole["choices"][0]["message"]["annotations"] == nested
    chunks_sent = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    deltas = [choice["delta"] for each in chunks_sent for choice in each["choices"]]
    lists = [delta["annotations"] for delta in deltas if "annotations" in delta]
    assert lists == [[{"index": index, **each}] for index, each in enumerate(nested)]


def test_a_call_without_a_finish_reason_is_incomplete():
    usage = chunk(usage={"prompt_tokens": 3, "completion_tokens": 4})
    for arguments in ("", '{"city":'):
        response = answered(stream(chunk(call(0, arguments, "get_weather", "call_1")), usage))[0][-1]["response"]
        (item,) = response["output"]
        assert (response["status"], response["incomplete_details"]) == ("incomplete", None)
        assert (item["status"], item["arguments"]) == ("incomplete", arguments)


def test_invalid_log_probabilities_are_replaced():
    entries = [{"token": "a", "bytes": [-1, "x"], "logprob": -(10**30)}, {"token": "b", "logprob": "x", "top_logprobs": 7}]
    chunks = [chunk({"content": "ab"}, logprobs={"content": entries}), chunk({"content": "c"}, logprobs=-1), chunk({}, "stop")]
    events, _ = answered(stream(*chunks), body={"include": ["message.output_text.logprobs"]})
    parts = [part for item in events[-1]["response"]["output"] for part in item["content"]]
    expected = [{"token": "a", "bytes": [97], "logprob": -9999.0, "top_logprobs": []}]
    expected += [{"token": "b", "bytes": [98], "logprob": 0.0, "top_logprobs": []}]
    assert [(part["text"], part["logprobs"]) for part in parts] == [("ab", expected), ("c", [])]


HIGH, LOW = "\ud83d", "\ude00"
TAGGED = {"family": "bedrock_gpt_oss"}


def argument(text, index=0, name="get_weather"):
    return call(index, text, name, f"call_{index}")


@pytest.mark.parametrize(
    ("settings", "deltas", "expected"),
    [
        ({}, [{"content": f"a{HIGH}"}, {"content": f"{LOW}b"}], [("message", "a😀b", None)]),
        ({}, [{"content": f"a{HIGH}"}], [("message", "a\ufffd", None)]),
        ({}, [{"content": f"a{HIGH}"}, {"content": "b"}, {"content": "c"}], [("message", "a\ufffdbc", None)]),
        ({}, [{"content": f"a{HIGH}"}, {"content": ""}, {}, {"content": LOW}], [("message", "a😀", None)]),
        ({}, [{"content": f"a{HIGH}b{LOW}{HIGH}"}, {"content": HIGH}], [("message", "a\ufffdb\ufffd\ufffd\ufffd", None)]),
        ({}, [{"refusal": f"a{HIGH}"}, {"refusal": LOW}], [("message", "a😀", None)]),
        (
            {},
            [{"content": [{"type": "text", "text": HIGH}]}, {"content": [{"type": "text", "text": LOW}]}],
            [("message", "😀", None)],
        ),
        (
            {},
            [{"reasoning_content": f"a{HIGH}"}, {"content": f"{LOW}b"}],
            [("reasoning", "a\ufffd", None), ("message", "\ufffdb", None)],
        ),
        (
            {},
            [{"content": HIGH}, argument('{"city":"'), argument(HIGH), argument(f'{LOW}"}}')],
            [("message", "\ufffd", None), ("function_call", '{"city":"😀"}', "get_weather")],
        ),
        (
            {},
            [argument(f'{{"city":"{HIGH}'), argument(f'{{"a":"{HIGH}', 1), argument(f'{LOW}"}}'), argument(f'{LOW}"}}', 1)],
            [("function_call", '{"city":"😀"}', "get_weather"), ("function_call", '{"a":"😀"}', "get_weather")],
        ),
        ({}, [argument(f'{{"city":"{HIGH}"}}')], [("function_call", '{"city":"\ufffd"}', "get_weather")]),
        (TAGGED, [{"content": f"a{HIGH}"}, {"content": f"{LOW}{HIGH}"}], [("message", "a😀\ufffd", None)]),
        (
            TAGGED,
            [{"content": f"a{HIGH}"}, argument(WEATHER)],
            [("message", "a\ufffd", None), ("function_call", WEATHER, "get_weather")],
        ),
        (
            {"family": "qwen3_json"},
            [{"content": f"</think>a{HIGH}"}, {"content": f"{LOW}{HIGH}"}],
            [("message", "a😀\ufffd", None)],
        ),
    ],
)
def test_split_surrogate_pairs_are_joined_and_lone_surrogates_replaced(settings, deltas, expected):
    response = answered(stream(*map(chunk, deltas), chunk({}, "stop")), **settings)[0][-1]["response"]
    assert (response["status"], [item_summary(item) for item in response["output"]]) == ("completed", expected)


def test_a_lone_surrogate_at_the_end_of_a_truncated_call_is_replaced():
    response = answered(stream(chunk(argument(f'{{"city":"{HIGH}')), chunk({}, "length")))[0][-1]["response"]
    assert (response["status"], response["output"][0]["arguments"]) == ("incomplete", '{"city":"\ufffd')


CALL = call(0, WEATHER, "get_weather", "call_1")
DELTAS = [chunk({"reasoning_content": "Hm."}), chunk({"content": "It "}), chunk({"content": "rains."})]
WHOLE = {"role": "assistant", "reasoning_content": "Hm.", "content": "It rains."}
SEEN = [("reasoning", "Hm.", None), ("message", "It rains.", None)]


def message(fields, **choice):
    return {"object": "chat.completion", "choices": [{"index": 0, "message": fields, "finish_reason": "stop", **choice}]}


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([*DELTAS, message(WHOLE)], SEEN),
        ([*DELTAS, message(WHOLE, delta={})], SEEN),
        ([*DELTAS[:2], message(WHOLE, delta={"content": "rains."})], SEEN),
        ([*DELTAS, message({**WHOLE, **CALL})], [*SEEN, ("function_call", WEATHER, "get_weather")]),
        ([*DELTAS, chunk(CALL), message({**WHOLE, **CALL})], [*SEEN, ("function_call", WEATHER, "get_weather")]),
        ([chunk({"role": "assistant", "content": ""}), message(WHOLE)], SEEN),
        ([chunk({"refusal": "No."}), message({"refusal": "No."})], [("message", "No.", None)]),
        ([message({"content": "It "}), message({"content": "rains."})], SEEN[1:]),
    ],
)
def test_a_whole_message_after_its_deltas_adds_only_the_missing_parts(chunks, expected):
    response = answered(stream(*chunks))[0][-1]["response"]
    assert (response["status"], [item_summary(item) for item in response["output"]]) == ("completed", expected)


def test_numbers_that_json_lacks_do_not_end_a_stream():
    data = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [{"logprob": %s}]}}]}\n\n'
    end = stream(chunk({}, "stop"))
    events, _ = answered(Reply((data % b"-Infinity", data % b"1e999", data % b"NaN", *end.body)))
    assert [item_summary(item) for item in events[-1]["response"]["output"]] == [("message", "aaa", None)]


def test_log_probabilities_come_with_the_text_and_have_every_field():
    def scored(text, entry):
        return chunk({"content": text}, logprobs={"content": [entry], "refusal": None})

    top = [{"token": "Yes", "logprob": -0.1}, {"token": "No", "bytes": [78, 111], "logprob": -2}]
    chunks = [scored("Yes", {"token": "Yes", "logprob": -0.1, "bytes": None, "top_logprobs": top})]
    chunks += [scored(".", {"token": ".", "logprob": -0.2, "bytes": [46], "top_logprobs": []}), chunk({}, "stop")]
    events, received = answered(stream(*chunks), body={"include": ["message.output_text.logprobs"], "top_logprobs": 2})
    assert (received[0]["logprobs"], received[0]["top_logprobs"]) == (True, 2)
    top = [{"token": "Yes", "bytes": [89, 101, 115], "logprob": -0.1}, {"token": "No", "bytes": [78, 111], "logprob": -2}]
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == [
        {"token": "Yes", "bytes": [89, 101, 115], "logprob": -0.1, "top_logprobs": top},
        {"token": ".", "bytes": [46], "logprob": -0.2, "top_logprobs": []},
    ]


def test_the_gateway_parses_the_content_of_an_upstream_with_a_family():
    text = 'Hm.</think>\n\n<tool_call>\n{"name": "get_weather", "arguments": {"city":"Berlin"}}\n</tool_call>'
    pieces = [chunk({"content": text[at : at + 3]}) for at in range(0, len(text), 3)]
    events, _ = answered(stream(*pieces, chunk({}, "stop")), family="qwen3_json")
    assert [item_summary(item) for item in events[-1]["response"]["output"]] == [
        ("reasoning", "Hm.", None),
        ("function_call", WEATHER, "get_weather"),
    ]


@pytest.mark.parametrize("size", [1, 5, 100])
def test_a_family_reads_reasoning_tags_beside_calls_that_the_upstream_parses(size):
    text = "<reasoning>Hm. 1 < 2</reasoning>It rains <here>.<"
    pieces = [chunk({"content": text[at : at + size]}) for at in range(0, len(text), size)]
    calls = [chunk(call(0, WEATHER, "get_weather", "call_1"))]
    items = [("reasoning", "Hm. 1 < 2", None), ("message", "It rains <here>.<", None)]
    events, _ = answered(stream(*pieces, chunk({}, "stop")), family="bedrock_gpt_oss")
    assert [item_summary(item) for item in events[-1]["response"]["output"]] == items
    events, _ = answered(stream(*pieces, *calls, chunk({}, "tool_calls")), family="bedrock_gpt_oss")
    assert [item_summary(item) for item in events[-1]["response"]["output"]] == [
        *items,
        ("function_call", WEATHER, "get_weather"),
    ]


@pytest.mark.parametrize("delta", [{"reasoning_content": "Hm."}, {"refusal": "No."}, {"function_call": {"name": "f"}}])
def test_a_family_is_an_error_for_an_upstream_that_parses_its_output(delta):
    events, _ = answered(stream(chunk(delta), chunk({}, "stop")), family="qwen3_json")
    assert "must not be given its family" in events[-1]["response"]["error"]["message"]


# The shortcut writes each read of an upstream to the client at once, and changes nothing else


WORDS = [f"word{number} " for number in range(40)]
BEGIN = (event(chunk({"role": "assistant", "content": ""})), event(chunk({"content": "Well. "})))
PIECES = (*BEGIN, *(event(chunk({"content": word})) for word in WORDS))
END = (event(chunk({}, "stop")), event(b"[DONE]"))
STREAMED = {"model": "m", "input": "Hi", "stream": True}
POSTS = {
    "responses": lambda url: httpx.post(f"{url}/v1/responses", json=STREAMED),
    "messages": lambda url: post_message(url, model="m", stream=True),
    "chat": lambda url: post_chat(url, model="m", stream=True),
}


class Passing:
    """A middleware that a program has added."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        await self.app(scope, receive, send)


class Slow(ScriptedUpstream):
    """Sends each piece after the gateway has read the one before."""

    def __init__(self, replies, reads):
        super().__init__(replies)
        self.reads = reads

    async def _reply(self, reply, receive, send):
        async def send_slowly(message):
            before = len(self.reads)
            await send(message)
            for _ in range(1_000):
                await asyncio.sleep(0.002)
                if len(self.reads) > before or not message.get("body"):
                    break

        await super()._reply(reply, receive, send_slowly)


def without_chance(content):
    """A stream without ids and times."""
    text = re.sub(rb"(_|-)[0-9a-zA-Z]{16,}", b"_x", content)
    return re.sub(rb'"(created|created_at|completed_at)":\d+', rb'"\1":0', text)


@pytest.fixture
def reads(monkeypatch):
    """Each read from the upstream."""
    received, receive = [], Connection.data_received

    def note(connection, data):
        received.append(data)
        receive(connection, data)

    monkeypatch.setattr(Connection, "data_received", note)
    return received


@pytest.fixture
def taken(monkeypatch):
    """The number of outputs that took the shortcut."""
    counts, deliver = [], Shortcut.deliver

    def count(shortcut, chunks):
        counts.append(len(chunks))
        deliver(shortcut, chunks)

    monkeypatch.setattr(Shortcut, "deliver", count)
    return counts


def answer_of(reply, post, reads, *, passes=True, **settings):
    with serve_upstream(Slow([reply], reads)) as url:
        app = build(Settings(), Gateway([upstream_of(UpstreamSettings(url=url, retries=0, **settings))]))
        if not passes:
            app.add_middleware(Passing)
        with ServerThread(app) as gateway_url:
            return without_chance(post(gateway_url).content)


ENDS = {
    "done": END,
    "cut": (CUT,),
    "error": (event({"error": {"message": "No."}}),),
    "malformed": (event(b"{"),),
    "cut after the end": (END[0], CUT),
    "all in one read": (b"".join([PIECES[-1], *END]),),
    "closed": (),
}


@pytest.mark.parametrize(("api", "end"), [*(("responses", end) for end in ENDS), ("messages", "done"), ("chat", "done")])
def test_a_stream_has_the_same_bytes_without_the_shortcut(api, end, taken, reads):
    reply = Reply((*PIECES, *ENDS[end]))
    direct = answer_of(reply, POSTS[api], reads)
    count = sum(taken)
    assert count > len(WORDS) / 2
    assert direct == answer_of(reply, POSTS[api], reads, passes=False)
    assert sum(taken) == count


def test_a_stream_ends_with_its_terminal_event_although_its_upstream_sends_no_end(taken, reads):
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
    words = [{"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "delta": word} for word in WORDS]
    last = {"type": "response.completed", "response": {"status": "completed"}}
    events = [{"type": "response.output_item.added", "output_index": 0, "item": item}, *words, last]
    reply = Reply((*map(event, events), STALL))

    def post(url):
        with ThreadPoolExecutor() as pool:
            return pool.submit(POSTS["responses"], url).result(PATIENCE)

    assert b"event: response.completed" in answer_of(reply, post, reads, api="responses", between_timeout=2 * PATIENCE)
    assert sum(taken) > len(WORDS) / 2


def test_a_large_read_takes_no_shortcut(taken, reads):
    large = event(chunk({"content": "x" * (SMALL + 1)}))
    assert b"x" * (SMALL + 1) in answer_of(Reply((*BEGIN, large, *END)), POSTS["responses"], reads)
    assert sum(taken) <= len(BEGIN)


def test_an_error_in_the_shortcut_fails_the_response_and_loses_no_event(taken, reads, monkeypatch):
    deliver = Shortcut.deliver

    def deliver_with_error(shortcut, chunks):
        deliver(shortcut, chunks)
        if len(taken) == len(WORDS) // 2:
            shortcut.unsent.events = shortcut.driver.feed(["the last word"])
            raise RuntimeError("a secret")

    monkeypatch.setattr(Shortcut, "deliver", deliver_with_error)
    content = answer_of(Reply((*PIECES, *END)), POSTS["responses"], reads)
    numbers = [int(number) for number in re.findall(rb'"sequence_number":(\d+)', content)]
    assert numbers == [*range(len(numbers))]
    assert b'"delta":"the last word"' in content
    assert b"event: response.failed" in content
    assert b"secret" not in content


def test_a_client_that_reads_late_receives_the_whole_stream():
    count = 400
    filler = "y" * 3_000
    reply = Reply((*BEGIN, *(event(chunk({"content": f"{number} {filler} "})) for number in range(count)), *END))
    request = httpx.Request("POST", "http://localhost/v1/responses", json=STREAMED)
    head = f"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(request.content)}\r\n"
    with serve_upstream(ScriptedUpstream([reply])) as upstream_url, socket.socket() as client:
        app = build(Settings(keep_alive=0.01), Gateway([upstream_of(UpstreamSettings(url=upstream_url))]))
        with ServerThread(app) as url:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**15)
            client.connect(("127.0.0.1", int(url.rpartition(":")[2])))
            client.sendall(f"{head}content-type: application/json\r\nconnection: close\r\n\r\n".encode() + request.content)
            received = b""
            client.settimeout(60)
            while part := client.recv(2**16):
                if not received:
                    time.sleep(0.2)  # in which a keep-alive is due many times
                received += part
    assert [int(number) for number in re.findall(rb'"delta":"(\d+) y', received)] == [*range(count)]
    numbers = [int(number) for number in re.findall(rb'"sequence_number":(\d+)', received)]
    assert numbers == [*range(len(numbers))]
    assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_a_client_that_disconnects_ends_the_upstream_request():
    reply = Reply((*PIECES, STALL))
    with gateway(reply) as (url, upstream), httpx.stream("POST", f"{url}/v1/responses", json=STREAMED) as answer:
        for line in answer.iter_lines():
            if WORDS[-1] in line:
                break
    assert upstream.left == 1
