"""The store in memory holds what was used last, within its bounds, and nothing of what it let go."""

import asyncio
import gc
import tracemalloc

import pytest

from interlock.serving.store import MemoryStore, StoredResponse


def stored(number, *items, text=""):
    output = [{"id": f"msg_out_{number}", "type": "message", "text": text}]
    return StoredResponse({"id": f"resp_{number}", "output": output}, items)


def held(store, *numbers):
    return [number for number in numbers if asyncio.run(store.get("", f"resp_{number}")) is not None]


def put(store, *responses):
    for response in responses:
        asyncio.run(store.put("", response))


def found(store, *ids):
    return dict(asyncio.run(store.find("", ids)))


def size_of(*responses):
    store = MemoryStore()
    put(store, *responses)
    return store.held_bytes


SHARED = {"id": "msg_in", "type": "message"}


def test_a_response_is_given_back_with_its_conversation() -> None:
    store = MemoryStore()
    put(store, stored(1, SHARED))
    given = asyncio.run(store.get("", "resp_1"))
    assert given == stored(1, SHARED)
    assert [item["id"] for item in given.conversation] == ["msg_in", "msg_out_1"]


def test_what_was_never_put_is_not_there() -> None:
    store = MemoryStore()
    assert asyncio.run(store.get("", "resp_1")) is None
    assert not asyncio.run(store.delete("", "resp_1"))
    assert found(store, "msg_in") == {}


def test_too_many_responses_push_out_the_one_that_was_not_used_longest() -> None:
    store = MemoryStore(max_responses=2)
    put(store, stored(1), stored(2))
    asyncio.run(store.get("", "resp_1"))
    put(store, stored(3))
    assert held(store, 1, 2, 3) == [1, 3]


def test_too_many_bytes_push_out_as_many_responses_as_it_takes() -> None:
    size = size_of(stored(1))
    store = MemoryStore(max_bytes=3 * size)
    put(store, stored(1), stored(2), stored(3))
    assert held(store, 1, 2, 3) == [1, 2, 3]
    put(store, stored(4, text="x" * size))
    assert held(store, 1, 2, 3, 4) == [3, 4]


def test_a_response_that_is_larger_than_the_bound_is_not_held_and_pushes_nothing_out() -> None:
    store = MemoryStore(max_bytes=10_000)
    put(store, stored(1), stored(2, text="x" * 10_000))
    assert held(store, 1, 2) == [1]


def test_a_response_that_is_put_again_counts_once() -> None:
    store = MemoryStore(max_bytes=2 * size_of(stored(1)))
    put(store, *[stored(1)] * 5, stored(2))
    assert held(store, 1, 2) == [1, 2]


def test_a_value_that_is_rare_in_json_is_given_back_as_it_was() -> None:
    store = MemoryStore()
    rare = StoredResponse({"id": "resp_1", "output": [], "n": 2**80}, ({"id": "msg_1", "text": "\ud83d"},))
    put(store, rare)
    given = asyncio.run(store.get("", "resp_1"))
    assert (given.response["n"], given.items[0]["text"]) == (2**80, "\ufffd")


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
def test_the_memory_that_is_really_held_is_within_the_bound(make) -> None:
    bound = 2 * 2**20
    tracemalloc.start()
    try:
        store = MemoryStore(max_bytes=bound)
        before = tracemalloc.get_traced_memory()[0]

        async def fill():
            for number in range(1500):
                await store.put("", make(number))

        asyncio.run(fill())
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert store.held_bytes <= bound
    assert held <= 1.1 * bound


def test_a_deleted_response_is_gone_and_makes_room() -> None:
    store = MemoryStore(max_responses=1)
    put(store, stored(1, SHARED))
    assert asyncio.run(store.delete("", "resp_1"))
    assert held(store, 1) == []
    assert found(store, "msg_in", "msg_out_1") == {}


def test_an_item_is_found_as_long_as_one_response_has_it() -> None:
    store = MemoryStore()
    put(store, stored(1, SHARED), stored(2, SHARED, SHARED))
    asyncio.run(store.delete("", "resp_2"))
    assert found(store, "msg_in", "msg_out_1", "msg_out_2") == {"msg_in": SHARED, "msg_out_1": stored(1).output[0]}
    asyncio.run(store.delete("", "resp_1"))
    assert found(store, "msg_in") == {}
