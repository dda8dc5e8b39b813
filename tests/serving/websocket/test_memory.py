"""What connections may hold: who lets go of what, and when."""

import pytest

from interlock.serving.http.websocket.socket_memory import Memory
from interlock.serving.requests.api_errors import ApiError
from interlock.serving.store import StoredResponse


def response(number):
    item = {"id": f"msg_{number}", "type": "message", "content": "x" * 1000}
    return StoredResponse({"id": f"resp_{number}", "output": [item]}, (item,))


def kept(*places):
    """Which responses are held: of each connection, lane and number."""
    return [number for share, lane, number in places if share.recall(lane, f"resp_{number}")[0] is not None]


def test_a_response_is_recalled_once_and_as_it_was() -> None:
    memory = Memory()
    share = memory.share("", 10**6)
    share.keep("a", response(1))
    assert share.recall("b", "resp_1") == share.recall("a", "resp_2") == (None, 0)
    recalled, size = share.recall("a", "resp_1")
    assert (recalled, share.recall("a", "resp_1")) == (response(1), (None, 0))
    assert set(memory.used.values()) == {size}
    share.free(size)
    assert memory.used == {}


@pytest.mark.parametrize(
    ("process", "tenant", "connection", "left"),
    [
        (10**6, 10**6, 10**6, [1, 2, 3, 4]),
        (10**6, 10**6, 3000, [2, 3, 4]),
        (10**6, 5500, 10**6, [2, 3, 4]),
        (8000, 10**6, 10**6, [2, 3, 4]),
    ],
)
def test_the_lane_that_was_not_used_longest_lets_go_where_the_bound_is(process, tenant, connection, left) -> None:
    memory = Memory(process, tenant)
    other, first, second = memory.share("other", connection), memory.share("", connection), memory.share("", connection)
    places = [(first, "a", 1), (first, "b", 2), (second, "a", 3), (other, "a", 4)]
    for share, lane, number in places:
        share.keep(lane, response(number))
    assert [number for share, lane, number in places if not share.has_let_go(lane, f"resp_{number}")] == left
    assert kept(*places) == left


def test_what_finds_no_room_says_whose_it_lacks() -> None:
    memory = Memory(3000, 2000)
    share, other = memory.share("a", 1000), memory.share("b", 5000)
    said = []
    for who, size in ((share, 1001), (other, 2001), (share, 1000)):
        try:
            who.hold(size)
        except ApiError as error:
            said.append(error.message)
    assert said == [
        "What the WebSockets of this connection hold would be larger than 1000 bytes.",
        "What the WebSockets of this key hold would be larger than 2000 bytes.",
    ]
    other.hold(1500)
    with pytest.raises(ApiError, match="of this server hold would be larger than 3000 bytes"):
        memory.share("c", 5000).hold(501)


def test_a_connection_that_ends_holds_nothing() -> None:
    memory = Memory()
    share, other = memory.share("", 10**6), memory.share("", 10**6)
    for each in (share, other):
        each.hold(100)
        each.keep(None, response(1))
        each.keep(None, response(2))
    share.close()
    assert kept((share, None, 2), (other, None, 2)) == [2]
    other.close()
    assert (memory.used, memory.kept) == ({}, {})
