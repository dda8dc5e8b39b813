"""A format selects its parser, the error for a wrong one suggests another, and plain text is the answer."""

import pytest
from for_each import for_each

from interlock.fsm.deltas import Close, EndTurn, Open, Text, Usage
from interlock.parsers import ChatParser, Chunk, HarmonyParser, PlainParser, Tagged, parser_for


@pytest.mark.parametrize(
    ("format_", "message"),
    [
        ("hermes", r"^'hermes' is a family, not a format: did you mean Tagged\('hermes'\)\?$"),
        ("deepseek_v3", r"did you mean Tagged\('deepseek_v3'\)\?$"),
        ("qwen3", r"^'qwen3' is a family's reasoning, not a format: did you mean Tagged\(reasoning_parser='qwen3'\)\?$"),
        (
            "chatml",
            r"^unknown format 'chatml': give 'chat', 'harmony', 'responses', 'text', or Tagged\(FAMILY\) with one of ",
        ),
        (None, r"^unknown format 'None'"),
        (Tagged("hermes", "qwen3", starts="after"), r"^unknown start 'after': choose one of thinking, between$"),
    ],
)
def test_the_error_for_an_unknown_format_suggests_known_ones(format_, message) -> None:
    with pytest.raises(ValueError, match=message):
        parser_for(format_, {})


OPEN = Open("message", {"phase": "final_answer"})


def test_all_text_is_the_answer():
    parser = PlainParser()
    assert parser.feed(Chunk([1], "")) == []
    assert parser.feed(Chunk([2], "It")) == [OPEN, "It"]
    assert parser.feed(Chunk([3], " is")) == [" is"]
    assert parser.end("stop", Usage(input_tokens=4)) == [Close(), EndTurn("stop", Usage(input_tokens=4, output_tokens=3))]


def test_a_truncated_answer_stays_open_and_another_turn_can_follow():
    parser = PlainParser()
    parser.feed(Chunk((), "It"))
    assert parser.end("length", Usage(output_tokens=9)) == [EndTurn("length", Usage(output_tokens=9))]
    assert parser.feed(Chunk((), "is")) == [OPEN, "is"]


def test_a_turn_without_text_has_no_item():
    assert PlainParser().end("stop", Usage()) == [EndTurn("stop", Usage())]


def test_log_probabilities_wait_for_their_text():
    first, second, third = ({"token": token, "logprob": -1.0} for token in ("\ufffd", "\ufffd", "x"))
    parser = PlainParser()
    assert parser.feed(Chunk([1], "", [first])) == []
    assert parser.feed(Chunk([2], "é", [second])) == [OPEN, Text("é", [first, second])]
    assert parser.feed(Chunk([3], "", [third])) == []
    assert parser.end("stop", Usage()) == [Text("", [third]), Close(), EndTurn("stop", Usage(output_tokens=3))]


@pytest.mark.parametrize(("format", "kind"), [("harmony", HarmonyParser), ("vllm", ChatParser), ("text", PlainParser)])
def test_each_format_has_its_parser(format, kind):  # noqa: A002 - the word of the recordings
    assert isinstance(parser_for(format, {}), kind)


FORMATS = ["chat", "harmony", "responses", "text", Tagged("hermes")]


@pytest.mark.parametrize(
    ("format", "chunk"),
    [
        ("chat", Chunk(text="hi")),
        ("chat", Chunk("hi")),
        ("harmony", Chunk("hi")),
        ("responses", Chunk(text="hi")),
        ("responses", Chunk("hi")),
        ("text", Chunk(delta={"content": "hi"})),
        ("text", Chunk([1])),
        (Tagged("hermes"), Chunk("hi")),
        (Tagged("hermes"), Chunk([1])),
        (Tagged("hermes"), Chunk(delta={"content": "hi"})),
    ],
    ids=str,
)
def test_a_chunk_without_the_field_of_the_format_is_refused(format, chunk):  # noqa: A002 - as above
    reads = {"chat": "delta", "harmony": "token_ids", "responses": "delta"}.get(format, "text")
    with pytest.raises(TypeError, match=f"^this parser reads a chunk's {reads}, but got Chunk"):
        parser_for(format, {}).feed(chunk)


@for_each("reason", ["tool_calls", "function_call"])
@for_each("format", FORMATS, ids=str)
def test_the_finish_reasons_for_calls_end_a_turn_like_stop(format, reason):  # noqa: A002 - as above
    assert parser_for(format, {}).end(reason, Usage()) == parser_for(format, {}).end("stop", Usage())


def test_the_repr_of_a_family_parser_has_its_state():
    parser = parser_for(Tagged("hermes"), {})
    parser.feed(Chunk(text="Hi <tool"))
    assert repr(parser) == "<FamilyParser in 'content'>"


CALLED = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("special", "ids", "kinds"),
    [
        ({}, [1, 2], ["function_call"]),
        ({"<tool_call>": 3, "<|im_end|>": 9}, [3, 2], ["function_call"]),
        ({"<tool_call>": 3, "<|im_end|>": 9}, [1, 2], ["message"]),
        ({"<tool_call>": 3}, [], ["function_call"]),
        ({"<|im_end|>": 9}, [1, 2], ["function_call"]),
    ],
)
def test_a_marker_that_is_a_special_token_must_be_that_token(special, ids, kinds) -> None:
    parser = parser_for(Tagged("hermes", special=special), {"tools": [{"type": "function", "name": "f"}]})
    deltas = [*parser.feed(Chunk(ids, CALLED)), *parser.end("stop", Usage())]
    assert [delta.kind for delta in deltas if isinstance(delta, Open)] == kinds


def test_formats_of_the_same_family_have_one_hash_and_differ_by_their_special_tokens() -> None:
    one, other = Tagged("hermes"), Tagged("hermes", special={"<tool_call>": 3})
    assert (hash(one), one == other) == (hash(other), False)
