"""The `response_template` of a checkpoint becomes a family, or an error with the reason."""

import pytest
from families.properties import REQUEST, cut
from for_each import for_each
from recovery.notation import answer, call, items, reasoning, run

from interlock.parsers import Chunk
from interlock.parsers.families import FamilyParser, ParserSettings
from interlock.parsers.families.response_template import compile_template

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
def test_a_compiled_template_reads_its_turns(fields, text, expected):
    for size in (1, 3, 1000):
        reader = FamilyParser(compiled(fields), ParserSettings.from_request(REQUEST), "between")
        assert items(run(reader, [Chunk(text=chunk) for chunk in cut(text, (size,))])) == expected


def test_a_turn_starts_inside_reasoning_that_the_prompt_begins():
    assert compiled(CODER).starts == "thinking"
    assert compiled(GEMMA).starts == "between"


def test_only_the_requested_parsers_are_compiled():
    read_as = compile_template({"fields": GEMMA}, tools=False, reasoning=True)
    assert read_as.style is None
    assert compile_template({"fields": GEMMA}, tools=True, reasoning=False).reasoning is None


def changed(fields, **changes):
    return {**fields, "tool_calls": {**fields["tool_calls"], **changes}}


@for_each(
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
def test_an_unsupported_template_is_refused_with_the_reason(fields, reason):
    with pytest.raises(ValueError, match=reason.replace("{", r"\{").replace("(", r"\(") if "\\" not in reason else reason):
        compiled(fields)
