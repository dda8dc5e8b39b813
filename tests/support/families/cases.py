"""The cases of the families: the output of a model, and its items. docs/library/families.md states the rules.

The numbers in comments are issues and pull requests of vLLM in which the input, or one like it, was lost or misread.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen
from recovery.notation import Item, answer, call, reasoning

from interlock.fsm.deltas import FinishReason

_D = "｜DSML｜"
_CODER = "<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n</function>\n</tool_call>"
_INSIDE = "<tool_call><function=f>\n</function>"
_PLAMO3 = (
    "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>f"
    "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>"
)
_GLM45 = "<tool_call>f<arg_key>s</arg_key><arg_value>a"
_KIMI_K3 = '<|open|>tools<|sep|><|open|>call tool="f" index="0"<|sep|>'
_DSML = '<｜DSML｜tool_calls><｜DSML｜invoke name="f"><｜DSML｜parameter name="s" string="true">a</｜DSML｜parameter>'
_HERMES = '<tool_call>\n{"name": "f", "arguments": {"s": "a"}}\n</tool_call>'
_GLM = "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a</arg_value>\n</tool_call>"
_KIMI = '<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"s": "a"}<|tool_call_end|>'
_V31 = '<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"s": "a"}<｜tool▁call▁end｜>'

_K3_ANSWER = "<|open|>response<|sep|>"
_K3_STRANGE = '<|open|>call tool="strange" index="1"<|sep|>'
_K3_CALL = (
    '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>'
    '<|open|>argument key="s" type="string"<|sep|>a<|close|>argument<|sep|><|close|>call<|sep|>'
)

_DSML_CALL = f'<{_D}invoke name="f"><{_D}parameter name="s" string="true">a</{_D}parameter></{_D}invoke>'


def kimi(index: int, text: str, ending: str = "Close") -> Item:
    return Item("function_call", text, {"name": "f", "call_id": f"functions.f:{index}"}, ending)


@frozen
class Case:
    """A turn of a model, from inside its reasoning (in the format of qwen3) on, and its items."""

    name: str
    family: str
    text: str
    items: Sequence[Item]
    reason: FinishReason = "stop"


CASES = [
    # reasoning and messages
    Case("reasoning and an answer", "qwen3_coder", "Hm.\n</think>\n\nSunny.", [reasoning("Hm."), answer("Sunny.")]),
    Case("the model begins the reasoning itself", "glm45", "<think>\nHm.</think>\nSunny.", [reasoning("Hm."), answer("Sunny.")]),
    Case("empty reasoning", "hermes", "\n\n</think>\n\nSunny.", [answer("Sunny.")]),
    Case("the end of reasoning written twice", "kimi_k2", "Hm.</think></think>Sunny.", [reasoning("Hm."), answer("Sunny.")]),
    Case("reasoning that never ends", "qwen3_coder", "Hm. <tool", [reasoning("Hm. <tool")]),  # 51914
    Case("reasoning that is cut", "glm45", "Hm.\n</thi", [reasoning("Hm.\n</thi", "")], "length"),
    Case("reasoning that a call ends", "qwen3_coder", f"Hm.{_CODER}", [reasoning("Hm."), call("f", '{"s":"a"}')]),  # 52645
    Case(
        "reasoning again after a call",
        "glm45",
        f"</think>{_GLM}<think>So.</think>Sunny.",
        [call("f", '{"s":"a"}'), reasoning("So."), answer("Sunny.")],
    ),
    Case("indented text after reasoning", "hermes", "Hm.</think>\n\n    x = 1", [reasoning("Hm."), answer("    x = 1")]),
    Case("a message of white space", "hermes", f"</think>\n\n{_HERMES}\n\n", [call("f", '{"s": "a"}')]),
    Case("reasoning that begins with white space", "hermes", "  Hm.</think>Sunny.", [reasoning("  Hm."), answer("Sunny.")]),
    Case("white space before the model begins it", "hermes", "  <think>So.</think>Sunny.", [reasoning("So."), answer("Sunny.")]),
    Case("reasoning of white space", "hermes", "\n  </think>Sunny.", [answer("Sunny.")]),
    *(
        Case(
            f"a call that is none in reasoning, after {before!r}",
            family,
            f"{before}{text}</think>Sunny.",
            [reasoning(f"{before}{text}"), answer("Sunny.")],
        )
        for before in ("", "Hm. ")
        for family, text in (
            ("qwen3_coder", "<tool_call>x"),
            ("qwen3_coder", "<tool_call>f>"),
            ("qwen3_coder", "<tool_call><function=f x"),
            ("glm45", "<tool_call>not a name"),
            ("kimi_k2", "<|tool_calls_section_begin|> f<|tool_call_argument_begin|>"),
        )
    ),
    *(
        Case(
            f"a call in reasoning after {before!r}",
            "glm45",
            f"{before}<tool_call>f</tool_call>",
            [*([reasoning(before)] if before else []), call("f", "{}")],
        )
        for before in ("", "Hm.")
    ),
    Case("white space before reasoning", "hermes", "</think>  <think>So.</think>Sunny.", [reasoning("So."), answer("Sunny.")]),
    Case("white space before the end of reasoning", "glm45", "</think>  </think>Sunny.", [answer("Sunny.")]),
    Case(
        "tags with a suffix",
        "hy_v3",
        "Hm.</think><tool_calls:6124c78e>\n<tool_call:6124c78e>f<tool_sep:6124c78e>\n<arg_key:6124c78e>s</arg_key:6124c78e>\n"
        "<arg_value:6124c78e>a</arg_value:6124c78e>\n</tool_call:6124c78e>\n</tool_calls:6124c78e>Then.",
        [reasoning("Hm."), call("f", '{"s":"a"}'), answer("Then.")],
    ),
    Case(
        "a key with a type",
        "k2_horizon",
        "</think><ifm|tool_calls><ifm|tool_call>f<ifm|arg_key>s</ifm|arg_key><ifm|arg_type>array[string]</ifm|arg_type>\n"
        "<ifm|arg_value>a</ifm|arg_value></ifm|tool_call></ifm|tool_calls>Then.",
        [call("f", '{"s":"a"}'), answer("Then.")],
    ),
    Case(
        "JSON directly after a name that keys usually follow",
        "kimi_k3",
        '</think><|open|>call tool="f"<|open|>json type="object"<|sep|>{"s": "a"}<|close|>json<|sep|><|close|>call<|sep|>',
        [call("f", '{"s": "a"}')],
    ),
    *(
        Case(
            f"JSON that begins after {before or 'no key'!r} and is empty",
            "kimi_k3",
            f"</think>{_KIMI_K3}{before}<|open|>json<|sep|>{end}<|close|>call<|sep|>Then.",
            [call("f", arguments), answer("Then.")],
        )
        for before, arguments in (
            ("", "{}"),
            ('<|open|>argument key="s" type="string"<|sep|>a<|close|>argument<|sep|>', '{"s":"a"}'),
        )
        for end in ("", " ", "<|close|>json<|sep|>")
    ),
    Case(
        "a value whose end is missing before its first text",
        "qwen3_coder",
        "</think><function=f>\n<parameter=s>\n<parameter=n>\n5\n</parameter>\n</function>Then.",
        [call("f", '{"s":"","n":5}'), answer("Then.")],
    ),
    # messages between markers
    Case(
        "a message between markers",
        "kimi_k3",
        "Hm.</think><|open|>response<|sep|>Sunny.<|close|>response<|sep|><|close|>message<|sep|>",
        [reasoning("Hm."), answer("Sunny.")],
    ),
    Case(
        "messages that begin in reasoning, in messages, in sections and after text there",
        "kimi_k3",
        f"Hm.{_K3_ANSWER}One.{_K3_ANSWER}Two.{_K3_CALL}{_K3_ANSWER}Three.</think>{_K3_CALL}Four.{_K3_ANSWER}Five.",
        [
            *(reasoning("Hm."), answer("One."), answer("Two."), call("f", '{"s":"a"}'), answer("Three.</think>")),
            *(call("f", '{"s":"a"}'), answer("Four."), answer("Five.")),
        ],
    ),
    *(
        Case(
            f"no section, and a tool that nobody declared, after {beginning!r}",
            "kimi_k3",
            f"{beginning}{_K3_STRANGE}",
            [*before, answer(_K3_STRANGE)],
        )
        for beginning, before in (
            (_K3_ANSWER, []),
            (f"Hm.{_K3_ANSWER}", [reasoning("Hm.")]),
            (f"</think>{_K3_ANSWER}", []),
            ("</think><|close|>response<|sep|>", []),
            (f"</think>{_K3_CALL}{_K3_ANSWER}", [call("f", '{"s":"a"}')]),
            (f"</think>{_K3_CALL}So.{_K3_ANSWER}", [call("f", '{"s":"a"}'), answer("So.")]),
        )
    ),
    Case(
        "no section, and a tool that nobody declared, after the end of a message",
        "kimi_k3",
        f"</think>So.<|close|>response<|sep|>{_K3_STRANGE}",
        [answer("So."), answer(_K3_STRANGE)],
    ),
    # literals
    *(
        Case(
            f"a literal that breaks, and then {after!r}",
            "gemma4",
            f"</think><|tool_call>call:f{{{before}{after}<tool_call|>Then.",
            [call("f", f"{{{json}{after}"), answer("Then.")],
        )
        for before, json, after in (
            ("n:[5", '"n":[5', "}"),
            ("n:[5", '"n":[5', '}"'),
            ("n:[5", '"n":[5', '}" '),
            ("", "", ', "arguments": 5}'),
        )
    ),
    Case("a literal that breaks before the end of the turn", "pythonic", "</think>[f(n=g(5))]", [call("f", '{"n":g(5))]', "")]),
    Case("a literal that the end of its list breaks", "pythonic", "</think>[f(s='a']So.", [call("f", '{"s":"a"]So.', "")]),
    Case("a literal and text", "pythonic", "</think>[f(s='a')] Then.", [call("f", '{"s":"a"}'), answer(" Then.")]),
    Case("a call of Python without keys", "pythonic", "</think>[f(5)] [g] [x=1]", [answer("[f(5)] [g] [x=1]")]),
    Case(
        "a literal that is not ended",
        "lfm2",
        "</think><|tool_call_start|>[f(s='a'<|tool_call_end|>Then.",
        [call("f", '{"s":"a"'), answer("Then.")],
    ),
    Case("a literal that is cut", "gemma4", '</think><|tool_call>call:f{s:<|"|>a<|', [call("f", '{"s":"a', "")], "length"),
    Case(
        "calls on lines of their own",
        "olmo3",
        "</think><function_calls>\nf(s='a')\ng()\n</function_calls>\nThen.",
        [call("f", '{"s":"a"}'), call("g", "{}"), answer("Then.")],
    ),
    Case(
        "a call over two lines",
        "olmo3",
        "</think><function_calls>f(\n)\n</function_calls>Then.",
        [call("f", "{}"), answer("Then.")],
    ),
    Case("a message that begins a turn", "kimi_k3", f"{_K3_ANSWER}Sunny.", [answer("Sunny.")]),
    Case(
        "ends of messages and of calls inside of a section",
        "kimi_k3",
        f"</think>{_K3_CALL}<|close|>call<|sep|><|close|>response<|sep|>So.<|close|>response<|sep|>{_K3_CALL}",
        [call("f", '{"s":"a"}'), answer("So."), call("f", '{"s":"a"}')],
    ),
    *(
        Case(
            f"{text!r} inside of a section, and then a tool that nobody declared",
            "kimi_k3",
            f"</think>{_K3_CALL}{text}{_K3_STRANGE}<|close|>call<|sep|>",
            [call("f", '{"s":"a"}'), *items, call("strange", "{}")],
        )
        for text, items in (
            ("<|close|>call<|sep|>", []),
            ("<|close|>response<|sep|>", []),
            ("So.<|close|>response<|sep|>", [answer("So.")]),
        )
    ),
    # markers in prose
    Case("a quoted marker", "hermes", "</think>Write `<tool_call>` first.", [answer("Write `<tool_call>` first.")]),  # 56658
    Case("a quoted marker in reasoning", "qwen3_coder", "Write <tool_call> and\n</think>", [reasoning("Write <tool_call> and")]),
    Case("a quoted end of reasoning in a message", "glm45", "</think>It is `</think>`.", [answer("It is `</think>`.")]),
    Case(
        "a quoted call in a message", "minimax_m2", '</think>Write `<invoke name="x">`.', [answer('Write `<invoke name="x">`.')]
    ),
    Case(
        "a name that is none", "glm45", "</think><tool_call>not a name</tool_call>", [answer("<tool_call>not a name</tool_call>")]
    ),
    Case(
        "a section without a call",
        "kimi_k2",
        "</think><|tool_calls_section_begin|>No.",
        [answer("<|tool_calls_section_begin|>No.")],
    ),
    Case(
        "a marker written twice", "qwen3_coder", f"</think><tool_call>{_CODER}", [answer("<tool_call>"), call("f", '{"s":"a"}')]
    ),
    Case("a marker that is cut", "hermes", "</think>Sunny. <tool_", [answer("Sunny. <tool_", "")], "length"),
    Case(
        "an envelope that is cut before its name", "hermes", '</think><tool_call>{"na', [answer('<tool_call>{"na', "")], "length"
    ),
    Case(
        "an envelope that is no call",
        "hermes",
        '</think><tool_call>{"x": 1}</tool_call>',
        [answer('<tool_call>{"x": 1}</tool_call>')],
    ),
    Case(
        "two envelopes that end before their braces, the second after its name",
        "hermes",
        '</think><tool_call>{"name": "f"<tool_call>{"arguments": {}, "name": "f"',
        [call("f", "{}"), call("f", "{}")],
    ),
    Case("an envelope with an empty name", "hermes", '</think><tool_call>{"name": ""}', [answer('<tool_call>{"name": ""}')]),
    Case(
        "a late name that is empty",
        "hermes",
        '</think><tool_call>{"arguments": {}, "name": ""}',
        [answer('<tool_call>{"arguments": {}, "name": ""}')],
    ),
    Case("arguments and no name", "hermes", '</think><tool_call>{"arguments": {}}', [answer('<tool_call>{"arguments": {}}')]),
    Case(
        "arguments that are no object and no name",
        "hermes",
        '</think><tool_call>{"arguments": 5}',
        [answer('<tool_call>{"arguments": 5}')],
    ),
    Case(
        "a marker inside of a call that was none",
        "hermes",
        f'</think><tool_call>{{"arguments": {{"x": "{_HERMES}',
        [answer('<tool_call>{"arguments": {"x": "'), call("f", '{"s": "a"}')],
    ),
    # text around calls: 56263, 56840, 47903, 57120
    Case(
        "text before, between and after calls",
        "hermes",
        f"</think>One.{_HERMES}Two.{_HERMES}Three.",
        [answer("One."), call("f", '{"s": "a"}'), answer("Two."), call("f", '{"s": "a"}'), answer("Three.")],
    ),
    Case(
        "text after a call inside of its section",
        "kimi_k2",
        f"</think><|tool_calls_section_begin|>{_KIMI}Two.{_KIMI}<|tool_calls_section_end|>Three.",
        [kimi(0, '{"s": "a"}'), answer("Two."), kimi(0, '{"s": "a"}'), answer("Three.")],
    ),
    Case(
        "text after the last call inside of a section",
        "deepseek_v31",
        f"</think><｜tool▁calls▁begin｜>{_V31}Two.<｜tool▁calls▁end｜>Three.",
        [call("f", '{"s": "a"}'), answer("Two."), answer("Three.")],
    ),
    Case(
        "text after a call without an end",
        "mistral",
        '</think>[TOOL_CALLS]f[ARGS]{"s": "a"} Then.',
        [call("f", '{"s": "a"}'), answer(" Then.")],
    ),  # 48975
    Case(
        "two calls and nothing between them",
        "mistral",
        '</think>[TOOL_CALLS]f{"s": "a"}[TOOL_CALLS]g[ARGS]{}',
        [call("f", '{"s": "a"}'), call("g", "{}")],
    ),
    Case(
        "an id between name and arguments",
        "mistral",
        '</think>[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{"s": "a"}',
        [Item("function_call", '{"s": "a"}', {"name": "f", "call_id": "abc123def"})],
    ),
    # wrappers that are not what they should be
    Case(
        "a section that was forgotten",
        "qwen3_coder",
        "</think>I look.\n<function=f>\n</function>\n</tool_call>",
        [answer("I look.\n"), call("f", "{}")],
    ),  # 48931, 36435
    Case(
        "a section that was forgotten, of a tool that nobody declared",
        "qwen3_coder",
        "</think>Say <function=name>.",
        [answer("Say <function=name>.")],
    ),
    Case(
        "a tool that nobody declared, in a section",
        "qwen3_coder",
        "</think><tool_call><function=strange>\n</function></tool_call>",
        [call("strange", "{}")],
    ),
    Case("a tool that nobody declared", "glm45", "</think><tool_call>strange</tool_call>", [call("strange", "{}")]),
    *(
        Case(
            f"no section after {before!r}, and a tool that nobody declared",
            "qwen3_coder",
            f"</think>{before}<function=strange>\n</function>",
            [answer(f"{visible}<function=strange>\n</function>")],
        )
        for before, visible in (
            ("", ""),
            ("\n", ""),
            ("</think>", ""),
            ("So", "So"),
            ("<tool_call>x", "<tool_call>x"),
            ("So <tool_call>x", "So <tool_call>x"),
            ("So <function=x>", "So <function=x>"),
            ("<function=x>", "<function=x>"),
        )
    ),
    Case(
        "no section, text, and a tool that nobody declared after a section",
        "qwen3_coder",
        f"</think>{_CODER}So <function=strange>\n</function>",
        [call("f", '{"s":"a"}'), answer("So <function=strange>\n</function>")],
    ),
    Case("no section", "qwen3_coder", "</think><function=f>\n</function>\n</tool_call>", [call("f", "{}")]),
    Case("a section that is not ended", "minimax_m2", '</think><minimax:tool_call><invoke name="f"></invoke>', [call("f", "{}")]),
    Case(
        "a call that is not ended before its section is",
        "qwen3_coder",
        "</think><tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n</tool_call>",
        [call("f", '{"s":"a"}')],
    ),
    Case(
        "a call that is not ended before the next",
        "glm45",
        f"</think><tool_call>f<arg_key>s</arg_key><arg_value>a</arg_value>{_GLM}",
        [call("f", '{"s":"a"}'), call("f", '{"s":"a"}')],
    ),
    Case(
        "a value that is not ended",
        "qwen3_coder",
        "</think><tool_call><function=f>\n<parameter=s>\na",
        [call("f", '{"s":"a', "")],
    ),
    Case(
        "a call that is not ended",
        "qwen3_coder",
        "</think><tool_call><function=f>\n<parameter=s>\na\n</parameter>\n",
        [call("f", '{"s":"a"', "")],
    ),
    Case("a call whose end is not whole", "hermes", f"</think>{_HERMES[:-1]}", [call("f", '{"s": "a"}')]),
    Case("a call that lacks its end alone", "hermes", f"</think>{_HERMES[:-12]}", [call("f", '{"s": "a"}')]),
    Case(
        "a call without arguments that is not ended",
        "deepseek_v31",
        f"</think><｜tool▁calls▁begin｜>{_V31.partition('{')[0]}",
        [call("f", "", "")],
    ),
    Case(
        "two calls in a section",
        "qwen3_coder",
        "</think><tool_call>\n<function=f>\n</function>\n<function=g>\n</function>\n</tool_call>",
        [call("f", "{}"), call("g", "{}")],
    ),
    Case(
        "a name in single quotes",
        "minimax_m2",
        "</think><minimax:tool_call><invoke name='f'></invoke></minimax:tool_call>",
        [call("f", "{}")],
    ),
    Case(
        "a name without a namespace",
        "kimi_k2",
        "</think><|tool_calls_section_begin|><|tool_call_begin|>f<|tool_call_argument_begin|>{}<|tool_call_end|>",
        [Item("function_call", "{}", {"name": "f", "call_id": "f"})],
    ),
    # what stands after a call, inside of its section
    Case(
        "the end of reasoning inside a section",
        "qwen3_coder",
        f"</think>{_INSIDE}\n</think></tool_call>Then.",
        [call("f", "{}"), answer("Then.")],
    ),
    *(
        Case(
            f"{beginning!r} after {before!r} inside of a section, and no call",
            "qwen3_coder",
            f"</think>{_INSIDE}{before}{beginning}</tool_call>Then.",
            [call("f", "{}"), answer(f"{before}{beginning}"), answer("Then.")],
        )
        for before in ("", "So. ")
        for beginning in ("<tool_call>x", "<tool_call> x", "<tool_call>\n<function=x y", "<function=x y", "<function=x y>")
    ),
    *(
        Case(
            f"a section in a section, after {before!r} and with {blank!r} before the call",
            "qwen3_coder",
            f"</think>{_INSIDE}{before}<tool_call>{blank}<function=strange>\n</function></tool_call>Then.",
            [call("f", "{}"), *([answer(before)] if before else []), call("strange", "{}"), answer("Then.")],
        )
        for before in ("", "So. ")
        for blank in ("", "\n")
    ),
    Case(
        "a call that is none after one whose family has no sections",
        "glm45",
        "</think><tool_call>f</tool_call><tool_call>x y</tool_call>",
        [call("f", "{}"), answer("<tool_call>x y</tool_call>")],
    ),
    Case(
        "no section, and a tool that nobody declared, after text inside of a section",
        "qwen3_coder",
        f"</think>{_INSIDE}So.</tool_call>Say <function=strange>.",
        [call("f", "{}"), answer("So."), answer("Say <function=strange>.")],
    ),
    # keys and values
    Case(
        "an empty value",
        "qwen3_coder",
        "</think><tool_call><function=f><parameter=s></parameter></function></tool_call>",
        [call("f", '{"s":""}')],
    ),
    Case(
        "a value of line breaks",
        "qwen3_coder",
        "</think><tool_call><function=f><parameter=s>\n\n\n</parameter></function>",
        [call("f", '{"s":"\\n"}')],
    ),
    Case(
        "a value as it was written",
        "minimax_m2",
        '</think><minimax:tool_call><invoke name="f"><parameter name="s">\n a&amp;<b>"\\\n</parameter></invoke>',
        [call("f", '{"s":"\\n a&amp;<b>\\"\\\\\\n"}')],
    ),
    Case(
        "markers in a value",
        "qwen3_coder",
        "</think><tool_call><function=f><parameter=s>\n</tool_call></function><parameter=x>\n</parameter></function></tool_call>",
        [call("f", '{"s":"</tool_call></function><parameter=x>"}')],
    ),
    Case(
        "a key written twice",
        "glm45",
        "</think><tool_call>f<arg_key>s</arg_key><arg_value>a</arg_value><arg_key>s</arg_key><arg_value>b</arg_value></tool_call>",
        [call("f", '{"s":"a","s":"b"}')],
    ),
    Case(
        "typed values",
        "qwen3_coder",
        '</think><tool_call><function=f><parameter=n>\n7\n</parameter><parameter=o>\n{"a": [1]}\n</parameter></function>',
        [call("f", '{"n":7,"o":{"a": [1]}}')],
    ),
    Case(
        "a value that does not convert",
        "qwen3_coder",
        "</think><tool_call><function=f><parameter=n>\nseven\n</parameter></function>",
        [call("f", '{"n":"seven"}')],
    ),
    Case(
        "types from the markup",
        "deepseek_v32",
        f'</think><{_D}function_calls><{_D}invoke name="g"><{_D}parameter name="a" string="true">5</{_D}parameter>'
        f'<{_D}parameter name="b" string="false">5</{_D}parameter><{_D}parameter name="c">[]</{_D}parameter></{_D}invoke>',
        [call("g", '{"a":"5","b":5,"c":[]}')],
    ),
    Case(
        "types by their names in the markup",
        "kimi_k3",
        '</think><|open|>tools<|sep|><|open|>call tool="g" index="1"<|sep|><|open|>argument key="a" type="string"<|sep|>5'
        '<|close|>argument<|sep|><|open|>argument key="b" type="number"<|sep|>5<|close|>argument<|sep|><|close|>call<|sep|>',
        [call("g", '{"a":"5","b":5}')],
    ),
    Case(
        "a section by its other name",
        "deepseek_v4",
        f'</think><{_D}toolcalls><{_D}invoke name="g"></{_D}invoke></{_D}toolcalls>',
        [call("g", "{}")],
    ),
    Case(
        "text that belongs to no value",
        "minimax_m2",
        '</think><minimax:tool_call><invoke name="f">\n Well, <parameter name="s">a</parameter> then</invoke>',
        [call("f", '{"s":"a"}'), answer(" Well,  then")],
    ),
    Case(
        "text on a line of its own after a value",
        "minimax_m2",
        '</think><minimax:tool_call><invoke name="f"><parameter name="s">a</parameter>\n  Well</invoke></minimax:tool_call>',
        [call("f", '{"s":"a"}'), answer("  Well")],
    ),
    Case(
        "a key that is none",
        "minimax_m2",
        '</think><minimax:tool_call><invoke name="f"><parameter name="">a</parameter></invoke>',
        [call("f", '<parameter name="">a</parameter>')],
    ),
    Case(
        "a key without a value",
        "glm45",
        "</think><tool_call>f<arg_key>s</arg_key>no</tool_call>",
        [call("f", "<arg_key>s</arg_key>no")],
    ),
    Case(
        "a key that a line break ends",
        "qwen3_coder",
        "</think><tool_call><function=f><parameter=s\n\n  x\n</function></tool_call>",
        [call("f", '{"s":"\\n  x"}')],
    ),
    Case(
        "a key whose end was forgotten",
        "glm45",
        "</think><tool_call>f<arg_key>s<arg_value>a</arg_value></tool_call>",
        [call("f", '{"s":"a"}')],
    ),
    Case(
        "text between a key and its value",
        "glm45",
        "</think><tool_call>f<arg_key>s</arg_key>\nx<arg_value>a</arg_value></tool_call>",
        [call("f", "<arg_key>s</arg_key>\nx<arg_value>a</arg_value>")],
    ),
    Case(
        "a value that is cut",
        "qwen3_coder",
        "</think><tool_call><function=f><parameter=s>\na\n</par",
        [call("f", '{"s":"a', "")],
        "length",
    ),
    Case(
        "a number that is cut",
        "qwen3_coder",
        "</think><tool_call><function=f><parameter=n>\n7",
        [call("f", '{"n":7', "")],
        "length",
    ),
    Case(
        "a call that is cut after text went astray",
        "glm45",
        "</think><tool_call>f<arg_key>s</arg_key><arg_value>a</arg_value>no",
        [call("f", '{"s":"a"no', "")],
        "length",
    ),
    Case(
        "a key that is cut",
        "glm45",
        "</think><tool_call>f<arg_key>s</arg_key><arg_value>a</arg_value><arg_key>t",
        [call("f", '{"s":"a"', "")],
        "length",
    ),
    Case(
        "white space and a marker after JSON in place of keys",
        "qwen3_coder",
        "</think><function=f>{}\n</think>",
        [call("f", "{}\n</think>", "")],
    ),
    # what DeepSeek's models write beside calls
    *(
        Case(
            f"{end!r} {where}",
            "deepseek_v4",
            f"{before}{end}{after}",
            items,
        )
        for end in (f"</{_D}tool_calls>", f"</{_D}invoke>", f"</{_D}parameter>")
        for where, before, after, items in (
            ("in reasoning", "Hm.", " So.</think>It is.", [reasoning("Hm."), reasoning(" So."), answer("It is.")]),
            ("before reasoning", "", "Hm.</think>It is.", [reasoning("Hm."), answer("It is.")]),
            ("before a message", "</think>", "Then. </think>", [answer("Then. </think>")]),
            ("after a message", "</think>So.", "</think>It is.", [answer("So."), answer("It is.")]),
            (
                "twice after a message",
                f"</think>So.{end}",
                f"<{_D}invoke x>",
                [answer("So."), answer(f"<{_D}invoke x>")],
            ),
        )
    ),
    *(
        Case(
            f"{orphan!r} {where}",
            "deepseek_v4",
            f"</think><{_D}calls>{before}{orphan}{after}",
            items,
        )
        for orphan in (f"</{_D}parameter>",)
        for where, before, after, items in (
            ("after a call", _DSML_CALL, f"{_DSML_CALL}Then.", [call("f", '{"s":"a"}'), call("f", '{"s":"a"}'), answer("Then.")]),
            (
                "after text",
                f"{_DSML_CALL}So.",
                f"x</{_D}calls>",
                [call("f", '{"s":"a"}'), answer("So."), answer("x")],
            ),
            ("between values", _DSML_CALL.partition("</")[0] + f"</{_D}parameter>", f"</{_D}invoke>", [call("f", '{"s":"a"}')]),
            (
                "in text between values",
                f'<{_D}invoke name="f"> Hm',
                f".</{_D}invoke>Then.",
                [call("f", "{}"), answer(" Hm."), answer("Then.")],
            ),
        )
    ),
    Case("a section that begins twice", "deepseek_v4", f"</think><{_D}calls>\n<{_D}calls>{_DSML_CALL}", [call("f", '{"s":"a"}')]),
    Case(
        "a section that begins twice in reasoning, and a tool that nobody declared",
        "deepseek_v4",
        f"Hm.<{_D}calls><{_D}calls><{_D}invoke name=strange></{_D}invoke>",
        [reasoning("Hm."), call("strange", "{}")],
    ),
    Case(
        "a section that begins twice after a call",
        "deepseek_v4",
        f"</think><{_D}calls>{_DSML_CALL}<{_D}calls><{_D}calls><{_D}invoke name=strange></{_D}invoke>Then.",
        [call("f", '{"s":"a"}'), call("strange", "{}"), answer("Then.")],
    ),
    Case(
        "no section in reasoning, and a tool that nobody declared",
        "deepseek_v4",
        f"Hm.<{_D}invoke name=strange> So.</think>It is.",
        [reasoning(f"Hm.<{_D}invoke name=strange> So."), answer("It is.")],
    ),
    Case(
        "no section in reasoning",
        "deepseek_v4",
        f"Hm.{_DSML_CALL}It is.",
        [reasoning("Hm."), call("f", '{"s":"a"}'), answer("It is.")],
    ),
    Case(
        "a value that the next key ends",
        "deepseek_v4",
        f'</think><{_D}invoke name="f"><{_D}parameter name="s" string="true">a<{_D}parameter name="n">7</{_D}invoke>',
        [call("f", '{"s":"a","n":7}')],
    ),
    Case(
        "no section at the beginning of reasoning",
        "deepseek_v4",
        f"{_DSML_CALL}It is.",
        [call("f", '{"s":"a"}'), answer("It is.")],
    ),
    *(
        Case(f"a call that is none, {text!r}, at the beginning of reasoning", "deepseek_v4", text, [reasoning(text)])
        for text in (f"<{_D}invoke", f'<{_D}invoke name="strange">')
    ),
    Case("a stray end, and then a message", "deepseek_v4", f"</think></{_D}calls>So.", [answer("So.")]),
    *(
        Case(
            f"a stray end after {before!r}, and then a tool that nobody declared",
            "deepseek_v4",
            f'</think>{before}</{_D}calls><{_D}invoke name="strange">',
            [*items, answer(f'<{_D}invoke name="strange">')],
        )
        for before, items in (("", []), ("So.", [answer("So.")]))
    ),
    *(
        Case(
            f"{text!r}, a stray end and a tool that nobody declared after a call",
            "deepseek_v4",
            f'</think><{_D}calls>{_DSML_CALL}{text}</{_D}parameter><{_D}invoke name="strange"></{_D}invoke>',
            [call("f", '{"s":"a"}'), *items, call("strange", "{}")],
        )
        for text, items in (("", []), ("So.", [answer("So.")]))
    ),
    Case(
        "a section that begins twice without a call, and then a tool that nobody declared",
        "deepseek_v4",
        f'</think><{_D}calls><{_D}calls>x<{_D}invoke name="strange">',
        [answer(f'<{_D}calls><{_D}calls>x<{_D}invoke name="strange">')],
    ),
    Case(
        "a section that begins twice after a call, text, and a tool that nobody declared",
        "deepseek_v4",
        f'</think><{_D}calls>{_DSML_CALL}<{_D}calls><{_D}calls>x<{_D}invoke name="strange"></{_D}invoke>',
        [call("f", '{"s":"a"}'), answer(f"<{_D}calls><{_D}calls>x"), call("strange", "{}")],
    ),
    Case(
        "white space and text after a stray end between values",
        "deepseek_v4",
        f'</think><{_D}invoke name="f"></{_D}parameter>\n\nSo.</{_D}invoke>',
        [call("f", "{}"), answer("So.")],
    ),
    Case(
        "white space and text after text and a stray end between values",
        "deepseek_v4",
        f'</think><{_D}invoke name="f">So</{_D}parameter>\n\n.</{_D}invoke>',
        [call("f", "{}"), answer("So\n\n.")],
    ),
    Case(
        "white space and text in a call without its section in reasoning",
        "deepseek_v4",
        f'Hm.<{_D}invoke name="f">\n\nSo.</{_D}invoke>',
        [reasoning("Hm."), call("f", "{}"), answer("So.")],
    ),
    *(
        Case(
            f"a section of Python without a call after {before!r}",
            "olmo3",
            f"</think>{before}<function_calls>\n</function_calls>",
            [answer(f"{before}<function_calls>\n</function_calls>")],
        )
        for before in ("", "So.")
    ),
    # JSON in lists and without markers
    Case(
        "an object in a section in reasoning",
        "llama3_json",
        'Hm.<|python_tag|>{"name": "f", "parameters": {"s": 1}}',
        [reasoning("Hm."), call("f", '{"s": 1}')],
    ),
    *(
        Case(
            f"a section of Python without a call after a call with {before!r}",
            "olmo3",
            f"</think><function_calls>f(s={before}<function_calls>\n</function_calls>",
            [call("f", arguments), answer(f"{text}<function_calls>")],
        )
        for before, arguments, text in (
            ("", '{"s":', ""),
            (")", '{"s":)', ""),
            ("'a')", '{"s":"a"}', ""),
            ("'a')So.", '{"s":"a"}', "So."),
        )
    ),
    Case(
        "the end of a call twice after a name in an envelope",
        "hermes",
        '</think><tool_call>{"name": "f"</tool_call></tool_call>',
        [call("f", "{}")],
    ),
    Case(
        "a section after a name in an object",
        "llama3_json",
        '</think><|python_tag|>{"name": "f" <|python_tag|>',
        [call("f", " "), answer("<|python_tag|>")],
    ),
    Case("a quote after an envelope", "hermes", '</think><tool_call>{"name": "f"}"', [call("f", '"', "")]),
    Case(
        "an object in a section after a call, and a tool that nobody declared",
        "llama3_json",
        '</think>{"name": "f", "parameters": {}}<|python_tag|>{"name": "strange", "parameters": {}}',
        [call("f", "{}"), call("strange", "{}")],
    ),
    Case(
        "an object in text after a call, and a tool that nobody declared",
        "llama3_json",
        '</think>{"name": "f", "parameters": {}}So.{"name": "strange", "parameters": {}}',
        [call("f", "{}"), answer('So.{"name": "strange", "parameters": {}}')],
    ),
    *(
        Case(
            f"{text!r} after a call in a list, and then the end of its section",
            "jamba",
            f'</think><tool_calls>[{{"name": "f", "arguments": {{}}}}{text}</tool_calls>Then.',
            [call("f", "{}"), answer(text), answer("Then.")],
        )
        for text in (", x", "<tool_calls>[x")
    ),
    *(
        Case(
            f"a list, and then {after!r}",
            "granite",
            f'</think><|tool_call|>[{{"name": "f", "arguments": {{"s": "a"}}{after}',
            [call("f", f'{{"s": "a"}}{more}'), *items],
        )
        for after, more, items in (
            ("}]Then.", "", [answer("Then.")]),
            ("]Then.", "", [answer("Then.")]),
            ('], {"name": "strange"}', "", [answer(', {"name": "strange"}')]),
            ('}], {"name": "strange"}', "", [answer(', {"name": "strange"}')]),
            ('}<|tool_call|>[{"name": "strange"}]', "", [call("strange", "{}")]),
            ("}, So.", "", [answer(", So.")]),
            ("} So.", "", [answer(" So.")]),
            ('}, {"name": "strange"}] [x', "", [call("strange", "{}"), answer(" [x")]),
            (', "id": "]"}]Then.', ', "id": "]"}', [answer("Then.")]),
        )
    ),
    *(
        Case(f"an object in {begin!r}", "llama3_json", f"</think>{begin}{text}", [*before, *items])
        for begin, before in (("", []), ("So. ", [answer("So. ")]))
        for text, items in (
            ('{"name": "f", "parameters": {}}', [call("f", "{}")]),
            ('{"parameters": {"s": 1}, "name": "g"}', [call("g", '{"s": 1}')]),
            ('{"name": "f", "parameters": }Then.', [call("f", "{}"), answer("Then.")]),
        )
    ),
    *(
        Case(f"an object that is no call in {begin!r}", "llama3_json", f"</think>{begin}{text}", [answer(f"{begin}{text}")])
        for begin in ("", "So. ")
        for text in (
            '{"name": "strange", "parameters": {}}',
            '{"x": {"name": "f"}}x',
            '{"name": "f" , "x": 1}',
            '{"name": "f" ',
            "{",
        )
    ),
    Case(
        "objects after a call",
        "llama3_json",
        '</think>{"name": "f", "parameters": 1}; {"name": "g"} {"name": "f", "parameters": 2}'
        'So. {"name": "g", "parameters": 3}{"name": "f"}',
        [call("f", "1"), call("g", "{}"), call("f", "2"), answer("So. "), call("g", "3"), answer('{"name": "f"}')],
    ),
    Case(
        "an object behind a marker, of a tool that nobody declared",
        "llama3_json",
        '</think><|python_tag|>{"name": "strange"}',
        [call("strange", "{}")],
    ),
    Case(
        "an id before the name",
        "cohere_command3",
        '</think><|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {"s": "a"}}]<|END_ACTION|>Then.',
        [call("f", '{"s": "a"}'), answer("Then.")],
    ),
    # JSON
    Case("no arguments", "hermes", '</think><tool_call>{"name": "f"}</tool_call>', [call("f", "{}")]),
    Case(
        "arguments before the name",
        "hermes",
        '</think><tool_call>{"arguments": {"s": "}"}, "name": "f"}</tool_call>',
        [call("f", '{"s": "}"}')],
    ),
    Case(
        "arguments by their other name",
        "hermes",
        '</think><tool_call>{"name": "f", "parameters": {"s": "a"}}</tool_call>',
        [call("f", '{"s": "a"}')],
    ),
    Case(
        "arguments that are no object",
        "hermes",
        '</think><tool_call>{"name": "f", "arguments": "a"}</tool_call>',
        [call("f", '"a"')],
    ),
    Case(
        "arguments that are null",
        "hermes",
        '</think><tool_call>{"name": "f", "arguments": null}</tool_call>',
        [call("f", "null")],
    ),
    Case(
        "another member",
        "hermes",
        '</think><tool_call>{"name": "f", "id": 1, "arguments": {}}</tool_call>',
        [call("f", ', "id": 1, "arguments": {}}')],
    ),
    Case(
        "a JSON string that is cut", "hermes", f"</think>{_HERMES[:-16]}</tool_c", [call("f", '{"s": "a</tool_c', "")], "length"
    ),
    *(
        Case(f"a call that is cut {place}", name, f"</think>{text}", [call("f", arguments, "")], "length")
        for place, name, text, arguments in (
            ("before its arguments", "plamo3", f"{_PLAMO3}<|plamo:con", ""),
            ("after a number", "hermes", '<tool_call>{"name": "f", "arguments": {"n": 1</tool_c', '{"n": 1'),
            ("in a torn string", "hermes", '<tool_call>{"name": "f", "arguments": {"s": "a\nb</tool_c', '{"s": "a\\nb'),
            ("after its arguments", "hermes", '<tool_call>{"name": "f", "arguments": {"n": 1}</tool_c', '{"n": 1}'),
            ("after other text", "hermes", '<tool_call>{"name": "f", "arguments": {"n": 1}x</tool_c', '{"n": 1}x'),
            ("after a number in a literal", "gemma4", "<|tool_call>call:f{n:5<tool_ca", '{"n":5'),
            ("before a value", "qwen3_coder", "<tool_call><function=f><parameter=s>\n</par", '{"s":"'),
            ("after a value", "qwen3_coder", "<tool_call><function=f><parameter=s>\na\n</parameter>\n</fun", '{"s":"a"'),
            ("after stray text", "qwen3_coder", "<tool_call><function=f><parameter=s>\na\n</parameter>x</fun", '{"s":"a"x'),
            ("in the end of a value", "qwen3_coder", "<tool_call><function=f><parameter=s>\na\n</function>\n</to", '{"s":"a'),
            ("after a key", "glm45", f"{_GLM45}</arg_value><arg_key>t</arg_k", '{"s":"a"'),
            ("after the end of a key", "glm45", f"{_GLM45}</arg_value><arg_key>t</arg_key><arg_v", '{"s":"a"'),
            ("in the attributes of a key", "kimi_k3", _KIMI_K3 + '<|open|>argument key="a" type="number"<|sep', ""),
            ("after a key in a value", "glm45", f"{_GLM45}\n<arg_key>t</arg_k", '{"s":"a'),
            ("after a name in a value", "glm45", f"{_GLM45}\n<tool_call>f<arg_k", '{"s":"a'),
        )
    ),
    Case(
        "a call whose end is not whole, in a family that may omit it",
        "deepseek_v32",
        f"</think>{_DSML}</｜DSML｜inv",
        [call("f", '{"s":"a"}')],
    ),
    Case(
        "a key that is not whole, in a family that may omit ends",
        "deepseek_v32",
        f"</think>{_DSML}<｜DSML｜par",
        [call("f", '{"s":"a"', "")],
    ),
    Case(
        "a key after which the model stops",
        "glm45",
        f"</think>{_GLM45}</arg_value><arg_key>t</arg_key>",
        [call("f", '{"s":"a"', "")],
    ),
    Case("a member in which the model stops", "hermes", '</think><tool_call>{"name": "f", "argu', [call("f", "", "")]),
    Case("a member that is cut", "hermes", '</think><tool_call>{"name": "f", "argu', [call("f", "", "")], "length"),
    Case(
        "a brace too few",
        "hermes",
        '</think><tool_call>{"name": "f", "arguments": {"s": "a"}</tool_call>',
        [call("f", '{"s": "a"}')],
    ),
    Case(
        "a brace too many",
        "hermes",
        '</think><tool_call>{"name": "f", "arguments": {"s": "a"}}}</tool_call>',
        [call("f", '{"s": "a"}}')],
    ),
    *(
        Case(
            f"arguments that are missing, and then {after!r}",
            "hermes",
            f'</think><tool_call>{{"name": "f", "arguments": }}{after}</tool_call>Then.',
            [call("f", arguments), answer("Then.")],
        )
        for after, arguments in (
            ("", "{}"),
            (" ", "{}"),
            (" x", " x"),
            ('"x', '"x'),
            ("}", "}"),
            (', "arguments": {}', ', "arguments": {}'),
        )
    ),
    Case(
        "arguments that are called so, and white space",
        "kimi_k2",
        f"</think><|tool_calls_section_begin|>{_KIMI}".replace(
            '{"s": "a"}', '{"o": {}  , "arguments":  [1, {"a": 2}] , "arguments":\n\n {}}'
        ),
        [kimi(0, '{"o": {}  , "arguments":  [1, {"a": 2}] , "arguments":\n\n {}}')],
    ),
    Case(
        "text after the arguments",
        "hermes",
        '</think><tool_call>{"name": "f", "arguments": {}, "x": 1}</tool_call>',
        [call("f", '{}, "x": 1}')],
    ),
    Case(
        "text after the envelope",
        "hermes",
        '</think><tool_call>{"name": "f", "arguments": {}} x</tool_call>',
        [call("f", "{} x")],
    ),
    *(
        Case(
            f"a name, and then {after!r}",
            "hermes",
            f'</think><tool_call>{{"name": "f"{after}</tool_call>Then.',
            [call("f", arguments), answer("Then.")],
        )
        for after, arguments in (('"}', '"}'), ("} \n", "{}"), ("}}", "}"))
    ),
    *(
        Case(
            f"arguments, and then {after!r}",
            "hermes",
            f'</think><tool_call>{{"name": "f", "arguments": {arguments}{after}</tool_call>Then.',
            [call("f", arguments.replace("\n", "\\n") + more), answer("Then.")],
        )
        for arguments in ("{}", '"a"', '"a\n"', '{"a\n" : "</tool_call>"}')
        for after, more in (("", ""), (" ", ""), ("}", ""), (" }\n", ""), (" x}", " x}"), ("} }", " }"))
    ),
    Case(
        "JSON that is not whole",
        "kimi_k2",
        f"</think><|tool_calls_section_begin|>{_KIMI.replace('}', '')}<|tool_calls_section_end|>",
        [kimi(0, '{"s": "a"')],
    ),
    Case(
        "a string that is not whole",
        "hermes",
        '</think><tool_call>{"name": "f", "arguments": {"s": "a\n</tool_call>Then.',
        [call("f", '{"s": "a\\n'), answer("Then.")],
    ),
    Case(
        "a line break in a string",
        "hermes",
        '</think><tool_call>{"name": "f", "arguments": {"s": "a\nb\\"c"}}</tool_call>',
        [call("f", '{"s": "a\\nb\\"c"}')],
    ),
    Case(
        "a marker in a string",
        "hermes",
        '</think><tool_call>{"name": "f", "arguments": {"s": "</tool_call>\\\\"}}</tool_call>',
        [call("f", '{"s": "</tool_call>\\\\"}')],
    ),
    Case(
        "a bracket too many",
        "kimi_k2",
        f"</think><|tool_calls_section_begin|>{_KIMI.replace('{', '}{')}",
        [kimi(0, '}{"s": "a"}')],
    ),
    Case(
        "a fence",
        "deepseek_v3",
        "</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n"
        '```json\n{"s": "```"}\n```<｜tool▁call▁end｜>',
        [call("f", '{"s": "```"}')],
    ),
    Case(
        "white space before and after the arguments",
        "deepseek_v31",
        f"</think><｜tool▁calls▁begin｜>{_V31}".replace("{", "\n {").replace("}", "} \n"),
        [call("f", '{"s": "a"}')],
    ),
    Case(
        "arguments that are cut",
        "kimi_k2",
        f"</think><|tool_calls_section_begin|>{_KIMI}"[:-21],
        [kimi(0, '{"s": ', "")],
        "length",
    ),
    Case(
        "a scalar and then a call",
        "mistral",
        '</think>[TOOL_CALLS]f[ARGS]"a"[TOOL_CALLS]g[ARGS]5',
        [call("f", '"a"'), call("g", "5", "")],
    ),
    Case(
        "a string and then text",
        "mistral",
        '</think>[TOOL_CALLS]f[ARGS]"a"Then.',
        [call("f", '"a"'), answer("Then.")],
    ),
    Case(
        "a string that breaks and ends the arguments",
        "mistral",
        '</think>[TOOL_CALLS]f[ARGS]"a\n"Then.',
        [call("f", '"a\\n"'), answer("Then.")],
    ),
    Case(
        "white space between the end of a value and that of its call",
        "glm45",
        "</think><tool_call>f<arg_key>s</arg_key><arg_value>a</arg_value>  </tool_call>Then.",
        [call("f", '{"s":"a"}'), answer("Then.")],
    ),
    Case(
        "white space between a call and one that is none",
        "qwen3_coder",
        "</think><tool_call><function=f><parameter=s>a</parameter>  <function=!",
        [call("f", '{"s":"a"}'), answer("  <function=!")],
    ),
    Case(
        "Unicode",
        "hermes",
        '</think>漢😀<tool_call>{"name": "f", "arguments": {"s": "é漢😀"}}</tool_call>',
        [answer("漢😀"), call("f", '{"s": "é漢😀"}')],
    ),
]
