"""A completed call is what the model wrote: turns that were seen, and every family's turns with their markers changed."""

import json

import pytest
from attrs import evolve
from families import chat_templates, law
from families.properties import cut
from families.written_calls import WRITTEN
from recovery.notation import Item, items, run

from interlock.parsers import Chunk, Tagged, parser_for
from interlock.parsers.families import DISTINCT, SYNTAXES


@pytest.mark.parametrize("size", [1 << 20, 1, 2, 3, 7])
@pytest.mark.parametrize("written", WRITTEN, ids=str)
def test_the_calls_of_a_turn_have_the_arguments_that_it_means(written, size):
    parser = parser_for(Tagged(written.tool_parser, written.reasoning_parser, written.starts), written.body)
    read = items(run(parser, [Chunk(text=text) for text in cut(written.text, [size])]))
    calls = [(item.fields["name"], json.loads(item.text)) for item in read if item.kind == "function_call" and item.ending]
    assert calls == list(written.calls)
    assert "".join(item.text for item in read if item.kind == "message").strip() == written.message.strip()


@pytest.mark.parametrize("name", DISTINCT)
def test_no_completed_call_has_less_or_other_than_the_model_wrote(name):
    assert [changed for changed in law.turns(name, 60, 0) if changed.wrong()] == []


def test_a_call_that_lacks_a_value_is_wrong():
    text = "<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n</function>\n</tool_call>"
    (wrong,) = law.Changed("qwen3_coder", "drop", text, [("f", {"s": "a", "n": 1})], ()).wrong()
    assert wrong == Item("function_call", '{"s":"a"}', {"name": "f"})


def test_the_campaign_tells_how_many_turns_it_has_read(capsys):
    assert law.main(["20", "1", "hermes", "glm45"]) == 0
    assert capsys.readouterr().out == "hermes: 20 turns, envelope\nglm45: 20 turns, keys\n"


@pytest.mark.parametrize("name", SYNTAXES)
def test_what_a_chat_template_writes_comes_back(name):
    assert [turn for turn in chat_templates.turns(name, 20, 0) if not turn.comes_back()] == []


@pytest.mark.long
@pytest.mark.parametrize("name", SYNTAXES)
def test_a_thousand_turns_of_a_chat_template_come_back(name):
    assert [turn for turn in chat_templates.turns(name, 1000, 1) if not turn.comes_back()] == []


def test_a_turn_that_means_other_calls_does_not_come_back():
    turn = next(turn for turn in chat_templates.turns("hermes", 20, 0) if turn.calls[0][1])
    name, arguments = turn.calls[0]
    assert turn.comes_back()
    assert not evolve(turn, calls=[(name, {**arguments, "other": 1}), *turn.calls[1:]]).comes_back()


def test_the_campaign_of_chat_templates_prints_the_turns_that_come_back(capsys):
    assert chat_templates.main(["5", "1", "hermes", "gemma4"]) == 0
    assert capsys.readouterr().out == "hermes: 5 of 5 turns come back\ngemma4: 5 of 5 turns come back\n"
