"""Stop strings end the text of a turn, however it is divided."""

from for_each import for_each
from hypothesis import given
from hypothesis import strategies as st

from interlock import StopStrings

CASES = [
    (None, "all of it", "all of it", None),
    ([], "all of it", "all of it", None),
    (["", 5, None], "all of it", "all of it", None),
    ("END", "the END of it", "the ", "END"),
    ("END", "the EN", "the EN", None),
    (["it", "of"], "all of it", "all ", "of"),
    (["abcd", "b"], "abcd", "a", "b"),  # is complete first
    (["bc", "abc"], "xabcd", "x", "abc"),  # both are complete at once, and one begins first
    (["aab"], "aaab", "a", "aab"),
    ("\n\n", "a\nb\n\nc", "a\nb", "\n\n"),
]


@for_each("stop, text, spoken, found", CASES)
def test_the_text_ends_before_the_stop_string_that_is_complete_first(stop, text, spoken, found) -> None:
    for size in range(1, len(text) + 1):
        strings = StopStrings(stop)
        parts = [strings.feed(text[start : start + size]) for start in range(0, len(text), size)]
        assert ("".join([*parts, strings.end()]), strings.found, strings.end()) == (spoken, found, "")


def test_only_text_that_may_begin_a_stop_string_waits() -> None:
    strings = StopStrings(["END", "NO"])
    assert [strings.feed(text) for text in ["a", "bE", "N", "O", " EN", "DE", "x"]] == ["a", "b", "", "E", "", "", ""]
    assert strings.found == "NO"


@given(st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.lists(st.text("ab", max_size=5)))
def test_any_division_of_a_text_gives_the_same(stop, parts) -> None:
    whole, divided = StopStrings(stop), StopStrings(stop)
    expected = whole.feed("".join(parts)) + whole.end()
    assert ("".join(map(divided.feed, parts)) + divided.end(), divided.found) == (expected, whole.found)
