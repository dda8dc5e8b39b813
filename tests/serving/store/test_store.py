"""The store in memory stays within its bounds, and evicts the least recently used responses completely."""

import asyncio
import gc

import apsw
import pytest

from interlock.serving.store import rows
from interlock.serving.store.sqlite import MemoryStore, SqliteConnection
from interlock.serving.store.values import LEASE, StoredConversation, StoredResponse, StoreFull, put_together


def stored(number, *items, text=""):
    output = [{"id": f"msg_out_{number}", "type": "message", "text": text}]
    return StoredResponse({"id": f"resp_{number}", "output": output}, items)


def stored_numbers(store, *numbers):
    return [number for number in numbers if asyncio.run(store.get("", f"resp_{number}")) is not None]


def put(store, *responses):
    for response in responses:
        asyncio.run(store.put("", response))


def find(store, *ids):
    return dict(asyncio.run(store.find("", ids)))


def size_of(store):
    return asyncio.run(store.info()).size


TEXT = "x" * 20_000
BOUND = 70_000
"""Bytes that three responses with that text fit in, but not four."""


EMPTY = 600_000
"""Bytes that SQLite needs for the empty tables and for its prepared statements."""

SHARED = {"id": "msg_in", "type": "message"}


def test_too_many_responses_evict_the_least_recently_used() -> None:
    store = MemoryStore(max_responses=2)
    put(store, stored(1), stored(2))
    asyncio.run(store.get("", "resp_1"))
    put(store, stored(3))
    assert stored_numbers(store, 1, 2, 3) == [1, 3]


def test_a_response_whose_events_are_read_is_not_evicted() -> None:
    store = MemoryStore(max_responses=2)

    async def scenario():
        lease = await store.enqueue("", stored(1), "a")
        await store.finish(lease, 0, [b"one", b"two"], stored(1))
        await store.put("", stored(2))
        await store.read("", "resp_1", 0, 1)
        await store.put("", stored(3))
        return (await store.read("", "resp_1", 1, 1)).frames

    assert asyncio.run(scenario()) == (b"two",)


def test_too_many_bytes_evict_as_many_responses_as_needed() -> None:
    store = MemoryStore(max_bytes=BOUND)
    put(store, stored(1, text=TEXT), stored(2, text=TEXT), stored(3, text=TEXT))
    assert stored_numbers(store, 1, 2, 3) == [1, 2, 3]
    put(store, stored(4, text=2 * TEXT))
    assert stored_numbers(store, 1, 2, 3, 4) == [3, 4]
    assert size_of(store) - size_of(MemoryStore()) <= BOUND


def test_a_response_that_is_larger_than_the_bound_is_refused_and_evicts_nothing() -> None:
    store = MemoryStore(max_bytes=BOUND)
    put(store, stored(1))
    with pytest.raises(StoreFull, match="larger than the store may be"):
        put(store, stored(2, text=4 * TEXT))
    assert stored_numbers(store, 1, 2) == [1]
    assert find(store, "msg_out_1", "msg_out_2") == {"msg_out_1": stored(1).output[0]}


def test_an_oversized_conversation_is_refused_even_if_most_of_it_is_stored() -> None:
    store = MemoryStore(max_bytes=BOUND)
    items = [{"id": f"msg_{number}", "type": "message", "text": f"{number}" * 20_000} for number in range(4)]
    put(store, *[stored(count, *items[:count]) for count in range(1, 4)])
    with pytest.raises(StoreFull):
        put(store, stored(4, *items))
    assert stored_numbers(store, 1, 2, 3, 4) == [1, 2, 3]


def test_a_response_that_is_put_again_counts_once() -> None:
    store = MemoryStore(max_bytes=BOUND)
    put(store, *[stored(1, text=TEXT)] * 5, stored(2, text=TEXT))
    assert stored_numbers(store, 1, 2) == [1, 2]


def test_an_unfinished_response_is_not_evicted_and_leaves_no_room_for_another() -> None:
    store = MemoryStore(max_bytes=BOUND)

    async def scenario():
        lease = await store.enqueue("", stored(1, text=TEXT), "a")
        for number in range(10):
            await store.append(lease, number, [TEXT.encode()])
        await store.put("", stored(2, text=TEXT))
        with pytest.raises(StoreFull):
            await store.enqueue("", stored(3), "a")
        present = [await store.get("", f"resp_{number}") is not None for number in (1, 2, 3)]
        await store.finish(lease, 10, [b"end"], stored(1))
        await store.enqueue("", stored(4), "a")
        return present, [await store.get("", f"resp_{number}") is not None for number in (1, 2, 4)]

    assert asyncio.run(scenario()) == ([True, True, False], [False, False, True])


def test_a_background_response_that_is_larger_than_the_bound_is_refused_and_evicts_nothing() -> None:
    store = MemoryStore(max_bytes=BOUND)
    put(store, stored(1))

    async def scenario():
        with pytest.raises(StoreFull, match="larger than the store may be"):
            await store.enqueue("", stored(2, text=4 * TEXT), "a")

    asyncio.run(scenario())
    assert stored_numbers(store, 1, 2) == [1]


@pytest.mark.parametrize("method", ["trim", "delete"])
def test_events_are_removed_in_batches(monkeypatch, method) -> None:
    monkeypatch.setattr(rows, "REMOVED", 2, raising=False)
    execute, removed = SqliteConnection.rows, []

    def record(connection, statement, values=()):
        result = execute(connection, statement, values)
        if statement.startswith("DELETE FROM event"):
            removed.append(len(result))
        return result

    async def scenario():
        store = MemoryStore()
        lease = await store.enqueue("", stored(1), "a")
        await store.finish(lease, 0, [b"event"] * 5, stored(1))
        monkeypatch.setattr(SqliteConnection, "rows", record)
        await getattr(store, method)("", "resp_1")
        return (await store.info()).events

    assert (asyncio.run(scenario()), removed) == (0, [2, 2, 1])


def test_unfinished_responses_are_limited_by_the_number_of_responses() -> None:
    store = MemoryStore(max_responses=2)

    async def scenario():
        for number in (1, 2):
            await store.enqueue("", stored(number), "a")
        with pytest.raises(StoreFull):
            await store.enqueue("", stored(3), "a")
        return (await store.info()).responses, await store.get("", "resp_3")

    assert asyncio.run(scenario()) == ({"queued": 2}, None)


def test_too_many_conversations_evict_the_least_recently_used_that_is_not_held() -> None:
    store = MemoryStore(max_responses=3)

    async def scenario():
        for number in (1, 2, 3):
            await store.create_conversation("", StoredConversation(f"conv_{number}", 0, {}), [SHARED])
        await store.hold("", "conv_1", "resp_1")
        await store.conversation("", "conv_2")
        for number in (4, 5):
            await store.create_conversation("", StoredConversation(f"conv_{number}", 0, {}))
        return [number for number in range(1, 6) if await store.conversation("", f"conv_{number}") is not None]

    assert asyncio.run(scenario()) == [1, 4, 5]


def test_a_write_that_raises_changes_nothing() -> None:
    store = MemoryStore()
    put(store, stored(1, SHARED))
    with pytest.raises(TypeError):
        put(store, StoredResponse({"id": "resp_2", "output": [], "no": object()}, ({"id": "msg_2", "type": "message"},)))
    put(store, stored(3))
    assert (stored_numbers(store, 1, 2, 3), find(store, "msg_2")) == ([1, 3], {})


def test_a_huge_integer_is_kept_and_a_lone_surrogate_is_replaced() -> None:
    store = MemoryStore()
    rare = StoredResponse({"id": "resp_1", "output": [], "n": 2**80}, ({"id": "msg_1", "text": "\ud83d"},))
    put(store, rare)
    response = asyncio.run(store.get("", "resp_1"))
    assert (response.response["n"], response.items[0]["text"]) == (2**80, "\ufffd")


def large(number):
    return stored(number, {"id": f"msg_{number}", "type": "message", "content": f"{number}" * 50_000}, text="y" * 200_000)


def small(number):
    return stored(number, {"id": f"msg_{number}", "type": "message", "role": "user", "content": [{"text": f"Hi {number}"}]})


def turn(number):
    """A turn of one long conversation, whose items all later ones share."""
    items = [{"id": f"msg_{each}", "type": "message", "content": f"{each}" * 100} for each in range(number % 200)]
    return stored(number, *items)


def many_lists(number):
    tools = [{"type": "function", "name": f"f{each}", "parameters": {"type": "object", "properties": {}}} for each in range(100)]
    response = {"id": f"resp_{number}", "tools": [{**tool, "description": f"{number}"} for tool in tools], "output": []}
    return StoredResponse(response, ())


@pytest.mark.long
@pytest.mark.parametrize("make", [large, small, turn, many_lists], ids=lambda make: make.__name__)
def test_the_allocated_memory_is_within_the_bound(make) -> None:
    bound = 2 * 2**20
    gc.collect()  # the stores of other tests
    before = apsw.memory_used()
    store = MemoryStore(max_bytes=bound)

    async def fill():
        for number in range(1500):
            await store.put("", make(number))

    asyncio.run(fill())
    assert store.stored_bytes <= bound
    assert apsw.memory_used() - before <= 1.02 * bound + EMPTY


def test_a_hidden_response_makes_room_when_the_lease_of_its_readers_ends() -> None:
    now = 0.0
    store = MemoryStore(max_responses=2, clock=lambda: now)
    put(store, stored(1))
    lease = asyncio.run(store.enqueue("", stored(2), "a"))
    asyncio.run(store.finish(lease, 0, [b"one"], stored(2)))
    asyncio.run(store.hide("", "resp_2"))
    now += LEASE
    put(store, stored(3))
    assert stored_numbers(store, 1, 2, 3) == [1, 3]


def test_a_body_compressed_in_layout_1_can_be_read() -> None:
    packed = bytes.fromhex("48a84ab971fcab46ca268638f209d67c811a29d802181128b500df3922ce")
    body = {"id": "resp_1", "object": "response", "status": "completed", "store": True, "tool_choice": "auto", "output": []}
    assert put_together(packed, (), 0) == StoredResponse(body, ())
