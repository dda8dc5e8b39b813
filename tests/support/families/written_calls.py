"""Turns that models and chat templates were seen to write, with their calls; docs/library/families.md states the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from attrs import field, frozen


@frozen
class Written:
    """A turn of a model, and the calls that it means.

    Args:
        name: What is unusual about it.
        tool_parser: A name for `--tool-call-parser`.
        reasoning_parser: A name for `--reasoning-parser`, or None.
        text: The turn, from inside the reasoning on if the prompt ends there.
        tools: The types of each tool's parameters.
        calls: The name and arguments of each call.
        message: The text beside the calls.
        request: Further fields of the request.
        starts: How the prompt ends; see `Tagged`.
    """

    name: str
    tool_parser: str
    reasoning_parser: str | None
    text: str
    tools: Mapping[str, Mapping[str, object]]
    calls: Sequence[tuple[str, Mapping[str, object]]]
    message: str = ""
    request: Mapping[str, object] = field(factory=dict[str, object])
    starts: Literal["thinking", "between"] | None = None

    @property
    def body(self) -> Mapping[str, object]:
        """The request."""
        tools = [
            {
                "type": "function",
                "name": name,
                "parameters": {"properties": {key: {"type": type_} for key, type_ in types.items()}},
            }
            for name, types in self.tools.items()
        ]
        return {"model": "m", "input": "?", "tools": tools, **self.request}

    def __str__(self) -> str:
        return f"{self.tool_parser}: {self.name}"


WRITTEN: Sequence[Written] = [
    Written(
        "a value without its end",
        "qwen3_coder",
        "qwen3",
        '</think><tool_call>\n<function=f>\n<parameter=body>\n{"a": true}\n</function>\n</tool_call>',
        {"f": {"body": "object"}},
        [("f", {"body": {"a": True}})],
    ),
    Written(
        "a value without its end",
        "qwen3_coder",
        "qwen3",
        (
            "</think><tool_call>\n<function=f>\n<parameter=s>\nls\n</function>\n</tool_call>\n<tool_call>\n"
            "<function=g>\n<parameter=s>\nb\n</parameter>\n</function>\n</tool_call>"
        ),
        {"f": {"s": "string"}, "g": {"s": "string"}},
        [("f", {"s": "ls"}), ("g", {"s": "b"})],
    ),
    Written(
        "a value without its end",
        "step3p5",
        "step3p5",
        ("</think><tool_call>\n<function=f>\n<parameter=s>\nls\n<parameter=t>\nx\n</parameter>\n</function>\n</tool_call>"),
        {"f": {"s": "string", "t": "string"}},
        [("f", {"s": "ls", "t": "x"})],
    ),
    Written(
        "a value with a misspelled end",
        "qwen3_coder",
        "qwen3",
        "</think><tool_call>\n<function=f>\n<parameter=s>\n東京\n</parameter/>\n</function>\n</tool_call>",
        {"f": {"s": "string"}},
        [("f", {"s": "東京"})],
    ),
    Written(
        "a value with a misspelled end",
        "qwen3_coder",
        "qwen3",
        "</think><tool_call>\n<function=f>\n<parameter=s>\n東京\n</parameter1>\n</function>\n</tool_call>",
        {"f": {"s": "string"}},
        [("f", {"s": "東京"})],
    ),
    Written(
        "a value with a misspelled end",
        "qwen3_coder",
        "qwen3",
        "</think><tool_call>\n<function=f>\n<parameter=s>\n東京\n</parameter\n</function>\n</tool_call>",
        {"f": {"s": "string"}},
        [("f", {"s": "東京"})],
    ),
    Written(
        "None for a nullable parameter",
        "qwen3_coder",
        "qwen3",
        (
            "</think><tool_call>\n<function=f>\n<parameter=id>\n42\n</parameter>\n<parameter=m>\nNone\n"
            "</parameter>\n</function>\n</tool_call>"
        ),
        {"f": {"id": "integer", "m": ["object", "null"]}},
        [("f", {"id": 42, "m": None})],
    ),
    Written(
        "None for a nullable parameter",
        "step3p5",
        "step3p5",
        "</think><tool_call>\n<function=f>\n<parameter=m>\nNone\n</parameter>\n</function>\n</tool_call>",
        {"f": {"m": ["string", "null"]}},
        [("f", {"m": None})],
    ),
    Written(
        "None for a nullable parameter",
        "seed_oss",
        "seed_oss",
        ("</seed:think><seed:tool_call>\n<function=f>\n<parameter=m>None</parameter>\n</function>\n</seed:tool_call>"),
        {"f": {"m": ["object", "null"]}},
        [("f", {"m": None})],
    ),
    Written(
        "Python's lists and dictionaries",
        "qwen3_coder",
        "qwen3",
        (
            "</think><tool_call>\n<function=f>\n<parameter=l>\n['a', 'b']\n</parameter>\n<parameter=o>\n"
            "{'k': True, 'n': None}\n</parameter>\n</function>\n</tool_call>"
        ),
        {"f": {"l": "array", "o": "object"}},
        [("f", {"l": ["a", "b"], "o": {"k": True, "n": None}})],
    ),
    Written(
        "Python's lists and dictionaries",
        "seed_oss",
        "seed_oss",
        ("</seed:think><seed:tool_call>\n<function=f>\n<parameter=l>['a', \"it's\"]</parameter>\n</function>\n</seed:tool_call>"),
        {"f": {"l": "array"}},
        [("f", {"l": ["a", "it's"]})],
    ),
    Written(
        "a hyphen in a name",
        "lfm2",
        "qwen3",
        "</think><|tool_call_start|>[find-city-id(cityName='rome')]<|tool_call_end|>",
        {"find-city-id": {"cityName": "string"}},
        [("find-city-id", {"cityName": "rome"})],
    ),
    Written(
        "a hyphen in a name",
        "pythonic",
        None,
        "[city-guide(query='x')]",
        {"city-guide": {"query": "string"}},
        [("city-guide", {"query": "x"})],
    ),
    Written(
        "a hyphen in a name",
        "llama4_pythonic",
        None,
        "<|python_start|>[city-guide(query='x')]<|python_end|>",
        {"city-guide": {"query": "string"}},
        [("city-guide", {"query": "x"})],
    ),
    Written(
        "a hyphen in a key",
        "lfm2",
        "qwen3",
        "</think><|tool_call_start|>[f(user-id='a')]<|tool_call_end|>",
        {"f": {"user-id": "string"}},
        [("f", {"user-id": "a"})],
    ),
    Written(
        "a colon in a name",
        "gemma4",
        "gemma4",
        '<|tool_call>call:mail-box:mail-box{action:<|"|>list_mails<|"|>}<tool_call|>',
        {"mail-box:mail-box": {"action": "string"}},
        [("mail-box:mail-box", {"action": "list_mails"})],
    ),
    Written(
        "a colon in a name",
        "gemma4",
        "gemma4",
        "<|tool_call>mcp.mail:list_mails{limit:5}<tool_call|>",
        {"mcp.mail:list_mails": {"limit": "integer"}},
        [("mcp.mail:list_mails", {"limit": 5})],
    ),
    Written(
        "parentheses for braces",
        "gemma4",
        "gemma4",
        '<|tool_call>call:f(s:<|"|>ls -a<|"|>)<tool_call|>',
        {"f": {"s": "string"}},
        [("f", {"s": "ls -a"})],
    ),
    Written(
        "ordinary quotes",
        "gemma4",
        "gemma4",
        '<|tool_call>call:f{s:"has } brace, too"}<tool_call|>',
        {"f": {"s": "string"}},
        [("f", {"s": "has } brace, too"})],
    ),
    Written(
        "ordinary quotes",
        "gemma4",
        "gemma4",
        "<|tool_call>call:f{s:'a, b: {c}',t:'x'}<tool_call|>",
        {"f": {"s": "string", "t": "string"}},
        [("f", {"s": "a, b: {c}", "t": "x"})],
    ),
    Written(
        "a space in a key",
        "gemma4",
        "gemma4",
        '<|tool_call>call:f{o:{a b:<|"|>x<|"|>}}<tool_call|>',
        {"f": {"o": "object"}},
        [("f", {"o": {"a b": "x"}})],
    ),
    Written(
        "a missing comma",
        "gemma4",
        "gemma4",
        '<|tool_call>call:f{s:<|"|>see<|"|>n:90}<tool_call|>',
        {"f": {"s": "string", "n": "integer"}},
        [("f", {"s": "see", "n": 90})],
    ),
    Written(
        "a missing brace",
        "gemma4",
        "gemma4",
        '<|tool_call>call:f{s:<|"|>ls<|"|><tool_call|>',
        {"f": {"s": "string"}},
        [("f", {"s": "ls"})],
    ),
    Written(
        "a stray quote",
        "gemma4",
        "gemma4",
        '<|tool_call>call:f{s:photos/rome.png<|"|>}<tool_call|>',
        {"f": {"s": "string"}},
        [("f", {"s": "photos/rome.png"})],
    ),
    Written(
        "a hyphen before a name",
        "gemma4",
        "gemma4",
        '<|tool_call>-f{s:<|"|>ls<|"|>}<tool_call|>',
        {"f": {"s": "string"}},
        [("f", {"s": "ls"})],
    ),
    Written(
        "a string of JSON for an object",
        "granite4",
        None,
        '<tool_call>{"name": "f", "arguments": "{\\n  \\"s\\": \\"max\\"\\n}"}</tool_call>',
        {"f": {"s": "string"}},
        [("f", {"s": "max"})],
    ),
    Written(
        "a string of JSON for an object",
        "hermes",
        None,
        '<tool_call>{"name": "f", "arguments": "{\\"s\\": \\"max\\"}"}</tool_call>',
        {"f": {"s": "string"}},
        [("f", {"s": "max"})],
    ),
    Written(
        "single quotes for an object",
        "hermes",
        None,
        """<tool_call>{"name": "f", "arguments": {'s': "it's", 'n': None,}}</tool_call>""",
        {"f": {"s": "string", "n": "integer"}},
        [("f", {"s": "it's", "n": None})],
    ),
    Written(
        "single quotes for an object",
        "mistral",
        None,
        "[TOOL_CALLS]f[ARGS]{'s': 'a', 'l': [True]}[TOOL_CALLS]f[ARGS]{\"s\": \"b\"}",
        {"f": {"s": "string"}},
        [("f", {"s": "a", "l": [True]}), ("f", {"s": "b"})],
    ),
    Written(
        "single quotes for an object, in place of keys",
        "qwen3_coder",
        "qwen3",
        "</think><tool_call>\n<function=f>\n{'s': 'x'}\n</function>\n</tool_call>",
        {"f": {"s": "string"}},
        [("f", {"s": "x"})],
    ),
    Written(
        "trailing commas",
        "hermes",
        None,
        """<tool_call>{"name": "f", "arguments": {"s": "a, ]", "l": [1, 2 ,], "o": {"b": true, }\n,\n}}</tool_call>Then.""",
        {"f": {"s": "string"}},
        [("f", {"s": "a, ]", "l": [1, 2], "o": {"b": True}})],
        message="Then.",
    ),
    Written(
        "a trailing comma",
        "kimi_k2",
        None,
        '<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"s": "a,",}<|tool_call_end|>',
        {"f": {"s": "string"}},
        [("f", {"s": "a,"})],
    ),
    Written(
        "a trailing comma, in place of keys",
        "qwen3_coder",
        "qwen3",
        '</think><tool_call>\n<function=f>\n{"s": "x",\n}\n</function>\n</tool_call>',
        {"f": {"s": "string"}},
        [("f", {"s": "x"})],
    ),
    Written(
        "escaped attributes",
        "kimi_k3",
        "kimi_k3",
        (
            "<|close|>think<|sep|><|open|>response<|sep|><|close|>response<|sep|><|open|>tools<|sep|><|"
            'open|>call tool="f" index="1"<|sep|><|open|>argument key="R&amp;D" type="string"<|sep|>v<|'
            'close|>argument<|sep|><|open|>argument key="x&quot;y" type="string"<|sep|>w<|close|>argume'
            "nt<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>"
        ),
        {"f": {"R&D": "string", 'x"y': "string"}},
        [("f", {"R&D": "v", 'x"y': "w"})],
    ),
    Written(
        "one element of JSON for all arguments",
        "kimi_k3",
        "kimi_k3",
        (
            "<|close|>think<|sep|><|open|>response<|sep|><|close|>response<|sep|><|open|>tools<|sep|><|"
            'open|>call tool="f" index="1"<|sep|><|open|>json type="object"<|sep|>{"n": 1}<|close|>json'
            "<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>"
        ),
        {"f": {"n": "integer"}},
        [("f", {"n": 1})],
    ),
    Written(
        "JSON in place of keys",
        "qwen3_coder",
        "nemotron_v3",
        '</think><tool_call>\n<function=f>\n{"s": "x"}\n</function>\n</tool_call>',
        {"f": {"s": "string"}},
        [("f", {"s": "x"})],
    ),
    Written(
        "an unknown end tag in a value",
        "deepseek_v4",
        "deepseek_v4",
        (
            '</think><｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n'
            '<｜DSML｜parameter name="s" string="true">Rome</｜DSML｜parmeter>\n'
            '<｜DSML｜parameter name="t" string="true">v</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
        ),
        {"f": {"s": "string", "t": "string"}},
        [("f", {"s": "Rome", "t": "v"})],
    ),
    Written(
        "an unknown end tag in a value",
        "deepseek_v4",
        "deepseek_v4",
        (
            '</think><｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n'
            '<｜DSML｜parameter name="s" string="true">Rome</｜DSML｜value>\n'
            '<｜DSML｜parameter name="t" string="true">v</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
        ),
        {"f": {"s": "string", "t": "string"}},
        [("f", {"s": "Rome", "t": "v"})],
    ),
    Written(
        "doubled bars",
        "deepseek_v4",
        "deepseek_v4",
        (
            '</think><｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n'
            '<｜DSML｜parameter name="s" string="true">x</｜｜DSML｜｜parameter>\n</｜｜DSML｜｜invoke>\n'
            "</｜｜DSML｜｜tool_calls>"
        ),
        {"f": {"s": "string"}},
        [("f", {"s": "x"})],
    ),
    Written(
        "an unknown attribute",
        "deepseek_v4",
        "deepseek_v4",
        (
            '</think><｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n'
            '<｜DSML｜parameter name="s" string="invalid">x</｜DSML｜parameter>\n'
            '<｜DSML｜parameter name="t" string="true">y</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
        ),
        {"f": {"s": "string", "t": "string"}},
        [("f", {"s": "x", "t": "y"})],
    ),
    Written(
        "an unknown attribute",
        "deepseek_v4",
        "deepseek_v4",
        (
            '</think><｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n'
            '<｜DSML｜parameter name="s" string="True">x</｜DSML｜parameter>\n'
            '<｜DSML｜parameter name="t" string="true">y</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
        ),
        {"f": {"s": "string", "t": "string"}},
        [("f", {"s": "x", "t": "y"})],
    ),
    Written(
        "a parameter after the end of its call",
        "deepseek_v4",
        "deepseek_v4",
        (
            '</think><｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n'
            '<｜DSML｜parameter name="s" string="true">x</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
            '<｜DSML｜parameter name="t" string="true">y</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
        ),
        {"f": {"s": "string", "t": "string"}},
        [("f", {"s": "x", "t": "y"})],
    ),
    Written(
        "an apostrophe in a key",
        "deepseek_v4",
        "deepseek_v4",
        (
            '</think><｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n'
            '<｜DSML｜parameter name="it\'s" string="true">x</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
            "</｜DSML｜tool_calls>"
        ),
        {"f": {"it's": "string"}},
        [("f", {"it's": "x"})],
    ),
    Written(
        "an integer with a fraction of zero",
        "qwen3_coder",
        "qwen3",
        "</think><tool_call>\n<function=f>\n<parameter=n>\n140.0\n</parameter>\n</function>\n</tool_call>",
        {"f": {"n": "integer"}},
        [("f", {"n": 140})],
    ),
    Written(
        "other names of types",
        "qwen3_coder",
        "qwen3",
        (
            "</think><tool_call>\n<function=f>\n<parameter=n>\n5\n</parameter>\n<parameter=x>\n0.5\n</parameter>\n"
            "<parameter=l>\n[1]\n</parameter>\n<parameter=b>\ntrue\n</parameter>\n</function>\n</tool_call>"
        ),
        {"f": {"n": "int", "x": "float", "l": "list", "b": "bool"}},
        [("f", {"n": 5, "x": 0.5, "l": [1], "b": True})],
    ),
    Written(
        "a call without its section",
        "kimi_k2",
        "kimi_k2",
        '</think><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"s": "x"}<|tool_call_end|>',
        {"f": {"s": "string"}},
        [("f", {"s": "x"})],
    ),
    Written(
        "a whole call without its section in reasoning",
        "kimi_k2",
        "kimi_k2",
        'So <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"s": "x"}<|tool_call_end|>',
        {"f": {"s": "string"}},
        [("f", {"s": "x"})],
    ),
    Written(
        "the beginning of a call without its section in reasoning",
        "kimi_k2",
        "kimi_k2",
        'So <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"s": "x"}</think>Hm.',
        {"f": {"s": "string"}},
        [],
        message="Hm.",
    ),
    Written(
        "a section in the singular",
        "kimi_k2",
        "kimi_k2",
        (
            "</think><|tool_call_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_be"
            'gin|>{"s": "x"}<|tool_call_end|><|tool_call_section_end|>'
        ),
        {"f": {"s": "string"}},
        [("f", {"s": "x"})],
    ),
    Written(
        "a name without its dot and colon",
        "kimi_k2",
        "kimi_k2",
        (
            "</think><|tool_calls_section_begin|><|tool_call_begin|>functionsexec5<|tool_call_argument_"
            'begin|>{"s": "x"}<|tool_call_end|><|tool_calls_section_end|>'
        ),
        {"exec": {"s": "string"}},
        [("exec", {"s": "x"})],
    ),
    Written(
        "the family's own end in a value",
        "qwen3_coder",
        "qwen3",
        (
            "</think><tool_call>\n<function=f>\n<parameter=s>\nends with </parameter> here.\n</parameter>\n"
            "</function>\n</tool_call>"
        ),
        {"f": {"s": "string"}},
        [("f", {"s": "ends with </parameter> here."})],
    ),
    Written(
        "white space before the last marker",
        "lfm2",
        "qwen3",
        "</think><|tool_call_start|>[f(s='a')]\n<|tool_call_end|>",
        {"f": {"s": "string"}},
        [("f", {"s": "a"})],
    ),
    Written(
        "white space before the last marker",
        "llama4_pythonic",
        None,
        "<|python_start|>[f(s='a')] <|python_end|>",
        {"f": {"s": "string"}},
        [("f", {"s": "a"})],
    ),
    Written(
        "another family's wrapper around a call",
        "minicpm5",
        "qwen3",
        '</think><tool_call><function name="f"><param name="s">a</param></function></tool_call>',
        {"f": {"s": "string"}},
        [("f", {"s": "a"})],
    ),
    Written(
        "a comma after the last call",
        "lfm2",
        "qwen3",
        "</think><|tool_call_start|>[f(s='a'),]<|tool_call_end|>",
        {"f": {"s": "string"}},
        [("f", {"s": "a"})],
    ),
    Written(
        "a bracket in a quoted key",
        "minimax_m2",
        "minimax_m2",
        ('</think><minimax:tool_call>\n<invoke name="f">\n<parameter name="a>b">x</parameter>\n</invoke>\n</minimax:tool_call>'),
        {"f": {"a>b": "string"}},
        [("f", {"a>b": "x"})],
    ),
    Written(
        "a bracket in a key between markers",
        "glm47",
        "glm47",
        "</think><tool_call>f<arg_key>a<b</arg_key><arg_value>x</arg_value></tool_call>",
        {"f": {"a<b": "string"}},
        [("f", {"a<b": "x"})],
    ),
    Written(
        "a key without its bracket",
        "qwen3_coder",
        "qwen3",
        "</think><tool_call>\n<function=f>\n<parameter=s\nls\n</parameter>\n</function>\n</tool_call>",
        {"f": {"s": "string"}},
        [("f", {"s": "ls"})],
    ),
    Written(
        "text between elements",
        "minimax_m3",
        "minimax_m3",
        (
            "]<]minimax[>[<tool_call>\n"
            ']<]minimax[>[<invoke name="f">]<]minimax[>[<a>1]<]minimax[>[</a> oops ]<]minimax[>[<b>2]<]'
            "minimax[>[</b>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>"
        ),
        {"f": {"a": "integer", "b": "integer"}},
        [("f", {"a": 1, "b": 2})],
        message=" oops ",
    ),
    Written(
        "raw line breaks and tabs in a string",
        "hermes",
        None,
        '<tool_call>{"name": "f", "arguments": {"s": "l1\nl2\tx"}}</tool_call>',
        {"f": {"s": "string"}},
        [("f", {"s": "l1\nl2\tx"})],
    ),
    Written(
        "a message before calls with other marks",
        "gigachat35",
        None,
        (
            'Ok.\n\n<｜GCML｜tool_calls>\n<｜GCML｜invoke name="f">\n'
            '<｜GCML｜parameter name="s" string="true">x</｜GCML｜parameter>\n</｜GCML｜invoke>\n</｜GCML｜tool_calls>'
        ),
        {"f": {"s": "string"}},
        [("f", {"s": "x"})],
        message="Ok.",
    ),
    Written(
        "a call inside of reasoning",
        "apertus",
        "apertus",
        '<|inner_prefix|>So.<|tools_prefix|>[{"f": {"s": "x"}}]<|tools_suffix|><|inner_suffix|>Hm.',
        {"f": {"s": "string"}},
        [("f", {"s": "x"})],
        message="Hm.",
    ),
    Written(
        "a message after reasoning, both marked by words",
        "apriel",
        "apriel",
        (
            "So.\n[BEGIN FINAL RESPONSE]\nLet me look.\n"
            '<tool_calls>[{"name": "f", "arguments": {"s": "x"}}]</tool_calls>\n[END FINAL RESPONSE]'
        ),
        {"f": {"s": "string"}},
        [("f", {"s": "x"})],
        message="Let me look.",
    ),
    Written(
        "reasoning that begins in the prompt",
        "cohere_command4",
        "cohere_command4",
        (
            'So.<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "f", "parameters": {"s": "x"}}\n]'
            "<|END_ACTION|>"
        ),
        {"f": {"s": "string"}},
        [("f", {"s": "x"})],
        starts="thinking",
    ),
    Written("thinking is off", "hermes", "qwen3", "391", {}, [], message="391", request={"reasoning": {"effort": "none"}}),
]
