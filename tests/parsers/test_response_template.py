"""Checkpoints that say how they write: their `response_template` becomes a family, or a reason why it cannot."""

import json
import sys

import pytest
from each import each
from families.properties import REQUEST, cut
from hypothesis import given
from hypothesis import strategies as st
from recovery.notation import answer, call, items, reasoning, run

from interlock.fsm.deltas import Close, EndTurn, Open, Text, Usage
from interlock.parsers import ChatParser, Chunk, HarmonyParser, PlainParser, Tagged, parser_for
from interlock.parsers.families import FamilyParser, ParserSettings
from interlock.parsers.families.response_template import compile_template
from interlock.parsers.harmony_framing import HarmonyTrigger
from interlock.parsers.harmony_vocabulary import Characters, TokenText, vocabulary
from interlock.parsers.item_writers import InputDecoder

NAMED = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
ENVELOPE = {"type": "function", "function": "{content}"}
MEMBERS = {"type": "function", "function": {"name": "{content.name}", "arguments": "{content.parameters}"}}
GEMMA = {
    "thinking": {"open": "<|channel>thought\n", "close": "<channel|>"},
    "content": {"close": "<turn|>"},
    "tool_calls": {
        "open_pattern": r"<\|tool_call>call:(?P<name>\w+)(?=\{)",
        "close": "<tool_call|>",
        "content": "json",
        "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
        "transform": NAMED,
    },
}
QWEN = {
    "thinking": {"open_pattern": r"<think>\n?", "close_pattern": r"\n?</think>\s*"},
    "content": {"close": ["<|im_end|>"]},
    "tool_calls": {"open": "<tool_call>", "close": "</tool_call>", "content": "json", "transform": ENVELOPE},
}
CODER = {
    "thinking": {"close": "</think>"},
    "tool_calls": {
        "open_pattern": r"<tool_call>\s*<function=(?P<name>[^>\n]+)>\n",
        "close_pattern": r"</function>\s*</tool_call>",
        "content": "xml-inline",
        "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\n(?P<value>.*?)\n</parameter>"},
        "transform": NAMED,
    },
}
BARE = {
    "tool_calls": {
        "open_pattern": r"\[TOOL_CALLS\](?P<name>\w+)\[ARGS\]",
        "content": "json",
        "transform": NAMED,
    }
}
GLUED = {"tool_calls": {**BARE["tool_calls"], "open_pattern": r"\[TOOL_CALLS\](?P<name>\w+)"}}
PARAMETERS = {"tool_calls": {**QWEN["tool_calls"], "transform": MEMBERS}}
LENIENT = {
    "tool_calls": {
        **CODER["tool_calls"],
        "close": "</function>",
        "close_pattern": None,
        "open_pattern": r"<function=(?P<name>\w+)>",
        "content_args": {**CODER["tool_calls"]["content_args"], "value_parser": {"name": "json"}},
    }
}

TURNS = [
    (
        GEMMA,
        '<|channel>thought\nHm.<channel|>So.<|tool_call>call:f{s:<|"|>a"b<|"|>,n:5}<tool_call|><turn|>',
        [reasoning("Hm."), answer("So."), call("f", '{"s":"a\\"b","n":5}')],
    ),
    (
        QWEN,
        '<think>\nHm.\n</think>\n\nSo.<tool_call>\n{"name": "f", "arguments": {"s": "a"}}\n</tool_call><|im_end|>',
        [reasoning("Hm."), answer("So."), call("f", '{"s": "a"}')],
    ),
    (
        CODER,
        "</think>So.<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>",
        [answer("So."), call("f", '{"s":"a","n":5}')],
    ),
    (BARE, 'So.[TOOL_CALLS]f[ARGS]{"s": "a"}[TOOL_CALLS]g[ARGS]{}', [answer("So."), call("f", '{"s": "a"}'), call("g", "{}")]),
    (GLUED, 'So.[TOOL_CALLS]f{"s": "a"}', [answer("So."), call("f", '{"s": "a"}')]),
    (PARAMETERS, '<tool_call>{"name": "f", "parameters": {}}</tool_call>', [call("f", "{}")]),
    (LENIENT, "<function=g><parameter=a>\n5\n</parameter></function>", [call("g", '{"a":5}')]),
]


def compiled(fields, *, tools=True):
    return compile_template({"start_anchor": "x", "fields": fields}, tools=tools, reasoning="thinking" in fields)


@pytest.mark.parametrize(("fields", "text", "expected"), TURNS)
def test_a_template_is_read_as_it_says(fields, text, expected):
    for size in (1, 3, 1000):
        reader = FamilyParser(compiled(fields), ParserSettings.from_request(REQUEST), "between")
        assert items(run(reader, [Chunk(text=chunk) for chunk in cut(text, (size,))])) == expected


def test_reasoning_that_the_prompt_begins_is_where_a_turn_starts():
    assert compiled(CODER).starts == "thinking"
    assert compiled(GEMMA).starts == "between"


def test_what_no_parser_is_named_for_stays_in_the_text():
    read_as = compile_template({"fields": GEMMA}, tools=False, reasoning=True)
    assert read_as.style is None
    assert compile_template({"fields": GEMMA}, tools=True, reasoning=False).reasoning is None


def changed(fields, **changes):
    return {**fields, "tool_calls": {**fields["tool_calls"], **changes}}


@each(
    ("fields", "reason"),
    [
        ({**QWEN, "audio": {}}, "the field 'audio' is neither reasoning, nor a message, nor calls"),
        ({"content": {}}, "there is no field 'tool_calls'"),
        ({**QWEN, "thinking": {"open": "<think>"}}, "the reasoning has no end"),
        ({**QWEN, "thinking": {"open_pattern": r"<(?P<kind>\w+)>", "close": ">"}}, "has a name in it"),
        ({**QWEN, "thinking": {"open_pattern": r"<think>.*", "close": ">"}}, r"is not simple enough at '\.\*'"),
        ({**QWEN, "thinking": {"open_pattern": "a?" * 6, "close": ">"}}, "a pattern stands for too many texts"),
        (changed(QWEN, transform_each=True), "several calls are one value"),
        (changed(QWEN, close=None, close_pattern=r"</(?P<name>\w+)>"), "the end of a call has a name"),
        (changed(QWEN, content="kv-lines"), "calls are written as 'kv-lines', with '{content}' as their function"),
        (
            changed(QWEN, transform={"function": {"name": "{content.tool}"}}),
            "calls have {'name': '{content.tool}'} as their function",
        ),
        (changed(QWEN, open=None), "a call has no beginning"),
        (changed(GEMMA, content_args={"string_delims": [["<", ">"]]}), "the quotes of strings differ at both ends"),
        (changed(CODER, content_args={}), "a parameter is not a key with a value"),
        (changed(CODER, content_args={"tag_pattern": r"(?P<key>\w+)=(?P<value>.*)"}), "a name, a key or a value has no end"),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_the_reason(fields, reason):
    with pytest.raises(ValueError, match=reason.replace("{", r"\{").replace("(", r"\(") if "\\" not in reason else reason):
        compiled(fields)


# The format names its parser, and a wrong format is answered with the right one


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
    ],
)
def test_the_error_for_an_unknown_format_suggests_known_ones(format_, message) -> None:
    with pytest.raises(ValueError, match=message):
        parser_for(format_, {})


def decode(text: str, size: int, key: str = "input") -> str:
    decoder = InputDecoder(key)
    return "".join(decoder.feed(text[at : at + size]) for at in range(0, len(text), size)) + decoder.end()


@each("size", [1, 2, 3, 1000])
@each(
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


def test_the_string_can_have_another_name():
    assert decode('{"code": "1"}', 1, "code") == "1"


def test_an_object_waits_for_its_end_and_other_text_does_not():
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
        (Tagged("hermes"), Chunk("hi")),
        (Tagged("hermes"), Chunk(delta={"content": "hi"})),
    ],
    ids=str,
)
def test_a_chunk_without_what_the_parser_reads_is_refused(format, chunk):  # noqa: A002 - as above
    reads = {"chat": "delta", "harmony": "token_ids", "responses": "delta"}.get(format, "text")
    with pytest.raises(TypeError, match=f"^this parser reads a chunk's {reads}, but got Chunk"):
        parser_for(format, {}).feed(chunk)


@each("reason", ["tool_calls", "function_call"])
@each("format", FORMATS, ids=str)
def test_a_turn_ends_by_the_finish_reasons_of_chat_completions(format, reason):  # noqa: A002 - as above
    assert parser_for(format, {}).end(reason, Usage()) == parser_for(format, {}).end("stop", Usage())


def test_a_family_parser_shows_its_state():
    parser = parser_for(Tagged("hermes"), {})
    parser.feed(Chunk(text="Hi <tool"))
    assert repr(parser) == "<FamilyParser in 'content'>"


@each(
    ("token", "meaning"),
    [
        (0, "!"),
        (127, b"\xc3"),
        (200_006, HarmonyTrigger.START),
        (200_002, HarmonyTrigger.RETURN),
        (199_999, HarmonyTrigger.RETURN),
        (200_013, HarmonyTrigger.STRAY),
        (201_088, HarmonyTrigger.STRAY),
        (300_000, HarmonyTrigger.STRAY),
        (-1, HarmonyTrigger.STRAY),
        (2**40, HarmonyTrigger.STRAY),
    ],
)
def test_an_id_has_a_meaning(token: int, meaning: object):
    assert vocabulary().read(token) == meaning
    assert vocabulary().read(token) == meaning


def test_ids_without_a_meaning_are_not_remembered():
    before = len(vocabulary()._cache)
    vocabulary().read(12_345_678)
    assert len(vocabulary()._cache) == before


def test_there_is_one_vocabulary():
    assert vocabulary() is vocabulary()


def test_a_missing_vocabulary_is_an_error_that_names_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai_harmony", None)
    with pytest.raises(ModuleNotFoundError, match=r"^the format 'harmony' needs its vocabulary: pip install oss-harmony$"):
        vocabulary.__wrapped__()


def test_a_character_comes_with_all_of_its_tokens():
    characters = Characters()
    first, second = {"token": "a"}, {"token": "b"}
    assert not characters.feed(b"x\xe2\x82", first)
    assert characters.pending
    assert characters.feed(b"\xac", second)
    assert characters.take() == TokenText("x€", [first, second], 2)
    assert not characters.pending
