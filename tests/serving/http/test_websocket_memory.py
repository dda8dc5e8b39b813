"""The memory of connections: which responses are evicted, and when."""

import pytest

from interlock.serving.http.socket_memory import SocketMemory
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.store import StoredResponse


def response(number):
    item = {"id": f"msg_{number}", "type": "message", "content": "x" * 1000}
    return StoredResponse({"id": f"resp_{number}", "output": [item]}, (item,))


def cached(*places):
    """The numbers of the responses that are cached, of connections, lanes and numbers."""
    return [number for connection, lane, number in places if connection.take(lane, f"resp_{number}")[0] is not None]


def test_a_response_is_taken_once_and_unchanged() -> None:
    memory = SocketMemory()
    first = memory.for_connection("", 10**6)
    first.store("a", response(1))
    assert first.take("b", "resp_1") == first.take("a", "resp_2") == (None, 0)
    taken, size = first.take("a", "resp_1")
    assert (taken, first.take("a", "resp_1")) == (response(1), (None, 0))
    assert set(memory.used.values()) == {size}
    first.release(size)
    assert memory.used == {}


@pytest.mark.parametrize(
    ("process", "tenant", "connection", "remaining"),
    [
        (10**6, 10**6, 10**6, [1, 2, 3, 4]),
        (10**6, 10**6, 3000, [2, 3, 4]),
        (10**6, 5500, 10**6, [2, 3, 4]),
        (8000, 10**6, 10**6, [2, 3, 4]),
    ],
)
def test_the_least_recently_used_response_is_evicted_where_the_limit_is(process, tenant, connection, remaining) -> None:
    memory = SocketMemory(process, tenant)
    other, first, second = (
        memory.for_connection("other", connection),
        memory.for_connection("", connection),
        memory.for_connection("", connection),
    )
    places = [(first, "a", 1), (first, "b", 2), (second, "a", 3), (other, "a", 4)]
    for owner, lane, number in places:
        owner.store(lane, response(number))
    assert [number for owner, lane, number in places if not owner.was_evicted(lane, f"resp_{number}")] == remaining
    assert cached(*places) == remaining


def test_an_error_says_which_limit_is_exceeded() -> None:
    memory = SocketMemory(3000, 2000)
    first, other = memory.for_connection("a", 1000), memory.for_connection("b", 5000)
    messages = []
    for connection, size in ((first, 1001), (other, 2001), (first, 1000)):
        try:
            connection.reserve(size)
        except ApiError as error:
            messages.append(error.message)
    assert messages == [
        "The WebSocket requests of this connection would take more than 1000 bytes of memory.",
        "The WebSocket requests of this key would take more than 2000 bytes of memory.",
    ]
    other.reserve(1500)
    with pytest.raises(ApiError, match="of this server would take more than 3000 bytes"):
        memory.for_connection("c", 5000).reserve(501)


def test_a_connection_that_ends_releases_its_memory() -> None:
    memory = SocketMemory()
    first, other = memory.for_connection("", 10**6), memory.for_connection("", 10**6)
    for each in (first, other):
        each.reserve(100)
        each.store(None, response(1))
        each.store(None, response(2))
    first.close()
    assert cached((first, None, 2), (other, None, 2)) == [2]
    other.close()
    assert (memory.used, memory.cache) == ({}, {})
