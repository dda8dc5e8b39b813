"""What every store promises: one owner writes, readers see what is committed, and the first end stays."""

import asyncio

import pytest
from live.redis_server import needs_redis

from interlock.serving.store import (
    LEASE,
    Addition,
    Conflict,
    Conversation,
    Lease,
    LeaseLost,
    MemoryStore,
    SequenceError,
    StoredResponse,
)
from interlock.serving.store.redis import RedisStore
from interlock.serving.store.sqlite import SqliteStore

QUESTION = {"id": "msg_q", "type": "message", "role": "user", "content": "Why?"}
ANSWER = {"id": "msg_a", "type": "message", "role": "assistant", "content": []}
QUEUED = StoredResponse({"id": "resp_1", "status": "queued", "output": []}, (QUESTION,))
ENDED = StoredResponse({"id": "resp_1", "status": "completed", "output": [ANSWER]}, (QUESTION,))
TALK = Conversation("conv_1", 1_700_000_000, {"topic": "why"})
FRAMES = (b"event: a\n\n", b"event: b\n\n", b"event: c\n\n")


class Opened:
    """A store, and the clock that it looks at."""

    def __init__(self, make):
        self.now = 1000.0
        self.store = make(lambda: self.now)


def a_memory_store(clock):
    return MemoryStore(ttl=3600, clock=clock)


def a_sqlite_store(path):
    return lambda clock: SqliteStore(str(path / "store.db"), ttl=3600, clock=clock, calendar=clock)


def a_redis_store(url):
    return lambda clock: RedisStore(url, ttl=3600, clock=clock)


@pytest.fixture(params=["memory", "sqlite", pytest.param("redis", marks=needs_redis)])
def opened(request, tmp_path):
    match request.param:
        case "memory":
            return Opened(a_memory_store)
        case "sqlite":
            return Opened(a_sqlite_store(tmp_path))
        case _:
            return Opened(a_redis_store(request.getfixturevalue("redis_url")))


def run(opened, story):
    """Run a story on a store, and close it."""

    async def told():
        try:
            return await story(opened.store)
        finally:
            await opened.store.close()

    return asyncio.run(told())


async def log_of(store, first=0, limit=100):
    log = await store.read("", "resp_1", first, limit)
    return None if log is None else (log.frames, log.oldest, log.following, log.state, log.cancelled, log.complete)


def test_a_response_is_given_back_to_its_tenant_alone(opened) -> None:
    async def story(store):
        await store.put("one", ENDED)
        return (
            await store.get("one", "resp_1"),
            await store.get("two", "resp_1"),
            dict(await store.find("one", ["msg_q", "msg_a", "msg_x"])),
            dict(await store.find("two", ["msg_q"])),
            await store.delete("two", "resp_1"),
            await log_of(store),
        )

    assert run(opened, story) == (ENDED, None, {"msg_q": QUESTION, "msg_a": ANSWER}, {}, False, None)


def test_what_is_deleted_is_gone_with_its_items_and_its_log(opened) -> None:
    async def story(store):
        await store.put("", StoredResponse({"id": "resp_0", "output": []}, (QUESTION,)))
        lease = await store.enqueue("", QUEUED, "a")
        await store.finish(lease, 0, FRAMES, ENDED)
        deleted = await store.delete("", "resp_1"), await store.delete("", "resp_1")
        return deleted, await store.get("", "resp_1"), dict(await store.find("", ["msg_q", "msg_a"])), await log_of(store)

    assert run(opened, story) == ((True, False), None, {"msg_q": QUESTION}, None)


def test_the_events_of_an_owner_are_read_as_they_are_committed_and_the_end_is_one_commit(opened) -> None:
    async def story(store):
        lease = await store.enqueue("", QUEUED, "a")
        logs = [await log_of(store)]
        assert not await store.append(lease, 0, FRAMES[:2])
        logs += [await log_of(store), await log_of(store, 1, 1)]
        before = await store.get("", "resp_1")
        await store.finish(lease, 2, FRAMES[2:], ENDED)
        return lease, logs, before, await log_of(store), await log_of(store, 3), await store.get("", "resp_1")

    lease, logs, before, log, rest, after = run(opened, story)
    assert lease == Lease("", "resp_1", "a", 1)
    assert logs == [
        ((), 0, 0, "queued", False, False),
        (FRAMES[:2], 0, 2, "running", False, False),
        (FRAMES[1:2], 0, 2, "running", False, False),
    ]
    assert (before, after) == (QUEUED, ENDED)
    assert (log, rest) == ((FRAMES, 0, 3, "ended", False, True), ((), 0, 3, "ended", False, True))


def test_events_that_leave_a_gap_or_come_again_are_refused_and_nothing_is_written(opened) -> None:
    async def story(store):
        lease = await store.enqueue("", QUEUED, "a")
        await store.append(lease, 0, FRAMES[:1])
        gaps = []
        for first in (0, 2):
            with pytest.raises(SequenceError) as refused:
                await store.append(lease, first, FRAMES[1:])
            gaps.append((refused.value.expected, refused.value.first, str(refused.value)))
        with pytest.raises(SequenceError):
            await store.finish(lease, 2, FRAMES[2:], ENDED)
        return gaps, await log_of(store), await store.get("", "resp_1")

    gaps, log, kept = run(opened, story)
    assert gaps == [(1, 0, "The next event has the number 1, not 0."), (1, 2, "The next event has the number 1, not 2.")]
    assert log == (FRAMES[:1], 0, 1, "running", False, False)
    assert kept == QUEUED


def test_an_owner_that_was_not_heard_of_loses_its_lease_to_the_first_who_takes_it(opened) -> None:
    async def story(store):
        lease = await store.enqueue("", QUEUED, "a")
        await store.append(lease, 0, FRAMES[:1])
        early = await store.adopt("", "resp_1", "b"), list(await store.lost(10))
        opened.now += LEASE
        late = list(await store.lost(10)), (await log_of(store))[3]
        taken = await store.adopt("", "resp_1", "b"), await store.adopt("", "resp_1", "c")
        for attempt in (
            store.append(lease, 1, FRAMES[1:]),
            store.renew(lease),
            store.finish(lease, 1, FRAMES[1:], ENDED),
        ):
            with pytest.raises(LeaseLost):
                await attempt
        await store.finish(taken[0], 1, FRAMES[1:2], ENDED)
        return early, late, taken, await log_of(store), list(await store.lost(10))

    early, late, taken, log, after = run(opened, story)
    assert (early, late) == ((None, []), ([("", "resp_1")], "lost"))
    assert taken == (Lease("", "resp_1", "b", 2), None)
    assert (log, after) == ((FRAMES[:2], 0, 2, "ended", False, True), [])


def test_a_lost_response_that_is_cancelled_is_among_the_lost_ones_still(opened) -> None:
    async def story(store):
        await store.enqueue("", QUEUED, "a")
        opened.now += LEASE
        await store.cancel("", "resp_1")
        return list(await store.lost(10)), await store.adopt("", "resp_1", "b")

    assert run(opened, story) == ([("", "resp_1")], Lease("", "resp_1", "b", 2))


def test_an_owner_that_comes_back_before_anybody_has_taken_over_goes_on(opened) -> None:
    async def story(store):
        lease = await store.enqueue("", QUEUED, "a")
        opened.now += 2 * LEASE
        await store.renew(lease)
        return (await log_of(store))[3], await store.adopt("", "resp_1", "b")

    assert run(opened, story) == ("running", None)


def test_a_lease_from_before_the_clock_was_set_back_is_over(opened) -> None:
    async def story(store):
        await store.enqueue("", QUEUED, "a")
        opened.now -= 500
        return await store.adopt("", "resp_1", "b")

    assert run(opened, story) == Lease("", "resp_1", "b", 2)


def test_the_first_end_stays_and_a_deleted_response_has_no_owner(opened) -> None:
    async def story(store):
        lease = await store.enqueue("", QUEUED, "a")
        await store.finish(lease, 0, FRAMES, ENDED)
        with pytest.raises(LeaseLost):
            await store.finish(lease, 3, FRAMES, QUEUED)
        with pytest.raises(Conflict):
            await store.enqueue("", QUEUED, "a")
        kept = await store.get("", "resp_1")
        await store.delete("", "resp_1")
        with pytest.raises(LeaseLost):
            await store.renew(lease)
        return kept

    assert run(opened, story) == ENDED


def test_a_response_that_is_being_made_is_not_put(opened) -> None:
    async def story(store):
        await store.enqueue("", QUEUED, "a")
        with pytest.raises(Conflict):
            await store.put("", ENDED)
        return await store.get("", "resp_1")

    assert run(opened, story) == QUEUED


def test_cancelling_is_heard_by_the_owner_and_changes_nothing_after_the_end(opened) -> None:
    async def story(store):
        lease = await store.enqueue("", QUEUED, "a")
        heard = [await store.renew(lease), await store.cancel("", "resp_1"), await store.renew(lease)]
        heard += [await store.append(lease, 0, FRAMES[:1]), (await log_of(store))[4]]
        await store.finish(lease, 1, FRAMES[1:], ENDED)
        return heard, await store.cancel("", "resp_1"), await store.cancel("", "resp_2"), await store.get("", "resp_1")

    assert run(opened, story) == ([False, True, True, True, True], True, False, ENDED)


def test_every_change_wakes_who_watches_also_if_it_came_before_the_wait(opened) -> None:
    async def story(store):
        lease = await store.enqueue("", QUEUED, "a")
        woken = []
        with store.subscribe("", "resp_1") as watch, store.subscribe("", "resp_2") as other:
            for change in (
                store.append(lease, 0, FRAMES[:1]),
                store.cancel("", "resp_1"),
                store.finish(lease, 1, FRAMES[1:], ENDED),
                store.delete("", "resp_1"),
            ):
                await change
                await asyncio.wait_for(watch.wait(60), 30)
                woken.append(await log_of(store))
            await other.wait(0)
        return [log and log[3] for log in woken]

    assert run(opened, story) == ["running", "running", "ended", None]


def test_what_nothing_was_written_about_for_its_time_is_not_there_and_is_swept(opened) -> None:
    async def story(store):
        await store.put("", ENDED)
        await store.enqueue("", StoredResponse({"id": "resp_2", "output": []}, (QUESTION,)), "a")
        opened.now += 1800
        await store.put("", StoredResponse({"id": "resp_3", "output": []}, (QUESTION,)))
        opened.now += 1800
        there = [await store.get("", f"resp_{number}") is not None for number in (1, 2, 3)]
        swept = await store.sweep()
        info = await store.info()
        return there, swept.expired <= 2, info.responses, dict(await store.find("", ["msg_q", "msg_a"]))

    assert run(opened, story) == ([False, False, True], True, {"ended": 1}, {"msg_q": QUESTION})


def test_a_store_tells_what_is_in_it(opened) -> None:
    async def story(store):
        await store.put("", StoredResponse({"id": "resp_0", "output": [ANSWER]}, (QUESTION,)))
        lease = await store.enqueue("", QUEUED, "a")
        await store.append(lease, 0, FRAMES)
        await store.create_conversation("", TALK, [QUESTION])
        info = await store.info()
        return info.responses, info.conversations, info.items, info.events, info.leases, info.size > 0, await store.migrate() > 0

    expected = {"ended": 1, "running": 1}, 1, 2, 3, (Lease("", "resp_1", "a", 1),), True, True
    assert run(opened, story) == expected


def test_a_conversation_is_kept_changed_and_deleted(opened) -> None:
    async def story(store):
        await store.create_conversation("", TALK, [QUESTION])
        seen = [await store.conversation("", "conv_1"), await store.conversation("two", "conv_1")]
        seen.append(await store.update_conversation("", "conv_1", {"topic": "how"}))
        seen.append(await store.add_items("", "conv_1", [ANSWER]))
        items = [await store.conversation_items("", "conv_1"), dict(await store.find("", ["msg_a"]))]
        seen.append(await store.delete_item("", "conv_1", "msg_q"))
        items += [await store.conversation_items("", "conv_1"), dict(await store.find("", ["msg_q"]))]
        gone = await store.delete_conversation("", "conv_1"), await store.delete_conversation("", "conv_1")
        return seen, items, gone, dict(await store.find("", ["msg_a"]))

    seen, items, gone, left = run(opened, story)
    other = Conversation("conv_1", TALK.created_at, {"topic": "how"})
    versions = [Conversation(other.id, other.created_at, other.metadata, version) for version in (0, 1, 2)]
    assert seen == [TALK, None, *versions]
    assert items == [(QUESTION, ANSWER), {"msg_a": ANSWER}, (ANSWER,), {}]
    assert (gone, left) == ((True, False), {})


def test_nothing_is_done_to_a_conversation_that_is_not_there(opened) -> None:
    async def story(store):
        await store.create_conversation("two", TALK)
        await store.release("", "conv_1", "resp_1")
        return [
            await store.update_conversation("", "conv_1", {}),
            await store.add_items("", "conv_1", [ANSWER]),
            await store.delete_item("", "conv_1", "msg_q"),
            await store.delete_item("two", "conv_1", "msg_q"),
            await store.conversation_items("", "conv_1"),
            await store.hold("", "conv_1", "resp_1"),
            await store.delete_conversation("", "conv_1"),
            await store.conversation_items("two", "conv_1"),
        ]

    assert run(opened, story) == [None, None, None, None, None, None, False, ()]


def test_of_two_who_add_to_a_conversation_one_is_refused_before_and_one_at_the_end(opened) -> None:
    async def story(store):
        await store.create_conversation("", TALK)
        version = await store.hold("", "conv_1", "resp_1")
        assert await store.hold("", "conv_1", "resp_1") == version
        for attempt in (
            store.hold("", "conv_1", "resp_2"),
            store.add_items("", "conv_1", [ANSWER]),
            store.delete_item("", "conv_1", "msg_q"),
        ):
            if attempt.__name__ == "delete_item":
                assert await attempt is None  # there is no such item
                continue
            with pytest.raises(Conflict):
                await attempt
        opened.now += LEASE
        assert await store.hold("", "conv_1", "resp_2") == version
        await store.put("", ENDED, Addition("conv_1", version, (QUESTION, ANSWER)))
        late = StoredResponse({"id": "resp_2", "output": []}, (QUESTION,))
        with pytest.raises(Conflict):
            await store.put("", late, Addition("conv_1", version, (QUESTION,)))
        items, held = await store.conversation_items("", "conv_1"), await store.get("", "resp_2")
        return version, items, held, await store.hold("", "conv_1", "resp_3")

    assert run(opened, story) == (0, (QUESTION, ANSWER), None, 1)


def test_a_released_conversation_can_be_held_by_another(opened) -> None:
    async def story(store):
        await store.create_conversation("", TALK, [QUESTION])
        await store.hold("", "conv_1", "resp_1")
        await store.release("", "conv_1", "resp_2")
        with pytest.raises(Conflict):
            await store.delete_item("", "conv_1", "msg_q")
        await store.release("", "conv_1", "resp_1")
        return await store.hold("", "conv_1", "resp_2")

    assert run(opened, story) == 0


def test_what_a_response_adds_is_one_commit_with_its_end(opened) -> None:
    async def story(store):
        await store.create_conversation("", TALK)
        lease = await store.enqueue("", QUEUED, "a")
        with pytest.raises(Conflict):
            await store.finish(lease, 0, FRAMES, ENDED, Addition("conv_1", 7, (ANSWER,)))
        with pytest.raises(Conflict):
            await store.finish(lease, 0, FRAMES, ENDED, Addition("conv_2", 0, (ANSWER,)))
        before = await log_of(store), await store.conversation_items("", "conv_1")
        await store.finish(lease, 0, FRAMES, ENDED, Addition("conv_1", 0, (QUESTION, ANSWER)))
        return before, (await log_of(store))[3], await store.conversation_items("", "conv_1")

    assert run(opened, story) == ((((), 0, 0, "queued", False, False), ()), "ended", (QUESTION, ANSWER))
