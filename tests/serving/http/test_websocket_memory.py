"""The memory of connections: which responses are evicted, and when."""

import pytest

from interlock.serving.http.socket_memory import CachedResponse, ConnectionMemory, SocketMemory
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.store import StoredResponse


def response(number):
    item = {"id": f"msg_{number}", "type": "message", "content": "x" * 1000}
    return StoredResponse({"id": f"resp_{number}", "output": [item]}, (item,))


def cached(*places):
    """The numbers of the responses that are cached, of connections, lanes and numbers."""
    return [number for connection, lane, number in places if connection.take(lane, f"resp_{number}")[0] is not None]


def test_a_response_is_taken_once_and_unchanged() -> None:
    memory = SocketMemory(10**6)
    first = ConnectionMemory(memory)
    first.store("a", response(1))
    assert first.take("b", "resp_1") == first.take("a", "resp_2") == (None, 0)
    taken, size = first.take("a", "resp_1")
    assert (taken, first.take("a", "resp_1")) == (response(1), (None, 0))
    assert memory.used == size > 1000
    first.release(size)
    assert memory.used == 0


@pytest.mark.parametrize(("room", "remaining"), [(3, [1, 2, 3]), (2, [2, 3]), (1, [3]), (0, [])])
def test_the_least_recently_used_response_of_any_connection_is_evicted(room, remaining) -> None:
    limit = room * CachedResponse.of(response(1)).size
    memory = SocketMemory(limit)
    first, second = ConnectionMemory(memory), ConnectionMemory(memory)
    places = [(first, "a", 1), (first, "b", 2), (second, "a", 3)]
    for owner, lane, number in places:
        owner.store(lane, response(number))
    assert memory.used <= limit
    assert cached(*places) == remaining


def test_a_request_evicts_responses_and_is_refused_if_no_response_is_left() -> None:
    memory = SocketMemory(3000)
    first, other = ConnectionMemory(memory), ConnectionMemory(memory)
    first.store("a", response(1))
    other.reserve(2500)
    assert cached((first, "a", 1)) == []
    with pytest.raises(ApiError) as refused:
        first.reserve(501)
    message = "The WebSocket requests of this server would take more than 3000 bytes of memory."
    assert (refused.value.message, refused.value.code) == (message, "websocket_stream_limit_reached")
    assert memory.used == 2500


def test_a_connection_that_ends_releases_its_memory() -> None:
    memory = SocketMemory(10**6)
    first, other = ConnectionMemory(memory), ConnectionMemory(memory)
    for each in (first, other):
        each.reserve(100)
        each.store(None, response(1))
        each.store(None, response(2))
    first.close([None, "unused"])
    assert cached((first, None, 2), (other, None, 2)) == [2]
    other.close([None])
    assert (memory.used, memory.responses) == (0, {})
