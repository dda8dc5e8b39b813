"""The families: the same turn in every format, the cases, and the properties of any text."""

import json
import re
from pathlib import Path
from random import Random
from types import MappingProxyType

import orjson
import pytest
from attrs import evolve
from families import campaign, chat_templates, derived, law, properties, relations
from families.campaign import random_text
from families.cases import CASES
from families.derived import Derived, announces, shapes, special_tokens
from families.derived import cases as derived_cases
from families.properties import GROUPS, READ_AS, REQUEST, cut, deltas, holds_of, makes_a_legal_stream, read
from families.relations import fired_by, means
from families.written_calls import WRITTEN
from family_pictures import part_for
from for_each import for_each
from hypothesis import given, settings
from hypothesis import strategies as st
from recovery.notation import Item, answer, call, items, parse, reasoning, run, seen, tokens

from interlock.fsm.deltas import Close, EndTurn, Open, Text, Usage
from interlock.parsers import Chunk, FamilyParser, HarmonyParser, Routing, Tagged, parser_for, routing
from interlock.parsers.families import (
    DEFAULT_REASONING,
    DISTINCT,
    REASONINGS,
    SYNTAXES,
    ParserSettings,
    catalog,
    family,
    has_family,
    parameter_values,
    reference_encoders,
)
from interlock.parsers.families.catalog import DSML, GCML, PHI4_MINI
from interlock.parsers.families.effects import ActiveItem
from interlock.parsers.families.framing import Trigger
from interlock.parsers.families.reference_encoders import TEMPLATES, WrittenItem, encode
from interlock.parsers.hosted_tools import HostedCall

SPLITS = [(1,), (2,), (3,), (7,), (1 << 20,), (5, 1, 12, 2)]

TURN = [
    WrittenItem("reasoning", 'The user asks for "Rome".'),
    WrittenItem("message", "I look it up. "),
    WrittenItem("call", '{"s":"Rome & <b>\\n\\"x\\""}', "f"),
    WrittenItem("call", "{}", "g"),
    WrittenItem("call", '{"n":7,"s":"","o":{"a":[1,null]}}', "f"),
    WrittenItem("message", "Done."),
]
HARMONY = (
    '<|channel|>analysis<|message|>The user asks for "Rome".<|end|>'
    "<|start|>assistant<|channel|>final<|message|>I look it up. <|end|>"
    '<|start|>assistant<|channel|>commentary to=functions.f<|message|>{"s":"Rome & <b>\\n\\"x\\""}<|call|>'
    "<|start|>assistant<|channel|>commentary to=functions.g<|message|>{}<|call|>"
    '<|start|>assistant<|channel|>commentary to=functions.f<|message|>{"n":7,"s":"","o":{"a":[1,null]}}<|call|>'
    "<|start|>assistant<|channel|>final<|message|>Done.<|return|>"
)


def bare(read_items: list[Item]) -> list[tuple[str, str, object]]:
    """Items without their ids."""
    return [(item.kind, item.text, item.fields.get("name")) for item in read_items]


@for_each("sizes", SPLITS, ids=str)
@for_each("name", SYNTAXES)
def test_the_same_turn_gives_the_same_items_in_every_family(name: str, sizes: tuple[int, ...]):
    expected = [(item.kind, item.text, item.name or None) for item in TURN]
    names = {"reasoning": "reasoning", "message": "message", "call": "function_call"}
    assert bare(read(name, encode(TURN, name, "qwen3"), sizes)) == [
        (names[kind], text, called) for kind, text, called in expected
    ]


@for_each("name", SYNTAXES)
def test_calls_of_hosted_tools_are_read_in_every_family(name: str):
    request = {"tools": [{"type": "code_interpreter"}, {"type": "web_search"}]}
    for called, arguments, kind in [
        ("python", '{"code":"1"}', "code_interpreter_call"),
        ("web_search", '{"query":"1"}', "web_search_call"),
    ]:
        reader = parser_for(Tagged(name), request)
        text = encode([WrittenItem("call", arguments, called)], name)
        assert [item.kind for item in items(run(reader, [Chunk(text=text)]))] == [kind]


@for_each("name", SYNTAXES)
def test_the_arguments_of_a_hosted_call_have_the_types_of_its_function_in_every_family(name: str):
    properties = {"queries": {"type": "array", "items": {"type": "string"}}}
    function = {"name": "file_search", "parameters": {"type": "object", "properties": properties}}
    files = HostedCall("file_search_call", "files", ("file_search",), "files", function, "fields", {None: "search"})
    with pytest.MonkeyPatch.context() as patch:
        for module in (parameter_values, routing):
            patch.setattr(module, "HOSTED_CALLS", {files.kind: files})
        reader = parser_for(Tagged(name), {"tools": [{"type": "file_search"}]})
    text = encode([WrittenItem("call", '{"queries":["7"]}', "file_search")], name)
    (item,) = items(run(reader, [Chunk(text=text)]))
    assert (item.kind, item.fields["queries"]) == ("file_search_call", ["7"])


def test_harmony_gives_the_same_items_for_the_turn():
    routing = Routing.from_request(REQUEST)
    assert bare(seen(parse(tokens(HARMONY), routing=routing))) == bare(read("hermes", encode(TURN, "hermes", "qwen3")))


def advice(name):
    return f"do the markers of {name!r} in REASONINGS of catalog.py and in _THINKS of reference_encoders.py agree?"


@for_each("name", REASONINGS)
@for_each("thinking", [True, False])
def test_reasoning_is_read_whether_the_prompt_or_the_model_begins_it(name, thinking):
    turn = [TURN[0], WrittenItem("message", "Sunny.")]
    text = encode(turn, "hermes", name, thinking=thinking)
    for size in (1, 3, 1000):
        reader = FamilyParser(family(None, name), ParserSettings(), "thinking" if thinking else "between")
        chunks = [Chunk(text=text[at : at + size]) for at in range(0, len(text), size)]
        assert items(run(reader, chunks)) == [reasoning(TURN[0].text), answer("Sunny.")], advice(name)


@pytest.mark.parametrize("name", ["dots", "minicpm5", "minimax_m2", "step3"])
def test_a_line_break_before_a_quoted_key_is_none_of_the_key_wherever_a_chunk_ends(name):
    text = encode([WrittenItem("call", '{"s":"x","t":"y"}', "f")], name).replace('name="t"', 'name=\n"t"')
    for end in range(len(text) + 1):
        (call,) = items(deltas(name, [each for each in (text[:end], text[end:]) if each]))
        assert (call.kind, call.text) == ("function_call", '{"s":"x","t":"y"}'), end


@pytest.mark.long
@pytest.mark.parametrize("name", SYNTAXES)
def test_an_unfinished_call_ends_the_turn_as_cut(name):
    whole = encode([WrittenItem("call", '{"s":"Rome","n":51}', "f")], name)
    for end in range(len(whole)):
        output = deltas(name, ["</think>", whole[:end]])
        last = items(output)[-1:]
        if [item.kind for item in last] != ["function_call"]:
            assert output[-1] == EndTurn("stop", Usage())
        elif last[0].ending and family(name).omits_ends:
            assert orjson.loads(last[0].text) in ({}, {"s": "Rome"}, {"s": "Rome", "n": 51})
        elif last[0].ending:  # nothing but the marker can follow
            assert (last[0].text, output[-1]) == ('{"s":"Rome","n":51}', EndTurn("stop", Usage()))
        else:
            assert output[-1] == EndTurn("cut", Usage())
            with pytest.raises(orjson.JSONDecodeError):  # not even a client that looks at no status can execute it
                orjson.loads(last[0].text)
        makes_a_legal_stream(output)


def test_templates_and_syntaxes_have_the_same_names():
    assert TEMPLATES.keys() == SYNTAXES.keys()


@for_each("case", CASES, ids=lambda case: case.name)
def test_a_case_has_its_items_in_any_chunks(case):
    assert read(case.family, case.text, reason=case.reason) == list(case.items)
    for sizes in SPLITS:
        assert read(case.family, case.text, sizes, case.reason) == list(case.items)
    makes_a_legal_stream(deltas(case.family, cut(case.text, (3,)), case.reason))


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_truncated_case_has_the_same_items_in_any_chunks(case):
    for end in range(len(case.text)):
        assert read(case.family, case.text[:end], (3, 1), "length") == read(case.family, case.text[:end], reason="length")
    makes_a_legal_stream(deltas(case.family, cut(case.text[: len(case.text) // 2], (2,)), "length"))


@for_each("case", list(derived_cases()), ids=str)
def test_a_derived_case_has_its_items_in_any_chunks(case: Derived):
    for sizes in SPLITS:
        assert bare(read(case.family, case.text, sizes, case.reason)) == list(case.items)
    makes_a_legal_stream(deltas(case.family, cut(case.text, (3,)), case.reason))


@settings(deadline=None)
@given(st.sampled_from(sorted(GROUPS)), st.integers(0, 1 << 30), st.sampled_from(["stop", "length"]))
def test_the_properties_hold_for_random_text(group, seed, reason):
    rng = Random(seed)  # noqa: S311 - repeatable, not secret
    name = rng.choice(GROUPS[group])
    text = "".join(random_text(rng, name))
    for sizes in ([rng.randint(1, 9) for _ in range(3)], [1], [4]):
        holds_of(name, text, sizes, reason)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deepseek_v32", "</｜DSML｜ call>"),
        ("deepseek_v32", "</｜DSML｜parw0x>"),
        ("minimax_m3", '<tool_call><invoke name="f"><o><a><w1x>5'.replace("<", "]<]minimax[>[<")),
        ("minimax_m3", '<tool_call><invoke name="g"><a>x</a>'.replace("<", "]<]minimax[>[<") + "]<]mo "),
        ("minimax_m3", '<tool_call><invoke name="g"><a>x</a> So: <b>y</b> then \n</invoke>'.replace("<", "]<]minimax[>[<")),
        ("minimax_m3", '<tool_call><invoke name="g"><a>x</a></inw0x'.replace("<", "]<]minimax[>[<")),
        ("minimax_m3", '<tool_call><invoke name="f"><o><a></a><w1x'.replace("<", "]<]minimax[>[<")),
        ("qwen3_coder", "<tool_call><function=f>{w5x<function="),
        ("qwen3_coder", '<tool_call><function=f>{"o": {}}>\n</function>'),
        ("minimax_m2", '<minimax:tool_call><invoke name="f">{w5x</invoke>'),
        ("minicpm5", '<function name="f">{w5x</function>'),
        ("k2_horizon", "<ifm|tool_calls><ifm|tool_call>g<ifm|arg_key>w1x</ifm|arg_kw0x"),
        ("gigachat35", '<｜GCML｜tool_calls><｜GCML｜invoke name="f"><｜GCML｜parametw0x'),
    ],
)
def test_the_properties_hold_for_texts_that_campaigns_found(name, text):
    for sizes in ([1, 4, 5], [len(text) - 1, 1]):
        holds_of(name, text, sizes)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 4])
def test_the_properties_hold_for_the_random_texts_of_a_campaign(seed, capsys):
    assert campaign.main(2_000, seed) == 0, capsys.readouterr().out


def test_a_campaign_prints_its_seed_and_the_property_that_a_text_breaks(monkeypatch, capsys):
    def keeps_nothing(*_):
        raise AssertionError

    monkeypatch.setattr(properties, "keeps_all_words", keeps_nothing)
    monkeypatch.setattr(campaign, "GROUPS", {"keys": ["glm45"]})
    assert campaign.main(1, 7) == 1
    assert capsys.readouterr().out == (
        "seed 7, sequence 1, glm45: [], stop, in chunks of [19, 27, 10]\nkeeps_nothing: raise AssertionError: AssertionError()\n"
    )


def test_strings_stream_while_other_values_wait_for_their_end():
    reader = FamilyParser(family("qwen3_coder"), ParserSettings.from_request(REQUEST))
    assert reader.feed(Chunk(text="<tool_call>\n<function=f>\n<parameter=s>\n")) == [
        Open("function_call", {"name": "f"}),
        '{"s":"',
    ]
    assert reader.feed(Chunk(text='a "b"')) == ['a \\"b\\"']
    assert reader.feed(Chunk(text="\n")) == []
    assert reader.feed(Chunk(text="c\n</parameter>\n<parameter=n>\n")) == ['\\nc","n":']
    assert reader.feed(Chunk(text="12")) == []
    assert reader.feed(Chunk(text="3\n</parameter>")) == []
    assert reader.feed(Chunk(text="</function>")) == ["123}", Close()]


def test_pending_text_is_bounded():
    reader = FamilyParser(family("hermes"), ParserSettings.from_request(REQUEST))
    head = '<tool_call>{"arguments": {"s": "'
    read_items = [*reader.feed(Chunk(text=head))]
    for _ in range(2000):
        read_items += reader.feed(Chunk(text="abcd"))
        assert len(reader.pending) <= 4200
    assert items([*read_items, *reader.end("stop", Usage())]) == [answer(head + "abcd" * 2000)]


@for_each("name", SYNTAXES)
def test_a_call_with_an_overlong_name_becomes_a_message(name: str):
    text = encode([WrittenItem("call", "{}", "x" * 5000)], name)
    assert [item.kind for item in read(name, f"</think>{text}", (9,))] == ["message"]


@for_each("name", SYNTAXES)
@for_each("request_", [{"tools": []}, {**REQUEST, "tool_choice": "none"}], ids=["no tools", "none"])
def test_without_tools_the_markers_of_calls_are_text(name: str, request_):
    text = encode([WrittenItem("message", "So: "), WrittenItem("call", '{"s":"a"}', "f")], name)
    reader = FamilyParser(family(name), ParserSettings.from_request(request_))
    assert items(run(reader, [Chunk(text=text)])) == [answer(text)]


def test_without_a_tool_parser_the_markers_of_calls_are_text():
    text = encode([WrittenItem("call", "{}", "f")], "hermes")
    reader = FamilyParser(family(None, "qwen3"), ParserSettings.from_request(REQUEST))
    assert items(run(reader, [Chunk(text=f"</think>{text}")])) == [answer(text)]


@for_each("name", SYNTAXES)
def test_without_parallel_calls_a_turn_has_only_its_first_call(name: str):
    turn = [
        WrittenItem("call", '{"s":"a"}', "f"),
        WrittenItem("call", '{"n":1}', "g"),
        WrittenItem("message", "Then."),
        WrittenItem("call", "{}", "f"),
    ]
    reader = FamilyParser(family(name), ParserSettings.from_request({**REQUEST, "parallel_tool_calls": False}))
    for _ in range(2):
        assert bare(items(run(reader, [Chunk(text=encode(turn, name))]))) == [
            ("function_call", '{"s":"a"}', "f"),
            ("message", "Then.", None),
        ]


def test_excluded_reasoning_is_counted():
    body = {**REQUEST, "include_reasoning": False}
    reader = FamilyParser(family("hermes", "qwen3"), ParserSettings.from_request(body))
    deltas = run(reader, [Chunk([1], "Hm."), Chunk([2], ""), Chunk([3], "</think>"), Chunk([4], "Sunny.")])
    assert items(deltas) == [answer("Sunny.")]
    assert deltas[-1] == EndTurn("stop", Usage(output_tokens=4, reasoning_tokens=2))


def test_the_tokens_of_a_chunk_are_divided_where_reasoning_ends():
    reader = FamilyParser(family("hermes", "qwen3"), ParserSettings.from_request(REQUEST))
    [*_, end] = run(reader, [Chunk([1, 2, 3, 4], "abcdefgh</think>12345678")])
    assert end == EndTurn("stop", Usage(output_tokens=4, reasoning_tokens=1))
    [*_, end] = run(reader, [Chunk([1, 2], "abcd")], "length")
    assert end == EndTurn("length", Usage(output_tokens=2, reasoning_tokens=2))
    [*_, end] = run(reader, [Chunk([1], "a"), Chunk([2, 3], encode(TURN[2:3], "hermes"))])
    assert end == EndTurn("stop", Usage(output_tokens=3, reasoning_tokens=1))


def test_a_given_counter_counts_the_reasoning_tokens_of_the_whole_turn():
    settings = ParserSettings(count=lambda ids: sum(token < 5 for token in ids))
    reader = FamilyParser(family("hermes", "qwen3"), settings)
    for _ in range(2):
        [*_, end] = run(reader, [Chunk([1, 9], "a"), Chunk([2], "b")])
        assert end == EndTurn("stop", Usage(output_tokens=3, reasoning_tokens=2))


def test_the_usage_that_the_engine_reports_is_kept():
    reader = FamilyParser(family("hermes", "qwen3"), ParserSettings())
    usage = Usage(input_tokens=1, cached_tokens=2, output_tokens=3, reasoning_tokens=4, cache_write_tokens=5)
    reader.feed(Chunk([1], "a"))
    assert reader.end("stop", usage)[-1] == EndTurn("stop", usage)


def test_text_deltas_have_the_log_probabilities_of_their_tokens():
    def entry(text: str) -> dict[str, object]:
        return {"token": text, "logprob": -1.0}

    def chunk(token: int, text: str) -> Chunk:
        return Chunk([token], text, logprobs=[entry(text)])

    reader = FamilyParser(family("hermes", "qwen3"), ParserSettings.from_request(REQUEST))
    texts = ["Hm", "</think>", "\n\n", "It", " <", "b>", '<tool_call>{"name": "f"', "}</tool_call>"]
    deltas = run(reader, [chunk(at, text) for at, text in enumerate(texts)])
    assert deltas[:-1] == [
        Open("reasoning"),
        "Hm",
        Close(),
        Open("message", {"phase": "final_answer"}),
        Text("It", [entry("It")]),
        Text(" <b>", [entry(" <"), entry("b>")]),
        Close(),
        Open("function_call", {"name": "f"}),
        "{}",
        Close(),
    ]


SPECIAL = {7: "<tool_call>", 8: "</tool_call>", 9: "</think>"}


def test_a_marker_in_ordinary_tokens_is_text_if_ids_are_known():
    reader = FamilyParser(family("hermes", "qwen3"), ParserSettings(special=SPECIAL))
    body = '{"name": "f", "arguments": {}}'
    chunks = [
        Chunk([1, 2], "a</think>"),
        Chunk([3], "b\n"),
        Chunk([9], "</think>"),
        Chunk([4, 4, 4], f"<tool_call>{body}"),
        Chunk([7], "<tool_call>"),
        Chunk([4], body),
        Chunk([8], "</tool_call>"),
    ]
    expected = [reasoning("a</think>b"), answer(f"<tool_call>{body}"), call("f", "{}")]
    assert items(run(reader, chunks)) == expected
    assert items(run(reader, chunks)) == expected


MARKER_TOKEN_FAMILIES = [name for name in DISTINCT if announces(name) and SYNTAXES[name] not in {DSML, GCML, PHI4_MINI}]
"""The families whose markers may be special tokens."""


@for_each("name", MARKER_TOKEN_FAMILIES)
def test_a_forced_call_may_have_its_markers_in_ordinary_tokens(name):
    special = dict(enumerate(special_tokens(family(name, "qwen3")), 1000))
    thought, called = "So <think>.", encode([WrittenItem("call", '{"s":"a"}', "f")], name)
    chunks = [Chunk([ord(letter)], letter) for letter in f"{thought}{called}"]
    chunks.append(Chunk([token for token, text in special.items() if text == "</think>"], "</think>"))
    chunks += [Chunk([ord(letter)], letter) for letter in called]
    for choice, read_items in {
        "auto": [reasoning(f"{thought}{called}"), answer(called)],
        "required": [reasoning(f"{thought}{called}"), call("f", '{"s":"a"}')],
    }.items():
        settings = evolve(ParserSettings.from_request({**REQUEST, "tool_choice": choice}), special=special)
        hint = f"if no marker of {name!r} is a special token, leave it out of MARKER_TOKEN_FAMILIES"
        assert bare(items(run(FamilyParser(family(name, "qwen3"), settings), chunks))) == bare(read_items), hint


@pytest.mark.parametrize(
    ("choice", "forced"),
    [
        ("none", False),
        ({"type": "function", "name": "f"}, True),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, False),
        ({"type": "allowed_tools", "mode": "required", "tools": []}, True),
    ],
)
def test_the_tool_choice_decides_whether_a_call_is_forced(choice, forced):
    assert ParserSettings.from_request({**REQUEST, "tool_choice": choice}).forced is forced


def test_a_marker_in_ordinary_tokens_is_text_after_a_special_token_that_began_no_call():
    reader = FamilyParser(family("hermes"), ParserSettings(special=SPECIAL))
    chunks = [Chunk([7], "<tool_call>"), Chunk([7], "<tool_call>"), Chunk([1], '{"name": "f"}<tool_call>{"name": "g"}')]
    assert items(run(reader, chunks)) == [answer("<tool_call>"), call("f", '<tool_call>{"name": "g"}', "")]


def test_characters_that_spell_out_a_part_of_a_special_token_are_text_of_a_call_that_is_cut():
    reader = FamilyParser(family("hermes"), ParserSettings(special={7: "<tool_call>", 8: "</tool_call>"}))
    chunks = [Chunk([7], "<tool_call>"), Chunk([1], '{"name": "f", "arguments": {"n": 1</tool_c')]
    assert items(run(reader, chunks, "length")) == [call("f", '{"n": 1</tool_c', "")]


def test_a_special_token_that_is_read_again_is_still_a_marker():
    markers = [family("kimi_k2").markers[role][0] for role in (Trigger.SECTION, Trigger.INVOKE, Trigger.JSON, Trigger.UNCALL)]
    section, begin, arguments, end = markers
    special = dict(enumerate(markers))
    reader = FamilyParser(family("kimi_k2"), evolve(ParserSettings.from_request(REQUEST), special=special))
    chunks = [Chunk([token], special[token]) for token in (0, 1, 1)]
    chunks += [Chunk([9], "functions.f:0"), Chunk([2], arguments), Chunk([9], "{}"), Chunk([3], end)]
    call_of_f = Item("function_call", "{}", {"name": "f", "call_id": "functions.f:0"})
    assert items(run(reader, chunks)) == [answer(f"{section}{begin}"), call_of_f]


def test_without_token_ids_the_text_of_a_special_token_is_a_marker():
    reader = FamilyParser(family("hermes", "qwen3"), ParserSettings(special=SPECIAL))
    assert items(run(reader, [Chunk(text="a</think>b")])) == [reasoning("a"), answer("b")]


def test_a_call_becomes_an_item_of_the_declared_tool():
    body = {
        "tools": [
            {"type": "custom", "name": "patch"},
            {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "get"}]},
        ]
    }
    turn = [WrittenItem("call", '{"input":"a\\nb"}', "patch"), WrittenItem("call", '{"s":"a"}', "crm__get")]
    for name in SYNTAXES:
        read_items = items(run(FamilyParser(family(name), ParserSettings.from_request(body)), [Chunk(text=encode(turn, name))]))
        assert [(item.kind, item.text) for item in read_items] == [("custom_tool_call", "a\nb"), ("function_call", '{"s":"a"}')]
        assert read_items[1].fields["namespace"] == "crm"


def test_writing_without_an_open_item_gives_no_deltas():
    item = ActiveItem(ParserSettings())
    item.write("a")
    item.close()
    item.leave()
    assert item.take() == []
    with pytest.raises(AttributeError, match="no call is open"):
        item.call.set()


def test_parser_for_returns_the_parser_of_a_format():
    assert isinstance(parser_for(Tagged("hermes", "qwen3"), REQUEST), FamilyParser)
    assert isinstance(parser_for("harmony", REQUEST), HarmonyParser)


def test_an_unknown_family_is_refused():
    with pytest.raises(ValueError, match=r"unknown tool parser 'latin': choose one of .*\bqwen3_coder, "):
        family("latin")
    with pytest.raises(ValueError, match=r"unknown reasoning parser 'dreams': choose one of .*\bqwen3, "):
        family(None, "dreams")


def test_has_family_is_true_only_for_known_names():
    assert has_family("hermes", "qwen3")
    assert has_family("hermes", None)
    assert has_family("", "qwen3")
    assert not has_family(None, None)
    assert not has_family("hermes", "dreams")
    assert not has_family("latin", "qwen3")


def test_the_last_reasoning_mark_of_a_prompt_decides_where_a_turn_starts():
    qwen3 = family("hermes", "qwen3")
    marks = (["<think>", "<tool_call>"], ["<think>", "</think>", "<tool_call>"], ["<tool_call>"], [])
    assert [qwen3.start_after(each) for each in marks] == ["thinking", "between", None, None]
    assert family("hermes").start_after(["<think>"]) == "between"
    hy = family("hy_v3", "hy_v3")
    assert [hy.start_after([f"<{mark}think:6124c78e>"]) for mark in ("", "/")] == ["thinking", "between"]


def test_a_family_without_calls_reads_no_name() -> None:
    assert family(None, "qwen3").read_name("f") is None


# DeepSeek's markup as its models write it: each shape is read as the calls that it means, and no markup is text


SHAPES = list(shapes())


def test_there_are_at_least_455_shapes():
    assert len({shape.text for shape in SHAPES}) >= 455


@pytest.mark.parametrize("size", [1 << 20, pytest.param(5, marks=pytest.mark.long)])
@pytest.mark.parametrize(("tools", "reasoning"), [("deepseek_v4", "deepseek_v4"), ("deepseek_v32", "deepseek_r1")])
def test_every_shape_is_read_as_its_calls(tools, reasoning, size):
    for shape in SHAPES:
        reader = FamilyParser(family(tools, reasoning), READ_AS, "between")
        read = items(run(reader, [Chunk(text=text) for text in cut(shape.text, [size])]))
        calls = [(item.fields["name"], item.text) for item in read if item.kind == "function_call" and item.ending]
        assert shape.fits(calls, " ".join(item.text for item in read if item.kind != "function_call")), shape


# docs/library/families.md explains how to add a family: these tests add its example from the text of the page


PAGE = Path(__file__).parents[2] / "docs" / "library" / "families.md"
NAME = "parrot"


@pytest.fixture
def parrot(monkeypatch):
    """Add the family of the page's example."""
    text = PAGE.read_text("utf-8").partition("## Add a family")[2]
    syntax, row, template, _own_server = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    scope = {**vars(catalog), **vars(reference_encoders)}
    exec(syntax, scope)  # noqa: S102 - our own page
    rows, templates = (eval(f"{{{block}}}", scope) for block in (row, template))  # noqa: S307 - likewise
    syntaxes = MappingProxyType({**catalog.SYNTAXES, **{name: each for name, (each, _) in rows.items()}})
    for module in (catalog, derived, properties, relations):
        monkeypatch.setattr(module, "SYNTAXES", syntaxes)
    for module in (reference_encoders, derived):
        monkeypatch.setattr(module, "TEMPLATES", {**reference_encoders.TEMPLATES, **templates})
    assert list(rows) == list(templates) == [NAME]


@pytest.mark.usefixtures("parrot")
def test_the_family_of_the_page_passes_the_cases_of_every_family():
    cases = list(derived.cases_of(NAME))
    assert len(cases) > 10
    for case in cases:
        for sizes in ((1 << 20,), (1,)):
            read = properties.read(NAME, case.text, sizes, case.reason)
            assert [(item.kind, item.text, item.fields.get("name")) for item in read] == list(case.items), case


def test_the_error_for_a_family_without_a_template_names_the_table():
    with pytest.raises(LookupError, match=r"^'none' needs a template in TEMPLATES of reference_encoders.py: see 'Add a family'"):
        next(derived.cases_of("none"))


@pytest.mark.usefixtures("parrot")
def test_the_family_of_the_page_fires_exactly_its_rows():
    read_as = family(NAME, "qwen3")
    rows = {(edge.source, edge.trigger) for edge in part_for(read_as, NAME).edges}
    assert {(state, trigger) for state, trigger in fired_by(NAME) if means(state, trigger)} == rows
    family.cache_clear()


# A completed call is what the model wrote: observed turns, and turns of every family with one marker changed


@pytest.mark.parametrize("size", [1 << 20, 1, 2, 3, 7])
@pytest.mark.parametrize("written", WRITTEN, ids=str)
def test_an_observed_turn_gives_its_calls_and_its_message(written, size):
    parser = parser_for(Tagged(written.tool_parser, written.reasoning_parser, written.starts), written.body)
    read = items(run(parser, [Chunk(text=text) for text in cut(written.text, [size])]))
    calls = [(item.fields["name"], json.loads(item.text)) for item in read if item.kind == "function_call" and item.ending]
    assert calls == list(written.calls)
    assert "".join(item.text for item in read if item.kind == "message").strip() == written.message.strip()


def test_calls_of_a_later_version_of_a_family_stay_text():
    written = next(written for written in WRITTEN if written.tool_parser == "gigachat35")
    parser = parser_for(Tagged("gigachat3"), written.body)
    assert items(run(parser, [Chunk(text=written.text)])) == [answer(written.text)]


@pytest.mark.parametrize("name", DISTINCT)
def test_a_changed_marker_completes_no_wrong_call(name):
    for changed in law.turns(name, 60, 0):
        assert changed.wrong() == [], str(changed)


def test_the_law_reports_a_call_that_lacks_a_value():
    text = "<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n</function>\n</tool_call>"
    changed = law.Changed("qwen3_coder", "drop", text, [("f", {"s": "a", "n": 1})], ())
    assert changed.wrong() == [Item("function_call", '{"s":"a"}', {"name": "f"})]
    assert str(changed) == f"""qwen3_coder, drop: {text!r} gives f {{"s":"a"}}, not [('f', {{'s': 'a', 'n': 1}})]"""


def test_the_campaign_prints_how_many_turns_it_has_read(capsys):
    assert law.main(["20", "1", "hermes", "glm45"]) == 0
    assert capsys.readouterr().out == "hermes: 20 turns, envelope\nglm45: 20 turns, keys\n"


@pytest.mark.parametrize("name", SYNTAXES)
def test_twenty_turns_of_a_chat_template_come_back(name):
    for turn in chat_templates.turns(name, 20, 0):
        read = turn.read()
        hint = "" if read[0] == turn.means[0] else f"\n{advice(DEFAULT_REASONING[name])}"
        assert read == turn.means, f"{turn}{hint}"


def test_the_error_for_a_family_without_rules_of_its_template_names_the_table(monkeypatch):
    monkeypatch.delitem(chat_templates.RULES, "glm45")
    with pytest.raises(LookupError, match=r"^'glm45' needs rules in RULES of chat_templates.py: see 'Add a family'"):
        next(chat_templates.turns("glm45", 1, 0))


@pytest.mark.long
@pytest.mark.parametrize("name", SYNTAXES)
def test_a_thousand_turns_of_a_chat_template_come_back(name):
    for turn in chat_templates.turns(name, 1000, 1):
        assert turn.read() == turn.means, str(turn)


def test_a_turn_that_means_other_calls_does_not_come_back():
    turn = next(turn for turn in chat_templates.turns("hermes", 20, 0) if turn.calls[0][1])
    name, arguments = turn.calls[0]
    assert turn.read() == turn.means
    assert turn.read() != evolve(turn, calls=[(name, {**arguments, "other": 1}), *turn.calls[1:]]).means


def test_the_campaign_of_chat_templates_prints_the_turns_that_come_back(capsys):
    assert chat_templates.main(["5", "1", "hermes", "gemma4"]) == 0
    assert capsys.readouterr().out == "hermes: 5 of 5 turns come back\ngemma4: 5 of 5 turns come back\n"
