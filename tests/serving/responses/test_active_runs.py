"""The processes of a server share the slots for responses in progress."""

from interlock.serving.responses.active_runs import Slots


def test_processes_take_no_more_slots_together_than_the_limit() -> None:
    first, second = Slots.shared(3, 2)
    assert [first.take(), second.take(), first.take(), second.take(), first.take()] == [True, True, True, False, False]
    second.free()
    assert [first.take(), second.take()] == [True, False]


def test_the_slots_of_a_process_that_has_exited_are_free_and_those_of_others_are_not() -> None:
    first, second = Slots.shared(3, 2)
    assert [first.take(), first.take(), second.take(), second.take()] == [True, True, True, False]
    first.clear()
    assert [second.take(), second.take(), second.take()] == [True, True, False]


def test_slots_without_a_limit_are_always_free() -> None:
    first, second = Slots.shared(None, 2)
    assert {each.take() for each in (first, second) for _ in range(1000)} == {True}
