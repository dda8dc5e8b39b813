"""What holds for every store that several processes share. Each process has a store of its own, as have those of these tests."""

import asyncio
import threading
from itertools import product

import pytest
from live.store_kinds import SHARED
from live.stored import message, run, stored

from interlock.serving.store import LEASE, StoredResponse, open_store


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
        for each in stores[1:]:
            await each.close()
        return info.responses, info.items

    assert run(open_store(url), scenario) == ({}, 0)


def test_of_two_processes_that_adopt_or_create_at_once_one_succeeds(url) -> None:
    async def scenario(store):
        other = open_store(url)
        now = 1000.0
        for each in (store, other):
            each.clock = lambda: now
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
        for each in stores[1:]:
            await each.close()
        return info.responses

    assert run(open_store(url), scenario) == {"ended": 8}
