"""The store in Redis after keys were removed or damaged, or connections were closed, or while others use the server."""

import asyncio
import json
import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest
import redis
from live.engines import ANSWER, Gate, StagedEngine, steps
from live.redis_server import RedisServer, needs_redis
from live.stored import stored

from interlock.embedding import random_id
from interlock.events.resource import response_settings
from interlock.events.sse import SseWriter
from interlock.fsm.deltas import Enqueue, Start
from interlock.fsm.driver import ResponseDriver
from interlock.serving.http.app import create_app
from interlock.serving.http.server import ServerThread
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.responses import archive
from interlock.serving.responses.archive import Archive, adopt
from interlock.serving.store import (
    LEASE,
    Addition,
    LeaseLost,
    SequenceError,
    StoredConversation,
    StoreDown,
    StoredResponse,
    open_store,
)
from interlock.serving.store import redis_client as module
from interlock.serving.store.redis import RedisStore
from interlock.serving.store.redis_client import key_prefix

pytestmark = needs_redis

PREFIX = key_prefix("")
LAYOUT_1 = Path(__file__).parent / "layout_1.aof"
"""The append-only file of a Redis that release 0.1.0 has filled."""


def message(number):
    return {"id": f"msg_{number}", "type": "message", "content": f"Text {number}"}


class Scene:
    """A store, the clock that it reads, and a client of its server."""

    def __init__(self, url, plain):
        self.now = 1_700_000_000.0
        self.plain = plain
        self.store = RedisStore(url, ttl=3600, clock=lambda: self.now)

    def run(self, scenario):
        async def main():
            try:
                return await scenario(self.store)
            finally:
                await self.store.close()

        return asyncio.run(main())


@pytest.fixture
def scene(monkeypatch, redis_url, plain):
    monkeypatch.setattr(module, "RECONNECT", 0.05)
    return Scene(redis_url, plain)


def channels(scene):
    return sorted(name for name in scene.plain.pubsub_channels() if name != b"interlock:alive")


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the state of another process
            await asyncio.sleep(0.01)


def test_responses_of_lost_owners_are_found_after_the_server_was_emptied(scene) -> None:
    async def scenario(store):
        early = await store.enqueue("one", stored(1), "a")
        scene.plain.flushall()
        with pytest.raises(LeaseLost):
            await store.renew(early)
        await store.enqueue("one", stored(2), "a")
        scene.now += LEASE
        return [*await store.lost(10)], scene.plain.get("interlock:layout")

    assert scene.run(scenario) == ([("one", "resp_2")], b"2")


def test_the_next_write_repairs_the_indexes_that_were_evicted(scene) -> None:
    async def scenario(store):
        lease = await store.enqueue("one", stored(1), "a")
        scene.plain.delete("interlock:tenants", f"{key_prefix('one')}:leases", f"{key_prefix('one')}:written")
        await store.renew(lease)
        scene.now += LEASE
        lost = [*await store.lost(10)]
        scene.now += 3600
        return lost, (await store.sweep()).expired

    assert scene.run(scenario) == ([("one", "resp_1")], 1)


def test_a_read_repairs_the_index_of_a_response_whose_owner_is_lost_even_without_memory(scene) -> None:
    async def scenario(store):
        await store.enqueue("one", stored(1), "a")
        scene.now += LEASE
        scene.plain.delete("interlock:tenants", f"{key_prefix('one')}:leases")
        lost = [[*await store.lost(10)]]
        scene.plain.config_set("maxmemory", 1)
        states = [(await store.read("one", "resp_1", 0, 10)).state]
        scene.plain.config_set("maxmemory", 0)
        states.append((await store.read("one", "resp_1", 0, 10)).state)
        return lost, states, [*await store.lost(10)]

    assert scene.run(scenario) == ([[]], ["lost", "lost"], [("one", "resp_1")])


@pytest.mark.parametrize(
    "name",
    [
        "interlock:layout",
        "interlock:tenants",
        *(f"{PREFIX}:{name}" for name in ("leases", "written", "logged", "hidden", "conversations", "count")),
        *(f"{PREFIX}:{kind}:resp_1" for kind in "rbe"),
        *(f"{PREFIX}:{kind}:conv_1" for kind in "cm"),
        f"{PREFIX}:i:msg_1",
        "the segment",
    ],
)
def test_a_key_of_a_wrong_type_stops_nothing_else(scene, name) -> None:
    async def scenario(store):
        conversation = StoredConversation("conv_1", 0, {})
        await store.create_conversation("", conversation, [message(1)])
        lease = await store.enqueue("", stored(1, message(1)), "a")
        await store.append(lease, 0, [b"one"])
        key = next(scene.plain.scan_iter(f"{PREFIX}:s:*")) if name == "the segment" else name
        is_string = scene.plain.type(key) in {b"string", b"none"}
        scene.plain.delete(key)
        if is_string:
            scene.plain.rpush(key, "something")
        else:
            scene.plain.set(key, "something")

        other = await store.enqueue("", stored(2, message(1), message(2)), "b")
        await store.append(other, 0, [b"one"])
        await store.create_conversation("", StoredConversation("conv_2", 0, {}), [message(1)])
        await store.hold("", "conv_2", "resp_2")
        await store.finish(other, 1, [b"two"], stored(2, message(1)), Addition("conv_2", "resp_2", (message(3),)))
        await store.put("", stored(3, message(1), message(2), output=[message(4)]))
        log = await store.read("", "resp_2", 0, 10)
        results = [await store.get("", f"resp_{number}") for number in (2, 3)]
        await store.lost(10)
        await store.info()
        await store.get("", "resp_1")
        await store.read("", "resp_1", 0, 10)
        await store.conversation("", "conv_1")
        await store.put("", stored(4, message(1)))
        await store.create_conversation("", conversation, [message(1)])
        await store.hide("", "resp_2")
        for response_id in ("resp_1", "resp_2"):
            await store.delete("", response_id)
        results.append(await store.conversation_items("", "conv_1"))
        results.append(await store.conversation_items("", "conv_2"))
        scene.now += 3600
        await store.sweep()
        return results, log.frames

    results = [stored(2, message(1)), stored(3, message(1), message(2), output=[message(4)]), (message(1),)]
    assert scene.run(scenario) == ([*results, (message(1), message(3))], (b"one", b"two"))


@pytest.mark.parametrize("record", ["something", b"\x93\x01\x02\x03"])
def test_a_record_that_is_damaged_counts_as_none(scene, record) -> None:
    async def scenario(store):
        await store.put("", stored(1, message(1)))
        scene.plain.set(f"{PREFIX}:r:resp_1", record)
        found = await store.get("", "resp_1")
        await store.put("", stored(1, message(1)))
        return found, await store.get("", "resp_1")

    assert scene.run(scenario) == (None, stored(1, message(1)))


@pytest.mark.parametrize("kind", "rbsi")
def test_a_response_of_which_a_part_was_evicted_is_gone_and_expires(scene, kind) -> None:
    async def scenario(store):
        await store.put("", stored(1, message(1)))
        [key] = scene.plain.scan_iter(f"{PREFIX}:{kind}:*")
        scene.plain.delete(key)
        response = await store.get("", "resp_1")
        scene.now += 3600
        return response, (await store.sweep()).expired, (await store.info()).responses

    assert scene.run(scenario) == (None, 1, {})


def test_events_of_an_evicted_response_are_not_those_of_a_new_one(scene) -> None:
    async def scenario(store):
        lease = await store.enqueue("", stored(1), "a")
        await store.append(lease, 0, [b"old"])
        scene.plain.delete(f"{PREFIX}:r:resp_1")
        lost = [*await store.lost(10)]
        lease = await store.enqueue("", stored(1), "b")
        await store.append(lease, 0, [b"new"])
        return lost, (await store.read("", "resp_1", 0, 10)).frames

    assert scene.run(scenario) == ([], (b"new",))


def test_names_of_responses_that_are_gone_do_not_hide_lost_ones(scene) -> None:
    async def scenario(store):
        for number in range(4):
            await store.enqueue("", stored(number), "a")
        for number in range(3):
            scene.plain.delete(f"{PREFIX}:r:resp_{number}")
        scene.now += LEASE
        await store.lost(2)
        await store.lost(2)
        return [*await store.lost(2)]

    assert scene.run(scenario) == [("", "resp_3")]


def test_a_newer_layout_is_noticed_by_a_running_process(scene) -> None:
    async def scenario(store):
        await store.put("", stored(1))
        scene.plain.set("interlock:layout", 3)
        for call in (store.get("", "resp_1"), store.put("", stored(2)), store.lost(1), store.info()):
            with pytest.raises(StoreDown, match="has layout 3, but this release of Interlock needs layout 2"):
                await call

    scene.run(scenario)


def test_reading_creates_nothing(scene) -> None:
    async def scenario(store):
        await store.info()
        await store.get("", "resp_1")
        await store.migrate()
        await store.lost(1)
        await store.sweep()

    scene.run(scenario)
    assert scene.plain.keys("*") == []


@pytest.mark.parametrize(("policy", "warnings"), [("allkeys-lru", 1), ("noeviction", 0)])
def test_a_server_that_may_evict_keys_is_warned_about_once(scene, caplog, policy, warnings) -> None:
    caplog.set_level(logging.WARNING)
    scene.plain.config_set("maxmemory-policy", policy)

    async def scenario(store):
        await store.put("", stored(1))
        await store.get("", "resp_1")

    try:
        scene.run(scenario)
    finally:
        scene.plain.config_set("maxmemory-policy", "noeviction")
    assert len(caplog.messages) == warnings
    assert all("has the maxmemory-policy allkeys-lru, and may lose stored responses" in text for text in caplog.messages)


def test_a_user_who_may_not_ask_for_the_policy_can_use_the_store(scene, redis_url) -> None:
    scene.plain.acl_setuser("me", enabled=True, passwords=["+secret"], keys=["*"], channels=["*"], commands=["+@all", "-info"])
    store = RedisStore(redis_url.replace("//", "//me:secret@"))

    async def scenario(store):
        await store.put("", stored(1))
        return await store.get("", "resp_1")

    scene.store = store
    try:
        assert scene.run(scenario) == stored(1)
    finally:
        scene.plain.acl_deluser("me")


def test_a_script_that_the_server_has_forgotten_is_loaded_again(scene) -> None:
    async def scenario(store):
        await store.put("", stored(1))
        scene.plain.script_flush()
        await asyncio.gather(*(store.put("", stored(number)) for number in range(2, 100)))
        return (await store.info()).responses

    assert scene.run(scenario) == {"ended": 99}


def test_calls_made_at_once_are_sent_in_few_round_trips_on_few_connections(monkeypatch, scene, redis_url) -> None:
    sizes = []
    execute = module._execute

    async def counted(client, commands):
        sizes.append(len(commands))
        return await execute(client, commands)

    monkeypatch.setattr(module, "_execute", counted)
    scene.store = RedisStore(redis_url, max_connections=3)

    async def scenario(store):
        await store.put("", stored("first"))
        sizes.clear()
        before = scene.plain.info("stats")["total_connections_received"]
        await asyncio.gather(*(store.put("", stored(number, message(number))) for number in range(400)))
        connections = scene.plain.info("stats")["total_connections_received"] - before
        return len(sizes), sum(sizes), connections, (await store.info()).responses

    trips, calls, connections, responses = scene.run(scenario)
    assert (calls, responses) == (400, {"ended": 401})
    assert trips <= 10
    assert connections <= 1


@pytest.mark.parametrize("connections", [2, 3])
def test_calls_that_come_while_others_end_are_sent(scene, redis_url, connections) -> None:
    scene.store = RedisStore(redis_url, max_connections=connections)

    async def scenario(store):
        async def ask(task):
            for number in range(100):
                await store.get("", "resp_1")
                for _ in range(task * number % 4):
                    await asyncio.sleep(0)

        async with asyncio.timeout(60):
            await asyncio.gather(*(ask(task) for task in range(8)))

    scene.run(scenario)


def test_large_calls_are_spread_over_the_connections(monkeypatch, scene) -> None:
    sizes = []
    execute = module._execute

    async def counted(client, commands):
        sizes.append(len(commands))
        return await execute(client, commands)

    async def scenario(store):
        lease = await store.enqueue("", stored(1), "a")
        await store.append(lease, 0, [b"x"])
        leases = [await store.enqueue("", stored(number), "a") for number in range(2, 6)]
        monkeypatch.setattr(module, "_execute", counted)
        await asyncio.gather(*(store.append(each, 0, [b"x" * module.BATCH_SIZE]) for each in leases))

    scene.run(scenario)
    assert sizes == [1, 1, 1, 1]


def test_a_caller_that_is_cancelled_and_one_that_fails_leave_the_others_of_their_batch_alone(scene) -> None:
    async def scenario(store):
        await store.put("", stored(1))
        lease = await store.enqueue("", stored(2), "a")
        calls = [store.put("", stored(number)) for number in range(3, 20)]
        tasks = [asyncio.create_task(call) for call in (*calls, store.append(lease, 5, [b"gap"]))]
        await asyncio.sleep(0)
        tasks[0].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        return [type(result).__name__ for result in results], (await store.info()).responses["ended"]

    names, ended = scene.run(scenario)
    assert names == ["CancelledError", *["NoneType"] * 16, "SequenceError"]
    assert ended == 18


def test_a_listener_whose_connection_is_closed_connects_again(scene) -> None:
    async def scenario(store):
        lease = await store.enqueue("", stored(1), "a")
        with store.subscribe("", "resp_1") as subscription:
            for number in range(5):
                scene.plain.client_kill_filter(_type="pubsub")
                with store.subscribe("", f"resp_{number}"):  # changes the channels while the connection is closed
                    await asyncio.sleep(0)
                await until(lambda: scene.plain.pubsub_numsub(f"{PREFIX}:w:resp_1")[0][1])
                await subscription.wait(0)
                await subscription.wait(0.2)
                await store.append(lease, number, [b"event"])
                await asyncio.wait_for(subscription.wait(60), 30)

    scene.run(scenario)


@pytest.mark.parametrize("kind", [AttributeError, RuntimeError, redis.ConnectionError, OSError])
def test_a_listener_whose_client_raises_any_error_listens_again(monkeypatch, scene, kind) -> None:
    """redis-py raises these if the connection is closed while one task reads and another subscribes."""
    subscribe, errors = module.Listener._subscribe, [kind("closed")]

    async def failing(listener, pubsub, names):
        if errors:
            raise errors.pop()
        await subscribe(listener, pubsub, names)

    monkeypatch.setattr(module.Listener, "_subscribe", failing)

    async def scenario(store):
        with store.subscribe("", "resp_1") as subscription:
            await asyncio.wait_for(subscription.wait(60), 30)

    scene.run(scenario)
    assert errors == []


def test_an_error_of_the_client_that_is_not_of_redis_reaches_the_caller(monkeypatch, scene) -> None:
    async def failing(_client, _commands):
        raise AttributeError("closed")

    async def scenario(store):
        await store.put("", stored(1))
        with monkeypatch.context() as patch:
            patch.setattr(module, "_execute", failing)
            with pytest.raises(AttributeError):
                await store.get("", "resp_1")
        return await store.get("", "resp_1")

    assert scene.run(scenario) == stored(1)


def test_a_subscriber_that_fails_leaves_no_channel_behind(scene) -> None:
    async def scenario(store):
        with store.subscribe("", "resp_1"):
            with suppress(ValueError), store.subscribe("", "resp_2"):
                await until(lambda: len(channels(scene)) == 2)
                raise ValueError
            await until(lambda: channels(scene) == [f"{PREFIX}:w:resp_1".encode()])

    scene.run(scenario)


def test_a_subscription_that_ends_after_the_store_is_closed_starts_no_listener(scene) -> None:
    async def scenario(store):
        with store.subscribe("", "resp_1"):
            await until(lambda: channels(scene))
            await store.close()
        await asyncio.sleep(0.1)
        return len(asyncio.all_tasks()), scene.plain.client_list(_type="pubsub")

    assert scene.run(scenario) == (1, [])


def test_a_store_listens_in_a_second_event_loop_too(scene) -> None:
    async def scenario(store):
        lease = await store.enqueue("", stored(1), "a")
        with store.subscribe("", "resp_1") as subscription:
            await until(lambda: channels(scene))
            await subscription.wait(0.2)
            await store.append(lease, 0, [b"one"])
            await asyncio.wait_for(subscription.wait(60), 30)
        await store.delete("", "resp_1")

    scene.run(scenario)
    scene.run(scenario)


def test_ids_that_are_no_valid_text_are_stored(scene) -> None:
    odd = {"id": "msg_\ud83d", "type": "message"}

    async def scenario(store):
        await store.put("", StoredResponse({"id": "resp_1", "output": []}, (odd,)))
        return dict(await store.find("", ["msg_\ud83d"])), await store.get("", "resp_\ud83d")

    assert scene.run(scenario) == ({"msg_\ufffd": {"id": "msg_\ufffd", "type": "message"}}, None)


def test_a_short_response_takes_at_most_twice_its_json(scene) -> None:
    settings = {
        "object": "response",
        "status": "completed",
        "metadata": {},
        "padding": "x" * 720,
    }  # a body of 860 bytes, as usual

    def response(number):
        content = [{"type": "output_text", "text": "Hello there, world.", "annotations": [], "logprobs": []}]
        answer = {"id": f"msg_{number:032}", "type": "message", "role": "assistant", "status": "completed", "content": content}
        question = {"id": f"msg_q{number:031}", "type": "message", "role": "user", "status": "completed", "content": "Hi there"}
        return StoredResponse({"id": f"resp_{number:032}", **settings, "output": [answer]}, (question,))

    size = sum(len(module.msgspec.json.encode(each)) for each in (response(0).response, response(0).items[0]))

    async def scenario(store):
        await asyncio.gather(*(store.put("", response(number)) for number in range(500)))
        return sum(scene.plain.memory_usage(key, samples=0) for key in scene.plain.scan_iter()) / 500

    assert scene.run(scenario) <= 2 * size


def test_a_store_of_the_first_release_is_migrated(scene, redis_server) -> None:
    with socket.create_connection(("127.0.0.1", redis_server.port)) as connection:
        connection.sendall(LAYOUT_1.read_bytes() + b"QUIT\r\n")
        while connection.recv(4096):
            pass
    scene.now += 60

    def turn(number):
        response = {"id": f"resp_{number}", "status": "completed", "output": [message(2 * number + 1)]}
        return StoredResponse(response, tuple(message(each) for each in range(2 * number + 1)))

    async def scenario(store):
        with pytest.raises(StoreDown, match="has layout 1, but this release of Interlock needs layout 2: run `inter"):
            await store.get("", "resp_1")
        versions = [await store.migrate(), await store.migrate()]
        info = await store.info()
        counts = info.version, dict(info.responses), info.conversations, info.items, info.events
        responses = [await store.get("", f"resp_{number}") for number in range(3)]
        other = await store.get("other", "resp_0")
        conversation = await store.conversation("", "conv_1"), await store.conversation_items("", "conv_1")
        ended = await store.read("", "resp_ended", 0, 10)
        lost = [*await store.lost(10)]
        old = [
            key
            for kind in ("i:*", "l:*", "n:*")
            for key in scene.plain.scan_iter(f"*:{kind}")
            if scene.plain.type(key) != b"string"
        ]
        names = ("resp_0", "resp_1", "resp_2", "resp_ended", "resp_lost")
        await store.put("", turn(3))
        for name in (*names, "resp_3"):
            await store.delete("", name)
        await store.delete("other", "resp_0")
        await store.delete_conversation("", "conv_1")
        return versions, counts, responses, other, conversation, ended, lost, old

    versions, counts, responses, other, conversation, ended, lost, old = scene.run(scenario)
    assert versions == [1, 2]
    assert counts == (2, {"ended": 5, "lost": 1}, 1, 11, 4)
    assert responses == [turn(number) for number in range(3)]
    assert other == turn(0)
    members = (message(0), message(1), message("only"), message(1))
    assert conversation == (StoredConversation("conv_1", 1_700_000_000, {"topic": "why"}, 1), members)
    assert (ended.frames, ended.state) == ((b"one", b"two", b"three"), "ended")
    assert (lost, old) == ([("", "resp_lost")], [])
    assert sorted(scene.plain.keys("*")) == sorted(
        [b"interlock:layout", b"interlock:tenants", *(f"{key_prefix(tenant)}:count".encode() for tenant in ("", "other"))]
    )


@pytest.fixture
def own_server():
    """A durable server, which a test may stop."""
    with closing(RedisServer("--appendonly", "yes", "--appendfsync", "always")) as server:
        yield server


def kill(server):
    server.kill()
    return server.start


def limit_memory(server, size):
    with redis.Redis.from_url(server.url) as plain:
        plain.config_set("maxmemory", size)


def fill_memory(server):
    limit_memory(server, 1)
    return lambda: limit_memory(server, 0)


@pytest.mark.parametrize("strike", [kill, fill_memory])
def test_a_response_during_which_the_server_fails_says_that_it_is_not_stored_and_later_ones_are(
    monkeypatch, own_server, strike
) -> None:
    monkeypatch.setattr(archive, "MAINTENANCE_SECONDS", 0.2)
    gate = Gate()
    body = {"model": "staged", "input": "Hi"}

    def ask():
        return client.post("/responses", json=body)

    application = create_app(StagedEngine([gate, *steps(ANSWER)]), store=open_store(own_server.url))
    with (
        ServerThread(application) as url,
        httpx.Client(base_url=f"{url}/v1", timeout=60) as client,
        ThreadPoolExecutor() as threads,
    ):
        first = threads.submit(ask)
        gate.reached.wait(30)
        mend = strike(own_server)
        gate.open()
        unstored = first.result().json()
        assert (unstored["status"], unstored["store"]) == ("completed", False)
        assert ask().status_code == 503
        mend()
        deadline = time.monotonic() + 60
        while (answer := ask()).status_code == 503 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert answer.json()["store"] is True
        assert client.get(f"/responses/{answer.json()['id']}").json() == answer.json()
        assert client.get(f"/responses/{unstored['id']}").status_code == 404


EVENTS = f"{PREFIX}:e:resp_1"
DAMAGES = {
    "list removed": lambda plain: plain.delete(EVENTS),
    "list replaced": lambda plain: plain.set(EVENTS, "something"),
    "event removed": lambda plain: plain.lpop(EVENTS),
    "event added": lambda plain: plain.rpush(EVENTS, "something"),
}


async def begin(scene, owner="killed"):
    """Begin a response, lose its events, and return its lease."""
    settings = response_settings({"model": "any", "background": True})
    driver = ResponseDriver(settings, writer=SseWriter(), ids=random_id, clock=lambda: 0, response_id="resp_1")
    frames = driver.feed([Enqueue(), Start(), "Hello"])
    lease = await scene.store.enqueue("", StoredResponse({**driver.response, "status": "queued"}, ()), owner)
    await scene.store.append(lease, 0, frames)
    return lease, len(frames)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_lost_response_whose_events_are_damaged_ends_and_can_be_deleted(scene, damage, cancelled) -> None:
    async def scenario(store):
        _, count = await begin(scene)
        DAMAGES[damage](scene.plain)
        responses = Archive(store)
        before = await responses.get("", "resp_1")
        with pytest.raises(ApiError) as expired:
            await responses.tail("", before)
        scene.now += LEASE
        if cancelled:
            await responses.cancel("", "resp_1")
        else:
            assert await adopt(store, "", "resp_1", "another")
        after = await responses.get("", "resp_1")
        log = await store.read("", "resp_1", count, 10)
        await responses.delete("", after)
        return before.response["status"], expired.value.code, after, log, count, await responses.get("", "resp_1")

    before, code, after, log, count, deleted = scene.run(scenario)
    status = "cancelled" if cancelled else "failed"
    assert (before, code, after.response["status"], deleted) == ("queued", "events_expired", status, None)
    (frame,) = log.frames
    end = json.loads(frame.partition(b"\ndata: ")[2])
    assert (log.oldest, end["sequence_number"], end["response"]) == (count, count, after.response)


def test_a_response_whose_events_are_removed_continues_after_them(scene) -> None:
    async def scenario(store):
        lease, count = await begin(scene)
        DAMAGES["list removed"](scene.plain)
        with pytest.raises(SequenceError):
            await store.append(lease, 0, [b"one"])
        await store.append(lease, count, [b"one"])
        logs = [await store.read("", "resp_1", first, 10) for first in (count - 1, count)]
        return [(log.frames, log.oldest - count, log.following - count) for log in logs]

    assert scene.run(scenario) == [((), 0, 1), ((b"one",), 0, 1)]


def test_a_lost_response_whose_body_is_removed_is_deleted(scene) -> None:
    async def scenario(store):
        await begin(scene)
        scene.plain.delete(f"{PREFIX}:b:resp_1")
        scene.now += LEASE
        ended = await adopt(store, "", "resp_1", "another")
        return ended, await store.read("", "resp_1", 0, 1), [*await store.lost(10)], scene.plain.exists(EVENTS)

    assert scene.run(scenario) == (True, None, [], 0)
