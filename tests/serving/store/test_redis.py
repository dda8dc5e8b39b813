"""The store in Redis survives a restart of the server, wakes readers on any host, and removes deleted responses completely."""

import asyncio
import socket
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from live.engines import ANSWER, Gate, StagedEngine, steps
from live.redis_server import RedisServer, needs_redis
from live.stored import message, run, stored

from interlock.serving.http.app import create_app
from interlock.serving.http.server import ServerThread
from interlock.serving.store import (
    Addition,
    Conflict,
    LeaseLost,
    SequenceError,
    StoredConversation,
    StoreDown,
    open_store,
)
from interlock.serving.store.redis import SCRIPT, RedisStore
from interlock.serving.store.redis_client import Disconnected, key_prefix

pytestmark = needs_redis

CERTIFICATE = str(Path(__file__).parents[2] / "support" / "live" / "mcp_test.pem")
"""A self-signed certificate of the name mcp.test."""

DELETED = {"trigger": "delete", "leased": False, "items": []}


@pytest.fixture
def own_server():
    """A durable server, which a test may kill."""
    server = RedisServer("--appendonly", "yes", "--appendfsync", "always")
    yield server
    server.close()


def test_a_server_is_used_over_tls_if_the_system_trusts_its_certificate(monkeypatch) -> None:
    find = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _host, *more, **options: find("127.0.0.1", *more, **options))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    files = ["--tls-cert-file", CERTIFICATE, "--tls-key-file", CERTIFICATE, "--tls-auth-clients", "no"]
    with closing(RedisServer("--tls-port", str(port), *files)):

        async def scenario(store):
            await store.put("", stored(1, message(1)))
            return await store.get("", "resp_1")

        with pytest.raises(StoreDown, match="certificate verify failed"):
            run(open_store(f"rediss://mcp.test:{port}/0"), scenario)
        monkeypatch.setenv("SSL_CERT_FILE", CERTIFICATE)
        assert run(open_store(f"rediss://mcp.test:{port}/0"), scenario) == stored(1, message(1))
        with pytest.raises(StoreDown, match=r"not valid for 'elsewhere\.test'"):
            run(open_store(f"rediss://elsewhere.test:{port}/0"), scenario)


def test_acknowledged_writes_survive_a_killed_server_and_the_store_recovers_by_itself(own_server) -> None:
    async def scenario(store):
        lease = await store.enqueue("", stored(1), "a")
        await store.append(lease, 0, [b"one"])
        own_server.kill()
        with pytest.raises(StoreDown, match=rf"redis://127.0.0.1:{own_server.port}/0 cannot be used: "):
            await store.append(lease, 1, [b"two"])
        for ask in (store.lost(1), store.info(), store.migrate()):
            with pytest.raises(StoreDown):
                await ask
        own_server.start()
        await store.append(lease, 1, [b"two"])
        log = await store.read("", "resp_1", 0, 10)
        return log.frames, log.state

    assert run(RedisStore(own_server.url), scenario) == ((b"one", b"two"), "running")


def test_a_subscriber_is_woken_by_another_process_even_after_the_server_has_restarted(own_server) -> None:
    async def scenario(store):
        other = RedisStore(own_server.url)
        lease = await store.enqueue("", stored(1), "a")
        with store.subscribe("", "resp_1") as watch, store.subscribe("", "resp_2") as quiet:
            await asyncio.wait_for(watch.wait(60), 30)  # for changes before the listener started
            await quiet.wait(60)
            await other.append(lease, 0, [b"one"])
            await asyncio.wait_for(watch.wait(60), 30)
            own_server.kill()
            own_server.start()
            await asyncio.wait_for(watch.wait(60), 30)  # for changes while the connection was lost
            await other.append(lease, 1, [b"two"])
            await asyncio.wait_for(watch.wait(60), 30)
            log = await store.read("", "resp_1", 0, 10)
        await other.close()
        return log.frames

    assert run(RedisStore(own_server.url), scenario) == (b"one", b"two")


def test_many_subscribers_share_one_connection(redis_url, plain) -> None:
    async def scenario(store):
        await store.put("", stored(1))
        watches = [store.subscribe("", f"resp_{number}") for number in range(50)]
        entered = [watch.__enter__() for watch in watches]
        for watch in entered:
            await asyncio.wait_for(watch.wait(60), 30)
        clients = plain.client_list(_type="pubsub")
        for watch in watches:
            watch.__exit__(None, None, None)
        return len(clients), int(clients[0]["sub"])

    assert run(RedisStore(redis_url), scenario) == (1, 51)


class Crowd(Gate):
    """A point at which runs wait until all of them have reached it."""

    def __init__(self, count):
        self.wait = asyncio.Barrier(count).wait


@pytest.mark.parametrize("connections", ["", "?max_connections=2"])
def test_many_responses_that_end_at_once_can_all_be_fetched_afterwards(redis_url, connections) -> None:
    count = 150  # more than the connections of redis-py's default pool
    engine = StagedEngine([Crowd(count), *steps(ANSWER)])

    async def ask(url):
        async with httpx.AsyncClient(base_url=f"{url}/v1", timeout=60, limits=httpx.Limits()) as client:
            posted = await asyncio.gather(
                *(client.post("/responses", json={"model": "staged", "input": "Hi"}) for _ in range(count))
            )
            responses = [answer.json() for answer in posted]
            stored = await asyncio.gather(*(client.get(f"/responses/{response['id']}") for response in responses))
            return responses, [answer.json() for answer in stored]

    with ServerThread(create_app(engine, store=open_store(f"{redis_url}{connections}"))) as url:
        responses, stored = asyncio.run(ask(url))
    assert [response["status"] for response in responses] == ["completed"] * count
    assert stored == responses


def test_a_long_conversation_costs_what_its_items_do_and_is_sent_once(redis_url, plain) -> None:
    def turns(count):
        items = [message(number, f"{number} " * 100) for number in range(2 * count)]
        return [stored(turn, *items[: 2 * turn + 1], output=items[2 * turn + 1 : 2 * turn + 2]) for turn in range(count)]

    async def scenario(store):
        sizes = []
        for index, turn in enumerate(turns(100)):
            if index in {50, 99}:
                before = plain.info()["total_net_input_bytes"]
            await store.put("", turn)
            if index in {50, 99}:
                sizes.append(plain.info()["total_net_input_bytes"] - before)
        last = await store.get("", "resp_99")
        keys = len(plain.keys(f"{key_prefix('')}:[is]:*"))
        return sizes, last == turns(100)[-1], keys

    (middle, late), same, keys = run(RedisStore(redis_url), scenario)
    assert late < 3 * middle
    assert (same, keys) == (True, 300)


def test_no_keys_remain_of_deleted_and_expired_responses(redis_url, plain) -> None:
    shift = 0.0
    store = RedisStore(redis_url, ttl=3600, clock=lambda: time.time() + shift)
    conversation = StoredConversation("conv_1", 1_700_000_000, {})

    async def scenario(store):
        nonlocal shift
        await store.create_conversation("", conversation, [message(1)])
        await store.hold("", "conv_1", "resp_1")
        await store.put("", stored(1, message(1), output=[message(2)]), Addition("conv_1", "resp_1", (message(1), message(2))))
        lease = await store.enqueue("", stored(2, message(1), message(2), message(3)), "a")
        await store.append(lease, 0, [b"one"])
        await store.put("", stored(3, message(1), output=[message(4)]))
        await store.delete("", "resp_1")
        await store.delete_conversation("", "conv_1")
        shift = 3600
        return (await store.sweep()).expired

    assert run(store, scenario) == 2
    keys = plain.keys("*")
    assert sorted(keys) == [b"interlock:layout", b"interlock:tenants", f"{key_prefix('')}:count".encode()]
    assert plain.get(f"{key_prefix('')}:count") == b"0"


def test_storing_a_response_removes_expired_ones(redis_url) -> None:
    shift = 0.0
    store = RedisStore(redis_url, ttl=3600, clock=lambda: time.time() + shift)

    async def scenario(store):
        nonlocal shift
        for number in range(3):
            await store.put("", stored(number, message(number)))
        shift = 3600
        await store.put("", stored(3, message(3)))
        return await store.info()

    info = run(store, scenario)
    assert (info.responses, info.items) == ({"ended": 1}, 1)


def test_a_log_is_trimmed_some_time_after_its_end(redis_url) -> None:
    shift = 0.0
    store = RedisStore(redis_url, logs=60, clock=lambda: time.time() + shift)

    async def scenario(store):
        nonlocal shift
        lease = await store.enqueue("", stored(1), "a")
        await store.finish(lease, 0, [b"one", b"two"], stored(1))
        early = await store.sweep()
        shift = 60
        late = await store.sweep()
        log = await store.read("", "resp_1", 0, 10)
        return early.trimmed, late.trimmed, (await store.sweep()).trimmed, log.frames, log.oldest, log.following, log.state

    assert run(store, scenario) == (0, 1, 0, (), 2, 2, "ended")


def test_a_response_that_continues_one_that_is_deleted_meanwhile_is_stored_whole(monkeypatch, redis_url) -> None:
    items = [message(number) for number in range(40)]
    run_script = RedisStore._run
    replies = []

    async def interfered(store, name, tenant, arguments, **options):
        replies.append(await run_script(store, name, tenant, arguments, **options))
        if replies[-1] == [b"incomplete", 20]:
            await run_script(store, "write", tenant, {**DELETED, "id": "resp_1"})
        return replies[-1]

    async def scenario(store):
        await store.put("", stored(1, *items[:20]))
        monkeypatch.setattr(RedisStore, "_run", interfered)
        await store.put("", stored(2, *items[:39]))
        await store.put("", stored(3, *items))
        replies.append([await store.get("", f"resp_{number}") for number in (2, 3)])

    run(RedisStore(redis_url), scenario)
    assert replies[-1] == [stored(2, *items[:39]), stored(3, *items)]
    assert replies[:-3] == [[b"incomplete", 20], [b"incomplete", 0], [b"ok", 0, 0], [b"ok", 0, 0]]


def test_a_server_without_room_is_down_until_there_is_some(redis_url, plain) -> None:
    async def scenario(store):
        await store.put("", stored(1))
        plain.config_set("maxmemory", 1)
        with pytest.raises(StoreDown, match="maxmemory"):
            await store.put("", stored(2))
        plain.config_set("maxmemory", 0)
        await store.put("", stored(3))
        return [await store.get("", f"resp_{number}") is not None for number in (1, 2, 3)]

    assert run(RedisStore(redis_url), scenario) == [True, False, True]


def test_a_server_without_room_cancels_trims_and_deletes(redis_url, plain) -> None:
    async def scenario(store):
        await store.put("", stored(1, message(1)))
        lease = await store.enqueue("", stored(2), "a")
        await store.finish(await store.enqueue("", stored(3), "a"), 0, [b"event"], stored(3))
        await store.create_conversation("", StoredConversation("conv_1", 0, {}), [message(1), message(2)])
        plain.config_set("maxmemory", 1)
        try:
            return [
                await store.delete("", "resp_1"),
                await store.cancel("", "resp_2"),
                await store.renew(lease),
                await store.delete("", "resp_2"),
                await store.trim("", "resp_3"),
                await store.hide("", "resp_3"),
                (await store.delete_item("", "conv_1", "msg_1")).version,
                await store.delete_conversation("", "conv_1"),
            ]
        finally:
            plain.config_set("maxmemory", 0)

    assert run(RedisStore(redis_url), scenario) == [True, True, True, True, True, True, 1, True]


def test_a_password_is_shown_nowhere(redis_url) -> None:
    store = RedisStore(redis_url.replace("//", "//me:secret@"))

    async def scenario(store):
        with pytest.raises(StoreDown) as refused:
            await store.get("", "resp_1")
        return str(refused.value)

    assert "secret" not in run(store, scenario)


def test_a_layout_of_a_newer_release_is_refused(redis_url, plain) -> None:
    plain.set("interlock:layout", 3)

    async def scenario(store):
        for ask in (store.get("", "resp_1"), store.migrate()):
            with pytest.raises(StoreDown, match="/0 has layout 3, but this release of Interlock needs layout 2: use a newer rel"):
                await ask

    run(RedisStore(redis_url), scenario)


def test_a_url_names_the_server_and_the_parameters(redis_url) -> None:
    store = open_store(f"{redis_url.replace('redis:', 'valkey:')}?ttl=1h&logs=never&max_connections=7")
    assert (store.url, store.ttl, store.logs, store.max_connections) == (redis_url, 3600, None, 7)
    assert open_store("rediss://db").url == "rediss://db"

    async def scenario(store):
        await store.put("", stored(1))
        return await store.get("", "resp_1"), (await store.info()).kind.partition(" ")[0]

    response, kind = run(store, scenario)
    assert response == stored(1)
    assert kind in {"Redis", "Valkey"}


def test_all_keys_of_a_tenant_are_in_one_slot_of_a_cluster(redis_url, plain) -> None:
    async def scenario(store):
        lease = await store.enqueue("one", stored(1, message(1)), "a")
        await store.append(lease, 0, [b"one"])
        await store.create_conversation("one", StoredConversation("conv_1", 0, {}), [message(1)])
        return await store.get("one", "resp_1")

    assert run(RedisStore(redis_url), scenario) == stored(1, message(1))
    names = plain.keys("*")
    others = [name for name in names if not name.startswith(key_prefix("one").encode())]
    assert sorted(others) == [b"interlock:layout", b"interlock:tenants"]
    assert "{" in key_prefix("one")


def test_the_script_contains_the_tables(redis_url) -> None:
    assert redis_url
    assert "lost = {append = {'running', {'log', 'extend', 'wake'}, true}, " in SCRIPT
    assert "adopt = {'running', {'take', 'wake'}, false}" in SCRIPT
    assert "expired = {}" in SCRIPT


def test_refusals_raise_the_errors_of_the_other_stores(redis_url) -> None:
    async def scenario(store):
        lease = await store.enqueue("", stored(1), "a")
        errors = []
        for error, attempt in (
            (SequenceError, store.append(lease, 5, [b"one"])),
            (Conflict, store.put("", stored(1))),
            (Conflict, store.finish(lease, 0, [b"one"], stored(1), Addition("conv_1", "resp_1", ()))),
        ):
            with pytest.raises(error) as refused:
                await attempt
            errors.append(str(refused.value))
        await store.delete("", "resp_1")
        with pytest.raises(LeaseLost) as refused:
            await store.renew(lease)
        return [*errors, str(refused.value)]

    assert run(RedisStore(redis_url), scenario) == [
        "The next event has the number 0, not 5.",
        "There is a response with that id already; it is queued.",
        "The conversation 'conv_1' was taken or changed meanwhile.",
        "The lease of 'a' is over: the response is absent.",
    ]


def test_a_write_whose_reply_is_lost_is_made_once(monkeypatch, redis_url) -> None:
    """The connection is lost after Redis has carried out the call, so that the store cannot know."""
    run_script = RedisStore._run
    losing = []

    async def lost(store, name, *arguments, **options):
        reply = await run_script(store, name, *arguments, **options)
        if name == "write" and losing.pop():
            raise Disconnected("The answer did not come.")
        return reply

    monkeypatch.setattr(RedisStore, "_run", lost)

    async def scenario(store):
        await store.create_conversation("", StoredConversation("conv_1", 0, {}))
        losing.extend([False, True] * 7)
        lease = await store.enqueue("", stored(1), "a")
        await store.append(lease, 0, [b"one"])
        await store.hold("", "conv_1", "resp_1")
        await store.renew_hold("", "conv_1", "resp_1")
        await store.finish(lease, 1, [b"two"], stored(1), Addition("conv_1", "resp_1", (message(1),)))
        ended = await store.read("", "resp_1", 0, 10)
        hidden = await store.hide("", "resp_1")
        await store.release("", "conv_1", "resp_1")
        await store.put("", stored(2))
        await store.hold("", "conv_1", "resp_3")
        await store.put("", stored(3), Addition("conv_1", "resp_3", (message(2),)))
        losing.pop()
        with pytest.raises(Conflict):
            await store.put("", stored(4), Addition("conv_1", "resp_3", (message(3),)))
        losing.append(True)
        with pytest.raises(StoreDown):
            await store.delete("", "resp_2")
        log = await store.read("", "resp_1", 0, 10)
        present = [await store.get("", f"resp_{number}") is not None for number in (1, 2, 3, 4)]
        states = ended.state, hidden, log.state
        return lease.epoch, log.frames, states, present, await store.conversation_items("", "conv_1"), losing

    expected = 1, (b"one", b"two"), ("ended", True, "hidden"), [False, False, True, False], (message(1), message(2)), []
    assert run(RedisStore(redis_url), scenario) == expected
