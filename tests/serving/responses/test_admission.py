"""A burst of requests of every kind: no more run at once than the limit allows, and every slot is free again afterwards."""

import asyncio
import json
from contextlib import aclosing

import httpx
import pytest
from live.engines import ANSWER, StagedEngine, steps
from websockets.asyncio.client import connect

from interlock.serving.http.app import create_app
from interlock.serving.http.server import ServerThread

LIMIT, BURST = 2, 12
ASK = {"model": "staged", "input": "Hi", "truncation": "auto"}
PATH = "/v1/responses"
KINDS = {
    "whole": (PATH, ASK),
    "stream": (PATH, {**ASK, "stream": True}),
    "background": (PATH, {**ASK, "background": True}),
    "background stream": (PATH, {**ASK, "background": True, "stream": True}),
    "compaction": (f"{PATH}/compact", {"model": "staged", "input": "Hi"}),
}
MIXED = [kind for kind in KINDS for _ in range(3)]


class Counting(StagedEngine):
    """Counts its generations that run at once, which wait until as many requests as expected were refused."""

    def __init__(self, refusals):
        super().__init__(steps(ANSWER))
        self.running = self.most = 0
        self.missing = refusals
        self.all_refused = asyncio.Event()

    async def count(self, turn):
        for _ in range(3):  # other requests go on meanwhile
            await asyncio.sleep(0)
        return await super().count(turn)

    async def generate(self, turn):
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.all_refused.wait()
            async with aclosing(super().generate(turn)) as outputs:
                async for output in outputs:
                    yield output
        finally:
            self.running -= 1

    def refused(self):
        self.missing -= 1
        if not self.missing:
            self.all_refused.set()


def client_of(app):
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", timeout=600)


async def ended(client, response):
    """The final response of an answer."""
    if response.headers["content-type"] == "application/json":
        body = response.json()
        if body.get("status") != "queued":
            return body
        response = await client.get(f"{PATH}/{body['id']}", params={"stream": "true"})
    (*_, last) = (line for line in response.text.splitlines() if line.startswith("data: {"))
    return json.loads(last.removeprefix("data: "))["response"]


@pytest.mark.parametrize("kinds", [*([kind] * BURST for kind in KINDS), MIXED], ids=[*KINDS, "mixed"])
def test_a_burst_does_not_pass_the_limit_and_all_slots_are_free_afterwards(kinds) -> None:
    async def burst():
        engine = Counting(len(kinds) - LIMIT)
        app = create_app(engine, max_streams=LIMIT)
        async with client_of(app) as client:

            async def ask(kind):
                path, body = KINDS[kind]
                response = await client.post(path, json=body)
                if response.status_code == 429:
                    engine.refused()
                    return 429
                return (await ended(client, response)).get("status", "compacted")

            answers = await asyncio.gather(*map(ask, kinds))
            while len(app.state.active_runs):  # noqa: ASYNC110 - a client sees the end of a response before its run is over
                await asyncio.sleep(0)
            again = [(await client.post(*KINDS[kind][:1], json=KINDS[kind][1])).status_code for kind in dict.fromkeys(kinds)]
        return engine.most, answers, again

    most, answers, again = asyncio.run(burst())
    assert (most, answers.count(429)) == (LIMIT, len(kinds) - LIMIT)
    assert {answer for answer in answers if answer != 429} <= {"completed", "compacted"}
    assert set(again) == {200}


def test_a_burst_over_the_lanes_of_a_websocket_does_not_pass_the_limit() -> None:  # noqa: C901 - one client, read to its end
    engine = Counting(BURST - LIMIT)
    app = create_app(engine, max_streams=LIMIT)

    async def burst(url):
        ends = []
        async with connect(url.replace("http", "ws", 1) + PATH, open_timeout=None) as socket:
            for number in range(BURST):
                await socket.send(json.dumps({"type": "response.create", **ASK, "stream_id": f"{number}"}))
            async for frame in socket:
                body = json.loads(frame)
                if body["type"] == "error":
                    ends.append(body["status"])
                    if ends.count(429) == BURST - LIMIT:
                        loop.call_soon_threadsafe(engine.all_refused.set)
                elif body["type"] == "response.completed":
                    ends.append("completed")
                if len(ends) == BURST:
                    break
            await socket.send(json.dumps({"type": "response.create", **ASK}))
            async for frame in socket:
                if json.loads(frame)["type"] == "response.completed":
                    break
        return ends

    loop = None

    class Waiting(asyncio.Event):
        async def wait(self):
            nonlocal loop
            loop = asyncio.get_running_loop()
            return await super().wait()

    engine.all_refused = Waiting()
    with ServerThread(app) as url:
        ends = asyncio.run(burst(url))
    assert (engine.most, ends.count(429), ends.count("completed"), len(app.state.active_runs)) == (LIMIT, BURST - LIMIT, LIMIT, 0)
