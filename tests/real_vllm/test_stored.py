"""Two API processes of one vLLM server with one store: both give the same answer to a request.

Each request has its own connection, which the system gives to either process.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

import httpx
import psutil
import pytest
from playing import TIMEOUT, body, judged, metric
from servers import STORED
from turns import Turn

from interlock.events.sse import DONE_FRAME
from interlock.serving.responses.archive import Archive
from interlock.serving.store import open_store
from interlock.serving.store.values import SHARED

pytestmark = pytest.mark.parametrize("server", ["shared"], indirect=True)

WRITTEN = "<think>Hm.</think>Hello.<|im_end|>"
ENDLESS = "<think>Hm.</think>Hello."
STREAMED = {"params": {"stream": "true"}, "timeout": TIMEOUT}


def request_body(written=WRITTEN, **fields):
    return body("qwen3", Turn("", [written]), **fields)


def ask(server, method, path, **options):
    answer = httpx.request(method, f"{server.url}/v1{path}", timeout=TIMEOUT, **options)
    assert answer.status_code == 200, answer.text
    return answer


def post(server, request, path="/responses"):
    return ask(server, "POST", path, json=request).json()


def read(server, name, **query):
    """Read the stream of a background response to its end."""
    return ask(server, "GET", f"/responses/{name}", params={"stream": "true", **query}).content


def test_both_processes_see_a_stored_response(server):
    previous = None
    for _ in range(6):
        previous = post(server, request_body(previous_response_id=previous))["id"]
    responses = [ask(server, "GET", f"/responses/{previous}").json() for _ in range(6)]
    assert responses == [responses[0]] * 6
    inputs = ask(server, "GET", f"/responses/{previous}/input_items", params={"limit": 100}).json()["data"]
    assert [item["type"] for item in inputs].count("message") == 11
    assert ask(server, "DELETE", f"/responses/{previous}").json()["deleted"] is True
    statuses = [httpx.get(f"{server.url}/v1/responses/{previous}", timeout=TIMEOUT).status_code for _ in range(6)]
    assert statuses == [404] * 6


def test_the_metrics_of_both_processes_are_on_one_page(server):
    names = ("interlock_responses_total", "gen_ai_server_request_duration_seconds_count", "vllm:request_success_total")
    before = [metric(server.url, name) for name in names]
    with ThreadPoolExecutor(4) as pool:
        assert {each["status"] for each in pool.map(lambda _: post(server, request_body()), range(12))} == {"completed"}
    pages = [[metric(server.url, name) - value for name, value in zip(names, before, strict=True)] for _ in range(6)]
    assert pages == [[12, 12, 12]] * 6
    assert [metric(server.url, "interlock_open_streams") for _ in range(6)] == [0] * 6


def test_a_background_response_is_read_repeatedly_from_either_process(server):
    with ThreadPoolExecutor(8) as pool:
        background = [*pool.map(lambda _: post(server, request_body(background=True))["id"], range(12))]
        streams = [*pool.map(lambda name: read(server, name), background * 3)]
        rests = [*pool.map(lambda name: read(server, name, starting_after=4), background)]
    for name, first, *second, rest in zip(background, streams[:12], streams[12:24], streams[24:], rests, strict=True):
        events = judged(first)
        assert (events[-1]["response"]["id"], events[-1]["response"]["status"]) == (name, "completed")
        assert second == [first] * 2
        assert first.endswith(rest)


def test_a_background_response_is_cancelled_from_either_process(server):
    for _ in range(4):  # one after another, so that none fills its context before it is cancelled
        name = post(server, request_body(ENDLESS, background=True))["id"]
        assert post(server, {}, f"/responses/{name}/cancel")["status"] == "cancelled"
        assert judged(read(server, name))[-1]["response"]["status"] == "cancelled"


def test_a_conversation_continues_in_either_process(server):
    conversation = post(server, {"metadata": {"topic": "greetings"}}, "/conversations")["id"]
    for _ in range(5):
        assert post(server, request_body(conversation=conversation))["status"] == "completed"
    listed = ask(server, "GET", f"/conversations/{conversation}/items", params={"limit": 100, "order": "asc"}).json()["data"]
    assert [item["type"] for item in listed] == ["message", "reasoning", "message"] * 5


def test_a_conversation_has_one_response_at_a_time_over_both_processes(server):
    conversation = post(server, {}, "/conversations")["id"]
    first = post(server, request_body(ENDLESS, conversation=conversation, background=True))["id"]
    url = f"{server.url}/v1/responses"
    with ThreadPoolExecutor(4) as pool:  # at once, while the first response still runs
        asking = pool.map(
            lambda _: httpx.post(url, json=request_body(conversation=conversation), timeout=TIMEOUT).status_code, range(4)
        )
        assert [*asking] == [409] * 4
    assert post(server, {}, f"/responses/{first}/cancel")["status"] == "cancelled"
    deadline = time.monotonic() + TIMEOUT
    while (second := httpx.post(url, json=request_body(conversation=conversation), timeout=TIMEOUT)).status_code == 409:
        assert time.monotonic() < deadline
    assert second.json()["status"] == "completed"


@pytest.mark.ends_server  # if one API process dies, vLLM ends the others too
def test_the_responses_of_a_killed_process_end_legally_elsewhere(server):
    names = [post(server, request_body(ENDLESS, background=True))["id"] for _ in range(4)]
    background = Barrier(len(names) + 1)
    with ThreadPoolExecutor(len(names)) as pool:
        reading = [pool.submit(read_until_it_is_cut, server, name, background) for name in names]
        background.wait(TIMEOUT)
        api_processes(server)[0].kill()
        cut = [each.result() for each in reading]
    deadline = time.monotonic() + TIMEOUT
    while not server.process.over:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    whole = asyncio.run(read_here(names))
    assert [stream.startswith(first) for stream, first in zip(whole, cut, strict=True)] == [True] * len(names)
    assert [judged(stream)[-1]["response"]["status"] for stream in whole] == ["failed"] * len(names)


def read_until_it_is_cut(server, name, background):
    """Read a stream until its server is gone, and return the bytes; pass the barrier `background` when it has begun."""
    pieces = []
    with suppress(httpx.TransportError), httpx.stream("GET", f"{server.url}/v1/responses/{name}", **STREAMED) as answer:
        for piece in answer.iter_bytes():
            pieces.append(piece)
            if len(pieces) == 1:
                background.wait(TIMEOUT)
    return b"".join(pieces)


def api_processes(server):
    """Return those child processes of the server that answer requests."""
    return [child for child in psutil.Process(server.process.pid).children() if "APIServer" in " ".join(child.cmdline())]


async def read_here(names):
    """Read streams as another process with the same store does."""
    archive = Archive(open_store(f"sqlite:{STORED}"))
    streams = []
    for name in names:
        tail = await archive.tail(SHARED, await archive.get(SHARED, name))
        streams.append(b"".join([frame async for frames in tail for frame in frames]) + DONE_FRAME)
    await archive.store.close()
    return streams
