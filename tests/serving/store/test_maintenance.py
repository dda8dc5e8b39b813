"""Maintenance by an archive, the URLs of stores, the size of a response, and stores that several processes share."""

import asyncio
import json
import logging
import sys
import threading
from itertools import product

import pytest
from for_each import for_each
from live.stores import KINDS, POSTGRES, SHARED, message, run, stored

from interlock.embedding import random_id
from interlock.events.settings_echo import response_settings
from interlock.events.sse import SseWriter
from interlock.fsm.deltas import Start
from interlock.fsm.driver import ResponseDriver
from interlock.serving.responses import archive
from interlock.serving.responses.archive import Archive
from interlock.serving.settings import Times
from interlock.serving.store import open_store
from interlock.serving.store.sqlite import MemoryStore, SqliteStore
from interlock.serving.store.values import LEASE, StoreDown, StoredResponse, StoreUnusable

NEVER = 3600.0


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def large(number):
    return StoredResponse({"id": f"resp_{number}", "output": []}, ({"id": f"msg_{number}", "content": f"{number:04}" * 10_000},))


async def enqueue(store, number, **fields):
    """Enqueue a response in progress that a server can end."""
    settings = response_settings({"model": "any"})
    driver = ResponseDriver(settings, writer=SseWriter(), ids=random_id, clock=lambda: 0, response_id=f"resp_{number}")
    frames = driver.feed([Start()])
    lease = await store.enqueue("", StoredResponse({**driver.response, "status": "queued", **fields}, ()), "lost")
    await store.append(lease, 0, frames)


async def fill(archive):
    for number in range(1000):
        await archive.put("", large(number))


async def until(condition):
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - a state of the store
            await asyncio.sleep(0.01)


async def status(store, number):
    return (await store.get("", f"resp_{number}")).response["status"]


def messages(caplog):
    return [record.getMessage() for record in caplog.records if record.name == archive.__name__]


def test_a_store_full_of_expired_responses_becomes_usable_again(make_store) -> None:
    clock = Clock()
    store = make_store("sqlite", ttl=60, clock=clock, max_bytes=5 * 2**20)

    async def scenario():
        archive = Archive(store, Times(maintenance=0.01))
        with pytest.raises(StoreDown):
            await fill(archive)
        clock.now += 60

        async def is_used():
            try:
                archive.require_store()
            except StoreDown:
                return False
            return True

        async with archive.maintained():
            await until(is_used)
            await archive.put("", large(0))
            return (await store.info()).responses

    assert asyncio.run(scenario()) == {"ended": 1}


def test_an_outage_is_logged_when_it_begins_and_when_it_ends(make_store, caplog) -> None:
    caplog.set_level(logging.WARNING)
    store = make_store("memory")
    enqueue, put, probes = store.enqueue, store.put, []

    async def down(*arguments):
        probes.append(arguments)
        raise StoreDown("The cable is unplugged.")

    store.put = store.enqueue = down

    async def scenario():
        archive = Archive(store, Times(maintenance=0.01))
        with pytest.raises(StoreDown):
            await archive.enqueue("", large(1))
        with pytest.raises(StoreDown, match="The cable is unplugged"):
            archive.require_store()
        async with archive.maintained():
            await until(lambda: asyncio.sleep(0, len(probes) > 5))
            store.put, store.enqueue = put, enqueue
            await until(lambda: asyncio.sleep(0, len(messages(caplog)) > 1))
            archive.require_store()

    asyncio.run(scenario())
    assert messages(caplog) == ["the store cannot be used: The cable is unplugged.", "the store can be used again"]


@pytest.mark.parametrize("kind", KINDS)
def test_all_responses_of_a_lost_server_are_ended_in_one_round(make_store, kind) -> None:
    clock = Clock()
    store = make_store(kind, clock=clock)

    async def scenario():
        for number in range(40):
            await enqueue(store, number)
        clock.now += LEASE

        async def all_ended():
            return (await store.info()).responses == {"ended": 40}

        async with Archive(store, Times(maintenance=NEVER)).maintained():
            await until(all_ended)
            return {await status(store, number) for number in range(40)}

    assert asyncio.run(scenario()) == {"failed"}


def test_responses_that_cannot_be_ended_delay_no_other_and_are_logged_once(make_store, caplog) -> None:
    clock = Clock()
    store = make_store("memory", clock=clock)
    adopt, attempts = store.adopt, []

    async def locked(tenant, response_id, owner):
        number = int(response_id.removeprefix("resp_"))
        if number < 20:
            attempts.append(number)
            raise StoreDown("The row is locked.")
        return await adopt(tenant, response_id, owner)

    store.adopt = locked

    async def scenario():
        for number in range(21):
            clock.now += 0.001
            await enqueue(store, number)
        clock.now += LEASE
        archive = Archive(store, Times(maintenance=0.01))
        async with archive.maintained():
            await until(lambda: asyncio.sleep(0, len(attempts) >= 60))
            archive.require_store()
            return await status(store, 20)

    assert asyncio.run(scenario()) == "failed"
    blocked = [f"resp_{number}: the server that made it was lost, and it could not be ended" for number in range(20)]
    assert sorted(messages(caplog)) == sorted([*blocked, "resp_20: ended, because the server that made it was lost"])
    (fields,) = [record.interlock_fields for record in caplog.records if hasattr(record, "interlock_fields")]
    assert fields["response_id"] == "resp_20"


# A URL names a store, and an invalid URL is refused with a helpful message


def test_the_url_of_a_memory_store_sets_its_bounds() -> None:
    store = open_store("memory:?max_bytes=2m&max_responses=5&ttl=12h&conversations=90d")
    assert isinstance(store, MemoryStore)
    settings = store.max_bytes, store.max_responses, store.ttl, store.conversations
    assert settings == (2 * 2**20, 5, 43_200, 90 * 86_400)
    assert open_store("memory:").ttl == 30 * 86_400
    assert open_store("memory:?conversations=never").conversations is open_store("memory:").conversations is None
    assert open_store("memory:?ttl=never").ttl is open_store().ttl is None


def test_the_url_of_a_sqlite_store_sets_its_options(tmp_path) -> None:
    path = tmp_path / "store.db"
    store = open_store(f"sqlite:{path}?synchronous=full&busy=1.5&ttl=never&logs=1d&conversations=2d&max_bytes=1g")
    assert isinstance(store, SqliteStore)
    settings = store.path, store.synchronous, store.busy, store.ttl, store.logs, store.conversations, store.max_bytes
    assert settings == (str(path), "full", 1.5, None, 86_400, 172_800, 2**30)
    assert open_store("sqlite:store.db").synchronous == open_store("sqlite:store.db?synchronous=normal").synchronous == "normal"

    async def scenario():
        await store.put("", StoredResponse({"id": "resp_1", "output": []}, ()))
        await store.close()

    asyncio.run(scenario())
    assert path.exists()


@for_each(
    ("url", "message"),
    [
        (
            "mongodb://me:secret@db",
            "mongodb://…@db names no store; a store is memory:, sqlite:PATH or postgresql://HOST/DATABASE.",
        ),
        ("store.db", "store.db names no store"),
        ("memory:store.db", "memory: takes no path."),
        ("sqlite:", "sqlite: needs the path of a file, such as sqlite:responses.db"),
        ("sqlite:///tmp/store.db", "sqlite: needs the path of a file"),
        ("sqlite:store.db?ttl=soon", "sqlite: cannot take ttl=soon: a duration is like 900, 15m, 12h, 30d or never."),
        ("sqlite:store.db?ttl=3y", "sqlite: cannot take ttl=3y: a duration is like 900, 15m, 12h, 30d or never."),
        ("sqlite:store.db?busy=never", "sqlite: cannot take busy=never: a duration is like 0.5, 90s or 15m."),
        ("sqlite:store.db?synchronous=off", "sqlite: cannot take synchronous=off: it is normal or full."),
        ("sqlite:store.db?max_bytes=-1", "sqlite: cannot take max_bytes=-1: a size is like 4096, 64k, 256m or 2g."),
        ("sqlite:store.db?max_bytes=1023k", "sqlite: cannot take max_bytes=1023k: a file needs at least 1m, or it has no room"),
        *(
            (
                f"memory:?max_responses={value}",
                f"memory: cannot take max_responses={value[:40]}: it is a whole number from 1 on.",
            )
            for value in ("0", "-5", "2.5", "many", "", "²", "9" * 5000)
        ),
        ("redis://db/0", "redis://db/0 names no store; a store is memory:, sqlite:PATH or postgresql://HOST/DATABASE."),
        ("postgresql:store", "postgresql: needs a server, such as postgresql://127.0.0.1/interlock."),
        ("postgres://db?ttl=soon", "postgres: cannot take ttl=soon: a duration is like 900, 15m, 12h, 30d or never."),
        ("memory:?color=red", "memory: takes ttl, conversations, max_bytes, max_responses, and no parameter 'color'."),
    ],
)
def test_an_invalid_store_url_is_refused(url, message) -> None:
    with pytest.raises(StoreUnusable) as refused:
        open_store(url)
    assert str(refused.value).startswith(message)


@for_each("scheme", ["postgresql", "postgres", "mongodb"])
@for_each("password", ["sec/ret", "sec#ret", "sec?ret", "sec@ret", "sec%ret", "1/ret@sec"])
def test_a_password_with_an_unescaped_character_is_refused_and_not_shown(scheme, password) -> None:
    with pytest.raises(StoreUnusable) as refused:
        open_store(f"{scheme}://me:{password}@db/0")
    assert not {part for part in ("sec", "ret") if part in str(refused.value)}


@for_each("host", ["h:abc", "h:65536", "[::1", "[::g]:1", "::1", "a:1:2"])
def test_a_wrong_host_or_port_is_refused(host) -> None:
    with pytest.raises(StoreUnusable, match="postgresql: has a wrong host or port"):
        open_store(f"postgresql://{host}/0")
    open_store("postgresql://me:p%2F%40w@[::1]:6000/0")


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("sqlite:store.db", "apsw", "serve"),
        ("memory:", "apsw", "serve"),
        ("postgresql://db/interlock", "psycopg", "postgres"),
    ],
)
def test_the_error_for_a_missing_store_package_has_the_install_command(monkeypatch, url, package, extra) -> None:
    modules = tuple(f"interlock.serving.store.{module}" for module in ("sqlite", "postgres"))
    for name in [name for name in sys.modules if name.startswith((*modules, f"{package}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(StoreUnusable) as refused:
        open_store(url)
    install = f"pip install 'interlock[{extra}]' (in a checkout, '.[{extra}]')"
    assert str(refused.value) == f"This store needs {package}: {install}"


# A short response takes at most twice the size of its JSON


COUNT = 500
TEXT = "Here is what I know of it. " * 5


def short_response():
    output = {"id": random_id("msg"), "type": "message", "role": "assistant", "phase": "final_answer", "status": "completed"}
    output["content"] = [{"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}]
    usage = {"input_tokens": 57, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens": 42}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 99}
    times = {"object": "response", "created_at": 1_795_376_095, "status": "completed", "completed_at": 1_795_376_097}
    settings = response_settings({"model": "interlock-embedded", "input": "Hi"})
    question = {"id": random_id("msg"), "type": "message", "role": "user", "content": "What do you know of it?"}
    return StoredResponse({"id": random_id("resp"), **times, **settings, "output": [output], "usage": usage}, (question,))


@pytest.mark.parametrize("kind", ["sqlite", POSTGRES])
def test_a_short_response_takes_at_most_twice_its_json(make_store, kind) -> None:
    responses = [short_response() for _ in range(COUNT)]

    async def scenario():
        store = make_store(kind)
        empty = (await store.info()).size
        await asyncio.gather(*(store.put("", each) for each in responses))
        await store.sweep()
        size = (await store.info()).size - empty
        await store.close()
        return size

    written = sum(len(json.dumps(each.response, separators=(",", ":"))) for each in responses)
    assert asyncio.run(scenario()) <= 2 * written


# Every store that several processes share. Each process opens its own, as do these tests


@pytest.fixture(params=SHARED)
def url(request, tmp_path):
    return f"sqlite:{tmp_path}/store.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def test_a_stored_response_survives_a_restart_in_any_event_loop(url) -> None:
    before = {*threading.enumerate()}
    response, store = stored(1, message(1), output=[message(2)]), open_store(url)
    run(store, lambda store: store.put("", response))
    for again in (store, open_store(url)):
        assert run(again, lambda store: store.get("", "resp_1")) == response
    assert [thread.name for thread in {*threading.enumerate()} - before if thread.name.startswith("interlock: ")] == []


def test_a_job_that_fails_does_not_fail_the_others_of_its_batch(url) -> None:
    class Strange:
        """A value that JSON does not have."""

    async def scenario(store):
        await store.put("", stored(0))
        results = await asyncio.gather(
            store.put("", stored(1)),
            store.put("", StoredResponse({"id": "resp_2", "output": [], "no": Strange()}, ())),
            store.put("", stored(3)),
            return_exceptions=True,
        )
        present = [await store.get("", f"resp_{number}") is not None for number in range(4)]
        return [type(result).__name__ for result in results], present

    assert run(open_store(url), scenario) == (["NoneType", "TypeError", "NoneType"], [True, True, False, True])


def test_a_change_by_another_process_wakes_a_subscriber(url) -> None:
    async def scenario(store):
        other = open_store(url)
        lease = await store.enqueue("", stored(1), "a")
        with store.subscribe("", "resp_1") as watch, store.subscribe("", "resp_2") as quiet:
            await asyncio.wait_for(watch.wait(60), 30)  # for changes before the first poll
            await quiet.wait(60)
            await other.append(lease, 0, [b"one"])
            await asyncio.wait_for(watch.wait(60), 30)
            log = await store.read("", "resp_1", 0, 10)
            await quiet.wait(0)
        await other.close()
        return log.frames

    assert run(open_store(url), scenario) == (b"one",)


def test_processes_that_share_items_and_links_lose_none_of_them(url) -> None:
    """All add and remove the same chains at once, so their transactions conflict."""
    prefix = [message(number) for number in range(5)]

    async def work(store, name):
        for turn in range(40):
            response_id = f"{name}_{turn % 3}"
            await store.put("", stored(response_id, *prefix[: 1 + turn % 5], message("last", f"{turn % 7}")))
            read = await store.get("", f"resp_{response_id}")
            assert len(read.items) == 2 + turn % 5
            if turn % 2:
                await store.delete("", f"resp_{response_id}")

    async def scenario(store):
        stores = [store, *(open_store(url) for _ in range(2))]
        await asyncio.gather(*(work(each, name) for name, each in enumerate(stores)))
        for name, number in product(range(3), repeat=2):
            await store.delete("", f"resp_{name}_{number}")
        info = await store.info()
        for one in stores[1:]:
            await one.close()
        return info.responses, info.items

    assert run(open_store(url), scenario) == ({}, 0)


def test_only_one_of_two_concurrent_adoptions_or_creations_succeeds(url) -> None:
    async def scenario(store):
        other = open_store(url)
        now = 1000.0
        for one in (store, other):
            one.clock = lambda: now
        outcomes = []
        for number in range(10):
            created = await asyncio.gather(
                store.enqueue("", stored(number), "a"), other.enqueue("", stored(number), "b"), return_exceptions=True
            )
            now += LEASE
            adopted = await asyncio.gather(store.adopt("", f"resp_{number}", "c"), other.adopt("", f"resp_{number}", "d"))
            outcomes.append((sorted(type(each).__name__ for each in created), [lease.epoch for lease in adopted if lease]))
        await other.close()
        return outcomes

    assert run(open_store(url), scenario) == [(["Conflict", "Lease"], [2])] * 10


def test_many_processes_create_the_tables_at_once(url) -> None:
    async def scenario(store):
        stores = [store, *(open_store(url) for _ in range(7))]
        await asyncio.gather(*(each.put("", stored(number)) for number, each in enumerate(stores)))
        info = await store.info()
        for one in stores[1:]:
            await one.close()
        return info.responses

    assert run(open_store(url), scenario) == {"ended": 8}
