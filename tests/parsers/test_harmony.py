"""Harmony: framing, vocabulary, well-formed and malformed output, and the properties of every sequence of ids."""

import sys

import pytest
from attrs import evolve
from for_each import for_each
from recovery import campaign
from recovery.cases import CASES, REQUEST, Case
from recovery.notation import Item, answer, call, encoding, items, parse, preamble, python, reasoning, run, seen, tokens, words

from interlock.fsm.deltas import Close, EndTurn, Open, Text, Usage
from interlock.fsm.table import DeclarationError, Edge
from interlock.parsers import ChatParser, Chunk, HarmonyParser, ResponsesParser, Routing, Tagged, parser_for
from interlock.parsers.harmony import HARMONY, Characters, HarmonyEffect, HarmonyTrigger, TokenText, vocabulary

T, E = HarmonyTrigger, HarmonyEffect


def test_every_state_has_a_row_for_each_possible_trigger():
    outside = set(HarmonyTrigger) - {HarmonyTrigger.TEXT}
    inside = set(HarmonyTrigger) - {HarmonyTrigger.WORD, HarmonyTrigger.PROSE}
    assert {name: set(state.rows) for name, state in HARMONY.states.items()} == {
        "expect_start": outside,
        "header": outside,
        "content": inside,
    }


def test_a_missing_edge_is_refused():
    with pytest.raises(DeclarationError, match="table 'harmony': state 'expect_start' has no edge for channel"):
        evolve(HARMONY, edges=HARMONY.edges[1:])


def test_a_surplus_edge_is_refused():
    with pytest.raises(DeclarationError, match="table 'harmony': state 'content' has an edge for word"):
        evolve(HARMONY, edges=(*HARMONY.edges, Edge("content", HarmonyTrigger.WORD, "content")))


@pytest.mark.parametrize(
    ("edge", "message"),
    [
        (
            Edge("content", T.END, "expect_start", [E.CLOSE, E.CLOSE]),
            "end in state 'content' has the effect 'close' with no header",
        ),
        (
            Edge("header", T.CUT, "expect_start", [E.LEAVE]),
            "cut in state 'header' has the effect 'leave' with words of a header",
        ),
        (Edge("expect_start", T.END, "content"), "text in state 'content' has the effect 'append' with no header"),
        (Edge("header", T.CUT, "expect_start"), "'expect_start' is entered with no header and with words of a header"),
    ],
)
def test_an_effect_without_its_header_or_item_is_refused(edge, message):
    others = [each for each in HARMONY.edges if (each.source, each.trigger) != (edge.source, edge.trigger)]
    with pytest.raises(DeclarationError, match=message):
        evolve(HARMONY, edges=[*others, edge])


@for_each(
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
def test_an_id_is_read_as_text_or_bytes_or_a_trigger(token: int, meaning: object):
    assert vocabulary().read(token) == meaning
    assert vocabulary().read(token) == meaning


def test_unknown_ids_are_not_cached():
    before = len(vocabulary()._cache)
    vocabulary().read(12_345_678)
    assert len(vocabulary()._cache) == before


def test_the_vocabulary_is_loaded_once():
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


ROUTING = Routing.from_request(REQUEST)


@for_each("size", [1, 2, 7, 1000])
@for_each("case", CASES, ids=lambda case: case.name)
def test_malformed_output_is_recovered(case: Case, size: int):
    assert seen(parse(case.ids, routing=ROUTING, reason=case.reason, size=size)) == list(case.items)


WELL_FORMED = {
    "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>": [
        reasoning("a"),
        answer("b"),
    ],
    "<|channel|>commentary<|message|>I look.<|end|>": [preamble("I look.")],
    "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{}<|call|>": [call("get_weather", "{}")],
    " to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>": [call("get_weather", "{}")],
    " to=functions.get_weather<|channel|>commentary<|constrain|>json<|message|>{}<|call|>": [call("get_weather", "{}")],
    "<|channel|>analysis to=python code<|message|>1<|call|>": [python("1")],
    "<|start|>assistant<|channel|>final<|message|>b<|return|>": [answer("b")],
    "<|channel|>final<|message|>grüße 👩‍👩‍👧 漢字<|return|>": [answer("grüße 👩‍👩‍👧 漢字")],
    "<|channel|>final<|message|>b<|endoftext|>": [answer("b")],
    "<|channel|>final<|message|>b": [answer("b")],
}


@for_each("size", [1, 3, 1000])
@for_each(("written", "expected"), WELL_FORMED.items())
def test_well_formed_output_is_read(written: str, expected: list[Item], size: int):
    assert items(parse(tokens(written), routing=ROUTING, size=size)) == expected


def test_a_header_without_an_end_does_not_wait_forever():
    (item,) = items(parse(words("to=" + "x" * 1000), size=1))
    assert item.fields["name"] + item.text == "x" * 1000
    assert 200 < len(item.fields["name"]) <= 256


def test_a_chunk_of_text_is_one_plain_delta():
    parser = HarmonyParser(ROUTING)
    assert parser.feed(Chunk(tokens("<|channel|>final<|message|>"))) == [Open("message", {"phase": "final_answer"})]
    assert parser.feed(Chunk(tokens("It"))) == ["It"]
    assert parser.feed(Chunk(tokens(" is sunny"))) == [" is sunny"]
    assert parser.feed(Chunk([])) == []
    assert parser.feed(Chunk(tokens("."))) == ["."]
    assert parser.feed(Chunk(tokens("<|return|>"))) == [Close()]


def test_the_input_of_a_custom_tool_may_be_wrapped_in_json():
    routing = Routing.from_request({"tools": [{"type": "custom", "name": "patch"}]})
    for written in ('{"input": "a\\nb"}', "a\nb"):
        ids = tokens(f"<|channel|>commentary to=functions.patch<|message|>{written}<|call|>")
        for size in (1, 1000):
            assert items(parse(ids, routing=routing, size=size)) == [Item("custom_tool_call", "a\nb", {"name": "patch"})]


def test_a_browser_call_is_opened_with_its_action():
    ids = tokens('<|channel|>analysis to=browser.search<|message|>{"query":"Rome"}<|call|>')
    action = {"type": "search", "query": "Rome"}
    assert parse(ids)[:2] == [Open("web_search_call", {"action": action}, '{"query":"Rome"}'), Close()]


def test_a_parser_parses_one_turn_after_another():
    parser = HarmonyParser(ROUTING)
    cut = run(parser, [Chunk([*tokens("<|channel|>analysis<|message|>ab"), 127])], "length")
    header = run(parser, [Chunk(tokens("<|channel|>analysis to=pyth"))], "length")
    whole = run(parser, [Chunk(tokens("<|message|>b"))])
    assert items(cut) == [reasoning("ab\ufffd", "")]
    assert items(header) == []
    assert items(whole) == [answer("b")]
    assert [turn[-1] for turn in (cut, header, whole)] == [
        EndTurn("length", Usage(output_tokens=5, reasoning_tokens=2)),
        EndTurn("length", Usage(output_tokens=6)),
        EndTurn("stop", Usage(output_tokens=2)),
    ]


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ("<|channel|>analysis<|message|>a b c<|end|><|start|>assistant<|channel|>analysis<|message|>d<|end|>", 4),
        ("<|channel|>analysis<|message|>a<|message|> b<|reserved_200013|> c<|end|>", 3),
        ("<|channel|>analysis a b c", 3),
        ("<|channel|>analysis to=python<|message|>a b c<|call|>", 0),
        ("<|channel|>final<|message|>a b c<|return|>", 0),
        ("<|channel|>analysis<|message|>", 0),
    ],
)
def test_the_tokens_of_reasoning_text_are_counted(written: str, count: int):
    for size in (1, 2, 1000):
        assert parse(tokens(written), size=size)[-1].usage.reasoning_tokens == count


def test_the_engines_count_of_output_tokens_is_kept():
    parser = HarmonyParser(ROUTING)
    parser.feed(Chunk(tokens("<|message|>b")))
    usage = Usage(input_tokens=7, cached_tokens=3, output_tokens=99)
    assert parser.end("stop", usage)[-1] == EndTurn("stop", usage)


def entry(token: int) -> dict[str, object]:
    data = encoding().decode([token], errors="surrogateescape").encode(errors="surrogateescape")
    scored = {"token": data.decode(errors="replace"), "bytes": list(data), "logprob": -1.0}
    return {**scored, "top_logprobs": [scored]}


def scored(ids: list[int], size: int) -> list[object]:
    chunks = [
        Chunk(ids[at : at + size], logprobs=[entry(token) for token in ids[at : at + size]]) for at in range(0, len(ids), size)
    ]
    return run(HarmonyParser(ROUTING), chunks)


def joined_entries(deltas: list[object]) -> list[object]:
    return [each for delta in deltas if isinstance(delta, Text) for each in delta.logprobs]


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_the_tokens_of_a_message_rebuild_its_text(size: int):
    content = tokens("grüße 👩‍👩‍👧 漢字 ꙮ")
    ids = [
        *tokens("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>"),
        *content,
        *tokens("<|return|>"),
    ]
    deltas = scored(ids, size)
    entries = joined_entries(deltas)
    assert [item.text for item in items(deltas)] == ["a", "grüße 👩‍👩‍👧 漢字 ꙮ"]
    assert entries == [entry(token) for token in content]
    assert b"".join(bytes(each["bytes"]) for each in entries).decode() == "grüße 👩‍👩‍👧 漢字 ꙮ"


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_text_recovered_from_a_broken_header_keeps_its_tokens(size: int):
    deltas = scored(tokens("<|channel|>final It is sunny.<|return|>"), size)
    entries = joined_entries(deltas)
    assert items(deltas)[0].text == "It is sunny."
    assert [each["token"] for each in entries] == ["It", " is", " sunny", "."]
    assert entries[0] == {"token": "It", "bytes": [73, 116], "logprob": -1.0, "top_logprobs": []}


def test_chunks_with_and_without_log_probabilities_can_be_mixed():
    ids = tokens("<|channel|>final<|message|>It is")
    parser = HarmonyParser(ROUTING)
    parser.feed(Chunk(ids[:3]))
    assert parser.feed(Chunk(ids[3:], logprobs=[entry(ids[3])])) == [Text("It", [entry(ids[3])]), " is"]


STOP = {"stop": ["STOPHERE", "\nObservation:"]}
FINAL = "<|channel|>final<|message|>"


def stopped(written, size=1, reason="stop", request=STOP):
    """Return the items of a turn that the engine ends at a stop string, or behind it."""
    ids = tokens(written)
    chunks = [Chunk(ids[at : at + size]) for at in range(0, len(ids), size)]
    return items(run(HarmonyParser.from_request(request), chunks, reason))


@for_each("size", [1, 2, 3, 1000])
@for_each(
    ("written", "expected"),
    [
        (f"{FINAL}one two STOPHERE", [answer("one two ")]),
        (f"{FINAL}Thought: so\nObservation:", [answer("Thought: so")]),
        (f"{FINAL}STOPHERE", [answer("")]),
        (f"{FINAL}one STOPHE", [answer("one STOPHE")]),
        (f"{FINAL}one STOPHE<|return|>", [answer("one STOPHE")]),
        (f"{FINAL}one SSTOPHERE", [answer("one S")]),
        ("<|channel|>analysis<|message|>Hm STOPHERE", [reasoning("Hm ")]),
        (f"<|channel|>analysis<|message|>a STOP<|end|><|start|>assistant{FINAL}HERE b", [reasoning("a STOP"), answer("HERE b")]),
        (
            '<|channel|>commentary to=functions.f<|message|>{"a": "STOPHERE',
            [Item("function_call", '{"a": "', {"name": "f"}, "incomplete")],
        ),
    ],
)
def test_a_text_ends_before_the_stop_string_that_ends_the_turn(written, expected, size):
    assert [(item.kind, item.text) for item in stopped(written, size)] == [(item.kind, item.text) for item in expected]


def test_the_rest_of_the_last_output_after_a_stop_string_is_dropped():
    assert stopped(f"{FINAL}one two STOPHERE and", size=1000) == [answer("one two ")]


def test_a_stop_string_in_the_middle_of_the_output_is_text():
    assert stopped(f"{FINAL}a STOPHERE b") == [answer("a STOPHERE b")]
    assert stopped(f"{FINAL}a STOPHERE", reason="length")[0].text == "a STOPHERE"


@pytest.mark.parametrize(
    "request_body", [{}, {"stop": []}, {"stop": [""]}, {**STOP, "include_stop_str_in_output": True}, {"stop": 5}]
)
def test_without_stop_strings_no_text_waits(request_body):
    parser = HarmonyParser.from_request(request_body)
    parser.feed(Chunk(tokens(FINAL)))
    assert parser.feed(Chunk(tokens("STOP"))) == ["STOP"]


def test_text_that_cannot_be_a_stop_string_does_not_wait():
    parser = HarmonyParser.from_request({"stop": "STOPHERE"})
    parser.feed(Chunk(tokens(FINAL)))
    assert parser.feed(Chunk(tokens("one"))) == ["one"]
    assert parser.feed(Chunk(tokens(" STOP"))) == []
    assert parser.feed(Chunk(tokens(" now"))) == [" STOP now"]


def test_the_tokens_of_a_text_rebuild_it_up_to_its_stop_string():
    ids = tokens(f"{FINAL}one two")
    chunks = [Chunk([token], logprobs=[entry(token)]) for token in ids]
    deltas = run(HarmonyParser.from_request({"stop": "wo"}), chunks)
    assert [each["token"] for each in joined_entries(deltas)] == ["one", " t"]
    assert joined_entries(deltas)[1]["bytes"] == [32, 116]
    assert items(deltas)[0].text == "one t"


def test_text_without_tokens_is_refused_at_the_beginning_of_a_turn():
    parser = HarmonyParser(ROUTING)
    assert repr(parser) == "<HarmonyParser in 'expect_start'>"
    with pytest.raises(TypeError, match=r"^this parser reads a chunk's token_ids, but got Chunk\(token_ids=\(\), text='Hi'"):
        parser.feed(Chunk(text="Hi"))


# Parsers count their repairs of malformed output


def counted(parser, *chunks):
    for chunk in chunks:
        parser.feed(chunk)
    parser.end("stop", Usage())
    return dict(parser.recoveries)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ('<tool_call>{"name": "f", "arguments": {}}</tool_call>', []),
        ("<tool_call>no", ["refuted_call"]),
        ('<tool_call>{"name": "f", "arguments": {"a": 1', ["cut_call"]),
        ('<tool_call>{"name": "f", "arguments": {}} x</tool_call>', ["broken_arguments"]),
        ('<tool_call>{"name": "f", "arguments": {"a": [1,],}}</tool_call>', ["trailing_comma"]),
    ],
)
def test_a_family_counts_its_repairs_by_kind(text, kinds) -> None:
    recoveries = counted(parser_for(Tagged("hermes"), {"tools": [{"type": "function", "name": "f"}]}), Chunk(text=text))
    assert [kind for _, kind in recoveries] == kinds


def test_a_call_without_a_name_is_counted() -> None:
    call = {"tool_calls": [{"index": 0, "function": {"arguments": '{"a": 1}'}}]}
    assert counted(ChatParser(Routing()), Chunk(delta=call)) == {("chat", "nameless_call"): 1}


A_MESSAGE = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Hello"}]}


@pytest.mark.parametrize(
    ("events", "rules"),
    [
        ([{"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": "Hello"}], ["R7", "R7"]),
        ([{"type": "response.completed", "response": {"status": "completed", "output": [A_MESSAGE]}}], ["R13", "R9"]),
    ],
)
def test_repairs_of_a_service_are_counted_by_rule(events, rules) -> None:
    recoveries = counted(ResponsesParser(), *(Chunk(delta=event) for event in events))
    assert sorted(rule for (_, rule), count in recoveries.items() for _ in range(count)) == sorted(rules)


@pytest.mark.long
def test_the_properties_hold_for_random_turns(capsys):
    assert campaign.main(3_000, 1) == 0, capsys.readouterr().out
    assert capsys.readouterr().out.startswith("3000 sequences, seed 1, ")
