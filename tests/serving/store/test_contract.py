"""The contract of every store: one owner writes, readers see committed events, and the first end wins."""

import asyncio
from contextlib import nullcontext
from functools import partial
from itertools import permutations

import pytest
from live.stores import KINDS

from interlock.serving.store.values import (
    LEASE,
    Addition,
    Conflict,
    Lease,
    LeaseLost,
    SequenceError,
    StoredConversation,
    StoredResponse,
    SweepResult,
)

QUESTION = {"id": "msg_q", "type": "message", "role": "user", "content": "Why?"}
ANSWER = {"id": "msg_a", "type": "message", "role": "assistant", "content": []}
QUEUED = StoredResponse({"id": "resp_1", "status": "queued", "output": []}, (QUESTION,))
ENDED = StoredResponse({"id": "resp_1", "status": "completed", "output": [ANSWER]}, (QUESTION,))
CONVERSATION = StoredConversation("conv_1", 1_700_000_000, {"topic": "why"})
FRAMES = (b"event: a\n\n", b"event: b\n\n", b"event: c\n\n")


class Opened:
    """A store, and the clock that it reads."""

    def __init__(self, make_store):
        self.now = 1000.0
        self.make = lambda **settings: make_store(clock=lambda: self.now, **settings)
        self.store = self.make(ttl=3600)


@pytest.fixture(params=KINDS)
def opened(request, make_store):
    return Opened(partial(make_store, request.param))


def run(opened, scenario):
    """Run a scenario on a store, and close it."""

    async def main():
        try:
            return await scenario(opened.store)
        finally:
            await opened.store.close()

    return asyncio.run(main())


async def log_of(store, first=0, limit=100):
    log = await store.read("", "resp_1", first, limit)
    if log is None:
        return None
    is_complete = log.ended and log.first + len(log.frames) >= log.following
    return log.frames, log.oldest, log.following, log.state, log.cancelled, is_complete


def test_a_response_is_returned_to_its_tenant_only(opened) -> None:
    async def scenario(store):
        await store.put("one", ENDED)
        return (
            await store.get("one", "resp_1"),
            await store.get("two", "resp_1"),
            dict(await store.find("one", ["msg_q", "msg_a", "msg_x"])),
            dict(await store.find("two", ["msg_q"])),
            await store.delete("two", "resp_1"),
            await log_of(store),
        )

    assert run(opened, scenario) == (ENDED, None, {"msg_q": QUESTION, "msg_a": ANSWER}, {}, False, None)


def test_a_deleted_response_is_gone_with_its_items_and_its_log(opened) -> None:
    async def scenario(store):
        await store.put("", StoredResponse({"id": "resp_0", "output": []}, (QUESTION,)))
        lease = await store.enqueue("", QUEUED, "a")
        await store.finish(lease, 0, FRAMES, ENDED)
        deleted = await store.delete("", "resp_1"), await store.delete("", "resp_1")
        return deleted, await store.get("", "resp_1"), dict(await store.find("", ["msg_q", "msg_a"])), await log_of(store)

    assert run(opened, scenario) == ((True, False), None, {"msg_q": QUESTION}, None)


async def hide(store):
    """Hide an ended background response beside another, and return its last lease."""
    await store.put("", StoredResponse({"id": "resp_0", "output": []}, (QUESTION,)))
    lease = await store.enqueue("", QUEUED, "a")
    await store.finish(lease, 0, FRAMES, ENDED)
    assert await store.hide("", "resp_1")
    return lease


async def contents(store):
    info = await store.info()
    return info.responses, info.items, info.events, info.leases


HIDDEN = (FRAMES, 0, 3, "hidden", False, True)


def test_a_hidden_response_keeps_only_its_log_and_cannot_be_changed(opened) -> None:
    async def scenario(store):
        lease = await hide(store)
        for attempt in (store.put("", ENDED), store.enqueue("", QUEUED, "b")):
            with pytest.raises(Conflict, match=r"^There is a response with that id already; it is hidden\.$"):
                await attempt
        for attempt in (store.append(lease, 3, FRAMES), store.renew(lease), store.finish(lease, 3, FRAMES, ENDED)):
            with pytest.raises(LeaseLost):
                await attempt
        refused = [await change("", "resp_1") for change in (store.hide, store.cancel, store.trim)]
        refused.append(await store.adopt("", "resp_1", "b"))
        opened.now += LEASE - 1
        swept = await store.sweep(), list(await store.lost(10))
        found = await store.get("", "resp_1"), dict(await store.find("", ["msg_q", "msg_a"]))
        return refused, swept, found, await log_of(store), await log_of(store, 2, 1), await contents(store)

    refused, swept, found, log, page, after = run(opened, scenario)
    assert refused == [False, False, False, None]
    assert swept == (SweepResult(0, 0), [])
    assert found == (None, {"msg_q": QUESTION})
    assert (log, page) == (HIDDEN, (FRAMES[2:], 0, 3, "hidden", False, True))
    assert after == ({"ended": 1, "hidden": 1}, 1, 3, ())


@pytest.mark.parametrize("ttl", [None, 3600])
def test_the_log_of_a_hidden_response_is_removed_when_the_lease_of_its_readers_ends(opened, ttl) -> None:
    async def scenario(store):
        await hide(store)
        before = await log_of(store)
        opened.now += LEASE
        after = await log_of(store), await store.hide("", "resp_1"), await store.delete("", "resp_1")
        await store.sweep()
        return before, after, (await contents(store))[2:]

    opened.store = opened.make(ttl=ttl)
    assert run(opened, scenario) == (HIDDEN, (None, False, False), (0, ()))


@pytest.mark.parametrize("swept", [False, True])
@pytest.mark.parametrize("trigger", ["put", "enqueue"])
def test_the_id_of_a_hidden_response_can_be_used_again_after_its_log_is_removed(opened, trigger, swept) -> None:
    async def scenario(store):
        await hide(store)
        opened.now += LEASE
        if swept:
            assert await store.sweep() == SweepResult(1, 0)
        if trigger == "put":
            await store.put("", ENDED)
        else:
            await store.enqueue("", QUEUED, "b")
        return await store.get("", "resp_1"), await log_of(store), (await contents(store))[3]

    expected = {
        "put": (ENDED, ((), 0, 0, "ended", False, True), ()),
        "enqueue": (QUEUED, ((), 0, 0, "queued", False, False), (Lease("", "resp_1", "b", 1),)),
    }
    assert run(opened, scenario) == expected[trigger]


def test_a_hidden_response_can_be_deleted_at_once(opened) -> None:
    async def scenario(store):
        await hide(store)
        deleted = await store.delete("", "resp_1"), await store.delete("", "resp_1")
        after = await log_of(store), await contents(store)
        await store.enqueue("", QUEUED, "b")
        return deleted, after, await log_of(store)

    after = None, ({"ended": 1}, 1, 0, ())
    assert run(opened, scenario) == ((True, False), after, ((), 0, 0, "queued", False, False))


def test_hiding_removes_a_response_in_progress_and_ignores_a_missing_one(opened) -> None:
    async def scenario(store):
        lease = await store.enqueue("", QUEUED, "a")
        await store.append(lease, 0, FRAMES)
        hidden = await store.hide("", "resp_1"), await store.hide("", "resp_2"), await store.hide("two", "resp_1")
        with pytest.raises(LeaseLost):
            await store.append(lease, 3, FRAMES)
        return hidden, await log_of(store), await contents(store)

    assert run(opened, scenario) == ((True, False, False), None, ({}, 0, 0, ()))


def test_the_log_of_a_hidden_response_from_before_the_clock_was_set_back_is_removed(opened) -> None:
    async def scenario(store):
        await hide(store)
        opened.now -= 500
        return await log_of(store), await store.sweep(), (await contents(store))[2]

    assert run(opened, scenario) == (None, SweepResult(1, 0), 0)


def test_events_can_be_read_once_committed_and_the_end_is_one_commit(opened) -> None:
    async def scenario(store):
        lease = await store.enqueue("", QUEUED, "a")
        logs = [await log_of(store)]
        assert not await store.append(lease, 0, FRAMES[:2])
        logs += [await log_of(store), await log_of(store, 1, 1)]
        before = await store.get("", "resp_1")
        await store.finish(lease, 2, FRAMES[2:], ENDED)
        return lease, logs, before, await log_of(store), await log_of(store, 3), await store.get("", "resp_1")

    lease, logs, before, log, rest, after = run(opened, scenario)
    assert lease == Lease("", "resp_1", "a", 1)
    assert logs == [
        ((), 0, 0, "queued", False, False),
        (FRAMES[:2], 0, 2, "running", False, False),
        (FRAMES[1:2], 0, 2, "running", False, False),
    ]
    assert (before, after) == (QUEUED, ENDED)
    assert (log, rest) == ((FRAMES, 0, 3, "ended", False, True), ((), 0, 3, "ended", False, True))


def test_events_with_a_gap_or_a_repeat_are_refused_and_nothing_is_written(opened) -> None:
    async def scenario(store):
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

    gaps, log, stored_response = run(opened, scenario)
    assert gaps == [(1, 0, "The next event has the number 1, not 0."), (1, 2, "The next event has the number 1, not 2.")]
    assert log == (FRAMES[:1], 0, 1, "running", False, False)
    assert stored_response == QUEUED


def test_a_silent_owner_loses_its_lease_to_the_first_process_that_adopts_the_response(opened) -> None:
    async def scenario(store):
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

    early, late, taken, log, after = run(opened, scenario)
    assert (early, late) == ((None, []), ([("", "resp_1")], "lost"))
    assert taken == (Lease("", "resp_1", "b", 2), None)
    assert (log, after) == ((FRAMES[:2], 0, 2, "ended", False, True), [])


def test_a_lost_response_that_is_cancelled_stays_lost(opened) -> None:
    async def scenario(store):
        await store.enqueue("", QUEUED, "a")
        opened.now += LEASE
        await store.cancel("", "resp_1")
        return list(await store.lost(10)), await store.adopt("", "resp_1", "b")

    assert run(opened, scenario) == ([("", "resp_1")], Lease("", "resp_1", "b", 2))


def test_an_owner_can_renew_an_expired_lease_that_no_process_has_taken(opened) -> None:
    async def scenario(store):
        lease = await store.enqueue("", QUEUED, "a")
        opened.now += 2 * LEASE
        await store.renew(lease)
        return (await log_of(store))[3], await store.adopt("", "resp_1", "b")

    assert run(opened, scenario) == ("running", None)


def test_a_lease_from_before_the_clock_was_set_back_has_expired(opened) -> None:
    async def scenario(store):
        await store.enqueue("", QUEUED, "a")
        opened.now -= 500
        return await store.adopt("", "resp_1", "b")

    assert run(opened, scenario) == Lease("", "resp_1", "b", 2)


def test_a_finished_or_deleted_response_cannot_be_written_again(opened) -> None:
    async def scenario(store):
        lease = await store.enqueue("", QUEUED, "a")
        await store.finish(lease, 0, FRAMES, ENDED)
        with pytest.raises(LeaseLost):
            await store.finish(lease, 3, FRAMES, QUEUED)
        with pytest.raises(Conflict):
            await store.enqueue("", QUEUED, "a")
        stored_response = await store.get("", "resp_1")
        await store.delete("", "resp_1")
        with pytest.raises(LeaseLost):
            await store.renew(lease)
        return stored_response

    assert run(opened, scenario) == ENDED


def test_putting_a_response_in_progress_is_a_conflict(opened) -> None:
    async def scenario(store):
        await store.enqueue("", QUEUED, "a")
        with pytest.raises(Conflict):
            await store.put("", ENDED)
        return await store.get("", "resp_1")

    assert run(opened, scenario) == QUEUED


def test_the_owner_sees_a_cancellation_which_changes_nothing_after_the_end(opened) -> None:
    async def scenario(store):
        lease = await store.enqueue("", QUEUED, "a")
        replies = [await store.renew(lease), await store.cancel("", "resp_1"), await store.renew(lease)]
        replies += [await store.append(lease, 0, FRAMES[:1]), (await log_of(store))[4]]
        await store.finish(lease, 1, FRAMES[1:], ENDED)
        return replies, await store.cancel("", "resp_1"), await store.cancel("", "resp_2"), await store.get("", "resp_1")

    assert run(opened, scenario) == ([False, True, True, True, True], True, False, ENDED)


def test_every_change_wakes_a_subscriber_even_if_it_came_before_the_wait(opened) -> None:
    async def scenario(store):
        lease = await store.enqueue("", QUEUED, "a")
        logs = []
        with store.subscribe("", "resp_1") as watch, store.subscribe("", "resp_2") as other:
            for change in (
                store.append(lease, 0, FRAMES[:1]),
                store.cancel("", "resp_1"),
                store.finish(lease, 1, FRAMES[1:], ENDED),
                store.hide("", "resp_1"),
                store.delete("", "resp_1"),
            ):
                await change
                await asyncio.wait_for(watch.wait(60), 30)
                logs.append(await log_of(store))
            await other.wait(0)
        return [log and log[3] for log in logs]

    assert run(opened, scenario) == ["running", "running", "ended", "hidden", None]


def test_an_expired_response_is_invisible_and_removed_by_a_sweep(opened) -> None:
    async def scenario(store):
        await store.put("", ENDED)
        await store.enqueue("", StoredResponse({"id": "resp_2", "output": []}, (QUESTION,)), "a")
        opened.now += 1800
        await store.put("", StoredResponse({"id": "resp_3", "output": []}, (QUESTION,)))
        opened.now += 1800
        present = [await store.get("", f"resp_{number}") is not None for number in (1, 2, 3)]
        result = await store.sweep()
        info = await store.info()
        return present, result.expired <= 2, info.responses, dict(await store.find("", ["msg_q", "msg_a"]))

    assert run(opened, scenario) == ([False, False, True], True, {"ended": 1}, {"msg_q": QUESTION})


def test_a_response_with_a_valid_lease_does_not_expire(opened) -> None:
    async def scenario(store):
        lease = await store.enqueue("", QUEUED, "a")
        await store.put("", StoredResponse({"id": "resp_2", "output": []}, ()))
        opened.now += LEASE - 1
        early = (await store.sweep()).expired
        await store.renew(lease)
        opened.now += LEASE
        return early, (await store.sweep()).expired, await store.get("", "resp_1")

    opened.store = opened.make(ttl=5)
    assert run(opened, scenario) == (1, 1, None)


def test_with_a_ttl_of_zero_a_response_expires_at_its_end(opened) -> None:
    async def scenario(store):
        lease = await store.enqueue("", QUEUED, "a")
        queued = await store.get("", "resp_1")
        await store.finish(lease, 0, FRAMES, ENDED)
        return queued, await store.get("", "resp_1")

    opened.store = opened.make(ttl=0)
    assert run(opened, scenario) == (QUEUED, None)


def test_a_log_is_removed_some_time_after_the_end_of_its_response(opened) -> None:
    async def scenario(store):
        lease = await store.enqueue("", QUEUED, "a")
        await store.finish(lease, 0, FRAMES, ENDED)
        swept = [await store.sweep()]
        opened.now += 60
        swept += [await store.sweep(), await store.sweep()]
        return swept, await log_of(store), await store.get("", "resp_1")

    opened.store = opened.make(logs=60)
    swept = [SweepResult(0, 0), SweepResult(0, 1), SweepResult(0, 0)]
    assert run(opened, scenario) == (swept, ((), 3, 3, "ended", False, False), ENDED)


def test_the_responses_that_were_lost_first_are_returned_first(opened) -> None:
    async def scenario(store):
        for tenant in ("z", "a", "m"):
            await store.enqueue(tenant, QUEUED, "a")
            opened.now += 1
        opened.now += LEASE
        return [[*await store.lost(limit)] for limit in (1, 3)]

    assert run(opened, scenario) == [[("z", "resp_1")], [("z", "resp_1"), ("a", "resp_1"), ("m", "resp_1")]]


def test_info_counts_the_contents_of_a_store(opened) -> None:
    async def scenario(store):
        await store.put("", StoredResponse({"id": "resp_0", "output": [ANSWER]}, (QUESTION,)))
        lease = await store.enqueue("", QUEUED, "a")
        await store.append(lease, 0, FRAMES)
        await store.create_conversation("", CONVERSATION, [QUESTION])
        info = await store.info()
        return info.responses, info.conversations, info.items, info.events, info.leases, info.size > 0

    expected = {"ended": 1, "running": 1}, 1, 2, 3, (Lease("", "resp_1", "a", 1),), True
    assert run(opened, scenario) == expected


def test_a_conversation_is_stored_changed_and_deleted(opened) -> None:
    async def scenario(store):
        await store.create_conversation("", CONVERSATION, [QUESTION])
        results = [await store.conversation("", "conv_1"), await store.conversation("two", "conv_1")]
        results.append(await store.update_conversation("", "conv_1", {"topic": "how"}))
        results.append(await store.add_items("", "conv_1", [ANSWER]))
        items = [await store.conversation_items("", "conv_1"), dict(await store.find("", ["msg_a"]))]
        results.append(await store.delete_item("", "conv_1", "msg_q"))
        items += [await store.conversation_items("", "conv_1"), dict(await store.find("", ["msg_q"]))]
        deletions = await store.delete_conversation("", "conv_1"), await store.delete_conversation("", "conv_1")
        return results, items, deletions, dict(await store.find("", ["msg_a"]))

    results, items, deletions, remaining = run(opened, scenario)
    other = StoredConversation("conv_1", CONVERSATION.created_at, {"topic": "how"})
    versions = [StoredConversation(other.id, other.created_at, other.metadata, version) for version in (0, 1, 2)]
    assert results == [CONVERSATION, None, *versions]
    assert items == [(QUESTION, ANSWER), {"msg_a": ANSWER}, (ANSWER,), {}]
    assert (deletions, remaining) == ((True, False), {})


WRITES = {
    "metadata": lambda store: store.update_conversation("", "conv_1", {}),
    "an item added": lambda store: store.add_items("", "conv_1", [ANSWER]),
    "an item removed": lambda store: store.delete_item("", "conv_1", "msg_q"),
    "a response": lambda store: store.hold("", "conv_1", "resp_1"),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_conversation_expires_some_time_after_its_last_write_and_a_sweep_removes_it(opened, write) -> None:
    async def scenario(store):
        await store.create_conversation("", CONVERSATION, [QUESTION])
        opened.now += 59
        assert await WRITES[write](store)
        opened.now += 59
        assert await store.sweep() == SweepResult(0, 0)
        before = (await store.conversation("", "conv_1")).id, (await store.info()).conversations
        opened.now += 1
        after = [
            await store.conversation("", "conv_1"),
            await store.conversation_items("", "conv_1"),
            await store.update_conversation("", "conv_1", {}),
            await store.add_items("", "conv_1", [ANSWER]),
            await store.hold("", "conv_1", "resp_2"),
            await store.delete_conversation("", "conv_1"),
            (await store.info()).conversations,
        ]
        with pytest.raises(Conflict):
            await store.put("", ENDED, Addition("conv_1", "resp_1", (ANSWER,)))
        return before, after, await store.sweep(), (await contents(store))[1]

    opened.store = opened.make(conversations=60)
    before, after, swept, items = run(opened, scenario)
    assert (before, after) == (("conv_1", 1), [None, None, None, None, False, False, 0])
    assert (swept, items) == (SweepResult(0, 0, 1), 0)


def test_a_conversation_does_not_expire_while_a_response_has_its_lease(opened) -> None:
    async def scenario(store):
        await store.create_conversation("", CONVERSATION)
        await store.hold("", "conv_1", "resp_1")
        opened.now += LEASE - 1
        early = await store.sweep(), await store.renew_hold("", "conv_1", "resp_1")
        opened.now += LEASE
        return early, await store.renew_hold("", "conv_1", "resp_1"), await store.sweep()

    opened.store = opened.make(conversations=5)
    assert run(opened, scenario) == ((SweepResult(0, 0), True), False, SweepResult(0, 0, 1))


def test_a_conversation_may_take_the_id_of_an_expired_one(opened) -> None:
    async def scenario(store):
        await store.create_conversation("", CONVERSATION, [QUESTION])
        opened.now += 60
        await store.create_conversation("", CONVERSATION, [ANSWER])
        return await store.sweep(), await store.conversation_items("", "conv_1"), (await contents(store))[1]

    opened.store = opened.make(conversations=60)
    assert run(opened, scenario) == (SweepResult(0, 0), (ANSWER,), 1)


def test_a_conversation_never_expires_by_default(opened) -> None:
    async def scenario(store):
        await store.create_conversation("", CONVERSATION)
        opened.now += 100 * 365 * 86_400
        return await store.sweep(), await store.conversation("", "conv_1")

    assert run(opened, scenario) == (SweepResult(0, 0), CONVERSATION)


def test_operations_on_a_missing_conversation_do_nothing(opened) -> None:
    async def scenario(store):
        await store.create_conversation("two", CONVERSATION)
        await store.release("", "conv_1", "resp_1")
        return [
            await store.update_conversation("", "conv_1", {}),
            await store.add_items("", "conv_1", [ANSWER]),
            await store.delete_item("", "conv_1", "msg_q"),
            await store.delete_item("two", "conv_1", "msg_q"),
            await store.conversation_items("", "conv_1"),
            await store.hold("", "conv_1", "resp_1"),
            await store.renew_hold("", "conv_1", "resp_1"),
            await store.delete_conversation("", "conv_1"),
            await store.conversation_items("two", "conv_1"),
        ]

    assert run(opened, scenario) == [None, None, None, None, None, False, False, False, ()]


def test_a_held_conversation_refuses_changes_by_others(opened) -> None:
    async def scenario(store):
        await store.create_conversation("", CONVERSATION)
        await store.hold("", "conv_1", "resp_1")
        assert await store.renew_hold("", "conv_1", "resp_1")
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
        await store.put("", ENDED, Addition("conv_1", "resp_1", (QUESTION, ANSWER)))
        late = StoredResponse({"id": "resp_2", "output": []}, (QUESTION,))
        with pytest.raises(Conflict):
            await store.put("", late, Addition("conv_1", "resp_2", (QUESTION,)))
        items, response = await store.conversation_items("", "conv_1"), await store.get("", "resp_2")
        return items, response, await store.hold("", "conv_1", "resp_3"), await store.conversation("", "conv_1")

    after = StoredConversation(CONVERSATION.id, CONVERSATION.created_at, CONVERSATION.metadata, 1)
    assert run(opened, scenario) == ((QUESTION, ANSWER), None, True, after)


def stored(name):
    """An ended response of its own items, and their addition to the conversation."""
    items = tuple({"id": f"msg_{name}_{number}", "type": "message"} for number in range(2))
    return StoredResponse({"id": f"resp_{name}", "output": [items[1]]}, items[:1]), Addition("conv_1", f"resp_{name}", items)


def test_a_late_response_cannot_change_a_conversation_that_another_has_taken(opened) -> None:
    async def scenario(store):
        (late, late_addition), (new, new_addition) = stored("late"), stored("new")
        await store.create_conversation("", CONVERSATION)
        await store.hold("", "conv_1", "resp_late")
        opened.now += LEASE
        await store.hold("", "conv_1", "resp_new")
        with pytest.raises(Conflict):
            await store.renew_hold("", "conv_1", "resp_late")
        with pytest.raises(Conflict):
            await store.put("", late, late_addition)
        await store.release("", "conv_1", "resp_late")
        for attempt in (store.hold("", "conv_1", "resp_other"), store.add_items("", "conv_1", [ANSWER])):
            with pytest.raises(Conflict):
                await attempt
        renewed = await store.renew_hold("", "conv_1", "resp_new")
        await store.put("", new, new_addition)
        return renewed, await store.conversation_items("", "conv_1"), await store.get("", "resp_late"), new_addition.items

    renewed, items, late, expected = run(opened, scenario)
    assert (renewed, items, late) == (True, expected, None)


@pytest.mark.parametrize("happens", ["nothing", "renewed", "changed", "held and released", "created again"])
def test_a_response_with_a_lapsed_lease_joins_only_an_untouched_conversation(opened, happens) -> None:
    async def scenario(store):
        late, addition = stored("late")
        await store.create_conversation("", CONVERSATION)
        await store.hold("", "conv_1", "resp_late")
        opened.now += LEASE
        match happens:
            case "renewed":
                await store.renew_hold("", "conv_1", "resp_late")
                with pytest.raises(Conflict):
                    await store.hold("", "conv_1", "resp_new")
            case "changed":
                await store.add_items("", "conv_1", [QUESTION])
            case "held and released":
                await store.hold("", "conv_1", "resp_new")
                await store.release("", "conv_1", "resp_new")
            case "created again":
                await store.create_conversation("", CONVERSATION)
        lost = pytest.raises(Conflict, match=r"^The conversation 'conv_1' was taken or changed meanwhile\.$")
        with nullcontext() if happens in {"nothing", "renewed"} else lost:
            await store.put("", late, addition)
        return await store.conversation_items("", "conv_1"), await store.hold("", "conv_1", "resp_next"), addition.items

    items, is_free, added = run(opened, scenario)
    expected = {"nothing": added, "renewed": added, "changed": (QUESTION,)}
    assert (items, is_free) == (expected.get(happens, ()), True)


def test_acknowledged_changes_of_concurrent_writers_to_a_conversation_are_kept(opened) -> None:
    async def conflicts(attempt):
        try:
            await attempt
        except Conflict:
            return True
        return False

    async def scenario(store):
        outcomes = []
        (late, late_addition), (new, new_addition) = stored("late"), stored("new")
        for order in permutations(range(3)):
            await store.create_conversation("", CONVERSATION)
            await store.hold("", "conv_1", "resp_late")
            opened.now += LEASE
            attempts = [
                store.put("", late, late_addition),
                store.hold("", "conv_1", "resp_new"),
                store.add_items("", "conv_1", [QUESTION]),
            ]
            refused = await asyncio.gather(*(conflicts(attempts[number]) for number in order))
            late_refused, new_refused, client_refused = (refused[order.index(number)] for number in range(3))
            before = await store.conversation_items("", "conv_1")
            if not new_refused:
                assert await store.renew_hold("", "conv_1", "resp_new")
                await store.put("", new, new_addition)
            items = await store.conversation_items("", "conv_1")
            kept = (() if late_refused else late_addition.items) + (() if client_refused else (QUESTION,))
            outcomes.append((before == kept, items == before + (() if new_refused else new_addition.items), new_refused))
        return outcomes

    assert run(opened, scenario) == [(True, True, False)] * 6


def test_a_released_conversation_can_be_held_by_another(opened) -> None:
    async def scenario(store):
        await store.create_conversation("", CONVERSATION, [QUESTION])
        await store.hold("", "conv_1", "resp_1")
        await store.release("", "conv_1", "resp_2")
        with pytest.raises(Conflict):
            await store.delete_item("", "conv_1", "msg_q")
        await store.release("", "conv_1", "resp_1")
        return await store.hold("", "conv_1", "resp_2")

    assert run(opened, scenario)


def test_the_end_of_a_response_and_the_items_that_it_adds_are_one_commit(opened) -> None:
    async def scenario(store):
        await store.create_conversation("", CONVERSATION)
        await store.hold("", "conv_1", "resp_1")
        lease = await store.enqueue("", QUEUED, "a")
        with pytest.raises(Conflict):
            await store.finish(lease, 0, FRAMES, ENDED, Addition("conv_1", "resp_2", (ANSWER,)))
        with pytest.raises(Conflict):
            await store.finish(lease, 0, FRAMES, ENDED, Addition("conv_2", "resp_1", (ANSWER,)))
        before = await log_of(store), await store.conversation_items("", "conv_1")
        await store.finish(lease, 0, FRAMES, ENDED, Addition("conv_1", "resp_1", (QUESTION, ANSWER)))
        return before, (await log_of(store))[3], await store.conversation_items("", "conv_1")

    assert run(opened, scenario) == ((((), 0, 0, "queued", False, False), ()), "ended", (QUESTION, ANSWER))


def test_a_subscription_to_an_id_with_a_lone_surrogate_does_not_stop_the_others(opened) -> None:
    async def scenario(store):
        lease = await store.enqueue("", QUEUED, "a")
        with store.subscribe("", "resp_\ud83d"), store.subscribe("", "resp_1") as watch:
            await watch.wait(1)
            await watch.wait(0)
            await store.append(lease, 0, FRAMES)
            await asyncio.wait_for(watch.wait(60), 5)

    run(opened, scenario)


def test_items_with_ids_of_maximum_length_are_stored_found_and_removed(opened) -> None:
    letters = "".join(chr(letter) for letter in range(0x4E00, 0x4E00 + 4095))  # which no index can compress
    one, two = ({"id": f"{letters}{last}", "type": "message", "content": last} for last in "12")

    async def scenario(store):
        await store.put("", StoredResponse({"id": "resp_1", "output": [one]}, (QUESTION,)))
        await store.create_conversation("", CONVERSATION, [one, two])
        found = dict(await store.find("", [one["id"], two["id"], f"{letters}3"]))
        await store.delete_item("", "conv_1", two["id"])
        return found, await store.conversation_items("", "conv_1"), (await store.get("", "resp_1")).output

    assert run(opened, scenario) == ({one["id"]: one, two["id"]: two}, (one,), [one])


def test_ids_with_lone_surrogates_are_stored(opened) -> None:
    item = {"id": "msg_\ud83d", "type": "message", "role": "user", "content": "Why\ud83d?"}
    cleaned = {"id": "msg_\ufffd", "type": "message", "role": "user", "content": "Why\ufffd?"}
    key = "", "resp_\ud83d"

    def response(status):
        return StoredResponse({"id": key[1], "status": status, "output": []}, (item,))

    async def scenario(store):
        await store.put("", StoredResponse({"id": "resp_0", "output": [item]}, ()))
        lease = await store.enqueue("", response("queued"), "a")
        with pytest.raises(Conflict):
            await store.enqueue("", response("queued"), "b")
        await store.append(lease, 0, FRAMES[:1])
        await store.finish(lease, 1, FRAMES[1:], response("completed"))
        await store.create_conversation("", StoredConversation("conv_\ud83d", 0, {"topic": "\ud83d"}), [item])
        await store.hold("", "conv_\ud83d", "resp_1")
        await store.put("", ENDED, Addition("conv_\ud83d", "resp_1", (QUESTION,)))
        removed = await store.delete_item("", "conv_\ud83d", "msg_\ud83d")
        return (
            [*(await store.find("", ["msg_\ud83d", "msg_q"])).values()],
            (await store.get("", "resp_0")).output,
            (await store.get(*key)).items,
            (await store.read(*key, 0, 10)).frames,
            removed is not None and await store.conversation_items("", "conv_\ud83d"),
            await store.delete(*key),
        )

    found, output, items, frames, members, deleted = run(opened, scenario)
    assert (found, output, items) == ([cleaned, QUESTION], [cleaned], (cleaned,))
    assert (frames, members, deleted) == (FRAMES, (QUESTION,), True)
