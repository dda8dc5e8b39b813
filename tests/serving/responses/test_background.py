"""A background response continues without its client, can be read by many from any event, and ends for all of them."""

import asyncio
import gc
import json
import threading
import tracemalloc
from contextlib import contextmanager

import apsw
import httpx
import openai
import pytest
from live.engines import ANSWER, REASONING, Gate, StagedEngine, step, steps
from live.injection import ask
from live.wire import bodies, without_chance
from openai import OpenAI

from interlock.embedding import random_id
from interlock.events.settings_echo import response_settings
from interlock.events.sse import SseWriter
from interlock.fsm.deltas import Start
from interlock.fsm.driver import ResponseDriver
from interlock.serving.build import build
from interlock.serving.http.server import ServerThread
from interlock.serving.responses.archive import Archive
from interlock.serving.responses.background_response import BATCH_SECONDS
from interlock.serving.settings import Settings
from interlock.serving.store.sqlite import MemoryStore
from interlock.serving.store.values import LEASE, StoreDown, StoredResponse, StoreError, StoreFull
from interlock.verify.oracle import check

REQUEST = {"model": "staged", "input": "Hi", "background": True}
STREAM = {"stream": "true"}
DONE = b"data: [DONE]\n\n"


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def engine(gate):
    """An engine that thinks, waits at the gate, and answers."""
    return StagedEngine([step(REASONING), gate, *steps(ANSWER)])


@pytest.fixture
def url(serve, engine):
    """The URL of a server with the engine."""
    with serve(engine) as url:
        yield f"{url}/v1/responses"


def begin(url, gate, **settings):
    """Begin a response, wait until its engine waits, and return its URL."""
    created = httpx.post(url, json={**REQUEST, **settings}).json()
    assert gate.reached.wait(10)
    return f"{url}/{created['id']}"


def read(one, **query):
    return httpx.get(one, params={**STREAM, **query}).content


@contextmanager
def reading(one, count=1, **query):
    """Read a response in several threads; the contents are complete when the context ends."""
    contents = []
    barrier = threading.Barrier(count + 1, timeout=10)

    def follow():
        with httpx.stream("GET", one, params={**STREAM, **query}) as answer:
            pieces = answer.iter_bytes()
            first = next(pieces)
            barrier.wait()
            contents.append(first + b"".join(pieces))

    threads = [threading.Thread(target=follow) for _ in range(count)]
    for thread in threads:
        thread.start()
    barrier.wait()
    yield contents
    for thread in threads:
        thread.join(10)


def frames(content):
    return content.removesuffix(DONE).split(b"\n\n")[:-1]


def failure(answer):
    error = answer.json()["error"]
    return answer.status_code, error["param"], error["code"]


def test_a_background_response_is_queued_runs_and_completes(url, engine, gate) -> None:
    answer = httpx.post(url, json=REQUEST)
    created = answer.json()
    assert (answer.status_code, created["status"], created["background"], created["output"]) == (200, "queued", True, [])
    one = f"{url}/{created['id']}"
    assert gate.reached.wait(10)
    running = httpx.get(one).json()
    assert (running["status"], [item["type"] for item in running["output"]]) == ("in_progress", ["reasoning"])
    gate.open()
    events = bodies(read(one))
    assert [event["type"].removeprefix("response.") for event in events[:3]] == ["created", "queued", "in_progress"]
    assert events[1]["response"] == created
    assert httpx.get(one).json() == events[-1]["response"]
    assert (events[-1]["response"]["status"], len(engine.turns)) == ("completed", 1)


def test_a_background_response_equals_a_foreground_response(serve) -> None:
    with serve(StagedEngine(steps(REASONING + ANSWER))) as server:
        url = f"{server}/v1/responses"
        first = bodies(httpx.post(url, json={**REQUEST, "stream": True}).content)[-1]["response"]
        whole = httpx.post(url, json={**REQUEST, "background": False}).json()
        assert without_chance(first) == without_chance({**whole, "background": True})
        second = httpx.post(url, json={"model": "staged", "input": "And?", "previous_response_id": first["id"]})
        assert second.json()["status"] == "completed"


def test_many_readers_read_the_same_events_from_any_start(url, gate) -> None:
    one = begin(url, gate)
    with reading(one, count=3) as whole, reading(one, starting_after="00000000004") as rest:
        gate.open()
    assert len({*whole}) == 1
    assert bodies(whole[0])[-1]["type"] == "response.completed"
    assert frames(rest[0]) == frames(whole[0])[5:]
    late = [read(one, starting_after=number) for number in range(len(frames(whole[0])))]
    assert [frames(each) for each in late] == [frames(whole[0])[number + 1 :] for number in range(len(late))]
    assert late[-1] == DONE
    assert read(one) == whole[0]


def test_a_reader_can_disconnect_and_resume(url, gate) -> None:
    with httpx.stream("POST", url, json={**REQUEST, "stream": True}) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        pieces, seen = answer.iter_bytes(), b""
        while seen.count(b"\n\n") < 8:
            seen += next(pieces)
    response_id = json.loads(frames(seen)[0].partition(b"\ndata: ")[2])["response"]["id"]
    assert gate.reached.wait(10)
    gate.open()
    after = len(frames(seen)) - 1
    assert bodies(seen + read(f"{url}/{response_id}", starting_after=after))[-1]["type"] == "response.completed"


def test_a_cancelled_response_ends_for_all_its_readers_and_stays_cancelled(url, engine, gate) -> None:
    one = begin(url, gate)
    with reading(one, count=2) as contents:
        cancelled = httpx.post(f"{one}/cancel")
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    assert engine.closed.is_set()
    assert [bodies(content)[-1]["response"] for content in contents] == [cancelled.json()] * 2
    assert httpx.get(one).json() == httpx.post(f"{one}/cancel").json() == cancelled.json()


def test_cancelling_an_ended_response_changes_nothing(url, gate) -> None:
    one = begin(url, gate)
    gate.open()
    ended = bodies(read(one))[-1]["response"]
    assert httpx.post(f"{one}/cancel").json() == httpx.get(one).json() == ended


def test_an_engine_that_fails_ends_the_response_for_its_readers(serve) -> None:
    gate = Gate()
    with serve(StagedEngine([step(ANSWER), gate, RuntimeError("a secret")])) as server:
        one = begin(f"{server}/v1/responses", gate)
        with reading(one) as contents:
            gate.open()
        (events,) = map(bodies, contents)
        assert events[-1]["type"] == "response.failed"
        assert httpx.get(one).json() == events[-1]["response"]


def test_deleting_a_running_response_cancels_it(url, engine, gate) -> None:
    one = begin(url, gate)
    with reading(one) as contents:
        assert httpx.delete(one).json()["deleted"] is True
    assert bodies(contents[0])[-1]["response"]["status"] == "cancelled"
    assert engine.closed.is_set()
    assert [httpx.get(one, params=params).status_code for params in ({}, STREAM)] == [404, 404]


def test_input_items_are_listed_during_and_after_the_run(url, gate) -> None:
    one = begin(url, gate)
    before = httpx.get(f"{one}/input_items").json()
    gate.open()
    read(one)
    assert [item["content"][0]["text"] for item in before["data"]] == ["Hi"]
    assert httpx.get(f"{one}/input_items").json() == before


def test_a_running_response_cannot_be_continued(url, gate) -> None:
    previous = begin(url, gate).rpartition("/")[2]
    refused = httpx.post(url, json={**REQUEST, "previous_response_id": previous})
    assert failure(refused) == (400, "previous_response_id", "previous_response_not_found")


def test_a_background_response_with_store_false_is_refused(url) -> None:
    assert failure(httpx.post(url, json={**REQUEST, "store": False})) == (400, "background", "invalid_value")


def test_a_foreground_response_can_be_neither_streamed_nor_cancelled(serve) -> None:
    with serve(StagedEngine(steps(ANSWER))) as server:
        url = f"{server}/v1/responses"
        one = f"{url}/{httpx.post(url, json={**REQUEST, 'background': False}).json()['id']}"
        assert failure(httpx.get(one, params=STREAM)) == (400, "stream", "unsupported_parameter")
        assert failure(httpx.post(f"{one}/cancel")) == (400, None, "invalid_value")
        assert httpx.post(f"{url}/resp_no/cancel").status_code == 404


@pytest.mark.parametrize("after", ["-1", "soon", "1.5", ""])
def test_an_invalid_starting_after_is_refused(url, gate, after) -> None:
    one = begin(url, gate)
    assert failure(httpx.get(one, params={**STREAM, "starting_after": after})) == (400, "starting_after", "invalid_value")


def test_a_background_response_can_use_the_open_responses_dialect(url, gate) -> None:
    other = {"OpenResponses-Version": "2026-04-24"}
    with httpx.stream("POST", url, json={**REQUEST, "stream": True}, headers=other) as answer:
        pieces = answer.iter_bytes()
        created = next(pieces)
        assert gate.reached.wait(10)
        gate.open()
        events = bodies(created + b"".join(pieces), "open_responses")
    response = events[-1]["response"]
    assert httpx.get(f"{url}/{response['id']}", headers=other).json() == response


def test_a_shutdown_ends_the_response_for_its_readers(engine, gate) -> None:
    server = ServerThread(build(Settings(), engine))
    with server as url:
        one = begin(f"{url}/v1/responses", gate)
        with reading(one) as contents:
            server.stop()
    events = bodies(contents[0])
    assert events[-1]["response"]["error"]["message"] == "The server is shutting down."
    assert engine.closed.is_set()


def test_a_shutdown_ends_a_response_without_readers(engine, gate) -> None:
    store = MemoryStore()
    with ServerThread(build(Settings(), engine, store=store)) as url:
        response_id = begin(f"{url}/v1/responses", gate).rpartition("/")[2]
    stored = asyncio.run(store.get("", response_id))
    assert (stored.response["status"], [item["type"] for item in stored.output]) == ("failed", ["reasoning"])
    assert engine.closed.is_set()


def test_servers_that_share_a_store_serve_each_others_responses(serve) -> None:
    store = MemoryStore()
    with serve(StagedEngine(steps(ANSWER)), store=store) as server:
        url = f"{server}/v1/responses"
        stream = httpx.post(url, json={**REQUEST, "stream": True}).content
        foreground = httpx.post(url, json={**REQUEST, "background": False}).json()["id"]
    response = bodies(stream)[-1]["response"]
    with serve(StagedEngine(), store=store) as another:
        one = f"{another}/v1/responses/{response['id']}"
        assert httpx.get(one).json() == httpx.post(f"{one}/cancel").json() == response
        assert read(one) == stream
        assert httpx.delete(one).json()["deleted"] is True
        assert httpx.get(one).status_code == 404
        other = f"{another}/v1/responses/{foreground}"
        assert failure(httpx.get(other, params=STREAM)) == (400, "stream", "unsupported_parameter")


@pytest.mark.long
def test_ended_responses_stay_within_the_memory_bound_of_the_store() -> None:
    bound = 4 * 2**20
    body = json.dumps({**REQUEST, "instructions": "x" * 100_000}).encode()

    async def fill():
        engine = StagedEngine(steps(ANSWER))
        app = build(Settings(), engine, store=MemoryStore(max_bytes=bound))
        await ask(app, "POST", "/v1/responses", body)
        gc.collect()
        tracemalloc.start()
        before = apsw.memory_used()
        for _ in range(40):
            answered = await ask(app, "POST", "/v1/responses", body)
            path = f"/v1/responses/{json.loads(answered.body)['id']}"
            del answered  # which holds the whole buffer that it was written into
            await ask(app, "GET", path, query=b"stream=true")  # which ends when the response does
            engine.turns.clear()  # which hold the requests
        await app.routes[0].endpoint.__self__.background_registry.wait(60)
        await asyncio.sleep(4 * BATCH_SECONDS)  # the timer of a batch holds its owner, ended or not
        gc.collect()
        memory = tracemalloc.get_traced_memory()[0] + apsw.memory_used() - before
        tracemalloc.stop()
        return memory, json.loads((await ask(app, "GET", path)).body)["status"]

    memory, status = asyncio.run(fill())
    assert status == "completed"
    assert memory < 1.2 * bound


class BrokenStore(MemoryStore):
    """A store that refuses background responses."""

    error: StoreError

    async def enqueue(self, *_):
        raise self.error


@pytest.mark.parametrize(
    ("error", "status", "code"), [(StoreFull(), 429, "rate_limit_exceeded"), (StoreDown(), 503, "store_unavailable")]
)
def test_a_background_response_that_cannot_be_stored_is_refused_before_generation(serve, error, status, code) -> None:
    engine, store = StagedEngine(steps(ANSWER)), BrokenStore()
    store.error = error
    with serve(engine, store=store) as server:
        answer = httpx.post(f"{server}/v1/responses", json=REQUEST)
    assert (failure(answer), answer.headers["retry-after"], engine.turns) == ((status, None, code), "1", [])


def test_the_real_client_begins_reads_resumes_and_cancels(serve) -> None:
    gates = [Gate(), Gate()]
    engine = StagedEngine(*([step(REASONING), gate, *steps(ANSWER)] for gate in gates))
    with serve(engine) as server, OpenAI(base_url=f"{server}/v1", api_key="any", max_retries=0) as client:
        created = client.responses.create(model="staged", input="Hi", background=True)
        assert created.status == "queued"
        assert gates[0].reached.wait(10)
        gates[0].open()
        with client.responses.retrieve(created.id, stream=True) as stream:
            events = [event.to_dict(mode="json") for event in stream]
        assert check(events) == []
        with client.responses.retrieve(created.id, stream=True, starting_after=6) as stream:
            assert [event.to_dict(mode="json") for event in stream] == events[7:]
        assert client.responses.retrieve(created.id).to_dict(mode="json") == events[-1]["response"]
        running = client.responses.create(model="staged", input="Hi", background=True)
        assert gates[1].reached.wait(10)
        assert client.responses.cancel(running.id).status == "cancelled"
        with pytest.raises(openai.BadRequestError, match="store"):
            client.responses.create(model="staged", input="Hi", background=True, store=False)


def test_a_lost_response_that_cannot_be_ended_does_not_block_the_next() -> None:
    now = 0.0
    store = MemoryStore(clock=lambda: now)

    def queued(number, **fields):
        return StoredResponse({"id": f"resp_{number}", "status": "queued", "output": [], **fields}, ())

    async def scenario():
        nonlocal now
        await store.enqueue("", queued(1), "a")  # without the fields of a response
        settings = response_settings({"model": "any"})
        driver = ResponseDriver(settings, writer=SseWriter(), ids=random_id, clock=lambda: 0, response_id="resp_2")
        frames = driver.feed([Start()])
        lease = await store.enqueue("", StoredResponse({**driver.response, "status": "queued"}, ()), "a")
        await store.append(lease, 0, frames)
        now = LEASE
        with store.subscribe("", "resp_2") as subscription:
            async with Archive(store).maintained(), asyncio.timeout(30):
                while (await store.get("", "resp_2")).response["status"] != "failed":
                    await subscription.wait(1)

    asyncio.run(scenario())
