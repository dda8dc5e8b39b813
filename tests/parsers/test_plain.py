import pytest

from interlock.fsm.deltas import Close, EndTurn, Open, Text, Usage
from interlock.parsers import ChatParser, Chunk, HarmonyParser, PlainParser, parser_for

OPEN = Open("message", {"phase": "final_answer"})


def test_all_text_is_the_answer():
    parser = PlainParser()
    assert parser.feed(Chunk([1])) == []
    assert parser.feed(Chunk([2], "It")) == [OPEN, "It"]
    assert parser.feed(Chunk([3], " is")) == [" is"]
    assert parser.end("stop", Usage(input_tokens=4)) == [Close(), EndTurn("stop", Usage(input_tokens=4, output_tokens=3))]


def test_a_cut_answer_is_left_open_and_another_turn_can_follow():
    parser = PlainParser()
    parser.feed(Chunk((), "It"))
    assert parser.end("length", Usage(output_tokens=9)) == [EndTurn("length", Usage(output_tokens=9))]
    assert parser.feed(Chunk((), "is")) == [OPEN, "is"]


def test_a_turn_without_text_has_no_item():
    assert PlainParser().end("stop", Usage()) == [EndTurn("stop", Usage())]


def test_log_probabilities_wait_for_their_text():
    first, second, third = {"token": "\ufffd"}, {"token": "\ufffd"}, {"token": "x"}
    parser = PlainParser()
    assert parser.feed(Chunk([1], logprobs=[first])) == []
    assert parser.feed(Chunk([2], "é", [second])) == [OPEN, Text("é", [first, second])]
    assert parser.feed(Chunk([3], logprobs=[third])) == []
    assert parser.end("stop", Usage()) == [Text("", [third]), Close(), EndTurn("stop", Usage(output_tokens=3))]


@pytest.mark.parametrize(("format", "kind"), [("harmony", HarmonyParser), ("vllm", ChatParser), ("text", PlainParser)])
def test_there_is_a_parser_for_each_format(format, kind):  # noqa: A002 - the word of the recordings
    assert isinstance(parser_for(format, {}), kind)
