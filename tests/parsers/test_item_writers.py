"""The writers of items: which tokens spell a text, and how an input is decoded."""

import json

import pytest
from for_each import for_each
from hypothesis import given
from hypothesis import strategies as st

from interlock.events.items import ITEMS
from interlock.fsm.deltas import Close, Open
from interlock.parsers.item_writers import Alignment, InputDecoder, read_truncated, writer_for
from interlock.parsers.routing import Route

LE, END, IN, BARE, NONE = (
    {"token": "le"},
    {"token": "</think>"},
    {"token": "ignored", "bytes": list("é".encode())},
    {"token": "!\n"},
    {"token": None},
)


def aligned(*entries):
    alignment = Alignment()
    for entry in entries:
        alignment.add(entry)
    return alignment


def part(entry, text):
    return {**entry, "token": text, "bytes": list(text.encode()), "top_logprobs": []}


def test_a_text_has_the_tokens_that_spell_it():
    alignment = aligned(LE, END, IN, BARE)
    assert alignment.find("le") == ("le", [LE])
    assert alignment.find("é!\n") == ("é!\n", [IN, BARE])
    assert alignment.find("é") == ("é", ())


def test_a_text_waits_for_the_rest_of_its_token():
    alignment = aligned(LE, IN, BARE)
    assert alignment.find("l") == ("", [])
    assert alignment.find("eé!") == ("leé", [LE, IN])
    assert alignment.find("\n") == ("!\n", [BARE])
    assert alignment.flush() == ("", [])


def test_a_token_that_two_texts_share_is_divided_between_them():
    alignment = aligned(LE, BARE)
    assert alignment.find("le!") == ("le", [LE])
    assert alignment.flush() == ("!", [part(BARE, "!")])
    assert alignment.find("\n") == ("\n", [part(BARE, "\n")])


def test_a_text_that_begins_inside_a_token_has_a_part_of_it():
    alignment = aligned(BARE, LE)
    assert alignment.find("\nle") == ("\nle", [part(BARE, "\n"), LE])


def test_tokens_that_divide_a_character_stay_together():
    first, second = {"bytes": [0xC3]}, {"bytes": [0xA9, 0x21]}
    alignment = aligned(first, second)
    assert alignment.find("é") == ("", [])
    assert alignment.find("!") == ("é!", [first, second])


def test_a_text_that_no_tokens_spell_has_no_tokens():
    alignment = aligned(LE, NONE)
    assert alignment.find("l") == ("", [])
    assert alignment.find("other") == ("lother", ())
    assert alignment.find("le") == ("le", [LE])


@pytest.mark.parametrize("content", [[256], [-1], ["l", "e"], [None]])
def test_a_token_with_invalid_bytes_has_its_text(content):
    entry = {**LE, "bytes": content}
    assert aligned(entry).find("le") == ("le", [entry])


def test_tokens_that_fit_no_text_are_forgotten():
    alignment = aligned(*({"token": "x" * 1000} for _ in range(20)), LE)
    assert alignment.find("no such text") == ("no such text", ())
    assert len(alignment._bytes) < 20_000
    assert alignment.find("le") == ("le", [LE])


def decode(text: str, size: int, key: str = "input") -> str:
    decoder = InputDecoder(key)
    return "".join(decoder.feed(text[at : at + size]) for at in range(0, len(text), size)) + decoder.end()


@for_each("size", [1, 2, 3, 1000])
@for_each(
    ("written", "text"),
    [
        ('{"input": "a\\nb"}', "a\nb"),
        (' {\n"input" : "a\\u00e9\\ud83d\\ude00\\/\\"" } ', 'aé😀/"'),
        ('{"input": ""}', ""),
        ("", ""),
        ("bare text", "bare text"),
        ('{"inpu', '{"inpu'),
        ('{"other": "a"}', '{"other": "a"}'),
        ('{"input": 3}', '{"input": 3}'),
        ('{"input": "a\\x"}', "a\\x"),
        ('{"input": "a\\uzz"}', "a\\uzz"),
        ('{"input": "a\\n\\x\\t\\ud83d\\n\\u00e9\n\\n"}', "a\n\\x\t\ufffd\n\u00e9\n\n"),
        ('{"input": "a\\ud83d!"}', "a\ufffd!"),
        ('{"input": "a\\ud83d\\n"}', "a\ufffd\n"),
        ('{"input": "a\\ud83d\\u0041"}', "a\ufffdA"),
        ('{"input": "a\\ude00"}', "a\ufffd"),
        ('{"input": "a\\u00', "a\\u00"),
        ('{"input": "a', "a"),
        ('{"input": "a", "reason": "x"}', "a"),
        ('{"input": "a", "b": {"c": [1, "}"]}} ', "a"),
        ('{"reason": "x", "input": "a\\n\\u00e9"}', "a\né"),
        ('{"reason": "x", "input": 3}', '{"reason": "x", "input": 3}'),
        ('{"reason": "x", "input": "a"', '{"reason": "x", "input": "a"'),
        ('{"input": "a", "b"', 'a, "b"'),
        ('{"input": "a"} and more', "a} and more"),
        ("{ return 1 }", "{ return 1 }"),
    ],
)
def test_an_input_is_decoded(written: str, text: str, size: int):
    assert decode(written, size) == text


@for_each("size", [1, 2, 3, 1000])
@for_each(
    ("written", "text"),
    [
        ('{"code": "print(1', "print(1"),
        ('{"code": "print(1)\\n"}', "print(1)\n"),
        ('{"language": "python", "code": "print(1', "print(1"),
        ('{"language": "python", "co', '{"language": "python", "co'),
        ('{"co', ""),
        (" {", ""),
        ("", ""),
        (" ", " "),
        ("print(1", "print(1"),
    ],
)
def test_the_input_of_a_truncated_call_goes_as_far_as_its_text(written: str, text: str, size: int):
    decoder = InputDecoder("code")
    assert "".join(decoder.feed(written[at : at + size]) for at in range(0, len(written), size)) + decoder.cut() == text


@for_each(
    ("text", "found"),
    [
        ('{"query": "rain in Ber', {"query": "rain in Ber"}),
        ('{"query": "a\\nb\\u00', {"query": "a\nb"}),
        ('{"query": "a\\\\', {"query": "a\\"}),
        ('{"topn": 3, "query": "rain', {"topn": 3, "query": "rain"}),
        ('{"query": "rain", "top', {"query": "rain"}),
        ('{"query": "rain", "topn": ', {"query": "rain"}),
        ('{"query": "rain", ', {"query": "rain"}),
        ('{"a": {"b": [1, {"c": "]', {"a": {"b": [1, {"c": "]"}]}}),
        ('{"a": {"b": [1, 2], "c', {"a": {"b": [1, 2]}}),
        ('{"a": tr', {}),
        ('{"que', {}),
        ("{", {}),
        ("", {}),
        ("rain", {}),
        ('["rain', {}),
        ("}", {}),
    ],
)
def test_a_truncated_object_has_the_members_that_were_written(text, found):
    assert read_truncated(text) == found


@for_each(
    ("function", "arguments", "action"),
    [
        ("search", '{"query": "rain in Ber', {"type": "search", "query": "rain in Ber"}),
        ("search", '{"que', {"type": "search", "query": ""}),
        ("search", "", {"type": "search", "query": ""}),
        ("search", "rain in Ber", {"type": "search", "query": "rain in Ber"}),
        ("search", '{"query": 3, "x', {"type": "search", "query": '{"query": 3, "x'}),
        ("open", '{"id": "https://example.com/ra', {"type": "open_page", "url": "https://example.com/ra"}),
        ("find", '{"cursor": 2, "pattern": "ra', {"type": "find_in_page", "pattern": "ra", "url": "cursor:2"}),
        ("find", '{"cursor": 2', {"type": "find_in_page", "pattern": "", "url": "cursor:2"}),
        ("click", '{"id": 1', {"type": "search", "query": '{"id": 1'}),
    ],
)
def test_the_action_of_a_truncated_web_search_goes_as_far_as_its_text(function, arguments, action):
    writer = writer_for(Route("web_search_call", payload="browser", function=function))
    assert [*writer.write(arguments), *writer.leave()] == [Open("web_search_call", {"action": action}, arguments)]


@for_each("kind", [kind for kind, item in ITEMS.items() if item.text_path])
def test_a_text_in_json_has_the_name_of_its_field_in_the_item(kind):
    writer = writer_for(Route(kind, payload="input"))
    assert [*writer.write(json.dumps({ITEMS[kind].text_path[-1]: "1"})), *writer.close()] == ["1", Close()]


def test_only_a_json_object_waits_for_its_end():
    assert InputDecoder().feed('{"reason": "x"') == ""
    assert InputDecoder().feed("{ return 1 }") == "{ return 1 }"


@given(st.text(), st.integers(1, 9), st.booleans())
def test_any_text_survives_being_wrapped_into_json(text, size, ascii_only):
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert decode(json.dumps({"input": text}, ensure_ascii=ascii_only), size) in (text, expected)


@given(st.text(alphabet=st.sampled_from('{}"input: \\ud83e0a')), st.integers(1, 5))
def test_any_partition_gives_the_same_input(text, size):
    for written in (text, '{"input": "' + text):
        assert decode(written, size) == decode(written, 1000)
