"""Stop strings end a turn, however its text is divided."""

from collections import Counter

from for_each import for_each
from hypothesis import given
from hypothesis import strategies as st

from interlock import (
    Annotate,
    Chunk,
    Close,
    EndTurn,
    Open,
    PlainParser,
    Reject,
    StopParser,
    Tagged,
    Text,
    Usage,
    parser_for,
)
from interlock.parsers.stop_strings import StopStrings, stops_in

NOTE = {"type": "file_citation", "file_id": "file_1", "filename": "a", "index": 0}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
PART = [{"token": " b", "bytes": [32, 98], "logprob": -1.0, "top_logprobs": []}]

CASES = [
    ([], "all of it", "all of it", None),
    (["END"], "the END of it", "the ", "END"),
    (["END"], "the EN", "the EN", None),
    (["it", "of"], "all of it", "all ", "of"),
    (["abcd", "b"], "abcd", "a", "b"),  # is complete first
    (["bc", "abc"], "xabcd", "x", "abc"),  # both are complete at once, and one begins first
    (["aab"], "aaab", "a", "aab"),
    (["\n\n"], "a\nb\n\nc", "a\nb", "\n\n"),
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


@for_each(
    "body, stops",
    [
        ({}, ()),
        ({"stop": None}, ()),
        ({"stop": "a"}, ("a",)),
        ({"stop": ["", 5, None, "a"]}, ("a",)),
        ({"stop": "a", "include_stop_str_in_output": True}, ()),
    ],
)
def test_a_bodynames_the_stop_strings_that_are_cut(body, stops) -> None:
    assert stops_in(body) == stops


OPEN, CALL, END = Open("message"), Open("function_call", {"name": "f"}), EndTurn("stop")


def scored(*tokens: str) -> list[dict[str, object]]:
    return [{"token": token, "logprob": -1.0} for token in tokens]


class Scripted:
    """A parser whose chunks are their deltas."""

    def feed(self, chunk):
        return [*chunk.delta]

    def end(self, reason, usage):
        return [EndTurn(reason, usage)]


def read(*deltas, stop="END", reason="stop"):
    """Return the deltas of a turn, each in a chunk of its own, and the stop string."""
    parser = StopParser(Scripted(), stop)
    out = [each for delta in deltas for each in parser.feed(Chunk(delta=[delta]))]
    found = parser.found
    return [*out, *parser.end(reason, Usage())], found


TURNS = [
    (["a EN", "D b"], ["a ", END], "END"),
    ([OPEN, "a END b", Close(), CALL, "{}", Close()], [OPEN, "a ", END], "END"),
    ([Open("reasoning"), "END", Close(), "EN"], [Open("reasoning"), "END", Close(), "EN", END], None),
    ([CALL, "END", Reject("no"), "END"], [CALL, "END", Reject("no"), END], "END"),
    ([OPEN, "EN", Close(), OPEN, "D"], [OPEN, "EN", Close(), OPEN, "D", END], None),
    ([OPEN, "a", Annotate(NOTE), "END"], [OPEN, "a", Annotate(NOTE), END], "END"),
    (
        [Text("a E", scored("a ", "E")), Text("x", scored("x"))],
        [Text("a ", scored("a ")), Text("Ex", scored("E", "x")), END],
        None,
    ),
    ([Text("a", scored("a")), Text(" bEND", scored(" bEN", "D"))], [Text("a", scored("a")), Text(" b", PART), END], "END"),
    ([Text("", scored("")), "a"], ["a", END], None),
]


@for_each("deltas, expected, found", TURNS)
def test_a_turn_ends_before_a_stop_string_in_a_message(deltas, expected, found) -> None:
    assert read(*deltas) == (expected, found)


@for_each(
    "reason, text, ended",
    [("length", "END", "stop"), ("cut", "END", "stop"), ("abort", "END", "abort"), ("length", "EN", "length")],
)
def test_a_stop_string_is_why_the_turn_ended(reason, text, ended) -> None:
    deltas, _ = read(text, reason=reason)
    assert deltas[-1] == EndTurn(ended)


def test_the_next_turn_has_its_own_stop_string() -> None:
    parser = StopParser(PlainParser(), ["END"])
    turns = [(parser.feed(Chunk(text=text)), parser.found, parser.end("stop", Usage())) for text in ("aEND", "b")]
    opened = Open("message", {"phase": "final_answer"})
    assert turns == [([opened, "a"], "END", [END]), ([opened, "b"], None, [Close(), END])]


def test_text_that_the_parser_releases_at_the_end_of_a_turn_may_have_a_stop_string() -> None:
    parser = StopParser(parser_for(Tagged("hermes"), {}), "<tool")
    assert parser.feed(Chunk(text="a <tool")) == [Open("message", {"phase": "final_answer"}), "a "]
    assert parser.end("length", Usage()) == [END]


def test_the_schemas_of_listed_tools_and_the_repairs_are_the_other_parsers() -> None:
    items = [{"type": "mcp_list_tools", "server_label": "s", "tools": [{"name": "f", "input_schema": SCHEMA}]}]
    inner = parser_for(Tagged("qwen3_coder"), {"tools": [{"type": "mcp", "server_label": "s"}]})
    for parser in (StopParser(inner, "END"), StopParser(PlainParser(), "END")):
        parser.read_lists(items)
    call = "<tool_call>\n<function=s__f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
    parser = StopParser(inner, "END")
    deltas = [*parser.feed(Chunk(text=call)), *parser.end("stop", Usage())]
    assert "".join(each for each in deltas if isinstance(each, str)) == '{"a":1}'
    assert (parser.recoveries, StopParser(PlainParser(), "END").recoveries) == (inner.recoveries, Counter())
