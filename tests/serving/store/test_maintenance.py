"""An archive ends an outage and lost responses by itself, and the log has each fault once."""

import asyncio
import logging

import pytest
from live.store_kinds import KINDS

from interlock.embedding import random_id
from interlock.events.resource import response_settings
from interlock.events.sse import SseWriter
from interlock.fsm.deltas import Start
from interlock.fsm.driver import ResponseDriver
from interlock.serving.responses import archive
from interlock.serving.responses.archive import Archive
from interlock.serving.settings import Times
from interlock.serving.store import LEASE, StoreDown, StoredResponse

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


def test_a_store_that_is_full_of_expired_responses_is_used_again(make_store) -> None:
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
