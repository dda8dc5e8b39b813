"""A gateway begins each response once, and answers, cancels and stops also before the head of its upstream's answer."""

import asyncio
import json
import threading
from contextlib import contextmanager

import httpx
import pytest
from live.chunk_shapes import chunk
from live.upstream import ScriptedUpstream, gateway, serve_upstream, stream
from websockets.sync.client import connect

from interlock.serving.build import build
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.gateway_config import upstream_of
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings, UpstreamSettings

GOOD = stream(chunk({"content": "Yes."}), chunk({}, "stop"))
ASK = {"model": "m", "input": "Hi"}
PATH = "/v1/responses"


class Headless(ScriptedUpstream):
    """An upstream that withholds the head of its answer until `go_on` is set, or the client has disconnected."""

    def __init__(self):
        super().__init__([GOOD])
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
    with serve_upstream(upstream) as upstream_url:
        server = ServerThread(
            build(Settings(), Gateway([upstream_of(UpstreamSettings(url=upstream_url, models=["m"], retries=0))]))
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

    with gateway(GOOD) as (url, upstream):
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
    with gateway(GOOD) as (url, upstream):
        answer = httpx.post(f"{url}{PATH}", json={**ASK, "background": True, "temperature": 7})
    assert (answer.status_code, upstream.bodies) == (400, [])


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_a_websocket_that_cancels_or_closes_before_the_head_leaves_the_upstream(end) -> None:
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
