"""A copy of a store, of any kind to any kind, has everything that the store had."""

import asyncio

import pytest
from live.store_kinds import KINDS, POSTGRES, REDIS

from interlock.serving.store import LEASE, MemoryStore, StoredConversation, StoreDown, StoredResponse, StoreUnusable
from interlock.serving.store.copying import Copied, copy_store

QUESTION = {"id": "msg_q", "type": "message", "role": "user", "content": "Why?"}
ANSWER = {"id": "msg_a", "type": "message", "role": "assistant", "content": []}
CONVERSATION = StoredConversation("conv_1", 1_700_000_000, {"topic": "why"}, 3)
FRAMES = [b"event: %d\n\n" % number for number in range(600)]


def response(number, *output, **fields):
    return StoredResponse({"id": f"resp_{number}", "output": [*output], **fields}, (QUESTION,))


async def contents(store):
    """Return everything in a store."""
    responses = {}
    async for key in store.responses():
        log = await store.read(*key, 0, 1000)
        shown = log.frames, log.oldest, log.following, "running" if log.state == "queued" else log.state, log.cancelled
        responses[key] = await store.get(*key), shown
    conversations = {
        key: (await store.conversation(*key), await store.conversation_items(*key)) async for key in store.conversations()
    }
    return responses, conversations


@pytest.mark.parametrize("kind", ["memory", POSTGRES, REDIS])
@pytest.mark.parametrize("to_sqlite", [True, False])
def test_everything_is_copied(make_store, kind, to_sqlite) -> None:
    async def scenario():
        old, new = (make_store("sqlite" if is_sqlite else kind) for is_sqlite in (not to_sqlite, to_sqlite))
        await old.put("", response(1, ANSWER))
        await old.put("two", response(1))
        for number, count in ((2, 600), (3, 256), (4, 1)):
            lease = await old.enqueue("", response(number, status="queued"), "a")
            await old.finish(lease, 0, FRAMES[:count], response(number, ANSWER, status="completed"))
        await old.trim("", "resp_3")
        lease = await old.enqueue("", response(8, status="queued"), "a")
        await old.finish(lease, 0, FRAMES, response(8, ANSWER, status="completed"))
        await old.hide("", "resp_8")
        for number, count in ((5, 300), (6, 256), (7, 0)):
            lease = await old.enqueue("", response(number, status="queued"), "a")
            await old.append(lease, 0, FRAMES[:count])
        await old.cancel("", "resp_5")
        await old.create_conversation("two", CONVERSATION, [QUESTION, ANSWER])
        await old.create_conversation("", CONVERSATION)

        copied = [await copy_store(old, new) for _ in range(2)]
        before, after = await contents(old), await contents(new)
        leases = {lease.owner for lease in (await new.info()).leases}
        await old.close()
        await new.close()
        return copied, before, after, leases

    copied, before, after, leases = asyncio.run(scenario())
    assert copied == [Copied(8, 2, 0), Copied(0, 0, 10)]
    assert after == before
    assert leases == {"copy"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_is_not_copied_to_itself(make_store, kind) -> None:
    async def scenario():
        store = make_store(kind)
        await store.put("", response(1))
        await store.create_conversation("", CONVERSATION, [QUESTION])
        before = await contents(store)
        async with asyncio.timeout(60):
            with pytest.raises(StoreUnusable, match="A store cannot be copied to itself"):
                await copy_store(store, store)
        after = await contents(store)
        await store.close()
        return before == after

    assert asyncio.run(scenario())


@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation_that_the_target_has_continued_is_kept_and_an_older_one_is_replaced(make_store, kind) -> None:
    async def scenario():
        old, new = MemoryStore(), make_store(kind)
        for name in ("conv_1", "conv_2"):
            await old.create_conversation("", StoredConversation(name, 0, {}), [QUESTION])
        first = await copy_store(old, new)
        await new.add_items("", "conv_1", [ANSWER])
        await old.add_items("", "conv_2", [ANSWER])
        second = await copy_store(old, new)
        items = [await new.conversation_items("", name) for name in ("conv_1", "conv_2")]
        versions = [(await new.conversation("", name)).version for name in ("conv_1", "conv_2")]
        await new.close()
        return first, second, items, versions

    assert asyncio.run(scenario()) == (Copied(0, 2, 0), Copied(0, 1, 1), [(QUESTION, ANSWER)] * 2, [1, 1])


@pytest.mark.parametrize("method", ["append", "finish", "trim", "cancel"])
@pytest.mark.parametrize("completed", [0, 1])
def test_a_copy_that_was_interrupted_is_completed_by_the_next(monkeypatch, method, completed) -> None:
    calls = 0

    async def scenario():
        old, new = MemoryStore(), MemoryStore()
        for number in (1, 2):
            lease = await old.enqueue("", response(number, status="queued"), "a")
            await old.finish(lease, 0, FRAMES, response(number, ANSWER, status="completed"))
            lease = await old.enqueue("", response(number + 2, status="queued"), "a")
            await old.append(lease, 0, FRAMES[:300])
            await old.cancel("", f"resp_{number + 2}")
        await old.trim("", "resp_1")
        write = getattr(new, method)

        async def fail(*arguments):
            nonlocal calls
            calls += 1
            if calls == 1 + completed:
                raise StoreDown("The cable is unplugged.")
            return await write(*arguments)

        monkeypatch.setattr(new, method, fail)
        try:
            await copy_store(old, new)
        except StoreDown:
            await copy_store(old, new)
        return await contents(new) == await contents(old), [await copy_store(old, new) for _ in range(2)]

    assert asyncio.run(scenario()) == (True, [Copied(0, 0, 4)] * 2)


def test_a_response_that_was_in_progress_is_ended_by_another_server() -> None:
    now = 1000.0

    async def scenario():
        nonlocal now
        old, new = MemoryStore(), MemoryStore(clock=lambda: now)
        await old.enqueue("", response(1), "a")
        await copy_store(old, new)
        now += LEASE
        return [*await new.lost(1)]

    assert asyncio.run(scenario()) == [("", "resp_1")]
