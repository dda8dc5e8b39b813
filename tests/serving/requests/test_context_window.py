"""Turns go from the oldest on, whole, and never a call without its output."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from interlock.serving.requests.context_window import truncate


def user(text):
    return {"type": "message", "role": "user", "content": text}


def assistant(text):
    return {"type": "message", "role": "assistant", "content": text}


def call(name):
    return {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"}


def output(name):
    return {"type": "function_call_output", "call_id": name, "output": "1"}


BRIEF = {"type": "message", "role": "developer", "content": "Be brief."}
FIRST = [user("one"), assistant("1")]
SECOND = [user("two"), call("a"), output("a"), assistant("2")]
LAST = [user("three")]


def fitted(items, room):
    """What is left of items of which a number have room; and how often was asked."""
    lengths = []

    async def fits(some):
        lengths.append(len(some))
        return len(some) <= room

    return list(asyncio.run(truncate(items, fits))), len(lengths)


def test_a_conversation_that_fits_stays() -> None:
    assert fitted([*FIRST, *LAST], 3) == ([*FIRST, *LAST], 1)


def test_the_oldest_turns_go_first_and_instructions_stay() -> None:
    items = [BRIEF, *FIRST, *SECOND, *LAST]
    assert fitted(items, 7)[0] == [BRIEF, *SECOND, *LAST]
    assert fitted(items, 5)[0] == [BRIEF, *LAST]


def test_where_not_even_the_last_turn_fits_everything_is_left_to_be_refused() -> None:
    assert fitted([*FIRST, *LAST], 0)[0] == [*FIRST, *LAST]
    assert fitted([assistant("alone"), assistant("twice")], 1)[0] == [assistant("alone"), assistant("twice")]


def test_an_output_keeps_the_turn_of_its_call() -> None:
    across = [*FIRST, user("two"), call("a"), user("wait"), output("a"), *LAST]
    assert fitted(across, 4)[0] == LAST
    assert fitted(across, 5)[0] == [user("two"), call("a"), user("wait"), output("a"), *LAST]


def test_a_call_that_nobody_answered_goes_with_its_turn() -> None:
    assert fitted([user("one"), call("a"), user("two"), *LAST], 2)[0] == [user("two"), *LAST]


def test_an_approval_keeps_the_turn_of_its_question() -> None:
    question = {"type": "mcp_approval_request", "id": "mcpr_1"}
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    items = [user("one"), question, user("two"), answer, *LAST]
    assert fitted(items, 4)[0] == LAST


def test_of_many_turns_few_are_tried() -> None:
    items = [user(str(number)) for number in range(1000)]
    remaining, calls = fitted(items, 17)
    assert remaining == items[-17:]
    assert calls < 13


ITEMS = st.one_of(st.builds(user, st.text(max_size=3)), *(st.builds(make, st.sampled_from("abc")) for make in (call, output)))


@given(st.lists(ITEMS, max_size=12), st.integers(0, 12))
def test_what_is_left_is_an_end_in_which_no_output_lost_its_call(items, room) -> None:
    remaining, _ = fitted(items, room)
    assert items[len(items) - len(remaining) :] == remaining
    for place, item in enumerate(remaining):
        if item["type"] == "function_call_output":
            gone = items[: len(items) - len(remaining)]
            here = call(item["call_id"]) in remaining[:place]
            assert here or call(item["call_id"]) not in gone
