"""A burst of requests of every kind: no more run at once than the limit allows, and every slot is free again afterwards."""

import asyncio
import json
from contextlib import aclosing

import httpx
import pytest
from attrs import define, field
from live.engines import ANSWER, Gate, StagedEngine, step, steps
from live.injection import PanicException
from websockets.asyncio.client import connect

from interlock.parsers import parser_for
from interlock.serving.build import build
from interlock.serving.engines.engine import Engine, Generation
from interlock.serving.http.server import ServerThread
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.settings import Settings
from interlock.serving.store.sqlite import MemoryStore
from interlock.serving.store.values import StoreDown

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


async def final_response(client, response):
    """The final response of an answer."""
    if response.headers["content-type"] == "application/json":
        body = response.json()
        if body.get("status") != "queued":
            return body
        response = await client.get(f"{PATH}/{body['id']}", params={"stream": "true"})
    (*_, last) = (line for line in response.text.splitlines() if line.startswith("data: {"))
    return json.loads(last.removeprefix("data: "))["response"]


@pytest.mark.parametrize("kinds", [*([kind] * BURST for kind in KINDS), MIXED], ids=[*KINDS, "mixed"])
def test_a_burst_stays_within_the_limit_and_frees_all_slots(kinds) -> None:
    async def burst():
        engine = Counting(len(kinds) - LIMIT)
        app = build(Settings(max_streams=LIMIT), engine)
        async with client_of(app) as client:

            async def ask(kind):
                path, body = KINDS[kind]
                response = await client.post(path, json=body)
                if response.status_code == 429:
                    engine.refused()
                    return 429
                return (await final_response(client, response)).get("status", "compacted")

            answers = await asyncio.gather(*map(ask, kinds))
            while len(app.api.service.active_runs):  # noqa: ASYNC110 - a client sees the end of a response before its run is over
                await asyncio.sleep(0)
            again = [(await client.post(*KINDS[kind][:1], json=KINDS[kind][1])).status_code for kind in dict.fromkeys(kinds)]
        return engine.most, answers, again

    most, answers, again = asyncio.run(burst())
    assert (most, answers.count(429)) == (LIMIT, len(kinds) - LIMIT)
    assert {answer for answer in answers if answer != 429} <= {"completed", "compacted"}
    assert set(again) == {200}


def test_a_burst_over_the_lanes_of_a_websocket_stays_within_the_limit() -> None:
    engine = Counting(BURST - LIMIT)
    engine.all_refused = gate = Gate()
    app = build(Settings(max_streams=LIMIT), engine)

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
                        await asyncio.to_thread(gate.reached.wait)
                        gate.open()
                elif body["type"] == "response.completed":
                    ends.append("completed")
                if len(ends) == BURST:
                    break
            await socket.send(json.dumps({"type": "response.create", **ASK}))
            async for frame in socket:
                if json.loads(frame)["type"] == "response.completed":
                    break
        return ends

    with ServerThread(app) as url:
        ends = asyncio.run(burst(url))
    assert (engine.most, ends.count(429), ends.count("completed")) == (LIMIT, BURST - LIMIT, LIMIT)
    assert len(app.api.service.active_runs) == 0


@define(eq=False)
class Host(Engine):
    """A host engine whose generations do what a test says at each of their calls."""

    fault: dict = field(factory=dict)
    """The exception to raise, by the name of the call."""
    calls: list = field(factory=list)
    closed: int = 0
    format = "harmony"

    models = ("staged",)

    async def begin(self, request, items, tenant, connection):
        del request, items, tenant, connection
        return HostGeneration(self)

    generate = Engine.generate_alone


class HostGeneration(Generation):
    """The generation of a `Host`."""

    def __init__(self, host):
        super().__init__(host, parser_for("harmony", {}))
        self.host = host

    async def _do(self, name):
        self.host.calls.append(name)
        match self.host.fault.get(name):
            case None:
                await asyncio.sleep(0)
            case error:
                raise error

    async def prepare(self, turn):
        del turn
        await self._do("prepare")
        return {}

    async def admit(self, turn):
        del turn
        await self._do("admit")

    async def count(self, turn):
        del turn
        return 1

    async def generate(self, turn):
        del turn
        await self._do("generate")
        yield step(ANSWER)
        yield step("", "stop")

    async def close(self):
        self.host.closed += 1


FAULTS = [
    *((name, error) for name in ("prepare", "admit", "generate") for error in (ApiError(418, "No."), RuntimeError("no"))),
    *((name, PanicException("no")) for name in ("prepare", "admit", "generate")),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "error"), FAULTS, ids=lambda each: each if isinstance(each, str) else type(each).__name__)
def test_every_slot_is_free_after_any_fault_of_the_engine(kind, name, error) -> None:
    async def faulty():
        host = Host({name: error})
        app = build(Settings(max_streams=1), host)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            path, body = KINDS[kind]
            for _ in range(3):
                response = await client.post(path, json=body)
                if response.status_code == 200 and "background" in kind:
                    await final_response(client, response)
                while len(app.api.service.active_runs):  # noqa: ASYNC110 - see above
                    await asyncio.sleep(0)
            host.fault.clear()
            return response.status_code, host.closed, (await client.post(path, json=body)).status_code

    status, closed, after = asyncio.run(faulty())
    in_background = "background" in kind
    refused = name == "prepare" or (name == "admit" and not in_background) or (name == "generate" and kind == "compaction")
    expected = 418 if isinstance(error, ApiError) and name != "generate" else 500
    assert (status, closed, after) == (expected if refused else 200, 3, 200)


@pytest.mark.parametrize(
    ("down", "kinds"), [("find", ["whole", "stream", "background"]), ("enqueue", ["background", "background stream"])]
)
def test_every_slot_is_free_after_a_fault_of_the_store(down, kinds) -> None:
    class Down(MemoryStore):
        async def find(self, *arguments):
            if down == "find":
                raise StoreDown("It cannot be reached.")
            return await super().find(*arguments)

        async def enqueue(self, *arguments):
            if down == "enqueue":
                raise StoreDown("It cannot be reached.")
            return await super().enqueue(*arguments)

    async def faulty(kind):
        host = Host()
        app = build(Settings(max_streams=1), host, store=Down())
        async with client_of(app) as client:
            path, body = KINDS[kind]
            reference = [{"type": "item_reference", "id": "msg_1"}] if down == "find" else "Hi"
            response = await client.post(path, json={**body, "input": reference})
        return response.status_code, len(app.api.service.active_runs), "generate" in host.calls

    for kind in kinds:
        assert asyncio.run(faulty(kind)) == (503, 0, False)
