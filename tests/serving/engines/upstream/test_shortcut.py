"""Reads of an upstream are written to the client at once, and all else is as it is without that."""

import asyncio
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from live.chunk_shapes import chunk
from live.dialects import post_chat, post_message
from live.upstream import CUT, PATIENCE, STALL, Reply, ScriptedUpstream, event, gateway, serve_upstream

from interlock.serving.build import build
from interlock.serving.engines.shortcut import Shortcut
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.gateway_config import upstream_of
from interlock.serving.engines.upstream.http_client import SMALL, Connection
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings, UpstreamSettings

WORDS = [f"word{number} " for number in range(40)]
BEGIN = (event(chunk({"role": "assistant", "content": ""})), event(chunk({"content": "Well. "})))
PIECES = (*BEGIN, *(event(chunk({"content": word})) for word in WORDS))
END = (event(chunk({}, "stop")), event(b"[DONE]"))
BODY = {"model": "m", "input": "Hi", "stream": True}
POSTS = {
    "responses": lambda url: httpx.post(f"{url}/v1/responses", json=BODY),
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


def answered(reply, post, reads, *, passes=True, **settings):
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
    direct = answered(reply, POSTS[api], reads)
    count = sum(taken)
    assert count > len(WORDS) / 2
    assert direct == answered(reply, POSTS[api], reads, passes=False)
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

    assert b"event: response.completed" in answered(reply, post, reads, api="responses", between_timeout=2 * PATIENCE)
    assert sum(taken) > len(WORDS) / 2


def test_a_large_read_takes_no_shortcut(taken, reads):
    large = event(chunk({"content": "x" * (SMALL + 1)}))
    assert b"x" * (SMALL + 1) in answered(Reply((*BEGIN, large, *END)), POSTS["responses"], reads)
    assert sum(taken) <= len(BEGIN)


def test_an_error_in_the_shortcut_fails_the_response_and_loses_no_event(taken, reads, monkeypatch):
    deliver = Shortcut.deliver

    def deliver_with_error(shortcut, chunks):
        deliver(shortcut, chunks)
        if len(taken) == len(WORDS) // 2:
            shortcut.unsent.events = shortcut.driver.feed(["the last word"])
            raise RuntimeError("a secret")

    monkeypatch.setattr(Shortcut, "deliver", deliver_with_error)
    content = answered(Reply((*PIECES, *END)), POSTS["responses"], reads)
    numbers = [int(number) for number in re.findall(rb'"sequence_number":(\d+)', content)]
    assert numbers == [*range(len(numbers))]
    assert b'"delta":"the last word"' in content
    assert b"event: response.failed" in content
    assert b"secret" not in content


def test_a_client_that_does_not_read_stops_the_upstream_and_misses_nothing():
    count = 400
    filler = "y" * 3_000
    reply = Reply((*BEGIN, *(event(chunk({"content": f"{number} {filler} "})) for number in range(count)), *END))
    request = httpx.Request("POST", "http://localhost/v1/responses", json=BODY)
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


def test_a_client_that_leaves_ends_the_call_of_the_upstream():
    reply = Reply((*PIECES, STALL))
    with gateway(reply) as (url, upstream), httpx.stream("POST", f"{url}/v1/responses", json=BODY) as answer:
        for line in answer.iter_lines():
            if WORDS[-1] in line:
                break
    assert upstream.left == 1
