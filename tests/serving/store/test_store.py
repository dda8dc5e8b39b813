"""The store in memory holds what was used last, within its bounds, and nothing of what it let go."""

import asyncio

from interlock.events.json import dumps
from interlock.serving.store import MemoryStore, StoredResponse


def stored(number, *items, text=""):
    output = [{"id": f"msg_out_{number}", "type": "message", "text": text}]
    return StoredResponse({"id": f"resp_{number}", "output": output}, items)


def held(store, *numbers):
    return [number for number in numbers if asyncio.run(store.get(f"resp_{number}")) is not None]


def put(store, *responses):
    for response in responses:
        asyncio.run(store.put(response))


def found(store, *ids):
    return dict(asyncio.run(store.find(ids)))


SHARED = {"id": "msg_in", "type": "message"}


def test_a_response_is_given_back_with_its_conversation() -> None:
    store = MemoryStore()
    put(store, stored(1, SHARED))
    given = asyncio.run(store.get("resp_1"))
    assert given == stored(1, SHARED)
    assert [item["id"] for item in given.conversation] == ["msg_in", "msg_out_1"]


def test_what_was_never_put_is_not_there() -> None:
    store = MemoryStore()
    assert asyncio.run(store.get("resp_1")) is None
    assert not asyncio.run(store.delete("resp_1"))
    assert found(store, "msg_in") == {}


def test_too_many_responses_push_out_the_one_that_was_not_used_longest() -> None:
    store = MemoryStore(max_responses=2)
    put(store, stored(1), stored(2))
    asyncio.run(store.get("resp_1"))
    put(store, stored(3))
    assert held(store, 1, 2, 3) == [1, 3]


def test_too_many_bytes_push_out_as_many_responses_as_it_takes() -> None:
    size = len(dumps([stored(1).response, ()]))
    store = MemoryStore(max_bytes=3 * size)
    put(store, stored(1), stored(2), stored(3))
    assert held(store, 1, 2, 3) == [1, 2, 3]
    put(store, stored(4, text="x" * size))
    assert held(store, 1, 2, 3, 4) == [3, 4]


def test_a_response_that_is_larger_than_the_bound_is_not_held_and_pushes_nothing_out() -> None:
    store = MemoryStore(max_bytes=1000)
    put(store, stored(1), stored(2, text="x" * 1000))
    assert held(store, 1, 2) == [1]


def test_a_response_that_is_put_again_counts_once() -> None:
    store = MemoryStore(max_bytes=2 * len(dumps([stored(1).response, ()])))
    put(store, *[stored(1)] * 5, stored(2))
    assert held(store, 1, 2) == [1, 2]


def test_a_deleted_response_is_gone_and_makes_room() -> None:
    store = MemoryStore(max_responses=1)
    put(store, stored(1, SHARED))
    assert asyncio.run(store.delete("resp_1"))
    assert held(store, 1) == []
    assert found(store, "msg_in", "msg_out_1") == {}


def test_an_item_is_found_as_long_as_one_response_has_it() -> None:
    store = MemoryStore()
    put(store, stored(1, SHARED), stored(2, SHARED, SHARED))
    asyncio.run(store.delete("resp_2"))
    assert found(store, "msg_in", "msg_out_1", "msg_out_2") == {"msg_in": SHARED, "msg_out_1": stored(1).output[0]}
    asyncio.run(store.delete("resp_1"))
    assert found(store, "msg_in") == {}
